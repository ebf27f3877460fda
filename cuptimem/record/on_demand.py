"""cuptimem.on_demand: windows that a running program opens when somebody asks, from any thread.

Each window has a thread of its own for as long as it is open. Nothing of ours runs between windows.
"""

import asyncio
import atexit
import concurrent.futures
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from cuptimem.errors import Error, own, recording_core
from cuptimem.record import instruments, recorder, refusals
from cuptimem.record.profiler import Profile
from cuptimem.words import plural

_PATIENCE = 10.0  # seconds for a window's report when the program ends
_MOMENT = 0.5  # seconds for the main thread to come between two of its instructions
_LOOK = 0.01  # seconds between looks at the number of ticks, while a window counts steps
_SOONER = 0.9  # of the ticks that the missing steps should take: the last ones are counted one by one

_lock = threading.Lock()
_open: "Window | None" = None  # guarded by _lock
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]  # typeshed lacks it


class _Errand:
    """What is done once: in the main thread, if that comes between two of its instructions soon, else in the window's.

    There none of the main thread's operations holds memory that Python cannot see, its loop is on the stack, and it
    makes no step meanwhile.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._taken = threading.Lock()
        self.done = threading.Event()
        self.error: BaseException | None = None

    def do(self) -> None:
        if not self._taken.acquire(blocking=False):
            return
        try:
            self._function()
        except own(BaseException) as error:
            self.error = error
        finally:
            self.done.set()

    def give_up(self, error: BaseException) -> None:
        """It will not be done: who waits for it gets this error."""
        if self._taken.acquire(blocking=False):
            self.error = error
            self.done.set()

    def do_in_main_thread(self) -> None:
        if threading.current_thread() is threading.main_thread() and not recorder.is_inside() and not _arrives():
            self.do()

    def see_to(self) -> None:
        core = recording_core()
        core.main_thread_call_soon(self.do_in_main_thread)
        if not self.done.wait(_MOMENT):
            core.main_thread_call_soon(None)
            if "torch" in sys.modules:
                import torch  # noqa: F401  another thread may be importing it: waits for its end
            self.do()
            self.done.wait()


class Window(concurrent.futures.Future[Profile]):
    """A window that was asked for: a future of its Profile, whose report is made. `await` works, too.

    It ends after its seconds or steps, with stop(), or with cancel(), after which it has no result.
    """

    def __init__(self, profile: Profile, seconds: float | None, steps: int | None) -> None:
        super().__init__()
        self.path: str | None = profile.path
        self._profile = profile
        self._pid = os.getpid()
        self._seconds, self._steps = seconds, steps
        self._asked_at = time.monotonic()
        self._beginning, self._end = _Errand(self._open), _Errand(self._close)
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()
        self.add_done_callback(lambda future: self._ends.set())

    def __await__(self) -> Generator[Any, None, Profile]:
        return asyncio.wrap_future(self).__await__()

    def stop(self) -> None:
        """Ends it now; result() is there soon. Twice, or when it has ended: nothing happens."""
        self._ends.set()

    def __str__(self) -> str:
        steps = "" if self._steps is None else plural(self._steps, "step")
        seconds = "" if self._seconds is None else f"{self._seconds:g} s"
        bounds = " or ".join(filter(None, (steps, seconds)))
        return f"a window of {bounds}" if bounds else "a window without an end"

    def wait_open(self) -> None:
        """Waits until it records. Raises Error if it cannot."""
        self._beginning.do_in_main_thread()  # which could not come to it while it waits
        self._beginning.done.wait()
        if self._beginning.error is not None:
            raise self._known(self._beginning.error)

    def result(self, timeout: float | None = None) -> Profile:
        """Waits for its end."""
        self._beginning.do_in_main_thread()
        return super().result(timeout)

    # -- its thread ------------------------------------------------------------------------------------------------

    def _run(self, told: Callable[["Window"], object] | None) -> None:
        try:
            if not _arrives():
                try:
                    instruments.prepare()
                except own(Exception):
                    pass  # what fails does so again as it opens, and is said there
            self._beginning.see_to()
            if self._beginning.error is not None:
                self._forget()
                self._fail(self._beginning.error)
                return
            if told is not None:
                told(self)
            try:
                self._wait()
                self._look_ahead()
            finally:
                self._end.see_to()
                self._forget()
            if self._end.error is not None:
                raise self._end.error
            if told is None:  # who waits for the result is not to wait for an analysis; others read the file
                _ = self._profile.report
        except BaseException as error:
            self._forget()
            self._beginning.give_up(error)
            self._fail(error)
        else:
            self._finish(lambda: self.set_result(self._profile))

    def _open(self) -> None:
        self._profile.start()
        self.path = self._profile.path

    def _look_ahead(self) -> None:
        """Reads in this thread what the end would read in the main one."""
        run = self._profile._current()
        if run is not None and run.window is not None and recorder.is_alone(run.window) and not self.done():
            recorder.read_growth(run.window)

    def _close(self) -> None:
        run = self._profile._current()
        if run is not None:
            self._profile._end(run, None, alive=False)
        self.path = self._profile.path

    def _known(self, error: BaseException) -> BaseException:
        known = isinstance(error, (Error, OSError, ValueError))
        return error if known else Error(f"{type(error).__name__}: {error}")

    def _fail(self, error: BaseException) -> None:
        self._finish(lambda: self.set_exception(self._known(error)))

    def _finish(self, finish: Callable[[], None]) -> None:
        try:
            finish()
        except concurrent.futures.InvalidStateError:  # it was cancelled
            self.set_running_or_notify_cancel()  # for concurrent.futures.wait()

    def _forget(self) -> None:
        global _open
        with _lock:
            if _open is self:
                _open = None

    def _wait(self) -> None:
        end = None if self._seconds is None else time.monotonic() + self._seconds
        count = None if self._steps is None else _StepCount(self._profile, self._steps)
        while not self._ends.is_set():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return
            if count is None:
                self._ends.wait(left)
            elif count.is_reached():
                return
            else:
                self._ends.wait(_LOOK if left is None else min(_LOOK, left))


def _arrives() -> bool:
    """Whether torch is being imported."""
    specification = getattr(sys.modules.get("torch"), "__spec__", None)
    return bool(getattr(specification, "_initializing", False))


class _StepCount:
    """How many steps have ended in an open window, as its report counts them. A step has at least one tick, so the
    recording is read only when so many ticks have come that the steps may be complete."""

    def __init__(self, profile: Profile, steps: int) -> None:
        run = profile._current()
        assert run is not None and run.window is not None
        self._window, self._steps = run.window, steps
        self._core = recording_core()
        self._begin = self._core.capture_counts()["ticks"]
        self._trace: object = None
        self._look_at = steps

    def is_reached(self) -> bool:
        ticks = self._core.capture_counts()["ticks"] - self._begin
        if ticks < self._look_at:
            return False
        try:
            self._core.capture_sync()
            if self._trace is None:
                self._trace = self._core.trace(self._window.file.path)
            raw = self._core.analyze(self._trace, window=self._window.number)
        except (Error, self._core.Error, OSError):  # the recording has ended by itself, which the window's end says
            return True
        count = len({row["index"] for row in raw["steps"] if not row["incomplete"]})
        missing = self._steps - count
        per_step = ticks / count if count else 1.0
        self._look_at = ticks + max(missing, int(missing * per_step * _SOONER))
        return missing <= 0


class OnDemand:
    """What cuptimem.on_demand() returns: opens windows on this process, one at a time."""

    def __init__(self, **options: Any) -> None:
        Profile(**options)  # raises for what is no option, now
        self._options = options

    def window(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        seconds: float | None = None,
        steps: int | None = None,
        overwrite: bool = False,
    ) -> Window:
        """Opens a window; returns at once. It ends after so many seconds or steps, whichever comes first; with neither
        when its stop() is called.

        path: of the trace; without one it is temporary, and goes with the Profile. steps: as the report counts them;
        the first is the rest of the step that runs. Raises Error if a window is open already, ValueError for numbers
        that make no window. What else hinders it is raised by the window's result().
        """
        return self._window(None, path, seconds, steps, overwrite)

    @property
    def current(self) -> Window | None:
        """The window that is open now, whoever asked for it."""
        with _lock:
            return _open if _open is not None and _open._pid == os.getpid() else None

    def _window(
        self,
        told: Callable[[Window], object] | None,
        path: str | os.PathLike[str] | None,
        seconds: float | None,
        steps: int | None,
        overwrite: bool,
    ) -> Window:
        """told: called by the window's thread once it is open; then the window makes no report in this process."""
        global _open
        if seconds is not None and not 0 < seconds < threading.TIMEOUT_MAX:
            raise ValueError(f"seconds is a number above 0, not {seconds!r}")
        if steps is not None and steps < 1:
            raise ValueError(f"steps is a number from 1, not {steps!r}")
        core = recording_core()
        profile = Profile(path, overwrite=overwrite, **self._options)
        window = Window(profile, seconds, steps)
        with _lock:
            if _open is not None and _open._pid == os.getpid():
                since = time.monotonic() - _open._asked_at
                raise Error(f"{_open} is open already, for {since:.0f} s; stop it, or ask again when it has ended")
            _open = window
        _prepare_exit(core)
        window._thread = thread = threading.Thread(
            target=window._run, args=(told,), name="cuptimem window", daemon=True
        )
        try:
            thread.start()
        except own(RuntimeError) as error:  # no more threads, or Python ends
            window._forget()
            raise Error(f"no window was opened: {error}") from None
        return window


_prepared = False


def _prepare_exit(core: Any) -> None:
    global _prepared
    if not _prepared:
        _prepared = True
        atexit.register(refusals.at_exit(core, _at_exit))


def _at_exit() -> None:
    """Ends the open window, so that who waits for it gets its answer."""
    window = OnDemand().current
    if window is not None and window._thread is not None:
        window.stop()
        window._thread.join(_PATIENCE)


def on_demand(**options: Any) -> OnDemand:
    """Opens windows on this process while it runs, for instance from an endpoint of a server.

        memory = cuptimem.on_demand()

        @app.post("/memory", response_class=PlainTextResponse)
        async def record(seconds: float = 5) -> str:
            recorded = await memory.window(seconds=seconds)
            return f"{recorded.report}"

    From a thread: memory.window(steps=20).result().report. Between windows nothing is recorded and nothing is hooked.
    What was alive before a window counts with its exact bytes. One window at a time, for `cuptimem window PID`, too.
    options: of cuptimem.profile, but path, overwrite, schedule and on_trace_ready.
    """
    for name in ("path", "overwrite", "schedule", "on_trace_ready"):
        if name in options:
            raise TypeError(f"on_demand() takes no {name}: windows are opened by its window()")
    return OnDemand(**options)
