"""Collections in the trace: their marks, what dies between them, and that nothing of it stays behind."""

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem import _core
from cuptimem.record import garbage, recorder
from tests.conftest import Result

Run = Callable[..., Result]

OPEN, CLOSE, BEGIN, END, FINAL_BEGIN, FINAL_END = 1, 2, 5, 6, 7, 8  # cm_mark_kind
KINDS = {OPEN: "open", CLOSE: "close", BEGIN: "begin", END: "end", FINAL_BEGIN: "final", FINAL_END: "over"}


def marks(path: str | os.PathLike[str]) -> list[tuple[str, int]]:
    """The marks of a trace in their order, by name, with their argument."""
    rows = [row for row in _core.trace_dump(str(path)) if row[0] == "mark"]
    return [(KINDS[row[4]], row[3]) for row in rows if row[4] in KINDS]


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    """Each test begins with nothing to collect and automatic collection off, so that only what it does is marked."""
    before = list(gc.callbacks)
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    assert gc.callbacks == before
    assert not recorder.active()


class Finalized:
    """In a cycle with itself; the function runs when it dies."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function, self.myself = function, self

    def __del__(self) -> None:
        self.function()


def test_marks_in_their_order(tmp_path: Path) -> None:
    """Of every collection, whoever makes it."""
    with cuptimem.profile(tmp_path / "a.cmem"):
        gc.collect(0)
        gc.enable()
        gc.collect(1)
        gc.collect()
        gc.disable()
    found = marks(tmp_path / "a.cmem")
    whole = [pair for pair in found if pair != ("begin", 0) and pair != ("end", 0)]  # Python may make young ones
    assert found[:3] == [("open", 1), ("begin", 0), ("end", 0)]
    assert whole == [
        ("open", 1), ("begin", 1), ("end", 1), ("begin", 2), ("end", 2), ("final", 0), ("over", 0), ("close", 1),
    ]  # fmt: skip


def test_automatic_collections_are_marked(tmp_path: Path) -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(10, 1, 1)
    try:
        with cuptimem.profile(tmp_path / "a.cmem"):
            full = gc.get_stats()[2]["collections"]
            gc.enable()
            kept: list[list[int]] = []
            while gc.get_stats()[2]["collections"] - full < 3:  # a full one waits until there is a quarter more
                kept.extend([] for _ in range(1000))
            gc.disable()
            full = gc.get_stats()[2]["collections"] - full
    finally:
        gc.set_threshold(*thresholds)
    found = marks(tmp_path / "a.cmem")
    assert ("begin", 0) in found and ("begin", 1) in found
    found = [(kind, number) for kind, number in found if kind not in ("begin", "end") or number == 2]
    assert found == [("open", 1), *[("begin", 2), ("end", 2)] * full, ("final", 0), ("over", 0), ("close", 1)]


def test_the_next_profile_has_its_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with cuptimem.profile(tmp_path / f"{name}.cmem"):
            assert gc.callbacks.count(_core.garbage_callback) == 1
        assert marks(tmp_path / f"{name}.cmem") == [("open", 1), ("final", 0), ("over", 0), ("close", 1)]


def test_every_window_collects_as_it_closes(tmp_path: Path) -> None:
    """So a loop has the same verdict in a profile of its own and in one inside another."""
    first, second, third = (cuptimem.profile(tmp_path / f"{name}.cmem") for name in "abc")
    collections = gc.get_stats()[2]["collections"]
    first.start()
    second.start()
    third.start()
    third.stop()
    first.stop()
    assert gc.get_stats()[2]["collections"] == collections + 2
    second.stop()
    assert gc.get_stats()[2]["collections"] == collections + 3
    names = {name: [kind for kind, _ in marks(tmp_path / f"{name}.cmem")] for name in "abc"}
    one = ["final", "over"]
    assert names == {
        "a": ["open", *one, *one, "close"],
        "b": ["open", *one, *one, *one, "close"],
        "c": ["open", *one, "close"],
    }


def test_threads_may_close_together(tmp_path: Path) -> None:
    """Each collects, but one that meets another's collection goes on without."""
    collections = gc.get_stats()[2]["collections"]
    together = threading.Barrier(4)
    profiles = [cuptimem.profile() for _ in range(4)]
    outer = cuptimem.profile(tmp_path / "a.cmem")
    outer.start()
    for one in profiles:
        one.start()
    outer.stop()

    def close(one: cuptimem.Profile) -> None:
        together.wait()
        one.stop()

    threads = [threading.Thread(target=close, args=(one,)) for one in profiles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert collections + 2 <= gc.get_stats()[2]["collections"] <= collections + 5


def test_stop_in_another_thread(tmp_path: Path) -> None:
    prof = cuptimem.profile(tmp_path / "a.cmem")
    prof.start()
    ran: list[str] = []
    Finalized(lambda: ran.append(threading.current_thread().name))
    thread = threading.Thread(target=prof.stop, name="other")
    thread.start()
    thread.join()
    assert ran == ["other"]
    assert [kind for kind, _ in marks(tmp_path / "a.cmem")] == ["open", "final", "over", "close"]


def test_a_finalizer_may_do_what_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise, collect, profile, end the very profile that is being ended."""
    unraisable: list[type[BaseException] | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: unraisable.append(args.exc_type))
    prof = cuptimem.profile(tmp_path / "a.cmem")
    inner: list[cuptimem.Profile] = []

    def fail() -> None:
        raise KeyError("mine")

    def profile() -> None:
        with cuptimem.profile(tmp_path / "b.cmem") as one:
            gc.collect()
        inner.append(one)

    for function in (fail, gc.collect, profile):
        prof = cuptimem.profile(tmp_path / "a.cmem", overwrite=True)
        with prof:
            Finalized(function)
        assert prof.report.complete
        found = marks(tmp_path / "a.cmem")
        assert [kind for kind, _ in found if kind in ("final", "over")] == ["final", "over"]
    assert unraisable == [KeyError]
    assert inner[0].report.complete

    prof = cuptimem.profile(tmp_path / "a.cmem", overwrite=True)
    prof.start()
    Finalized(prof.stop)
    gc.collect()  # ends it from within a collection, in which no other can be made
    assert not recorder.active()
    assert [kind for kind, _ in marks(tmp_path / "a.cmem")] == ["open", "begin", "close"]
    with pytest.raises(RuntimeError, match="not open"):
        prof.stop()


def test_finalizers_and_threads_that_use_profiles_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """The final collection runs with our lock free: a finalizer may wait for a thread that needs it."""

    def elsewhere() -> None:
        thread = threading.Thread(target=cuptimem.profile(tmp_path / "b.cmem")(lambda: None), daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()

    with cuptimem.profile(tmp_path / "a.cmem"):
        done: list[bool] = []
        Finalized(lambda: (elsewhere(), done.append(True)))
    assert done == [True]
    assert cuptimem.open(tmp_path / "b.cmem").complete


def test_an_emptied_list_of_callbacks(tmp_path: Path) -> None:
    before = list(gc.callbacks)
    with cuptimem.profile(tmp_path / "a.cmem"):
        gc.callbacks.clear()
        gc.collect()
    gc.callbacks[:] = before
    assert marks(tmp_path / "a.cmem") == [("open", 1), ("final", 0), ("over", 0), ("close", 1)]


def test_an_interrupt_in_the_collection_still_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(garbage, "collect_finally", interrupted)
    with pytest.raises(KeyboardInterrupt), cuptimem.profile(tmp_path / "a.cmem"):
        pass
    assert not recorder.active()
    assert cuptimem.open(tmp_path / "a.cmem").complete


def test_the_callback_is_for_the_collector() -> None:
    for arguments in [(), ("start",), (1, {}), ("start", [])]:
        with pytest.raises(TypeError, match="collector"):
            _core.garbage_callback(*arguments)
    _core.garbage_callback("start", {})  # a collector that does not say which generation
    with pytest.raises(TypeError):
        _core.garbage_callback("stop", {"generation": "two"})  # type: ignore[dict-item]


@pytest.mark.filterwarnings("ignore:.*multi-threaded")  # pytest's watchdog is a thread
def test_children(tmp_path: Path) -> None:
    """A child of the program, and one that a finalizer forks in the middle of the final collection."""
    path = tmp_path / "a.cmem"

    def child(name: str) -> None:
        if os.fork() == 0:
            status = 1
            try:
                assert _core.garbage_callback not in gc.callbacks
                with cuptimem.profile(tmp_path / name):
                    gc.collect()
                status = 0
            finally:
                os._exit(status)
        assert os.wait()[1] == 0

    with cuptimem.profile(path):
        child("b.cmem")
        Finalized(lambda: child("c.cmem"))
    whole = [("open", 1), ("begin", 2), ("end", 2), ("final", 0), ("over", 0), ("close", 1)]
    assert marks(tmp_path / "b.cmem") == whole
    # In the midst of a collection no other runs, nor can one be made.
    assert marks(tmp_path / "c.cmem") in (
        [("open", 1), ("close", 1)],
        [("open", 1), ("final", 0), ("over", 0), ("close", 1)],
    )
    assert marks(path) == [("open", 1), ("final", 0), ("over", 0), ("close", 1)]


def test_nothing_is_collected_while_python_tears_itself_down(run: Run, tmp_path: Path) -> None:
    """A profile that an exit handler after ours started, ended by a finalizer among the last."""
    program = (
        "import atexit, builtins\n"
        "atexit.register(lambda: late.profile.start())\n"
        "import cuptimem\n"
        "class Late:\n"
        "    def __del__(self): self.profile.stop()\n"
        "with cuptimem.profile(): pass\n"
        "builtins.late = late = Late()\n"  # dies with Python's own names, not as garbage
        "late.profile = cuptimem.profile('late.cmem')\n"
    )
    done = run("-c", program)
    assert (done.code, done.out, done.err) == (0, "", "")
    kinds = [kind for kind, _ in marks(tmp_path / "late.cmem")]
    assert (kinds[0], kinds[-1]) == ("open", "close")
    assert not {"final", "over"} & set(kinds)  # Python's own collections are there


def test_a_run_ends_with_one_while_the_globals_live(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        "import atexit, gc\n"
        "class Cycle:\n"
        "    def __init__(self, name): self.name, self.me = name, self\n"
        "    def __del__(self): print('dies', self.name, kept is not None, flush=True)\n"
        "kept = Cycle('kept')\n"
        "atexit.register(print, 'exit', flush=True)\n"
        "gc.disable()\n"
        "Cycle('garbage')\n"
    )
    bare = run("s.py")
    done = run("-m", "cuptimem", "run", "-q", "-o", "a.cmem", "s.py")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:2] == ["exit", "dies garbage True"]
    assert bare.out.splitlines()[0] == "exit"
    kinds = [kind for kind, _ in marks(tmp_path / "a.cmem")]
    assert (kinds[0], kinds[-3:]) == ("open", ["final", "over", "close"])
    assert set(kinds[1:-3]) <= {"begin", "end"}  # Python's own, until the program switches them off


# -- tensors -------------------------------------------------------------------------------------------------------

TENSORS = """
import gc
import torch, cuptimem
gc.collect(); gc.disable()

class Cycle:
    def __init__(self, kib):
        self.me, self.block = self, torch.empty(kib * 1024, dtype=torch.uint8)

def frozen():
    Cycle(3)
    gc.freeze()

with cuptimem.profile("a.cmem") as prof:
    frozen()
    Cycle(1); Cycle(2)
    gc.collect()
    kept = Cycle(5)
    for kib in (7, 11):
        Cycle(kib)
print(prof.report.device("cpu").end)
"""


@pytest.mark.torch
def test_what_dies_in_the_final_collection_dies_between_its_marks(forked: Run, tmp_path: Path) -> None:
    done = forked("-c", TENSORS)
    assert done.code == 0, done.err
    assert int(done.out) == (3 + 5) * 1024  # frozen ones, and what the program still holds
    sizes: dict[int, int] = {}
    died: dict[str, list[int]] = {"": []}
    between = ""
    for row in _core.trace_dump(str(tmp_path / "a.cmem")):
        kind, address, size = row[0], row[3], row[4]
        if kind == "mark" and size in KINDS:
            between = KINDS[size]
        elif kind == "alloc":
            sizes[address] = size
        elif kind == "free" and address in sizes:
            died.setdefault(between, []).append(sizes.pop(address) // 1024)
    assert {between: sorted(kib) for between, kib in died.items() if kib} == {"begin": [1, 2], "final": [7, 11]}


OLD_CYCLE = """
import gc, sys, torch
import cuptimem
from cuptimem import _core

class Node:
    pass

def make(kib):
    node = Node()
    node.myself, node.kept = node, torch.ones(kib * 256)
    return node

gc.disable()
kept = []
with cuptimem.profile("a.cmem"):
    kept.append(torch.ones(3 * 256))
    node = make(7)
    inner = (make(11), [node])  # a tuple leads to it, and nothing to that
    gc.collect()  # it is old from now on
    del node, inner
    kept.append(make(5))
    before = [row["collections"] for row in gc.get_stats()]
print(*(row["collections"] - then for row, then in zip(gc.get_stats(), before)))
"""


@pytest.mark.torch
def test_the_final_collection_reads_only_what_the_search_found_to_be_garbage(forked: Run, tmp_path: Path) -> None:
    done = forked("-c", OLD_CYCLE)
    assert done.code == 0, done.err
    if sys.version_info < (3, 14):
        assert done.out.split() == ["1", "0", "0"]  # of each generation
    alive: dict[int, int] = {}
    between = ""
    died = []
    for row in _core.trace_dump(str(tmp_path / "a.cmem")):
        kind, address, size = row[0], row[3], row[4]
        between = KINDS.get(size, between) if kind == "mark" else between
        if kind == "alloc":
            alive[address] = size // 1024
        elif kind == "free" and address in alive:
            died.append((between, alive.pop(address)))
    assert died == [("final", 7), ("final", 11)] or died == [("final", 11), ("final", 7)]
    assert sorted(alive.values()) == [3, 5]


@pytest.mark.torch
def test_a_graph_knows_what_a_collection_frees() -> None:
    class Node:
        def __init__(self, *parts: object) -> None:
            self.parts = [*parts, self]

    alive, held = Node(), Node()
    cycles = [Node(alive), Node(Node())]
    wanted = {id(one) for node in (*cycles, cycles[1].parts[0]) for one in (node, node.parts)}
    in_c = iter([held])  # leads to it, and is found as what C holds
    del cycles, held
    graph = _core.object_graph(gc.get_objects)
    found = _core.graph_garbage(graph)
    assert found is not None
    ids = {id(one) for one in found}
    assert wanted <= ids and id(alive) not in ids and id(next(in_c)) not in ids
    pairs = _core.graph_referrers(graph, [alive.parts], 1 << 10)
    assert any(one is alive or one is alive.__dict__ for one in pairs[::2]) and {*map(id, pairs[1::2])} == {
        id(alive.parts)
    }
    assert len(_core.graph_referrers(graph, [alive, alive.parts], 1)) == 2
    assert _core.graph_garbage(_core.object_graph([alive])) is None  # it has not all objects
