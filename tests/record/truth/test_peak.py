"""Peaks of the run and of each step equal the oracle's running maximum over the same blocks."""

import pytest


def joined(steps):
    """Steps of an evaluation begin where the model is called, which no program marks: they are part of the update that
    follows."""
    found, open_ones = [], []
    for step in steps:
        open_ones.append(step)
        if step[3] == "training":
            found.append([open_ones[0][0], max(s[1] for s in open_ones), step[2], step[3]])
            open_ones = []
    return found


def match(steps, marks):
    """Each step as a stretch of whole marked intervals, one after the other, by (start, peak, end); None where not.

    The first step may begin inside an interval, because what sets the program up is not part of it.
    """
    at, found = 0, []
    for number, (start, peak, end, _) in enumerate(steps):
        fits = None
        for last in range(at, len(marks)):
            highest = max(m[1] for m in marks[at : last + 1])
            if number == 0:
                same = marks[last][2] == end and peak <= highest
            else:
                same = (marks[at][0], highest, marks[last][2]) == (start, peak, end)
            if same:
                fits = last
                break
        if fits is None and number == 0:
            return None
        if fits is None:
            found.append(None)
            break
        found.append(fits - at + 1)
        at = fits + 1
    return found


RUNS = [("gpt", None), ("cnn", None), ("lstm", None), ("lstm", 16), ("gan", None), ("accumulate", None)]
EXTENDED = [("lstm", None)]

# What these loops count themselves: ten updates and four batches of evaluation; updates.
STEPS = {"gpt": 14, "gan": 15, "accumulate": 8}


@pytest.mark.parametrize(
    ("program", "start"),
    [pytest.param(*run, marks=[pytest.mark.extended] * (run in EXTENDED)) for run in RUNS],
    ids=[f"{p}-{'start' if s is None else s}" for p, s in RUNS],
)
def test_peak_and_steps(child, tmp_path, program, start):
    found = child("peak_child.py", program, tmp_path / "run.cmem", *(() if start is None else (start,)))
    below = found["oracle"]
    assert found["complete"]
    assert found["lost"] == [0, 0, 0]
    assert found["peak"] == below["peak"] == found["replay"]["peak"]
    assert found["end"] == below["live_bytes"] == found["replay"]["end"]
    assert found["contributors"] == [found["peak"], found["replay"]["count"]]
    assert found["differing"] == [], "contributors by stack differ from a plain replay of the same trace"
    assert found["tables"].keys() == {"end", "allocated", "temporary"}
    for what, (shown, total, count, blocks, wrong) in found["tables"].items():
        assert (shown, count, wrong) == (total, blocks, []), what
        assert total > 0 or what == "end"
    for peak, total in found["step_sums"]:
        assert peak == total
    for peak, total, of_step in found["whole_steps"]:
        assert peak == total == of_step
    assert len(found["steps"]) == STEPS.get(program, len(found["steps"])) >= 5
    matched = match(joined(found["steps"]), below["marks"])
    assert matched is not None and None not in matched, (found["steps"], below["marks"], matched)
    assert found["backward"][:2] == found["plain_backward"]
    assert found["backward"][0] == found["backward"][1] > 0, "backward bytes without a forward line"


def test_peak_with_threads(child, tmp_path):
    found = child("peak_child.py", "threads", tmp_path / "run.cmem")
    in_flight = 4 * found["largest"]
    assert abs(found["peak"] - found["oracle"]["peak"]) <= in_flight
    assert found["peak"] == found["replay"]["peak"] == found["contributors"][0]
    assert found["end"] == found["oracle"]["live_bytes"]
    assert found["lost"] == [0, 0, 0]


def test_the_peak_of_racing_threads(child, tmp_path):
    """The peak is below the oracle's by no more than the blocks whose calls were under way; all else is exact."""
    found = child("racing_child.py", "race", tmp_path / "run.cmem")
    below = found["oracle"]
    assert found["sure"] <= found["peak"] <= below["peak"]
    assert found["peak"] == found["replay"][0]
    assert found["end"] == found["replay"][1] == below["live_bytes"]
    assert sum(found["replay"][2:]) == found["calls"] == 2 * 64 * 3000
    assert (found["lost"], below["overflow"]) == ([0, 0, 0], 0)


def test_a_call_under_way_does_not_count(child, tmp_path):
    """5 MiB are live while another thread is inside of allocating or freeing 3: the peak is 5, not 8."""
    mib = 1 << 20
    assert child("racing_child.py", "held", tmp_path / "run.cmem") == [[8 * mib, 5 * mib, 0, 2]] * 2
