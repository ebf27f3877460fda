"""Everything that a capture installs besides itself, in the order that matters, and how it comes off again.

Runs inside the profiled process. Until PyTorch is imported it imports nothing that Python has not loaded by itself: a
script in a folder that shadows a standard module gets its own one, and a program that never uses PyTorch pays nothing.
"""

import _thread
import sys
import time

from cuptimem.errors import own
from cuptimem.record import driver_level, garbage

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any

    from cuptimem.record.checkpoints import Mapped
    from cuptimem.record.late_import import ImportWatch
    from cuptimem.record.recorder import HolderSearch, Options


# Torch may arrive in one thread while another one ends the capture. The lock's holder must not wait for an import:
# the thread in which torch arrives holds the import system's own lock. (Importing a loaded module does not wait.)
_lock = _thread.RLock()
_DUE_WALK, _DUE_LOOK, _DUE_LOOK_SOONER, _DUE_SLICE = 1, 2, 4, 8  # _core.walks_due
_waiting: "ImportWatch | None" = None  # for torch, and for what starts processes
_hooked = False
_exit_watched = False
_walks = False  # whether names of what is alive are wanted
_look_early: "Callable[[bool], object] | None" = None  # starts the early holder search; None: off
_first_step: "float | None" = None  # when it ended
_mapped: "Mapped | None" = None  # what is known of mapped checkpoints
_problems: "list[str]" = []
_notes: "dict[str, str]" = {}


_operators = False  # asked for


def _watch_exit() -> None:
    """Marks where the program is over and its exit handlers begin. Of these, the one registered last runs first: Python
    calls back before it waits for the program's threads, and runs the handlers behind that."""
    global _exit_watched
    import atexit

    from cuptimem import _core

    def mark() -> None:
        _core.mark(_core.MARK_EXIT)

    def last() -> None:
        atexit.register(_core.process_at_exit(mark))

    call_back = getattr(sys.modules.get("threading"), "_register_atexit", None)
    if call_back is not None and not _exit_watched:
        try:
            call_back(_core.hidden(last))
            _exit_watched = True
        except own(RuntimeError):  # it is under way
            return


def _install_hooks() -> None:
    global _hooked
    from cuptimem.record import torch_events

    _watch_exit()

    _hooked = True
    torch_events.install(_operators)
    if _look_early is not None:
        # Now: the objects that an import makes would bring Python's next collection forward, in the middle of a loop.
        from cuptimem.objects import near
        from cuptimem.record import checkpoints, holder_search  # noqa: F401  for what their import does

        near.own_modules()  # only what is imported later is looked at in a step
    if _walks or _look_early is not None:
        from cuptimem.objects import walks

        walks.start(_step_ended)


def seconds_of_steps() -> float:
    """Since the first step's end; 0 where that was not seen."""
    return time.monotonic() - _first_step if _first_step is not None else 0


def _step_ended() -> None:
    """Runs what is due after a step, in the program's thread: csrc/python/py_walks.h decides."""
    global _first_step
    from cuptimem import _core

    if _first_step is None:
        _first_step = time.monotonic()
    due = _core.walks_due()
    if due == _DUE_SLICE:
        from cuptimem.objects import slices

        slices.go_on()
    elif due & _DUE_SLICE:
        _core.walks_more()  # one after a step
    if due & _DUE_WALK:
        look_at_names()
    if due & (_DUE_WALK | _DUE_LOOK | _DUE_LOOK_SOONER):
        _look_at_mapped_files()
    if due & (_DUE_LOOK | _DUE_LOOK_SOONER) and _look_early is not None:
        _look_early(not due & _DUE_LOOK)


def install(
    core: "ModuleType", options: "Options", say: "Callable[[str], None]", look_early: "Callable[[bool], object]"
) -> None:
    """Hooks into PyTorch, or into its arrival, and into CUDA. Before recording starts: what they allocate is not the
    program's. say: gets what the user should know while recording is on. look_early: called after some of the
    program's steps, for who holds what grows, with whether it is only due in a long recording."""
    global _operators, _walks, _look_early, _first_step
    _operators, _walks, _first_step = options.operators, options.walks, None
    _look_early = look_early if options.holders else None
    garbage.watch(core)
    _watch_imports(core)
    _hook_torch(core)
    # After _hook_torch: our hooks in torch.profiler's slots give CUPTI up when it asks.
    driver_level.start(core, options, say)


def _watch_imports(core: "ModuleType") -> None:
    """Watches for torch, and for the modules with which subprocess and multiprocessing start processes."""
    global _waiting
    from cuptimem.record.late_import import ImportWatch

    processes = "_posixsubprocess"
    if processes in sys.builtin_module_names:  # then its import cannot be observed
        core.process_watch(__import__(processes))
        processes = ""
    with _lock:
        _waiting = ImportWatch(
            {processes: core.process_watch} if processes else {},
            lambda name, error: _problems.append(f"{name}: {type(error).__name__}: {error}"),
            {} if "torch" in sys.modules else {"torch": _torch_arrives},
        )
        _waiting.start()


def _torch_arrives() -> None:
    with _lock:
        if _waiting is not None:  # else the capture has ended meanwhile, in another thread
            _install_hooks()


def _hook_torch(core: "ModuleType") -> None:
    if "torch" not in sys.modules:
        core.sources_install()
        return
    from cuptimem.objects import seed
    from cuptimem.record import torch_events  # noqa: F401  before the lock is held

    seed.prepare()
    with _lock:
        _install_hooks()


def prepare() -> None:
    """Loads and calibrates, in any thread, what install and look_around would otherwise. Once torch is imported."""
    if "torch" not in sys.modules:
        return
    from cuptimem.objects import near, seed, walks  # noqa: F401
    from cuptimem.record import checkpoints, filling, holders, late_import, torch_events  # noqa: F401

    near.own_modules()
    seed.prepare()


def look_around(core: "ModuleType") -> None:
    """Records what is alive already. After recording has started: a block that is made during the walk is then seen
    twice, never missed, and the reader lets the recorded event decide."""
    if "torch" in sys.modules:
        from cuptimem.objects import living, seed

        found: list[tuple[int, Any]] = []
        with living.no_collection():  # which would mix the ages by which modules of one class are numbered
            _problems.extend(seed.seed_alive(found).problems)
            look_at_names(found)
    else:
        core.mark(core.MARK_SEEDED, 0)  # there will be no walk, so readers need not search for one
    driver_level.begin(core)


def look_at_names(found: "list[tuple[int, Any]] | None" = None) -> None:
    """Records what the modules and tensors that are alive are called: see walks.record."""
    if _walks and "torch" in sys.modules:
        from cuptimem.objects import walks

        walks.record(found)


def look_at_the_end(core: "ModuleType") -> None:
    """Records what is only known of living objects before a window closes."""
    torch = sys.modules.get("torch")
    if not hasattr(torch, "UntypedStorage"):  # it is being imported
        return
    from cuptimem.objects import living

    with living.no_collection():  # as in look_around
        found: list[tuple[int, Any]] | None = None
        try:  # nothing of this may reach the program
            from cuptimem.record import filling

            rows = living.find(torch, living.all_objects(), containers=True)
            filling.note(core, [item for kind, item in rows if kind == living.CONTAINER])
            found = [row for row in rows if row[0] != living.CONTAINER]
            rows.clear()
        except own(Exception) as error:
            _problems.append(f"containers that are filling are not known: {type(error).__name__}: {error}")
        look_at_names(found)
        _look_at_mapped_files(found)


def _look_at_mapped_files(found: "list[tuple[int, Any]] | None" = None) -> None:
    from cuptimem.objects import slices

    parts = _parts_of_mapped(found)
    if found is None:
        slices.add("mapped", parts)
    else:
        for _ in parts:
            continue


def _parts_of_mapped(found: "list[tuple[int, Any]] | None") -> "Iterator[None]":
    global _mapped
    try:  # nothing of this may reach the program
        from cuptimem.objects import living
        from cuptimem.record import checkpoints

        if _mapped is None:
            _mapped = checkpoints.Mapped()
        parts = _mapped.look(sys.modules["torch"], found)
        goes_on = True
        while goes_on:
            with living.no_collection():
                goes_on = next(parts, parts) is None
            if goes_on:
                yield
    except own(Exception) as error:
        problem = f"mapped checkpoints are not known: {type(error).__name__}: {error}"
        if problem not in _problems:
            _problems.append(problem)


def look_for_holders(core: "ModuleType", look: "HolderSearch") -> None:
    """Records who holds what grows, if anything does; early: in slices. Only a signal's handler raises."""
    if "torch" not in sys.modules:
        return
    from cuptimem.objects import slices

    parts = _parts_of_look(core, look)
    if look.early:
        slices.add("search", parts)
    else:
        for _ in parts:
            continue


def read_growth(core: "ModuleType", look: "HolderSearch") -> object:
    """See holder_search.read_growth. None: it is not known."""
    from cuptimem.record import holder_search

    try:
        return holder_search.read_growth(core, look)
    except own(Exception) as error:  # as in _parts_of_look
        _problems.append(f"growth is not known before the end: {type(error).__name__}: {error}")
        return None


def look_and_collect(core: "ModuleType", look: "HolderSearch", collect: "Callable[[bool], bool]") -> None:
    """The same, then this collection, and none in between that the search's own objects would start. collect: gets
    whether it is to turn automatic collection on."""
    if "torch" not in sys.modules:
        collect(False)
        return
    from cuptimem.objects import living

    with living.no_collection() as user:
        look_for_holders(core, look)
        living.collect_instead(user, collect)


def _parts_of_look(core: "ModuleType", look: "HolderSearch") -> "Iterator[None]":
    try:
        from cuptimem.objects import living
        from cuptimem.record import holder_search

        parts = holder_search.note_in_slices(core, look)
        goes_on = True
        while goes_on:
            with living.no_collection():  # garbage of the program's waits as long as it would without this
                goes_on = look.goes_on(parts)
            if goes_on:
                yield
    except own(Exception) as error:  # nothing of this may reach the program, but what its signal handlers raise
        problem = f"holders are not known: {type(error).__name__}: {error}"
        if problem not in _problems and not look.is_over:
            _problems.append(problem)


def flush(core: "ModuleType", last: bool = False) -> None:
    """Writes what is recorded outside of the rings into them. last: recording is about to end."""
    driver_level.flush(core, last)


def forget(core: "ModuleType") -> None:
    """In a forked child: nothing waits for torch or for collections any more. Hooks that are in stay; without a capture
    they do nothing, and the child's own capture goes on with them."""
    global _lock
    _lock = _thread.RLock()
    garbage.forget(core)
    if "cuptimem.objects.living" in sys.modules:
        from cuptimem.objects import living

        living.forget()
    driver_level.forget(core)
    _stop_waiting()


def _stop_waiting() -> None:
    global _waiting
    if _waiting is not None:
        _waiting.stop()
        _waiting = None


def remove(core: "ModuleType") -> "list[str]":
    """Takes everything out again; also after an install that failed half-way. What did not work while it was in, one
    line each: the report lacks something for it."""
    global _hooked, _mapped
    _mapped = None
    problems = list(_problems)
    _problems.clear()
    garbage.unwatch(core)
    _notes.update(driver_level.stop(core))
    with _lock:
        _stop_waiting()
        if _hooked:
            from cuptimem.record import torch_events

            problems += torch_events.problems()
            torch_events.remove()
            if "cuptimem.objects.walks" in sys.modules:
                from cuptimem.objects import walks

                problems += walks.stop()
            _hooked = False
    core.sources_remove()
    return problems


def take_notes() -> "dict[str, str]":
    """Meta that is known once everything is out."""
    notes = dict(_notes)
    _notes.clear()
    return notes
