"""Who holds a leak: paths on small programs and on the leak programs.

PYTEST_DONT_REWRITE: rewritten assertions keep what they compare in local variables of their own.
"""

import collections
import functools
import gc
import json
import os
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cuptimem  # noqa: E402  behind torch's presence
from cuptimem import _core, cli  # noqa: E402
from cuptimem.objects import living, referrers  # noqa: E402
from cuptimem.output.text import text, views  # noqa: E402
from cuptimem.record import holder_search, holders, recorder  # noqa: E402
from cuptimem.report.leaks import Holder  # noqa: E402
from tests.conftest import Result  # noqa: E402

pytestmark = pytest.mark.torch

BYTES = 1024


class Keeper:
    kept: list[Any] = []

    def __init__(self) -> None:
        self.history: list[Any] = []


class Hostile:
    """Raises whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]

    @property
    def __class__(self) -> Any:
        raise RuntimeError


def paths_of(address: int) -> list[str]:
    (found,) = holders.find([holders.Want([(address, BYTES)])])
    return [one.path for one in found]


def new() -> Any:
    return torch.ones(BYTES // 4)


KEPT: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    yield
    KEPT.clear()
    Keeper.kept.clear()


def module(path: str) -> str:
    return f"{path} in module tests.record.holders.test_holders"


def test_global_and_items() -> None:
    KEPT["loss"] = [new(), (new(),)]
    assert paths_of(KEPT["loss"][0].data_ptr()) == [module("KEPT") + " → dict['loss'] → list[0]"]
    assert paths_of(KEPT["loss"][1][0].data_ptr()) == [module("KEPT") + " → dict['loss'] → list[1] → tuple[0]"]


def test_local_attribute_and_class() -> None:
    keeper = Keeper()
    keeper.history.append(new())
    assert paths_of(keeper.history[0].data_ptr()) == [
        "keeper.history (Keeper) in test_local_attribute_and_class() → list[0]"
    ]
    Keeper.kept.append(new())
    assert paths_of(Keeper.kept[0].data_ptr()) == ["Keeper.kept (class) → list[0]"]


def test_bounded_deque() -> None:
    recent: collections.deque[Any] = collections.deque([new(), new()], maxlen=1000)
    assert paths_of(recent[1].data_ptr()) == ["recent in test_bounded_deque() → deque(maxlen=1000)[1]"]


@pytest.mark.parametrize(("bound", "inside"), [(1000, ""), (None, " → dict['a']")])
def test_a_cache(bound: int | None, inside: str) -> None:
    """Its bound says whether it may be the leak."""
    cached = functools.lru_cache(bound)(lambda key: new())
    address = cached("a").data_ptr()
    assert paths_of(address) == [f"cached in test_a_cache() → lru_cache(maxsize={bound}){inside}"]


def closure() -> tuple[Any, int]:
    history = [new()]
    return (lambda: history), history[0].data_ptr()


def test_closure_cell() -> None:
    step, address = closure()
    assert paths_of(address) == [
        "step in test_closure_cell() → closure history of closure.<locals>.<lambda>() → list[0]"
    ]
    assert step() is not None


def test_generator() -> None:
    def batches() -> Iterator[int]:
        held = new()
        yield held.data_ptr()

    running = batches()
    assert paths_of(next(running)) == ["running in test_generator() → held in batches() (a generator)"]


def test_traceback_of_an_exception() -> None:
    def fail() -> None:
        held = new()
        raise ValueError(held.data_ptr())

    try:
        fail()
    except ValueError as error:
        kept = error
    (path,) = paths_of(kept.args[0])
    assert path == "kept in test_traceback_of_an_exception() → traceback → held in fail()"


def test_reference_cycle() -> None:
    def make() -> int:
        node, other = Keeper(), Keeper()
        node.next, other.previous = other, node  # type: ignore[attr-defined]
        other.value = new()  # type: ignore[attr-defined]
        return int(other.value.data_ptr())  # type: ignore[attr-defined]

    gc.disable()
    try:
        (path,) = paths_of(make())
    finally:
        gc.enable()
    assert path.startswith("only a reference cycle: Keeper.") and ".next" in path and ".previous" in path


class Metric:
    def __init__(self) -> None:
        update = self.update

        @functools.wraps(update)
        def counted() -> None:
            update()

        self.update = counted  # type: ignore[method-assign]  # what is tested
        self.seen = [new()]

    def update(self) -> None: ...


def test_a_wrapped_method_of_an_object_in_a_cycle_is_no_name() -> None:
    """functools.wraps gives what the call has made the name of the class's function."""
    gc.disable()
    try:
        (path,) = paths_of(Metric().seen[0].data_ptr())
    finally:
        gc.enable()
    assert path.startswith("only a reference cycle: Metric.update"), path


def test_among_too_many_objects_the_nearest_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referrers, "_GRAPH", 1000)
    keeper = Keeper()
    keeper.history.append(new())
    found = paths_of(keeper.history[0].data_ptr())
    assert found == ["keeper.history (Keeper) in test_among_too_many_objects_the_nearest_are_searched() → list[0]"]
    search = referrers.Search()
    assert search.garbage() is None  # of some objects: a collection reads all
    search.close()
    loop = [new()]
    loop.append(loop)
    address = loop[0].data_ptr()
    gc.disable()
    try:
        del loop  # no name leads to it: it was not come to, which says nothing of who holds it
        assert paths_of(address) == [referrers.NOT_SEARCHED]
    finally:
        gc.enable()


def test_graph_of_a_kept_loss() -> None:
    layer = torch.nn.Linear(16, 16)
    losses = []
    x = torch.ones(16, 16)
    hidden = layer(x).exp()
    address = hidden.data_ptr()
    losses.append((hidden * 2).sum())
    del hidden
    (path,) = paths_of(address)
    assert path.startswith("losses in test_graph_of_a_kept_loss() → list[0] → .grad_fn → SumBackward0")
    assert path.endswith("saved by ExpBackward0")


def test_the_gradient_of_an_input_that_only_a_graph_has() -> None:
    leaf = torch.ones(BYTES // 4, requires_grad=True)
    (leaf * 2).sum().backward()
    gradient = leaf.grad.data_ptr()
    KEPT["mean"] = (leaf * leaf).mean()
    del leaf
    (path,) = paths_of(gradient)
    assert path.startswith(module("KEPT") + " → dict['mean'] → .grad_fn") and path.endswith(" → .grad"), path


def test_buffers_of_modules() -> None:
    net = torch.nn.Sequential(torch.nn.BatchNorm1d(BYTES // 4))
    address = net[0].running_mean.data_ptr()
    assert paths_of(address) == ["net.0.running_mean (BatchNorm1d) in test_buffers_of_modules()"]


def test_results_of_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    result = new()
    address = result.data_ptr()
    vars(main).update(Out={3: result}, _3=result, get_ipython=None)
    del result
    monkeypatch.setitem(sys.modules, "__main__", main)
    (path,) = paths_of(address)
    assert path in ("Out[3]", "_3")


def test_several_blocks_are_one_path() -> None:
    losses = [new() for _ in range(36)]
    want = holders.Want([(one.data_ptr(), BYTES) for one in losses])
    (found,) = holders.find([want])
    assert found == (Holder("losses in test_several_blocks_are_one_path() → list[0:36]", 36, 36 * BYTES),)


def test_shares_are_of_all_that_was_searched_for() -> None:
    """Three of six equal holders by name, and what is left."""
    one, two, three, four, five, six = each = [new() for _ in range(6)]
    want = holders.Want([(tensor.data_ptr(), BYTES) for tensor in each])
    del each
    (found,) = holders.find([want])
    where = "in test_shares_are_of_all_that_was_searched_for()"
    assert found == (
        *(Holder(f"{name} {where}", 1, BYTES) for name in ("five", "four", "one")),
        Holder("others", 3, 3 * BYTES),
    )
    assert len({id(tensor) for tensor in (one, two, three, four, five, six)}) == 6


def test_a_name_that_the_next_pass_reads_holds_a_graph() -> None:
    """`out` reaches the same nodes, until the next pass assigns it anew."""
    layer, hidden, found = torch.nn.Linear(16, 16), torch.ones(16, 16), []
    for _ in range(3):
        out = layer(hidden)
        hidden = out.exp()
        address = out.data_ptr()
        (found,) = holders.find([holders.Want([], 6, 6000, {address, hidden.data_ptr()})])
    assert found[0].path.startswith("hidden in test_a_name_that_the_next_pass_reads_holds_a_graph() → .grad_fn")


def test_a_list_goes_before_a_variable_of_one_pass() -> None:
    kept: dict[str, list[Any]] = {"outputs": []}
    for _ in range(2):
        output = new()
        kept["outputs"].append(output)
        found = paths_of(output.data_ptr())
    assert found == ["kept in test_a_list_goes_before_a_variable_of_one_pass() → dict['outputs'] → list[1]"]


def test_a_small_view_of_a_large_block_is_called_so() -> None:
    rows, whole = [], []
    for _ in range(4):
        batch = torch.ones(64, 1024)
        rows.append(batch[0])
        whole.append(batch.data_ptr())
    del batch
    (found,) = holders.find([holders.Want([(address, 64 * 4096) for address in whole])])
    (path,) = [one.path for one in found]
    assert path.endswith("list[0:4]: views of 4.0 KiB that keep 256.0 KiB each (.clone() them)")
    also = rows[0].view(32, 32)._base
    (found,) = holders.find([holders.Want([(whole[0], 64 * 4096)])])
    assert ".clone()" not in found[0].path and also.nbytes == 64 * 4096


def test_an_expanded_row_counts_once() -> None:
    batch = torch.ones(64, 1024)
    row, address = batch[:1].expand(64, 1024), batch.data_ptr()
    del batch
    (found,) = holders.find([holders.Want([(address, 64 * 4096)])])
    assert found[0].path.endswith(
        "row in test_an_expanded_row_counts_once(): a view of 4.0 KiB that keeps 256.0 KiB (.clone() it)"
    )
    assert row.numel() == 64 * 1024


def test_a_numpy_array_of_a_view() -> None:
    """The collector sees no arrays, and so not what they refer to."""
    batch = torch.ones(64, 1024)
    array, address = batch[0].numpy(), batch.data_ptr()
    del batch
    (found,) = holders.find([holders.Want([(address, 64 * 4096)])])
    assert found[0].path.endswith(
        "array in test_a_numpy_array_of_a_view(): a view of 4.0 KiB that keeps 256.0 KiB (.clone() it)"
    )
    assert array.size == 1024


@pytest.mark.parametrize("objects", [1 << 22, 100])
def test_numpy_arrays_in_containers(monkeypatch: pytest.MonkeyPatch, objects: int) -> None:
    """Also among the nearest objects alone, and an array of an array."""
    monkeypatch.setattr(referrers, "_GRAPH", objects)
    keeper, loss, row = Keeper(), new(), new()
    keeper.history += [{"loss": loss.numpy()[None]}, {"rows": (row.numpy(), 1)}]
    addresses = [one.data_ptr() for one in (loss, row)]
    del loss, row
    gc.collect()  # which stops tracking the tuple
    history = "keeper.history (Keeper) in test_numpy_arrays_in_containers() → list"
    paths = [f"{history}[0] → dict['loss'] → ndarray", f"{history}[1] → dict['rows'] → tuple[0] → ndarray"]
    assert [path for address in addresses for path in paths_of(address)] == paths


@pytest.mark.parametrize("objects", [1 << 22, 100])
def test_an_array_of_objects(monkeypatch: pytest.MonkeyPatch, objects: int) -> None:
    """A replay memory of transitions, also behind a view and in a dictionary that nothing tracks."""
    numpy = pytest.importorskip("numpy")
    monkeypatch.setattr(referrers, "_GRAPH", objects)
    keeper, memory = Keeper(), numpy.empty(50, dtype=object)
    memory[3], memory[4] = (new(), 1), {"state": new()}
    keeper.history.append({"of": memory[1:], "size": 50})
    addresses = [memory[3][0].data_ptr(), memory[4]["state"].data_ptr()]
    del memory
    gc.collect()
    history = "keeper.history (Keeper) in test_an_array_of_objects() → list[0] → dict['of'] → ndarray → ndarray"
    assert [path for address in addresses for path in paths_of(address)] == [
        f"{history}[3] → tuple[0]",
        f"{history}[4] → dict['state']",
    ]


def test_what_an_array_of_objects_has_is_no_garbage() -> None:
    """A collection does not look into it."""
    numpy = pytest.importorskip("numpy")
    memory = numpy.empty(3, dtype=object)
    memory[0] = ring = [memory]
    key = id(ring)
    del ring, memory
    search = referrers.Search()
    found = search.garbage()
    search.close()
    assert found is not None and all(id(one) != key for one in found)
    next(one for one in gc.get_objects() if id(one) == key).clear()


def test_untracked_tuples_in_one_another_cost_little() -> None:
    """A beam's back pointers, deeper than C's stack, and pairs of pairs: more ways than could be gone."""
    chain: Any = ()
    for i in range(300_000):
        chain = (i, chain)
    pairs: Any = (1,)
    for _ in range(60):
        pairs = (pairs, pairs)
    gc.collect()
    found = new()
    assert paths_of(found.data_ptr()) == ["found in test_untracked_tuples_in_one_another_cost_little()"]
    while chain:  # Python frees a chain as deep as that by itself, but slowly
        chain = chain[1]
    assert pairs


def test_an_array_of_a_variable_beside_an_optimizer() -> None:
    layer, kept = torch.nn.Linear(4, 4), [new()]
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    part = kept[0].numpy()[1:]
    weight = layer.weight.data_ptr()
    del layer
    assert paths_of(weight)[0].startswith("optimizer")
    assert part.size == BYTES // 4 - 1


def test_a_tensor_of_an_array_is_no_garbage_with_what_has_the_array() -> None:
    cycle: list[Any] = [new().numpy()]
    cycle.append(cycle)
    owner = _core.array_owner(cycle[0])
    key, kept = id(owner), cycle[0]
    del owner
    del cycle
    search = referrers.Search()
    found = search.garbage()
    search.close()
    assert found is not None and kept.size == BYTES // 4
    assert any(type(one) is list and one and one[0] is kept for one in found)
    assert all(id(one) != key for one in found)


def test_runs_no_code_of_the_program() -> None:
    hostile = Hostile()
    object.__getattribute__(hostile, "__dict__")["tensor"] = new()
    kept = {0: [hostile]}
    address = object.__getattribute__(hostile, "__dict__")["tensor"].data_ptr()
    assert paths_of(address) == ["hostile.tensor (Hostile) in test_runs_no_code_of_the_program()"]
    assert len(kept) == 1


def test_keeps_nothing_alive_and_leaves_the_process_as_it_was() -> None:
    interval, collecting = sys.getswitchinterval(), gc.isenabled()
    layer = torch.nn.Linear(4, 4)
    loss = layer(torch.ones(2, 4)).exp().sum()
    held = [new()]
    dies = weakref.ref(held[0])
    holders.find([holders.Want([(held[0].data_ptr(), BYTES)]), holders.Want([(1, 1)])])
    del held
    assert dies() is None and loss is not None
    assert (sys.getswitchinterval(), gc.isenabled()) == (interval, collecting)


# -- early looks ---------------------------------------------------------------------------------------------------


def train(steps: int, each: Callable[[int], None] = lambda step: None, keep: bool = True) -> None:
    """The losses go when it returns."""
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        layer(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        if keep:
            losses.append(new())
        each(step)


EARLY = "losses in train() → list[0:23]"  # in step 24


def paths(report: cuptimem.Report) -> list[str]:
    return [one.path for leak in report.leaks for one in leak.holders]


def test_variables_of_functions_that_have_returned() -> None:
    with cuptimem.profile() as prof:
        train(40)
    assert paths(prof.report) == [EARLY]


def test_what_each_step_replaces_is_searched_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording is read beside the program: what it has alive by then is gone when the search looks for it."""
    readings: list[Any] = []

    class Reading(holder_search._Reading):
        def __init__(self, *arguments: Any) -> None:
            readings.append(self)
            super().__init__(*arguments)

    def grow() -> None:
        bank = {"rows": torch.empty(0, 64)}

        def each(step: int) -> None:
            for reading in readings:
                for _ in range(10_000):
                    if reading.is_done:
                        break
                    time.sleep(0.001)
            bank["rows"] = torch.cat([bank["rows"], torch.ones(16, 64)])

        train(40, each, keep=False)

    monkeypatch.setattr(holder_search, "_EVENTS_TOGETHER", 200)
    monkeypatch.setattr(holder_search, "_Reading", Reading)
    with cuptimem.profile() as prof:
        grow()
    assert readings
    assert paths(prof.report) == ["bank in grow() → dict['rows']"]


def test_what_backward_makes_on_a_forward_line() -> None:
    """Backward's blocks lie on the forward line, and have holders of their own."""
    models, outputs = [], []
    with cuptimem.profile() as prof:
        for _ in range(40):
            layer = torch.nn.Linear(64, 64, bias=False)
            output = layer(torch.ones(64, 64))
            output.sum().backward()
            outputs.append(output.detach())
            models.append(layer)
            prof.step()
    held = {(one.where, one.backward): [holder.path for holder in one.holders] for one in prof.report.leaks}
    (gradients,) = [paths for (_, backward), paths in held.items() if backward]
    assert all("models" in path and path.endswith(".grad") for path in gradients)
    (made,) = [paths for (_, backward), paths in held.items() if not backward and "outputs" in str(paths)]
    assert all("models" not in path for path in made)


def test_gradients_do_not_hold_a_graph_that_is_gone() -> None:
    """They lie on the line whose activations the graph kept."""
    cell = torch.nn.RNNCell(64, 64)

    def train() -> None:
        state = torch.zeros(64, 64)
        for _ in range(20):  # too few for a search while it runs
            state = cell(state.clone(), state)
            cell.zero_grad()
            state.mean().backward(retain_graph=True)

    with cuptimem.profile() as prof:
        train()
    leaks = prof.report.leaks
    assert any(leak.keeps for leak in leaks)
    assert [one for leak in leaks for row in (leak, *leak.keeps) for one in row.holders] == []


PREDICTS = """
import torch
def predict():
    layer, found = torch.nn.Linear(4, 4), []
    with torch.no_grad():
        for _ in range(40):
            found.append(layer(torch.ones(2, 4)))
predict()
"""


def test_a_loop_without_passes_and_optimizers(forked: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "predict.py").write_text(PREDICTS)
    assert forked("-m", "cuptimem", "run", "-q", "-o", "run.cmem", "predict.py").code == 0
    assert paths(cuptimem.open(tmp_path / "run.cmem")) == ["found in predict() → list[0:23]"]


def test_the_look_at_the_end_replaces_what_is_still_alive() -> None:
    class Stays:
        losses: list[Any] = []

    with cuptimem.profile() as prof:
        train(40, lambda step: Stays.losses.append(new()), keep=False)
    (path,) = paths(prof.report)
    assert path.endswith("Stays.losses (class) → list[0:40]")


def test_searches_only_where_something_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    monkeypatch.setattr(
        holder_search, "find", lambda wants, *_, **__: searched.append(len(wants)) or [() for _ in wants]
    )
    with cuptimem.profile() as prof:
        train(40, keep=False)
        assert not searched
    assert len(searched) == 1 and not prof.report.leaks


def test_a_long_recording_is_searched_sooner_and_then_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the update of step 11, as behind that of step 23 there is too much to read; the report says that the
    searches have ended."""
    monkeypatch.setattr(recorder, "EVENTS_A_SECOND", 0)

    def each(step: int) -> None:
        if step == 9:
            _core.capture_sync()
            monkeypatch.setattr(recorder, "EARLY_EVENTS", _core.capture_counts()["events"] * 3 // 2)

    with cuptimem.profile() as prof:
        train(40, each)
    assert paths(prof.report) == ["losses in train() → list[0:11]"]
    assert [one.step for leak in prof.report.leaks for one in leak.holders] == [11]
    monkeypatch.setattr(recorder, "EARLY_EVENTS", 10)
    with cuptimem.profile() as prof:
        train(40)
    assert paths(prof.report) == [] and prof.report.environment["holders.early"] == "10"
    shown = " ".join(text.render(views.leaks(prof.report, 10), 80).split())
    assert "searched in its first 10 events only" in shown


def test_an_early_search_visits_no_more_than_its_bound() -> None:
    losses = [new()]
    others: list[Any] = [[number] for number in range(100_000)]
    search = referrers.Search(nearest=1000)
    assert len(search.objects) <= 1000 and any(one is losses for one in search.objects)
    search.close()
    (found,) = holders.find([holders.Want([(losses[0].data_ptr(), BYTES)])], is_short=True)
    assert [one.path for one in found] == ["losses in test_an_early_search_visits_no_more_than_its_bound() → list[0]"]
    far = others[-1]
    far[0] = new()
    (found,) = holders.find([holders.Want([(far[0].data_ptr(), BYTES)])], is_short=True)
    assert [one.path for one in found][:1] != ["no Python object: C++ holds it"]


NEAR = """
import torch
from cuptimem.record import holders
def new():
    return torch.ones(256)
class Keeper:
    kept = []
    def __init__(self):
        self.history = [new()]
def closure():
    history = [new()]
    return (lambda: history), history[0]
KEPT = {"loss": [new()]}
Keeper.kept.append(new())
def main():
    keeper = Keeper()
    step, captured = closure()
    address, captured = captured.data_ptr(), None
    end = new().requires_grad_().exp().sum()
    saved = end.grad_fn.next_functions[0][0]._saved_result.data_ptr()
    found = [KEPT["loss"][0].data_ptr(), keeper.history[0].data_ptr(), Keeper.kept[0].data_ptr(), address, saved]
    wants = [holders.Want([(one, 1024)]) for one in found]
    near, whole = holders.find(wants, is_short=True), holders.find(wants)
    assert near == whole, (near, whole)
    assert [one.path.partition(" ")[0] for (one,) in near] == ["KEPT", "keeper.history", "Keeper.kept", "step", "end"]
main()
"""


def test_an_early_search_finds_what_is_near(forked: Callable[..., Result]) -> None:
    """A global's item, an attribute, a class, a closure, and a graph, as the whole search names them."""
    done = forked("-c", NEAR)
    assert done.code == 0, done.err


def test_a_window_inside_sees_what_was_recorded_in_it() -> None:
    with cuptimem.profile() as outer:
        with cuptimem.profile() as earlier:
            train(20, keep=False)
        with cuptimem.profile() as inner:
            train(40)
    assert paths(inner.report) == paths(outer.report) == ["losses in train() → list[0:15]"]
    assert paths(earlier.report) == []


def test_an_early_look_gives_up_where_a_window_opens_or_closes() -> None:
    def elsewhere() -> None:
        with recorder._lock:
            taken.set()
            free.wait(60)

    taken, free = threading.Event(), threading.Event()
    thread = threading.Thread(target=elsewhere)
    with cuptimem.profile() as prof:
        thread.start()
        taken.wait(60)
        train(40)
        free.set()
        thread.join()
    assert prof.report.leaks and paths(prof.report) == []
    assert "problems" not in prof.report.environment


def test_a_window_that_closes_during_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a finalizer might: it has its own look at the end. What the first one found belongs to no other capture."""
    find = holders.find
    others: list[Any] = []

    def closes(wants: Any, error: Any, **how: Any) -> Any:
        monkeypatch.undo()
        prof.__exit__(None, None, None)
        others.append(cuptimem.profile().__enter__())
        return find(wants, error, **how)

    monkeypatch.setattr(holder_search, "find", closes)
    prof = cuptimem.profile().__enter__()
    train(30)
    others[0].__exit__(None, None, None)
    assert paths(prof.report) == [EARLY] and paths(others[0].report) == []
    assert not any("problems" in one.report.environment for one in (prof, *others))


def test_a_handlers_exception_reaches_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alarm(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Alarm

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for called in (train, lambda steps: None):  # by an early look, and by the one at the end
            monkeypatch.setattr(holder_search, "_analysis", interrupted)
            with pytest.raises(Alarm), cuptimem.profile():
                called(40)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert gc.isenabled() and not recorder._lock._is_owned()  # type: ignore[attr-defined]
    with cuptimem.profile() as prof:
        train(40)
    assert paths(prof.report) == [EARLY]


def test_a_child_forked_during_a_search_collects_garbage() -> None:
    with cuptimem.profile():
        with living.no_collection():
            child = os.fork()
            if child == 0:
                os._exit(not gc.isenabled())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc.isenabled()


def test_a_long_reading_is_beside_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's thread goes on with its steps, and searches when what was read is there."""
    threads: list[int] = []
    readings: list[holder_search._Reading] = []
    may_read, analysis, begin = threading.Event(), holder_search._analysis, holder_search._Reading.__init__

    def analysis_here(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        assert len(threads) > 1 or may_read.wait(60)
        return analysis(*arguments)

    def begin_here(reading: holder_search._Reading, *arguments: Any) -> None:
        readings.append(reading)
        begin(reading, *arguments)

    def each(step: int) -> None:
        if step == 30:  # the search was due after step 23, and nothing has waited for it
            may_read.set()
            while not readings[0].is_done:
                time.sleep(0.001)
            assert len(readings) == 1 and threads[0] != threading.get_ident()

    monkeypatch.setattr(holder_search._Reading, "__init__", begin_here)
    monkeypatch.setattr(holder_search, "_EVENTS_TOGETHER", 0)
    monkeypatch.setattr(holder_search, "_analysis", analysis_here)
    with cuptimem.profile() as prof:
        train(48, each)
    # The end's; where another reading has begun beside it, either thread may come to its analysis first.
    assert threading.get_ident() in threads
    assert len(paths(prof.report)) == 1 and paths(prof.report)[0].startswith("losses in train() → list[0:")
    assert "problems" not in prof.report.environment


def test_a_reading_that_fails_is_a_problem_of_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> Any:
        raise OSError("no more memory")

    monkeypatch.setattr(holder_search, "_EVENTS_TOGETHER", 0)
    monkeypatch.setattr(holder_search, "_analysis", fails)
    with cuptimem.profile() as prof:
        train(48)
    assert prof.report.environment["problems"] == "holders are not known: OSError: no more memory"


def test_an_analysis_that_takes_too_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        @staticmethod
        def analyze(*arguments: Any, progress: Callable[[float], bool], **options: Any) -> Any:
            assert not progress(0.5)
            raise KeyboardInterrupt

    assert holder_search._analysis(Slow, ("", "", 0), -1.0) is None
    monkeypatch.setattr(Slow, "analyze", lambda *arguments, **options: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        holder_search._analysis(Slow, ("", "", 0), -1.0)


def test_on_request_and_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "run.cmem"
    losses: list[Any] = []
    with cuptimem.profile(trace) as prof:
        for _ in range(24):
            losses.append(new())
            prof.step()
        (now,) = prof.holders(f"{Path(__file__).name}:{test_on_request_and_in_json.__code__.co_firstlineno + 5}") or (
            0,
        )
        assert now == 0  # made in new()
        (now,) = prof.holders(f"{Path(__file__).name}:{new.__code__.co_firstlineno + 1}")
        assert (now.path, now.count) == ("losses in test_on_request_and_in_json() → list[0:24]", 24)
    (leak,) = prof.report.leaks
    assert [one.path for one in leak.holders] == ["losses in test_on_request_and_in_json() → list[0:24]"]
    assert prof.holders(leak)[0].path == leak.holders[0].path
    assert prof.holders("nowhere.py:3") == ()
    for wrong in ("train", "train.py:", ":3", "train.py:three"):
        with pytest.raises(ValueError, match="written as train.py:22"):
            prof.holders(wrong)
    assert cli.main(["leaks", "--json", str(trace)]) == 0
    (said,) = json.loads(capsys.readouterr().out)["leaks"]
    assert [one["path"] for one in said["holders"]] == [leak.holders[0].path]
    for more, expected in (([], True), (["--no-holders"], False)):
        assert cli.main(["leaks", *more, str(trace)]) == 0
        assert ("held by losses in" in capsys.readouterr().out) is expected
