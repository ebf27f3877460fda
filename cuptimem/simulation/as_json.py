"""The one JSON object of `cuptimem simulate --json`, as docs/json.md documents it."""

from typing import Any

from cuptimem.output.json import envelope, frame, peak, stack
from cuptimem.simulation.result import Interval, Simulation


def simulate(one: Simulation) -> dict[str, Any]:
    assert one.report is not None, "inquire() gives none without"

    def interval(value: Interval | None) -> dict[str, Any] | None:
        return None if value is None else {"low": value.low, "high": value.high}

    need, smallest = one.need, one.smallest_memory
    return {
        **envelope(one.report),
        "verdict": one.verdict,
        "fits": one.fits,
        "exit_code": one.code,
        "reason": one.reason,
        "hints": list(one.hints),
        "notes": list(one.notes),
        "name": one.name,
        "card": one.card,
        "memory": one.memory,
        "devices": [
            {
                "device": device.device,
                "total": device.total,
                "context": device.context,
                "context_range": interval(device.context_range),
                "allocated": interval(device.allocated),
                "reserved": interval(device.reserved),
                "used": interval(device.used),
                "refused": device.refused,
            }
            for device in one.devices
        ],
        "peak": None if one.peak is None else peak(one.peak),
        "need": None
        if need is None
        else {"device": need.device, "low": need.low, "high": need.high, "takes_everything": need.takes_everything},
        "smallest_memory": None
        if smallest is None
        else {"device": smallest.device, "low": smallest.low, "high": smallest.high},
        "setting": one.setting,
        "smallest_card": one.smallest_card,
        "modelled": [
            {"name": row.name, "bytes": row.bytes, "high_bytes": row.high_bytes, "count": row.count}
            for row in one.modelled
        ],
        "host_reads": [
            {
                "count": read.count,
                "bytes": read.bytes,
                "device": read.device,
                "written": read.written,
                "line": None if read.frame is None else frame(read.frame),
                "stack": stack(read.stack),
            }
            for read in one.host_reads
        ],
        "reads": [
            {
                "kind": read.kind,
                "dtype": read.dtype,
                "count": read.count,
                "elements": read.elements,
                "line": None if read.frame is None else frame(read.frame),
                "library": None if read.library is None else frame(read.library),
            }
            for read in one.reads
        ],
        "assumptions": [
            {
                "operator": row.operator,
                "share": row.fraction,
                "given": row.given,
                "count": row.count,
                "elements": row.elements,
                "bytes": row.bytes,
                "file": row.file or None,
                "line": row.line if row.file else None,
                "function": row.function or None,
                "library": None if row.library is None else frame(row.library),
            }
            for row in one.assumptions
        ],
        "undescribed": [{"name": entry.name, "count": entry.count} for entry in one.undescribed],
        "refused": [{"name": entry.name, "count": entry.count} for entry in one.refused],
        "caught_ooms": one.caught_ooms,
        "retries": one.retries,
        "attempts": [{"with": row.what, "outcome": row.outcome, "used": row.used} for row in one.attempts],
        "program": {"exit_code": one.exit_code, "signal": one.signal, "seconds": one.seconds},
        "torch": one.torch,
        "cuda": one.cuda,
    }
