"""`--cuptimem-simulate`: runs pytest on the simulated CUDA device, whose libraries only a new process can load.

A command line of pytest replaces itself, before output capture starts and before any conftest is imported. A program
that called pytest.main() goes on: a child process runs the tests, and pytest.main() returns the child's exit code.
"""

import atexit
import copy
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType, ModuleType

import pytest

import cudasim
from cuptimem import environ, interpreter
from cuptimem.errors import Error
from cuptimem.printable import printable
from cuptimem.pytest_plugin import arguments
from cuptimem.pytest_plugin.usage import usage_error
from cuptimem.record import backward_threads, process_info, recorder, startup
from cuptimem.simulation import api, cards, environment, launch

OPTION = "--cuptimem-simulate"
# The process that asked for this one, which is the same process after exec. Seen once, it is removed.
_ONCE = "CUPTIMEM_PYTEST_SIMULATE"
_DEFAULT = ("yes", "true", "on", "1")
_MAIN = ("main", "_main")
_CONSOLE = ("console_main", "_console_main")  # of pytest's script and of `python -m pytest`, and of nothing else


@dataclass(frozen=True)
class _Child:
    """The process that runs the tests of a pytest.main()."""

    command: list[str]
    variables: dict[str, str]


_CHILD = pytest.StashKey[_Child]()


def take_no_path(config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """`--cuptimem-simulate tests` names tests: a word behind the option is its value only if it reads like one."""
    arguments.give_back_paths(config, parser, args, {OPTION: "yes"}, _is_memory)


def begin(config: pytest.Config, parser: pytest.Parser, args: list[str], memory: str) -> None:
    """Goes on in a process on the device: replaces this one, or prepares `run_child`. Returns at once in one that is
    there already.

    Raises UsageError where nothing can be simulated.
    """
    if config.known_args_namespace.help or config.known_args_namespace.version:
        return
    asked_by = environ.take((_ONCE,)).get(_ONCE, "")
    if _is_on_device():
        # The last test may end in the middle of a backward pass's end, which would abort Python at its own end.
        atexit.register(backward_threads.wait)
        return
    if asked_by in (str(os.getpid()), str(os.getppid())):
        raise usage_error(
            f"{OPTION}: the dynamic linker did not load the simulated device from LD_PRELOAD into {sys.executable}; "
            "leave the option out, or take a Python that is not statically linked and not privileged"
        )
    variables = _variables(_setup(memory))
    caller, is_console = _caller_of_main()
    if caller is None:
        raise usage_error(
            f"{OPTION}: this process is not on the simulated device and does not belong to a command line of pytest; "
            "start it with the variables that `cuptimem simulate --environment` prints"
        )
    if recorder.active():
        raise usage_error(
            f"{OPTION}: cuptimem is recording this process, and the tests would run in another one; type instead: "
            "env $(cuptimem simulate --environment) cuptimem run -m pytest ... (--memory chooses the size)"
        )
    if is_console and caller.f_globals.get("__name__") == "__main__" and _is_command_line(sys.orig_argv):
        _replace_process(config, variables)
    config.stash[_CHILD] = _child(config, variables)
    # Here nothing is to be collected, measured or captured, whichever plugins there are.
    args[:] = ["--noconftest", "--capture=no"]
    config.known_args_namespace = parser.parse_known_args(args, namespace=copy.copy(config.option))


def run_child(config: pytest.Config) -> int | None:
    """Runs the child that `begin` prepared for a pytest.main(). Its exit code; None where there is no child to run."""
    child = config.stash.get(_CHILD, None)
    if child is None:
        return None
    try:
        code = launch.run_in_place(child.command, child.variables)
    except Error as error:
        raise usage_error(f"{OPTION}: {error}") from error
    if code >= 0:
        return code
    if -code in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):  # sent to end both
        signal.raise_signal(-code)
    return 128 - code  # as shells say it


def require_device(config: pytest.Config) -> None:
    """Raises UsageError where `begin` was not called: a plugin that a conftest names comes too late for it."""
    if not _is_on_device() and not config.option.help and not config.option.version:
        raise usage_error(
            f"{OPTION} comes too late in a plugin that a conftest names: install cuptimem where pytest is, or add "
            "-p cuptimem"
        )


def header() -> str:
    device = process_info.simulated_device(environ.obeyed())
    return printable(f"cuptimem: simulated {device}; no kernel runs, so results are zeros")


def _is_on_device() -> bool:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            return any(line.rstrip().endswith(f"/{cudasim.CORE}") for line in file)
    except OSError:  # elsewhere than on Linux, where nothing can be simulated
        return False


def _setup(memory: str) -> launch.Setup:
    """The device that MEMORY names. Raises UsageError."""
    try:
        if memory.lower() in _DEFAULT:
            return api.make_setup("h100", None, 1, None, None, None)
        if memory[:1].isdigit():
            return api.make_setup("h100", memory, 1, None, None, None)
    except ValueError as error:
        raise usage_error(f"{OPTION}: {error}") from error
    try:
        return api.make_setup(memory, None, 1, None, None, None)
    except Error as error:
        known = ", ".join(card.key for card in cards.CARDS)
        raise usage_error(f"{OPTION} takes a size such as 24GiB or one of {known}, not {memory!r}") from error


def _is_memory(word: str) -> bool:
    try:
        _setup(word)
    except pytest.UsageError:
        return False
    return True


def _variables(setup: launch.Setup) -> dict[str, str]:
    """The environment of a process on the device. Raises UsageError where nothing can be simulated."""
    try:
        environment.check()
        return {**startup.given_environment(), **launch.variables(environ.obeyed(), setup)}
    except Error as error:
        raise usage_error(f"{OPTION}: {error}") from error


def _caller_of_main() -> tuple[FrameType | None, bool]:
    """What called pytest here, if it was called through main(), and whether by way of pytest's own console entry.

    The innermost call counts: a test may call pytest.main().
    """
    frame: FrameType | None = sys._getframe()
    inside = is_console = False
    while frame is not None:
        name = frame.f_code.co_name
        is_entry = frame.f_globals.get("__name__") == "_pytest.config" and name in (*_MAIN, *_CONSOLE)
        if inside and not is_entry:
            return frame, is_console
        inside = inside or is_entry
        is_console = is_console or (is_entry and name in _CONSOLE)
        frame = frame.f_back
    return None, False


def _is_command_line(arguments: Sequence[str]) -> bool:
    """Whether this command line of Python is one of pytest: typed again, it does the same and nothing else."""
    program = interpreter.split(list(arguments[1:]))[1]
    if program[:1] == ["-m"]:
        program = program[1:]
    name = os.path.basename(program[0]) if program else ""
    if name.split("-")[0] in ("coverage", "coverage3"):  # coverage-3.12
        return program[1:2] == ["run"]
    return name in ("pytest", "py.test")


def _replace_process(config: pytest.Config, variables: dict[str, str]) -> None:
    """The same interpreter with its options and arguments, in the same directory, on the device. Does not return."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it was closed before Python began
            stream.flush()
    try:
        os.chdir(config.invocation_params.dir)
        words, variables = environ.given(sys.orig_argv[1:], {_ONCE: str(os.getpid())}, variables)
        os.execve(sys.executable, [sys.executable, *words], variables)
    except OSError as error:
        raise usage_error(f"{OPTION}: {sys.executable} does not start again: {error.strerror}") from error


def _child(config: pytest.Config, variables: dict[str, str]) -> _Child:
    """The same pytest.main() in a process of its own, which sees the modules that this one sees."""
    _check_coverage()
    plugins: list[str] = []
    for plugin in config.invocation_params.plugins or ():
        name = plugin.__name__ if isinstance(plugin, ModuleType) else plugin
        if not isinstance(name, str):
            raise usage_error(
                f"{OPTION}: pytest.main(plugins=...) has an object of {type(plugin).__name__}, which cannot go to the "
                "process on the simulated device; put the plugin into a module and name that"
            )
        plugins += ["-p", name]
    path = [entry for entry in sys.path if isinstance(entry, str)]
    program = f"import sys; sys.path[:] = {path!r}; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    options = [interpreter.without(option, "i") for option in interpreter.split(sys.orig_argv[1:])[0]]
    flags = [part for option in options for part in option]
    arguments = [*plugins, *map(str, config.invocation_params.args)]
    flags, variables = environ.given(flags, {_ONCE: str(os.getpid())}, variables)
    return _Child([sys.executable, *flags, "-c", program, *arguments], variables)


def _check_coverage() -> None:
    """Coverage of this process would measure nothing of its child, unless it is set up to follow children."""
    coverage = sys.modules.get("coverage")
    if coverage is None or coverage.Coverage.current() is None:
        return
    if not any(os.environ.get(name) for name in ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")):
        raise usage_error(
            f"{OPTION}: coverage measures this process, and the tests would run in another one; "
            f"type instead: coverage run -m pytest {OPTION} ..."
        )
