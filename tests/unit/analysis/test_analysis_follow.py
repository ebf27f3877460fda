"""A trace that is followed says at every moment what a report of it would say."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from craft import MODULE, OPTIMIZER, SEEDED, Trace

from cuptimem import _core
from tests.event_kinds import LABEL

STATE = 5  # cm_label_kind: optimizer state


def owner() -> str:
    """This process, as a trace names the one that writes it."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return f"{os.getpid()} {fields[19]} {os.stat('/proc/self/ns/pid').st_ino}"


LIVES = {"ring.id": "7", "ring.path": "", "ring.place": "none"}


class Growing:
    """A file that gets the bytes of a whole one bit by bit."""

    def __init__(self, trace: Trace, folder: Path, **options: Any) -> None:
        self.path = folder / "grows.cmem"
        whole = trace.write(folder / "whole.cmem", meta={**LIVES, "ring.owner": owner()}, **options)
        self.bytes = Path(whole).read_bytes()

    def parts(self, size: int) -> Iterator[str]:
        begin = 4096
        self.path.write_bytes(self.bytes[:begin])
        yield str(self.path)
        for at in range(begin, len(self.bytes), size):
            with self.path.open("ab") as file:
                file.write(self.bytes[at : at + size])
            yield str(self.path)


def training(steps: int, evaluate_at: int = 0) -> Trace:
    """Each step has its own peak; every so many steps three calls without a backward pass."""
    t = Trace()
    t.mark(SEEDED)
    setup, forward, tick, call = t.line(1), t.line(10), t.line(20), t.line(30)
    for i in range(8):
        t.alloc(0x1000 + 64 * i, 1000, setup)
    for step in range(steps):
        for i in range(20):
            t.alloc(0x100000 + 64 * i, 100 + step % 7, forward)
        for i in range(20):
            t.free(0x100000 + 64 * i)
        t.tick(OPTIMIZER, 0x99, tick)
        if evaluate_at and step % evaluate_at == evaluate_at - 1:
            for _ in range(3):
                t.tick(MODULE, 0x77, call, flags=0x20 | 0x40)
                t.alloc(0x200000, 5000, call)
                t.free(0x200000)
    return t


def read(follower: Any) -> int:
    """Records."""
    word, total = "more", 0
    while word != "end":
        word, count = follower.read(1000)
        assert word != "again"
        total += count
    return total


def ended(path: str) -> dict[int, tuple[int, int]]:
    return {row["index"]: (row["peak"], row["end"]) for row in _core.analyze(path)["steps"]}


@pytest.mark.parametrize("evaluate_at", [0, 10, 100])
def test_every_step_is_as_in_a_report(tmp_path: Path, evaluate_at: int) -> None:
    """The clock looks back a bounded number of steps, and yet counts and bounds as over the whole trace."""
    file = Growing(training(600, evaluate_at), tmp_path, per_batch=100)
    follower, seen, records, known = None, {}, 0, 0
    for path in file.parts(3000):
        follower = follower or _core.Follower(path)
        records += read(follower)
        assert follower.state in ("recording", "complete")
        seen |= {row[0]: (row[5], row[6]) for row in follower.steps()}
        known = max(known, len(follower.steps()))
    assert follower is not None and follower.state == "complete"
    wanted = ended(str(file.path))
    assert seen == wanted and len(wanted) >= 600
    assert follower.totals()["steps"] == len(wanted)
    assert known == 128
    assert records == _core.analyze(str(file.path))["events"]


def test_what_is_alive_is_as_in_a_report(tmp_path: Path) -> None:
    file = Growing(training(30), tmp_path, per_batch=77)
    follower = None
    for path in file.parts(1111):
        follower = follower or _core.Follower(path)
        read(follower)
        report = _core.analyze(path)["devices"]
        for (name, live, blocks, peak, *_), device in zip(follower.devices(), report, strict=True):
            assert (name, live, peak) == (device["device"], device["end"], device["peak"])
            assert sum(size for _, size, _ in follower.live()) == live
            assert sum(count for _, _, count in follower.live()) == blocks


def test_only_a_walk_gives_a_category(tmp_path: Path) -> None:
    t = Trace()
    t.mark(SEEDED)
    t.alloc(0x1000, 640, t.line(1))
    t.alloc(0x2000, 64, t.line(1))
    before = t.write(tmp_path / "before.cmem")
    t.add(LABEL, address=0x1000, stack=t.name("exp_avg of weight"), flags=STATE)
    after = t.write(tmp_path / "after.cmem")
    for path, wanted in ((before, {"unknown": 704}), (after, {"unknown": 64, "optimizer state": 640})):
        follower = _core.Follower(path)
        read(follower)
        found: dict[str, int] = {}
        for origin, size, _ in follower.live():
            category = follower.origin(origin)[5]
            found[category] = found.get(category, 0) + size
        assert found == wanted


def test_a_seed_was_alive_from_the_start(tmp_path: Path) -> None:
    """What a walk finds that ends after the follower began."""
    t = Trace()
    t.alloc(0x1000, 10, t.line(1))
    t.add(12, address=0x9000, size=5000, flags=0)
    t.alloc(0x2000, 10, t.line(1))
    t.mark(SEEDED)
    t.alloc(0x3000, 10, t.line(1))
    file = Growing(t, tmp_path, per_batch=1)
    follower, words = None, []
    for path in file.parts(60):
        follower = follower or _core.Follower(path)
        word = "more"
        while word != "end":
            word, _ = follower.read(10)
            words.append(word)
    assert follower is not None
    assert words.count("again") <= 1
    assert follower.devices()[0][:4] == ("cpu", 5030, 4, 5030)


@pytest.mark.parametrize("how", ["replaced", "shortened"])
def test_another_trace_of_the_same_name_is_read_from_its_start(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.cmem"
    first = training(20).write(tmp_path / "first.cmem", meta={"n": "1"}, end=None)
    second = training(3).write(tmp_path / "second.cmem", meta={"n": "2"})
    path.write_bytes(Path(first).read_bytes())
    follower = _core.Follower(str(path))
    read(follower)
    assert follower.totals()["steps"] == 20
    if how == "replaced":
        os.replace(second, path)
    else:
        path.write_bytes(Path(second).read_bytes())
    assert follower.read(1 << 20) == ("again", 0)
    read(follower)
    assert follower.totals()["steps"] == 3 and follower.meta["n"] == "2"


def test_no_trace_and_a_closed_follower(tmp_path: Path) -> None:
    with pytest.raises(_core.Error, match="No such file"):
        _core.Follower(str(tmp_path / "none"))
    path = training(2).write(tmp_path / "a.cmem")
    follower = _core.Follower(path)
    read(follower)
    os.unlink(path)
    with pytest.raises(_core.Error, match="No such file"):
        follower.read(10)
    with pytest.raises(ValueError, match="closed"):
        follower.devices()


def test_an_idle_look_decodes_nothing(tmp_path: Path) -> None:
    file = Growing(training(50), tmp_path)
    *_, path = file.parts(1 << 20)
    follower = _core.Follower(path)
    assert read(follower) > 0
    assert [follower.read(1 << 20) for _ in range(3)] == [("end", 0)] * 3
