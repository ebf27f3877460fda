"""The one capture of this process, and the windows that share it.

A capture starts with the first window and ends with the last. Runs inside the profiled process, from the first line of
it under `cuptimem run`: imports nothing that Python has not loaded by itself, so that a script in a folder that
shadows a standard module still gets its own.
"""

import _thread
import atexit
import gc
import os
import sys
import time

from cuptimem import environ, naming, tempfiles
from cuptimem.errors import Error, own, recording_core
from cuptimem.printable import encoded, printable
from cuptimem.record import garbage, instruments, process_info, refusals, role, source_text

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType
    from typing import TypeVar

    from cuptimem.live.state import LiveState
    from cuptimem.live.watching import Watch
    from cuptimem.report.leaks import Holder

    _T = TypeVar("_T")


EARLY_EVENTS = 120_000  # that a search reads while the loop runs, beside it: some 20 ms, and half as much again where a
# set is replaced by a larger one, which a second reading follows
EVENTS_A_SECOND = 30_000  # ... for each second of steps so far: 0.5 % of it, or 0.75
_MOST_EVENTS = 480_000  # ... at most: some 80 ms, or 120

_lock = _thread.RLock()
_capture: "Capture | None" = None
_orphan: "Capture | None" = None  # started, and not yet any window's
last_counts: dict[str, int] = {}  # what _core.capture_counts returned when the last capture ended
forked_by = 0  # the process that forked this one, if both are recorded under --follow
_finished: "dict[str, tuple[int, ...] | None]" = {}  # which files this process has written, by path
_prepared_pid = 0  # the process that has our fork and exit handlers (a forked child inherits them)


def say(line: str) -> None:
    """One line to the user. Never raises: standard error may be closed, or gone at exit."""
    write(f"cuptimem: {printable(line)}\n")


def write(text: str) -> None:
    """Text on standard error. Never raises, as above."""
    try:
        stream = sys.stderr
        stream.flush()
        try:
            descriptor = stream.fileno()
        except own(AttributeError, OSError, ValueError):  # it is no file
            stream.write(text)
            return
        # In one write, so that several processes do not mix their lines; and past the stream's buffer: what cannot be
        # written must not be left in it, for then Python ends with another exit code.
        os.write(descriptor, encoded(text, stream.encoding or "utf-8"))
    except own(Exception):  # whatever the program has put there
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except own(OSError):
        return  # a clean-up of temporary files was faster


class TraceFile:
    """A file that windows read their reports from. A temporary one is removed when nothing refers to it any more,
    at the latest when Python exits."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.trace: object = None  # core.trace(path) while it is written: what reports read of it is not read again
        self._removal: object = None
        self._identity: tuple[int, ...] | None = None  # once it is whole

    def make_temporary(self, core: "ModuleType") -> None:
        self._removal = core.temporary_file(self.path)

    def finish(self) -> None:
        """Nothing more will be written to it."""
        _finished[self.path] = self._identity = _identity(self.path)

    @property
    def is_replaced(self) -> bool:
        """Whether another file has its name by now."""
        return self._identity is not None and _identity(self.path) not in (None, self._identity)


def _identity(path: str) -> "tuple[int, ...] | None":
    """What differs between a file and a later one of its name; None where there is none."""
    try:
        status = os.lstat(path)
    except own(OSError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def is_own(path: str) -> bool:
    """Whether the file is a trace that this process has written, and is as it was then."""
    identity = _identity(path)
    return identity is not None and _finished.get(path) == identity


class Options:
    """What a capture is started with: see cuptimem.profile."""

    def __init__(
        self,
        max_size: int = 0,
        ring_bytes: int = 0,
        ring_dir: str | None = None,
        *,
        kernels: bool = False,
        operators: bool = False,
        driver: bool = True,
        walks: bool = True,
        code: "tuple[str, ...]" = (),
        holders: bool = True,
        argv: bool = True,
    ) -> None:
        if kernels and not driver:
            raise ValueError("kernels are recorded at the driver level, which driver=False turns off")
        self.max_size = max_size
        self.ring_bytes = ring_bytes
        self.ring_dir = ring_dir
        self.kernels = kernels
        self.operators = operators
        self.driver = driver
        self.walks = walks
        self.code = code
        self.holders = holders
        self.argv = argv


class Capture:
    """From the first window to the last. All methods run under the module's lock."""

    def __init__(self, core: "ModuleType", file: TraceFile, options: Options) -> None:
        self.core = core
        self.file = file
        self.options = options
        self.pid = os.getpid()
        self.began = time.monotonic()
        self.opened = 0
        self.windows: list[Window] = []  # open ones, in the order of opening
        self.owner: Window | None = None  # the first one: while only it has recorded, the whole capture is its
        self.stopped = False
        self.tries_to_stop = 0
        self.role = ""  # as the trace has it
        self.holders: dict[tuple[object, ...], Sequence[Holder]] = {}  # of leaks that a name was found for
        self.looking = _thread.RLock()  # held by an early search
        self.looked_last = False  # whether a note says that it got too long for those


class Window:
    """One stretch of a capture with its own report and, if it has a path, its own file."""

    def __init__(self, capture: Capture, number: int, path: str | None, code: "tuple[str, ...]") -> None:
        self.code = code  # packages that count as the user's own, in its report and in its file
        self.capture = capture
        self.number = number
        self.path = path  # absolute; None: a temporary file
        self.file = capture.file  # where the report is read from, once the capture is over
        self.overwrite = False  # a file that has its path by the end
        self.closing = False
        self.closed = False
        self.whole = number == 1  # nothing in the file lies outside this window
        self.growth: object = None  # what read_growth has read of it before it closes; False: nothing grows

    @property
    def foreign(self) -> bool:
        """Opened before a fork, by the parent: this process must not touch it."""
        return self.capture.pid != os.getpid()

    @property
    def source(self) -> "tuple[str, object, int]":
        """The file to analyse, what to give the core for it, and the window in it (0: all of it)."""
        if self.whole:
            return self.file.path, self.file.path, 0
        return self.file.path, self.file.trace or self.file.path, self.number


class HolderSearch:
    """A search for who holds what grows (holder_search.py). early: while the loop runs, in its thread, which must not
    wait for more than a few milliseconds; sooner: only if the recording will be too long for the next one; alive: at
    the end, for who holds what is alive, too. goes_again: where garbage matters another search follows, is_again, when
    it is collected."""

    def __init__(
        self,
        window: Window,
        *,
        early: bool = False,
        sooner: bool = False,
        alive: bool = True,
        goes_again: bool = False,
        is_again: bool = False,
    ) -> None:
        capture = window.capture
        self.window = window
        self.early = early
        self.recorded = time.monotonic() - capture.began
        self.sooner = sooner
        self.alive = alive and not early
        self.goes_again = goes_again
        self.is_again = is_again
        self.finds_garbage = False  # much of it, set by the search
        self.garbage: list[object] | None = None  # what a collection would free, if the search has found that out
        self.known = capture.holders
        self.growth = window.growth if not early and not is_again else None

    @property
    def is_over(self) -> bool:
        """Whether the capture has ended, or is another process's."""
        return self.window.capture is not _capture or self.window.foreign

    def goes_on(self, parts: "Iterator[None]") -> bool:
        """Does the next part of the search; whether there are more. early: none where another one is under way."""
        if not self.early:
            return next(parts, parts) is None
        if self.is_over or self.window.closing:
            return False
        return bool(_unless_taken(self.window.capture.looking, lambda: next(parts, parts) is None))

    def source(self) -> "tuple[str, object, int] | None":
        """As Window.source, all that was recorded so far. None: an early search must not wait for it."""
        if not self.early:
            return snapshot_source(self.window, names=False)
        return _unless_taken(_lock, self._early_source)

    def _early_source(self) -> "tuple[str, object, int] | None":
        if self.is_over or self.window.closing:
            return None
        capture = self.window.capture
        capture.core.capture_sync()
        events = capture.core.capture_counts()["events"]
        most = max(EARLY_EVENTS, min(_MOST_EVENTS, int(instruments.seconds_of_steps() * EVENTS_A_SECOND)))
        if events > most:
            if not capture.looked_last:
                capture.core.capture_note({"holders.early": str(most)})
            capture.looked_last = True
            return None
        return None if self.sooner and events * 2 <= most else self.window.source

    def record(self, write: "Callable[[], None]") -> None:
        """Calls this while the capture cannot end; never for another capture."""

        def write_into_this() -> None:
            if not self.is_over:
                write()

        if self.early:
            _unless_taken(_lock, write_into_this)
        else:
            with _lock:
                write_into_this()


def _look_early(sooner: bool) -> None:
    """Records who holds what grows so far: a function's variables are gone when the recording ends."""
    capture = _capture
    if capture is not None and capture.pid == os.getpid():
        for window in capture.windows[:1]:  # the outermost, as at the stop
            instruments.look_for_holders(capture.core, HolderSearch(window, early=True, sooner=sooner))


def is_alone(window: Window) -> bool:
    """Whether no other window is open: closing it ends the capture."""
    return window.capture is _capture and window.capture.windows == [window]


def read_growth(window: Window) -> None:
    """Whether anything grows in a window, read beside the program before it closes. If not, no collection and no walk
    over living objects is needed as it closes. Of a window behind which the program goes on."""
    if window.capture.options.holders and "torch" in sys.modules:
        window.growth = instruments.read_growth(window.capture.core, HolderSearch(window, alive=False))


def _unless_taken(lock: "_thread.RLock", function: "Callable[[], _T]") -> "_T | None":
    """Calls it under the lock; None if that is taken, by this thread too. A signal's handler may raise anywhere in
    here, but not between the call of release and what it does."""
    if lock._is_owned():  # type: ignore[attr-defined]  # typeshed lacks it
        return None
    try:
        return function() if lock.acquire(False) else None
    finally:
        try:
            lock.release()
        except own(RuntimeError):  # another thread's
            pass


def open_window(
    path: str | None,
    *,
    overwrite: bool,
    options: Options,
    default_name: bool = False,
    how_to_overwrite: str = "overwrite=True",
) -> Window:
    """Opens a window, starting the capture if none runs. default_name: an existing file gets a number instead.

    Raises Error if the file exists (without overwrite, and is not is_own) or cannot be written, or recording cannot
    start.
    """
    global _capture, _orphan
    opened: list[Window] = []
    try:
        with _lock:
            if path is not None:
                path = os.path.abspath(path)
                if default_name:
                    path = naming.free_name(path)
                overwrite = overwrite or is_own(path)
                _check_target(path, overwrite, how_to_overwrite)
            capture = _capture
            if capture is None:
                _end_orphan()
                capture = _start(path, overwrite, options)
            else:
                if capture.options.argv and not options.argv:
                    say("the arguments of the command line are recorded: the profile that this one lies in has them")
                for what in ("kernels", "operators"):
                    if getattr(options, what) and not getattr(capture.options, what):
                        say(f"{what} are not recorded: the profile that this one lies in was started without them")
            window = Window(capture, capture.opened + 1, path, options.code)
            opened.append(window)
            window.overwrite = overwrite
            capture.opened = window.number
            if capture.owner is None:
                capture.owner = window
            capture.windows.append(window)
            _capture = capture
            _orphan = None
            capture.core.mark(capture.core.MARK_WINDOW_OPEN, window.number)
            return window
    except BaseException:  # an exception out of a signal's handler: nothing may stay open without an owner
        for window in opened:
            _close(window)
        with _lock:
            _end_orphan()
        raise


def watch(window: Window, callback: "Callable[[LiveState], object]", every: float) -> "Watch":
    """Calls it with the state of the recording every so many seconds, until that ends or the result is stopped."""
    from cuptimem.live.watching import Watch

    core = window.capture.core

    def sync() -> None:
        try:
            core.capture_sync()
        except own(Error):  # the recording has ended: the trace says so
            return

    return Watch(window.file.path, callback, every, sync=sync, say=say)


def close_window(
    window: Window, collect: bool = True, look: bool = True, error: BaseException | None = None, alive: bool = True
) -> None:
    """Closes a window, after a marked collection (see garbage.py); the last one ends the capture. Twice, or in a forked
    child: nothing happens. collect=False: leaks are not needed. look=False: growth is not needed either.
    error: what leaves it. alive=False: only holders of what grows are looked for, because the program goes on."""
    try:
        if _begins_to_close(window, error) and collect and not (window.growth is False and is_alone(window)):
            capture = window.capture
            again = None
            if look and capture.options.holders and is_alone(window):
                again = _look_and_collect(window, alive, error)
            else:
                garbage.collect_finally(capture.core)  # runs the program's finalizers: without the lock
            if look:
                instruments.look_at_the_end(capture.core)
            if again is not None:
                instruments.look_for_holders(capture.core, again)
        _close(window)
    except BaseException:
        _close(window)  # goes on where a signal's handler raised; nothing if it had come to its end
        raise


def _look_and_collect(window: Window, alive: bool, error: BaseException | None) -> HolderSearch | None:
    """Who holds what is known before the collection, for that frees what reference cycles hold. Returns the search
    that is to follow it: what it frees has no holder at the end."""
    core = window.capture.core
    # Without automatic collection the leak is what the collection frees; a refusal's page has what was alive then.
    goes_again = gc.isenabled() and not (error is not None and refusals.is_of(error))
    search = HolderSearch(window, alive=alive, goes_again=goes_again)
    try:
        instruments.look_and_collect(core, search, lambda enable: garbage.collect_finally(core, enable, search.garbage))
    finally:  # it is not to be kept by a traceback
        search.garbage = None
    return HolderSearch(window, alive=alive, is_again=True) if goes_again and search.finds_garbage else None


def _begins_to_close(window: Window, error: BaseException | None) -> bool:
    """Once for each window, in the process that opened it."""
    with _lock:
        if window.closing or window.foreign:
            return False
        window.closing = True
        capture = window.capture
        if error is not None and refusals.is_of(error):
            capture.core.mark(capture.core.MARK_OOM_LEFT, window.number)
        if error is not None and capture.windows == [window]:
            capture.core.capture_note(refusals.note(error))
        return True


def _close(window: Window) -> None:
    global _capture
    with _lock:
        if window.closed or window.foreign:
            return
        window.growth = None  # large, and used
        capture = window.capture
        if len(capture.windows) > 1 and window.path is not None and window is not capture.owner:
            instruments.flush(capture.core)  # the devices' last moment, for the file that is cut out below
        capture.core.mark(capture.core.MARK_WINDOW_CLOSE, window.number)  # the first one counts
        if window in capture.windows:
            capture.windows.remove(window)
        if capture.windows:
            _pass_warning_on(capture.core)
            if window is capture.owner:
                window.whole = False  # what follows is not in it
            elif window.path is not None:
                try:
                    _write_all(capture.core)
                    _extract(capture, window)
                except own(Error) as error:
                    window.closed = True
                    raise Error(f"{naming.shown(window.path)} is not written: {error}") from error
            window.closed = True
            return
        try:
            if not capture.stopped:
                _stop(capture)
        finally:
            if capture.stopped:
                _capture = None
        if window is not capture.owner and window.path is not None:
            try:
                _extract(capture, window)
            except own(Error) as error:
                say(f"{naming.shown(window.path)} is not written: {error}")
        window.closed = True
        _split_owner_file(capture, last=window)
        if capture.owner is window and window.path is not None:
            window.file.finish()
        capture.owner = None  # else a cycle: a temporary trace would wait for the next collection


def write_window(window: Window, target: str, title: str) -> None:
    """Writes what a window saw into a file of its own; views call it by its title. Raises Error; then there is none."""
    with _lock:
        _, source, number = snapshot_source(window)
        if number == 0:
            raise Error("this window is all of its capture, which has a file")
        _extract_to(source, target, window, title)


def snapshot_source(window: Window, *, names: bool = True) -> "tuple[str, object, int]":
    """Makes everything recorded so far readable, with the names of what is alive. See Window.source."""
    with _lock:
        if window.capture is _capture and not window.foreign:
            if names:
                instruments.look_at_names()
            instruments.flush(window.capture.core)
            _write_all(window.capture.core)
            _pass_warning_on(window.capture.core)
        if window.file.is_replaced:
            raise Error(
                f"{naming.shown(window.file.path)} is another recording by now, so there is no report of this one; "
                "ask for it before the file is replaced"
            )
        return window.source


def _write_all(core: "ModuleType") -> None:
    """Everything recorded so far, and the text of its lines, is in the file."""
    core.capture_sync()
    source_text.supply(core)
    if core.source_answered():
        core.capture_sync()


def step(marker: object) -> None:
    """An explicit step boundary, if anything records."""
    capture = _capture
    if capture is not None and capture.pid == os.getpid():
        capture.core.tick(capture.core.TICK_STEP, marker)
        _pass_warning_on(capture.core)


def is_inside() -> bool:
    """Whether this thread is opening or closing a window: what a pending call interrupts opens none."""
    return bool(_lock._is_owned())  # type: ignore[attr-defined]  # typeshed lacks it


def active() -> bool:
    """Whether this process records now."""
    return _capture is not None


def is_recorded_to(path: str) -> bool:
    """Whether this process has a recording under way that the file is for."""
    return _capture is not None and path in (_capture.file.path, *(window.path for window in _capture.windows))


def _check_target(path: str, overwrite: bool, how: str) -> None:
    if is_recorded_to(path):
        raise Error(f"{naming.shown(path)} exists, and is being recorded to: choose another name")
    naming.check_target(path, overwrite, how)


def _temporary_name() -> str:
    """A name that nothing has, in the first usual folder that can be written to."""
    for folder in (environ.get("TMPDIR"), "/tmp", "/var/tmp", process_info.directory()):
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return tempfiles.temporary_name(os.path.abspath(folder))
    raise Error("no folder for temporary files can be written to; set TMPDIR or name a file")


def _start(path: str | None, overwrite: bool, options: Options) -> Capture:
    global _orphan
    core = recording_core()
    _prepare_process(core)
    without_stacks = core.frames_init()
    file = TraceFile(path or _temporary_name())
    if path is None:
        file.make_temporary(core)
    capture = Capture(core, file, options)
    tempfiles.sweep(os.path.dirname(file.path))
    if core.capture_active():
        raise Error("a capture is already running in this process")
    meta = process_info.environment(forked_by)
    if not options.argv:
        del meta["argv"]
    if not options.holders:
        meta["holders"] = "off"
    if options.code:
        meta["code"] = ",".join(options.code)
    capture.role = meta.get("role", "")
    _orphan = capture
    core.capture_start(
        file.path,
        meta,
        overwrite=overwrite,
        private=path is None,
        max_size=options.max_size,
        ring_bytes=options.ring_bytes,
        ring_dir=options.ring_dir or environ.get("CUPTIMEM_RING_DIR") or None,
        # A process that never uses PyTorch or CUDA takes nothing of the shared memory.
        later=True,  # the file is made by sources_install, which lets other threads run meanwhile
        cache_tag=_cache_tag(),
    )
    file.trace = core.trace(file.path)
    core.main_thread_call_when_warned(lambda: _pass_warning_on(core))
    core.main_thread_call_when_asked(lambda: source_text.supply(core))
    instruments.install(core, options, say, _look_early)
    core.capture_record(True)
    instruments.look_around(core)
    if without_stacks is not None:
        say(f"no Python stacks in this Python: {without_stacks}")
    return capture


def _cache_tag() -> "str | None":
    """What stands in the names of Python's compiled files; None: there are none."""
    tag = sys.implementation.cache_tag
    return f"{tag}.opt-{sys.flags.optimize}" if tag and sys.flags.optimize else tag


def _end_orphan() -> None:
    """Ends a capture that was started and has no window, because a signal's handler raised in between. Under the lock.
    If a handler raises again, the next call does the rest."""
    global _orphan
    orphan = _orphan
    if orphan is not None and orphan.pid == os.getpid() and orphan.core.capture_active():
        _stop(orphan)
        _remove(orphan.file.path)
    _orphan = None


def _stop(capture: Capture) -> None:
    core = capture.core
    capture.tries_to_stop += 1
    problems: list[str] = []
    removed = False
    try:
        instruments.flush(core, last=True)
        core.capture_record(False)
        _supply_source_text(core)
        problems = instruments.remove(core)
        removed = True
        _pass_warning_on(core)
    finally:  # an interrupt in between must not leave a capture that cannot be ended
        notes = {**instruments.take_notes(), **_new_role(capture)}
        if problems:
            notes["problems"] = "\n".join(problems)
        warning = core.capture_stop(notes)
        # What was interrupted is done once more, from the start: all of it may be.
        capture.stopped = capture.tries_to_stop > 1 or removed
    capture.file.trace = None  # with it goes the heap as it was
    last_counts.clear()
    last_counts.update(core.capture_counts())
    for problem in problems:
        say(problem)
    if warning:
        say(warning)


def _supply_source_text(core: "ModuleType") -> None:
    """The last lines that the collector asks for; the answers are written at the end."""
    try:
        core.capture_sync()
    except own(core.Error):  # the recording has ended by itself, which is reported below
        return
    source_text.supply(core)


def _new_role(capture: Capture) -> dict[str, str]:
    """A note for the trace: this process's role, if it has changed since the last note."""
    now = role.of_this_process(forked_by)
    if now == capture.role:
        return {}
    capture.role = now
    script = role.script()
    return {"role": now, **({"script": script} if script else {})}


def note_role() -> None:
    """Notes the role in the trace at once, so that a killed process has it there, too."""
    with _lock:
        capture = _capture
        if capture is not None and capture.pid == os.getpid():
            capture.core.capture_note(_new_role(capture))


def _pass_warning_on(core: "ModuleType") -> None:
    warning = core.capture_warning()
    if warning:
        say(warning)


def _extract(capture: Capture, window: Window) -> None:
    """Gives a window that is not the whole capture its own file: whole at once, or not at all."""
    assert window.path is not None
    if os.path.lexists(window.path) and not window.overwrite:  # another process has made it meanwhile
        window.path = naming.of_process(window.path, os.getpid(), naming.rank_of(environ.obeyed()))
    _extract_to(capture.file.trace or capture.file.path, window.path, window)
    window.file = TraceFile(window.path)
    window.file.finish()
    window.whole = True


def _extract_to(source: object, target: str, window: Window, title: str = "") -> None:
    partial = tempfiles.name(os.path.dirname(target))
    try:
        recording_core().extract(source, partial, window.number, ",".join(window.code), title)
        os.replace(partial, target)
    except BaseException:
        if os.path.lexists(partial):
            os.unlink(partial)
        raise


def _split_owner_file(capture: Capture, last: Window) -> None:
    """The capture's file has the name of its first window. If other windows outlived that one, the file is renamed for
    their reports, and the first window gets its own stretch under its name."""
    owner = capture.owner
    if owner is None or owner is last or owner.path is None:
        return
    whole = tempfiles.name(os.path.dirname(owner.path))
    # A second name, so that there is no moment, should we be killed, in which the recording has only one that is swept.
    _copy_name(owner.path, whole)
    try:
        _extract_to(whole, owner.path, owner)
    except BaseException:
        os.replace(whole, owner.path)  # the whole capture is better than nothing
        _remove(whole)  # two names of one file stay two
        raise
    capture.file.path = whole
    capture.file.make_temporary(capture.core)
    owner.file = TraceFile(owner.path)
    owner.file.finish()
    owner.whole = True


def _copy_name(path: str, other: str) -> None:
    try:
        os.link(path, other)
    except own(OSError):  # a file system without links
        os.rename(path, other)


def close_all(error: BaseException | None = None) -> Window | None:
    """Ends the recording, as at exit: windows close from the last to the first, which is returned. Prints what goes
    wrong. error: as in close_window."""
    window = None
    with _lock:
        _end_orphan()
    _note_what_malloc_keeps()
    while True:
        with _lock:
            capture = _capture
            if capture is None or capture.pid != os.getpid() or not capture.windows:
                return window
            window = capture.windows[-1]
        try:
            close_window(window, error=error)
        except own(Error, OSError) as problem:
            say(str(problem))


def _at_exit() -> None:
    """Closes profiles that the program has left open."""
    error = refusals.ended_program()
    window = close_all(error)
    if window is not None and error is not None and refusals.is_of(error):
        refusals.show(window)
    recording_core().temporary_files_remove()


def _note_what_malloc_keeps() -> None:
    """Before anything of the end is done, which frees memory of ours. Pages of a forked child may be its parent's."""
    if forked_by:
        return
    with _lock:
        capture = _capture
        if capture is None or capture.pid != os.getpid():
            return
        kept = capture.core.process_trim()
        if kept is not None:
            try:
                capture.core.capture_note({"host.malloc": str(list(kept))})
            except own(OSError):  # the trace's own end says so
                return


def _prepare_process(core: "ModuleType") -> None:
    global _prepared_pid
    if _prepared_pid:
        return
    _prepared_pid = os.getpid()
    core.frames_hide(os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep)
    atexit.register(refusals.at_exit(core, _at_exit))
    os.register_at_fork(
        before=core.fork_before,
        after_in_parent=core.fork_parent,
        after_in_child=core.hidden(_after_fork_in_child),
    )
    # No other thread is in the middle of a start or stop when the child is made. Functions of C: a signal's handler
    # cannot raise between their being called and what they do. Outermost: first before, last after.
    reinit = _lock._at_fork_reinit  # type: ignore[attr-defined]
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=reinit)
    core.process_watch(sys.modules["posix"])


def _after_fork_in_child() -> None:
    """The parent's capture is not this process's: forget it, so that the child may start its own."""
    global _capture
    _capture = None
    _finished.clear()
    core = recording_core()
    core.fork_child()
    instruments.forget(core)
