"""One step an iteration, whatever the loop looks like."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

# case: total steps (or bounds), steps of loops where they matter
EXPECTED = {
    "plain": 12,
    "recreated_optimizer": 12,
    "two_optimizers": 12,
    "optimizers_in_a_loop": 12,
    "lbfgs": 8,
    "optimizer_in_backward": 12,
    "scaler_one_overflow": 23,  # the skipped iteration belongs to the step that the next optimizer step ends
    "scaler_long_overflow": 24,  # the silence is long: the loader's clock takes over, and gives back
    "two_phases": 20,
    "short_evaluation_every_k": 20,
    "accumulation": 6,
    "inference_with_loader": 9,
    "explicit": 7,
    "scheduled": 12,
}


@pytest.fixture(scope="module")
def seen():
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "steps_child.py")], capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        pytest.fail(f"exit {done.returncode}: {done.stderr[-1500:]}", pytrace=False)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", EXPECTED)
def test_steps(seen, case):
    assert seen[case]["steps"] == EXPECTED[case], seen[case]
    assert seen[case]["indices"] and seen[case]["tiles"], seen[case]


def test_a_critic_that_steps_more_often(seen):
    # c c c c c g: only the first c after g shares a step with it
    assert seen["critic_five_times"]["steps"] in (30, 31), seen["critic_five_times"]


def test_evaluation_is_a_loop_of_its_own(seen):
    loops = seen["evaluation"]["loops"]
    assert loops["training"] == 30, loops
    others = sum(loops.values()) - loops["training"]  # a loader that is asked once more and has nothing may count
    assert 120 <= others <= 126, loops
    assert max(loops, key=lambda name: loops[name]).startswith("evaluation"), loops
    assert seen["evaluation"]["tiles"]


def test_a_moved_clock_is_said(seen):
    assert seen["two_phases"]["changes"] == 1
    assert seen["scaler_long_overflow"]["changes"] >= 1
    assert seen["plain"]["changes"] == 0


def test_which_clock(seen):
    assert "explicit" in seen["explicit"]["clock"] or "step" in seen["explicit"]["clock"]
    assert "optimizer" in seen["plain"]["clock"]
    assert "data" in seen["inference_with_loader"]["clock"]


def test_module_calls_are_the_last_resort(seen):
    """No better clock ticks: after a second the outermost module's calls do."""
    assert "module" in seen["inference_with_calls"]["clock"], seen["inference_with_calls"]
    assert seen["inference_with_calls"]["steps"] > 5
