"""Everything that a capture installs besides itself, in the order that matters, and how it comes off again.

Runs inside the profiled process. Until PyTorch is imported it imports nothing that Python has not loaded by itself: a
script whose folder shadows a standard module still gets its own, and one that never uses PyTorch pays nothing.
"""

import _thread
import sys

from cuptimem import driver_level, garbage

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from cuptimem.recorder import Options


class _TorchArrives:
    """A finder that waits for the first import of torch, gives place to the real hooks, and is gone."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Part of the import system's protocol: what the finders after this one find."""
        global _waiting
        if name != "torch":
            return None
        with _lock:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            if _waiting is not self:  # the capture has ended meanwhile, in another thread
                return None
            _waiting = None
            _install_hooks()
        for finder in list(sys.meta_path):  # the import system's own loop would miss those that were just put in front
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                return spec
        return None


# Torch may arrive in one thread while another one ends the capture. Whoever holds this must not wait for an import: the
# thread in which torch arrives holds the import system's own lock. (Importing what has been imported waits for nobody.)
_lock = _thread.RLock()
_waiting: _TorchArrives | None = None
_hooked = False
_seed_problems: "list[str]" = []
_notes: "dict[str, str]" = {}


def _install_hooks() -> None:
    global _hooked
    from cuptimem import torch_events

    _hooked = True
    torch_events.install()


def install(core: "ModuleType", options: "Options", say: "Callable[[str], None]") -> None:
    """Hooks into PyTorch, or into its arrival, and into CUDA. Before recording starts: what they allocate is not the
    program's. say: told what the user should know of that while recording is on."""
    garbage.watch(core)
    _hook_torch(core)
    driver_level.start(
        core, options, say
    )  # torch.profiler's slots hold our hooks by now: it is told when we are in its way


def _hook_torch(core: "ModuleType") -> None:
    global _waiting
    if "torch" in sys.modules:
        from cuptimem import seed, torch_events  # noqa: F401  before the lock is held

        seed.prepare()
        with _lock:
            _install_hooks()
        return
    core.sources_install()
    with _lock:
        _waiting = _TorchArrives()
        sys.meta_path.insert(0, _waiting)


def look_around(core: "ModuleType") -> None:
    """Records what is alive already. After recording has started: a block that is made during the walk is then seen
    twice, never missed, and the reader lets the recorded event decide."""
    if "torch" in sys.modules:
        from cuptimem import seed

        _seed_problems.extend(seed.seed_alive().problems)
    driver_level.begin(core)


def settle(core: "ModuleType", last: bool = False) -> None:
    """Brings what is recorded elsewhere than in rings into them. last: recording is about to end."""
    driver_level.settle(core, last)


def note_step() -> None:
    """prof.step() ticks: other clocks need not be looked for."""
    if _hooked:
        from cuptimem import torch_events

        torch_events.note_step()


def forget(core: "ModuleType") -> None:
    """In a forked child: nothing waits for torch or for collections any more. Hooks that are in stay; without a capture
    they do nothing, and the child's own capture goes on with them."""
    global _lock
    _lock = _thread.RLock()
    garbage.forget(core)
    driver_level.forget(core)
    _stop_waiting()


def _stop_waiting() -> None:
    global _waiting
    if _waiting is not None:
        if _waiting in (sys.meta_path or ()):  # None once Python tears itself down
            sys.meta_path.remove(_waiting)
        _waiting = None


def remove(core: "ModuleType") -> "list[str]":
    """Takes everything out again; also after an install that failed half-way. What did not work while it was in, one
    line each: the report lacks something for it."""
    global _hooked
    problems = list(_seed_problems)
    _seed_problems.clear()
    garbage.unwatch(core)
    _notes.update(driver_level.stop(core))
    with _lock:
        _stop_waiting()
        if _hooked:
            from cuptimem import torch_events

            problems += torch_events.problems()
            torch_events.remove()
            _hooked = False
    core.sources_remove()
    return problems


def take_notes() -> "dict[str, str]":
    """Meta that is known once everything is out."""
    notes = dict(_notes)
    _notes.clear()
    return notes
