"""Commands of cuptimem at the end of the program, each in its own process: the program's modules, memory and exit code
stay as they are. Runs inside the profiled process: imports nothing that Python has not loaded by itself."""

import _signal  # type: ignore[import-not-found]  # built in, while signal would load enum
import os
import sys

from cuptimem import environ, interpreter
from cuptimem.errors import own

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

# PYTHONINSPECT would make it ask for input when it has ended.
_LEFT_OUT = ("LD_PRELOAD", "PYTHONINSPECT")


def run(
    command: "Sequence[str]", folder: str, actions: "Sequence[tuple[Any, ...]]", without: "Collection[str]"
) -> int | None:
    """Runs a module with its arguments and waits for its end.

    folder: where it runs, if that is still there. actions: of posix_spawn, for its files. without: variables that it
    does not inherit. Returns its exit code, negative for a signal; None if the program ignores SIGCHLD, for then the
    kernel keeps none, or if its handler cannot be replaced because Python ends outside of the main thread. Raises
    OSError where it cannot be run.
    """
    variables = {name: value for name, value in environ.inherited().items() if name not in (*_LEFT_OUT, *without)}
    # A handler of the program's would be called for a child that is not the program's, and might take its exit code.
    handler = _signal.getsignal(_signal.SIGCHLD)
    try:
        if callable(handler):
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    except own(ValueError):
        return None
    try:
        words = [sys.executable, *interpreter.isolation(), "-P", "-m", "cuptimem.record.own_process", folder, *command]
        child = os.posix_spawn(sys.executable, words, variables, file_actions=list(actions))
        try:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        except BaseException:  # the program's, or the user's: what is not waited for does not go on
            _end(child)
            raise
    except own(ChildProcessError):
        return None
    finally:
        if callable(handler):
            _signal.signal(_signal.SIGCHLD, handler)


def _end(child: int) -> None:
    """Ends a process, unless it was waited for already: its number may be another's by now."""
    try:
        if os.waitpid(child, os.WNOHANG)[0] == 0:
            os.kill(child, _signal.SIGKILL)
            os.waitpid(child, 0)
    except own(ChildProcessError):
        return


def _main() -> None:
    """In the new process: posix_spawn itself cannot choose a folder."""
    import contextlib
    import runpy

    with contextlib.suppress(OSError):  # it was removed: paths are shown from where the program ended
        os.chdir(sys.argv[1])
    module = sys.argv[2]
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
