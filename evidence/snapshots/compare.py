"""python -m evidence.snapshots.compare FOLDER: what evidence.snapshots.run left there, as one JSON object.

One run, recorded twice: what cuptimem says of its trace, what it says of PyTorch's snapshot, what the snapshot itself
says (unpickled here, by plain arithmetic), and what PyTorch's _memory_viz makes of it. Each check is a list of
differences in words; empty: equal to the byte."""

from __future__ import annotations

import json
import pickle
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.cuda import _memory_viz

import cuptimem
from cuptimem import _core
from cuptimem.report import snapshots
from cuptimem.report.contents import Contributor
from cuptimem.report.fragmentation import Fragmentation
from cuptimem.report.model import Report

DEVICE = "cuda:0"
CUDA = 1
Rows = Mapping[Any, Any]


@dataclass
class Compared:
    """differences: by check. counts: how much was compared, so that nothing is equal because it is empty."""

    differences: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def same(self, check: str, what: str, ours: object, theirs: object) -> None:
        found = self.differences.setdefault(check, [])
        if ours != theirs:
            found.append(f"{what}: {_brief(ours)} and {_brief(theirs)}")

    def rows(self, check: str, what: str, ours: Rows, theirs: Rows) -> None:
        self.counts[check] += len(theirs)
        found = self.differences.setdefault(check, [])
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            if ours.get(key) != theirs.get(key):
                found.append(f"{what}, {_brief(key)}: {_brief(ours.get(key))} and {_brief(theirs.get(key))}")


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:60] + " … " + text[-140:]


# -- what a trace's events say -------------------------------------------------------------------------------------


@dataclass
class Course:
    """Of one device: live bytes behind each event, in blocks and as asked for; mapped and taken memory, too."""

    live: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    events: list[tuple[str, int, int]] = field(default_factory=list)  # of blocks: action, address, bytes asked for
    blocks: dict[int, tuple[int, int]] = field(default_factory=dict)  # those alive: address -> size, asked

    def add(self, address: int, size: int, asked: int) -> None:
        self.blocks[address] = size, asked
        self.events.append(("alloc", address, asked))
        self._sum(size, asked)

    def drop(self, address: int) -> None:
        size, asked = self.blocks.pop(address)
        self.events.append(("free", address, asked))
        self._sum(-size, -asked)

    def _sum(self, size: int, asked: int) -> None:
        self.live.append(size + (self.live[-1] if self.live else 0))
        self.asked.append(asked + (self.asked[-1] if self.asked else 0))


def course_of_trace(path: str) -> Course:
    """By the raw events, without cuptimem's analysis."""
    *records, end = _core.trace_dump(path)
    assert end[0] == "end", "the dump was cut short"
    asked: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, (kind, _, thread, _, size, *_) in enumerate(records):
        if kind == "alloc":
            last[thread] = number
        elif kind == "requested":
            asked[last[thread]] = size
    course = Course()
    for number in sorted(range(len(records)), key=lambda number: records[number][1]):
        kind, _, _, address, size, _, _, device_type, _ = records[number]
        if kind == "alloc" and device_type == CUDA:
            course.add(address, size, asked.get(number, size))
        elif kind == "free" and address in course.blocks:
            course.drop(address)
    return course


def course_of_snapshot(snapshot: Mapping[str, Any]) -> Course:
    """PyTorch's history has what was asked for, and not what was given."""
    course = Course()
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            course.add(event["addr"], event["size"], event["size"])
        elif event["action"] == "free_requested":
            course.drop(event["addr"])
    return course


# -- segments ------------------------------------------------------------------------------------------------------


def ranges_of_report(memory: Fragmentation) -> dict[int, tuple[int, int, int]]:
    """What lies partly in use: address -> size, in blocks, largest free piece; of an expandable segment each range."""
    found = {}
    for segment in memory.segments:
        for one in segment.ranges if segment.expandable else (segment,):
            found[one.address] = one.size, one.allocated, one.largest_free
    return found


def ranges_of_snapshot(snapshot: Mapping[str, Any]) -> dict[int, tuple[int, int, int]]:
    """As PyTorch divides them. What waits for a stream is free for cuptimem, which says of it that it waits."""
    found = {}
    for segment in snapshot["segments"]:
        allocated = largest = free = 0
        for block in segment["blocks"]:
            used = block["state"] == "active_allocated"
            allocated += block["size"] if used else 0
            free = 0 if used else free + block["size"]
            largest = max(largest, free)
        found[segment["address"]] = segment["total_size"], allocated, largest
    return found


def shape(memory: Fragmentation) -> dict[str, Any]:
    """All of its figures that do not rest on the driver's."""
    whole = {
        key: getattr(memory, key)
        for key in (
            "reserved",
            "allocated",
            "requested",
            "asked",
            "too_small",
            "largest_free_block",
            "empty_cache_returns",
            "expandable_returns",
            "segments_total",
        )
    }
    for one in memory.segments:
        ranges = [(r.address, r.size, r.allocated, r.largest_free) for r in one.ranges]
        whole[f"segment {one.address:#x}"] = (one.size, one.allocated, one.largest_free, one.unmapped, ranges)
    return whole


# -- contributors --------------------------------------------------------------------------------------------------


def own_stack(one: Contributor) -> tuple[Any, ...]:
    """Where its blocks were made. cuptimem charges a backward's to forward lines, and workspaces to none; a snapshot
    knows of neither."""
    charged = one.phase == "backward" or one.category == "workspace"
    return one.origin or (() if charged else one.stack)


def by_stack(contributors: tuple[Contributor, ...]) -> dict[Any, tuple[int, int]]:
    found: dict[Any, tuple[int, int]] = {}
    for one in contributors:
        key = tuple((frame.file, frame.line) for frame in own_stack(one))
        size, count = found.get(key, (0, 0))
        found[key] = size + one.bytes, count + one.count
    return found


def by_frames(snapshot: Mapping[str, Any]) -> dict[Any, tuple[int, int]]:
    """Of PyTorch's live blocks."""
    found: dict[Any, tuple[int, int]] = {}
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                key = tuple((frame["filename"], frame["line"]) for frame in block["frames"])
                size, count = found.get(key, (0, 0))
                found[key] = size + block["size"], count + 1
    return found


def by_memory_viz(snapshot: dict[str, Any]) -> tuple[dict[str, int], int]:
    """PyTorch's own page of what is alive: bytes asked for by innermost frame, and the bytes of all segments."""
    text = _memory_viz.memory(snapshot, format_flamegraph=lambda lines: lines)
    alive: Counter[str] = Counter()
    whole = 0
    for line in text.splitlines():
        path, size = line.rsplit(" ", 1)
        parts = path.split(";")
        whole += int(size)
        if parts[1] == "active_allocated" and parts[-1] != "<gaps>":
            place = parts[-1].rsplit(":", 1)[0] if parts[-1] != "<non-python>" else ""
            alive[place] += int(size)
    return dict(alive), whole


def asked_by_line(course: Course, path: str) -> dict[str, int]:
    """The same of a trace: by its raw events and their stacks."""
    stacks = {address: stack for kind, _, _, address, _, stack, *_ in _core.trace_dump(path)[:-1] if kind == "alloc"}
    found: Counter[str] = Counter()
    for address, (_, asked) in course.blocks.items():
        stack = stacks.get(address)
        found[f"{stack[0][0].rsplit('/', 1)[-1]}:{stack[0][1]}" if stack else ""] += asked
    return dict(found)


# -- all of it -----------------------------------------------------------------------------------------------------


def _views(one: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    for memory in one.fragmentations:
        if memory.device == DEVICE:
            yield memory.what, shape(memory)


def compare(folder: Path) -> Compared:
    trace, pickled = folder / "trace.cmem", folder / "snapshot.pickle"
    stats = json.loads((folder / "stats.json").read_text())
    with pickled.open("rb") as file:
        snapshot = pickle.load(file)
    converted = folder / "read.cmem"
    snapshots.convert(str(pickled), str(converted))
    ours, read = cuptimem.open(trace), cuptimem.open(pickled)
    found = Compared()
    _peaks(found, ours, read, stats)
    mine, other, theirs = (
        course_of_trace(str(trace)),
        course_of_trace(str(converted)),
        course_of_snapshot(snapshot),
    )
    found.counts["live bytes"] += len(theirs.asked)
    found.same("live bytes", "blocks, trace and snapshot", mine.events, theirs.events)
    found.same("live bytes", "asked for behind each event, trace and snapshot", mine.asked, theirs.asked)
    found.same("live bytes", "in blocks behind each event, trace and reading", mine.live, other.live)
    found.same("live bytes", "asked for behind each event, reading and snapshot", other.asked, theirs.asked)
    for moment in ("peak", "end"):
        rows = [by_stack(report.contents(moment, DEVICE).contributors) for report in (ours, read)]
        found.rows("contributors", f"at the {moment}, trace and reading", *rows)
        if moment == "end":
            found.rows("contributors", "at the end, trace and snapshot", rows[0], by_frames(snapshot))
    _segments(found, ours, read, snapshot)
    alive, whole = by_memory_viz(snapshot)
    found.rows("_memory_viz", "asked for by innermost frame", asked_by_line(mine, str(trace)), alive)
    found.same("_memory_viz", "all segments", ours.fragmentation(DEVICE, "end").reserved, whole)
    return found


def _peaks(found: Compared, ours: Report, read: Report, stats: Mapping[str, int]) -> None:
    for name, report in (("trace", ours), ("reading", read)):
        device = report.device(DEVICE)
        for what, is_, should in (
            ("allocated", device.peak.bytes, stats["allocated_bytes.all.peak"]),
            ("reserved", device.reserved_peak, stats["reserved_bytes.all.peak"]),
            ("segments at the end", device.segments and device.segments.bytes, stats["reserved_bytes.all.current"]),
            ("allocated at the end", device.end, stats["allocated_bytes.all.current"]),
            ("times out of memory", sum(oom.device == DEVICE for oom in report.ooms), stats["num_ooms"]),
        ):
            found.counts["peaks"] += 1
            found.same("peaks", f"{what}, {name} and memory_stats", is_, should)


def _segments(found: Compared, ours: Report, read: Report, snapshot: Mapping[str, Any]) -> None:
    mine, other = dict(_views(ours)), dict(_views(read))
    found.same("segments", "moments", list(mine), list(other))
    for moment in mine:
        found.rows("segments", f"at the {moment}, trace and reading", mine[moment], other.get(moment, {}))
    theirs = ranges_of_snapshot(snapshot)
    listed = ranges_of_report(ours.fragmentation(DEVICE, "end"))
    found.rows("segments", "trace and snapshot", listed, {at: theirs.get(at) for at in listed})
    left = {at: one for at, one in theirs.items() if 0 < one[1] < one[0] and at not in listed}
    most = min((size - used for size, used, _ in listed.values()), default=0)
    found.same(
        "segments", "partly used ones that are not listed", [a for a, o in left.items() if o[0] - o[1] > most], []
    )
    found.same("segments", "all of them", mine["end"]["reserved"], sum(size for size, _, _ in theirs.values()))


if __name__ == "__main__":
    _found = compare(Path(sys.argv[1]))
    print(json.dumps({"differences": _found.differences, "counts": _found.counts}))
