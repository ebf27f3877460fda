"""Follows a trace: reads what has come, and says what is known then."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuptimem.errors import Error, core
from cuptimem.live import processes
from cuptimem.live.state import Growing, LiveDevice, LiveLine, LiveState, LiveStep, Verdict
from cuptimem.report import load, own_code
from cuptimem.report.contents import Contributor
from cuptimem.report.leaks import growth_per_step, growth_so_far
from cuptimem.report.model import Report
from cuptimem.report.process import HOST

RECORDS = 200_000  # at a time: some 50 ms
JUDGED = 4_000_000  # events up to which the whole recording is read for a verdict
_RATE_OF = 16  # steps
_Key = tuple[str, object]


class Follower:
    """A trace that a process writes, or has written.

    judge: whether the whole recording is read again for a verdict at 2, 4, 8, 16, ... steps, in a thread.
    first_verdict: in the place of 2. code: as of cuptimem.open. Raises Error, one line, for what is no trace.
    """

    def __init__(
        self, path: str, *, code: Sequence[str] | None = None, judge: bool = True, first_verdict: int = 2
    ) -> None:
        self.path = path
        self._code = tuple(code) if code is not None else own_code.of_environment()
        self._core = core()
        self._follower: Any = self._core.Follower(path, None if self._code is None else ",".join(self._code))
        self._judges = judge
        self._first_verdict = first_verdict
        self._begin()
        self._file: tuple[int, ...] | None = None  # of a trace that had ended, when it was last read

    def _begin(self) -> None:
        meta = self._follower.meta
        code = self._code if self._code is not None else own_code.of_trace(meta.get("code", ""))
        self._origins = load.Origins(self._follower, code)
        self._verdict: Verdict | None = None
        self._judged: Verdict | None = None  # at the last poll
        self._judge_at = self._first_verdict
        self._judging: threading.Thread | None = None

    def poll(self, progress: Callable[[int], object] | None = None) -> bool:
        """Reads what has come. Whether anything has, or there is a new verdict. progress is told how many records were
        read, while it reads."""
        judged, self._judged = self._judged is not self._verdict, self._verdict
        if self._file is not None and self._file == _identity(self.path):
            return judged
        self._file = None
        read, changed, state = 0, False, self._follower.state
        while True:
            word, count = self._follower.read(RECORDS)
            read += count
            changed = changed or count > 0
            if word == "again":
                self._begin()
                changed = True
            if word == "end":
                break
            if progress is not None:
                progress(read)
        if self._follower.state != "recording":
            self._file = _identity(self.path)
        self._think()
        return changed or judged or state != self._follower.state

    @property
    def events(self) -> int:
        """Records that were read."""
        return int(self._follower.totals()["records"])

    def close(self) -> None:
        if self._judging is not None:
            self._judging.join()

    # -- verdicts -------------------------------------------------------------------------------------------------

    def _think(self) -> None:
        totals = self._follower.totals()
        if not self._judges or totals["steps"] < self._judge_at or totals["records"] > JUDGED:
            return
        if self._judging is not None and self._judging.is_alive():
            return
        while self._judge_at <= totals["steps"]:
            self._judge_at *= 2
        self._judging = threading.Thread(target=self.judge, name="cuptimem verdict", daemon=True)
        self._judging.start()

    def judge(self) -> None:
        """Reads the whole recording."""
        try:
            report = load.analyze(self.path, code=self._code)
        except Error:  # it has ended or was replaced meanwhile: the next reading says so
            return
        self._verdict = _verdict(report)

    # -- what is known --------------------------------------------------------------------------------------------

    def state(self) -> LiveState:
        """As of the last poll. Lines and categories are sums over what is alive."""
        follower, totals = self._follower, self._follower.totals()
        meta: Mapping[str, str] = follower.meta
        pid = int(meta["pid"]) if len(meta.get("pid", "")) < 11 and meta.get("pid", "").isdecimal() else None
        recording = follower.state == "recording"
        process = processes.state_of(pid, meta.get("ring.owner", "")) if recording else "is gone"
        now = time.time_ns()
        steps = self._steps()
        newest = max((rows[-1] for rows in steps.values() if rows), key=lambda row: row.number, default=None)
        resident = processes.resident(pid) if process not in ("is gone", "unknown") and pid is not None else None
        return LiveState(
            path=self.path,
            pid=pid,
            script=meta.get("script", ""),
            state=follower.state,
            reason=follower.reason,
            process=process,
            time_ns=now,
            age_ns=_age(totals, now),
            events=totals["records"],
            steps=totals["steps"],
            step=totals["steps"] if totals["has_clock"] and recording else None,
            phase=newest.loop if newest is not None else "",
            rate=_rate(max(steps.values(), key=len, default=())),
            resident=totals["resident"] if resident is None else resident,
            refused=totals["refused"],
            lost=totals["lost"],
            devices=self._devices(steps),
            verdict=self._verdict,
        )

    def _steps(self) -> dict[str, list[LiveStep]]:
        found: dict[str, list[LiveStep]] = {}
        for number, device, loop, begin_ns, end_ns, peak, end in self._follower.steps():
            found.setdefault(device, []).append(LiveStep(number, loop, begin_ns, end_ns, peak, end))
        return found

    def _devices(self, steps: Mapping[str, Sequence[LiveStep]]) -> tuple[LiveDevice, ...]:
        lines = self._lines()
        devices = []
        for name, live, blocks, peak, reserved, used, total, _own, others in self._follower.devices():
            if peak == 0 and blocks == 0 and not reserved and used is None:
                continue
            devices.append(
                LiveDevice(
                    name,
                    live,
                    blocks,
                    peak,
                    reserved,
                    used,
                    total,
                    others,
                    tuple(sorted(lines.get(name, ()), key=lambda line: (-line.bytes, line.where))),
                    tuple(steps.get(name, ())),
                )
            )
        return tuple(sorted(devices, key=lambda one: (one.device in HOST, -one.peak, one.device)))

    def _lines(self) -> dict[str, list[LiveLine]]:
        sums: dict[_Key, tuple[Contributor, dict[str, int], list[int]]] = {}
        for origin, size, count in self._follower.live():
            device, contributor = self._origins.contributor(origin)
            frame = contributor.frame
            key = device, contributor.where if frame is None else (frame.file, frame.line)
            _, categories, blocks = sums.setdefault(key, (contributor, {}, []))
            categories[contributor.category] = categories.get(contributor.category, 0) + size
            blocks.append(count)
        found: dict[str, list[LiveLine]] = {}
        judged = self._verdict.lines if self._verdict is not None else {}
        for (device, _), (contributor, categories, blocks) in sums.items():
            frame = contributor.frame
            where = contributor.where if frame is None else frame.place
            line = LiveLine(
                where, frame, sum(categories.values()), sum(blocks), categories, judged.get((device, where), ())
            )
            found.setdefault(device, []).append(line)
        return found


def _identity(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _age(totals: Mapping[str, Any], now: int) -> int | None:
    if totals["records"] == 0:
        return None
    newest: int = totals["start_realtime_ns"] + totals["newest_ns"]
    return max(0, now - newest)


def _rate(steps: Sequence[LiveStep]) -> float | None:
    """Steps a second; None with fewer than two."""
    last = steps[-_RATE_OF - 1 :]
    if len(last) < 2 or last[-1].end_ns <= last[0].end_ns:
        return None
    return (last[-1].number - last[0].number) * 1e9 / (last[-1].end_ns - last[0].end_ns)


def _verdict(report: Report) -> Verdict:
    peaks: dict[str, dict[str, int]] = {}
    lines: dict[tuple[str, str], tuple[str, ...]] = {}
    for peak in report.peaks:
        sums: dict[str, int] = {}
        for one in peak.contributors:
            sums[one.category] = sums.get(one.category, 0) + one.bytes
        peaks[peak.device] = dict(sorted(sums.items(), key=lambda row: -row[1]))
        for line in peak.lines:
            kinds: dict[str, int] = {}
            for one in line.contributors:
                kinds[one.category] = kinds.get(one.category, 0) + one.bytes
            lines[peak.device, line.where] = tuple(sorted(kinds, key=lambda kind: -kinds[kind]))
    found = growth_so_far(report)
    return Verdict(
        steps=len({step.index for step in report.steps.ended}),
        growth=growth_per_step(report),
        growing=tuple(Growing(one.where, one.total_bytes_per_step, one.device) for one in found or ()),
        peaks=peaks,
        peak_steps={peak.device: peak.step for peak in report.peaks},
        lines=lines,
    )
