"""cuptimem.profile: what people put around their code."""

import enum
import functools
import inspect
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from cuptimem import environ, naming, sizes
from cuptimem.displayed import Displayed
from cuptimem.errors import Error, own, recording_core
from cuptimem.record import recorder, refusals, role
from cuptimem.report.brief import Brief, name
from cuptimem.report.figures import Figures

if TYPE_CHECKING:
    from cuptimem.live.state import LiveState
    from cuptimem.live.watching import Watch
    from cuptimem.report.leaks import Holder, Leak
    from cuptimem.report.model import Report
    from cuptimem.report.stacks import Frame

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
R = TypeVar("R", covariant=True)
Method = TypeVar("Method", bound="staticmethod[..., Any] | classmethod[Any, ..., Any]")


class Profiled(Protocol[P, R]):
    """A function that a profile records; `profile` has the report of its last call."""

    profile: "Profile"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __get__(self, instance: None, owner: type, /) -> "Profiled[P, R]": ...
    @overload
    def __get__(self: "Profiled[Concatenate[S, Q], R]", instance: S, owner: type, /) -> "Profiled[Q, R]": ...
    def __get__(self, instance: Any, owner: type, /) -> Any: ...


class Action(enum.IntEnum):
    """What a schedule answers for a step; the names and numbers of torch.profiler.ProfilerAction."""

    NONE = 0
    WARMUP = 1  # recording is on, but not in the report: what is alive by its end counts as there at the start
    RECORD = 2
    RECORD_AND_SAVE = 3  # the last step of a cycle


_LAST = "_last_step"  # an attribute of a schedule that ends


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0) -> Callable[[int], Action]:
    """A schedule for profile(schedule=...), in the shape of torch.profiler.schedule.

    Skips skip_first steps, then goes through cycles of wait, warmup and active steps; repeat=0 means as many cycles as
    there are. Raises ValueError for numbers that make no cycle.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError("schedule needs active >= 1 and no negative number")
    length = wait + warmup + active

    def at(step: int) -> Action:
        if step < skip_first:
            return Action.NONE
        cycle, position = divmod(step - skip_first, length)
        if repeat and cycle >= repeat or position < wait:
            return Action.NONE
        if position < wait + warmup:
            return Action.WARMUP
        return Action.RECORD if position < length - 1 else Action.RECORD_AND_SAVE

    setattr(at, _LAST, skip_first + repeat * length - 1 if repeat else None)
    return at


def _action(answer: object) -> Action:
    """An Action from cuptimem's or torch's enum, or from a plain number."""
    name = getattr(answer, "name", None)
    if isinstance(name, str) and name in Action.__members__:
        return Action[name]
    if isinstance(answer, int) and 0 <= answer <= 3:
        return Action(answer)
    raise TypeError(f"a schedule returns a ProfilerAction or 0 to 3, not {answer!r}")


_MADE_BY = {
    "schedule": "such as cuptimem.schedule(wait=1, warmup=1, active=3) makes",
    "on_trace_ready": "such as cuptimem.tensorboard_handler(folder) makes",
}


class _Run:
    """One entering of a Profile: a window, or with a schedule one window after the other."""

    def __init__(self, profile: "Profile") -> None:
        # Its methods run inside the profile's own. A cycle would keep a temporary trace until the next collection.
        self._profile = weakref.ref(profile)
        self.thread = threading.get_ident()
        self.pid = os.getpid()
        self.window: recorder.Window | None = None  # the open one, else the last
        self.warm: recorder.Window | None = None  # keeps the capture going while a schedule warms up
        self.step_number = 0
        self.earlier_steps = profile._steps
        self.first_step = 0  # step_number when the window opened
        self.action = Action.NONE
        self._report: tuple[recorder.Window, Report] | None = None

    @property
    def profile(self) -> "Profile":
        profile = self._profile()
        assert profile is not None
        return profile

    def start(self) -> None:
        schedule = self.profile.schedule
        if schedule is None:
            self.open()
            return
        self.action = _action(schedule(0))
        self.enter_action()

    @property
    def recording(self) -> bool:
        return self.window is not None and not self.window.closed

    def open(self) -> None:
        profile = self.profile
        self.first_step = self.step_number
        self.window = profile._open_window()

    def close(self, error: BaseException | None = None, alive: bool = True) -> None:
        """Never raises for what happens to the recording: the profiled program must not suffer. error: what
        leaves the block. alive: see recorder.close_window."""
        try:
            self._close(self.warm, error, alive)
        finally:
            self._close(self.window, error, alive)
        self.warm = None

    def _close(self, window: recorder.Window | None, error: BaseException | None, alive: bool) -> None:
        if window is not None:
            try:
                recorder.close_window(window, error=error, alive=alive)
            except own(Error, OSError) as error:
                recorder.say(str(error))

    def enter_action(self) -> None:
        if self.action is Action.NONE:
            return
        if self.action is Action.WARMUP:
            if self.warm is None:
                self.warm = recorder.open_window(None, overwrite=False, options=self.profile.options)
        elif self.window is None or self.window.closed:
            self.open()

    def step(self) -> None:
        recorder.step(self.profile)
        self.step_number += 1
        schedule = self.profile.schedule
        if schedule is None:
            return
        ended, self.action = self.action, _action(schedule(self.step_number))
        recording = self.recording
        if ended is Action.RECORD_AND_SAVE or self.action is Action.NONE:
            self.close(alive=self.step_number - 1 == getattr(schedule, _LAST, None))
            if recording:
                self.profile._trace_ready()
        self.enter_action()

    @property
    def known(self) -> "Report | None":
        """The report of the window, if it has been made."""
        return self._report[1] if self._report is not None and self._report[0] is self.window else None

    def report(self) -> "Report":
        window = self.window
        if window is None:
            raise Error(
                "the schedule has not come to a step that it records, so there is no report; prof.step() ends a step"
            )
        if window.foreign:
            raise Error("this profile was started by the parent process: only the parent can report on it")
        if self.known is not None:
            return self.known
        from cuptimem.report.load import analyze  # takes longer to load than all else here: not before it is asked for

        path, source, number = recorder.snapshot_source(window)
        closed = window.closed
        report = analyze(path, source=source, window=number, temporary=window.path is None, default_code=window.code)
        if closed:
            if window.path is None:
                report = replace(report, recorded=weakref.ref(window))
            self._report = (window, report)
        return report


class _Call:
    """One call of a decorated function."""

    def __init__(self, profile: "Profile") -> None:
        self._profile = profile

    def __enter__(self) -> None:
        self._run = self._profile._begin()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._profile._end(self._run, value)


class Profile(Figures, Displayed, Brief):
    """A context manager and decorator that records; see cuptimem.profile.

    Its figures (peak_bytes, peak_above_start, kept_bytes, on(device)) are those of its report. A copy, also one in
    another process, has its options and no report.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        overwrite: bool = False,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[["Profile"], Any] | None = None,
        max_size: int | str = 0,
        ring_bytes: int | str = 0,
        ring_dir: str | os.PathLike[str] | None = None,
        kernels: bool = False,
        operators: bool = False,
        driver: bool = True,
        walks: bool = True,
        code: str | Iterable[str] = (),
        holders: bool = True,
        argv: bool = True,
    ) -> None:
        for what, given in (("schedule", schedule), ("on_trace_ready", on_trace_ready)):
            if given is not None and not callable(given):
                raise TypeError(f"{what} is a function, {_MADE_BY[what]}, not {given!r}")
        if on_trace_ready is not None and schedule is None:
            # torch.profiler allows it: one cycle, the whole block.
            schedule = _always
        self.overwrite = overwrite
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.options = recorder.Options(
            sizes.of(max_size, "max_size"),
            sizes.of(ring_bytes, "ring_bytes"),
            None if ring_dir is None else os.fspath(ring_dir),
            kernels=bool(kernels),
            operators=bool(operators),
            driver=bool(driver),
            walks=bool(walks),
            code=_names(code),
            holders=bool(holders),
            argv=bool(argv),
        )
        self._named = None if path is None else os.path.abspath(os.fspath(path))
        self._files = 0  # that this process has begun
        self._files_of = os.getpid()
        self._steps = 0  # step() was called so often, up to the end of the last block
        self._lock = threading.Lock()
        self._open: list[_Run] = []
        self._last: _Run | None = None

    def __str__(self) -> str:
        return repr(self)  # the report's text would be an analysis, which a line of a log must not start

    def _summary(self) -> str:
        run = self._current()
        where = "" if self.path is None else f"{name(naming.shown(self.path))}: "
        if run is None or run.window is None:
            return f"{where}nothing recorded yet"
        state = "recording" if run.recording else "recorded"
        steps = f", {run.step_number} steps" if run.step_number else ""
        known = "" if run.known is None else f", {run.known._peak_said()}"  # a report may take seconds to make
        return f"{where}{state}{steps}{known}"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lock": None, "_open": [], "_last": None, "_files": 0, "_steps": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    # -- the block -------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Profile":
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run = None
        try:
            run = self._entered()
            if run is None:
                raise RuntimeError("this profile is not open")
            self._end(run, value)
        except BaseException:  # a signal's handler may have raised before anything was done
            run = run or self._entered()
            if run is not None:
                self._end(run, value)
            raise

    def _entered(self) -> _Run | None:
        """The one that leaving the block now ends."""
        thread = threading.get_ident()
        with self._lock:
            own = next((run for run in reversed(self._open) if run.thread == thread), None)
            return own or (self._open[-1] if self._open else None)

    def start(self) -> None:
        """As entering the block."""
        self._begin()

    def stop(self) -> None:
        """As leaving the block."""
        self.__exit__(None, None, None)

    def step(self) -> None:
        """The end of one step of the user's loop: the clock of the report, and of the schedule."""
        with self._lock:
            run = self._open[-1] if self._open else None
        if run is None:
            raise RuntimeError("step() belongs inside the profile's block")
        run.step()

    def watch(self, callback: "Callable[[LiveState], Any]", every: float = 10.0) -> "Watch":
        """Calls the function with the state of the recording (docs/live.md) every so many seconds, from one thread,
        until the recording ends or stop() of the result is called. It is of the outermost profile's recording."""
        if not callable(callback):
            raise TypeError(f"callback is a function of a state, not {callback!r}")
        run = self._current()
        if run is None or run.window is None or not run.recording:
            raise RuntimeError("watch() belongs inside the profile's block")
        return recorder.watch(run.window, callback, every)

    # -- what it found ---------------------------------------------------------------------------------------------

    @property
    def report(self) -> "Report":
        """Inside the block a snapshot up to now; after it the final report, computed once.

        Raises Error if nothing was recorded, or the trace was deleted before the report was first asked for.
        """
        run = self._current()
        if run is None:
            raise Error("this profile has not recorded yet, so there is no report; enter it, or call the function")
        return run.report()

    def holders(self, of: "Leak | Frame | str") -> "tuple[Holder, ...]":
        """Who holds, now, a leak of the report, or what was allocated on a line ("train.py:22") and is alive.

        Inside the block, or right after it: what is named are this moment's variables, attributes and containers.
        () where nothing of that line is alive, or nothing in Python holds it. Raises ValueError for what is no
        FILE:LINE.
        """
        run = self._current()
        if run is None or run.window is None:
            raise Error("this profile has recorded nothing yet")
        if run.window.foreign:
            raise Error("this profile was started by the parent process: only the parent has its tensors")
        from cuptimem.record import holder_search

        _, source, number = recorder.snapshot_source(run.window)
        raw = recording_core().analyze(
            source, window=number, tables=("kept",), code=",".join(self.options.code) or None
        )
        return holder_search.now(raw, of)

    @property
    def first_step(self) -> int:
        """How often step() had been called, in all blocks of this profile, when what `report` is about began.

        With a schedule, step 0 of a cycle's report is this step of the program.
        """
        run = self._current()
        return 0 if run is None else run.earlier_steps + run.first_step

    @property
    def _is_over(self) -> bool:
        run = self._current()
        return run is not None and not run.recording

    @property
    def path(self) -> str | None:
        """The trace file, which may be written to still; None without a name of its own."""
        run = self._current()
        if run is not None and run.window is not None:
            return run.window.path
        return self._named

    # -- a decorator -----------------------------------------------------------------------------------------------

    @overload  # A staticmethod stays one. mypy: it is callable, too
    def __call__(self, function: Method, /) -> Method: ...  # type: ignore[overload-overlap]
    @overload  # Of a classmethod: mypy binds none but plain callables to the class
    def __call__(self, function: Callable[Concatenate[type[S], P], R], /) -> Callable[Concatenate[type[S], P], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Profiled[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        """Records each call of a function, coroutine function, generator or asynchronous generator function.

        The result has this profile as its attribute `profile`. A plain function that calls itself is recorded
        once, from its outermost call in each thread; a coroutine function or generator with each call. A generator is
        recorded from its first value to its end, its consumer's work between two values included.
        """
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(cast(Any, self(function.__func__)))
        if inspect.isclass(function) or not callable(function):
            raise TypeError("cuptimem.profile decorates functions")
        wrapper: Callable[..., Any]
        if inspect.isasyncgenfunction(function):
            wrapper = self._around_async_generator(function)
        elif inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            wrapper = self._around_coroutine(function)
        elif inspect.isgeneratorfunction(function):
            wrapper = self._around_generator(function)
        else:
            wrapper = self._around(function)
        profiled: Any = functools.wraps(function)(wrapper)
        profiled.profile = self
        return profiled

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        inside: set[tuple[int, int]] = set()  # process and thread of each call that is recorded

        def call(*args: Any, **kwargs: Any) -> Any:
            caller = os.getpid(), threading.get_ident()
            if caller in inside:
                return function(*args, **kwargs)
            try:
                inside.add(caller)
                with _Call(self):
                    return function(*args, **kwargs)
            finally:
                inside.discard(caller)

        return call

    def _around_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with _Call(self):
                return (yield from function(*args, **kwargs))

        return call

    def _around_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            with _Call(self):
                return await function(*args, **kwargs)

        return call

    def _around_async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            with _Call(self):
                inner = function(*args, **kwargs)
                try:
                    value = await anext(inner)
                    while True:
                        try:
                            sent = yield value
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            value = await inner.athrow(error)
                        else:
                            value = await inner.asend(sent)
                except StopAsyncIteration:
                    return
                finally:
                    await inner.aclose()

        return call

    # -- inside ----------------------------------------------------------------------------------------------------

    def _begin(self) -> _Run:
        run = _Run(self)
        try:
            run.start()
            with self._lock:
                self._open.append(run)
            return run
        except BaseException:  # what is not entered is not left
            run.close()
            with self._lock:
                if run in self._open:
                    self._open.remove(run)
            raise

    def _end(self, run: _Run, error: BaseException | None, alive: bool = True) -> None:
        """Ends a run. error: what leaves the block. alive: see recorder.close_window."""
        recording = run.recording
        try:
            ended = self._put_away(run, error, alive)
        except BaseException:  # out of a signal's handler: nothing may stay open
            self._put_away(run, error, alive)
            raise
        if ended and recording and error is not None and refusals.is_of(error) and not recorder.active():
            refusals.show_report(run.report)
        if ended and recording and self.schedule is not None:
            self._trace_ready()

    def _put_away(self, run: _Run, error: BaseException | None, alive: bool) -> bool:
        """Closes it. False: another thread was faster."""
        with self._lock:
            if run not in self._open:
                return False
        run.close(error, alive)
        with self._lock:
            if run not in self._open:
                return False
            self._open.remove(run)
            self._steps = max(self._steps, run.earlier_steps + run.step_number)
            self._last = run
            return True

    def _current(self) -> _Run | None:
        """The open run that began last, else the one that ended last; this process's before what a fork inherited."""
        with self._lock:
            runs = [run for run in (self._last, *self._open) if run is not None]
        own = [run for run in runs if run.pid == os.getpid()]
        runs = own or runs
        return runs[-1] if runs else None

    def _open_window(self) -> recorder.Window:
        path = self._next_path()
        theirs = path is not None and role.is_one_of_several() and role.is_of_this_run(path)
        try:
            return recorder.open_window(path, overwrite=self.overwrite and not theirs, options=self.options)
        except own(Error):
            if path is None or recorder.is_recorded_to(path) or not _is_of_another_process(path):
                raise
        self._named = naming.of_process(path, os.getpid(), naming.rank_of(environ.obeyed()))  # from now on
        return recorder.open_window(self._named, overwrite=self.overwrite, options=self.options)

    def _next_path(self) -> str | None:
        """The named file for the first window, run-2.cmem and so on for the next ones."""
        if self._named is None:
            return None
        with self._lock:
            if self._files_of != os.getpid():
                self._files, self._files_of = 0, os.getpid()
            while True:
                self._files += 1
                if self._files == 1:
                    return self._named
                path = naming.with_suffix(self._named, str(self._files))
                replaced = recorder.is_own(path) or (self.overwrite and not role.is_of_this_run(path))
                if replaced or not os.path.lexists(path):
                    return path

    def _trace_ready(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)


def _is_of_another_process(path: str) -> bool:
    """True if another process of this program may have written it; any other existing file is an error."""
    if not os.path.isfile(path):
        return False
    if role.is_one_of_several():
        return True
    try:
        with open(path, "rb") as file:
            return file.read(len(naming.MAGIC)) == naming.MAGIC and role.is_of_this_run(path)
    except own(OSError):
        return False


def _names(code: str | Iterable[str]) -> tuple[str, ...]:
    if not code:
        return ()
    from cuptimem.report import own_code  # with modules that most recordings do not need

    return own_code.names(code)


def _always(step: int) -> Action:
    return Action.RECORD


@overload  # as in Profile.__call__
def profile(function: Method, /) -> Method: ...  # type: ignore[overload-overlap]
@overload
def profile(function: Callable[Concatenate[type[S], P], R], /) -> Callable[Concatenate[type[S], P], R]: ...
@overload
def profile(function: Callable[P, R], /) -> Profiled[P, R]: ...
@overload
def profile(
    path: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    schedule: Callable[[int], Any] | None = None,
    on_trace_ready: Callable[[Profile], Any] | None = None,
    max_size: int | str = 0,
    ring_bytes: int | str = 0,
    ring_dir: str | os.PathLike[str] | None = None,
    kernels: bool = False,
    operators: bool = False,
    driver: bool = True,
    walks: bool = True,
    code: str | Iterable[str] = (),
    holders: bool = True,
    argv: bool = True,
) -> Profile: ...
def profile(path: Any = None, **options: Any) -> Any:
    """Records every tensor allocation of this process with its Python line, while the block or function runs.

        with cuptimem.profile("run.cmem") as prof:
            for batch in loader:
                train_step(batch)
        print(prof.report)

        @cuptimem.profile                   # or @cuptimem.profile("train.cmem", kernels=True)
        def train(): ...
        train()
        print(train.profile.report)         # of the last call

    A decorator for functions, methods, coroutine functions and generators. One capture per process: an inner profile is
    a window on the outer one with its own report (and file, if named); windows close in any order and see all threads.
    Leaving the outermost one runs a garbage collection, so that tensors in reference cycles that only wait for one are
    not taken for a leak.

    Files: a profile that records again (a block entered again, the next call, the next cycle of a schedule) numbers
    its files: run.cmem, run-2.cmem, ... A new profile of the same path, as in a cell that is run again, replaces what
    this process has written. Where another process of the program has the name, this one writes run.4711.cmem. A file
    that was there before is an Error, or replaced with overwrite=True. `path` of the profile is the file's name.

    path            the trace; without one it is a temporary file that goes with the profile
    overwrite       replace a file that was there before the program
    schedule        step number -> what to do then, as cuptimem.schedule or torch.profiler.schedule make it
    on_trace_ready  called with the profile at the end of each cycle of the schedule
    max_size        bytes of trace ("500M", "2 GiB") past which steps become sums, survivors and peaks (2 GiB)
    ring_bytes, ring_dir    size (16 MiB) and folder of the shared memory that outlives a kill
    driver          what CUDA itself hands out, too, to PyTorch and to libraries, as far as CUPTI reports it
    walks           names of modules, parameters and optimizer states, from walks over living objects at a few moments
    code            installed packages that count as your own code in its reports ("transformers", or several)
    kernels         when kernels and copies ran, too: costs something for each that is launched
    operators       full names of operators (aten::addmm), too: costs something for each that runs
    holders         who holds what grows and, at the end, all that is alive
    argv            the arguments of the command line in the trace; False: only the script's name

    Raises ValueError for kernels without driver, for a size that is none and for a code that is no package's name,
    Error if recording cannot start; afterwards nothing about the recording raises: it ends with one warning.
    """
    if isinstance(path, classmethod) or (callable(path) and not isinstance(path, (str, os.PathLike))):
        return Profile(**options)(path)
    return Profile(path, **options)


# What help() and editors show: the parameters are those of Profile, which all of them go to.
cast(Any, profile).__signature__ = inspect.signature(Profile).replace(return_annotation=Profile)
