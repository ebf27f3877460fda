"""A snapshot as torch.cuda.memory._snapshot() gives it, for pytorch.org/memory_viz and torch.cuda._memory_viz.

Sizes are bytes as the allocator gave them out, so that they sum to what every other view shows; of the blocks that are
alive at the end `requested_size` is what was asked for. Frames are those of the line that a block is charged to.

A segment is what PyTorch's allocator took from CUDA. Where there is none around a block (on the CPU, memory taken for
one tensor, segments that were not recorded) the block is a segment of its own, which comes and goes with it. Devices
are numbered as CUDA numbers them; the CPU comes behind the last of them.
"""

import bisect
import os
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import cuptimem
from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.events import BLOCKS, Block, Events
from cuptimem.output.exports.pickling import (
    APPENDS,
    APPENDS_MOST,
    DICT,
    LIST,
    MARK,
    PROTOCOL,
    SETITEM,
    SETITEMS,
    STOP,
    Appending,
    Memo,
    Strings,
    integer,
    string,
)
from cuptimem.output.text import words

_COPY = 1 << 20
_SMALL = 2 << 20  # the largest segment that PyTorch calls small


@dataclass(slots=True)
class _Segment:
    address: int
    size: int
    stack: int
    blocks: int = 0
    gone: bool = False  # given back while blocks lay in it: events are missing. It stays as long as they do


class _Device:
    """The events and the heap of one device, events as pickled pieces in a file of their own."""

    def __init__(self, name: str, spool: IO[bytes], memo: Memo, newest: int | None) -> None:
        self.name = name
        self.spool = spool
        self.text: Callable[[str], bytes] = Strings(memo) if newest is None else string
        self.kept: deque[bytes] | None = deque(maxlen=newest) if newest is not None else None
        self.list = Appending(spool)
        self.events = 0
        self.keys: dict[str, tuple[bytes, bytes, bytes, bytes]] = {}
        self.frames: dict[tuple[int, str | None, str, bool], bytes] = {}
        self.frame: dict[tuple[str, str, int], bytes] = {}
        self.segments: dict[int, _Segment] = {}
        self.addresses: list[int] = []  # of segments, sorted
        self.blocks: dict[int, tuple[Block, _Segment | None]] = {}
        self.requested: dict[int, int] = {}

    def segment_of(self, block: Block) -> _Segment | None:
        at = bisect.bisect_right(self.addresses, block.address) - 1
        if at < 0:
            return None
        segment = self.segments[self.addresses[at]]
        inside = block.address + block.bytes <= segment.address + segment.size
        return segment if inside and not segment.gone else None

    def add_segment(self, segment: _Segment) -> None:
        bisect.insort(self.addresses, segment.address)
        self.segments[segment.address] = segment

    def drop_segment(self, segment: _Segment) -> None:
        del self.segments[segment.address]
        del self.addresses[bisect.bisect_left(self.addresses, segment.address)]


class _Export:
    def __init__(self, source: Events, newest: int | None, folder: str) -> None:
        self.source, self.newest, self.folder = source, newest, folder
        self.memo = Memo()
        self.devices: dict[str, _Device] = {}
        self.start_us = source.report.start_realtime_ns // 1000

    def device(self, name: str) -> _Device:
        known = self.devices.get(name)
        if known is None:
            spool = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 (closed with the export)
            known = self.devices[name] = _Device(name, spool, self.memo, self.newest)
        return known

    # -- pieces ----------------------------------------------------------------------------------------------------
    # In the order in which they stand in the file: what is there the second time is a number that refers to the first.

    def frames(self, d: _Device, block: Block | None, stack: int) -> bytes:
        """The list of frames of a stack, written whole the first time."""
        operator = block.operator if block is not None else None
        where = self.source.where(block) if block is not None else "(no Python line)"
        key = (stack, operator, where, block is not None and block.phase == "backward")
        if (known := d.frames.get(key)) is not None:
            return known
        rows = [(events.text(f.file), events.text(f.function), f.line) for f in self.source.stack(stack)]
        if operator and block is not None:
            rows.insert(0, ("backward" if block.phase == "backward" else "operator", events.text(operator), 0))
        rows = rows or [("", where, 0)]
        piece = b"".join((LIST, MARK, *(self._frame(d, row) for row in rows), APPENDS))
        if self.newest is not None:
            return piece  # what falls out of the newest events may not hold what others refer to
        store, d.frames[key] = self.memo.put()
        return piece + store

    def _frame(self, d: _Device, row: tuple[str, str, int]) -> bytes:
        if (known := d.frame.get(row)) is not None:
            return known
        s = d.text
        piece = b"".join(
            (DICT, MARK, s("filename"), s(row[0]), s("name"), s(row[1]), s("line"), integer(max(row[2], 0)), SETITEMS)
        )
        if self.newest is not None:
            return piece
        store, d.frame[row] = self.memo.put()
        return piece + store

    def emit(self, d: _Device, action: str, time_ns: int, address: int, size: int, about: Block | int) -> None:
        """One entry; about: its block, or a stack."""
        block = about if isinstance(about, Block) else None
        head, at_size, at_time, at_frames = d.keys.get(action) or self._keys(d, action)
        pieces = [head, integer(address), at_size, integer(size), at_time, integer(self.start_us + time_ns // 1000)]
        pieces += (at_frames, self.frames(d, block, about.stack if isinstance(about, Block) else about))
        if action == "alloc" and block is not None:
            about_it = [block.category, events.text(block.module), block.phase]
            about_it += [] if block.step is None else [f"step {block.step}"]
            pieces += (d.text("user_metadata"), string(", ".join(filter(None, dict.fromkeys(about_it)))))
        if action == "oom":
            pieces += (d.text("device_free"), integer(0))
        piece = b"".join((*pieces, SETITEMS))
        d.events += 1
        if d.kept is not None:
            d.kept.append(piece)
        else:
            d.list.add(piece)

    def _keys(self, d: _Device, action: str) -> tuple[bytes, bytes, bytes, bytes]:
        """What stands between an entry's values. The first time the keys are whole, from then on they are numbers."""

        def make() -> tuple[bytes, bytes, bytes, bytes]:
            s = d.text
            head = DICT + MARK + s("action") + s(action) + s("addr")
            return head, s("size"), s("stream") + integer(0) + s("time_us"), s("frames")

        whole = make()
        d.keys[action] = make()
        return whole

    # -- events ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        for event in self.source:
            kind = event[0]
            if kind in BLOCKS:
                block = Block._make(event)
                if kind == "free":
                    self._free(block)
                else:
                    self._alloc(block)
            elif kind == "requested":
                d = self.device(event[2])
                if event[3] in d.blocks:
                    d.requested[event[3]] = event[4]
            elif kind == "segment_new":
                self._segment_new(*event[1:6])
            elif kind == "segment_free":
                self._segment_free(event[1], event[2], event[3])
            elif kind == "oom":
                _, time_ns, device, asked, _, stack, _ = event
                d = self.device(device)
                self.emit(d, "oom", time_ns, 0, asked, stack)

    def _alloc(self, block: Block) -> None:
        d = self.device(block.device)
        segment = d.segment_of(block)
        if segment is not None:
            segment.blocks += 1
        else:
            self.emit(d, "segment_alloc", block.time_ns, block.address, block.bytes, block)
        self.emit(d, "alloc", block.time_ns, block.address, block.bytes, block)
        d.blocks[block.address] = (block, segment)
        if block.requested is not None:
            d.requested[block.address] = block.requested

    def _free(self, block: Block) -> None:
        d = self.device(block.device)
        segment = d.blocks.pop(block.address)[1]
        d.requested.pop(block.address, None)
        time_ns, address, size = block.time_ns, block.address, block.bytes
        self.emit(d, "free_requested", time_ns, address, size, block)
        self.emit(d, "free_completed", time_ns, address, size, block)
        if segment is None:
            self.emit(d, "segment_free", time_ns, address, size, block)
            return
        segment.blocks -= 1
        if segment.gone and segment.blocks == 0:
            self._give_back(d, segment, time_ns)

    def _segment_new(self, time_ns: int, device: str, address: int, size: int, stack: int) -> None:
        d = self.device(device)
        at = bisect.bisect_left(d.addresses, address)
        end = address + size
        before = d.segments[d.addresses[at - 1]] if at > 0 else None
        overlaps = before is not None and before.address + before.size > address
        if overlaps or (at < len(d.addresses) and d.addresses[at] < end):
            return  # it cannot lie there: events are missing, and its blocks become segments of their own
        d.add_segment(_Segment(address, size, stack))
        self.emit(d, "segment_alloc", time_ns, address, size, stack)

    def _segment_free(self, time_ns: int, device: str, address: int) -> None:
        d = self.device(device)
        segment = d.segments.get(address)
        if segment is None:
            return
        segment.gone = True
        if segment.blocks == 0:
            self._give_back(d, segment, time_ns)

    def _give_back(self, d: _Device, segment: _Segment, time_ns: int) -> None:
        d.drop_segment(segment)
        self.emit(d, "segment_free", time_ns, segment.address, segment.size, segment.stack)

    # -- the file --------------------------------------------------------------------------------------------------

    def write(self, file: IO[bytes], notes: tuple[str, ...]) -> None:
        order = numbered(self.devices)
        file.write(PROTOCOL + DICT + string("device_traces") + LIST + MARK)
        for name in order:
            file.write(LIST)
            if name is not None:
                self._copy(self.devices[name], file)
        file.write(APPENDS + SETITEM)
        file.write(string("segments") + LIST)
        out = Appending(file)
        for number, name in enumerate(order):
            if name is not None:
                self._segments(self.devices[name], number, out)
        out.close()
        file.write(SETITEM)
        about = {
            "exporter": f"cuptimem {cuptimem.__version__}",
            "devices": ", ".join(f"{number} is {name}" for number, name in enumerate(order) if name is not None),
            "missing": "; ".join(notes),
        }
        pieces = [string("cuptimem"), DICT, MARK]
        for key, value in about.items():
            pieces += (string(key), string(value))
        file.write(b"".join((*pieces, SETITEMS, SETITEM, STOP)))

    def _copy(self, d: _Device, file: IO[bytes]) -> None:
        if d.kept is not None:
            for piece in d.kept:
                d.list.add(piece)
        d.list.close()
        d.spool.seek(0)
        while data := d.spool.read(_COPY):
            file.write(data)
        d.spool.close()

    def _segments(self, d: _Device, number: int, out: Appending) -> None:
        """What there is at the end: segments with their blocks, which fill them without a gap."""
        inside: dict[int, list[Block]] = {}
        alone: list[Block] = []
        for block, segment in d.blocks.values():
            if segment is None:
                alone.append(block)
            else:
                inside.setdefault(segment.address, []).append(block)
        for segment in d.segments.values():
            rows: list[tuple[int, int, Block | None]] = []
            at = segment.address
            for block in sorted(inside.get(segment.address, ()), key=lambda b: b.address):
                if block.address < at:
                    alone.append(block)  # it cannot lie there: events are missing
                    continue
                if block.address > at:
                    rows.append((at, block.address - at, None))
                rows.append((block.address, block.bytes, block))
                at = block.address + block.bytes
            if at < segment.address + segment.size:
                rows.append((at, segment.address + segment.size - at, None))
            out.add(self._segment(d, number, segment, None, rows))
        for block in alone:
            own = _Segment(block.address, block.bytes, block.stack)
            out.add(self._segment(d, number, own, block, [(block.address, block.bytes, block)]))

    def _segment(
        self, d: _Device, number: int, segment: _Segment, of: Block | None, rows: list[tuple[int, int, Block | None]]
    ) -> bytes:
        s = d.text
        active = sum(size for _, size, block in rows if block is not None)
        numbers = {
            "device": number,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": active,
            "active_size": active,
            "stream": 0,
        }
        pieces = [DICT, MARK]
        for key, value in numbers.items():
            pieces += (s(key), integer(value))
        pieces += (s("segment_type"), s("large" if segment.size > _SMALL else "small"))
        pieces += (s("frames"), self.frames(d, of, segment.stack))
        pieces += (s("blocks"), LIST)
        for first in range(0, len(rows), APPENDS_MOST):
            pieces += (MARK, *(self._block(d, *row) for row in rows[first : first + APPENDS_MOST]), APPENDS)
        return b"".join((*pieces, SETITEMS))

    def _block(self, d: _Device, address: int, size: int, block: Block | None) -> bytes:
        s = d.text
        asked = d.requested.get(address, size) if block is not None else 0
        pieces = [DICT, MARK, s("size"), integer(size), s("requested_size"), integer(asked)]
        pieces += (s("address"), integer(address), s("state"), s("active_allocated" if block else "inactive"))
        pieces += (s("frames"), self.frames(d, block, block.stack) if block is not None else LIST)
        return b"".join((*pieces, SETITEMS))


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
    events.refuse(path, options)
    source = Events(trace, options)
    notes = list(events.caveats(source.report))
    export = _Export(source, options.newest, os.path.dirname(os.path.abspath(path)))
    try:
        export.run()
        names = [f"device {number} is {name}" for number, name in enumerate(numbered(export.devices)) if name]
        if options.newest is not None:
            notes.insert(0, f"of each device the newest {options.newest} events only")
        with events.target(path, options) as file:
            export.write(file, tuple(notes))
    finally:
        for device in export.devices.values():
            device.spool.close()
    if "cpu" in export.devices:
        names.append("a block of the CPU is a segment of its own")
    return Written(
        path,
        events.size(path),
        words.plural(sum(d.events for d in export.devices.values()), "event"),
        "https://pytorch.org/memory_viz (drop it there) or python -m torch.cuda._memory_viz",
        (*names, *notes),
    )
