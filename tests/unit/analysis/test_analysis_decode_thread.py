"""Long windows are decoded by a thread of their own: what is found is the same without it, and it ends in any case."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from craft import SEEDED, WINDOW_CLOSE, WINDOW_OPEN, Trace

from benchmarks.synthetic import write_synthetic
from cuptimem import _core
from tests.event_kinds import LOST

LONG = 70_000  # records: more than an engine keeps of a window


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.fixture(params=["with", "without"])
def thread(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of two cores one is enough for no thread."""
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("needs two cores")
    if request.param == "without":
        os.sched_setaffinity(0, {min(cores)})
    before = threads()
    yield request.param
    os.sched_setaffinity(0, cores)
    assert threads() <= before


def alone(path: str, window: int = 0) -> dict[str, object]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        found: dict[str, object] = _core.analyze(path, window=window)
        return found
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("on", ["cpu", "cuda"])
def test_same_result(tmp_path: Path, on: str, thread: str) -> None:
    path = str(tmp_path / "a.cmem")
    write_synthetic(path, 400_000, on=on)
    assert _core.analyze(path) == alone(path)


def test_definitions_in_every_batch(tmp_path: Path, thread: str) -> None:
    """New stacks come while earlier ones are in use."""
    t = Trace()
    t.mark(SEEDED)
    for i in range(LONG):
        t.alloc(0x1000 + 64 * i, 8 + i % 3, t.line(1 + i // 50))
        if i % 2:
            t.free(0x1000 + 64 * i)
    path = t.write(tmp_path / "a.cmem", per_batch=700, late=True)
    found = _core.analyze(path)
    assert found == alone(path)
    assert found["devices"][0]["end"] == sum(8 + i % 3 for i in range(0, LONG, 2))


def test_windows_that_close_amid_a_batch(tmp_path: Path, thread: str) -> None:
    """The reader goes back to where the window closed: what comes later, losses too, is of the next one."""
    t = Trace()
    t.mark(SEEDED)
    for number in (1, 2):
        t.mark(WINDOW_OPEN, number)
        for i in range(LONG):
            t.alloc(0x1000 + 64 * (number * LONG + i), 1, t.line(number))
        t.mark(WINDOW_CLOSE, number)
        t.add(LOST, 0, 1)
    path = t.write(tmp_path / "a.cmem", per_batch=9000)
    trace = _core.trace(path)
    for number, lost in ((1, 0), (2, 1)):
        found = _core.analyze(trace, window=number)
        assert found == alone(path, number)
        assert (found["devices"][0]["allocations"], found["lost"]["events"]) == (LONG, lost)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_damage(tmp_path: Path, share: float, thread: str) -> None:
    path = tmp_path / "a.cmem"
    write_synthetic(str(path), 600_000)
    whole = path.read_bytes()
    at = int(share * len(whole))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    found = _core.analyze(str(path))
    assert found == alone(str(path)) and not found["complete"]


def test_cancelled(tmp_path: Path, thread: str) -> None:
    path = str(tmp_path / "a.cmem")
    write_synthetic(path, 3_000_000)
    trace = _core.trace(path)
    with pytest.raises(KeyboardInterrupt):
        _core.analyze(trace, progress=lambda share: False)
    assert _core.analyze(trace) == alone(path)
