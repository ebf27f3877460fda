"""Windows of one trace, asked for in any order: what each says alone, and how much is read for it."""

import random
from pathlib import Path
from typing import Any

import pytest
from craft import CUDA, DATA, OPTIMIZER, SEEDED, WINDOW_CLOSE, WINDOW_OPEN, Trace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuptimem import _core
from cuptimem.report.model import TABLES
from tests.event_kinds import ALLOC, FREE, LABEL, NODE_FREE, NODE_NEW, OBJECT_NEW, SEED

WINDOWS = 6


def eventful(seed: int, events: int, closed: bool = True) -> tuple[Trace, list[int]]:
    """A trace in which windows lie behind, within and across each other; and their numbers."""
    chance = random.Random(seed)
    t = Trace()
    for address in range(4):
        t.add(SEED, 0x900000 + 64 * address, 100 + address)
    t.mark(SEEDED)
    opened: list[int] = []
    numbers: list[int] = []
    for i in range(events):
        what = chance.random()
        address, line = 64 * chance.randrange(1, 40), t.line(chance.randrange(1, 9))
        on: dict[str, Any] = {"device": CUDA, "index": 0} if chance.random() < 0.3 else {}
        if what < 0.4:
            t.add(ALLOC, address, chance.randrange(1, 5000), line, **on)
        elif what < 0.6:
            t.add(FREE, address, 0, 0, **on)
        elif what < 0.75:
            t.add(NODE_NEW, i, 0, line)
        elif what < 0.8:
            t.add(NODE_FREE, chance.randrange(0, i + 1), 1)
        elif what < 0.85:
            t.add(OBJECT_NEW, chance.randrange(1, 5), chance.randrange(0, 3), t.name("Linear"))
        elif what < 0.95:
            t.tick(chance.choice([OPTIMIZER, DATA]), chance.randrange(1, 4), line)
        elif opened and (what < 0.975 or len(numbers) == WINDOWS):
            t.mark(WINDOW_CLOSE, opened.pop(chance.randrange(len(opened))))
        elif len(numbers) < WINDOWS:
            numbers.append(len(numbers) + 1)
            opened.append(numbers[-1])
            t.mark(WINDOW_OPEN, numbers[-1])
    for number in opened if closed else []:
        t.mark(WINDOW_CLOSE, number)
    return t, numbers


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30), closed=st.booleans(), order=st.lists(st.integers(0, WINDOWS), max_size=12))
def test_any_order(tmp_path: Path, seed: int, closed: bool, order: list[int]) -> None:
    t, numbers = eventful(seed, 300, closed)
    (tmp_path / "a.cmem").unlink(missing_ok=True)
    path = t.write(tmp_path / "a.cmem", per_batch=37)
    alone = {number: _core.analyze(path, window=number, tables=TABLES) for number in [0, *numbers]}
    trace = _core.trace(path)
    for number in order:
        if number in alone:
            assert _core.analyze(trace, window=number, tables=TABLES) == alone[number], number
        else:
            with pytest.raises(_core.Error, match=f"the trace has no window {number}"):
                _core.analyze(trace, window=number)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30), order=st.lists(st.integers(1, WINDOWS), max_size=8))
def test_cutting_out_in_any_order(tmp_path: Path, seed: int, order: list[int]) -> None:
    """A window's own trace is the same byte by byte, whatever was read before; and analysing it goes on from there."""
    t, numbers = eventful(seed, 300)
    (tmp_path / "a.cmem").unlink(missing_ok=True)
    path = t.write(tmp_path / "a.cmem", per_batch=37)
    trace = _core.trace(path)
    for number in order:
        if number in numbers:
            _core.extract(path, str(tmp_path / "alone.cmem"), number)
            _core.extract(trace, str(tmp_path / "on.cmem"), number)
            assert (tmp_path / "on.cmem").read_bytes() == (tmp_path / "alone.cmem").read_bytes()
            assert _core.analyze(trace, window=number) == _core.analyze(path, window=number)
            for name in ("alone", "on"):
                (tmp_path / f"{name}.cmem").unlink()


def test_a_thousand_windows_are_one_reading(tmp_path: Path) -> None:
    """One behind the other, with something in between; each is decoded once, and so is the rest."""
    t = Trace()
    t.mark(SEEDED)
    for number in range(1, 1001):
        t.alloc(64 * number, 7, t.line(1))
        t.mark(WINDOW_OPEN, number)
        for i in range(20):
            t.alloc(0x1000000 + 64 * i, 100, t.line(2 + i % 3))
            t.free(0x1000000 + 64 * i)
        t.mark(WINDOW_CLOSE, number)
    path = t.write(tmp_path / "a.cmem", per_batch=777)
    trace = _core.trace(path)
    for number in range(1, 1001):
        (device,) = _core.analyze(trace, window=number)["devices"]
        assert (device["start"], device["peak"], device["above"][0]) == (7 * number, 7 * number + 100, 100)
    assert len(t.events) <= _core.trace_decoded(trace) <= len(t.events) + 2
    once = _core.trace_decoded(trace)
    (device,) = _core.analyze(trace, window=3)["devices"]  # it is over, and nothing of it was kept: from the start
    assert device["start"] == 21 and _core.trace_decoded(trace) < once + 200


def test_windows_within_a_window(tmp_path: Path) -> None:
    """The outer one is asked for while the inner ones come and go: what lies before it is not read again."""
    t = Trace()
    t.mark(SEEDED)
    for i in range(5000):
        t.alloc(64 + 64 * i, 1, t.line(1))
    t.mark(WINDOW_OPEN, 1)
    for number in range(2, 12):
        t.mark(WINDOW_OPEN, number)
        t.alloc(0x1000000 + 64 * number, 10, t.line(2))
        t.mark(WINDOW_CLOSE, number)
    path = t.write(tmp_path / "a.cmem")
    trace = _core.trace(path)
    for number in range(2, 12):
        for asked, start, made in ((number, 5000 + 10 * (number - 2), 10), (1, 5000, 100)):
            (device,) = _core.analyze(trace, window=asked)["devices"]
            assert (device["start"], device["kept"]) == (start, made)
    assert _core.trace_decoded(trace) < 5000 + 10 * 40 * 3


def test_a_large_window_is_read_from_the_file_again(tmp_path: Path) -> None:
    """More records than are kept in memory between the two readings."""
    t = Trace()
    t.mark(SEEDED)
    t.alloc(64, 5, t.line(1))
    t.mark(WINDOW_OPEN, 1)
    for i in range(70_000):
        (t.free if i % 2 else lambda address: t.alloc(address, 100, t.line(2)))(128)
    t.mark(WINDOW_CLOSE, 1)
    t.mark(WINDOW_OPEN, 2)
    t.alloc(128, 3, t.line(3))
    t.mark(WINDOW_CLOSE, 2)
    path = t.write(tmp_path / "a.cmem", per_batch=5000)
    trace = _core.trace(path)
    for number in (1, 2):
        assert _core.analyze(trace, window=number) == _core.analyze(path, window=number)
    assert _core.trace_decoded(trace) <= 2 * len(t.events) + 5000


def test_a_reading_that_was_cancelled_is_begun_again(tmp_path: Path) -> None:
    t, numbers = eventful(3, 400)
    path = t.write(tmp_path / "a.cmem")
    trace = _core.trace(path)
    with pytest.raises(KeyboardInterrupt):
        _core.analyze(trace, window=numbers[0], progress=lambda share: False)
        raise KeyboardInterrupt  # so few records that nobody was asked
    assert _core.analyze(trace, window=numbers[0]) == _core.analyze(path, window=numbers[0])


def test_a_trace_that_cannot_be_opened(tmp_path: Path) -> None:
    trace = _core.trace(str(tmp_path / "none.cmem"))
    for _ in range(2):
        with pytest.raises(_core.Error, match="No such file"):
            _core.analyze(trace)
    t = Trace()
    t.alloc(64, 5, t.line(1))
    t.write(tmp_path / "none.cmem")
    assert _core.analyze(trace)["allocations"] == 1
    with pytest.raises(ValueError, match="invalid"):
        _core.trace_decoded(object())


def test_a_window_that_is_over_is_asked_for_once_more(tmp_path: Path) -> None:
    t = Trace()
    t.mark(SEEDED)
    for number in range(1, 101):
        t.mark(WINDOW_OPEN, number)
        t.alloc(64 * number, 7, t.line(1))
        t.mark(WINDOW_CLOSE, number)
    path = t.write(tmp_path / "a.cmem", per_batch=1000)
    trace = _core.trace(path)
    for number in range(1, 101):
        report = _core.analyze(trace, window=number, again=True)
        _core.extract(trace, str(tmp_path / f"{number}.cut.cmem"), number)
        assert _core.analyze(trace, window=number, again=True) == report
    assert _core.trace_decoded(trace) <= len(t.events) + 2


LIVES = {"freed": 0x1000, "labelled": 0x2000, "replaced": 0x3000, "quiet": 0x4000}


def test_blocks_alike_until_a_window_names_them(tmp_path: Path) -> None:
    """Of one line and size, alive before the windows: what one of them says of one is not said of the others."""
    t = Trace()
    t.mark(SEEDED)
    for address in LIVES.values():
        t.alloc(address, 64, t.line(1))
    for number in (1, 2):
        t.mark(WINDOW_OPEN, number)
        if number == 2:
            t.free(LIVES["freed"])
            t.mark(10)  # CM_MARK_WALK
            t.add(LABEL, LIVES["labelled"], 0x77, t.name("weight"), flags=2)  # a parameter
            t.alloc(LIVES["replaced"], 8, t.line(2))
            t.free(LIVES["replaced"])
            t.free(LIVES["replaced"])  # of nothing: it is gone
        t.mark(WINDOW_CLOSE, number)
    trace = _core.trace(t.write(tmp_path / "a.cmem"))
    first, second = (_core.analyze(trace, window=number, tables=("start", "end")) for number in (1, 2))

    def rows(report: dict[str, Any], what: str) -> list[tuple[int, int, str]]:
        return sorted((row[0], row[1], row[6]) for row in report["devices"][0]["tables"][what][0])

    assert rows(first, "start") == rows(first, "end") == [(256, 4, "unknown")]
    assert rows(second, "start") == [(64, 1, "parameter"), (192, 3, "unknown")]
    assert rows(second, "end") == [(64, 1, "parameter"), (64, 1, "unknown")]
    lost = second["lost"]
    assert (lost["unknown_frees"], lost["replaced"]) == (1, 1)
    assert [tensor[0].split("\t")[0] for tensor in second["devices"][0]["tensors"]] == ["weight"]
