"""What windows cost, in counts: records decoded, bytes of memory taken, looks at whether to go on."""

import os
import struct
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

import pytest
from craft import SEEDED, WINDOW_CLOSE, WINDOW_OPEN, Trace

from benchmarks.reading import LIVE, measure_memory
from benchmarks.synthetic import write_synthetic
from cuptimem import _core
from tests.build import SANITIZED, SANITIZERS, build, rooms

LINES = 4


class Cost(NamedTuple):
    fine: int
    taken: int  # bytes of memory, also those given back
    early: int  # times that somebody was asked whether to go on, in the first reading
    late: int  # in the second
    decoded: int


@pytest.fixture(scope="module")
def program(needs_sanitizer: None) -> Path:
    """From the objects of test_analysis_hostile.py."""
    sources = [Path(__file__).with_name("costs.c"), *rooms("base", "trace", "heap", "analysis")]
    wrapped = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc")]
    return build("costs", sources, *SANITIZED, SANITIZERS["address"], link=["-lpthread", *wrapped])


def costs(program: Path, path: str, *windows: int) -> list[Cost]:
    done = subprocess.run([program, path, *map(str, windows)], capture_output=True, text=True, check=True)
    return [Cost(*map(int, line.split())) for line in done.stdout.splitlines()]


def of_windows(count: int, records: int, before: int = 0) -> Trace:
    """`before` blocks that stay, then so many windows with so many records each."""
    t = Trace()
    t.mark(SEEDED)
    for i in range(before):
        t.alloc(64 + 64 * i, 1, t.line(1))
    for number in range(1, count + 1):
        t.mark(WINDOW_OPEN, number)
        for i in range(records - 2):
            address = 0x10000000 + 64 * (i // 2)
            t.free(address) if i % 2 else t.alloc(address, 100, t.line(2))
        t.mark(WINDOW_CLOSE, number)
    return t


def test_both_readings_can_be_cancelled(program: Path, tmp_path: Path) -> None:
    t = of_windows(1, 300_000)
    path = t.write(tmp_path / "a.cmem", per_batch=30_000)
    for window in (0, 1):
        (cost,) = costs(program, path, window)
        assert cost.early >= 3 and cost.late >= 3, cost


@pytest.mark.parametrize(("count", "records"), [(1000, 40), (4, 66_000), (3, 100_000)])
def test_windows_cost_two_readings_at_most(program: Path, tmp_path: Path, count: int, records: int) -> None:
    """Also those of which no more is kept in memory than a small part, and which begin late in a batch."""
    t = of_windows(count, records, before=500)
    path = t.write(tmp_path / "a.cmem", per_batch=32_768)
    each = costs(program, path, *range(1, count + 1))
    assert all(cost.fine for cost in each)
    assert sum(cost.decoded for cost in each) <= 2 * len(t.events)


def test_what_lives_through_a_window_costs_it_nothing(program: Path, tmp_path: Path) -> None:
    """Blocks of one line and size: nothing is made for each of them."""
    taken = []
    for before in (500, 100_000):
        path = of_windows(4, 100, before).write(tmp_path / f"{before}.cmem", per_batch=32_768)
        each = costs(program, path, 1, 2, 3, 4)
        assert all(cost.fine for cost in each)
        taken.append([cost.taken for cost in each[1:]])
    assert max(taken[1]) <= 2 * min(taken[0]), taken


def test_memory_of_what_is_alive_at_once(tmp_path: Path) -> None:
    """60 bytes a block at the highest, in both readings."""
    few, many = measure_memory(tmp_path)
    assert many - few <= 60 * LIVE, (few, many)


def test_windows_that_nobody_asks_for(program: Path, tmp_path: Path) -> None:
    """On the way to the last of many windows not each of the others gets a copy of the heap."""
    t = of_windows(2000, 10, before=4000)
    path = t.write(tmp_path / "a.cmem")
    (last,) = costs(program, path, 2000)
    (first,) = costs(program, path, 1)
    assert last.fine and last.taken < 50 * first.taken, (last, first)


def test_an_open_window_around_many_that_nobody_asks_for(program: Path, tmp_path: Path) -> None:
    """Its heap is kept, though that of others would need the room."""
    t = Trace()
    t.mark(SEEDED)
    for i in range(50_000):
        t.alloc(64 + 64 * i, 1, t.line(1))
    t.mark(WINDOW_OPEN, 1)
    for number in range(2, 102):
        t.mark(WINDOW_OPEN, number)
        t.mark(WINDOW_CLOSE, number)
    t.mark(WINDOW_OPEN, 102)
    t.mark(WINDOW_CLOSE, 102)
    t.mark(WINDOW_CLOSE, 1)
    _, outer = costs(program, t.write(tmp_path / "a.cmem"), 102, 1)
    assert outer.fine and outer.decoded < 2000, outer


def test_what_cannot_be_read_ahead_is_tried_once(program: Path, tmp_path: Path) -> None:
    t = of_windows(100, 10)
    path = Path(t.write(tmp_path / "a.cmem", end=None))
    with path.open("ab") as file:  # source lines, with a wrong checksum
        file.write(struct.pack("<4sIII", b"CCHK", LINES, 1 << 20, 7) + bytes(1 << 20))
    each = costs(program, str(path), *range(1, 101))
    assert all(cost.fine for cost in each)
    assert sum(cost.taken > 1 << 20 for cost in each) == 1, each


def test_no_file_stays_open(tmp_path: Path) -> None:
    """The program may close all descriptors, and be given their numbers."""
    t = of_windows(3, 10)
    path = t.write(tmp_path / "a.cmem")
    trace = _core.trace(path)
    for number in (1, 2, 3):
        before = os.listdir("/proc/self/fd")
        assert _core.analyze(trace, window=number) == _core.analyze(path, window=number)
        assert os.listdir("/proc/self/fd") == before
    assert _core.trace_decoded(trace) < len(t.events) + 5


def test_another_trace_at_its_place(tmp_path: Path) -> None:
    """Of the same length, in the same file: what was read of the one is not taken for the other's."""
    path = tmp_path / "a.cmem"
    of_windows(1, 10, before=5).write(path, meta={"ring.id": "1"})
    trace = _core.trace(str(path))
    assert _core.analyze(trace, window=1)["devices"][0]["start"] == 5
    other = tmp_path / "b.cmem"
    of_windows(1, 10, before=7).write(other, meta={"ring.id": "2"})
    path.write_bytes(other.read_bytes())
    assert _core.analyze(trace, window=1)["devices"][0]["start"] == 7
    path.unlink()
    with pytest.raises(_core.Error, match="No such file"):
        _core.analyze(trace, window=1)


def test_a_trace_that_is_in_use(tmp_path: Path) -> None:
    """Threads, and what is called meanwhile, read for themselves; what was decoded can be asked at any time."""
    path = str(tmp_path / "a.cmem")
    write_synthetic(path, 1_500_000)
    expected = _core.analyze(path)
    trace = _core.trace(path)
    within: list[object] = []

    def ask(share: float) -> bool:
        if not within:
            within.append(_core.trace_decoded(trace))
            within.append(_core.analyze(trace) == expected)
        return True

    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(_core.analyze(trace) == expected)) for _ in range(3)]
    for thread in threads:
        thread.start()
    found.append(_core.analyze(trace, progress=ask) == expected)
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    assert not within or (within[0] in range(_core.trace_decoded(trace) + 1) and within[1] is True)
