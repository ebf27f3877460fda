"""@cuptimem.profile on functions of every kind: which calls are recorded, and where their report is."""

import asyncio
import inspect
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import cuptimem

torch = pytest.importorskip("torch", reason="the torch-free run leaves these out")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("only_new_objects")]

KIB = 1024


def make(kib: int) -> Any:
    return torch.empty(kib * KIB, dtype=torch.uint8)


def allocated(function: Any) -> int:
    """KiB that the last call made."""
    return int(function.profile.report.device("cpu").allocated) // KIB


@cuptimem.profile
def train(kib: int, *, times: int = 1) -> int:
    """Trains."""
    return sum(make(kib).nbytes for _ in range(times)) // KIB


def test_bare_its_last_report_is_on_the_function() -> None:
    assert repr(train.profile) == "<cuptimem.Profile nothing recorded yet>"
    with pytest.raises(cuptimem.Error, match="not recorded yet"):
        _ = train.profile.report
    for kib in (1, 3):
        assert train(kib, times=2) == 2 * kib == allocated(train)
    assert (train.__name__, train.__doc__, train.__module__) == ("train", "Trains.", __name__)  # type: ignore[attr-defined]  # Profiled does not repeat what every function has
    assert list(inspect.signature(train).parameters) == ["kib", "times"]
    assert train.profile.path is None and train.profile.peak_bytes <= "6 KiB"


def test_a_profile_says_how_far_it_is(tmp_path: Path) -> None:
    with cuptimem.profile(tmp_path / "run.cmem") as prof:
        make(2)
        assert repr(prof) == str(prof) == f"<cuptimem.Profile {shown(tmp_path)}: recording>"
    assert repr(prof) == f"<cuptimem.Profile {shown(tmp_path)}: recorded>"
    assert prof.report.allocations == 1
    assert repr(prof) == f"<cuptimem.Profile {shown(tmp_path)}: recorded, peak 2.0 KiB on cpu>"


def shown(folder: Path) -> str:
    """As a repr shows run.cmem in it: the last 40 characters."""
    path = str(folder / "run.cmem")
    return path if len(path) <= 40 else f"…{path[-39:]}"


def test_an_object_with_an_asynchronous_call() -> None:
    class Train:
        async def __call__(self, kib: int) -> None:
            await asyncio.sleep(0)
            make(kib)

    train: Any = cuptimem.profile(Train())
    asyncio.run(train(3))
    assert allocated(train) == 3


def test_signature_and_help_are_those_of_the_parameters() -> None:
    signature = inspect.signature(cuptimem.profile)
    assert list(signature.parameters) == list(inspect.signature(cuptimem.Profile).parameters)
    assert signature.parameters["overwrite"].default is False and signature.return_annotation is cuptimem.Profile


def test_a_function_that_calls_itself_is_recorded_once(tmp_path: Path) -> None:
    @cuptimem.profile(tmp_path / "run.cmem")
    def down(depth: int) -> int:
        block = make(1)
        return 1 + (down(depth - 1) if depth else 0) if block.nbytes else 0

    for depth in (3, 1):
        assert down(depth) == depth + 1 == allocated(down)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-2.cmem", "run.cmem"]


def test_recursion_that_ends_by_an_exception_leaves_nothing_open() -> None:
    @cuptimem.profile
    def down(depth: int) -> None:
        make(1)
        if depth == 0:
            raise KeyError
        down(depth - 1)

    for depth in (2, 0):
        with pytest.raises(KeyError):
            down(depth)
        assert allocated(down) == depth + 1


def test_a_call_sees_all_threads() -> None:
    both = threading.Barrier(2)

    @cuptimem.profile
    def work(kib: int) -> None:
        both.wait()
        make(kib)
        both.wait()

    threads = [threading.Thread(target=work, args=(kib,)) for kib in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert allocated(work) == 3


class Trainer:
    @cuptimem.profile
    def step(self, kib: int) -> tuple["Trainer", int]:
        return self, int(make(kib).nbytes) // KIB

    @staticmethod
    @cuptimem.profile
    def inside_static(kib: int) -> int:
        return train.__wrapped__(kib)  # type: ignore[attr-defined,no-any-return]  # functools.wraps sets it

    @cuptimem.profile
    @staticmethod
    def around_static(kib: int) -> int:
        return train.__wrapped__(kib)  # type: ignore[attr-defined,no-any-return]  # as above

    @classmethod
    @cuptimem.profile
    def inside_class(cls, kib: int) -> tuple[type, int]:
        return cls, int(make(kib).nbytes) // KIB

    @cuptimem.profile
    @classmethod
    def around_class(cls, kib: int) -> tuple[type, int]:
        return cls, int(make(kib).nbytes) // KIB


class Derived(Trainer):
    pass


def test_methods() -> None:
    trainer: Any = Derived()
    assert trainer.step(1) == (trainer, 1) and Trainer.step(trainer, 2) == (trainer, 2)
    assert allocated(trainer.step) == 2 and trainer.step.profile is Trainer.step.profile
    for number, name in enumerate(("inside_static", "around_static"), 1):
        assert getattr(trainer, name)(number) == number == getattr(Trainer, name)(number)
        assert allocated(getattr(trainer, name)) == number
    for number, name in enumerate(("inside_class", "around_class"), 1):
        assert getattr(trainer, name)(number) == (Derived, number) == getattr(Derived, name)(number)
        assert allocated(getattr(Trainer, name)) == number


def test_it_travels_to_other_processes() -> None:
    """By name as any function, and by value, as cloudpickle sends what a notebook or __main__ defines."""
    assert pickle.loads(pickle.dumps(train)) is train
    train(1)
    copy = pickle.loads(pickle.dumps(train.profile))
    assert copy.options.__dict__ == train.profile.options.__dict__
    with pytest.raises(cuptimem.Error, match="not recorded yet"):
        _ = copy.report
    with copy:
        make(2)
    assert copy.report.device("cpu").allocated == 2 * KIB and allocated(train) == 1


@pytest.mark.parametrize(("given", "bytes"), [("2G", 2 << 30), ("1.5 MiB", 3 << 19), (4096, 4096), ("0", 0)])
def test_sizes_are_numbers_or_text(given: int | str, bytes: int) -> None:
    options = cuptimem.profile(max_size=given, ring_bytes=given).options
    assert (options.max_size, options.ring_bytes) == (bytes, bytes)


@pytest.mark.parametrize("given", ["2X", "", "G", -1, 2.5, True, None])
@pytest.mark.parametrize("name", ["max_size", "ring_bytes"])
def test_what_is_no_size_is_refused(name: str, given: Any) -> None:
    with pytest.raises(ValueError) as caught:
        cuptimem.profile(**{name: given})
    assert str(caught.value) == f'{name} is a number of bytes, or text such as "512 MiB" or "1.5G", not {given!r}'
