"""Python's cyclic garbage collector while a capture runs: when it ran, and one collection before a window closes.

A tensor in a reference cycle stays alive until a collection. Without knowing when those ran, waiting garbage
resembles a leak. So each is marked in the trace, and before a window closes one more is made, between marks of its own:
what dies in it is held by nothing that still runs. For the windows around it the reader counts those blocks
as alive until the program's own next collection (csrc/analysis/leak_evidence.h). A report in the middle of a window
makes none: asking would change the program. Runs inside the profiled process.
"""

import gc
import sys

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def watch(core: "ModuleType") -> None:
    """From now on collections are marked. Twice is once."""
    if core.garbage_callback not in gc.callbacks:
        gc.callbacks.append(core.garbage_callback)


def unwatch(core: "ModuleType") -> None:
    """Takes our function out of gc.callbacks, unless the program has emptied that list."""
    if core.garbage_callback in gc.callbacks:
        gc.callbacks.remove(core.garbage_callback)


def forget(core: "ModuleType") -> None:
    """In a forked child: its collections are not marked, and one that was running in the parent is not its own."""
    unwatch(core)
    core.garbage_forget()


def collect_finally(core: "ModuleType", enable: bool = False, known: "list[Any] | None" = None) -> bool:
    """The marked collection. Finalizers and weak references' callbacks run as in any other: what they raise goes to
    sys.unraisablehook. None is made from within a collection, nor when Python already tears itself down. enable:
    automatic collection is on from its first moment. known: what _core.graph_garbage has found by now; no other object
    is read then but the youngest. Whether it was made."""
    if sys.is_finalizing():
        return False
    watch(core)  # the program may have emptied the list
    return bool(core.garbage_final(enable, known))
