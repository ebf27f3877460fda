"""Figures while the program runs: stretches of the recording, read one after the other by a thread beside it.

The program's thread only writes marks: a stretch is a window of the recording. Windows that are read in their order
cost one reading of the trace together (docs/internals/windows.md), with the interpreter's lock released.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from cuptimem.errors import Error, recording_core
from cuptimem.integrations import figures
from cuptimem.record import recorder
from cuptimem.report import load
from cuptimem.report.leaks import growth_per_step

EVENTS = 10_000  # of a stretch that is read ahead of the next log: some 3 ms of the thread beside the program
_WAIT = 0.01  # seconds that a log waits for what is still to be read, at most, and
_SHARE = 0.005  # of the time since the last log: a hundredth of a second is much where steps are short
_JUDGED = 4_000_000  # events up to which the whole recording is read for its leaks, at 16, 32, 64, ... steps
_POLL = 0.25  # seconds between looks at what other ranks have written


class LiveReader:
    """Reads what was recorded since it began. `poll` is called by its thread a few times a second, if it is given."""

    def __init__(
        self, outer: recorder.Window, wait: float | None, refused: Callable[[], None], poll: Callable[[], None] | None
    ) -> None:
        self._core = recording_core()
        self._outer = outer
        self._wait = wait
        self._taken = time.monotonic()  # the last log
        self._trace: object = None
        self._refused = refused
        self._poll = poll
        self._jobs: deque[tuple[recorder.Window, str, int]] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._stopped = False
        self._over = False  # the recording has ended by itself
        self._figures: dict[str, dict[str, int]] = {}  # by phase, not yet taken
        self._used: dict[str, int] = {}  # of devices, when the driver was last asked
        self._read_step = 0  # the step at whose end the newest figures are
        self._growth: int | None = None
        self.steps, self._steps_taken, self._judge_at = 0, 0, 16
        self._cut_at = 0
        self._window: recorder.Window | None = self._open()
        self._thread = threading.Thread(target=self._run, name="cuptimem figures", daemon=True)
        self._thread.start()

    # -- the program's thread -------------------------------------------------------------------------------------

    def step(self, phase: str, step: int) -> None:
        """A training step has ended: what was recorded is read ahead, if it is much."""
        self.steps += 1
        events = self._core.capture_counts()["events"]
        if events - self._cut_at >= EVENTS and not self._jobs:
            self.cut(phase, step)

    def cut(self, phase: str, step: int) -> None:
        """Ends the stretch, which was of this phase, and begins the next."""
        window, self._window = self._window, None
        if window is None or self._over or not recorder.active():
            return
        recorder.close_window(window, collect=False)
        self._cut_at = self._core.capture_counts()["events"]
        self._window = self._open()
        with self._changed:
            if not self._over:
                self._jobs.append((window, phase, step))
                self._changed.notify_all()

    def take(self, wait: float | None = None) -> dict[str, int]:
        """The figures since the last call, as far as they are read in that time; with `memory/step`."""
        began, self._taken = self._taken, time.monotonic()
        if wait is None:
            wait = self._wait
        if wait is None:
            wait = min(_WAIT, _SHARE * (self._taken - began))
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs and not self._busy, wait)
            found: dict[str, int] = {}
            for phase in list(self._figures):
                # What training does between a step's log and that of an evaluation behind it is the next step's.
                if phase != figures.TRAIN or self.steps > self._steps_taken:
                    found |= self._figures.pop(phase)
            self._steps_taken = self.steps
            if found:
                found[f"{figures.PREFIX}step"] = self._read_step
            if self._growth is not None:
                found[f"{figures.PREFIX}growth_bytes_per_step"] = self._growth
        return {**found, f"{figures.PREFIX}process_bytes": figures.process_bytes()}

    def stop(self) -> None:
        """Nothing is read after this."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()
        if self._window is not None:
            recorder.close_window(self._window, collect=False)

    def _open(self) -> recorder.Window:
        return recorder.open_window(None, overwrite=False, options=recorder.Options())

    # -- the thread beside it -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._stopped, None if self._poll is None else _POLL)
                if self._stopped:
                    return
                job = self._jobs.popleft() if self._jobs else None
                self._busy = job is not None
            try:
                if job is not None:
                    self._read(*job)
                elif self._poll is not None:
                    with contextlib.suppress(OSError):  # a page that goes while it is looked at
                        self._poll()
                if job is not None:
                    self._judge()
            except (Error, self._core.Error, OSError):  # the recording has ended by itself, which it has said
                return self._give_up()
            except Exception as problem:  # a fault of ours, or no memory: the training goes on without figures
                recorder.say(f"no more figures: {' '.join(str(problem).split()) or type(problem).__name__}")
                return self._give_up()
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _give_up(self) -> None:
        with self._changed:
            self._over = True
            self._jobs.clear()

    def _read(self, window: recorder.Window, phase: str, step: int) -> None:
        self._core.capture_sync()
        if self._trace is None:
            self._trace = self._core.trace(window.file.path)
        code = ",".join(self._outer.code) or None
        raw: dict[str, Any] = self._core.analyze(self._trace, window=window.number, code=code)
        self._used |= figures.used(raw)
        found = figures.of_stretch(raw, phase, self._used) if raw["allocations"] else {}
        with self._changed:
            self._figures[phase] = figures.merge(self._figures.get(phase, {}), found)
            self._read_step = step
        refused = sum(device["ooms_total"] for device in raw["devices"])
        if refused:
            self._refused()

    def _judge(self) -> None:
        """Reads all of the recording for its leaks, each time that the steps have doubled."""
        if self.steps < self._judge_at or self._core.capture_counts()["events"] > _JUDGED:
            return
        self._judge_at = 2 * self.steps
        try:
            path, number = self._outer.file.path, self._outer.number
            report = load.analyze(path, window=number, default_code=self._outer.code)
        except (Error, self._core.Error, OSError):
            return
        growth = growth_per_step(report)
        with self._changed:
            self._growth = growth
