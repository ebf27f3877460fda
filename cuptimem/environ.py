"""Environment variables, where they are obeyed.

Two kinds of process obey none: a Python that ignores its environment (-I, -E, Py_IgnoreEnvironmentFlag), and one with
more rights than its caller (AT_SECURE). There an option of Python's command line, -X NAME=VALUE, takes a variable's
place: who sets the environment alone cannot set it. Runs inside the profiled process: imports nothing that Python has
not loaded by itself.
"""

import os
import sys

from cuptimem import interpreter

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_AT_SECURE = 23  # in elf.h: AT_SECURE, not 0 in a process with more rights than its caller


def is_ignored() -> bool:
    """Whether this process obeys no variable."""
    return bool(sys.flags.ignore_environment) or _is_privileged()


def _is_privileged() -> bool:
    try:  # without the extension, which a process in standby does not load
        with open("/proc/self/auxv", "rb") as file:
            vector = file.read()
        words = [int.from_bytes(vector[at : at + 8], sys.byteorder) for at in range(0, len(vector) - 8, 8)]
        return bool(dict(zip(words[::2], words[1::2], strict=False))[_AT_SECURE])
    except (OSError, KeyError) as error:  # no /proc, or not to be read by a process with more rights
        core = sys.modules.get("cuptimem._core")
        if core is not None and core.of_program(error):  # as errors.own, which a process in standby does not load
            raise
    try:
        from cuptimem import _core
    except ImportError:  # in a subinterpreter, or where only reports are read
        return (os.getuid(), os.getgid()) != (os.geteuid(), os.getegid())
    return _core.process_is_privileged()


def obeyed() -> "Mapping[str, str]":
    """Those that are obeyed."""
    return _options() if is_ignored() else os.environ


def get(name: str) -> str:
    """The variable's value; "" where it is not set or not obeyed."""
    return obeyed().get(name, "")


def take(names: "Iterable[str]") -> dict[str, str]:
    """Those of the variables that are set, and removes them: the program and its children do not see them."""
    found = {name: value for name, value in obeyed().items() if name in names}
    if is_ignored():
        for name, value in found.items():
            del sys._xoptions[name]
            word = f"-X{name}={value}"
            if word in sys.orig_argv:
                sys.orig_argv.remove(word)
    else:
        for name in found:
            del os.environ[name]
    return found


def inherited() -> dict[str, str]:
    """The environment for another process of ours, which is to obey no more of it than this one does."""
    ignored = is_ignored()
    return {name: value for name, value in os.environ.items() if not (ignored and name.startswith("CUPTIMEM"))}


def given(
    options: "Sequence[str]", settings: "Mapping[str, str]", base: "Mapping[str, str]"
) -> tuple[list[str], dict[str, str]]:
    """What starts a Python that obeys these settings: its options and its environment, made of those without them."""
    if not interpreter.ignores_environment(options):
        return list(options), {**base, **settings}
    return [*(f"-X{name}={value}" for name, value in settings.items()), *options], dict(base)


def _options() -> dict[str, str]:
    return {name: value for name, value in sys._xoptions.items() if isinstance(value, str)}
