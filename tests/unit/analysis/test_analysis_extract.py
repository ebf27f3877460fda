"""A window as a trace of its own says what the window of the whole trace says."""

from pathlib import Path
from typing import Any

import pytest
from craft import CUDA, IN_NODE, NO_SEQUENCE, NODE_STACK, OPTIMIZER, SEEDED, TORCH, WINDOW_CLOSE, WINDOW_OPEN, Trace

from tests.event_kinds import NODE_FREE, OBJECT_NEW, RESERVED, SEED, THREAD

ACCUMULATE = "N5torch8autograd14AccumulateGradE"


def plain(report: dict[str, Any]) -> dict[str, Any]:
    """What must be equal: ids become what they stand for, times count from the window's start."""
    stacks = report["stacks"]

    def rows(contributors: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        named = [(*row[:2], tuple(stacks[row[2]]), tuple(stacks[row[3]]), *row[4:]) for row in contributors]
        return sorted(named, key=repr)

    devices = [
        {
            **{key: device[key] for key in ("device", "start", "peak", "peak_step", "end", "allocated", "freed")},
            **{key: device[key] for key in ("allocations", "frees", "reserved_peak")},
            "peak_ns": device["peak_time_ns"],
            "contributors": rows(device["contributors"]),
            "range": (min(point[1] for point in device["timeline"]), max(point[2] for point in device["timeline"])),
        }
        for device in sorted(report["devices"], key=lambda d: d["device"])
    ]
    steps = [
        {
            **{key: step[key] for key in ("index", "loop", "device", "start", "peak", "end", "allocated", "freed")},
            "span": (step["begin_ns"], step["end_ns"]),
            "contributors": rows(step["contributors"]),
            "rest": step["rest"],
        }
        for step in sorted(report["steps"], key=lambda s: (s["index"], s["device"]))
    ]
    survivors = sorted((d, tuple(stacks[s]), *rest) for d, s, *rest in report["survivors"])
    keys = ("complete", "backward", "clock", "duration_ns")
    return {"devices": devices, "steps": steps, "survivors": survivors, **{key: report[key] for key in keys}}


def both(trace: Trace, folder: Path, window: int = 1, **how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    from cuptimem import _core

    source, target = trace.write(folder / "whole.cmem", **how), str(folder / "window.cmem")
    _core.extract(source, target, window)
    return _core.analyze(source, window=window), _core.analyze(target)


def module_stack(t: Trace, line: int) -> int:
    call = (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1775, 0x70 + line, "Linear")
    return t.stack((TORCH + "nn/functional.py", "linear", line), call, ("train.py", "main", 9))


def before_the_window(t: Trace) -> None:
    """One live block of every kind of origin."""
    for number in (1, 2):
        t.add(THREAD, 1000 + number, 10 + number, thread=number)
    t.add(SEED, 0x100, 500)
    t.mark(SEEDED, 2)
    t.add(OBJECT_NEW, 0x77, 1, t.name("Linear"))
    t.add(OBJECT_NEW, 0x99, 2, t.name("SGD"))
    t.alloc(0x200, 1, t.line(5))  # other: no node was made here yet
    t.node(1, t.line(5))
    t.alloc(0x300, 2, t.line(5))  # forward, because of the node
    t.alloc(0x400, 4, module_stack(t, 1))
    t.alloc(0x500, 8, t.stack((TORCH + "optim/adam.py", "step", 3), ("train.py", "main", 20)))
    t.alloc(0x600, 16)  # a thread without Python frames
    t.node(2, module_stack(t, 1))
    t.run(2, 11)
    t.alloc(0x700, 32, t.line(99), flags=IN_NODE | NODE_STACK)
    t.alloc(0x800, 64, t.line(44), flags=IN_NODE)
    t.done()
    t.run(NO_SEQUENCE, 11, ACCUMULATE)
    t.alloc(0x900, 128, t.line(99), flags=IN_NODE | NODE_STACK)
    t.done()
    t.alloc(0xA00, 3, t.line(6))
    t.run(NO_SEQUENCE, 11, ACCUMULATE)
    t.alloc(0xB00, 256, t.line(99), flags=IN_NODE | NODE_STACK)  # gradient accumulation
    t.done()
    t.run(777, 11)
    t.alloc(0xC00, 512, t.line(99), flags=IN_NODE | NODE_STACK)  # unresolved
    t.done()
    t.add(NODE_FREE, 2, 11)
    t.add(RESERVED, 40, 4096, device=CUDA, index=0)
    t.alloc(0x100, 40, t.line(7), device=CUDA, index=0)


def inside_the_window(t: Trace, opened: int = 1) -> None:
    optimizer = t.stack((TORCH + "optim/optimizer.py", "wrapper", 5), ("train.py", "main", 20))
    t.mark(WINDOW_OPEN, opened)
    for i in range(3):
        t.alloc(0x5000, 1000, module_stack(t, 1))
        t.node(10 + i, module_stack(t, 2))
        t.run(10 + i, 11)
        t.alloc(0x6000, 300, t.line(99), flags=IN_NODE | NODE_STACK)
        t.done()
        t.run(1, 11, thread=2)  # a node from before the window
        t.alloc(0x7000 + 64 * i, 20, 0, flags=IN_NODE | NODE_STACK, thread=2)
        t.done(thread=2)
        t.free(0x5000)
        t.free(0x6000)
        t.add(2, (0x100, 0x700, 0xB00)[i])  # frees of older blocks
        t.tick(OPTIMIZER, 0x99, optimizer)
    t.alloc(0x9000, 9, t.line(50))
    t.mark(WINDOW_CLOSE, opened)
    t.alloc(0xF000, 99_999, t.line(51))


def test_every_kind_of_origin_survives(tmp_path: Path) -> None:
    t = Trace()
    before_the_window(t)
    inside_the_window(t)
    whole, window = both(t, tmp_path)
    assert plain(window) == plain(whole)
    (cpu,) = (d for d in window["devices"] if d["device"] == "cpu")
    assert cpu["start"] == 1526 and cpu["peak"] == 1526 + 1320
    kinds = {(row[4], row[5]) for row in cpu["contributors"]}
    assert kinds >= {
        ("before start", None),
        ("other", None),
        ("forward", None),
        ("optimizer", None),
        ("backward", "MulBackward0"),
        ("backward", "AccumulateGrad"),
    }


@pytest.mark.parametrize("per_batch", [1, 5])
def test_batches_of_the_source_do_not_matter(tmp_path: Path, per_batch: int) -> None:
    t = Trace()
    before_the_window(t)
    inside_the_window(t)
    whole, window = both(t, tmp_path, per_batch=per_batch)
    assert plain(window) == plain(whole)


@pytest.mark.parametrize("number", [0, 1])
def test_a_window_of_a_window(tmp_path: Path, number: int) -> None:
    """What one extraction tells about the past, a second one tells again."""
    from cuptimem import _core

    t = Trace()
    before_the_window(t)
    inside_the_window(t)
    whole, _ = both(t, tmp_path)
    _core.extract(str(tmp_path / "window.cmem"), str(tmp_path / "again.cmem"), number)
    assert plain(_core.analyze(str(tmp_path / "again.cmem"))) == plain(whole)


def test_a_window_that_opens_during_a_backward(tmp_path: Path) -> None:
    t = Trace()
    for number in (1, 2):
        t.add(THREAD, 1000 + number, 10 + number, thread=number)
    t.node(1, t.line(1))
    t.node(2, t.line(2))
    t.run(1, 11, thread=2)
    t.run(2, 11, thread=2)
    t.mark(WINDOW_OPEN, 1)
    for address in (0x1000, 0x2000):
        t.alloc(address, 8, 0, flags=IN_NODE | NODE_STACK, thread=2)
        t.done(thread=2)
    t.mark(WINDOW_CLOSE, 1)
    whole, window = both(t, tmp_path)
    assert plain(window) == plain(whole)
    assert window["backward"] == {"bytes": 16, "resolved": 16, "accumulation": 0, "unresolved": 0}
    (cpu,) = window["devices"]
    assert sorted(window["stacks"][row[2]][0][2] for row in cpu["contributors"]) == [1, 2]


def test_the_walk_at_the_start_may_end_inside(tmp_path: Path) -> None:
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    t.alloc(0x1000, 8, t.line(1))
    t.free(0x6000)
    t.add(SEED, 0x5000, 500)
    t.add(SEED, 0x6000, 60)  # it died before the walk came to it
    t.mark(SEEDED, 2)
    t.free(0x5000)
    t.mark(WINDOW_CLOSE, 1)
    whole, window = both(t, tmp_path)
    assert plain(window) == plain(whole)
    assert window["devices"][0]["start"] == 560 and window["lost"]["seeds_skipped"] == 2


def test_meta_and_state(tmp_path: Path) -> None:
    t = Trace()
    before_the_window(t)
    inside_the_window(t, opened=4)
    meta = {"torch": "2.13.0", "ring.path": "/dev/shm/nothing", "ring.id": "12"}
    whole, window = both(t, tmp_path, 4, meta=meta, end=None)
    assert whole["state"] == "complete" and whole["reason"] == ""  # cut behind the window, which is whole
    assert window["complete"] and window["meta"] == {"torch": "2.13.0", "window": "4"}
    assert window["start_realtime_ns"] == whole["start_realtime_ns"]


def test_an_open_window_of_a_cut_trace_is_cut(tmp_path: Path) -> None:
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    t.alloc(0x1000, 8, t.line(1))
    _, window = both(t, tmp_path, end=None)
    assert window["state"] == "cut" and window["devices"][0]["end"] == 8


def test_only_what_the_window_needs_is_defined(tmp_path: Path) -> None:
    t = Trace()
    for i in range(2000):
        t.alloc(0x1000, 8, t.stack((f"file{i}.py", "f", i)))
        t.free(0x1000)
    t.mark(WINDOW_OPEN, 1)
    t.alloc(0x1000, 8, t.line(1))
    t.mark(WINDOW_CLOSE, 1)
    both(t, tmp_path)
    assert (tmp_path / "window.cmem").stat().st_size < 1000


def test_a_target_that_exists_is_left_alone(tmp_path: Path) -> None:
    from cuptimem import _core

    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    source, target = t.write(tmp_path / "whole.cmem"), tmp_path / "window.cmem"
    target.write_text("mine")
    with pytest.raises(_core.Error, match=r"window\.cmem.*exists"):
        _core.extract(source, str(target), 1)
    assert target.read_text() == "mine"


def test_no_such_window_leaves_no_file(tmp_path: Path) -> None:
    from cuptimem import _core

    t = Trace()
    t.alloc(0x1000, 8, t.line(1))
    source, target = t.write(tmp_path / "whole.cmem"), tmp_path / "window.cmem"
    with pytest.raises(_core.Error, match=r"^the trace has no window 1$"):
        _core.extract(source, str(target), 1)
    assert not target.exists()
