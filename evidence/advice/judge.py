"""Compares what cuptimem advised with what PyTorch's allocator said of the changed programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.advice.suite import FREE, LEAST, Change, Program

SAVING_GOAL, PEAK_GOAL, TRY_GOAL = 0.20, 0.05, 0.01
NO_LINE = frozenset({"expandable"})  # a setting of the process, which has no line


@dataclass(frozen=True, slots=True)
class Row:
    """A proposal of cuptimem."""

    technique: str
    lines: frozenset[int]  # of the program
    saved: int
    peak: int
    tried: bool = False  # what it saves was tried: nothing is predicted of it
    is_sure: bool = True  # False: it says what the user has to make sure of


@dataclass(frozen=True, slots=True)
class Finding:
    """A technique that saves in a program, and the proposal. outcome: right, near, wrong line, missed."""

    program: str
    technique: str
    outcome: str
    saved: int  # by the allocator, of the change that the proposal is nearest to
    proposed: int | None

    @property
    def error(self) -> float | None:
        """Of the saving."""
        return None if self.proposed is None else (self.proposed - self.saved) / self.saved


@dataclass(frozen=True, slots=True)
class Alarm:
    """A proposal that saves nothing (by the allocator), or of which nobody has counted what it saves."""

    program: str
    technique: str
    lines: frozenset[int]
    proposed: int
    counted: bool
    is_sure: bool

    @property
    def free(self) -> bool:
        return self.technique in FREE and self.is_sure


@dataclass(frozen=True, slots=True)
class Peak:
    """A predicted or tried peak of one change beside the allocator's."""

    program: str
    key: str
    technique: str
    before: int
    true: int
    predicted: int | None
    tried: int | None

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else (self.predicted - self.true) / self.true

    @property
    def try_error(self) -> float | None:
        return None if self.tried is None else (self.tried - self.true) / self.true


def lines_of(frame: Mapping[str, Any] | None, name: str) -> frozenset[int]:
    """The line of the program that a proposal names, if it is one of the program."""
    if frame is None or not str(frame["file"]).endswith(f"{name}.py"):
        return frozenset()
    return frozenset({int(frame["line"])})


def rows(program: Program, said: Mapping[str, Any]) -> list[Row]:
    """What `cuptimem advice --try` shows: what a recording proposes, and what a try alone shows to save; of operators
    in place none that no rule has."""
    found = [
        Row(
            row["technique"],
            lines_of(row["line"], program.name),
            int(row["saved"]),
            int(row["bytes"]),
            is_sure=not row["cost"].startswith("care: "),
        )
        for row in said["advice"].get("proposals", ())
    ]
    shown = {row.technique for row in found} | {"in_place"}
    for change in program.changes:
        attempt = said.get("tried", {}).get(change.key, {})
        what = "reserved_bytes" if change.reserved else "peak_bytes"
        if change.technique in shown or change.value is not None or attempt.get(what) is None:
            continue
        before = int(said["unchanged"][what])
        saved = before - int(attempt[what])
        if saved >= LEAST * before:
            lines = lines_of(attempt["frame"], program.name)
            found.append(Row(change.technique, lines, saved, int(attempt[what]), True))
    return found


def _before(program: Program, change: Change) -> int:
    return int(program.counted["before"]["reserved" if change.reserved else "allocated"])


def findings(program: Program, proposals: Sequence[Row]) -> list[Finding]:
    """One for each technique of which a counted change saves."""
    found = []
    for technique in dict.fromkeys(change.technique for change in program.changes):
        changes = [c for c in program.changes if c.technique == technique and program.worth(c)]
        if not changes:
            continue
        right = {line for change in changes for line in program.right(change)}
        near = {line for change in changes for line in program.near(change)}
        best, outcome = None, "missed"
        for row in sorted((row for row in proposals if row.technique == technique), key=lambda row: -row.saved):
            here = (
                "right" if row.lines & right or technique in NO_LINE else "near" if row.lines & near else "wrong line"
            )
            if best is None or ("wrong line", "near", "right").index(here) > ("wrong line", "near", "right").index(
                outcome
            ):
                best, outcome = row, here
        saved = max(program.saved(change) for change in changes)
        if best is not None:
            saved = min((program.saved(change) for change in changes), key=lambda one: abs(one - best.saved))
        # Of those with a value, another value may have been proposed: their saving is judged by the what-if.
        valued = all(change.value is not None and technique != "checkpoint" for change in changes)
        is_judged = best is not None and not valued and not best.tried
        found.append(Finding(program.name, technique, outcome, saved, best.saved if best and is_judged else None))
    return found


def alarms(program: Program, proposals: Sequence[Row], said: Mapping[str, Any]) -> list[Alarm]:
    found = []
    before = program.counted["before"]["allocated"]
    followed = said.get("followed", {})
    for row in proposals:
        if (mine := followed.get(row.technique)) is not None:
            if "error" in mine or before - mine["allocated"] < LEAST * before <= row.saved:
                found.append(Alarm(program.name, row.technique, row.lines, row.saved, True, row.is_sure))
            continue
        changes = [change for change in program.changes if change.technique == row.technique]
        if any(program.worth(change) for change in changes) or row.saved < LEAST * before:
            continue
        # A larger batch was counted alone: it says nothing of a smaller one.
        counted = [change for change in changes if change.technique != "batch" or program.saved(change) > 0]
        found.append(Alarm(program.name, row.technique, row.lines, row.saved, bool(counted), row.is_sure))
    return found


def peaks(program: Program, said: Mapping[str, Any]) -> list[Peak]:
    """Of every change; of a technique whose row names places the one that the row says, where that was made by hand:
    an author may have had others in mind."""
    found = []
    followed = {name: one["allocated"] for name, one in said.get("followed", {}).items() if "allocated" in one}
    for name, true in followed.items():
        before = int(program.counted["before"]["allocated"])
        row = said.get("what_if", {}).get(name, {}), said.get("tried", {}).get(name, {})
        numbers = row[0].get("bytes"), row[1].get("peak_bytes")
        found.append(Peak(program.name, f"{name}, its row", name, before, true, *numbers))
    for change in program.changes:
        if change.technique in followed:
            continue
        answer = said.get("what_if", {}).get(change.key, {})
        true = _before(program, change) - program.saved(change)
        attempt = said.get("tried", {}).get(change.key, {})
        peak = attempt.get("reserved_bytes" if change.reserved else "peak_bytes")
        found.append(
            Peak(
                program.name,
                change.key,
                change.technique,
                _before(program, change),
                true,
                answer.get("bytes"),
                peak,
            )
        )
    return found
