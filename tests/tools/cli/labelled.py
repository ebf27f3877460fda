"""Blocks with categories, modules and names, by hand: Linear(1000, 2000), ReLU, Linear(2000, 10) with Adam."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cuptimem
from cuptimem.report.load import from_dict
from tests.tools.cli import sample

SITE = "/venv/lib/python3.11/site-packages/"
NN = SITE + "torch/nn/"
SCRIPT = "/home/me/train.py"

BUILT, FIRST, SECOND, ACTIVE, STEPPED, CALLED, LOADED = range(2, 9)  # stack ids
BATCH = 32


def frame(
    file: str, function: str, line: int, text: str, expression: str = "", module: str | None = None
) -> tuple[Any, ...]:
    column = text.index(expression) if expression else -1
    end = column + len(expression) if expression else -1
    return (file, function, line, line, column, end, module, 0x7000 if module else 0, text)


def stacks() -> dict[int, list[tuple[Any, ...]]]:
    main = frame(SCRIPT, "main", 9, "y = net(x)", "net(x)")
    linear = frame(
        NN + "modules/linear.py", "Linear.forward", 134,
        "        return F.linear(input, self.weight, self.bias)", "F.linear(input, self.weight, self.bias)", "Linear",
    )  # fmt: skip
    # As some of PyTorch's own Python functions, one between that only hands on what it got.
    wrapper = frame(
        SITE + "torch/utils/_device.py", "wrapped", 7, "    return func(*args, **kwargs)", "func(*args, **kwargs)"
    )
    relu = frame(NN + "functional.py", "relu", 1700, "    result = torch.relu(input)", "torch.relu(input)")
    empty = "torch.empty((out_features, in_features), **factory_kwargs)"
    made = f"        self.weight = Parameter({empty})"
    built = frame(NN + "modules/linear.py", "Linear.__init__", 106, made, empty)
    return {
        BUILT: [built, frame(SCRIPT, "build", 3, "net = Net()", "Net()")],
        FIRST: [wrapper, linear, main],
        SECOND: [linear, main],
        ACTIVE: [relu, main],
        STEPPED: [frame(SCRIPT, "main", 12, "opt.step()", "opt.step()")],
        CALLED: [frame(SCRIPT, "main", 11, "loss.backward()", "loss.backward()")],
        LOADED: [frame(SCRIPT, "load", 5, "return torch.randn(32, 1000)", "torch.randn(32, 1000)")],
    }


ADDMM, RELU, ACCUMULATE = "N5torch8autograd9generated14AddmmBackward0E", "ReluBackward0", "AccumulateGrad"
W1, B1, W2, B2 = 4 * 1000 * 2000, 4 * 2000, 4 * 2000 * 10, 4 * 10
HIDDEN = 4 * BATCH * 2000
ROWS: Sequence[tuple[Any, ...]] = (
    (W1 + B1, 2, BUILT, BUILT, "other", None, "parameter", "net.0", None),
    (W2 + B2, 2, BUILT, BUILT, "other", None, "parameter", "net.2", None),
    (W1 + B1, 2, FIRST, CALLED, "backward", ADDMM, "gradient", "net.0", None),
    (W2 + B2, 2, SECOND, CALLED, "backward", ADDMM, "gradient", "net.2", None),
    (2 * (W1 + B1), 4, STEPPED, STEPPED, "optimizer", None, "optimizer state", "net.0", None),
    (2 * (W2 + B2), 4, STEPPED, STEPPED, "optimizer", None, "optimizer state", "net.2", None),
    (4 * BATCH * 1000, 1, LOADED, LOADED, "data", None, "input", None, None),
    (HIDDEN, 1, FIRST, FIRST, "forward", None, "activation", "net.0", RELU),
    (HIDDEN, 1, ACTIVE, ACTIVE, "forward", None, "activation", "net.1", ADDMM),
    (4 * BATCH * 10, 1, SECOND, SECOND, "forward", None, "temporary", "net.2", None),
    (96, 1, 0, 0, "before start", None, "before start", None, None),
    (40, 3, CALLED, CALLED, "other", None, "unknown", None, None),
)
TENSORS: Sequence[tuple[Any, ...]] = (
    ("net.0.weight\tfloat32 2000 1000", "parameter", W1, "net.0", BUILT),
    ("net.0.weight\tfloat32 2000 1000", "gradient", W1, "net.0", FIRST),
    ("exp_avg of net.0.weight\tfloat32 2000 1000", "optimizer state", W1, "net.0", STEPPED),
    ("exp_avg_sq of net.0.weight\tfloat32 2000 1000", "optimizer state", W1, "net.0", STEPPED),
    ("exp_avg of net.0.bias\tfloat32 2000", "optimizer state", B1, "net.0", STEPPED),
    ("exp_avg of net.2.weight\tfloat32 10 2000", "optimizer state", W2, "net.2", STEPPED),
    ("\tfloat32 32 1000", "input", 4 * BATCH * 1000, None, LOADED),
)
TOTAL = sum(row[0] for row in ROWS)


def raw(folder: Path, **changes: Any) -> dict[str, Any]:
    made = sample.analysis(folder)
    rest = (0, 0)
    made["stacks"] = stacks()
    device = made["devices"][0]
    device.update(contributors=list(ROWS), peak=TOTAL, end=TOTAL, tensors=list(TENSORS), allocated=2 * TOTAL)
    device["tables"] = {what: (list(ROWS), rest) for what in ("end", "kept", "allocated", "temporary")}
    made["survivors"] = []
    for step in made["steps"]:
        step["contributors"] = []
    return made | changes


def report(folder: Path, **changes: Any) -> cuptimem.Report:
    return from_dict(str(folder / "run.cmem"), raw(folder, **changes))
