"""Whether a recorded program has begun. Part of every recording: imports nothing that Python has not loaded."""

import os
import sys

from cuptimem import interpreter
from cuptimem.errors import Error, own, recording_core
from cuptimem.record import refusals

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Mapping

_FEW_EVENTS = 10_000  # a program that fails in its imports has recorded less


class Program:
    """What this interpreter was asked to run, seen before it runs."""

    def __init__(self) -> None:
        self._words = interpreter.split(sys.orig_argv[1:])[1]
        first = self._words[:1]
        self._is_module = first == ["-m"] or (first != [] and os.path.isdir(first[0]))
        self._is_readable = first in ([], ["-"], ["-c"], ["-m"]) or os.access(first[0], os.R_OK)

    def remove_empty(self, trace: str, counts: "Mapping[str, int]") -> bool:
        """At exit: removes a trace that holds nothing because the program never began, or failed in an import or by its
        syntax before its first allocation. counts: recorder.last_counts. Whether it was removed."""
        if not self._failed_early() or counts.get("foreign") or counts.get("events", 0) > _FEW_EVENTS:
            return False
        try:
            found = recording_core().analyze(trace)
            if found["allocations"] or found["driver"]["allocations"]:
                return False
            os.unlink(trace)
        except own(Error, OSError):  # the trace stays, and the closing line reports its state
            return False
        return True

    def _failed_early(self) -> bool:
        error = refusals.ended_program()
        return (
            not self._is_readable
            or (error is not None and issubclass(type(error), (ImportError, SyntaxError)))
            or (self._is_module and not _has_module_begun())
        )


def _has_module_begun() -> bool:
    """Whether __main__ names a module: runpy, pdb and cProfile set that just before it runs."""
    names = getattr(sys.modules.get("__main__"), "__dict__", {})
    return names.get("__spec__") is not None or "__file__" in names
