"""The TOML files of this folder: programs with expected verdicts, published figures, and how each is simulated."""

from __future__ import annotations

import dataclasses
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
GIB = 1 << 30

# What a published number counts in. "GB (1e9)" and the like begin with one of these.
UNITS = {"GiB": GIB, "MiB": 1 << 20, "GB": 10**9, "MB": 10**6, "B": 1}


@dataclass(frozen=True, slots=True)
class Program:
    """A row of programs.toml: a program, the card, and the verdict that was written down beforehand."""

    name: str  # its number, with the arguments where several rows share a file
    file: Path
    arguments: tuple[str, ...]
    options: tuple[str, ...]
    kind: str
    library: str
    source: str
    card: str
    card_gib: float
    expected: str
    basis: str
    peak_gib: float
    margin: float
    within_10_percent: bool
    sure: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of figures.toml."""

    name: str
    source: str
    url: str
    quantity: str
    value: float | str
    unit: str
    card: str
    torch: str
    setup: str
    ambiguous: str

    @property
    def number(self) -> float | None:
        """In bytes; of what is counted in something else its number; of a verdict None."""
        return None if isinstance(self.value, str) else self.value * UNITS.get(self.unit.split()[0], 1)


@dataclass(frozen=True, slots=True)
class Setup:
    """How a figure is simulated (setups.toml): a script of figures/, its arguments, the options of the device."""

    figure: str
    script: Path
    arguments: tuple[str, ...]
    options: tuple[str, ...]
    ends: int  # 2: at the high end of what is modelled, too
    what: str  # "measured": by the script, as the source did; "used": of the device, by simulate; "verdict"
    then: bool  # a second time with what PyTorch did then
    unit: str  # "" where the figure's own is meant
    fitted: bool  # a number of the set-up was chosen by this figure: no test of anything
    revised: str  # what was corrected after a first result had been seen
    differs: str


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text())


def programs() -> list[Program]:
    """In the file's order. Raises ValueError where two rows have one name."""
    rows = []
    for row in _read("programs.toml")["program"]:
        arguments = tuple(shlex.split(row.get("arguments", "")))
        number = Path(row["file"]).name.partition("_")[0]
        rows.append(
            Program(
                " ".join((number, *arguments)),
                FOLDER / row["file"],
                arguments,
                tuple(shlex.split(row["options"])),
                row["kind"],
                row["library"],
                row["source"],
                row["card"],
                row["card_gib"],
                row["expected"],
                row["basis"],
                row["peak_gib"],
                row["margin"],
                row["within_10_percent"],
                row["sure"],
            )
        )
    _unique([row.name for row in rows])
    return rows


def figures() -> list[Figure]:
    """In the file's order. Raises ValueError where two rows have one id."""
    rows = [
        Figure(
            *(row[key] for key in ("id", "source", "url", "quantity", "value", "unit", "card", "torch", "setup")),
            row.get("ambiguous", ""),
        )
        for row in _read("figures.toml")["figure"]
    ]
    _unique([row.name for row in rows])
    return rows


def setups() -> dict[str, Setup]:
    """Of the figures that are simulated."""
    found = {}
    for group in _read("setups.toml")["group"]:
        for figure, own in group["figures"].items():
            if figure in found:
                raise ValueError(f"two set-ups of {figure}")
            found[figure] = Setup(
                figure,
                FOLDER / "figures" / group["script"],
                (figure, *shlex.split(own.get("arguments", ""))),
                tuple(shlex.split(own.get("options", group["options"]))),
                own.get("ends", group.get("ends", 1)),
                own.get("what", group.get("what", "measured")),
                own.get("then", group.get("then", False)),
                own.get("unit", ""),
                own.get("fitted", False),
                own.get("revised", group.get("revised", "")),
                own.get("differs", group.get("differs", "")),
            )
    return found


def settled(figure: Figure, setup: Setup | None) -> Figure:
    """The figure in the unit that its set-up settles, where the source leaves it open."""
    return dataclasses.replace(figure, unit=setup.unit) if setup and setup.unit else figure


def left_out() -> dict[str, str]:
    """Why a figure is not simulated, of each that is not."""
    return {figure: row["reason"] for row in _read("setups.toml")["left_out"] for figure in row["figures"]}


def explanations(page: str) -> dict[str, str]:
    """One line by the name of a row, "verdicts" or "accuracy"."""
    return dict(_read("explanations.toml").get(page, {}))


def _unique(names: list[str]) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"several rows are named {', '.join(sorted(twice))}")
