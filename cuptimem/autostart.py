"""Starts a profile in an unchanged program: CUPTIMEM=1 in the environment, or `cuptimem run`.

Called by cuptimem.pth before the program's own code, in every Python that has CUPTIMEM set. Imports nothing that
Python has not loaded by itself, and never lets the program fail.

    CUPTIMEM=1               record this process (also true, yes, on)
    CUPTIMEM_OUTPUT=F        the trace; {pid} and {rank} are filled in. Default: cuptimem-<script>.<pid>.cmem
    CUPTIMEM_OVERWRITE=1     replace an existing F
    CUPTIMEM_FOLLOW=1        children too, forked and spawned; without it they do not see these variables
    CUPTIMEM_QUIET=1         no closing line
    CUPTIMEM_MAX_SIZE=N      bytes of trace past which steps are folded
    CUPTIMEM_KERNELS=1       when kernels and copies ran, too
    CUPTIMEM_NO_DRIVER=1     without what CUDA itself hands out
"""

import os
import sys

VARIABLES = (
    "CUPTIMEM",
    "CUPTIMEM_OUTPUT",
    "CUPTIMEM_OVERWRITE",
    "CUPTIMEM_FOLLOW",
    "CUPTIMEM_QUIET",
    "CUPTIMEM_MAX_SIZE",
    "CUPTIMEM_KERNELS",
    "CUPTIMEM_NO_DRIVER",
    "CUPTIMEM_LEADER",  # set by us: the process whose file has exactly the name that was asked for
)

_started_in = 0  # the process that has a profile of ours
_simulated = False


def _is_set(settings: dict[str, str], name: str) -> bool:
    return settings.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")


def start() -> None:
    """Starts this process's profile, if its environment asks for one; and what a simulated device needs."""
    folder = os.environ.get("CUPTIMEM_SIM_CHILD")
    if folder:
        _start_simulated(folder)
    settings = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    if not _is_set(settings, "CUPTIMEM") or _started_in == os.getpid():  # Python may read a .pth file twice
        return
    follow = _is_set(settings, "CUPTIMEM_FOLLOW")
    if follow:
        os.environ.setdefault("CUPTIMEM_LEADER", str(os.getpid()))
        settings.setdefault("CUPTIMEM_LEADER", str(os.getpid()))
    else:
        for name in settings:
            del os.environ[name]
    try:
        _open(settings)
    except Exception as error:  # whatever it is, the user's program comes first
        print(f"cuptimem: not recording: {_one_line(error)}", file=sys.stderr)
        return
    if follow:
        os.register_at_fork(after_in_child=lambda: _start_in_child(settings))


def _start_simulated(folder: str) -> None:
    """Once: Python may read a .pth file twice, and children are to see the variable."""
    global _simulated
    if _simulated:
        return
    _simulated = True
    try:
        from cuptimem.simulation import child

        child.start(folder)
    except Exception as error:  # runs before the script: raised, it would end a program that would run without us
        print(f"cuptimem: {_one_line(error)}", file=sys.stderr)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if type(error).__name__ == "Error" else f"{type(error).__name__}: {text}"


def _open(settings: dict[str, str]) -> None:
    global _started_in
    import atexit

    from cuptimem import backward_threads, naming, recorder

    pid = os.getpid()
    rank = naming.rank_of(os.environ)
    template = settings.get("CUPTIMEM_OUTPUT", "")
    if template:
        path = naming.expand(template, pid, rank)
        if settings.get("CUPTIMEM_LEADER", str(pid)) != str(pid) and "{pid}" not in template:
            root, extension = os.path.splitext(path)
            path = f"{root}.{pid}{extension}"
    else:
        path = naming.default_name(recorder.script_of(sys.orig_argv), pid, rank)
    size = settings.get("CUPTIMEM_MAX_SIZE", "0")
    window = recorder.open_window(
        path,
        overwrite=_is_set(settings, "CUPTIMEM_OVERWRITE"),
        options=recorder.Options(
            max_size=int(size) if size.isdigit() else 0,
            kernels=_is_set(settings, "CUPTIMEM_KERNELS"),
            driver=not _is_set(settings, "CUPTIMEM_NO_DRIVER"),
        ),
        default_name=not template,
    )
    _started_in = pid
    quiet = _is_set(settings, "CUPTIMEM_QUIET")

    def finish() -> None:
        if os.getpid() != pid:
            return
        try:
            backward_threads.wait()
        finally:  # an interrupt ends the wait, not what follows it
            recorder.close_all()
            if not quiet and window.path is not None:
                _say_what_was_written(window.path)

    # Registered before anything of the program's, so it runs after everything of the program's.
    atexit.register(finish)


def _say_what_was_written(path: str) -> None:
    from cuptimem import naming, recorder

    try:
        size = os.path.getsize(path)
    except OSError as error:
        recorder.say(f"{naming.shown(path)} is gone: {error.strerror}")
        return
    shown = naming.shown(path)
    events = recorder.last_counts.get("events", 0)
    recorder.say(f"wrote {shown} ({size_text(size)}, {count_text(events)} events); see: cuptimem summary {shown}")


def size_text(size: int) -> str:
    """12.3 MiB"""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def count_text(count: int) -> str:
    """950, 12.3 k, 4.5 M"""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f} k" if count < 1_000_000 else f"{count / 1_000_000:.1f} M"


def _start_in_child(settings: dict[str, str]) -> None:
    """A forked child under follow. Its exit may skip atexit (multiprocessing does), so it is told otherwise too."""
    from cuptimem import recorder

    try:
        _open(settings)
    except Exception as error:  # as above
        recorder.say(f"not recording process {os.getpid()}: {_one_line(error)}")
        return
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        # multiprocessing clears its finalizers in a new child, then runs these.
        util.register_after_fork(_open, lambda _: util.Finalize(None, recorder.close_all, exitpriority=-100))
