"""Starts a profile in an unchanged program: CUPTIMEM=1 in the environment, or `cuptimem run`.

Called by cuptimem.pth (from Python 3.15 on by cuptimem.start) before the program's own code, in every Python that has
CUPTIMEM set. Imports nothing that Python has not loaded by itself, and never lets the program fail. A Python that is
to ignore its environment (-E, -I) ignores these variables, too: `cuptimem run` gives it options of the same names
(environ.py).

    CUPTIMEM=1               record this process (also true, yes, on); any other word names the trace
    CUPTIMEM=standby         record nothing until `cuptimem window PID` asks for it; children, too (standby.py)
    CUPTIMEM_OUTPUT=F        the trace; {pid} and {rank} are filled in. Default: cuptimem-<script>.<pid>.cmem
    CUPTIMEM_OVERWRITE=1     replace an existing F
    CUPTIMEM_FOLLOW=1        children too, forked and spawned; without it they do not see these variables
    CUPTIMEM_QUIET=1         no closing line, and no account of a refused request that ended the program
    CUPTIMEM_MAX_SIZE=N      bytes of trace past which steps are compacted (also 500M, 2G)
    CUPTIMEM_OPEN=1          at the end a page of the trace, in a browser where there is one
    CUPTIMEM_KERNELS=1       when kernels and copies ran, too
    CUPTIMEM_OPERATORS=1     full names of operators, too
    CUPTIMEM_NO_DRIVER=1     without what CUDA itself hands out
    CUPTIMEM_NO_WALKS=1      without names of modules and tensors
    CUPTIMEM_NO_HOLDERS=1    without the search for who holds what grows and what is alive
    CUPTIMEM_METRICS_PORT=N  what is alive now, for Prometheus, at this port; CUPTIMEM_METRICS_HOST: of this address
    CUPTIMEM_NO_ARGV=1       the trace has the script's name and no other argument of the command line
"""

import os
import sys

from cuptimem import environ

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType
    from typing import Any, TypeVar

    from cuptimem.record.beginning import Program
    from cuptimem.record.recorder import Window

    _Kind = TypeVar("_Kind", bound=BaseException)

VARIABLES = (
    "CUPTIMEM",
    "CUPTIMEM_OUTPUT",
    "CUPTIMEM_OVERWRITE",
    "CUPTIMEM_FOLLOW",
    "CUPTIMEM_QUIET",
    "CUPTIMEM_MAX_SIZE",
    "CUPTIMEM_OPEN",
    "CUPTIMEM_KERNELS",
    "CUPTIMEM_OPERATORS",
    "CUPTIMEM_NO_DRIVER",
    "CUPTIMEM_NO_WALKS",
    "CUPTIMEM_NO_HOLDERS",
    "CUPTIMEM_NO_ARGV",
    "CUPTIMEM_METRICS_PORT",
    "CUPTIMEM_METRICS_HOST",
    # Set by us:
    "CUPTIMEM_RUN",  # on: `cuptimem run` or `simulate` has asked for this recording
    "CUPTIMEM_LEADER",  # the process that writes the file of exactly the requested name
    "CUPTIMEM_IMAGE",  # PID.N: the Nth program that process is, by exec
)

FILE = "cuptimem.start" if sys.version_info >= (3, 15) else "cuptimem.pth"  # in site-packages: what calls start()
_EVENTS = 4_000_000  # a trace of more is not read at exit: about half of the CPU time that answer.py may take

_started_in = 0  # the process that this module has started a profile in
_simulated = False


def own(*kinds: "type[_Kind]") -> "tuple[type[_Kind], ...]":
    """As errors.own, which loads the extension: a process in standby has none."""
    from cuptimem import errors

    return errors.own(*kinds)


def _is_set(settings: "Mapping[str, str]", name: str) -> bool:
    return settings.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")


def _template(settings: dict[str, str]) -> str:
    """The name that was asked for; "" for the default."""
    named = settings.get("CUPTIMEM", "")
    is_switch = named.strip().lower() in ("1", "true", "yes", "on")
    return settings.get("CUPTIMEM_OUTPUT", "") or ("" if is_switch else named)


def _is_standby(word: str) -> bool:
    return word.strip().lower() == "standby"


def _start_standby() -> None:
    """Nothing of the extension is loaded. The variables stay, for children."""
    global _started_in
    if _is_own_command():
        return
    _started_in = os.getpid()
    try:
        from cuptimem.record import standby

        standby.start({name: value for name, value in environ.obeyed().items() if name in VARIABLES})
    except own(Exception) as error:  # whatever it is, the user's program comes first
        if not isinstance(error, FileExistsError):  # a subinterpreter: its process is in standby
            say(f"not in standby: {_one_line(error)}")


def options(settings: "Mapping[str, str]") -> "dict[str, Any]":
    """Of cuptimem.profile, as these variables have them."""
    return {
        "max_size": _max_size(settings),
        "kernels": _is_set(settings, "CUPTIMEM_KERNELS"),
        "operators": _is_set(settings, "CUPTIMEM_OPERATORS"),
        "driver": not _is_set(settings, "CUPTIMEM_NO_DRIVER"),
        "walks": not _is_set(settings, "CUPTIMEM_NO_WALKS"),
        "holders": not _is_set(settings, "CUPTIMEM_NO_HOLDERS"),
        "argv": not _is_set(settings, "CUPTIMEM_NO_ARGV"),
    }


def _is_own_command() -> bool:
    """Whether this process is the command `cuptimem`: with CUPTIMEM=1 in a shell it is not the program to record."""
    from cuptimem import interpreter

    program = interpreter.split(sys.orig_argv[1:])[1]
    return program[:2] == ["-m", "cuptimem"] or any(os.path.basename(word) == "cuptimem" for word in program[:1])


def _is_subinterpreter() -> bool:
    """Whether this is a subinterpreter, which shares its process's environment and is not recorded."""
    try:
        from cuptimem import _core  # noqa: F401  the question is whether it can be imported
    except ImportError as error:
        return "subinterpreter" in str(error)
    return False


def start() -> None:
    """Starts this process's profile, if its environment asks for one; and what a simulated device needs."""
    global _started_in
    folder = environ.get("CUPTIMEM_SIM_CHILD")
    if folder:
        _start_simulated(folder)
    if not _is_set(environ.obeyed(), "CUPTIMEM") or _started_in == os.getpid():  # Python may read a file twice
        return
    if _is_standby(environ.get("CUPTIMEM")):
        _start_standby()
        return
    if _is_subinterpreter() or (not environ.get("CUPTIMEM_RUN") and _is_own_command()):
        return
    settings = environ.take(VARIABLES)
    settings.pop("CUPTIMEM_RUN", None)  # a command of cuptimem that the program starts is not asked for
    follow = _is_set(settings, "CUPTIMEM_FOLLOW")
    if follow:
        settings.setdefault("CUPTIMEM_LEADER", str(os.getpid()))
        settings["CUPTIMEM_IMAGE"] = f"{os.getpid()}.{_image(settings) + 1}"
        os.environ.update(settings)
    _started_in = os.getpid()  # or tried to
    try:
        from cuptimem.record import beginning

        # A simulated run's trace is read whatever the program did.
        _open(settings, None if _simulated else beginning.Program())
    except own(Exception) as error:  # whatever it is, the user's program comes first
        say(f"not recording: {_one_line(error)}")
        return
    if follow:
        from cuptimem.errors import recording_core

        os.register_at_fork(after_in_child=recording_core().hidden(lambda: _start_in_child(settings)))


def _image(settings: dict[str, str]) -> int:
    """How many programs this process has been, by exec, counting the present one; 0: none that was recorded."""
    pid, _, number = settings.get("CUPTIMEM_IMAGE", "").partition(".")
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    return int(number) if pid == str(os.getpid()) and is_number else 0


def say(line: str) -> None:
    """One line on standard error without recorder.say, which may be what failed."""
    from cuptimem.printable import printable  # only where a recording is asked for

    try:
        os.write(2, f"cuptimem: {printable(line)}\n".encode("utf-8", "backslashreplace"))
    except own(OSError):  # it is closed
        return


def _start_simulated(folder: str) -> None:
    """Starts what a simulated device needs, once: Python may read such a file twice. Children inherit the variable."""
    global _simulated
    if _simulated:
        return
    _simulated = True
    try:
        from cuptimem.simulation import child

        child.start(folder)
    except own(Exception) as error:  # runs before the script: raised, it would end a program that would run without us
        say(_one_line(error))


def _one_line(error: BaseException) -> str:
    text, kind = " ".join(str(error).split()), type(error).__name__
    return text if kind == "Error" else f"{kind}: {text}" if text else kind


def _open(settings: dict[str, str], program: "Program | None") -> None:
    """Opens the profile. program: not begun yet; None where the trace is kept in any case."""
    import atexit

    from cuptimem import interpreter, naming
    from cuptimem.errors import Error, recording_core
    from cuptimem.record import backward_threads, process_info, recorder, refusals

    pid = os.getpid()
    here = process_info.directory()  # whoever started the program reads paths from there; the program may go elsewhere
    rank = naming.rank_of(environ.obeyed())
    template = _template(settings)
    if template:
        path = naming.expand(template, pid, rank)
        if settings.get("CUPTIMEM_LEADER", str(pid)) != str(pid) and "{pid}" not in template:
            root, extension = os.path.splitext(path)
            path = f"{root}.{pid}{extension}"
        if _image(settings) > 1:
            path = naming.with_suffix(path, str(_image(settings)))
    else:
        path = naming.default_name(interpreter.script_of(sys.orig_argv), pid, rank)
    replaces = bool(template) and os.path.lexists(path)

    def open_at(path: str) -> "Window":
        return recorder.open_window(
            path,
            overwrite=_is_set(settings, "CUPTIMEM_OVERWRITE"),
            options=recorder.Options(**options(settings)),
            default_name=not template,
            how_to_overwrite="CUPTIMEM_OVERWRITE=1",
        )

    try:
        window = open_at(path)
    except own(Error):
        if rank is not None or "{rank}" not in template or not os.path.lexists(path):
            raise
        window = open_at(naming.of_process(path, pid, None))  # a worker that is given its rank later, as Ray's are
    _serve_metrics(settings, window)
    core = recording_core()
    leads = settings.get("CUPTIMEM_LEADER", str(pid)) == str(pid) and rank in (None, "0")
    quiet = _is_set(settings, "CUPTIMEM_QUIET")

    def finish() -> None:
        if os.getpid() != pid:
            return
        error = refusals.ended_program()
        oom_left = error is not None and refusals.is_of(error)
        try:
            backward_threads.wait()
        finally:  # an interrupt ends the wait, not what follows it
            recorder.close_all(error)
            path = window.path
            if path is not None and program is not None and program.remove_empty(path, recorder.last_counts):
                if replaces and not quiet:
                    recorder.say(
                        f"the program failed before it allocated; {naming.shown(path, here)} from before is gone"
                    )
                path = None
            if path is not None and not quiet:
                children = core.process_children()
                if oom_left:
                    _show_refusal(path, here)
                _say_what_was_written(path, here)
                if leads and not oom_left:
                    _say_what_it_shows(path, here)
                if not _is_set(settings, "CUPTIMEM_FOLLOW"):
                    _say_what_was_not(children)
            if leads and _is_set(settings, "CUPTIMEM_OPEN") and path is not None:
                _command("no page was made", here, "timeline", "--open", "--", path)

    # Registered before anything of the program's, so it runs after everything of the program's.
    atexit.register(refusals.at_exit(core, finish))


def _serve_metrics(settings: dict[str, str], window: "Window") -> None:
    """Each local rank has a port of its own: N, N + 1, ..."""
    port = settings.get("CUPTIMEM_METRICS_PORT", "").strip()
    if not port:
        return
    from cuptimem.errors import Error
    from cuptimem.live import metrics
    from cuptimem.record import recorder

    local = environ.get("LOCAL_RANK")
    number = int(port) + (int(local) if local.isdecimal() else 0) if port.isdecimal() else -1
    try:
        if not 0 <= number <= 65535:
            raise Error(f"CUPTIMEM_METRICS_PORT takes the number of a port, not {port!r}")
        server = metrics.Server(number, settings.get("CUPTIMEM_METRICS_HOST", "") or metrics.LOCAL)
    except own(Error) as error:
        say(f"no metrics: {_one_line(error)}")
        return
    recorder.watch(window, server, metrics.EVERY)


def _max_size(settings: "Mapping[str, str]") -> int:
    from cuptimem import sizes
    from cuptimem.errors import Error

    text = settings.get("CUPTIMEM_MAX_SIZE", "") or "0"
    try:
        return sizes.parse(text)
    except own(ValueError):
        raise Error(f"CUPTIMEM_MAX_SIZE takes a number of bytes such as 500M, not {text!r}") from None


def _show_refusal(path: str, here: str) -> None:
    from cuptimem.record import recorder

    recorder.write("\n")
    _command("no account of the refused request was made", here, "peak", "--at", "oom", "--", path)
    recorder.write("\n")


def _say_what_was_written(path: str, here: str) -> None:
    from cuptimem import naming, sizes
    from cuptimem.record import recorder

    try:
        size = os.path.getsize(path)
    except own(OSError) as error:
        recorder.say(f"{naming.shown(path, here)} is gone: {error.strerror}")
        return
    shown = naming.shown(path, here)
    if recorder.last_counts.get("foreign"):
        recorder.say(f"{shown} does not hold this run any more")
        return
    events = recorder.last_counts.get("events", 0)
    command = f"cuptimem summary {naming.typed(path, here)}"
    recorder.say(f"wrote {shown} ({sizes.text(size)}, {count_text(events)} events); see: {command}")


def _command(otherwise: str, here: str, *arguments: str) -> None:
    """Runs a command of cuptimem, which writes to standard error. otherwise: printed where it cannot be run."""
    from cuptimem.record import own_process

    try:
        own_process.run(["cuptimem", *arguments], here, [(os.POSIX_SPAWN_DUP2, 2, 1)], VARIABLES)
    except own(OSError) as error:
        say(f"{otherwise}: {_one_line(error)}")
    except KeyboardInterrupt:  # of a user who does not wait for it
        say(f"{otherwise}: interrupted")


def _say_what_it_shows(path: str, here: str) -> None:
    """Prints four lines about the trace, if they are ready in little time. The closing line names the full command."""
    from cuptimem.record import own_process, recorder

    counts = recorder.last_counts
    if "torch" not in sys.modules or counts.get("foreign") or counts.get("events", 0) > _EVENTS:
        return
    try:
        reading, writing = os.pipe()
        files = (
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        )
        try:
            if own_process.run(["cuptimem.cli.answer", path], here, files, VARIABLES) == 0:
                recorder.write(os.read(reading, 65536).decode())  # the lines are in the pipe by then
        finally:
            os.close(reading)
            os.close(writing)
    except KeyboardInterrupt:  # the user is in a hurry and needs no reason
        return
    except own(OSError) as error:
        say(f"no summary was made: {_one_line(error)}")


def _say_what_was_not(children: int) -> None:
    from cuptimem.record import recorder

    if children:
        processes = "1 child process was" if children == 1 else f"{children} child processes were"
        recorder.say(f"{processes} not recorded; --follow records them, too")


def count_text(count: int) -> str:
    """950, 12.3 k, 4.5 M"""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f} k" if count < 1_000_000 else f"{count / 1_000_000:.1f} M"


def _start_in_child(settings: dict[str, str]) -> None:
    """Starts a forked child's profile under follow. Its exit may skip atexit (multiprocessing does), so a finalizer
    ends the recording, too."""
    from cuptimem.errors import recording_core
    from cuptimem.record import recorder

    if recording_core().fork_is_spawn():  # of subprocess; a Python starts its own
        return
    recorder.forked_by = os.getppid()
    settings["CUPTIMEM_IMAGE"] = os.environ["CUPTIMEM_IMAGE"] = f"{os.getpid()}.1"
    settings.pop("CUPTIMEM_METRICS_PORT", None)  # its parent has the port
    try:
        _open(settings, None)
    except own(Exception) as error:  # as above
        recorder.say(f"not recording process {os.getpid()}: {_one_line(error)}")
        return
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_open, lambda _: _in_process_of_multiprocessing(util, settings))


def _in_process_of_multiprocessing(util: "ModuleType", settings: dict[str, str]) -> None:
    """Continues once multiprocessing has cleared its finalizers in this new child and set the child's name."""
    from cuptimem.record import process_info, recorder, refusals

    here = process_info.directory()

    def finish() -> None:
        error = sys.exc_info()[1]  # finalizers run while what leaves the target is on its way
        oom_left = error is not None and refusals.is_of(error)
        window = recorder.close_all(error)
        if oom_left and not _is_set(settings, "CUPTIMEM_QUIET") and window is not None and window.path is not None:
            _show_refusal(window.path, here)

    recorder.note_role()
    util.Finalize(None, finish, exitpriority=-100)
