"""Scalars of a report in an event file, as TensorBoard reads them."""

import os
import time
from collections.abc import Iterator
from typing import Any

from cuptimem.report.leaks import STEPS_NEEDED
from cuptimem.report.model import Report, Step

# TensorBoard's loader in Python reads the files of a run in the order of their names and never returns to one that it
# left. This one comes first, so a SummaryWriter's files in the same run are always read to their end.
_FIRST = "events.out.tfevents.0000000000"


def file_name(worker: str) -> str:
    return f"{_FIRST}.{worker}.cuptimem"


def leaked(report: Report) -> dict[str, int] | None:
    """Bytes of leaks (verdicts) by device, graph nodes under "graph"; None: too few steps to judge any."""
    if max(report.loops.values(), default=0) < STEPS_NEEDED:
        return None
    found = dict.fromkeys([device.name for device in report.devices], 0)
    for leak in report.leaks:
        for one in (leak, *leak.keeps):
            name = one.device if one.kind == "bytes" else "graph"
            found[name] = found.get(name, 0) + one.bytes
    return found


def points(report: Report, first_step: int, after: int = -1) -> Iterator[tuple[int, float, dict[str, int]]]:
    """Step of the program, seconds since 1970, and the values by tag; of steps behind `after`.

    Leaks are judged at the end of a recording, so its last step has them.
    """
    rows: dict[int, list[Step]] = {}
    for step in report.steps.ended:
        rows.setdefault(step.index, []).append(step)
    last = max(rows, default=0)
    for index, steps in sorted(rows.items()):
        if first_step + index <= after:
            continue
        values: dict[str, int] = {}
        for step in steps:
            values[f"Memory/Allocated/{step.device}"] = step.end
            values[f"Memory/Peak/{step.device}"] = step.peak
            if step.reserved is not None:
                values[f"Memory/Reserved/{step.device}"] = step.reserved
        if index == last:
            values |= {f"Memory/Leaked/{name}": size for name, size in (leaked(report) or {}).items()}
        yield first_step + index, (report.start_realtime_ns + steps[0].end_ns) / 1e9, values


def append(path: str, report: Report, first_step: int, after: int = -1) -> int:
    """Appends the report's scalars to an event file, which is made if there is none. Returns how many steps it had.

    After an error the file is as it was.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    number = 0
    with open(path, "ab") as file:
        before = file.tell()
        writer = RecordWriter(file)
        try:
            if before == 0:
                writer.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
            for step, wall_time, values in points(report, first_step, after):
                writer.write(_event(step, wall_time, values))
                number += 1
            file.flush()
        except BaseException:
            os.truncate(file.fileno(), before)
            raise
    return number


def _event(step: int, wall_time: float, values: dict[str, int]) -> Any:
    """One event for all values of a step. Its scalars have four bytes each, so they are rounded to 24 binary digits:
    those of eight are not shown by TensorBoard's data server, which is its default."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    return Event(wall_time=wall_time, step=step, summary=summary).SerializeToString()
