"""The programs and the changes of each.

NAME.py is a program as its user has it. NAME.toml, by its author, has the changes that a user could make by hand: what
is replaced by what, the lines where that is written, whether it saves. NAME.json is what PyTorch's allocator said of
each.
"""

from __future__ import annotations

import ast
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "evidence" / "advice"
PROGRAMS = FOLDER / "programs"
STAND_INS = FOLDER / "stand_ins"
LEAST = 0.02  # of the peak: less is nothing

FOLLOWED = ("release", "no_grad", "set_to_none")  # what their rows say is made by hand, too (follow.py)
FREE = frozenset(
    {
        "zero_grad_late",
        "set_to_none",
        "no_grad",
        "retain_graph",
        "release",
        "fused_attention",
        "fused",
        "no_foreach",
        "collect",
        "keep_evaluation",
        "expand",
        "clone_view",
        "single_precision",
        "load_late",
    }
)
TRADE = frozenset(
    {
        "in_place",
        "host_snapshot",
        "freeze",
        "checkpoint",
        "autocast",
        "sgd",
        "adam8bit",
        "factored",
        "step_in_backward",
        "accumulate",
        "batch",
        "chunked_loss",
        "offload",
        "half_model",
        "expandable",
    }
)


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a user could make. saves: of the peak, by the author, before anything ran."""

    key: str  # its technique, and what tells it from others of that technique
    technique: str
    saves: bool
    edits: tuple[tuple[str, str], ...]  # text of the program that is there once, and what replaces it
    where: tuple[str, ...] = ()  # code of the lines where the user writes; left out: the first edit's
    near: tuple[str, ...] = ()  # code of lines that a reader would take for the same advice
    value: str | int | float | None = None  # of checkpoint the modules, of batch NEW:OLD, of accumulate the parts
    reserved: bool = False  # it is about reserved memory
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "free" if self.technique in FREE else "trade"


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    changes: tuple[Change, ...]
    libraries: tuple[str, ...]  # that it imports beside torch: public ones whose models it has
    arguments: tuple[str, ...]
    seen: bool  # whether a rule was made on it
    counted: Mapping[str, Any]  # NAME.json; {} before it was counted

    @property
    def path(self) -> Path:
        return PROGRAMS / f"{self.name}.py"

    @property
    def about(self) -> str:
        return ast.get_docstring(ast.parse(self.path.read_text())) or ""

    def changed(self, change: Change) -> str:
        """The program's text as the change makes it."""
        text = self.path.read_text()
        for old, new in change.edits:
            if text.count(old) != 1:
                raise ValueError(f"{self.name}, {change.key}: {old!r} is there {text.count(old)} times")
            text = text.replace(old, new)
        ast.parse(text)
        return text

    def lines_of(self, code: str) -> range:
        """The numbers of the lines of a text that is there once."""
        text = self.path.read_text()
        if text.count(code) != 1:
            raise ValueError(f"{self.name}: {code!r} is there {text.count(code)} times")
        first = text.count("\n", 0, text.index(code)) + 1
        return range(first, first + code.rstrip("\n").count("\n") + 1)

    def right(self, change: Change) -> set[int]:
        """Lines at which the advice is right."""
        return {line for code in change.where or (change.edits[0][0],) for line in self.lines_of(code)}

    def near(self, change: Change) -> set[int]:
        return {line for code in change.near for line in self.lines_of(code)}

    def saved(self, change: Change) -> int:
        """What the allocator said that it saves; of reserved memory if it is about that."""
        what = "reserved" if change.reserved else "allocated"
        return int(self.counted["before"][what]) - int(self.counted["changes"][change.key][what])

    def worth(self, change: Change) -> bool:
        what = "reserved" if change.reserved else "allocated"
        return bool(self.saved(change) >= LEAST * self.counted["before"][what])


def _change(name: str, row: dict[str, Any]) -> Change:
    technique = row["technique"]
    if technique not in FREE | TRADE:
        raise ValueError(f"{name}: no technique {technique!r}")
    more = row.pop("as", "")
    for key in ("where", "near"):
        row[key] = tuple(row.get(key, ()))
    row["edits"] = tuple((old, new) for old, new in row.get("edits", ()))
    try:
        change = Change(key=f"{technique} {more}".strip(), **row)
    except TypeError as error:
        raise ValueError(f"{name}, {technique}: {error}") from None
    if not change.edits and not (change.environment and change.where):
        raise ValueError(f"{name}, {change.key}: changes nothing, or at no line")
    return change


def read(path: Path, counted: bool = True) -> Program:
    truth = tomllib.loads(path.read_text())
    unknown = set(truth) - {"libraries", "arguments", "seen", "change"}
    if unknown:
        raise ValueError(f"{path.name}: {unknown}")
    changes = tuple(_change(path.stem, row) for row in truth["change"])
    if len({change.key for change in changes}) < len(changes):
        raise ValueError(f"{path.name}: two changes have one name")
    table = path.with_suffix(".json")
    program = Program(
        path.stem,
        changes,
        tuple(truth.get("libraries", ())),
        tuple(truth.get("arguments", ())),
        bool(truth.get("seen", False)),
        json.loads(table.read_text()) if counted and table.exists() else {},
    )
    for change in changes:
        program.changed(change)
        program.right(change)
        program.near(change)
    return program


def programs(names: Sequence[str] = (), counted: bool = True) -> list[Program]:
    """counted: with what the allocator said."""
    paths = {path.stem: path for path in sorted(PROGRAMS.glob("*.toml"))}
    if missing := set(names) - set(paths):
        raise ValueError(f"no such program: {', '.join(sorted(missing))}")
    return [read(paths[name], counted) for name in names or paths]


def environment() -> dict[str, str]:
    """Of a child that runs programs: a simulated device, no cuptimem."""
    import cudasim

    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CUPTIMEM", "PYTORCH_"))}
    return {
        **clean,
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "HF_HUB_OFFLINE": "1",
        "CUPTIMEM_SIM_DEVICE": "h100",
        "CUPTIMEM_SIM_DEVICES": "1",
        **cudasim.variables(),
    }
