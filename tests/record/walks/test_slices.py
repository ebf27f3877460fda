"""While the program runs, what is done with living objects is bounded by counts, however many objects there are."""

import gc
import weakref
from collections import deque
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem import _core
from cuptimem.objects import near, slices, walks
from cuptimem.record import checkpoints, filling

torch = pytest.importorskip("torch", reason="the torch-free run leaves these out")
pytestmark = pytest.mark.torch

FILLING = 9  # cm_mark_kind
SLICE_ENDS = 99  # none of them


def step(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    sum(layer(torch.ones(1, 2)).sum() for layer in model).backward()
    optimizer.step()


def test_a_large_model_is_labelled_in_parts_and_nothing_is_kept_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "_PART_LABELS", 100)
    monkeypatch.setattr(walks, "_PART_MODULES", 30)
    monkeypatch.setattr(slices, "_FREE_SECONDS", 1e9)
    one_slice = slices._slice

    def marked(name: str, task: Any) -> None:  # a step has two where the looks of each second make another
        one_slice(name, task)
        _core.mark(SLICE_ENDS)

    monkeypatch.setattr(slices, "_slice", marked)
    with cuptimem.profile(tmp_path / "a.cmem", holders=False):

        class Layer(torch.nn.Linear):  # type: ignore[misc,name-defined]  # importorskip has no types
            pass

        model = torch.nn.ModuleList([Layer(2, 2) for _ in range(200)])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        for _ in range(30):
            step(model, optimizer)
        assert not slices._tasks
        model.append(torch.nn.Linear(2, 2))
        step(model, optimizer), step(model, optimizer)
        assert slices._tasks  # tick 32: the second walk has begun
        gone = weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(Layer)
        del model, optimizer, Layer
        gc.collect()
        assert [ref() for ref in gone] == [None, None, None]
    rows = _core.trace_dump(str(tmp_path / "a.cmem"))
    parts, labels, modules, most_modules, names = [], 0, 0, 0, set()
    for row in rows:
        if row[0] == "label" and row[6] != 1:
            labels += 1
            names.add(row[5].partition("\t")[0])
        elif row[0] == "label":
            modules += 1
            most_modules = max(modules, most_modules)
        elif row[0] == "mark" and row[4] == SLICE_ENDS:
            parts.append(labels)
            labels = modules = 0
    assert 0 < max(parts) < 100 + 32 * 2, "a batch of modules has 64 parameters"
    assert most_modules == 30
    assert {"0.weight", "199.bias", "momentum_buffer of 0.weight", "momentum_buffer of 199.bias"} <= names


def test_no_phase_of_a_walk_keeps_anything_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left at each of its bounds in turn, where it reads tensors."""
    for name, value in (("_PART_LABELS", 1), ("_BATCH", 2), ("_QUICK", 1)):
        monkeypatch.setattr(walks, name, value)
    monkeypatch.setattr(slices, "add", lambda *_: None)
    number, phases = 0, set()
    with cuptimem.profile(tmp_path / "a.cmem", holders=False):
        while True:
            model = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(3)])
            free = [torch.ones(2, requires_grad=True) for _ in range(3)]
            optimizer = torch.optim.SGD([*model.parameters(), *free], lr=0.1, momentum=0.5)
            (sum(layer(torch.ones(1, 2)).sum() for layer in model) + sum(one.sum() for one in free)).backward()
            optimizer.step()
            walk: Any = walks._Walk(torch).run(None)
            if any(next(walk, walk) is walk for _ in range(number + 1)):
                break
            gone = [weakref.ref(one) for one in (model, *model.parameters(), *free)]
            gone += [weakref.ref(one.grad) for one in (*model.parameters(), *free)]
            optimizer.param_groups.clear(), optimizer.state.clear()  # it is in a cycle of its own
            del model, optimizer, free
            assert [one() for one in gone if one() is not None] == [], number
            phases.add(walk.gi_frame.f_locals["kind"])
            walk.close()
            number += 1
    assert phases >= {_core.LABEL_PARAMETER, _core.LABEL_GRADIENT, _core.LABEL_OPTIMIZER_STATE}


def test_names_do_not_ask_the_program_what_is_equal(tmp_path: Path) -> None:
    class Net(torch.nn.Linear):  # type: ignore[misc,name-defined]  # as above
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = torch.nn.Module.__hash__

    with cuptimem.profile(tmp_path / "a.cmem", holders=False):
        net, loss = Net(2, 2), torch.nn.MSELoss()
        loss(net(torch.ones(1, 2)), torch.ones(1, 2)).backward()
        collections = list(walks._Walk(torch).run(None))
    assert not collections and "problems" not in cuptimem.open(tmp_path / "a.cmem").environment


def test_objects_that_are_near_are_few() -> None:
    kept: list[Any] = [[number] for number in range(100_000)]
    found = near.objects(500)
    assert len(found) <= 500 and any(one is kept for one in found)


def test_no_walk_goes_through_all_objects_while_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    optimizer, held = torch.optim.SGD(model.parameters(), lr=0.1), []
    with cuptimem.profile(tmp_path / "a.cmem"), monkeypatch.context() as patch:
        patch.setattr(gc, "get_objects", lambda *_: pytest.fail("all objects are listed"))
        for _ in range(40):
            step(model, optimizer)
            held.append(torch.ones(100))
        slices.add("filling", filling.note_in_slices(_core))
    report = cuptimem.open(tmp_path / "a.cmem")
    assert "problems" not in report.environment


def test_a_buffer_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "add", lambda *_: None)  # the looks that a slow machine would make here
    buffer = deque([torch.empty(10) for _ in range(600)], maxlen=1000)
    with cuptimem.profile(tmp_path / "a.cmem", holders=False):
        task = filling.note_in_slices(_core)
        for _ in task:
            buffer.append(torch.empty(10))  # what comes meanwhile is read, too
            _core.tick(_core.TICK_STEP, buffer)
    parts = [0]
    for row in _core.trace_dump(str(tmp_path / "a.cmem")):
        if row[0] == "tick":
            parts.append(0)
        elif row[0] == "mark" and row[4] == FILLING and row[3]:
            parts[-1] += 1
    assert parts[:2] == [256, 256] and len(parts) == 3


def test_a_module_that_dies_between_two_parts_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a loss that each step makes."""
    monkeypatch.setattr(walks, "_PART_LABELS", 100)
    monkeypatch.setattr(slices, "_FREE_SECONDS", 1e9)
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(200)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with cuptimem.profile(tmp_path / "a.cmem", holders=False):
        for _ in range(30):
            loss = torch.nn.MSELoss()
            step(model, optimizer)
            del loss
        names = {row[5].partition("\t")[0] for row in _core.trace_dump(str(tmp_path / "a.cmem")) if row[0] == "label"}
    assert {"0.weight", "100.bias", "199.bias"} <= names


def test_modules_in_a_mapped_file_are_known_by_their_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_LEAST", 1)
    monkeypatch.setattr(checkpoints, "_PART", 2)
    monkeypatch.setattr(near, "objects", lambda _: [])
    path, mapped = tmp_path / "weights", checkpoints.Mapped()
    torch.save(torch.nn.ModuleList([torch.nn.Linear(64, 64) for _ in range(4)]).state_dict(), path)
    with cuptimem.profile(tmp_path / "a.cmem", holders=False):
        model = torch.nn.ModuleList([torch.nn.Linear(64, 64) for _ in range(4)])
        model.load_state_dict(torch.load(path, mmap=True), assign=True)
        parts = len(list(mapped.look(torch)))
    assert parts >= 2 and [row[:4] for row in mapped.rows.values()] == [(str(path), 66560, 66560, 0)]
