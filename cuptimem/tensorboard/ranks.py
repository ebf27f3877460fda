"""The ranks of a job on the Memory page: the last recording of each, compared as `cuptimem ranks` does.

A file of the page has the lines of a peak, and neither categories nor other moments: ranks are compared at their peaks.
"""

import os
import re
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from cuptimem.distributed.comparison import compare
from cuptimem.distributed.summary import Growth, Held, RankDevice, RankSummary
from cuptimem.errors import Error
from cuptimem.output.pages.ranks import block
from cuptimem.output.text import rank_views
from cuptimem.tensorboard.data import STEP_COLUMNS
from cuptimem.tensorboard.walk import Found

ROWS = 512  # ranks of a table
_RUN = re.compile(r"(?s)(?:(.*)/)?rank(\d{1,9})")
_STEP, _LOOP, _DEVICE, _PEAK = map(STEP_COLUMNS.index, ("step", "loop", "device", "peak"))


def job_of(run: str) -> str | None:
    """The folder of which this run is a rank; None: it is none."""
    found = _RUN.fullmatch(run)
    return None if found is None else found[1] or "."


def members(every: Iterable[Found], run: str) -> dict[int, Found]:
    """The last recording of each rank of this run's job. every: in the order of their runs and names. Raises Error."""
    job, found = job_of(run), {}
    for one in every:
        if job_of(one.run) == job and (named := _RUN.fullmatch(one.run)):
            found[int(named[2])] = one
    if not found:
        raise Error("this recording is not of a rank")
    return dict(sorted(found.items()))


def blocks(recordings: Mapping[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """What stands below one another: lines of text, and tables. recordings: the files' contents, checked, by rank."""
    ranks = compare((_summary(rank, data) for rank, data in recordings.items()), (), lambda _rank, _step: None)
    return [shown for shown in map(block, rank_views.full(ranks, ROWS)) if shown["names"] or shown["text"]]


def _summary(rank: int, data: dict[str, Any]) -> RankSummary:
    known = data["environment"]
    loops: dict[str, set[int]] = {}
    for row in data["steps"]:
        loops.setdefault(row[_LOOP], set()).add(row[_STEP])
    script = known.get("script", "")
    return RankSummary(
        path=f"rank{rank}",
        rank=rank,
        world=None,
        host="",  # a rank's folder says nothing of machines
        title=os.path.basename(script) if isinstance(script, str) else "",
        started=data["start_realtime_ns"],
        state="complete",
        exception="",
        steps={loop: len(steps) for loop, steps in loops.items()},
        devices=tuple(_device(device, data["steps"]) for device in data["devices"] if device["peak"] > 0),
        growths=tuple(
            Growth(leak["where"], leak["loop"], leak["total_bytes_per_step"], "", leak["verdict"])
            for leak in data["leaks"]
            if leak["verdict"] or leak.get("undecided") is True
        ),
        resident=max((row[-1] for row in data["resident"]), default=None),
        refused=len(data["ooms"]),
    )


def _device(device: dict[str, Any], steps: list[list[Any]]) -> RankDevice:
    rows = [row for row in steps if row[_DEVICE] == device["name"]]
    loop = next((row[_LOOP] for row in rows if row[_STEP] == device["peak_step"]), None)
    peaks = [row[_PEAK] for row in rows if row[_LOOP] == loop]
    lines: dict[str, int] = {}
    for line in device["lines"]:
        lines[line["where"]] = lines.get(line["where"], 0) + line["bytes"]
    held = Held(
        bytes=device["peak"],
        step=device["peak_step"],
        loop=loop or "",
        categories={},
        lines=lines,
        others=device["rest"]["bytes"],
        inputs={},
        code={line["where"]: line["code"] for line in device["lines"]},
    )
    usual = statistics.median_low(peaks) if peaks else None
    return RankDevice(device["name"], held, device["end"], usual, device["reserved_peak"], None)
