"""Reports of contributors with whole stacks, by hand: a training in a library's loop."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cuptimem
from cuptimem.report.load import from_dict
from tests.tools.cli import sample

SITE = "/venv/lib/python3.11/site-packages/"
Call = tuple[str, str, int]  # file, function, line
MAIN: Call = ("/home/me/train.py", "main", 9)
TRAIN: Call = (SITE + "trainers/loop.py", "Loop.train", 70)
STEP: Call = (SITE + "trainers/loop.py", "Loop.step", 90)
ATTENTION: Call = (SITE + "models/gpt.py", "Attention.forward", 30)
MLP: Call = (SITE + "models/gpt.py", "MLP.forward", 50)
CALL: Call = (SITE + "torch/nn/modules/module.py", "Module._call_impl", 1789)
LINEAR: Call = (SITE + "torch/nn/modules/linear.py", "Linear.forward", 134)
RELU: Call = (SITE + "torch/nn/functional.py", "relu", 1771)
DATA: Call = ("/home/me/train.py", "load", 4)


def report(
    folder: Path,
    rows: Sequence[tuple[int, str, Sequence[Call]]],
    modules: Sequence[str | None] = (),
    names: Sequence[str] = (),
    categories: Sequence[str] = (),
    texts: Mapping[Call, str] | None = None,
    called: bool = False,
    **more: Any,
) -> cuptimem.Report:
    """rows: bytes, phase, calls with the innermost first. modules: of each row, the class of its innermost call.

    names, categories: of each row, of its module and its blocks. texts: of calls, their lines of code. called: CALL is
    the call of a module.
    """
    raw = sample.analysis(folder)
    stacks: dict[int, list[tuple[Any, ...]]] = {}
    contributors = []
    for number, (size, phase, calls) in enumerate(rows, start=2):
        if calls:
            stacks[number] = [_frame(call, (texts or {}).get(call, ""), called) for call in calls]
        if number - 2 < len(modules) and modules[number - 2] is not None:
            stacks[number][0] = (*stacks[number][0][:6], modules[number - 2], 0x7000 + number)
        kind = categories[number - 2] if number - 2 < len(categories) else "unknown"
        name = names[number - 2] if number - 2 < len(names) else None
        stack = number if calls else 0
        contributors.append((size, 1, stack, stack, phase, None, kind, name, None))
    total = sum(size for size, _, _ in rows)
    raw["stacks"] = stacks
    raw["devices"][0].update(contributors=contributors, peak=total, **more)
    raw["leaks"], raw["survivors"] = [], []
    for step in raw["steps"]:
        step["contributors"] = []
    return from_dict(str(folder / "run.cmem"), raw)


def _frame(call: Call, text: str, called: bool) -> tuple[Any, ...]:
    file, function, line = call
    module = ("Attention", 0x70) if call == CALL and called else (None, 0)
    return (file, function, line, line, 0, len(text) or 5, *module, text)


def trained(folder: Path, **more: Any) -> cuptimem.Report:
    """90 of 100 bytes stand at one line of the user's."""
    rows = [
        (50, "forward", [LINEAR, CALL, ATTENTION, CALL, STEP, TRAIN, MAIN]),
        (20, "backward", [LINEAR, CALL, ATTENTION, CALL, STEP, TRAIN, MAIN]),
        (20, "forward", [RELU, MLP, CALL, STEP, TRAIN, MAIN]),
        (10, "data", [DATA]),
    ]
    names = ["h.0.attn", "h.1.attn", "h.1.mlp"]
    categories = ["activation", "activation", "activation", "input"]
    return report(folder, rows, names=names, categories=categories, **more)
