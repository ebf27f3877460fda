"""What doctor finds: one check for each thing that was looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import cuptimem
from cuptimem import environ
from cuptimem.record import autostart

SCHEMA = 1
State = Literal["ok", "note", "warning", "failed"]

INSTALLED, SOURCES, SELFTEST, PLACES, SETTINGS = "Installed", "Sources", "Self-test", "Places", "Settings"
GROUPS = (INSTALLED, SOURCES, SELFTEST, PLACES, SETTINGS)
CHILD_SECONDS = 300
SMALL_DISK = 256 << 20


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. "failed" means that recording does not work; "warning", that something lacks."""

    group: str
    name: str
    state: State
    text: str
    cost: str = ""  # what the user lacks because of it
    fix: str = ""  # what to do about it


@dataclass(frozen=True, slots=True)
class Slot:
    """A function of PyTorch that is intercepted, and the library whose calls to it are."""

    source: str
    symbol: str
    name: str  # readable
    meaning: str
    library: str  # "" where no loaded library calls it
    patched: int


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found out."""

    works: bool
    verdict: str
    checks: tuple[Check, ...]
    slots: tuple[Slot, ...] = ()
    offsets: dict[str, int] = field(default_factory=dict)  # bytes from the start of the struct
    nodes: str = ""  # "counted", or why they are not

    def to_dict(self) -> dict[str, Any]:
        """As --json prints it; keys stay within one schema."""
        return {"schema": SCHEMA, "version": cuptimem.__version__, **asdict(self)}


def child_environment(**more: str) -> dict[str, str]:
    """A child's: as ours, but nothing in it is recorded unless asked for. The place for rings stays."""
    kept = {name: value for name, value in environ.inherited().items() if name not in autostart.VARIABLES}
    return {**kept, **more}
