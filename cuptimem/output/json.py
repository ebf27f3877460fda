"""The machine's view: one object per verb, as docs/json.md documents it."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from cuptimem.output.text import tree_views
from cuptimem.report.account import Account, AccountRow
from cuptimem.report.diff import Change, DeviceDiff, Section
from cuptimem.report.fragmentation import Fragmentation, Pin, SegmentPin
from cuptimem.report.grouping import Group
from cuptimem.report.held import HeldLine
from cuptimem.report.kernels import DeferredFrees, Kernels, KernelUse
from cuptimem.report.leaks import STEPS_NEEDED, Leak
from cuptimem.report.ledger import DriverAllocations, DriverDevice, DriverLevel, Ledger, LedgerLine
from cuptimem.report.line_holders import LineHolders
from cuptimem.report.model import (
    CATEGORIES,
    Clock,
    Contents,
    Contributor,
    Device,
    LiveTensor,
    OutOfMemory,
    Peak,
    Report,
    Step,
)
from cuptimem.report.stacks import Frame, Stack, user_frame

SCHEMA = 3


@lru_cache(None)
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if one.name not in ("stack", "stack_lost"))


def fields_of(one: Any) -> dict[str, Any]:
    """The fields of a dataclass as keys, except those of its stack: of_stack() has them."""
    kind: Any = type(one)
    return {name: getattr(one, name) for name in _names(kind)}


class _FrameObject(dict[str, Any]):
    """One frame, which is in many stacks: made once, and written out once."""


@lru_cache(1 << 17)
def frame(one: Frame) -> dict[str, Any]:
    return _FrameObject(
        {
            "file": None if one.truncated else one.file,
            "line": one.line,
            "function": one.function,
            "end_line": one.end_line if one.end_line >= 0 else None,
            "column": one.column if one.column >= 0 else None,
            "end_column": one.end_column if one.end_column >= 0 else None,
            "module": one.module,
        }
    )


def stack(frames: Stack) -> list[dict[str, Any]]:
    return [frame(one) for one in frames]


def contributor(one: Contributor) -> dict[str, Any]:
    user, below = one.frame, one.library_line
    return {
        "bytes": one.bytes,
        "count": one.count,
        "phase": one.phase,
        "operator": one.operator,
        "category": one.category,
        "module": one.qualified,
        "saved_by": one.saved_by,
        "line": None if user is None else frame(user),
        "library_line": None if below is None else frame(below),
        "stack": stack(one.stack),
        "origin": stack(one.origin),
        "stack_lost": one.stack_lost,
    }


def tensor(one: LiveTensor) -> dict[str, Any]:
    return {**fields_of(one), "shape": None if one.shape is None else list(one.shape), "stack": stack(one.stack)}


def peak(one: Contents) -> dict[str, Any]:
    return {
        "device": one.device,
        "what": one.what,
        "bytes": one.bytes,
        "count": one.count,
        "step": one.step,
        "time_ns": one.time_ns,
        "contributors": [contributor(c) for c in one.contributors],
        "rest": {"bytes": one.rest_bytes, "count": one.rest_count},
        "held": [held(line) for line in one.held],
        "tensors": [tensor(t) for t in one.tensors] if isinstance(one, Peak) else [],
    }


def step(one: Step) -> dict[str, Any]:
    return {
        "index": one.index,
        "loop": one.loop,
        "device": one.device,
        "start": one.start,
        "peak": one.peak,
        "end": one.end,
        "allocated": one.allocated,
        "freed": one.freed,
        "allocations": one.allocations,
        "reserved": one.reserved,
        "incomplete": one.incomplete,
        "begin_ns": one.begin_ns,
        "end_ns": one.end_ns,
        "peak_ns": one.peak_ns,
    }


def leak(one: Leak) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "bytes": one.bytes,
        "estimated": one.bytes_estimated,
        "bytes_per_step": one.bytes_per_step,
        "count": one.count,
        "count_per_step": one.count_per_step,
        "total_bytes_per_step": one.total_bytes_per_step,
        "first_step": one.first_step,
        "last_step": one.last_step,
        "loop": one.loop,
        "device": one.device,
        "line": None if one.frame is None else frame(one.frame),
        "stack": stack(one.stack),
        "stack_lost": one.stack_lost,
        "retained_at": stack(one.retained_at),
        "parts": [{**fields_of(part), "stack": stack(part.stack)} for part in one.parts],
        "backward": one.backward,
        "signature": one.signature,
        "cause": one.cause or None,
        "confidence": one.confidence,
        "reason": one.reason or None,
        "undecided": one.undecided,
        "relation": one.relation or None,
        "keeps": [leak(kept) for kept in one.keeps],
        "holders": [fields_of(held) for held in one.holders],
    }


def clock(one: Clock) -> dict[str, Any]:
    def place(where: tuple[str, int, str] | None) -> dict[str, Any] | None:
        return None if where is None else {"file": where[0], "line": where[1], "function": where[2]}

    return {
        "kind": one.kind,
        "where": place(one.where),
        "changes": [{**fields_of(change), "where": place(change.where)} for change in one.changes],
        "passed": one.passed and {**fields_of(one.passed), "where": place(one.passed.where)},
        "rate": one.rate and {**fields_of(one.rate), "where": place(one.rate.where)},
    }


def of_stack(frames: Stack, lost: bool) -> dict[str, Any]:
    """The keys of what has one stack."""
    user = user_frame(frames)
    return {"line": None if user is None else frame(user), "stack": stack(frames), "stack_lost": lost}


def driver(one: DriverLevel) -> dict[str, Any]:
    def live(row: DriverAllocations) -> dict[str, Any]:
        return {
            "bytes": row.bytes,
            "count": row.count,
            "kind": row.kind,
            "library": row.library or None,
            "name": row.owner or None,
            "torch": row.torch,
            "backward": row.backward,
            **of_stack(row.stack, row.stack_lost),
        }

    def device(row: DriverDevice) -> dict[str, Any]:
        return {
            "device": row.name,
            "bytes": row.bytes,
            "peak": row.peak,
            "live": [live(part) for part in row.live],
        }

    return {
        **driver_mode(one),
        "allocations": one.allocations,
        "frees": one.frees,
        "unknown_frees": one.unknown_frees,
        "failed_frees": one.failed_frees,
        "replaced": one.replaced,
        "record_check": fields_of(one.record_check),
        "devices": [device(row) for row in one.devices],
        "host": None if one.host is None else device(one.host),
    }


def driver_mode(one: DriverLevel) -> dict[str, Any]:
    return {"mode": one.mode, "reason": one.reason or None, "cupti": one.cupti or None}


def ledger_sums(one: Ledger) -> dict[str, Any]:
    """A ledger without its lines."""
    return {
        "device": one.device,
        "what": one.what,
        "time_ns": one.time_ns,
        "step": one.step,
        "quiet": one.quiet,
        "used": one.used,
        "total": one.total,
        "own": one.own,
        "tensors": one.tensors,
        "rounding": one.rounding,
        "cached": one.cached,
        "driver": one.of("driver"),
        "driver_rounding": one.driver_rounding,
        "pool_slack": one.pool_slack,
        "pool_short": one.pool_short,
        "context": one.context,
        "context_measured": one.context_measured,
        "others": one.others,
        "driver_reserved": one.driver_reserved,
        "residual": one.residual,
        "libraries": one.libraries,
    }


def ledger_line(one: LedgerLine) -> dict[str, Any]:
    return {
        "part": one.part,
        "name": one.name,
        "bytes": one.bytes,
        "count": one.count,
        "kind": one.kind or None,
        "library": one.library or None,
        "backward": one.backward,
        **of_stack(one.stack or (), one.stack_lost),
    }


def envelope(report: Report) -> dict[str, Any]:
    """What every verb's object begins with."""
    lost = report.lost
    return {
        "schema": SCHEMA,
        "complete": report.complete,
        "state": report.state,
        "reason": report.reason,
        "lost": {
            "events": lost.events,
            "stacks": lost.stacks,
            "cut": lost.cut,
            "unshown": lost.unshown,
            "unknown_frees": lost.unknown_frees,
            "replaced": lost.replaced,
            "seeds_skipped": lost.seeds_skipped,
        },
        "compacted": None if report.compacted is None else fields_of(report.compacted),
        "code": list(report.code),
    }


def summary(report: Report) -> dict[str, Any]:
    return {
        **envelope(report),
        "environment": dict(report.environment),
        "start_realtime_ns": report.start_realtime_ns,
        "duration_ns": report.duration_ns,
        "events": report.events,
        "allocations": report.allocations,
        "threads": report.threads,
        "devices": [
            {
                "device": device.name,
                "start": device.start,
                "peak": device.peak.bytes,
                "peak_step": device.peak.step,
                "peak_time_ns": device.peak.time_ns,
                "end": device.end,
                "allocations": device.allocations,
                "frees": device.frees,
                "allocated": device.allocated,
                "freed": device.freed,
                "reserved_peak": device.reserved_peak,
                "requested_peak": device.requested_peak,
                "peak_above_start": device.peak_above_start,
                "kept": device.kept,
                "segments": None if device.segments is None else fields_of(device.segments),
                "check": None if device.check is None else fields_of(device.check),
                "garbage": garbage(report, device),
            }
            for device in report.devices
        ],
        "resident_peak": max((point.bytes for point in report.resident), default=None),
        "process_growth": process_growth(report),
        "ooms": [refused(oom) for oom in report.ooms],
        "host_reads": [{**fields_of(read), "stack": stack(read.stack)} for read in report.host_reads],
        "steps": len({one.index for one in report.steps.ended}),
        "clock": clock(report.clock),
        "driver": driver_mode(report.driver),
        "ledgers": [ledger_sums(one) for one in report.ledgers],
        "leaks": len(report.leaks),
        "suspects": len(report.suspects),
        "held": [held(one) for one in report.held],
        "backward": fields_of(report.backward),
    }


def garbage(report: Report, device: Device) -> dict[str, Any] | None:
    one = device.garbage
    if one is None:
        return None
    line = one.line
    sums = {name: value for name, value in fields_of(one).items() if name != "contributors"}
    at = line.frame if line is not None else None
    return {**sums, "line": at and frame(at), "class": report.cycles(device.name, line) or None}


def process_growth(report: Report) -> dict[str, Any] | None:
    one = report.process_growth
    if one is None:
        return None
    return {**fields_of(one), "tensors": one.tensors, "stopped": None, "bytes_per_step": one.bytes_per_step}


def refused(one: OutOfMemory) -> dict[str, Any]:
    return {
        "device": one.device,
        "time_ns": one.time_ns,
        "requested": one.requested,
        "allocated": one.allocated,
        "step": one.step,
        "escaped": one.escaped,
        "stack": stack(one.stack),
    }


def ooms(report: Report, chosen: Iterable[OutOfMemory]) -> dict[str, Any]:
    return {
        **envelope(report),
        "refused": sum(device.refused for device in report.devices),
        "ooms": [
            {
                **refused(one),
                "origin": stack(one.origin),
                "operator": one.operator,
                "reserved": one.reserved,
                "cached": one.cached,
                "too_small": None if one.memory is None else one.memory.too_small,
                "free_on_device": None if one.memory is None else one.memory.free_on_device,
                "lacked": None if one.memory is None else one.memory.lacked,
                "rest_bytes": one.unknown,
                "contributors": [contributor(c) for c in one.contributors],
                "tensors": [tensor(t) for t in one.tensors],
            }
            for one in chosen
        ],
    }


def peaks(report: Report, chosen: tuple[Contents, ...]) -> dict[str, Any]:
    return {**envelope(report), "peaks": [peak(one) for one in chosen]}


def leaks(report: Report) -> dict[str, Any]:
    return {
        **envelope(report),
        "judged": [
            {"loop": loop, "steps": number, "enough": number >= STEPS_NEEDED} for loop, number in report.loops.items()
        ],
        "leaks": [leak(one) for one in report.leaks],
        "suspects": [leak(one) for one in report.suspects],
        "process_growth": process_growth(report),
        "nodes": {
            "counted": report.nodes is not None,
            "live": report.nodes,
            "reason": report.nodes_reason or None,
        },
    }


def held(one: HeldLine) -> dict[str, Any]:
    return {
        "device": one.device,
        "bytes": one.bytes,
        "count": one.count,
        "line": None if one.frame is None else frame(one.frame),
        "holders": [fields_of(held) for held in one.holders],
    }


def holders(report: Report, chosen: Iterable[LineHolders]) -> dict[str, Any]:
    return {
        **envelope(report),
        "lines": [
            {
                "line": frame(one.frame),
                "held": [held(line) for line in one.held],
                "leaks": [leak(grown) for grown in one.leaks],
            }
            for one in chosen
        ],
    }


def ledger(report: Report, chosen: tuple[Ledger, ...]) -> dict[str, Any]:
    return {
        **envelope(report),
        "ledgers": [{**ledger_sums(one), "lines": [ledger_line(line) for line in one.lines]} for one in chosen],
        "driver": driver(report.driver),
    }


def fragmentation(report: Report, chosen: tuple[Fragmentation, ...]) -> dict[str, Any]:
    def pin(one: Pin | SegmentPin) -> dict[str, Any]:
        return {**fields_of(one), **of_stack(one.stack, one.stack_lost)}

    def row(one: Fragmentation) -> dict[str, Any]:
        return {
            **fields_of(one),
            "segments": [{**fields_of(part), "pins": [pin(few) for few in part.pins]} for part in one.segments],
            "pins": [pin(part) for part in one.pins],
        }

    return {**envelope(report), "fragmentation": [row(one) for one in chosen]}


def kernels(report: Report, one: Kernels) -> dict[str, Any]:
    def use(row: KernelUse) -> dict[str, Any]:
        return {**fields_of(row), "kernel": row.kernel or None, **of_stack(row.stack, row.stack_lost)}

    def deferred(row: DeferredFrees) -> dict[str, Any]:
        return {**fields_of(row), **of_stack(row.stack, row.stack_lost)}

    return {
        **envelope(report),
        "launches": one.launches,
        "ran": one.ran,
        "dropped": one.dropped,
        "unrecorded": one.unrecorded,
        "unlaunched": one.unlaunched,
        "unjudged": one.unjudged,
        "wait_least_ns": one.wait_least_ns,
        "ns": one.ns,
        "kernels_total": one.names_total,
        "kernels": [{"name": row.name, "short": row.short, "count": row.count, "ns": row.ns} for row in one.names],
        "early": [use(row) for row in one.early],
        "late": [use(row) for row in one.late],
        "deferred_frees": [deferred(row) for row in one.deferred_frees],
    }


def steps(report: Report, rows: tuple[Step, ...]) -> dict[str, Any]:
    return {**envelope(report), "clock": clock(report.clock), "steps": [step(one) for one in rows]}


def table(report: Report, one: Contents | None, rows: tuple[Group, ...], by: str) -> dict[str, Any]:
    return {
        **envelope(report),
        "device": None if one is None else one.device,
        "bytes": 0 if one is None else one.bytes,
        "step": None if one is None else one.step,
        "what": None if one is None else one.what,
        "by": by,
        "rows": [{by: row.key, "bytes": row.bytes, "count": row.count} for row in rows],
        "rest": {"bytes": 0 if one is None else one.rest_bytes, "count": 0 if one is None else one.rest_count},
    }


def accounts(report: Report, chosen: Sequence[Account]) -> dict[str, Any]:
    def row(one: AccountRow) -> dict[str, Any]:
        return {"bytes": one.bytes, "count": one.count, **dict(zip(CATEGORIES, one.parts, strict=True))}

    return {
        **envelope(report),
        "accounts": [
            {
                "device": one.device,
                "step": one.contents.step,
                "time_ns": one.contents.time_ns,
                "depth": one.depth,
                **row(one.total),
                "modules": [{"module": part.module, **row(part)} for part in one.rows],
            }
            for one in chosen
        ],
    }


def tree(report: Report, chosen: tuple[Contents, ...], inverted: bool) -> dict[str, Any]:
    def nodes(one: Contents) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        pending: list[tuple[tree_views.Node, int | None]] = [(tree_views.build(one.contributors, inverted), None)]
        while pending:
            at, parent = pending.pop()
            number = len(rows)
            rows.append(
                {
                    "parent": parent,
                    "name": at.name or None,
                    "line": None if at.frame is None else frame(at.frame),
                    "bytes": at.bytes,
                    "count": at.count,
                    "own": {"bytes": at.own_bytes, "count": at.own_count},
                }
            )
            pending += [(below, number) for below in sorted(at.below.values(), key=lambda below: below.bytes)]
        return rows

    return {
        **envelope(report),
        "inverted": inverted,
        "trees": [
            {
                "device": one.device,
                "what": one.what,
                "bytes": one.bytes,
                "count": one.count,
                "step": one.step,
                "rest": {"bytes": one.rest_bytes, "count": one.rest_count},
                "nodes": nodes(one),
            }
            for one in chosen
        ],
    }


def diff(before: Report, after: Report, devices: list[DeviceDiff]) -> dict[str, Any]:
    def pair(numbers: tuple[int, int]) -> dict[str, int]:
        return {"before": numbers[0], "after": numbers[1]}

    def change(one: Change) -> dict[str, Any]:
        old, new = (line.frame if line is not None else None for line in (one.before, one.after))
        return {
            "line": one.shown.where,
            "phase": one.phase,
            "bytes": pair(one.bytes),
            "count": pair(one.count),
            "change": one.kind,
            "moved": one.moved,
            "parts": [{"name": name, "bytes": pair((was, is_))} for name, was, is_ in one.parts],
            "before": None if old is None else frame(old),
            "after": None if new is None else frame(new),
        }

    def section(one: Section) -> dict[str, Any]:
        return {
            "bytes": pair(one.bytes),
            "steps": pair(one.steps),
            "at": {"before": one.at[0], "after": one.at[1]},
            "lines": [change(row) for row in one.changes],
            "rest": pair(one.rest),
        }

    return {
        "schema": SCHEMA,
        "before": {**envelope(before), "environment": dict(before.environment)},
        "after": {**envelope(after), "environment": dict(after.environment)},
        "devices": [
            {
                "device": one.device,
                "below": [],  # readers of schema 3 expect it
                **{part.what: section(part) for part in one.sections},
                "loops": [{"loop": part.loop, "what": part.what, **section(part)} for part in one.of_loops],
            }
            for one in devices
        ],
    }


def text(document: dict[str, Any]) -> str:
    """One JSON object with a stable order of keys. ASCII: exact, safe on a terminal, and writable in any encoding."""
    return "".join(_pieces(document))


def show(document: dict[str, Any]) -> None:
    """Prints it piece by piece: with its stacks written out a document is many times as large as its trace."""
    sys.stdout.writelines(_pieces(document))
    sys.stdout.write("\n")


_SCALAR = json.JSONEncoder(allow_nan=False).encode


def _pieces(document: dict[str, Any]) -> Iterator[str]:
    """As json.dumps(indent=2) has it. That takes ten times as long for stacks, and all of the text in memory."""
    written: dict[tuple[int, str], str] = {}

    def pieces(value: Any, line: str) -> Iterator[str]:
        if not isinstance(value, dict | list | tuple) or not value:
            yield _SCALAR(value)
            return
        deeper, between = line + "  ", ""
        keyed = isinstance(value, dict)
        yield "{" if keyed else "["
        for item in value:
            yield f"{between}{deeper}{_SCALAR(item)}: " if keyed else between + deeper
            yield from of(value[item] if keyed else item, deeper)
            between = ","
        yield line + ("}" if keyed else "]")

    def of(value: Any, line: str) -> Iterable[str]:
        if not isinstance(value, _FrameObject):
            return pieces(value, line)
        key = (id(value), line)
        if key not in written:
            written[key] = "".join(pieces(value, line))
        return (written[key],)

    return pieces(document, "\n")
