"""Errors: the one exception of cuptimem, which exceptions are cuptimem's own, and the loading of the C core."""

import sys

from cuptimem.printable import printable

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from types import ModuleType
    from typing import TypeVar

    from cuptimem._core import Error as Error

    _Kind = TypeVar("_Kind", bound=BaseException)
else:
    try:
        from cuptimem._core import Error
    except ImportError:

        class Error(RuntimeError):
            """What was asked could not be done; the message is one line."""

            __module__ = "cuptimem"

    # Messages quote paths and names out of traces, and tracebacks print them. The arguments have the exact text.
    Error.__str__ = lambda error: printable(RuntimeError.__str__(error))


def own(*kinds: "type[_Kind]") -> "tuple[type[_Kind], ...]":
    """For `except own(OSError):` in code that runs inside the program: catches what that code itself has raised.

    Python may call a signal handler of the program, or raise what another thread asks for, between any two of our
    lines. That is the program's, whatever its class is, and passes.
    """
    error = sys.exc_info()[1]
    core = sys.modules.get("cuptimem._core")
    return () if error is not None and core is not None and core.of_program(error) else kinds


_WITHOUT_CORE = "; reports that were pickled elsewhere can still be loaded and printed"


def _refuse_free_threading() -> None:
    gil_enabled = getattr(sys, "_is_gil_enabled", None)
    if "t" in getattr(sys, "abiflags", "") or (gil_enabled is not None and not gil_enabled()):
        raise Error(
            "cuptimem neither records nor reads in a free-threaded Python yet; run it with a Python that has the GIL"
            + _WITHOUT_CORE
        )


def core() -> "ModuleType":
    """The C core.

    Raises Error, with what still works, where there is none.
    """
    try:
        from cuptimem import _core
    except ImportError as error:
        if sys.platform != "linux":
            raise Error(
                f"cuptimem needs Linux to record and to read traces (this is {sys.platform}){_WITHOUT_CORE}"
            ) from error
        if "subinterpreter" in str(error):
            raise Error(
                "cuptimem records and reads in the main interpreter only, and this is a subinterpreter"
            ) from error
        _refuse_free_threading()
        raise Error(
            f"the C core of cuptimem does not load in this Python ({error}); install cuptimem with it, in "
            f"its clone: {sys.executable} -m pip install --force-reinstall .{_WITHOUT_CORE}"
        ) from error
    return _core


def recording_core() -> "ModuleType":
    """The C core, where this interpreter can be recorded.

    Raises Error, with what still works, on a free-threaded build.
    """
    _refuse_free_threading()
    return core()
