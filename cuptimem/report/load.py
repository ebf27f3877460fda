"""Reports out of traces: what the core's analyze() returns becomes the dataclasses of a report.

A dataclass is built by its fields: each takes the value of its name in the core's row, which becomes what the field is
annotated with.
"""

import os
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from cuptimem import cell_names
from cuptimem.errors import Error, core
from cuptimem.report import chart, fragmentation, host, leaks, ledger, lives, own_code, snapshots
from cuptimem.report.chart import Chart, Span
from cuptimem.report.fragmentation import Fragmentation
from cuptimem.report.held import HeldLine, by_cycle
from cuptimem.report.leaks import Leak, Leaks, made_behind
from cuptimem.report.ledger import NOT_RECORDED, DeviceTimeline, DriverDevice, DriverLevel, Ledger, LedgerLine
from cuptimem.report.model import (
    ClockPassed,
    ClockRate,
    Compacted,
    Contents,
    Contributor,
    Device,
    KeptBlock,
    LiveTensor,
    OutOfMemory,
    Peak,
    Report,
    ResidentPoint,
    Step,
    Steps,
    Survivor,
    TimelinePoint,
)
from cuptimem.report.process import HOST
from cuptimem.report.stacks import Frame, Stack, loop_lines

_LOST_STACK = 1  # a reserved stack id, csrc/base/event.h
_DIMENSIONS = 64  # of a tensor: PyTorch has no more
_CONTRIBUTORS_KNOWN = 1 << 17  # rows; tables and steps repeat many
_NOT_SAID = "the recording does not say how it was made"

# Rows that are tuples, by their table in core().fields(). Every other row is a dictionary.
_TUPLES: dict[type, str] = {
    Contributor: "contributor",
    TimelinePoint: "timeline_point",
    ResidentPoint: "resident_point",
    Survivor: "survivor",
    KeptBlock: "kept_block",
    OutOfMemory: "oom",
    LiveTensor: "tensor",
    ClockPassed: "clock_passed",
    ClockRate: "clock_rate",
    ledger.DeviceTimelinePoint: "device_point",
    leaks.LeakPart: "leak_part",
    leaks.Holder: "holder",
}
# Fields that the core calls otherwise.
_CORE_NAMES: dict[tuple[type, str], str] = {
    (Contributor, "qualified"): "module",
    (Device, "name"): "device",
    (Device, "refused"): "ooms_total",
    (DriverDevice, "name"): "device",
    (Leak, "retained_at"): "retained",
}


def open(
    path: str | os.PathLike[str],
    *,
    step: int | None = None,
    min_rate: float | None = None,
    progress: Callable[[float], bool] | None = None,
    code: str | Iterable[str] | None = None,
) -> Report:
    """Reads a trace. Needs neither torch nor the machine it was recorded on.

    step: the devices' peaks are then those of this step (-1: the last), with all their contributors. min_rate: what
    grows by fewer bytes a step is negligible (None: by less than 1 KiB a step and 1 % of the device's peak). progress
    is called with the share done (0 to 1) and cancels by returning False. code: installed packages that count as the
    user's own code, too ("transformers", or several); None: what CUPTIMEM_CODE says, else what the recording names.
    Raises Error, one line, for a file that is not a whole trace header; a trace whose tail is missing opens with
    complete=False.
    """
    return analyze(os.fspath(path), step=step, min_rate=min_rate, progress=progress, code=code)


def analyze(
    path: str,
    *,
    source: object = None,
    window: int = 0,
    step: int | None = None,
    progress: Callable[[float], bool] | None = None,
    temporary: bool = False,
    ledger_at_ns: int | None = None,
    code: str | Iterable[str] | None = None,
    default_code: Iterable[str] | None = None,
    tables: Iterable[str] = (),
    min_rate: float | None = None,
    again: bool = False,
    charts: Iterable[Span] = (),
    with_lives: bool = False,
) -> Report:
    """The report of one window of a trace (0: of all of it). ledger_at_ns: with ledgers of this moment, too.

    source: core.trace(path), of which what was read for other windows is not read again; again: that this window will
    be asked for once more.
    tables: with these of TABLES, which Report.contents gives.
    charts: with these spans in Report.drawn. with_lives: with single blocks in Report.lived.
    default_code: in the place of what the trace names, used where neither code nor the environment names any.
    """
    if os.path.isdir(path):
        raise Error(f"{path} is a directory, not a trace")
    if min_rate is not None and not min_rate >= 0:
        raise Error(f"min_rate is a number of bytes a step, not {min_rate!r}")
    chosen = own_code.names(code) if code is not None else own_code.of_environment()
    if chosen is None and default_code is not None:
        chosen = tuple(default_code)
    raw = core().analyze(
        snapshots.trace_of(path) if source is None else source,
        window=window,
        step=step,
        progress=progress,
        code=None if chosen is None else ",".join(chosen),
        tables=tuple(tables),
        ledger_at_ns=-1 if ledger_at_ns is None else ledger_at_ns,
        min_rate=-1.0 if min_rate is None else min_rate,
        again=again,
        charts=tuple(span.row() for span in charts),
        lives=with_lives,
    )
    report = replace(from_dict(None if temporary else path, raw), window=window)
    if "snapshot" not in report.environment and os.path.isfile(path):  # a temporary trace may be gone by now
        report = replace(report, host=host.of_report(core().tree_samples(path), report))
    return report if step is None else _at_step(report, raw["step_asked"])


def _at_step(report: Report, index: int) -> Report:
    """The core gives a step's contributors in the place of the run's; the peaks become the step's, too."""
    rows = {step.device: step for step in report.steps if step.index == index}
    devices = []
    for device in report.devices:
        row = rows.get(device.name)
        if row is not None:
            peak = Peak(device.name, row.peak, row.peak_ns, index, device.peak.contributors, loops=device.peak.loops)
        else:
            peak = Peak(device.name, 0, 0, index, ())
        tables = tuple(_of_step(table, row, index) for table in device.tables)
        devices.append(replace(device, peak=peak, requested_peak=None, tables=tables))
    return replace(report, devices=tuple(devices), step=index)


def _of_step(table: Contents, row: Step | None, index: int) -> Contents:
    if row is None:
        return replace(table, bytes=0, time_ns=0, step=index, held=())
    known = {"start": row.start, "end": row.end, "allocated": row.allocated, "stepped": row.allocated}
    time_ns = row.end_ns if table.what == "end" else row.begin_ns
    return replace(table, bytes=known.get(table.what, table.bytes), time_ns=time_ns, step=index, held=())


@lru_cache(1024)
def operator_name(name: str | None) -> str | None:
    """The class of an autograd node from its (mangled or plain) C++ name: "AddmmBackward0". An operator's name stays as
    it is: "aten::addmm"."""
    if not name:
        return None
    if re.fullmatch(r"N?\d.*", name) is None:
        return name.rsplit("::", 1)[-1] if name.startswith("torch::autograd::") else name
    text, last = name.removeprefix("N"), ""
    while (match := re.match(r"[0-9]{1,9}", text)) is not None:
        length, text = int(match.group()), text[match.end() :]
        last, text = text[:length], text[length:]
    return last or name


@lru_cache(1024)
def label_parts(text: str | None) -> tuple[str | None, str | None, tuple[int, ...] | None]:
    """Name, dtype and shape of the text that a walk gives a block: "weight\\tfloat32 768 3072". None: the label names a
    text that the trace does not define, which is none (docs/trace-format.md)."""
    name, _, layout = (text or "").partition("\t")
    dtype, *sizes = layout.split(" ") if layout else (None,)
    if len(sizes) > _DIMENSIONS or any(re.fullmatch(r"\d{1,18}", size) is None for size in sizes if size is not None):
        return name or None, None, None
    return name or None, dtype, None if dtype is None else tuple(int(size) for size in sizes if size is not None)


# -- dataclasses by their fields -----------------------------------------------------------------------------------

_T = TypeVar("_T")
_Place = tuple[str, int, str]
_STACK = tuple[Frame, ...]  # Stack, without a forward reference
_Convert = Callable[["_Loader", Any], Any]


def _is_dataclass(kind: Any) -> bool:
    return hasattr(kind, "__dataclass_fields__")


def _convert(annotation: Any) -> _Convert | None:
    """What a value of the core becomes in a field with this annotation; None: it stays as it is."""
    if annotation in (_STACK, _STACK | None):
        return lambda loader, value: loader.stack(value)
    if annotation == _Place | None:
        return lambda loader, value: loader.place(value)
    if isinstance(annotation, UnionType):
        (kind,) = (one for one in get_args(annotation) if one is not NoneType)
        one = _convert(kind)
        return None if one is None else lambda loader, value: None if value is None else one(loader, value)
    if get_origin(annotation) is tuple and _is_dataclass(kind := get_args(annotation)[0]):
        return lambda loader, value: loader.every(kind, value)
    if _is_dataclass(annotation):
        return lambda loader, value: loader.make(annotation, value)
    return None


@lru_cache(None)
def _plan(kind: type) -> tuple[tuple[str, Any, _Convert | None], ...]:
    """Of each field that a row has: its name, its key in the row, and what becomes of its value."""
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]))
    table = _TUPLES.get(kind)
    names = None if table is None else _names(table)
    plan: list[tuple[str, Any, _Convert | None]] = []
    for one in fields(kind):
        key: Any = "stack" if one.name == "stack_lost" else _CORE_NAMES.get((kind, one.name), one.name)
        convert = _convert(hints[one.name]) if one.name != "stack_lost" else lambda _, value: value == _LOST_STACK
        if names is not None:
            if key not in names:
                continue
            key = names.index(key)
        plan.append((one.name, key, convert))
    return tuple(plan)


@lru_cache(None)
def _is_as_it_is(kind: type) -> bool:
    """Whether a row has exactly the fields, in their order, as they are. There are many such rows."""
    keys = [key for _, key, convert in _plan(kind) if convert is None]
    return kind in _TUPLES and kind not in _SPECIAL and keys == list(range(len(fields(kind))))


@lru_cache(None)
def _names(table: str) -> tuple[str, ...]:
    """Of the fields in a row of the core's that is a tuple."""
    return tuple(name for name, _, _ in core().fields()[table])


class _Loader:
    """The stacks of what analyze() returned, and what makes dataclasses of its rows."""

    def __init__(self, raw: Mapping[str, Any], code: tuple[str, ...]) -> None:
        self.snapshot = "snapshot" in raw["meta"]
        self._named = cell_names.namer()
        self._is_own = own_code.matcher(code, own_code.script_of(raw["meta"]))
        frames: dict[tuple[Any, ...], Frame] = {}
        self._stacks: dict[int, Stack] = {}
        self.contributors: dict[tuple[Any, ...], Contributor] = {}
        made: dict[int, Frame] = {}  # by identity: stacks share their outer rows, and a row is long to hash
        for stack_id, rows in raw["stacks"].items():
            for row in rows:
                if id(row) not in made:
                    if row not in frames:
                        frames[row] = self._frame(row)
                    made[id(row)] = frames[row]
            self._stacks[stack_id] = tuple(made[id(row)] for row in rows)
        loops = {(f.file, f.line): f for stack in self._stacks.values() for f in loop_lines(stack)}
        self.loops = tuple(loops[place] for place in sorted(loops))
        self.held, self.waiting = by_cycle(self.every(HeldLine, raw.get("held", ())))
        self.clocks = {row["loop"]: {**row, "where": self.place(row["where"])} for row in raw["clock"]["loops"]}

    def _frame(self, row: Sequence[Any]) -> Frame:
        file, *more = row
        file = self._named(file or "")
        return replace(Frame(file, *more), own=True) if file and self._is_own(file) else Frame(file, *more)

    def stack(self, stack_id: int) -> Stack:
        return self._stacks.get(stack_id, ())

    def add_stack(self, stack_id: int, rows: Iterable[Any]) -> Stack:
        made = self._stacks[stack_id] = tuple(self._frame(row) for row in rows)
        return made

    def origin(self, origin_id: int, stack_id: int) -> Stack:
        """A stack of its own, where it is another one than that it is charged to."""
        return self.stack(origin_id) if origin_id != stack_id else ()

    def place(self, where: Sequence[Any] | None) -> _Place | None:
        return None if where is None else (self._named(where[0] or ""), where[1], where[2])

    def make(self, kind: type[_T], row: Any, **given: Any) -> _T:
        """Of a row of the core's; given: fields that are not as they are there."""
        special = _SPECIAL.get(kind)
        if special is not None and not given:
            found: _T = special(self, row)
            return found
        values = given
        hashable: Any = kind
        for name, key, convert in _plan(hashable):
            if name not in values and (type(key) is int or key in row):
                values[name] = row[key] if convert is None else convert(self, row[key])
        return kind(**values)

    def every(self, kind: type[_T], rows: Iterable[Any]) -> tuple[_T, ...]:
        hashable: Any = kind
        if _is_as_it_is(hashable):
            return tuple(kind(*row) for row in rows)
        special = _SPECIAL.get(hashable)
        if special is not None:
            return tuple(special(self, row) for row in rows)
        return tuple(self.make(kind, row) for row in rows)


class Origins:
    """The contributors of a trace that is followed (_core.Follower), by the numbers of their origins."""

    def __init__(self, follower: Any, code: tuple[str, ...]) -> None:
        self._follower = follower
        self._loader = _Loader({"meta": follower.meta, "stacks": {}, "clock": {"loops": ()}}, code)
        self._known: dict[int, tuple[str, Contributor]] = {}

    def contributor(self, origin: int) -> tuple[str, Contributor]:
        """Its device, and a contributor of no bytes."""
        known = self._known.get(origin)
        if known is None:
            device, stack_id, own_id, phase, name, category, module = self._follower.origin(origin)
            stacks = [self._loader.add_stack(one, self._follower.stack(one)) for one in (stack_id, own_id)]
            row = (0, 0, stack_id, own_id, phase, name, category, module, None)
            known = device, _new_contributor(self._loader, row)
            if all(frame.text or frame.is_library for stack in stacks for frame in stack):
                self._known[origin] = known  # the text of a line comes after it
        return known


def _contributor(loader: _Loader, row: tuple[Any, ...]) -> Contributor:
    """Most steps have the contributors of the step before, to the byte: one object is all of them."""
    known = loader.contributors.get(row)
    if known is None:
        if len(loader.contributors) >= _CONTRIBUTORS_KNOWN:
            loader.contributors.clear()
        known = loader.contributors[row] = _new_contributor(loader, row)
    return known


def _new_contributor(loader: _Loader, row: Sequence[Any]) -> Contributor:
    # There are many: by position, as csrc/python/py_report.c has its fields.
    size, count, stack_id, origin_id, phase, name, category, module, saved_by = row
    return Contributor(
        size,
        count,
        loader.stack(stack_id),
        phase,
        operator_name(name),
        loader.origin(origin_id, stack_id),
        stack_id == _LOST_STACK,
        category,
        module,
        operator_name(saved_by),
    )


def _tensor(loader: _Loader, row: Sequence[Any]) -> LiveTensor:
    name, dtype, shape = label_parts(row[0])
    return loader.make(LiveTensor, row, name=name, dtype=dtype, shape=shape)


def _step(loader: _Loader, row: Mapping[str, Any]) -> Step:
    return loader.make(Step, row, rest_bytes=row["rest"][0], rest_count=row["rest"][1])


def _holder(loader: _Loader, row: Sequence[Any]) -> leaks.Holder:
    return loader.make(leaks.Holder, row, path=row[0] or "?")


def _with_lines(holders: Sequence[leaks.Holder]) -> tuple[leaks.Holder, ...]:
    """What a path and a tab begin is the line that puts there what this path leads to."""
    lines = dict(one.path.split("\t", 1) for one in holders if "\t" in one.path)
    return tuple(replace(one, put_at=lines.get(one.path, "")) for one in holders if "\t" not in one.path)


def _leak(loader: _Loader, row: Mapping[str, Any]) -> Leak:
    behind = int(made_behind(loader.stack(row["retained"] or row["stack"]), loader.clocks.get(row["loop"])))
    first, last = (max(0, row[key] - behind) for key in ("first_step", "last_step"))
    made = loader.make(Leak, row, first_step=first, last_step=last)
    made = replace(made, holders=_with_lines(made.holders))
    if made.reason == "no collection" and loader.snapshot:
        return replace(made, reason="collections unknown")
    if made.reason == "garbage":  # nothing with a name held what has died: a search in the loop saw another moment
        return replace(made, holders=tuple(one for one in made.holders if not one.is_named))
    return made


def _driver(loader: _Loader, row: Mapping[str, Any] | None) -> DriverLevel:
    """The driver level; of a trace that has none, what says so."""
    if row is None or (row["mode"], row["reason"], row["allocations"], row["frees"]) == ("none", "", 0, 0):
        return NOT_RECORDED
    if row["mode"] == "none" and not row["reason"]:  # a killed process may not have come to say it
        return loader.make(DriverLevel, row, mode="unknown", reason=_NOT_SAID)
    return loader.make(DriverLevel, row, mode=row["mode"])


def _ledger(loader: _Loader, row: Mapping[str, Any]) -> Ledger:
    lines = []
    for part in ledger.PARTS:
        value = row[part.replace(" ", "_")]
        if part == "driver":
            lines += [loader.make(LedgerLine, {"part": part, **line}) for line in value]
        elif value is not None:
            before = part == "context" and (not row["context_measured"] or row["host"] is not None)
            lines.append(LedgerLine(part, value, kind="before" if before else ""))
    return loader.make(Ledger, row, lines=tuple(lines))


def _chart(loader: _Loader, row: Mapping[str, Any]) -> Chart:
    intervals = dict(row["intervals"])
    phases = tuple(map(_column, intervals.pop("phases")))
    return Chart(
        **{
            **row,
            "intervals": chart.Intervals(**_columns(intervals), phases=phases),
            "contributors": loader.every(Contributor, row["contributors"]),
            "entries": chart.Entries(**_columns(row["entries"])),
            "blocks": chart.Blocks(**_columns(row["blocks"])),
        }
    )


def _lives(loader: _Loader, row: Mapping[str, Any]) -> lives.Lives:
    return lives.Lives(
        row["device"],
        row["cut"],
        lives.LifeBlocks(**_columns(row["blocks"])),
        loader.every(Contributor, row["contributors"]),
        lives.LifeSteps(**_columns(row["steps"])),
        tuple(loader.clocks),
    )


def _column(data: bytes) -> "array[int]":
    column = array("q")
    column.frombytes(data)
    return column


def _columns(row: Mapping[str, bytes]) -> "dict[str, array[int]]":
    return {name: _column(data) for name, data in row.items()}


# What is not made by its fields alone. Rows of oom and of devices are made below: they need what is around them.
_SPECIAL: dict[type, Callable[[_Loader, Any], Any]] = {
    Contributor: _contributor,
    LiveTensor: _tensor,
    Step: _step,
    leaks.Holder: _holder,
    Leak: _leak,
    Ledger: _ledger,
}


def _refused(loader: _Loader, device: str, row: Sequence[Any]) -> OutOfMemory:
    one = dict(zip(_names("oom"), row, strict=True))
    memory = None if one["memory"] is None else loader.make(Fragmentation, one["memory"])
    return loader.make(
        OutOfMemory,
        row,
        device=device,
        origin=loader.origin(one["origin"], one["stack"]),
        operator=operator_name(one["operator"]),
        memory=memory,
        # PyTorch empties its cache before it gives up, and reports no total of that.
        reserved=one["reserved"] if memory is None else memory.reserved,
    )


def _table(loader: _Loader, device: Mapping[str, Any], what: str, row: Sequence[Any], end_ns: int) -> Contents:
    rows, rest = row
    contributors = loader.every(Contributor, rows)
    known = {"start": device["start"], "end": device["end"], "allocated": device["allocated"]}
    known |= {"above": device["above"][0], "kept": device["kept"]}
    size = known.get(what, sum(c.bytes for c in contributors) + rest[0])
    is_end = what in ("end", "kept")
    time_ns = device["above"][1] if what == "above" else end_ns if is_end else 0
    name = device["device"]
    held = tuple(one for one in loader.held if one.device == name) if is_end else ()
    return Contents(name, size, time_ns, None, contributors, rest[0], rest[1], what, loader.loops, held)


def _device(loader: _Loader, row: Mapping[str, Any], end_ns: int) -> Device:
    name = row["device"]
    tensors = loader.every(LiveTensor, row.get("tensors", ()))
    contributors = loader.every(Contributor, row["contributors"])
    ooms = tuple(_refused(loader, name, one) for one in row["ooms"])
    return loader.make(
        Device,
        row,
        peak=Peak(
            name,
            row["peak"],
            row["peak_time_ns"],
            row["peak_step"],
            contributors,
            tensors=tensors,
            loops=loader.loops,
        ),
        peak_above_start=row["above"][0],
        ooms=ooms,
        refused=row.get("ooms_total", len(ooms)),
        tables=tuple(_table(loader, row, what, one, end_ns) for what, one in row.get("tables", {}).items()),
    )


def _device_order(device: Mapping[str, Any]) -> tuple[bool, int, str]:
    return (device["device"] in HOST, -device["peak"], device["device"])


def from_dict(path: str | None, raw: Mapping[str, Any]) -> Report:
    """The report of what the core's analyze() returned."""
    code = own_code.of_trace(raw.get("code", ""))
    loader = _Loader(raw, code)
    nodes_reason = _nodes_reason(raw["meta"])

    def leaks_of(rows: Iterable[Any]) -> Leaks:
        found = loader.every(Leak, rows)
        return Leaks(
            one for leak in found for one in (leak.keeps if leak.kind == "nodes" and nodes_reason else (leak,))
        )

    return loader.make(
        Report,
        raw,
        path=path,
        complete=raw["complete"] and not raw["reason"],
        environment=dict(raw["meta"]),
        devices=tuple(_device(loader, row, raw["duration_ns"]) for row in sorted(raw["devices"], key=_device_order)),
        steps=Steps(loader.every(Step, raw["steps"])),
        resident=loader.every(ResidentPoint, raw["rss"]),
        rest=loader.every(ResidentPoint, raw.get("rest", ())),
        leaks=leaks_of(raw["leaks"]),
        suspects=leaks_of(raw["suspects"]),
        nodes=None if nodes_reason else raw["live_nodes"],
        nodes_reason=nodes_reason,
        compacted=loader.make(Compacted, raw["compacted"]) if raw.get("compacted") else None,
        driver=_driver(loader, raw.get("driver")),
        ledgers=ledger.ordered(loader.every(Ledger, raw.get("ledger", ()))),
        fragmentations=fragmentation.ordered(loader.every(Fragmentation, raw.get("fragmentation", ()))),
        device_timelines=loader.every(DeviceTimeline, raw.get("device_timeline", ())),
        code=code,
        held=loader.held,
        waiting=loader.waiting,
        drawn=tuple(_chart(loader, row) for row in raw.get("charts", ())),
        lived=tuple(_lives(loader, row) for row in raw.get("lives", ())),
    )


def _nodes_reason(meta: Mapping[str, str]) -> str:
    """Without a word that nodes were counted, numbers about them would be guesses."""
    said = meta.get("nodes", "the recording does not say that they were counted")
    return "" if said == "counted" else said
