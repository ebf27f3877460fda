"""The machine's view: one object per verb, as docs/json.md documents it."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from cuptimem.output.bounded import NONE, Bounds, bounded
from cuptimem.output.text import host_views, tree_views
from cuptimem.report.account import Account, AccountRow
from cuptimem.report.advice import Advice, Estimate, Plan, Proposal
from cuptimem.report.diff import Change, DeviceDiff, Section
from cuptimem.report.fragmentation import Fragmentation
from cuptimem.report.grouping import Group
from cuptimem.report.held import HeldLine
from cuptimem.report.host import ROLES, Host, Process
from cuptimem.report.kernels import Kernels, KernelTime, KernelUse
from cuptimem.report.leaks import STEPS_NEEDED, Holder, Leak, LeakPart
from cuptimem.report.ledger import DriverAllocations, DriverDevice, DriverLevel, Ledger, LedgerLine
from cuptimem.report.line_holders import LineHolders
from cuptimem.report.model import (
    CATEGORIES,
    Clock,
    Contents,
    Contributor,
    Device,
    Garbage,
    HostRead,
    Lost,
    OutOfMemory,
    Report,
    Step,
)
from cuptimem.report.process import ProcessGrowth
from cuptimem.report.stacks import Frame

SCHEMA = 3

# -- objects of the report's dataclasses ---------------------------------------------------------------------------

# Where a key's value is, if not in the attribute of its name: a path of attributes, or a function of the object.
Value = str | Callable[[Any], Any]
ELSEWHERE: dict[str, Value] = {
    "line": "frame",
    "rest": lambda one: {"bytes": one.rest_bytes, "count": one.rest_count},
    "where": lambda one: one.where and dict(zip(("file", "line", "function"), one.where, strict=True)),
}
KEYS: dict[type, tuple[str, Mapping[str, Value]]] = {}


def keys(kind: type, words: str, **elsewhere: Value) -> None:
    """What an object of this dataclass has in JSON. A word with ? is null where its value is empty.

    A kind without keys has its fields, and where it has a stack that may be lost, the user's line.
    """
    KEYS[kind] = (words, elsewhere)


_HAS_STACK = "line stack stack_lost"
_REFUSED = "device time_ns requested allocated step escaped stack"
_MODE = "mode reason? cupti?"
_LEDGER = (
    "device what time_ns step quiet used total own tensors rounding cached driver driver_rounding pool_slack "
    "pool_short context context_measured others host page_cache driver_reserved residual libraries"
)

keys(Lost, "events stacks cut unshown unknown_frees replaced seeds_skipped")
keys(
    Contributor,
    "bytes count phase operator category module saved_by line library_line stack origin stack_lost",
    module="qualified",
)
keys(Proposal, "technique free bytes saved line write cost confidence")
keys(Estimate, "device peak bytes confidence")
keys(
    Contents,
    "device what bytes count step time_ns contributors rest held tensors",
    tensors=lambda one: getattr(one, "tensors", ()),
)
keys(
    Device,
    "device start peak peak_step peak_time_ns end allocations frees allocated freed reserved_peak requested_peak "
    "peak_above_start kept segments check",
    device="name",
    peak="peak.bytes",
    peak_step="peak.step",
    peak_time_ns="peak.time_ns",
)
keys(Garbage, "collections freed most after_oom at_peak line", line="line.frame")
keys(ProcessGrowth, "first_step last_step begin end bytes tensors stopped bytes_per_step", stopped=lambda one: None)
keys(
    OutOfMemory,
    f"{_REFUSED} origin operator reserved cached too_small free_on_device lacked rest_bytes contributors tensors",
    too_small="memory.too_small",
    free_on_device="memory.free_on_device",
    lacked="memory.lacked",
    rest_bytes="unknown",
)
keys(HostRead, "device count bytes written stack")
keys(
    Step,
    "index loop device start peak end allocated freed allocations reserved incomplete begin_ns end_ns peak_ns",
)
keys(
    Leak,
    "kind bytes estimated bytes_per_step count count_per_step total_bytes_per_step first_step last_step loop device "
    "line stack stack_lost retained_at parts backward signature cause? confidence reason? undecided relation? keeps "
    "holders",
    estimated="bytes_estimated",
)
keys(LeakPart, "bytes count stack")
keys(Holder, "path count bytes step put_at?")
keys(
    Process,
    "pid parent started role name first_ns last_ns highest copied end pages",
    first_ns=lambda one: one.points[0].time_ns,
    last_ns="end.time_ns",
    pages=lambda one: one.looked_at[-1] if one.looked_at else None,
)
keys(HeldLine, "device bytes count line holders")
keys(LineHolders, "line held leaks")
keys(Clock, "kind where changes passed rate")
keys(
    DriverLevel,
    f"{_MODE} allocations frees unknown_frees failed_frees replaced record_check devices host",
)
keys(DriverDevice, "device bytes peak live", device="name")
keys(DriverAllocations, f"bytes count kind library? name? torch backward {_HAS_STACK}", name="owner")
keys(Ledger, f"{_LEDGER} lines", driver=lambda one: one.of("driver"))
keys(
    LedgerLine,
    f"part name bytes count kind? library? backward {_HAS_STACK}",
    stack=lambda one: one.stack or (),
)
keys(
    Kernels,
    "launches ran dropped unrecorded unlaunched unjudged wait_least_ns ns kernels_total kernels early late "
    "deferred_frees",
    kernels_total="names_total",
    kernels="names",
)
keys(KernelTime, "name short count ns")
keys(KernelUse, f"bytes count wait_ns kernel? {_HAS_STACK}")


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


def _at_path(path: str) -> Callable[[Any], Any]:
    """The attribute at the end of a path; None where one on the way is None."""
    names = path.split(".")

    def value(one: Any) -> Any:
        for name in names:
            one = None if one is None else getattr(one, name)
        return one

    return value


@lru_cache(None)
def _getters(kind: Any, words: str | None) -> tuple[tuple[str, Callable[[Any], Any], bool], ...]:
    """Of each key of a kind: its name, what gets its value, and whether an empty one is null."""
    row = next((KEYS[base] for base in kind.__mro__ if base in KEYS), None)
    if row is None:
        names = [one.name for one in fields(kind)]
        lost = "stack_lost" in names
        row = (" ".join([name for name in names if not lost or not name.startswith("stack")] + [_HAS_STACK] * lost), {})
    found = []
    for word in (words or row[0]).split():
        key = word.rstrip("?")
        value = row[1].get(key) or ELSEWHERE.get(key) or key
        found.append((key, _at_path(value) if isinstance(value, str) else value, key != word))
    return tuple(found)


_PLAIN = frozenset((int, str, float, bool, type(None)))


def of(one: Any, words: str | None = None) -> Any:
    """Anything that a report has as JSON has it. words: of an object only these keys."""
    kind: Any = type(one)
    if kind in _PLAIN:
        return one
    if kind is Frame:
        return frame(one)
    if isinstance(one, tuple | list):
        return [of(part) for part in one]
    if isinstance(one, Mapping):
        return {key: of(value) for key, value in one.items()}
    return {key: of(get(one)) or None if no_empty else of(get(one)) for key, get, no_empty in _getters(kind, words)}


# -- verbs ---------------------------------------------------------------------------------------------------------


def envelope(report: Report) -> dict[str, Any]:
    """What every verb's object begins with."""
    return {"schema": SCHEMA, **of(report, "complete state reason lost compacted code")}


def summary(report: Report) -> dict[str, Any]:
    return {
        **envelope(report),
        **of(report, "environment start_realtime_ns duration_ns events allocations threads"),
        "devices": [{**of(device), "garbage": garbage(report, device)} for device in report.devices],
        "resident_peak": max((point.bytes for point in report.resident), default=None),
        "process_growth": of(report.process_growth),
        "ooms": [of(oom, _REFUSED) for oom in report.ooms],
        "host_reads": of(report.host_reads),
        "steps": len({one.index for one in report.steps.ended}),
        "clock": of(report.clock),
        "driver": of(report.driver, _MODE),
        "ledgers": [of(one, _LEDGER) for one in report.ledgers],
        "leaks": len(report.leaks),
        "suspects": len(report.suspects),
        **of(report, "held backward"),
    }


def garbage(report: Report, device: Device) -> dict[str, Any] | None:
    one = device.garbage
    return None if one is None else {**of(one), "class": report.cycles(device.name, one.line) or None}


def ooms(report: Report, chosen: Iterable[OutOfMemory]) -> dict[str, Any]:
    refused = sum(device.refused for device in report.devices)
    return {**envelope(report), "refused": refused, "ooms": [of(one) for one in chosen]}


def peaks(report: Report, chosen: tuple[Contents, ...]) -> dict[str, Any]:
    return {**envelope(report), "peaks": of(chosen)}


def leaks(report: Report) -> dict[str, Any]:
    return {
        **envelope(report),
        "judged": [
            {"loop": loop, "steps": number, "enough": number >= STEPS_NEEDED} for loop, number in report.loops.items()
        ],
        **of(report, "leaks suspects process_growth"),
        "nodes": {
            "counted": report.nodes is not None,
            "live": report.nodes,
            "reason": report.nodes_reason or None,
        },
    }


def holders(report: Report, chosen: Iterable[LineHolders]) -> dict[str, Any]:
    return {**envelope(report), "lines": [of(one) for one in chosen]}


def ledger(report: Report, chosen: tuple[Ledger, ...]) -> dict[str, Any]:
    return {**envelope(report), "ledgers": of(chosen), "driver": of(report.driver)}


_CURVE = 200  # points, about


def host(report: Report | None, one: Host) -> dict[str, Any]:
    """report: None of a process that runs now."""
    lines = one.account(0) if report is None else host_views.lines_of_account(report)
    curves = {role: one.curve(role) for role in ROLES if any(process.role == role for process in one.processes)}
    return {
        **({"schema": SCHEMA} if report is None else envelope(report)),
        **of(one, "processes files copies mapped malloc samples cpu_ns shm_bytes shm_used left_out unseen batches"),
        "account": of(lines),
        "account_ns": None if one.peak is None else one.peak[0],
        "findings": [] if report is None else of(host_views.report_findings(report)),
        "curves": [
            {"role": role, "points": [list(point) for point in curve[:: 1 + len(curve) // _CURVE]]}
            for role, curve in curves.items()
        ],
    }


def fragmentation(report: Report, chosen: tuple[Fragmentation, ...]) -> dict[str, Any]:
    return {**envelope(report), "fragmentation": of(chosen)}


def advice(report: Report, one: Advice) -> dict[str, Any]:
    return {**envelope(report), **of(one)}


def estimate(report: Report, one: Estimate) -> dict[str, Any]:
    return {**envelope(report), **_estimate(one)}


def estimates(report: Report, several: Sequence[Estimate]) -> dict[str, Any]:
    return {**envelope(report), "estimates": [_estimate(one) for one in several]}


def _estimate(one: Estimate) -> dict[str, Any]:
    changes = [{"change": name, "value": value or None} for name, value in one.changes]
    return {**of(one), "changes": changes, "notes": list(one.notes)}


def plan(report: Report, one: Plan) -> dict[str, Any]:
    return {**envelope(report), **of(one), "fits": one.fits}


def kernels(report: Report, one: Kernels) -> dict[str, Any]:
    return {**envelope(report), **of(one)}


def steps(report: Report, rows: tuple[Step, ...]) -> dict[str, Any]:
    return {**envelope(report), "clock": of(report.clock), "steps": of(rows)}


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
                    "line": of(at.frame),
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
        "trees": [{**of(one, "device what bytes count step rest"), "nodes": nodes(one)} for one in chosen],
    }


def diff(before: Report, after: Report, devices: list[DeviceDiff]) -> dict[str, Any]:
    def pair(numbers: tuple[int, int]) -> dict[str, int]:
        return {"before": numbers[0], "after": numbers[1]}

    def change(one: Change) -> dict[str, Any]:
        return {
            "line": one.shown.where,
            "phase": one.phase,
            "bytes": pair(one.bytes),
            "count": pair(one.count),
            "change": one.kind,
            "moved": one.moved,
            "parts": [{"name": name, "bytes": pair((was, is_))} for name, was, is_ in one.parts],
            "before": of(one.before and one.before.frame),
            "after": of(one.after and one.after.frame),
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
        "before": {**envelope(before), **of(before, "environment")},
        "after": {**envelope(after), **of(after, "environment")},
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


def show(document: dict[str, Any], bounds: Bounds = NONE) -> None:
    """Prints it piece by piece: with its stacks written out a document is many times as large as its trace."""
    sys.stdout.writelines(_pieces(bounded(document, bounds, _pieces)))
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
