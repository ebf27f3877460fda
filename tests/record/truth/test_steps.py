"""One step an iteration, whatever the loop looks like."""

import json
from pathlib import Path

import oracle
import pytest

pytestmark = pytest.mark.torch
HERE = Path(__file__).resolve().parent

# case: total steps (or bounds), steps of loops where they matter
EXPECTED = {
    "plain": 12,
    "recreated_optimizer": 12,
    "two_optimizers": 12,
    "optimizers_in_a_loop": 12,
    "critic_five_times": 10,
    "critic_in_few_iterations": 30,
    "delayed_actor": 10,
    "lbfgs": 8,
    "lbfgs_once": 60,
    "step_at_the_end": 20,
    "by_hand": 20,
    "by_hand_with_grad": 20,
    "two_losses_by_hand": 20,
    "inner_gradients": 12,
    "optimizer_in_backward": 12,
    "scaler_one_overflow": 23,  # the skipped iteration belongs to the step that the next optimizer step ends
    "scaler_long_overflow": 24,  # the silence is long: backward passes take over, and give back
    "two_phases": 20,
    "short_evaluation_every_k": 20 + 4 * 3,
    "another_model_is_evaluated": 3 * (8 + 4),
    "frozen_part": 12,
    "evaluation_in_every_iteration": 12 + 12,
    "labels_in_every_iteration": 12,
    "frozen_in_evaluation_mode": 12,
    "accumulation": 24,  # six steps of the optimizer are too few
    "inference_with_loader": 9,
    "inference_with_calls": 40,
    "generation": 7 + 116,
    "explicit": 7,
    "scheduled": 12,
}


@pytest.fixture(scope="module")
def seen(forks, oracle_library, tmp_path_factory):
    script, environment = HERE / "steps_child.py", oracle.environment(oracle_library, PYTHONPATH=str(HERE.parents[2]))
    cwd = tmp_path_factory.mktemp("steps")
    done = forks.of(script.read_text()).run(script, environment=environment, cwd=cwd)
    if done.code != 0:
        pytest.fail(f"exit {done.code}: {done.err[-1500:]}", pytrace=False)
    return json.loads(done.out.splitlines()[-1])


@pytest.mark.parametrize("case", EXPECTED)
def test_steps(seen, case):
    assert seen[case]["steps"] == EXPECTED[case], seen[case]
    assert seen[case]["indices"] and seen[case]["tiles"], seen[case]


def test_which_updates_make_an_iteration(seen):
    assert seen["critic_five_times"]["rate"] == [5, True]
    assert seen["critic_in_few_iterations"]["rate"] == [5, False]
    assert seen["delayed_actor"]["rate"] == [2, True]
    assert seen["plain"]["rate"] is None and seen["inner_gradients"]["rate"] is None


def test_a_clock_with_too_few_steps_is_passed_over(seen):
    assert seen["lbfgs_once"]["passed"] == ["optimizer", 1]
    assert seen["step_at_the_end"]["passed"] == ["optimizer", 1]
    assert seen["accumulation"]["passed"] == ["optimizer", 6]
    assert seen["by_hand"]["passed"] is None and seen["plain"]["passed"] is None


def test_training_without_an_optimizer_is_training(seen):
    for case in ("by_hand", "by_hand_with_grad", "two_losses_by_hand", "lbfgs_once", "step_at_the_end"):
        assert seen[case]["loops"] == {"training": seen[case]["steps"]}, case
        assert seen[case]["clock"] == "backward", case


def test_waiting_makes_no_step(seen):
    one = ["training"] * 12 + ["evaluation"] * 6
    for case in ("", "_slow_at_first", "_slow_in_training", "_slow_in_evaluation"):
        assert seen[f"validation{case}"]["order"] == 3 * one, case
    assert seen["validation_by_calls"]["order"] == 3 * one


def test_another_model_is_evaluated(seen):
    assert seen["another_model_is_evaluated"]["order"] == 3 * (["training"] * 8 + ["evaluation"] * 4)
    assert len({*seen["another_model_is_evaluated"]["allocated"][8:12]}) == 1


def test_the_first_step_has_its_batch_and_its_frozen_part(seen):
    first, *others = seen["frozen_part"]["allocated"]
    assert len({*others}) == 1 and first >= others[0]


def test_evaluation_in_every_iteration_is_a_loop_of_its_own(seen):
    assert seen["evaluation_in_every_iteration"]["order"] == ["training", "evaluation"] * 12
    assert len({*seen["evaluation_in_every_iteration"]["allocated"][2::2]}) == 1


def test_a_generation_is_one_loop(seen):
    assert seen["generation"]["loops"] == {"evaluation": seen["generation"]["steps"]}
    assert seen["generation"]["changes"] == 0


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
    assert seen["explicit"]["clock"] == "step"
    assert seen["plain"]["clock"] == "optimizer"
    assert seen["inference_with_loader"]["clock"] == "data"


def test_module_calls_are_the_last_resort(seen):
    assert seen["inference_with_calls"]["clock"] == "module"
