"""Hand-made traces with known answers: steps, what they leave, and windows of them."""

from itertools import pairwise
from pathlib import Path

import pytest
from craft import BACKWARD, CUDA, MODULE, OPTIMIZER, SEEDED, STEP, TORCH, WINDOW_CLOSE, WINDOW_OPEN, Trace
from driver_parts import moment
from hand_made import Analyze, only_device, shares, step_rows, training

import cuptimem
from cuptimem import _core
from cuptimem.output.text import views
from cuptimem.output.text.blocks import Text
from cuptimem.report.diff import compare
from tests.event_kinds import OOM, SAMPLE, SEED

OOM_LEFT = 11

# --- steps ----------------------------------------------------------------------------------------------------


def test_steps(analyze: Analyze) -> None:
    t = Trace()
    training(t, 4)
    t.alloc(0x9000, 5000, t.line(50))
    report = analyze(t)
    assert step_rows(report) == [
        (0, 1000, 1310, 1210, 310, 100, 3),
        (1, 1210, 1320, 1220, 310, 300, 3),
        (2, 1220, 1330, 1230, 310, 300, 3),
        (3, 1230, 1340, 1240, 310, 300, 3),
    ]
    assert {step["loop"] for step in report["steps"]} == {"training"}
    assert report["clock"]["kind"] == "optimizer"
    assert report["clock"]["where"] == ("train.py", 20, "main")
    device = only_device(report)
    assert device["peak"] == 6040 and device["peak_step"] is None  # in the tail


def test_steps_tile_the_time(analyze: Analyze) -> None:
    t = Trace()
    training(t, 5)
    steps = analyze(t)["steps"]
    for before, after in pairwise(steps):
        assert before["end_ns"] == after["begin_ns"] and before["end"] == after["start"]
    for step in steps:
        assert step["begin_ns"] <= step["peak_ns"] <= step["end_ns"]


def test_contributors_of_a_step_are_those_of_its_peak(analyze: Analyze) -> None:
    t = Trace()
    training(t, 3)
    report = analyze(t)
    assert shares(report["steps"][1]["contributors"]) == [
        (1000, 1, t.line(1)),
        (200, 1, t.line(11)),
        (100, 1, t.line(12)),
        (20, 2, t.line(13)),
    ]
    assert report["steps"][1]["rest"] == (0, 0)


def test_ten_contributors_and_the_rest(analyze: Analyze) -> None:
    t = Trace()
    stack = t.line(999)
    for i in range(25):
        t.alloc(0x1000 * (i + 1), 100 + i, t.line(i + 1))
    t.tick(STEP, 1, stack)
    t.alloc(0x100000, 1, t.line(500))
    t.tick(STEP, 1, stack)
    first, second = analyze(t)["steps"]
    assert shares(first["contributors"]) == [(100 + i, 1, t.line(i + 1)) for i in range(24, 14, -1)]
    assert first["rest"] == (sum(100 + i for i in range(15)), 15)
    assert shares(second["contributors"]) == shares(first["contributors"])
    assert second["rest"] == (first["rest"][0] + 1, 16)


def test_contributors_of_the_step_that_is_asked_for(analyze: Analyze) -> None:
    t = Trace()
    training(t, 3)
    t.alloc(0x9000, 5000, t.line(50))
    report = analyze(t, step=2)
    assert sum(row[0] for row in only_device(report)["contributors"]) == report["steps"][2]["peak"] == 1330
    assert only_device(report)["peak"] == 6030


def test_a_step_that_is_not_there(analyze: Analyze) -> None:
    from cuptimem._core import Error

    t = Trace()
    training(t, 3)
    with pytest.raises(Error, match=r"^the trace has no step 3: it has steps 0 to 2 \(training\)$"):
        analyze(t, step=3)


def test_of_many_loops_a_refused_step_names_three(analyze: Analyze) -> None:
    from cuptimem._core import Error

    t = Trace()
    for i in range(27):
        t.alloc(0x1000 + 64 * i, 10, t.line(9))
        t.tick(OPTIMIZER, 1, t.line(20 + i // 3))
    with pytest.raises(Error, match=r"steps 0 to 26 \(training, training 2, training 3 and 6 more loops\)$"):
        analyze(t, step=27)


def test_every_device_has_its_steps(analyze: Analyze) -> None:
    t = Trace()
    stack = t.line(9)
    t.alloc(0x1000, 10, stack)
    t.tick(STEP, 1, stack)
    t.alloc(0x1000, 70, stack, device=CUDA, index=0)
    t.tick(STEP, 1, stack)
    steps = analyze(t)["steps"]
    assert [(s["index"], s["device"], s["start"], s["peak"], s["end"]) for s in steps] == [
        (0, "cpu", 0, 10, 10),
        (1, "cpu", 10, 10, 10),
        (1, "cuda:0", 0, 70, 70),
    ]


def test_survivors_at_the_last_boundary_and_at_the_end(analyze: Analyze) -> None:
    t = Trace()
    training(t, 4)
    t.alloc(0x9000, 5000, t.line(50))
    report = analyze(t)
    assert report["survivors"] == [
        ("cpu", t.line(1), 1000, 1, -1, -1),
        ("cpu", t.line(11), 200, 1, 3, 3),
        ("cpu", t.line(13), 40, 4, 0, 3),
    ]
    assert report["survivors_at_end"] == [
        ("cpu", t.line(50), 5000, 1, 4, 4),
        ("cpu", t.line(1), 1000, 1, -1, -1),
        ("cpu", t.line(13), 40, 4, 0, 3),
    ]


def test_without_a_clock_there_are_no_steps(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 10, t.line(1))
    report = analyze(t)
    assert report["steps"] == []
    nothing = {"kind": None, "where": None, "changes": [], "loops": [], "passed": None, "rate": None}
    assert report["clock"] == nothing
    assert report["survivors"] == report["survivors_at_end"] == [("cpu", t.line(1), 10, 1, -1, -1)]


def test_backward_passes_are_steps_where_the_optimizer_ticks_too_rarely(analyze: Analyze) -> None:
    t = Trace()
    for i in range(12):
        t.tick(BACKWARD, 0, t.line(15))
        if i % 4 == 3:
            t.tick(OPTIMIZER, 0x9000, t.line(20))
    report = analyze(t)
    assert (report["clock"]["kind"], report["clock"]["where"]) == ("backward", ("train.py", 15, "main"))
    assert report["clock"]["passed"] == ("optimizer", ("train.py", 20, "main"), 3)
    assert [loop["loop"] for loop in report["clock"]["loops"]] == ["training"]


def test_a_closure_is_a_part_of_the_optimizers_step(analyze: Analyze) -> None:
    """Its passes are told by the optimizer's frame below them: the optimizer is not left out."""
    t = Trace()
    closure = t.stack(("train.py", "closure", 15), (TORCH + "optim/lbfgs.py", "step", 300), ("train.py", "main", 20))
    for i in range(12):
        for _ in range(12 if i == 6 else 3):
            t.tick(BACKWARD, 0, closure)
        t.tick(OPTIMIZER, 0x9000, t.line(20))
    clock = analyze(t)["clock"]
    assert [(loop["kind"], loop["steps"]) for loop in clock["loops"]] == [("optimizer", 12)]


def test_modules_of_a_data_set_are_no_clock(analyze: Analyze) -> None:
    t = Trace()
    data = t.stack(("data.py", "get", 3), (TORCH + "utils/data/_utils/fetch.py", "fetch", 50), ("train.py", "main", 9))
    for i in range(20):
        t.tick(MODULE, 0x5000, data)
        if i % 2:
            t.tick(MODULE, 0x6000, t.line(12))
    assert analyze(t)["clock"]["loops"][0]["steps"] == 10


def test_updates_of_an_iteration(analyze: Analyze) -> None:
    t = Trace()
    for i in range(50):
        t.tick(OPTIMIZER, 0x9000, t.line(20))
        if i % 5 == 4:
            t.tick(OPTIMIZER, 0xA000, t.line(25))
    clock = analyze(t)["clock"]
    assert clock["rate"] == (5, ("train.py", 25, "main"), True)
    assert clock["loops"][0]["steps"] == 10


# --- windows --------------------------------------------------------------------------------------------------


def test_a_window_has_its_own_numbers(analyze: Analyze) -> None:
    t = Trace()
    t.add(SEED, 0x5000, 500)
    t.mark(SEEDED)
    t.alloc(0x1000, 10_000, t.line(1))
    t.free(0x1000)
    t.free(0x9000)  # unknown
    t.alloc(0x1000, 50, t.line(2))
    t.alloc(0x1000, 100, t.line(2))  # replaces
    t.tick(STEP, 1, t.line(8))
    t.mark(WINDOW_OPEN, 7)
    opened = t.elapsed
    t.alloc(0x2000, 40, t.line(3))
    t.tick(STEP, 1, t.line(8))
    t.free(0x1000)
    t.tick(STEP, 1, t.line(8))
    t.mark(WINDOW_CLOSE, 7)
    closed = t.elapsed
    t.alloc(0x3000, 9999, t.line(4))
    report = analyze(t, window=7)
    device = only_device(report)
    assert (device["start"], device["peak"], device["end"]) == (600, 640, 540)
    assert shares(device["contributors"]) == [(500, 1, 0), (100, 1, t.line(2)), (40, 1, t.line(3))]
    assert (device["allocations"], device["frees"]) == (1, 1)
    assert step_rows(report) == [(0, 600, 640, 640, 40, 0, 1), (1, 640, 640, 540, 0, 100, 0)]
    assert (report["begin_ns"], report["duration_ns"]) == (opened, closed - opened)
    assert report["events"] == 4
    assert report["lost"]["unknown_frees"] == report["lost"]["replaced"] == 0  # those before it are not its own


def test_times_of_a_window_count_from_its_start(analyze: Analyze) -> None:
    """Also of a moment that is asked for, and of the realtime clock."""
    t = Trace()
    t.alloc(0x1000, 40, t.line(1), after=1 << 22)
    t.mark(WINDOW_OPEN, 1)
    opened = t.elapsed
    t.tick(STEP, 1, t.line(8), after=1 << 22)
    times: dict[str, list[int]] = {"tick": [t.elapsed], "rss": [], "peak": [], "oom": [], "moment": []}
    for i in range(3):
        t.add(SAMPLE, 1, 1000 * (i + 1), after=1 << 22, thread=0)
        times["rss"].append(t.elapsed)
        t.alloc(0x2000 + i, 10, t.line(2), after=1 << 22)
        times["peak"].append(t.elapsed)
        t.add(OOM, 0, 1 << 40, t.line(3), after=1 << 22)
        times["oom"].append(t.elapsed)
        moment(t, (1 << 20) + i)
        times["moment"].append(t.elapsed)
        t.tick(STEP, 1, t.line(8), after=1 << 22)
        times["tick"].append(t.elapsed)
    t.mark(WINDOW_CLOSE, 1)
    t.alloc(0x9000, 9999, t.line(4))

    whole = analyze(t)
    within = {what: [time - opened for time in at] for what, at in times.items()}
    report = analyze(t, window=1, ledger_at_ns=within["moment"][1])
    assert report["start_realtime_ns"] == whole["start_realtime_ns"] + opened
    (cpu,) = (device for device in report["devices"] if device["device"] == "cpu")
    assert cpu["peak_time_ns"] == within["peak"][-1]
    assert [row[0] for row in cpu["ooms"]] == within["oom"]
    assert cpu["timeline"][0][0] == 0 and [row[0] for row in cpu["timeline"][1:]] == within["peak"]
    assert [row[0] for row in report["rss"]] == within["rss"]
    steps = [row for row in report["steps"] if row["device"] == "cpu"]
    assert [(row["begin_ns"], row["end_ns"]) for row in steps] == [
        (0, within["tick"][0]),
        *zip(within["tick"], within["tick"][1:], strict=False),
    ]
    assert [row["peak_ns"] for row in steps[1:]] == within["peak"]
    assert {row["what"]: row["time_ns"] for row in report["ledger"]} == {
        "peak": within["moment"][2],
        "end": within["moment"][2],
        "asked": within["moment"][1],
    }
    assert [point[0] for point in report["device_timeline"][0]["points"]] == within["moment"]


@pytest.mark.parametrize("end", ["", "the disk is full", None])
def test_a_closed_window_is_complete_whatever_follows(analyze: Analyze, end: str | None) -> None:
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    t.alloc(0x1000, 10, t.line(1))
    t.mark(WINDOW_CLOSE, 1)
    t.mark(WINDOW_OPEN, 2)
    t.alloc(0x2000, 20, t.line(1))
    report, other = analyze(t, window=1, end=end), analyze(t, window=2, end=end)
    assert (report["state"], report["reason"], report["complete"]) == ("complete", "", True)
    assert (other["state"], other["reason"] == "") == ("complete" if end is not None else "cut", end == "")


def test_a_window_that_is_still_open(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 10, t.line(1))
    t.mark(WINDOW_OPEN, 1)
    t.alloc(0x2000, 20, t.line(1))
    assert only_device(analyze(t, window=1, end=None))["end"] == 30


def test_an_unknown_window(analyze: Analyze) -> None:
    from cuptimem._core import Error

    t = Trace()
    t.alloc(0x1000, 10, t.line(1))
    with pytest.raises(Error, match=r"^the trace has no window 3$"):
        analyze(t, window=3)


# --- the step that did not end --------------------------------------------------------------------------------


def cut_short(t: Trace, steps: int, line: int = 15, called: int = 15) -> None:
    """Steps of 100 bytes each with a call in line 15, and one that makes 400 in a call and does not end."""
    optimizer = t.stack((TORCH + "optim/optimizer.py", "wrapper", 5), ("train.py", "main", 20))
    t.alloc(0x1000, 1000, t.line(1))
    for _ in range(steps):
        t.tick(MODULE, 0x77, t.line(15))
        t.alloc(0x2000, 100, t.line(15))
        t.free(0x2000)
        t.tick(OPTIMIZER, 0x99, optimizer)
    t.tick(MODULE, 0x77, t.line(called))
    t.alloc(0x3000, 400, t.line(line))
    t.alloc(0x4000, 50, t.line(line))
    t.free(0x3000)


@pytest.mark.parametrize("steps", [1, 2, 12])
@pytest.mark.parametrize("refused", [False, True], ids=["exception", "oom"])
def test_the_step_that_an_exception_cuts_short_is_the_last(tmp_path: Path, steps: int, refused: bool) -> None:
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    cut_short(t, steps)
    if refused:
        t.add(OOM, 0, 1 << 40, t.line(15))
        t.mark(OOM_LEFT, 1)
    path = t.write(tmp_path / "t.cmem", meta={} if refused else {"exception": "ValueError"})
    report = _core.analyze(path)
    *ended, last = report["steps"]
    assert [step["incomplete"] for step in ended] == [False] * steps
    assert step_rows(report)[-1] == (steps, 1000, 1450, 1050, 450, 400, 2)
    assert last["incomplete"] and last["loop"] == "training"
    assert only_device(report)["peak_step"] == steps
    assert shares(last["contributors"]) == [(1000, 1, t.line(1)), (450, 2, t.line(15))]
    assert [loop["steps"] for loop in report["clock"]["loops"]] == [steps]
    if refused:
        (row,) = only_device(report)["ooms"]
        assert row[4] == steps
    asked = only_device(_core.analyze(path, step=steps, tables=("start", "stepped", "end")))
    assert shares(asked["contributors"]) == shares(last["contributors"])
    sums = {name: sum(row[0] for row in rows) for name, (rows, _) in asked["tables"].items()}
    assert sums == {"start": 1000, "stepped": 450, "end": 1050}
    assert _core.analyze(path, step=-1)["step_asked"] == steps - 1
    with pytest.raises(_core.Error, match=f"no step {steps + 1}"):
        _core.analyze(path, step=steps + 1)


def test_what_follows_the_last_step_is_none(tmp_path: Path) -> None:
    """Without an exception (a loop that is left), and with one behind the loop: a call in another line."""
    left, behind = Trace(), Trace()
    cut_short(left, 12)
    cut_short(behind, 12, line=30, called=30)
    for name, t, meta in (("left", left, {}), ("behind", behind, {"exception": "ValueError"})):
        report = _core.analyze(t.write(tmp_path / f"{name}.cmem", meta=meta))
        assert not any(step["incomplete"] for step in report["steps"])
        assert len(report["steps"]) == 12 and only_device(report)["peak_step"] is None


@pytest.mark.parametrize("refused", [False, True])
def test_a_step_without_a_tick_at_its_end_is_incomplete_where_it_was_refused_memory(
    tmp_path: Path, refused: bool
) -> None:
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    for _ in range(12):
        t.tick(MODULE, 0x77, t.line(15))
        t.alloc(0x2000, 100, t.line(15))
        t.free(0x2000)
    if refused:
        t.add(OOM, 0, 1 << 40, t.line(15))
        t.mark(OOM_LEFT, 1)
    report = _core.analyze(t.write(tmp_path / "t.cmem", meta={"exception": "RuntimeError"}))
    assert [step["incomplete"] for step in report["steps"]] == [False] * 11 + [refused]


def test_rates_and_comparisons_are_of_steps_that_ended(tmp_path: Path) -> None:
    t = Trace()
    cut_short(t, 12)
    report = cuptimem.open(t.write(tmp_path / "t.cmem", meta={"exception": "a.OutOfMemoryError"}))
    assert (len(report.steps), len(report.steps.ended), report.loops) == (13, 12, {"training": 12})
    assert report.steps[-1].incomplete and report.step_peak(-1).step == 11 and report.step_peak(12).bytes == 1450
    shown = "\n".join(block.text for block in views.summary(report) if isinstance(block, Text))
    assert "Steps: 12, counted by" in shown and "cpu: peak per step 1.1 KiB; 1000 B live at step ends, steady" in shown
    assert "step 12 did not end: a.OutOfMemoryError; cpu peak 1.4 KiB, 1.0 KiB live at the end" in shown
    for section in compare(report, report)[0].sections:
        assert section.what != "stepped" or section.steps == (12, 12)
