"""Leaks as _core.analyze returns them, by hand: a list that keeps outputs, a growing graph, a cycle, and suspects."""

from pathlib import Path
from typing import Any

from tests.tools.cli import sample

SOURCE = """\
import torch


def forward(model, x):
    return model(x).square().mean()


def train(model, batches, opt):
    total, losses = 0, []
    for x in batches:
        loss = forward(model, x)
        loss.backward()
        opt.step()
        losses.append(x * 2)
        total = total + loss


def evaluate(model, x):
    return forward(model, x)
"""

OUTPUTS, TOTAL, LOSS, EVALUATED = 10, 11, 12, 13  # stack ids
BELOW = (14, 15, 16, 17)  # of one line of the user's and four of a library's


def row(**changes: Any) -> dict[str, Any]:
    """Blocks of 2 KiB, one kept in every step."""
    made = {
        "kind": "bytes",
        "device": "cpu",
        "bytes": 49_152,
        "count": 24,
        "bytes_per_step": 2048.0,
        "count_per_step": 1.0,
        "first_step": 0,
        "last_step": 23,
        "loop": "training",
        "stack": OUTPUTS,
        "retained": 0,
        "signature": "survivors",
        "cause": "",
        "confidence": "high",
        "reason": "",
        "parts": [(49_152, 24, OUTPUTS)],
        "relation": "",
        "keeps": [],
    } | changes
    below = sum(kept["bytes_per_step"] for kept in made["keeps"])
    return {"total_bytes_per_step": made["bytes_per_step"] + below} | made


def nodes(**changes: Any) -> dict[str, Any]:
    """A graph that grows by four nodes a step."""
    return row(
        **{
            "kind": "nodes",
            "bytes": 96 * 1229,
            "count": 96,
            "bytes_per_step": 4 * 1229.0,
            "count_per_step": 4.0,
            "stack": LOSS,
            "retained": TOTAL,
            "parts": [(72 * 1229, 72, LOSS), (24 * 1229, 24, TOTAL)],
        }
        | changes
    )


def analysis(folder: Path, *leaks: dict[str, Any], steps: dict[str, int] | None = None, **more: Any) -> dict[str, Any]:
    """A run with these leaks and with so many steps in each loop; `more` replaces keys."""
    raw = sample.analysis(folder)
    script = str(folder / "train.py")
    Path(script).write_text(SOURCE)
    linear = "/usr/lib/python3/site-packages/torch/nn/modules/linear.py"

    def frame(function: str, line: int, file: str = script) -> tuple[Any, ...]:
        text = sample.source_line(SOURCE, line) if file == script else ""
        return (file, function, line, line, -1, -1, None, 0, text)

    main = frame("<module>", 30)
    train = frame("train", 11)
    inner = frame("Linear.forward", 134, linear)
    raw["stacks"] |= {
        OUTPUTS: [frame("train", 14), main],
        TOTAL: [frame("train", 15), main],
        LOSS: [inner, frame("forward", 5), train, main],
        EVALUATED: [inner, frame("forward", 5), frame("evaluate", 19), main],
    }
    raw["stacks"] |= {one: [frame("Linear.forward", one, linear), frame("forward", 5), train, main] for one in BELOW}
    first = raw["steps"][0]
    loops = [loop for loop, number in ({"training": 24} if steps is None else steps).items() for _ in range(number)]
    raw["steps"] = [{**first, "index": index, "loop": loop} for index, loop in enumerate(loops)]
    raw["meta"]["nodes"] = "counted"
    return raw | {"leaks": list(leaks), "suspects": [], "live_nodes": 96} | more
