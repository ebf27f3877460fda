"""A snapshot as torch.cuda.memory._snapshot() gives it, for pytorch.org/memory_viz and torch.cuda._memory_viz.

Sizes are bytes as the allocator gave them out, so that they sum to what every other view shows; of the blocks that are
alive at the end `requested_size` is what was asked for. Frames are those of the line that a block is charged to.

A segment is what PyTorch's allocator took from CUDA. Where there is none around a block (on the CPU, memory taken for
one tensor, segments that were not recorded) the block is a segment of its own, which comes and goes with it, and says
so (`alone`). Handles that PyTorch maps into expandable segments are `segment_map` and `segment_unmap`. Where all these
do not add up to the allocator's total, an entry `snapshot` has the total, as PyTorch's own have. csrc/snapshot reads
all of it back (docs/exports.md). Devices are numbered as CUDA numbers them; the CPU comes behind the last of them.
"""

import tempfile
import weakref
from collections.abc import Callable
from typing import IO, Any

import cuptimem
from cuptimem.errors import core
from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.events import Events, Origin
from cuptimem.output.exports.pickling import (
    APPENDS,
    DICT,
    LIST,
    MARK,
    PROTOCOL,
    SETITEM,
    SETITEMS,
    STOP,
    Memo,
    Strings,
    integer,
    string,
)
from cuptimem.output.exports.spool import spool_folder
from cuptimem.output.text import words

_COPY = 1 << 20
_WORD, _ORIGIN = 0, 1  # what _core.MemoryViz asks for; else a stack


class _Texts:
    """The texts of one device: whole the first time, then numbers that refer to it."""

    def __init__(self, source: Events, memo: Memo, shared: bool) -> None:
        self._source, self._memo, self._shared = source, memo, shared
        self._text: Callable[[str], bytes] = Strings(memo) if shared else string
        self._frames: dict[tuple[int, str | None, str, bool], bytes] = {}
        self._frame: dict[tuple[str, str, int], bytes] = {}

    def word(self, value: str) -> tuple[bytes, bytes]:
        return self._text(value), self._text(value)

    def frames(self, stack: int, origin: Origin | None) -> tuple[bytes, bytes | None]:
        """The list of frames of a stack, of the blocks of an origin."""
        operator = origin.operator if origin is not None else None
        where = self._source.where(origin) if origin is not None else "(no Python line)"
        backward = origin is not None and origin.phase == "backward"
        key = (stack, operator, where, backward)
        if (known := self._frames.get(key)) is not None:
            return known, known
        rows = [(events.text(f.file), events.text(f.function), f.line) for f in self._source.stack(stack)]
        if operator:
            rows.insert(0, ("backward" if backward else "operator", events.text(operator), 0))
        rows = rows or [("", where, 0)]
        piece = b"".join((LIST, MARK, *(self._one_frame(row) for row in rows), APPENDS))
        if not self._shared:
            return piece, None  # what falls out of the newest events may not hold what others refer to
        store, self._frames[key] = self._memo.put()
        return piece + store, self._frames[key]

    def _one_frame(self, row: tuple[str, str, int]) -> bytes:
        if (known := self._frame.get(row)) is not None:
            return known
        s = self._text
        piece = b"".join(
            (DICT, MARK, s("filename"), s(row[0]), s("name"), s(row[1]), s("line"), integer(max(row[2], 0)), SETITEMS)
        )
        if not self._shared:
            return piece
        store, self._frame[row] = self._memo.put()
        return piece + store


class _Export:
    """Entries go into a file of their own for each device, for they come in the order of the trace."""

    def __init__(self, source: Events, newest: int | None, folder: str) -> None:
        self._source, self._shared, self._folder = source, newest is None, folder
        self._memo = Memo()
        self._texts: dict[str, _Texts] = {}
        self._spools: list[IO[bytes]] = []
        start_us = source.report.start_realtime_ns // 1000
        most = 0 if newest is None else min(newest, 1 << 62)
        this = weakref.proxy(self)  # the C object holds the function, and no collection would find the circle
        self._viz = core().MemoryViz(
            source.start(), lambda device, what, of: this._names(device, what, of), start_us, most, source.device
        )

    def _names(self, device: str, what: int, of: Any) -> tuple[bytes, bytes | None, bytes]:
        texts = self._texts.get(device)
        if texts is None:
            texts = self._texts[device] = _Texts(self._source, self._memo, self._shared)
        if what == _WORD:
            return (*texts.word(of), b"")
        if what != _ORIGIN:
            return (*texts.frames(of, None), b"")
        origin = Origin(*of)
        about = dict.fromkeys((origin.category, events.text(origin.module), origin.phase))
        return (*texts.frames(origin.stack, origin), ", ".join(filter(None, about)).encode())

    def run(self) -> None:
        for pieces in self._source.formatted(self._viz):
            for number, piece in enumerate(pieces):
                if number == len(self._spools):
                    self._spools.append(tempfile.TemporaryFile(dir=self._folder))  # noqa: SIM115 (close() does)
                self._spools[number].write(piece)

    def close(self) -> None:
        for spool in self._spools:
            spool.close()

    @property
    def devices(self) -> list[str]:
        return list(self._viz.devices)

    @property
    def entries(self) -> int:
        return int(self._viz.entries)

    @property
    def overlapping(self) -> int:
        return int(self._viz.overlapping)

    def write(self, file: IO[bytes], notes: tuple[str, ...]) -> None:
        order = numbered(self.devices)
        index = {name: number for number, name in enumerate(self.devices)}
        file.write(PROTOCOL + DICT + string("device_traces") + LIST + MARK)
        for name in order:
            file.write(LIST)
            if name is not None:
                self._copy(self._spools[index[name]], file)
        file.write(APPENDS + SETITEM)
        file.write(string("segments") + LIST)
        is_empty = True
        for number, name in enumerate(order):
            while name is not None and (piece := self._viz.segments(index[name], number)) is not None:
                is_empty = False
                file.write(piece)
        file.write(SETITEM if is_empty else APPENDS + SETITEM)
        devices = {f"{number} is {name}": name for number, name in enumerate(order) if name is not None}
        report = self._source.report
        about = {
            "exporter": f"cuptimem {cuptimem.__version__}",
            "devices": ", ".join(devices),
            "missing": "; ".join(notes),
            "unreported": ", ".join(row for row, name in devices.items() if report.device(name).reserved_peak is None),
        }
        pieces = [string("cuptimem"), DICT, MARK]
        for key, value in about.items():
            pieces += (string(key), string(value))
        file.write(b"".join((*pieces, SETITEMS, SETITEM, STOP)))

    def _copy(self, spool: IO[bytes], file: IO[bytes]) -> None:
        spool.seek(0)
        while data := spool.read(_COPY):
            file.write(data)
        spool.close()


def numbered(devices: Any) -> list[str | None]:
    """By number: CUDA's (and others') own indexes, then the CPU. None: there is no such device."""
    others = [name for name in devices if name != "cpu"]
    order: list[str | None] = []
    for name in others:
        index = name.partition(":")[2]
        wanted = int(index) if index.isdecimal() else len(order)
        order += [None] * (wanted + 1 - len(order))
        if order[wanted] is None:
            order[wanted] = name
        else:
            order.append(name)
    return [*order, "cpu"] if "cpu" in devices else order


def write(trace: str, path: str, options: Options) -> Written:
    with events.target(path, options) as file:
        source = Events(trace, options)
        notes = list(events.caveats(source.report))
        export = _Export(source, options.newest, spool_folder(path))
        try:
            export.run()
            names = [f"device {number} is {name}" for number, name in enumerate(numbered(export.devices)) if name]
            if options.newest is not None:
                notes.insert(0, f"of each device the newest {options.newest} events only")
            if export.overlapping:
                notes.append(f"{words.plural(export.overlapping, 'segment')} left out: they overlap others")
            export.write(file, tuple(notes))
        finally:
            export.close()
    if "cpu" in export.devices:
        names.append("a block of the CPU is a segment of its own")
    return Written(
        path,
        events.size(path),
        words.plural(export.entries, "event"),
        "https://pytorch.org/memory_viz (drop it there) or python -m torch.cuda._memory_viz",
        (*names, *notes),
    )
