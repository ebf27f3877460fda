"""The one exception of cuptimem, and the one place where the C core is loaded."""

import sys

from cuptimem.printable import printable

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from types import ModuleType

    from cuptimem._core import Error as Error
else:
    try:
        from cuptimem._core import Error
    except ImportError:

        class Error(RuntimeError):
            """What was asked could not be done; the message is one line."""

            __module__ = "cuptimem"

    # Messages quote paths and names out of traces, and tracebacks print them. The arguments have the exact text.
    Error.__str__ = lambda error: printable(RuntimeError.__str__(error))


_WITHOUT_CORE = "; reports that were pickled elsewhere can still be loaded and printed"


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
        raise Error(
            f"the C core of cuptimem does not load in this Python ({error}); reinstall cuptimem with it: "
            f"{sys.executable} -m pip install --force-reinstall cuptimem{_WITHOUT_CORE}"
        ) from error
    return _core


def recording_core() -> "ModuleType":
    """The C core, where this interpreter can be recorded.

    Raises Error, with what still works, on a free-threaded build.
    """
    gil_enabled = getattr(sys, "_is_gil_enabled", None)
    if "t" in getattr(sys, "abiflags", "") or (gil_enabled is not None and not gil_enabled()):
        raise Error(
            "cuptimem cannot record a free-threaded Python yet; run the script with a Python that has the GIL "
            "(reading traces works here too)"
        )
    return core()
