"""What the exports share: the trace's events with their stacks, what is missing of it, the file that is written."""

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, Any, NamedTuple, Protocol, cast

from cuptimem.errors import Error, core
from cuptimem.output.exports import Options
from cuptimem.output.text import views, words
from cuptimem.output.text.blocks import Text
from cuptimem.report import own_code, snapshots
from cuptimem.report.load import analyze
from cuptimem.report.model import Report
from cuptimem.report.stacks import Frame, Stack, user_frame
from cuptimem.whole_files import is_stream, replacing

TEXT_MOST = 1024  # characters of a name
_NO_STACK, _LOST_STACK = 0, 1  # csrc/base/event.h


class Block(NamedTuple):
    """A block that came or went (csrc/python/py_reader.c)."""

    kind: str  # "start", "alloc", "free"
    time_ns: int
    device: str
    address: int
    bytes: int
    thread: int
    stack: int  # charged
    origin: int  # its own
    phase: str
    operator: str | None
    step: int | None  # of birth
    requested: int | None
    reported: bool
    live: int
    category: str
    module: str | None
    saved_by: str | None


BLOCKS = frozenset(("start", "alloc", "free"))


def text(value: str | None) -> str:
    """A name out of a trace: on one line, without effect, and not too long."""
    return words.shortened(value or "", TEXT_MOST)


def exact(value: str | None) -> str:
    """The same for a format that is read by programs alone."""
    return (value or "")[:TEXT_MOST]


class Origin(NamedTuple):
    """What the blocks of one contributor have in common (csrc/python/py_reader.c)."""

    device: str
    stack: int  # charged
    origin: int  # its own
    phase: str
    operator: str | None
    category: str
    module: str | None
    saved_by: str | None


class Formatter(Protocol):
    """_core.Rows and _core.MemoryViz: items of a Reader as bytes."""

    def read(self) -> Any: ...


class Events:
    """A trace, read for an export. Iterating gives the tuples of _core.Reader."""

    def __init__(self, trace: str, options: Options) -> None:
        self._tell = options.progress
        self._stage, self._stages, self._share = 0, 3, 0.0  # the analysis, opening the window, its events
        self.report = analyze(trace, window=options.window, code=options.code, progress=self._progress)
        self.device = self.report.device(options.device).name if options.device is not None else None
        self._trace = trace
        self._window = options.window
        self._code = ",".join(self.report.code)
        self._is_own = own_code.matcher(self.report.code, own_code.script_of(self.report.environment))
        self._frames: dict[tuple[Any, ...], Frame] = {}
        self._stacks: dict[int, Stack] = {}
        self._user_frames: dict[int, Frame | None] = {}
        self._places: dict[int, str] = {}
        self._reader = self._open()

    def _open(self) -> Any:
        self._stage += 1
        trace = snapshots.trace_of(self._trace)
        reader = core().Reader(trace, window=self._window, code=self._code, progress=self._progress)
        if reader.start_realtime_ns != self.report.start_realtime_ns:
            raise Error(f"{self._trace} is another recording by now: export it again")
        self._is_read = False
        return reader

    def _progress(self, share: float) -> bool:
        if self._tell is None:
            return True
        self._share = max(self._share, min(1.0, (self._stage + share) / self._stages))
        return self._tell(self._share)

    def _go_on(self, share: float) -> None:
        if not self._progress(share):
            raise Error("the export was cancelled")

    def start(self) -> Any:
        """The reader, at the first event."""
        if self._is_read:
            self._stages += 2  # once more
            self._reader = self._open()
        self._is_read = True
        self._stage += 1
        return self._reader

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """From the start, of the device that was asked for, each time."""
        device = self.device
        reader = self.start()
        for batch in reader:
            self._go_on(reader.progress)
            for event in batch:
                if device is None or len(event) < 5 or event[2] == device:
                    yield event

    def tell(self) -> None:
        """Reports how far start()'s reader is. Raises Error where the export is cancelled."""
        self._go_on(self._reader.progress)

    def formatted(self, formatter: Formatter) -> Iterator[Any]:
        """What a formatter of start()'s reader makes of its events."""
        while (piece := formatter.read()) is not None:
            self.tell()
            yield piece

    def stack(self, number: int) -> Stack:
        """Innermost first."""
        found = self._stacks.get(number)
        if found is None:
            rows = self._reader.stack(number)
            if not rows:  # it has none, or all together would be too large: that is said in the caveats
                unshown = max(self.report.lost.unshown, self._reader.lost["unshown"])
                self.report = replace(self.report, lost=replace(self.report.lost, unshown=unshown))
            found = self._stacks[number] = tuple(self._frame(tuple(row)) for row in rows)
        return found

    def _frame(self, row: tuple[Any, ...]) -> Frame:
        known = self._frames.get(row)
        if known is None:
            known = Frame(row[0] or "", *row[1:])
            if known.file and self._is_own(known.file):
                known = replace(known, own=True)
            self._frames[row] = known
        return known

    def user_frame(self, number: int) -> Frame | None:
        """The user's frame of a stack."""
        if number not in self._user_frames:
            frame = self._user_frames[number] = user_frame(self.stack(number))
            if frame is not None:
                self._places[number] = text(frame.place)
        return self._user_frames[number]

    @property
    def steps(self) -> list[tuple[int, str, int, int]]:
        """Index, loop, begin, end."""
        return cast(list[tuple[int, str, int, int]], self._reader.steps)

    def where(self, block: Block | Origin) -> str:
        """The user's line, or why there is none."""
        if self.user_frame(block.stack) is not None:
            return self._places[block.stack]
        if block.stack == _LOST_STACK:
            return "(stack lost)"
        if block.phase == "before start":
            return "(before start)"
        return "(gradient accumulation)" if block.operator == "AccumulateGrad" else "(no Python line)"


def report(trace: str, options: Options, tables: tuple[str, ...] = ()) -> Report:
    return analyze(trace, window=options.window, code=options.code, tables=tables, progress=options.progress)


def caveats(of: Report) -> tuple[str, ...]:
    """What the recording misses, a sentence each."""
    lines = (block.text.removeprefix("! ") for block in views.caveats(of) if isinstance(block, Text))
    return tuple(words.shortened(line, TEXT_MOST) for line in lines)


def title(of: Report) -> str:
    """The program that was recorded."""
    return text(of.title)


@contextmanager
def target(path: str, options: Options) -> Iterator[IO[bytes]]:
    """A file to write, compressed where its name ends in .gz; it has its name when all of it is there."""
    refuse(path, options)
    with replacing(path) as file:
        if path.endswith(".gz"):
            with (
                gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=5, mtime=0) as packed,
                io.BufferedWriter(cast(io.RawIOBase, packed), 1 << 16) as buffered,
            ):
                yield cast(IO[bytes], buffered)
        else:
            yield file


def refuse(path: str, options: Options) -> None:
    """Raises Error where something is there that may not be replaced."""
    if os.path.isdir(path):
        raise Error(f"{path} is a directory; name a file")
    if os.path.lexists(path) and not options.force and not is_stream(path):
        raise Error(f"{path} is there already; --force replaces it, -o names another one")


def size(path: str) -> int:
    return os.path.getsize(path)
