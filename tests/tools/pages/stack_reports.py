"""Reports for pages about stacks: by hand with all tables, and of traces that were written for it."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.output.pages import stacks_data
from cuptimem.report.load import analyze, from_dict
from cuptimem.report.model import Compacted, Lost
from tests.tools.cli import sample, stacked

HOSTILE = '</script><img src=x onerror="document.title=1">'
NAMES = [
    HOSTILE,
    "Gräfin.größe_测试",
    "\u202eevil\u2066",
    "a\x00b\x1b[31m\n\r",
    "n" * 100_000,
    "\ud800\udfff",
    "=cmd()",
]

Row = tuple[int, int, str, Sequence[tuple[Any, ...]]]  # bytes, blocks, phase, frames with the innermost first


def by_hand(
    folder: Path, tables: dict[str, Sequence[Row]], rest: tuple[int, int] = (0, 0), **more: Any
) -> cuptimem.Report:
    """tables: rows of "peak" and of the tables, with the rest. Frames: (file, function, line[, module[, text]])."""
    raw = sample.analysis(folder)
    stacks: dict[int, list[tuple[Any, ...]]] = {}
    numbers: dict[tuple[Any, ...], int] = {}

    def packed(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        found = []
        for size, count, phase, frames in rows:
            number = 0
            if frames:
                number = numbers.setdefault(tuple(frames), len(numbers) + 2)
                stacks[number] = [_frame(*frame) for frame in frames]
            found.append((size, count, number, number, phase, None, *sample.UNKNOWN))
        return found

    device = raw["devices"][0]
    device.update(contributors=packed(tables["peak"]), peak=sum(row[0] for row in tables["peak"]))
    names = [*stacks_data.tables(None), "stepped"]
    device["tables"] = {what: (packed(tables.get(what, ())), rest) for what in names}
    for what, key in (("end", "end"), ("kept", "kept"), ("allocated", "allocated")):
        device[key] = sum(row[0] for row in tables.get(what, ())) + rest[0]
    raw["stacks"] = stacks
    raw["survivors"] = []
    for step in raw["steps"]:
        step["contributors"] = []
    raw.update(more)
    return from_dict(str(folder / "run.cmem"), raw)


def _frame(file: str, function: str, line: int, module: str | None = None, text: str = "") -> tuple[Any, ...]:
    return (file, function, line, line, 0, 5, module, 0x7000 if module else 0, text)


def some(folder: Path, seed: int = 1, rows: int = 60) -> cuptimem.Report:
    """Recursion, the user's own code, libraries, PyTorch, modules, blocks without a stack."""
    r = random.Random(seed)
    files = [
        ("/home/me/train.py", None),
        (stacked.SITE + "pack/a.py", None),
        (stacked.SITE + "torch/nn/m.py", "Linear"),
        (stacked.SITE + "torch/b.py", None),
    ]

    def calls() -> list[tuple[Any, ...]]:
        found = []
        for _ in range(r.randrange(7)):
            file, module = r.choice(files)
            found.append((file, r.choice("fgh"), r.randrange(4), module, "x = y"))
        return found

    stacks = [calls() for _ in range(rows)]
    # One row for each stack and phase of a table, as the core gives them.
    tables = {
        what: [
            (r.randrange(1, 1 << 33), r.randrange(1, 9), phase, stack)
            for stack in stacks[: r.randrange(1, rows)]
            for phase in r.sample(["forward", "backward", "other"], 2)
        ]
        for what in ("peak", "end", "kept", "allocated", "temporary", "stepped")
    }
    return by_hand(folder, tables, rest=(77, 3))


def hostile(folder: Path) -> cuptimem.Report:
    """Names, files and lines of code with what would be markup, a command of a terminal, or no Unicode."""
    rows: list[Row] = []
    for size, name in enumerate(NAMES, start=1000):
        rows.append((size, 1, "forward", [(f"/home/{name}.py", name, 3, name, name), ("/home/me/train.py", "main", 9)]))
    report = by_hand(folder, {"peak": rows, "end": rows})
    return replace(report, environment={"script": HOSTILE, "problems": HOSTILE})


def many_lines(folder: Path, lines: int) -> cuptimem.Report:
    main = ("/home/me/train.py", "main", 9)
    rows: list[Row] = [
        (i % 977 + 1, 1, "forward", [(f"/home/me/m{i % 50}.py", f"f{i % 900}", i), main]) for i in range(lines)
    ]
    return by_hand(folder, {"peak": rows})


def damaged(folder: Path) -> cuptimem.Report:
    report = some(folder, 5)
    lost = Lost(events=12, stacks=3, replaced=1)
    return replace(
        report, lost=lost, compacted=Compacted(4, 90, 12_345), complete=False, state="cut", reason="disk full"
    )


def recorded(folder: Path, on: str = "cpu", events: int = 20_000, cut: int = 0) -> cuptimem.Report:
    """Of a trace; cut: bytes that are missing at its end."""
    path = folder / "synthetic.cmem"
    write_synthetic(str(path), events, 3, on)
    if cut:
        path.write_bytes(path.read_bytes()[:-cut])
    return analyze(str(path), tables=[*stacks_data.tables(None), "stepped"])
