"""The search for holders in a recording that still runs: what it is for, and what it writes into the trace.

At the outermost stop one search is for what grows (a leak, or a suspect that may be one), and for all that is alive by
then of the largest lines. While the loop runs there are searches for what grows alone: what that is is read in another
thread, beside the program. Runs inside the profiled process and runs none of the program's code.
"""

from __future__ import annotations

import _thread
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cuptimem import _core, cell_names
from cuptimem.errors import own
from cuptimem.objects import referrers
from cuptimem.record import refusals
from cuptimem.record.holders import BLOCKS, Block, Places, Want, find
from cuptimem.record.recorder import HolderSearch
from cuptimem.report.cycles import is_much
from cuptimem.report.leaks import UNDECIDED, Holder, Leak
from cuptimem.report.stacks import Frame, user_frame

_LEAKS = 10
_KEPT = 4  # of what stands under each
_LINES = 32  # whose live blocks are searched for at the end
_BLOCKS_EARLY = 1 << 9  # in an early search, of all leaks together
_PATIENCE_SECONDS = 2.0  # for the analysis at the end, or the share below of the time recorded
_EVENTS_TOGETHER = 5000  # up to so many are read in the slice that searches, more in another thread
_CAUGHT_UP = 1 << 13  # ... and of what came since, in up to so many slices:
_TRIES = 8
_EARLY_SECONDS = 0.5  # ... of so few events as an early search reads, on a slow machine
_BESIDE_SECONDS = 5.0  # ... in a thread beside the program
_PATIENCE_SHARE = 0.01
_EARLY = ("one epoch", "no collection", "carried on")  # suspects that an early search includes, besides verdicts
_OF_ALIVE = 4  # CM_HOLDER_ALIVE
_MORE = 8  # CM_HOLDER_MORE
_OF_BACKWARD, _OF_FORWARD = 16, 32  # CM_HOLDER_BACKWARD, CM_HOLDER_FORWARD
_DEVICES = {"cpu": _core.DEVICE_CPU, "cuda": _core.DEVICE_CUDA, "pinned": _core.DEVICE_PINNED}
_Line = tuple[str, int]
_Held = tuple[int, str, list[Block]]  # what is alive of a line on a device: a stack that leads to it, where, what


def note(core: Any, look: HolderSearch) -> None:
    """Searches for the holders of what grows in a recording that still runs, at its end for those of all that is alive,
    and records them."""
    for _ in note_in_slices(core, look):
        continue


def note_in_slices(core: Any, look: HolderSearch) -> Iterator[None]:
    """The same in slices: what grows is read from the recording, then its holders are looked for."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "UntypedStorage"):
        return
    # Not alive: the program goes on behind this.
    patience = max(_PATIENCE_SECONDS, look.recorded * _PATIENCE_SHARE) if look.alive else _EARLY_SECONDS
    replaced: _Replaced | None = None
    read = look.growth if isinstance(look.growth, tuple) else None  # beside the program, which goes on
    source = look.source() if read is None else None
    if read is not None:
        raw, blocks, replaced = read
    elif source is None:
        return
    elif look.early and core.capture_counts()["events"] > _EVENTS_TOGETHER:
        reading = _Reading(core, source, patience)
        referrers.prepare()
        while not reading.is_done:
            yield
        raw, blocks, replaced = reading.take()
        while replaced is not None and replaced.is_behind():
            yield
    else:
        raw, blocks = _analysis(core, source, patience), None
    if raw is None:
        if not look.early:
            raise TimeoutError(f"reading the recording takes more than {patience:.1f} s")
        return
    reasons = _EARLY if look.early else UNDECIDED
    earlier = look.known if look.early else {}
    rows = [row for row in _growing(raw, reasons) if not _is_mostly_named(earlier.get(_key(row), ()))]
    waited = {} if look.early else _waited(raw)
    if not look.alive and not rows and not waited:
        return
    blocks = blocks or _Kept(raw)
    wants = [
        blocks.of(
            row["kind"],
            row["device"],
            row["count"],
            row["bytes"],
            row["first_step"],
            row["backward"],
            *blocks.made(row),
        )
        for row in rows
    ]
    if replaced is not None and (look.early or not replaced.is_behind()):
        replaced.put(rows, wants)
    is_short = look.early or read is not None  # the program waits
    if is_short:
        for want in wants:
            want.sample(_BLOCKS_EARLY // len(wants))
    alive = [(row, want) for row, want in zip(rows, wants, strict=True) if want.nodes or want.blocks]
    lines = blocks.largest_lines(_LINES if look.alive else 0, waited)
    error = None if look.early else sys.exc_info()[1] or refusals.ended_program()
    of_lines = [Want(blocks, whole=True) for _, _, blocks in lines]
    found = find([*(want for _, want in alive), *of_lines], error, is_short=is_short, look=look)
    look.finds_garbage = _is_garbage_much(raw, zip((device for _, device, _ in lines), of_lines, strict=True))

    def write() -> None:
        # Before those of leaks: a reader that does not know CM_HOLDER_ALIVE goes by the last ones of a stack.
        for (stack, device, _), want, holders in zip(lines, of_lines, found[len(alive) :], strict=True):
            if look.alive and not (look.goes_again and look.finds_garbage):
                _record(core, stack, _OF_ALIVE, device, holders)
            if not look.is_again:
                _record(core, stack, _OF_ALIVE, device, want.cycles)
        for (row, want), holders in zip(alive, found, strict=False):
            # What was found earlier counts on where most of it is gone by now.
            named = sum(one.bytes for one in holders if one.is_named)
            if _key(row) in look.known and 2 * named < row["bytes"]:
                continue
            if named > 0:
                look.known[_key(row)] = holders
            elif is_short:  # what it has not come to may have any name
                continue
            if look.early and _is_mostly_named(holders):
                core.mark(core.MARK_NAMED, row["stack"])
            if row["signature"] == "growing":
                core.mark(core.MARK_HELD, 2 * row["stack"] + want.by_variable)
            _record(core, row["stack"], _of(row), row["device"], holders)

        if not look.early:
            for row in rows:
                stacks = dict.fromkeys((row["stack"], *(part[2] for part in row["parts"])))
                keys = ((*_key(row)[:-1], stack) for stack in stacks)
                known = [one for key in keys for one in look.known.get(key, ())]
                _record_puts(core, row, known, blocks.files(row), time.time() - look.recorded)

    look.record(write)


def read_growth(core: Any, look: HolderSearch) -> tuple[Mapping[str, Any], _Kept, _Replaced] | bool | None:
    """The analysis that a search at the end of a window begins with, in another thread. False: nothing grows, and no
    collection has freed much. None: it would take too long."""
    source = look.source()
    raw = None if source is None else _analysis(core, source, _BESIDE_SECONDS)
    if raw is None:
        return None
    rows = list(_growing(raw, UNDECIDED))
    if source is None or not (rows or _waited(raw)):
        return False
    return raw, _Kept(raw), _Replaced(core, source[0], rows, _BESIDE_SECONDS)


def _is_mostly_named(holders: Sequence[Holder]) -> bool:
    """By bytes: then no later search of the loop looks for more."""
    named = sum(one.bytes for one in holders if one.is_named)
    return named > 0 and 2 * named >= sum(one.bytes for one in holders)


def _record_puts(
    core: Any, row: Mapping[str, Any], holders: Sequence[Holder], files: Collection[str], since: float
) -> None:
    """Which lines put what grows there: behind a tab, with the path of a holder that the trace has."""
    from cuptimem.record import keeping_line  # not in the slice of a search while the program runs

    paths = ((one.path, keeping_line.find(one.path, files, since)) for one in holders if one.is_named)
    put = [Holder(f"{path}\t{line}", 0, 0) for path, line in paths if line]
    _record(core, row["stack"], _of(row) | _MORE, row["device"], put)


def _record(core: Any, stack: int, of: int, device: str, holders: Sequence[Holder]) -> None:
    kind, _, index = device.partition(":")
    paths = [(one.path, one.count, one.bytes) for one in holders]
    core.holder(stack, of, _DEVICES.get(kind, _core.DEVICE_CPU), int(index or -1), paths)


def _analysis(core: Any, source: tuple[str, object, int], patience: float) -> Mapping[str, Any] | None:
    """The analysis of this source: no objects of the program's. None if it takes longer, of this thread's time."""
    deadline = time.thread_time() + patience
    is_late = False

    def in_time(share: float) -> bool:
        nonlocal is_late
        is_late = time.thread_time() >= deadline
        return not is_late

    try:
        found: Mapping[str, Any] = core.analyze(source[1], window=source[2], tables=("kept",), progress=in_time)
    except KeyboardInterrupt:
        if is_late:  # else it is the user's
            return None
        raise
    return found


class _Reading:
    """An analysis for an early search, in a thread of its own, which has the interpreter's lock only while it makes
    objects of the result. The program's thread does not wait for it."""

    def __init__(self, core: Any, source: tuple[str, object, int], patience: float) -> None:
        self.is_done = False
        self._found: tuple[Mapping[str, Any] | None, _Kept | None, _Replaced | None] = None, None, None
        self._error: Exception | None = None
        try:
            _thread.start_new_thread(self._read, (core, source, patience))
        except own(RuntimeError):  # no more threads; Python is ending
            self._read(core, source, patience)

    def _read(self, core: Any, source: tuple[str, object, int], patience: float) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            raw = _analysis(core, source, patience)
            rows = [] if raw is None else list(_growing(raw, _EARLY))
            if raw is not None:
                self._found = raw, _Kept(raw) if rows else None, _Replaced(core, source[0], rows, patience)
        except own(Exception) as error:
            self._error = error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self.is_done = True

    def take(self) -> tuple[Mapping[str, Any] | None, _Kept | None, _Replaced | None]:
        """The analysis, None: it would have taken too long; with its blocks, if anything grows, and what replaces them.
        Raises what it has raised."""
        if self._error is not None:
            raise self._error
        return self._found


class _Replaced:
    """What is alive now of sets that each step replaces by a larger one, as `bank = torch.cat([bank, rows])` does: the
    analysis, which another thread made, knows the blocks of a step before. None of this may lose the search."""

    def __init__(self, core: Any, path: str, rows: Iterable[Mapping[str, Any]], patience: float) -> None:
        """In the thread of the analysis."""
        self._core = core
        self._stacks = tuple(dict.fromkeys(part[2] for row in rows for part in row["parts"] if _is_replaced(row)))
        self._follower: Any = None
        self._tries = _TRIES
        if self._stacks:
            try:
                self._follower = core.Follower(path)
                if self._read(patience):
                    self._follower.blocks(*self._stacks)  # numbers all stacks, which takes longer than a slice may
                else:
                    self._follower = None
            except own(Exception):
                self._follower = None

    def _read(self, patience: float) -> bool:
        """Whether it has come to the end."""
        deadline = time.thread_time() + patience
        while (word := self._follower.read(_CAUGHT_UP)[0]) == "more":
            if time.thread_time() >= deadline:
                return False
        return bool(word == "end")

    def is_behind(self) -> bool:
        """Whether the program has done more since than one slice reads: the next one goes on."""
        if self._follower is None:
            return False
        try:
            self._core.capture_sync()
            word = self._follower.read(_CAUGHT_UP)[0]
        except own(Exception):
            word = ""
        self._tries -= 1
        if word != "end" and (word != "more" or self._tries == 0):
            self._follower = None
        return bool(word == "more" and self._follower is not None)

    def put(self, rows: Sequence[Mapping[str, Any]], wants: Sequence[Want]) -> None:
        """Into what is searched for."""
        if self._follower is None:
            return
        try:
            found = self._follower.blocks(*self._stacks)
        except own(Exception):
            return
        for row, want in zip(rows, wants, strict=True):
            if _is_replaced(row):
                stacks = {part[2] for part in row["parts"]}
                alive = [
                    (address, size)
                    for address, size, device, stack, backward in found
                    if stack in stacks and (device, backward) == (row["device"], row["backward"])
                ]
                if alive:
                    want.blocks, want.scale = alive, 1.0
                    want.sample(BLOCKS)


def _is_replaced(row: Mapping[str, Any]) -> bool:
    return bool(row["signature"] == "growing" and row["kind"] != "nodes")


def _waited(raw: Mapping[str, Any]) -> dict[str, list[int]]:
    """Where collections have freed much beside what a device had at its peak: the stacks that made it, by device."""
    return {
        row["device"]: [one[2] for key in ("contributors", "freed_contributors") for one in row["garbage"][key]]
        for row in raw["devices"]
        if is_much(max(row["garbage"]["most"], row["garbage"]["at_peak"]), row["peak"])
    }


def _is_garbage_much(raw: Mapping[str, Any], wants: Iterable[tuple[str, Want]]) -> bool:
    waits: dict[str, int] = {}
    for device, want in wants:
        waits[device] = waits.get(device, 0) + sum(one.bytes for one in want.cycles)
    return any(is_much(waits.get(row["device"], 0), row["peak"]) for row in raw["devices"])


def _of(row: Mapping[str, Any]) -> int:
    return int(row["kind"] == "nodes") | (_OF_BACKWARD if row["backward"] else _OF_FORWARD)


def _key(row: Mapping[str, Any]) -> tuple[object, ...]:
    return row["kind"], row["device"], row["backward"], row["stack"]


def now(raw: Mapping[str, Any], of: Leak | Frame | str) -> tuple[Holder, ...]:
    """Who holds, now, a leak of a report, or what is alive of a line (a Frame, "train.py:22")."""
    blocks = _Kept(raw)
    if isinstance(of, Leak):
        stacks = [part.stack for part in of.parts]
        places = [tuple((one.file, one.function, one.line) for one in stack) for stack in stacks]
        lines = [_line(frame) for frame in map(user_frame, [*stacks, of.retained_at]) if frame is not None]
        want = blocks.of(of.kind, of.device, of.count, of.bytes, of.first_step, of.backward, places, lines)
    else:
        want = Want(blocks.at_line(_line(of) if isinstance(of, Frame) else of))
    return find([want])[0]


def _line(frame: Frame) -> _Line:
    return frame.file, frame.line


def _growing(raw: Mapping[str, Any], reasons: Collection[str]) -> Iterator[Mapping[str, Any]]:
    """Verdicts, suspects of these reasons, and what stands under them."""
    for row in [*raw["leaks"], *(one for one in raw["suspects"] if one["reason"] in reasons)][:_LEAKS]:
        yield row
        yield from row["keeps"][:_KEPT]


class _Kept:
    """The live blocks of a recording by the stack that made them."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        named, code = cell_names.namer(), raw.get("code", "")
        users: dict[str, bool] = {}
        self._places: dict[int, Places] = {}
        self._lines: dict[int, _Line | None] = {}
        self._files: dict[int, list[str]] = {}  # of the user's
        for stack, rows in raw["stacks"].items():
            self._places[stack] = tuple((named(row[0] or ""), row[1], row[2]) for row in rows)
            self._lines[stack] = None
            self._files[stack] = own_files = []
            for row, (file, _, line) in zip(rows, self._places[stack], strict=True):
                if file not in users:
                    users[file] = not _core.is_library(row[0] or "", code)
                if users[file]:
                    own_files.append(row[0] or "")
                    self._lines[stack] = self._lines[stack] or (file, line)
        self._by_stack: dict[tuple[str, bool, Places], list[tuple[int, Block]]] = {}  # with their steps
        self._by_line: dict[_Line | None, list[tuple[str, Block]]] = {}
        self._stack_of: dict[_Line | None, int] = {}  # one that leads to the line
        for address, size, step, device, stack, backward in raw["kept_blocks"]:
            made = -1 if step is None else step
            key = device, backward, self._places.get(stack, ())
            self._by_stack.setdefault(key, []).append((made, (address, size)))
            of = self._lines.get(stack)
            self._by_line.setdefault(of, []).append((device, (address, size)))
            self._stack_of.setdefault(of, stack)

    def made(self, row: Mapping[str, Any]) -> tuple[list[Places], list[_Line]]:
        """Where the blocks of a row of the core's leaks were made: stacks, and lines of the user's."""
        stacks = [part[2] for part in row["parts"]]
        lines = [self._lines.get(stack) for stack in (*stacks, row["retained"])]
        return [self._places.get(stack, ()) for stack in stacks], [line for line in lines if line is not None]

    def files(self, row: Mapping[str, Any]) -> list[str]:
        """The user's files that lead to a row of the core's leaks."""
        stacks = [row["retained"], *(part[2] for part in row["parts"])]
        return list(dict.fromkeys(file for stack in stacks for file in self._files.get(stack, ())))

    def of(
        self,
        kind: str,
        device: str,
        count: int,
        size: int,
        first: int,
        backward: bool,
        places: Iterable[Places],
        lines: Iterable[_Line],
    ) -> Want:
        """first: the step in which the oldest was made; backward: whether all were made in backward. What else is
        charged to its lines (gradients) is no part of it."""
        on_lines = [one for line in dict.fromkeys(lines) for one in self._by_line.get(line, ())]
        if kind == "nodes":
            return Want([], count, size, {block[0] for _, block in on_lines})
        stacks = dict.fromkeys(one for one in places if one)
        if not stacks:  # what they were is not known
            return Want([block for where, block in on_lines if where == device])
        found = (made for one in stacks for made in self._by_stack.get((device, backward, one), ()))
        return Want([block for step, block in found if step >= first])

    def largest_lines(self, most: int, also: Mapping[str, Iterable[int]]) -> list[_Held]:
        """also: by device, stacks whose lines are among them whatever their size."""
        held: dict[tuple[_Line, str], list[Block]] = {}
        for line, blocks in self._by_line.items():
            if line is not None:
                for device, block in blocks:
                    held.setdefault((line, device), []).append(block)
        sums = {key: sum(size for _, size in blocks) for key, blocks in held.items()}
        largest = sorted(held, key=lambda key: (-sums[key], key))[:most]
        others = ((line, device) for device, stacks in also.items() for line in map(self._lines.get, stacks))
        largest += [one for one in dict.fromkeys(others) if one in held and one not in largest]
        return [(self._stack_of[line], device, held[line, device]) for line, device in largest]

    def at_line(self, line: _Line | str) -> list[Block]:
        if isinstance(line, str):
            file, _, number = line.rpartition(":")
            if not file or not number.isdecimal():
                raise ValueError(f"a line is written as train.py:22, not {line!r}")
            return [
                block
                for known, blocks in self._by_line.items()
                if known is not None and str(known[1]) == number and f"/{known[0]}".endswith(f"/{file}")
                for _, block in blocks
            ]
        return [block for _, block in self._by_line.get(line, ())]
