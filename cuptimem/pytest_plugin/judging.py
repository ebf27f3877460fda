"""What a report says of a test: its figures as a record, and whether it keeps to its limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cuptimem.errors import Error
from cuptimem.output.text.part_views import under
from cuptimem.output.text.peak_views import category, knows_categories
from cuptimem.output.text.words import code, count, more, plural, signed, size
from cuptimem.pytest_plugin.holders import Holders
from cuptimem.pytest_plugin.limits import LEAKS, MEMORY, Limit, Limits
from cuptimem.report import ledger
from cuptimem.report.leaks import OTHERS, Holder, Leak
from cuptimem.report.model import Contents, Contributor, Device, KeptBlock, Line, Report, first_lines
from cuptimem.report.process import HOST
from cuptimem.report.stacks import Frame, Stack, short_file, user_frame

TABLES = {MEMORY: ("above",), LEAKS: ("above", "kept")}
ROWS = 10  # of a record's contributors
SHOWN = 5  # of a failure's


class FilterError(Error):
    """A test's own filter_fn did not do its work."""


@dataclass(frozen=True)
class Failure:
    """A limit that a test does not keep to."""

    limit: Limit
    device: str
    measured: int
    lines: tuple[str, ...]  # below the headline
    grown: str = ""  # what a loop has to do with it, where more grew in it than was left behind

    def headline(self) -> str:
        what = {
            (MEMORY, "tensors"): "tensors at most",
            (MEMORY, "reserved"): "reserved by PyTorch at most",
            (MEMORY, "device"): "used on the device at most",
            (LEAKS, "tensors"): self.grown or "left behind",
        }[self.limit.kind, self.limit.of]
        numbers = self.measured, self.limit.bytes
        measured, limit = map(size, numbers) if len({*map(size, numbers)}) > 1 else (f"{count(n)} B" for n in numbers)
        over = size(self.measured - self.limit.bytes)
        return f"{measured} {what} on {self.device}, the limit is {limit}: {over} too much"


def figures(report: Report, root: Path, leaked: Mapping[str, int] | None = None) -> dict[str, dict[str, Any]]:
    """Of each device with an allocation, as a record has them (see session.py). Files below root stand by their path
    from there."""
    rows: dict[str, dict[str, Any]] = {}
    for device in report.devices:
        if device.allocations == 0 and device.peak_above_start == 0 and not (leaked or {}).get(device.name):
            continue
        rows[device.name] = {
            "peak": device.peak_above_start,
            "allocated": device.allocated,
            "allocations": device.allocations,
            "leaked": None if leaked is None else leaked.get(device.name, 0),
            "reserved": device.reserved_peak,
            "contributors": [_row(line, root) for line in _largest(report, "above", device)[:ROWS]],
        }
    return rows


def _largest(report: Report, table: str, device: Device) -> list[Line]:
    return sorted(report.contents(table, device.name).lines, key=lambda line: -line.bytes)


def _row(line: Line, root: Path) -> list[Any]:
    frame = line.frame
    place = line.where if frame is None else f"{_place(frame, root)} {frame.function}"
    return [line.bytes, line.count, place, line.phase, frame.source if frame is not None else ""]


def _place(frame: Frame, root: Path) -> str:
    """File and line. Files of the project count from its root, for other checkouts have other folders above it."""
    inside = frame.file.removeprefix(f"{root}{os.sep}")
    outside = frame.is_library or inside == frame.file
    return f"{short_file(frame.file) if outside else inside}:{frame.line}"


# --- memory -----------------------------------------------------------------------------------------------------------


def memory_failures(limits: Limits, report: Report, root: Path) -> list[Failure]:
    """Limits on memory that the test's body went over."""
    failures = []
    for of in sorted({limit.of for limit in limits.of(MEMORY)}):
        for device in report.devices:
            limit = limits.holding(MEMORY, of, device.name)
            measured = _measured(report, device, of)
            if limit is None or device.name in HOST and of != "tensors":
                continue
            if measured is None and of == "device":
                raise ledger.missing(report, "account of the device")
            if measured is None and device.allocations:  # none of the caching allocator's, which alone reserves
                raise Error(f"what PyTorch reserves on {device.name} is not known with this allocator")
            if measured is None or measured <= limit.bytes:
                continue
            failures.append(Failure(limit, device.name, measured, tuple(_why(report, device, of, root))))
    return failures


def _measured(report: Report, device: Device, of: str) -> int | None:
    if of == "tensors":
        return device.peak_above_start
    if of == "reserved":
        return device.reserved_peak
    used = [one.used for one in report.ledgers if one.device == device.name and one.what == "peak"]
    return max(used, default=None)


def _why(report: Report, device: Device, of: str, root: Path) -> Iterable[str]:
    contents = report.contents("above", device.name)
    if of != "tensors":
        yield f"of these {size(device.peak_above_start)} in tensors that the test allocated:"
    yield from _shown(contents, root)
    if of == "device":
        for one in report.ledgers:
            if one.device == device.name and one.what == "peak":
                yield "the device at its fullest:"
                held = sorted((line for line in one.lines if line.bytes), key=lambda line: -line.bytes)
                yield from (f"{size(line.bytes):>12}  {line.name}" for line in held)


def _shown(contents: Contents, root: Path) -> Iterable[str]:
    lines, others = first_lines(contents.lines, SHOWN)
    for line in lines:
        text = code(line.frame)
        made = "" if line.phase == "other" else f"{line.phase}, "
        if knows_categories(line.contributors):
            made = f"{category(line.contributors)}{_of_module(line)}, "
        place = line.where if line.frame is None else _place(line.frame, root)
        yield f"{size(line.bytes):>12}  {plural(line.count, 'block')}, {made}{place}  {text}".rstrip()
        yield from (f"{'':>12}  {part}" for part in under(line, contents))
    if others:
        yield f"{size(sum(line.bytes for line in others)):>12}  {plural(len(others), 'more line')}"


def _of_module(line: Line) -> str:
    """The largest contributor's module, by its name in the model."""
    names = [c.qualified for c in sorted(line.contributors, key=lambda c: -c.bytes) if c.qualified]
    return f" of {names[0]}{more(len(set(names)) - 1)}" if names else ""


# --- leaks ------------------------------------------------------------------------------------------------------------


Identity = tuple[int, int, Stack]


def identities(blocks: Iterable[KeptBlock]) -> Set[Identity]:
    """By which a block is known in two windows."""
    return frozenset((block.address, block.bytes, block.stack) for block in blocks)


@dataclass(frozen=True)
class Left:
    """What the body of a test left behind on one device: blocks that are alive, and what grew in a loop of it."""

    blocks: tuple[KeptBlock, ...]
    bytes: int
    growth: tuple[Leak, ...]  # verdicts and what cannot be told
    rest: int = 0  # of the bytes, those of blocks that are too many to be known one by one

    @property
    def leaked(self) -> int:
        """As records have it: what is alive, or what grew in loops where that is more; not what only may be a leak."""
        return max(self.bytes, sum(leak.bytes for leak in self.growth if not leak.undecided))


def left_behind(
    report: Report, warmup: int, harmless: Callable[[KeptBlock], bool], made: Set[Identity]
) -> dict[str, Left]:
    """By device. warmup: blocks of so many first steps are not counted. harmless: of a library's own, made once.
    made: what was alive at the body's end; other blocks are of teardowns."""
    found: dict[str, Left] = {}
    if warmup and report.clock.kind in ("optimizer", "backward"):
        warmup += 1  # they tick within an iteration: its end is in the step that the next one ends
    leaks = [leak for leak in (*report.leaks, *report.undecided) if leak.last_step >= warmup]
    for device in report.devices:
        known = [block for block in report.kept_blocks if block.device == device.name]
        rest = device.kept - sum(block.bytes for block in known)
        blocks = tuple(
            block
            for block in known
            if (block.address, block.bytes, block.stack) in made
            and not (block.step is not None and block.step < warmup)
            and not harmless(block)
        )
        growth = tuple(leak for leak in leaks if leak.device == device.name)
        found[device.name] = Left(blocks, rest + sum(block.bytes for block in blocks), growth, rest)
    return found


def leak_failures(
    limits: Limits, report: Report, left: Mapping[str, Left], known: Holders, root: Path
) -> list[Failure]:
    """Limits on leaks that are not kept. known: who still has what was left."""
    failures = []
    for device in report.devices:
        limit = limits.holding(LEAKS, "tensors", device.name)
        if limit is None:
            continue
        own = left[device.name]
        stacks = [stack for stack in _by_stack(own.blocks) if _counts(limit, stack[0])]
        measured = own.rest + sum(contributor.bytes for contributor, _ in stacks)
        growth = [
            leak for leak in own.growth if _counts(limit, Contributor(leak.bytes, leak.count, leak.stack, "other"))
        ]
        grown = sum(leak.bytes for leak in growth)
        if max(measured, grown) <= limit.bytes:
            continue
        alive = tuple(_left_lines(device.name, stacks, own.rest, known, root)) if measured else ()
        growth_lines = tuple(line for leak in growth for line in _grown(leak, report, known, root))
        # The headline's own rows first, so that they sum to it. Blocks may be in both: what grew and is still alive.
        if grown <= measured:
            lines = (*alive, *_titled(f"grown in a loop, {size(grown)} in all", growth_lines))
            failures.append(Failure(limit, device.name, measured, lines))
        else:
            lines = (*growth_lines, *_titled(f"left behind, {size(measured)} in all", alive))
            certain = sum(leak.bytes for leak in growth if not leak.undecided) > limit.bytes
            how = "grown in a loop" if certain else "grown in a loop, which may be a leak,"
            failures.append(Failure(limit, device.name, grown, lines, how))
    return failures


def _titled(title: str, lines: Sequence[str]) -> Iterable[str]:
    if lines:
        yield f"{title}:"
        yield from lines


def _counts(limit: Limit, contributor: Contributor) -> bool:
    """Raises FilterError where the test's own function raises."""
    if limit.filter_fn is None:
        return True
    try:
        return bool(limit.filter_fn(contributor))
    except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
        raise FilterError(f"its filter_fn raised {type(error).__name__}: {error}") from error


_ByStack = tuple[Contributor, list[KeptBlock]]


def _by_stack(blocks: Iterable[KeptBlock]) -> list[_ByStack]:
    """Blocks of one stack, and what they are together."""
    groups: dict[Stack, list[KeptBlock]] = {}
    for block in blocks:
        groups.setdefault(block.stack, []).append(block)
    return [
        (Contributor(sum(block.bytes for block in group), len(group), stack, "other"), group)
        for stack, group in groups.items()
    ]


def _left_lines(device: str, stacks: Sequence[_ByStack], rest: int, known: Holders, root: Path) -> Iterable[str]:
    contributors = tuple(contributor for contributor, _ in stacks)
    total = sum(contributor.bytes for contributor in contributors)
    yield from _shown(Contents(device, total, 0, None, contributors, what="kept"), root)
    if rest:
        yield f"{size(rest):>12}  in further blocks, which are too many to be listed"
    held: dict[str, int] = {}
    blocks = [block for _, group in stacks for block in group]
    for block in blocks:
        holder = known.fixtures.get(block.address)
        if holder is not None:
            held[holder] = held.get(holder, 0) + block.bytes
    for one in known.paths(blocks):
        held[_holder(one)] = one.bytes
    for holder, total in sorted(held.items(), key=lambda pair: (-pair[1], pair[0])):
        yield f"{size(total):>12}  of these held by {holder}"


def _holder(one: Holder) -> str:
    return one.path if one.is_named or one.path == OTHERS else f"no name: {one.path}"


def _grown(leak: Leak, report: Report, known: Holders, root: Path) -> Iterable[str]:
    certain = "grows" if not leak.undecided else f"may be a leak ({leak.reason}): grew"
    what = f"{signed(round(leak.bytes_per_step))} a step"
    if leak.kind == "nodes":
        what = f"{leak.count_per_step:.1f} graph nodes a step, about {what}"
    frame = user_frame(leak.retained_at) or leak.frame
    place = leak.where if frame is None else _place(frame, root)
    yield f"{size(leak.bytes):>12}  {certain} by {what}, {place}  {code(frame)}".rstrip()
    if leak.kind == "nodes":  # what grows in blocks is among those that were left behind
        for one in known.graph_paths(leak, report.kept_blocks):
            yield f"{size(min(one.bytes, leak.bytes)):>12}  of these held by {_holder(one)}"
