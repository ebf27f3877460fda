"""What cuptimem said of a run, beside what is true of the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.leaks.truth import Truth

RATE_GOAL = 0.10


@dataclass(frozen=True, slots=True)
class Entry:
    """A verdict or suspect of a report, in numbers and lines."""

    kind: str  # "bytes" or "nodes"
    bytes_per_step: float
    count_per_step: float
    loop_steps: int  # steps of the loop in which it grows
    lines: tuple[int, ...]  # where its user is sent: the line to look at first, and the line that makes it
    where: str
    said: str  # signature and cause, or a suspect's reason
    kept: tuple[Entry, ...] = ()  # what stands under it


@dataclass(frozen=True, slots=True)
class Said:
    """What one recorded run showed."""

    steps: int  # asked for
    clock: str | None  # what counted the steps: "optimizer", "data", "module"; None: nothing was seen to tick
    nodes_counted: bool
    leaks: tuple[Entry, ...]
    suspects: tuple[Entry, ...]
    problem: str = ""  # why the recording cannot count; "" if it can


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one run is worth."""

    outcome: str  # "found", "missed", "clean", "cannot tell", "negligible", "false alarm", "failed"
    right: bool  # whether that is the right answer
    line_right: bool | None  # of the first entry; None where there is none to be right about
    strays: tuple[str, ...]  # further entries of a leaking program that name lines without a mark
    byte_error: float | None  # relative; None where no tensors grow
    node_error: float | None
    note: str = ""
    entries: int = 0  # of a leak that was found

    @property
    def rate_error(self) -> float | None:
        """The larger of both."""
        errors = [error for error in (self.byte_error, self.node_error) if error is not None]
        return max(errors) if errors else None

    @property
    def passed(self) -> bool:
        if self.outcome != "found":
            return self.right
        error = self.rate_error
        return bool(self.line_right) and error is not None and error <= RATE_GOAL


def entry(leak: object, loops: dict[str, int], program: Path) -> Entry:
    """From a cuptimem.Leak; its lines are those in the program's file."""
    frames = [frame for frame in (leak.frame, leak.made_frame) if frame is not None]  # type: ignore[attr-defined]
    lines = tuple(dict.fromkeys(f.line for f in frames if Path(f.file).resolve() == program.resolve()))
    return Entry(
        kind=leak.kind,  # type: ignore[attr-defined]
        bytes_per_step=leak.bytes_per_step,  # type: ignore[attr-defined]
        count_per_step=leak.count_per_step,  # type: ignore[attr-defined]
        loop_steps=loops[leak.loop],  # type: ignore[attr-defined]
        lines=lines,
        where=leak.where,  # type: ignore[attr-defined]
        said=leak.reason or f"{leak.signature}{' cycle' if leak.cause else ''}",  # type: ignore[attr-defined]
        kept=tuple(entry(kept, loops, program) for kept in leak.keeps),  # type: ignore[attr-defined]
    )


def per_program_step(rate: float, loop_steps: int, steps: int) -> float:
    """A rate per step of a loop as one per step of the program.

    A program's own idea of a step may be another than the clock's (evaluation in a loop of its own, two optimizer
    steps an iteration). Counts that differ by a step or two at the ends are the same idea.
    """
    if abs(loop_steps - steps) <= max(2.0, 0.1 * steps):
        return rate
    return rate * loop_steps / steps


def judge(said: Said, truth: Truth, marks: Sequence[int], label: str = "LEAK", *, short: bool = False) -> Judgement:
    """truth is the oracle's; marks are the lines of the program that are right, label says what is right of growth.
    Rates of the short run are compared with the oracle's rate or with its slope inside that run, whichever is closer.
    """
    if said.problem:
        return _plain("failed", said.problem)
    if said.leaks and (not truth.leaks or label != "LEAK"):
        return _plain("false alarm", "; ".join(_short(leak) for leak in said.leaks))
    if not truth.leaks:
        return _plain("clean", right=True)
    if label != "LEAK":
        return _undecided(said, marks, label)
    if not said.leaks:
        return _plain("missed", _why_missed(said, truth))
    right = [any(line in marks for line in leak.lines) for leak in said.leaks]
    strays = tuple(_short(leak) for leak, hit in zip(said.leaks[1:], right[1:], strict=True) if not hit)
    return Judgement(
        "found",
        True,
        right[0],
        strays,
        _byte_error(said, truth, short),
        _node_error(said, truth, short),
        "" if right[0] else _short(said.leaks[0]),
        len(said.leaks),
    )


def _plain(outcome: str, note: str = "", *, right: bool = False) -> Judgement:
    return Judgement(outcome, right, None, (), None, None, note)


def _undecided(said: Said, marks: Sequence[int], label: str) -> Judgement:
    """Of growth that is to be mentioned and no leak. What is mentioned beside it does no harm."""
    mentioned = [suspect for suspect in said.suspects if any(line in marks for line in suspect.lines)]
    if not mentioned:
        return _plain("missed", _suspects(said))
    negligible = bool(mentioned) and all(suspect.said == "negligible" for suspect in mentioned)
    outcome = "negligible" if negligible else "cannot tell"
    right = negligible == (label == "NEGLIGIBLE")
    return Judgement(outcome, right, True, (), None, None, "" if right else _suspects(said))


def _why_missed(said: Said, truth: Truth) -> str:
    if said.clock is None:
        return "no steps were seen"
    if truth.nodes_only and not said.nodes_counted:
        return "graph nodes are not counted here"
    return _suspects(said)


def _suspects(said: Said) -> str:
    return ", ".join(f"suspect {suspect.where}: {suspect.said}" for suspect in said.suspects)


def _short(leak: Entry) -> str:
    rate = f"{leak.count_per_step:.2f} {'nodes' if leak.kind == 'nodes' else 'blocks'}, {leak.bytes_per_step:.1f} bytes"
    return f"{leak.where} {rate} a step ({leak.said})"


def _rows(said: Said) -> list[Entry]:
    """The leaks, and what stands under them."""
    return [row for leak in said.leaks for row in (leak, *leak.kept)]


def _byte_error(said: Said, truth: Truth, short: bool) -> float | None:
    """Of the sum over all entries. The few bytes of kept losses need no entry beside their graph's."""
    entries = [leak for leak in _rows(said) if leak.kind == "bytes"]
    if truth.bytes == 0 or (not entries and truth.nodes_only):
        return None
    seen = sum(per_program_step(leak.bytes_per_step, leak.loop_steps, said.steps) for leak in entries)
    return _error(seen, truth.bytes, truth.short_bytes if short else 0.0)


def _node_error(said: Said, truth: Truth, short: bool) -> float | None:
    if truth.nodes == 0:
        return None
    entries = [leak for leak in _rows(said) if leak.kind == "nodes"]
    if not entries and (not truth.nodes_only or not said.nodes_counted):
        return None  # the tensors that the graph holds were reported
    seen = sum(per_program_step(leak.count_per_step, leak.loop_steps, said.steps) for leak in entries)
    return _error(seen, truth.nodes, truth.short_nodes if short else 0.0)


def _error(seen: float, *true: float) -> float:
    return min(abs(seen - rate) / rate for rate in true if rate > 0)
