"""Where free changes are silent: a false alarm is worse than none. On blocks made by hand, without PyTorch."""

import json
from array import array
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cuptimem.advice import (
    attention,
    batches,
    checkpoint,
    copies,
    data,
    evaluation,
    garbage,
    gradients,
    in_place,
    no_grad,
    optimizers,
    precision,
    recorded,
    release,
    trainers,
)
from cuptimem.advice.program import GAP, Program, call_line
from cuptimem.advice.readers import Readers
from cuptimem.advice.technique import Change, Rule
from cuptimem.report.contents import Contributor
from cuptimem.report.lives import LifeBlocks, LifeSteps, Lives
from cuptimem.report.stacks import Frame

TORCH = "/venv/lib/python3.11/site-packages/torch"
LOOP = Frame("train.py", "main", 9)

Row = tuple[int, int, int, int, Contributor]  # birth, end (-1: none), bytes, step, of


def contributor(phase: str, category: str, *stack: Frame, saved_by: str | None = None) -> Contributor:
    return Contributor(0, 0, (*stack, LOOP), phase, category=category, saved_by=saved_by)


def program(
    *rows: Row,
    clock: str = "optimizer",
    steps: int = 3,
    length: int = 100,
    device: str = "cpu",
    types: str = "",
    readers: Readers | None = None,
    first: int = 0,
) -> Program:
    """Positions count from 1; each step has `length` of them. first: the first step that is kept."""
    columns = [array("q") for _ in range(7)]
    for i, (birth, end, size, step, _) in enumerate(rows):
        last = -1 if end < 0 else (end - 1) // length
        for column, value in zip(
            columns, (birth * GAP, -1 if end < 0 else end * GAP, size, size, i, step, last), strict=True
        ):
            column.append(value)
    numbers = range(first, steps)
    marks = LifeSteps(
        array("q", numbers),
        array("q", [0] * len(numbers)),
        array("q", [step * length * GAP for step in numbers]),
        array("q", [(step + 1) * length * GAP for step in numbers]),
        array("q", [0] * len(numbers)),
        array("q", [0] * len(numbers)),
        array("q", [0] * len(numbers)),
    )
    lives = Lives(device, False, LifeBlocks(*columns), tuple(row[4] for row in rows), marks, ("training",))
    return Program(lives, clock, types=frozenset(types.split()), readers=readers)


def peaks(rule: Rule, one: Program, value: str = "") -> tuple[int, int]:
    """As it is, and with the change, for there is one."""
    change = rule(one, one.blocks, value)
    assert not isinstance(change, str), change
    return one.peak, one.replay(change.blocks)[0]


GRADIENT = contributor("backward", "gradient")
UPDATE = contributor("optimizer", "temporary", Frame(f"{TORCH}/optim/adamw.py", "adamw", 1))


UPDATED: Row = (60, 61, 1, 0, UPDATE)


def rows_of_gradients(end: int) -> list[Row]:
    """Made in step 0; the forward of step 1 makes the peak."""
    return [
        (50, end, 100, 0, GRADIENT),
        UPDATED,
        (110, 160, 1000, 1, contributor("forward", "activation")),
    ]


def test_gradients_that_the_next_step_frees() -> None:
    one = program(*rows_of_gradients(150))
    assert peaks(gradients.zero_grad_late, one) == (1100, 1000)


def test_a_step_that_may_be_one_of_several_passes() -> None:
    for clock in ("backward", "data", "module", "step"):
        one = program(*rows_of_gradients(150), (150, 151, 1, 1, GRADIENT), clock=clock)
        assert isinstance(gradients.zero_grad_late(one, one.blocks, ""), str)
        assert isinstance(gradients.set_to_none(one, one.blocks, ""), str)


def test_two_optimizers() -> None:
    other = Contributor(0, 0, (Frame("train.py", "main", 12),), "optimizer", category="temporary")
    one = program(*rows_of_gradients(150), (170, 171, 1, 1, other))
    assert gradients.zero_grad_late(one, one.blocks, "") == "several optimizers: whose gradients they are is unknown"


def test_gradients_that_wait_through_an_evaluation() -> None:
    """The next training step frees them: not zeroed in place, and freed too late."""
    one = program(*rows_of_gradients(250), (260, 350, 100, 2, GRADIENT), steps=4)
    assert gradients.set_to_none(one, one.blocks, "") == "gradients are set to None already"
    assert peaks(gradients.zero_grad_late, one) == (1100, 1000)


def test_gradients_that_no_optimizer_has() -> None:
    """Those of a trunk stay, and the optimizer sets its own to None."""
    rows = [(50, -1, 100, 0, GRADIENT), (51, 101, 100, 0, GRADIENT), UPDATED, (150, 160, 1, 1, GRADIENT)]
    one = program(*rows)
    assert "optimizer's parameters are set to None already" in str(gradients.set_to_none(one, one.blocks, ""))


def test_gradients_that_another_backward_pass_may_add_to() -> None:
    one = program(*rows_of_gradients(250), (130, 131, 100, 1, contributor("backward", "temporary")))
    assert isinstance(gradients.zero_grad_late(one, one.blocks, ""), str)


def test_gradients_of_the_last_step() -> None:
    """Nothing frees them; those of the same line before were freed."""
    last = [(250, -1, 100, 2, GRADIENT), (310, 320, 2000, 3, contributor("forward", "temporary"))]
    one = program(*rows_of_gradients(150), *last, steps=4)
    assert peaks(gradients.zero_grad_late, one) == (2100, 2000)


def test_gradients_that_wait_through_steps_that_were_not_kept() -> None:
    one = program(*rows_of_gradients(450), steps=3)
    assert isinstance(gradients.zero_grad_late(one, one.blocks, ""), str)


def test_an_optimizer_that_cannot_be_fused() -> None:
    own = contributor("optimizer", "temporary", Frame("lion.py", "Lion.step", 3))
    one = program((10, 20, 100, 0, own))
    assert "none of PyTorch's" in str(optimizers.fused(one, one.blocks, ""))
    one = program((10, 20, 100, 0, UPDATE))
    assert not isinstance(optimizers.fused(one, one.blocks, ""), str)


def layer(name: str, function: str, address: int, *outer: Frame) -> tuple[Frame, ...]:
    inside = Frame(f"{TORCH}/nn/modules/x.py", f"{name}.forward", 1, module=name, module_address=address)
    return Frame(f"{TORCH}/nn/functional.py", function, 1), inside, *outer


SEQUENTIAL = Frame(f"{TORCH}/nn/modules/container.py", "Sequential.forward", 1, module="Sequential", module_address=7)


def activation(before: str, function: str, node: str, *outer: Frame) -> Program:
    source = contributor("forward", "activation", *layer(before, "f", 1, *outer), saved_by=node)
    output = contributor("forward", "activation", *layer("Activation", function, 2, *outer))
    return program((10, 90, 100, 0, source), (11, 80, 100, 0, output))


def test_an_activation_function_that_alone_reads_its_input() -> None:
    one = activation("Conv2d", "leaky_relu", "LeakyReluBackward0", SEQUENTIAL)
    assert peaks(in_place.in_place, one) == (200, 100)


def test_inputs_that_others_may_read() -> None:
    for one in (
        activation("Conv2d", "leaky_relu", "LeakyReluBackward0"),  # called from the user's own forward
        activation("Sigmoid", "leaky_relu", "LeakyReluBackward0", SEQUENTIAL),  # it needs its output in backward
        activation("Conv2d", "relu", "ReluBackward0", SEQUENTIAL),  # it saves its output already
        activation("Conv2d", "gelu", "GeluBackward0", SEQUENTIAL),  # it needs its input
    ):
        assert isinstance(in_place.in_place(one, one.blocks, ""), str)


def test_stages_whose_names_end_in_a_number() -> None:
    """All of them together, and what repeats in them; not what has no modules in it, nor other names."""
    names = [f"net.layer{stage}.{number}.conv{conv}" for stage in (1, 2) for number in (0, 1) for conv in (1, 2)]
    named = [
        replace(contributor("forward", "activation", *layer("Conv2d", "conv2d", i)), qualified=name)
        for i, name in enumerate([*names, "net.layernorm", "net.head3.fc"])
    ]
    blocks = program(*((10 + i, 60, 100, 0, one) for i, one in enumerate(named))).blocks
    inner = [f"net.layer{stage}.{number}" for stage in (1, 2) for number in (0, 1)]
    assert checkpoint.levels(blocks) == {
        "net.layer1.*": inner[:2],
        "net.layer2.*": inner[2:],
        "net.layer1,net.layer2": ["net.layer1", "net.layer2"],
        "net.layer*.*": inner,
    }
    assert set(checkpoint.levels(blocks[:-2])) == {"net.layer1.*", "net.layer2.*", "net.layer*", "net.layer*.*"}
    assert checkpoint.matching(blocks, "net.layer1.*, net.layer2.*") == inner
    assert checkpoint.matching(blocks, "net.layer1,net.layer2.1") == ["net.layer1", "net.layer2.1"]


def test_settings_of_the_trainer_that_has_the_backward_pass() -> None:
    """Not of one that only evaluates in the program's own loop. A recording does not say who makes the optimizer."""
    inner = Frame("/venv/lib/python3.11/site-packages/transformers/trainer.py", "Trainer.loop", 9)
    calls = Frame("train.py", "main", 7)
    for phase, taken in (("backward", True), ("forward", False)):
        one = program((10, 20, 100, 0, contributor(phase, "temporary", inner, calls)))
        own = Change(one.blocks, calls, "torch.optim.SGD without momentum")
        changed = trainers.in_settings(one, "sgd", own)
        accumulated = trainers.in_settings(one, "accumulate", replace(own, frame=LOOP))
        if not taken:
            assert (changed, accumulated) == (own, replace(own, frame=LOOP))
            continue
        assert changed.frame == accumulated.frame == calls
        assert changed.write == (
            'TrainingArguments(optim="sgd") for the Trainer of this line; where it is given an optimizer, '
            "torch.optim.SGD without momentum"
        )
        assert accumulated.write.startswith("TrainingArguments(gradient_accumulation_steps=2) with half of ")
        assert trainers.in_settings(one, "sgd", replace(own, frame=LOOP)).frame == LOOP  # an optimizer of its own
        # Another line leads to its evaluation.
        evaluates = Frame("train.py", "main", 8)
        both = program(
            *((b.birth // GAP, b.end // GAP, b.bytes, b.step, b.of) for b in one.blocks),
            (120, 130, 100, 1, contributor("forward", "kept", inner, evaluates)),
        )
        waits = Change(both.blocks, evaluates, ".cpu() behind what is kept in this line")
        found = trainers.in_settings(both, "keep_evaluation", waits)
        assert (found.frame, "eval_accumulation_steps=1" in found.write) == (evaluates, True)


def with_evaluation(size: int, loop: str = "evaluation") -> Program:
    """Steps 0 and 1 train; step 2 is of a loop without a backward pass."""
    made = contributor("forward", "activation")
    gradient = contributor("backward", "gradient", *layer("Linear", "linear", 1))
    test = contributor("forward", "activation", Frame("train.py", "test", 20))
    first: list[Row] = [(10, 60, 4000, 0, made), (50, 80, 100, 0, gradient)]
    second: list[Row] = [(110, 160, 4000, 1, made), (150, 180, 100, 1, gradient)]
    one = program(*first, *second, (210, 220, size, 2, test))
    one.stretches = [*one.stretches[:2], replace(one.stretches[2], loop=loop, nodes_made=9)]
    return one


def test_what_comes_behind_the_last_step_has_a_batch_of_its_own() -> None:
    """And a graph that may have had a backward pass, had its memory not been refused."""
    one = with_evaluation(9000, loop="")
    assert peaks(batches.batch, one, "x0.5") == (9000, 9000)
    assert no_grad.no_grad(one, one.blocks, "").endswith("whether a backward pass was to run it is unknown")  # type: ignore[union-attr]
    assert peaks(batches.batch, with_evaluation(3000, loop=""), "x0.5") == (4100, 3000)


def test_a_step_that_did_not_end_has_the_batch_of_the_others() -> None:
    one = with_evaluation(1, loop="")
    cut = program(
        *((b.birth // GAP, b.end // GAP, b.bytes, b.step, b.of) for b in one.blocks),
        (230, -1, 4000, 2, one.blocks[0].of),
    )
    cut.stretches = one.stretches
    assert peaks(batches.batch, cut, "x0.5") == (4100, 2100)
    assert not cut.peak_in_evaluation and with_evaluation(9000, loop="").peak_in_evaluation


def test_evaluation_has_a_batch_of_its_own() -> None:
    one = with_evaluation(9000)
    assert peaks(batches.batch, one, "x0.5") == (9000, 9000)
    assert batches.accumulate(one, one.blocks, "") == "the peak is in evaluation"
    # Without a value it is of what has the peak.
    change = batches.batch(one, one.blocks, "")
    assert isinstance(change, Change)
    assert (change.write, change.cost) == ("half the batch of the evaluation", "twice the steps")
    assert one.replay(change.blocks)[0] == 4500


def test_the_size_that_is_replaced_says_whose_batch_it_is() -> None:
    """Of an evaluation, where the steps have another one and readers know of both."""
    made = with_evaluation(9000)
    inputs = [
        (100 * i + 5, 100 * i + 6, 8, i, contributor("other", "input", Frame("train.py", "load", i))) for i in range(3)
    ]
    rows = [*inputs, *((b.birth // GAP, b.end // GAP, b.bytes, b.step, b.of) for b in made.blocks)]
    one = program(*sorted(rows, key=lambda row: row[0]))
    one.stretches = made.stretches
    shapes = zip(inputs, (64, 64, 100), strict=True)
    one.read = {row[0] * GAP: SimpleNamespace(shape=(samples, 2)) for row, samples in shapes}  # type: ignore[misc]
    assert one.evaluation_batches == {100}
    assert peaks(batches.batch, one, "50:100") == (9000, 4500)
    assert peaks(batches.batch, one, "32:64") == (9000, 9000)


def test_a_smaller_batch_ends_where_evaluation_begins() -> None:
    one = with_evaluation(3000)
    change = batches.accumulate(one, one.blocks, "")
    assert not isinstance(change, str)
    assert (one.peak, one.replay(change.blocks)[0]) == (4100, 3000)
    assert change.frame == LOOP  # where forward is called


def test_what_is_collected_over_steps_does_not_follow_the_batch() -> None:
    """More and smaller batches fill a list with as much; of a window of the last steps they fill half."""
    output, joined = contributor("forward", "kept"), contributor("forward", "temporary")
    steps = range(6)
    listed: list[Row] = [(10 + 100 * i, -1, 1000, i, output) for i in steps]
    one = program(*listed, (560, 570, 6000, 5, joined), steps=6)
    for change in (batches.batch(one, one.blocks, "x0.5"), batches.batch(one, one.blocks, "x4")):
        assert not isinstance(change, str)
        assert (one.peak, one.replay(change.blocks)[0]) == (12000, 12000)
    window: list[Row] = [(10 + 100 * i, 220 + 100 * i if i < 4 else -1, 1000, i, output) for i in steps]
    one = program(*window, (560, 570, 7000, 5, joined), steps=6)
    change = batches.batch(one, one.blocks, "x0.5")
    assert not isinstance(change, str)
    assert (one.peak, one.replay(change.blocks)[0]) == (9000, 4500)


def test_what_is_generated_follows_the_batch() -> None:
    """Each token reads the cache that the one before made: a list of logits has more of a larger batch. Without such
    reads it has outputs of all batches."""
    output, cache = contributor("forward", "kept"), contributor("forward", "activation")
    listed: list[Row] = [(10 + 100 * i, -1, 1000, i, output) for i in range(6)]
    caches: list[Row] = [(20 + 100 * i, 130 + 100 * i, 2000, i, cache) for i in range(6)]
    for read, peaks_of in ((True, (10000, 5000)), (False, (10000, 8000))):
        one = program(*sorted([*listed, *caches], key=lambda row: row[0]), steps=6)
        lives: dict[int, Any] = {}
        for birth, *_ in caches if read else ():
            lives[birth * GAP] = SimpleNamespace(reads=[SimpleNamespace(at=(birth + 95) * GAP)], shape=(8,))
        one.read = lives
        change = batches.batch(one, one.blocks, "x0.5")
        assert not isinstance(change, str)
        assert (one.peak, one.replay(change.blocks)[0]) == peaks_of


def test_a_size_that_a_list_happens_to_have_follows_the_batch() -> None:
    """Activations that are made while the list is filled are not made of it."""
    output, hidden = contributor("forward", "kept"), contributor("forward", "temporary")
    steps = range(4)
    listed: list[Row] = [(10 + 100 * i, -1, 1000, i, output) for i in steps]
    one = program(*listed, *((20 + 100 * i, 30 + 100 * i, 4000, i, hidden) for i in steps), steps=4)
    change = batches.batch(one, one.blocks, "x0.5")
    assert not isinstance(change, str)
    assert (one.peak, one.replay(change.blocks)[0]) == (8000, 6000)


def test_inference_alone_follows_its_batch() -> None:
    one = program((10, 60, 4000, 0, contributor("forward", "activation")))
    change = batches.batch(one, one.blocks, "x0.5")
    assert not isinstance(change, str)
    assert one.replay(change.blocks)[0] == 2000


def test_a_convolution_s_workspace_follows_the_batch_and_cublas_s_does_not() -> None:
    workspace = contributor("other", "workspace")
    one = program((10, -1, 500, 0, workspace), (120, 130, 4000, 1, workspace))
    assert peaks(batches.batch, one, "x0.5") == (4500, 2500)


def test_gradients_that_are_zeroed_in_place_stay_beside_smaller_parts() -> None:
    gradient = contributor("backward", "gradient", *layer("Linear", "linear", 1))
    forward = contributor("forward", "activation")
    one = program((10, 60, 4000, 0, forward), (50, -1, 100, 0, gradient), (110, 160, 4000, 1, forward))
    assert peaks(batches.accumulate, one) == (4100, 2200)  # half a batch, the gradient, and what is added


def test_gradients_of_a_step_that_was_not_kept_do_not_stay_beside_those_of_all_parts() -> None:
    forward = contributor("forward", "activation")
    gradients: list[Row] = [(150, 250, 100, 1, GRADIENT), (260, -1, 100, 2, GRADIENT)]
    one = program(*gradients, (210, 255, 4000, 2, forward), first=2)
    assert peaks(batches.accumulate, one) == (4100, 2100)


def test_what_stays_unsplit_of_a_large_block_is_as_large_a_share() -> None:
    one = program((10, 60, 100, 0, GRADIENT), device="cuda:0")
    mib = 1 << 20
    large = replace(one.blocks[0], requested=8 * mib, bytes=8 * mib + mib // 2)
    assert one.with_bytes(large, 4 * mib).bytes == 4 * mib + mib // 4
    assert one.with_bytes(large, 16 * mib).bytes == 17 * mib
    assert one.with_bytes(large, mib).bytes == mib  # the small pool splits all


def test_what_a_program_keeps_of_all_parts_of_a_batch() -> None:
    """A bank of features: two parts add as much as one batch."""
    gradient = contributor("backward", "gradient", *layer("Linear", "linear", 1))
    rows = [(10, 60, 4000, 0, contributor("forward", "activation")), (50, -1, 100, 0, gradient)]
    kept, state = contributor("other", "kept"), contributor("other", "kept", Frame("train.py", "main", 8))
    carried = [
        (80 + 100 * i, 180 + 100 * i, 600, i, state) for i in range(2)
    ]  # for the next step: of each part its own
    one = program(*rows, (70, -1, 3000, 0, kept), *carried, (110, 160, 4000, 1, rows[0][4]))
    assert peaks(batches.accumulate, one) == (7700, 3000 + 300 + 2000 + 100)


def test_what_16_bits_of_a_model_leave_of_what_is_kept() -> None:
    """A replay buffer's states are the program's own; an output and a copy of a parameter follow the model."""
    parameter = (1, -1, 4096, -1, contributor("other", "parameter", Frame("train.py", "main", 9)))
    for phase, size, half in (("other", 3000, 3000), ("forward", 3000, 1500), ("other", 4096, 2048)):
        one = program(parameter, (20, -1, size, 0, contributor(phase, "kept")), types="float32")
        assert peaks(precision.half_model, one) == (4096 + size, 2048 + half)
    line = Frame("train.py", "main", 12)
    left = (20, -1, 3000, 0, contributor("other", "kept", line))  # by a step of which a later one shows what it is of
    one = program(parameter, left, (250, 260, 2000, 2, contributor("forward", "activation", line)), types="float32")
    assert peaks(precision.half_model, one) == (4096 + 5000, 2048 + 2500)


def test_a_name_of_training_is_released_before_evaluation() -> None:
    """Nothing binds the last step's again."""
    output = contributor("forward", "activation")
    test = contributor("forward", "temporary", Frame("train.py", "test", 20))
    rows: list[Row] = [(10, 310, 100, 0, output), (150, 160, 4000, 1, test), (310, -1, 100, 3, output)]
    one = program(*rows, (450, 460, 4000, 4, test), steps=5)
    one.stretches = [replace(mark, loop="evaluation") if mark.step in (1, 2, 4) else mark for mark in one.stretches]
    assert peaks(release.release, one) == (4100, 4000)


def test_of_a_line_what_the_program_keeps_is_not_released() -> None:
    """`if i % 3 == 0: history.append(out)`, of a variable that is bound again in each step."""
    made = contributor("forward", "activation")
    rows: list[Row] = [(10, -1, 100, 0, made), (110, 215, 10, 1, made), (210, 315, 10, 2, made), (310, -1, 10, 3, made)]
    one = program(*rows, (320, 330, 4000, 3, contributor("forward", "temporary", LOOP)), steps=4)
    assert peaks(release.release, one) == (4110, 4110)


def test_what_several_steps_keep_is_not_released() -> None:
    one = program((10, 250, 100, 0, contributor("forward", "activation")), (150, 160, 400, 1, GRADIENT))
    assert release.release(one, one.blocks, "") == "nothing of a step is left in the next one"


def test_a_result_that_each_step_extends_is_as_large_in_smaller_batches() -> None:
    """logits = torch.cat([logits, new]). A first one that is larger is a prompt's, whose cache follows the batch."""
    categories = [contributor("other", category) for category in ("temporary", "input", "temporary", "kept")]
    for first, peak, half in ((0, 7000, 7000), (3, 13_000, 6500)):
        rows = [(10 + 100 * i, 115 + 100 * i, 1000 * (i + 1 + first), i, of) for i, of in enumerate(categories)]
        assert peaks(batches.batch, program(*rows, steps=5)) == (peak, half)


def test_autocasts_copies_of_parameters_alone_do_not_follow_the_batch() -> None:
    copy = contributor("forward", "autocast cache")
    one = program((1, -1, 8000, 0, contributor("", "parameter")), (10, 60, 4000, 0, copy), (11, 60, 6000, 0, copy))
    change = batches.batch(one, one.blocks, "x3")
    assert not isinstance(change, str)
    assert one.replay(change.blocks)[0] == 8000 + 4000 + 3 * 6000


def test_the_line_that_calls_the_whole_forward_pass() -> None:
    inner = Frame("model.py", "Model.forward", 30, module="Model", module_address=3)
    outer = Frame(f"{TORCH}/nn/modules/module.py", "_call_impl", 1)
    assert call_line((*layer("Linear", "linear", 4), inner, outer, LOOP)) == LOOP
    assert call_line((Frame(f"{TORCH}/functional.py", "f", 1), inner)) == inner


def test_states_are_compared_with_the_parameters_that_have_some() -> None:
    """Beside the model lies its moving average."""
    size = 1 << 20
    state = replace(contributor("optimizer", "optimizer state"), qualified="Net.linear")
    weight = replace(contributor("other", "parameter"), qualified="Net.linear")
    average = replace(weight, qualified="Average.linear")
    one = program((1, -1, size, 0, weight), (2, -1, size, 0, average), (50, -1, 2 * size, 0, state), UPDATED)
    change = optimizers.adam8bit(one, one.blocks, "")
    assert not isinstance(change, str)
    assert one.replay(change.blocks)[0] == 2 * size + size // 2 + 2 * size // 256
    one = program((1, -1, size, 0, weight), (50, -1, size, 0, state), UPDATED)
    assert optimizers.adam8bit(one, one.blocks, "") == "the optimizer keeps fewer than two values of each parameter"


def test_states_that_are_small_are_not_none() -> None:
    """As those of adapters."""
    small = program((1, -1, 16_384, 0, contributor("optimizer", "optimizer state")), UPDATED)
    none = program((1, -1, 16_384, 0, contributor("other", "parameter")), UPDATED)
    for rule in (optimizers.adam8bit, optimizers.factored):
        assert rule(small, small.blocks, "") == "no state of the optimizer has more than 4,096 values"
        assert rule(none, none.blocks, "") == "the optimizer keeps no state"


def test_a_step_in_backward_makes_its_temporaries_of_one_parameter() -> None:
    """The step over all, of 400 bytes, had 400 beside them: that of the one with 300 has 300."""
    gradients_made = [(50, 90, 300, 0, GRADIENT), (60, 90, 100, 0, GRADIENT)]
    one = program(*gradients_made, (80, 81, 400, 0, UPDATE), device="cuda:0")
    assert peaks(optimizers.step_in_backward, one) == (800, 300 + 512)  # as the allocator rounds


def test_an_optimizer_that_runs_several_backward_passes() -> None:
    """LBFGS steps along the gradients of all parameters, and its history is no pair of moments."""
    frame = Frame(f"{TORCH}/optim/lbfgs.py", "step", 382)
    state, moment = (contributor("optimizer", category, frame) for category in ("optimizer state", "temporary"))
    weight = (1, -1, 1 << 20, 0, contributor("other", "parameter"))
    one = program(weight, (50, -1, 5 << 20, 0, state), (60, 90, 1 << 20, 0, GRADIENT), (80, 81, 1 << 20, 0, moment))
    assert optimizers.adam8bit(one, one.blocks, "") == "the optimizer is far from an Adam"
    said = "the optimizer needs the gradients of all parameters at once"
    assert optimizers.step_in_backward(one, one.blocks, "") == said


def test_a_gradient_that_is_used_when_it_is_complete() -> None:
    """Scratch memory of its node comes before the step, and so does what a second call of its module adds."""
    gradient = replace(GRADIENT, qualified="embedding", operator="EmbeddingBackward0")
    added, hidden = replace(gradient, category="temporary"), contributor("backward", "temporary")
    update = (80, 81, 512, 0, UPDATE)
    rows = [(50, 90, 512, 0, gradient), (51, 52, 2048, 0, added), (55, 60, 512, 0, hidden)]
    assert peaks(optimizers.step_in_backward, program(*rows, update, device="cuda:0")) == (2560, 2560)
    rows = [(50, 90, 512, 0, gradient), (55, 60, 512, 0, hidden), (57, 65, 512, 0, added), (70, 75, 512, 0, hidden)]
    assert peaks(optimizers.step_in_backward, program(*rows, update, device="cuda:0")) == (1536, 1536)
    rows[2] = (57, 65, 512, 0, replace(added, qualified="another"))
    assert peaks(optimizers.step_in_backward, program(*rows, update, device="cuda:0")) == (1536, 1024)


def test_what_a_loop_over_the_parameters_has_beside_them() -> None:
    """Adam's has two copies of a parameter, and one of that before; Adafactor's has one of each. A parameter may lie in
    a buffer with others, its states do not."""
    state = contributor("optimizer", "optimizer state", Frame(f"{TORCH}/optim/adam.py", "_init_group", 5))
    second = contributor("optimizer", "optimizer state", Frame(f"{TORCH}/optim/adam.py", "_init_group", 6))
    update = contributor("optimizer", "temporary", Frame(f"{TORCH}/optim/adam.py", "_multi_tensor_adam", 1))
    sizes = (4 << 20, 8 << 20, 2 << 20)
    buffer = (1, -1, sum(sizes), 0, contributor("other", "parameter"))
    states = [(50 + 2 * i + k, -1, one, 0, of) for i, one in enumerate(sizes) for k, of in enumerate((state, second))]
    one = program(buffer, *states, (60, 61, sum(sizes), 0, update), device="cuda:0")
    before = 3 * sum(sizes)
    assert peaks(optimizers.no_foreach, one)[1] == before + 2 * sizes[1] + sizes[0]
    assert sum(sizes) + sizes[0] + sizes[1] < peaks(optimizers.factored, one)[1] < sum(sizes) + 13 * (1 << 20)


def test_an_optimizer_whose_step_makes_no_block(tmp_path: Path) -> None:
    """Where it stepped is known of a run with readers: one that is the only one has the gradients."""
    gradient, again = contributor("backward", "gradient"), contributor("backward", "temporary")
    # The allocator may leave a rest of another size with each of them.
    rows = [(50, -1, 1000, 0, gradient), (150, 160, 1000, 1, again), (250, 260, 1000, 2, again)]
    busy = (110, 120, 3000, 1, contributor("forward", "activation"))
    one = program(*rows, busy)
    assert "the recording does not say where its optimizer steps" in str(gradients.set_to_none(one, one.blocks, ""))
    for lines, found, zeroing, place in (
        ([5], True, [], 5),
        ([5], True, [3], 3),  # where they are zeroed
        ([5], True, [3, 4], 5),
        ([5, 6], False, [3], 0),
    ):
        log = tmp_path / "readers.json"
        seen = [{"steps": ("train.py", "main", line), "made": None} for line in lines]
        made = {"optimizers": seen, "loaders": [], "zeroing": [("train.py", "main", line) for line in zeroing]}
        log.write_text(json.dumps({"begins": [], "blocks": [], "places": [], **made}))
        one = program(*rows, busy)
        one.beside = program(*rows, busy, readers=Readers(None, log))
        change = gradients.set_to_none(one, one.blocks, "")
        assert isinstance(change, str) is not found
        if not isinstance(change, str):
            assert (one.peak, one.replay(change.blocks)[0]) == (4000, 3000)
            assert change.frame == Frame("train.py", "main", place)


def test_the_optimizer_and_the_model_at_the_peak_are_named() -> None:
    """Others had more bytes, and are gone."""
    before, then = Frame("train.py", "main", 2), Frame("train.py", "main", 3)
    rows = [
        (1, 40, 500, 0, contributor("optimizer", "temporary", Frame("train.py", "main", 5))),
        (2, 40, 500, 0, contributor("", "parameter", before)),
        (110, 120, 400, 1, contributor("optimizer", "temporary", Frame("train.py", "main", 6))),
        (105, -1, 400, 1, contributor("", "parameter", then)),
        (106, 190, 900, 1, contributor("forward", "activation")),
    ]
    one = program(*rows, types="float32")
    assert [frame.line for frame in one.optimizer_frames] == [6, 5]
    change = precision.half_model(one, one.blocks, "")
    assert not isinstance(change, str) and change.frame == then


def test_gradients_of_activations_follow_the_parts() -> None:
    """Of which a second derivative is made: they live until their variable has another value, in the next step."""
    rows = [
        (1, -1, 1000, -1, contributor("", "parameter")),
        (150, 160, 1000, 1, GRADIENT),
        (151, 260, 4000, 1, GRADIENT),
        (250, 255, 3000, 2, contributor("forward", "activation")),
    ]
    one = program(*rows)
    assert peaks(batches.accumulate, one) == (8000, 1000 + 2 * 1000 + 2000)


def test_gradients_are_found_again_by_what_was_requested() -> None:
    """The allocator may leave a rest with one of them, not with another."""
    gradient, again = contributor("backward", "gradient"), contributor("backward", "temporary")
    one = program((50, -1, 1000, 0, gradient), (150, 160, 1000, 1, again), (250, 260, 1000, 2, again), UPDATED)
    one.blocks[1] = replace(one.blocks[1], bytes=1500)
    assert not isinstance(gradients.set_to_none(one, one.blocks, ""), str)


def test_a_batch_of_which_each_iteration_leaves_its_graph() -> None:
    """Whether half of it means twice as many iterations is not recorded."""
    hidden = contributor("forward", "activation")
    one = program(*((10 + 100 * i, -1, 1000, i, hidden) for i in range(4)), steps=4)
    said = batches.batch(one, one.blocks, "x0.5")
    assert isinstance(said, str) and said.startswith("the program keeps the graph of each iteration")
    assert not isinstance(batches.batch(one, one.blocks, "x1"), str)


def test_graphs_that_a_program_keeps_of_all_parts_of_a_batch() -> None:
    """Two halves leave as much as the whole; what the step lets go of is of one half."""
    hidden, of_step = (
        contributor("forward", "activation"),
        contributor("forward", "activation", *layer("ReLU", "relu", 2)),
    )
    gradient = contributor("backward", "gradient", *layer("Linear", "linear", 1))
    rows: list[Row] = []
    for i in range(4):
        rows += [(10 + 100 * i, -1, 1000, i, hidden), (20 + 100 * i, 60 + 100 * i, 2000, i, of_step)]
        rows.append((50 + 100 * i, 95 + 100 * i, 10, i, gradient))
    before, after = peaks(batches.accumulate, program(*rows, steps=4))
    assert (before, after) == (4 * 1000 + 2000 + 10, 4 * 1000 + 1000 + 2 * 10)


def test_gradients_of_activations_follow_the_batch() -> None:
    """A program that derives twice keeps them as it keeps those of parameters, whose size they do not have."""
    parameter, gradient = contributor("other", "parameter"), contributor("backward", "gradient")
    one = program((1, -1, 1000, 0, parameter), (50, 160, 1000, 0, gradient), (60, 160, 4000, 0, gradient))
    assert peaks(batches.batch, one, "x0.5") == (6000, 4000)


def test_repeats_that_a_view_replaces() -> None:
    for text in ("x.unsqueeze(1).repeat(1, n, 1)", "(-x)[None].repeat(len(y), 1)", "x[:, None].repeat((1, 8, 1))"):
        assert copies.repeats_new_dimension(text)
    for text in (
        "x.repeat(2, 1)",
        "x.unsqueeze(0).repeat(2, 2)",
        "x.unsqueeze(1).repeat(2, 1)",
        "x.unsqueeze(",
        "x[0].repeat(2)",
    ):
        assert not copies.repeats_new_dimension(text)


def graph(run: int) -> Program:
    """Forward of one step, of which nothing ends before the step does."""
    rows: list[Row] = [(10 * i, 90, 100, 0, contributor("forward", "activation")) for i in range(1, 9)]
    one = program(*rows)
    one.stretches = [replace(one.stretches[0], nodes_made=8, nodes_run=run), *one.stretches[1:]]
    return one


def test_a_fused_attention_has_all_its_gradients_at_once() -> None:
    def of(phase: str, saved_by: str | None = None, node: str = "") -> Contributor:
        frame = Frame("train.py", "forward", 3, text="return torch.softmax(q @ k, -1) @ v")
        category = "activation" if phase == "forward" else "temporary"
        return replace(contributor(phase, category, frame, saved_by=saved_by), operator=node or None)

    def backward(birth: int, end: int, size: int, node: str) -> Row:
        return birth, end, size, 0, of("backward", None, f"{node}Backward0")

    one = program(
        (10, 80, 4000, 0, of("forward", "SoftmaxBackward0")),
        backward(60, 70, 4000, "Bmm"),
        backward(61, 65, 100, "Bmm"),
        backward(66, 75, 4000, "Softmax"),
        backward(76, 90, 100, "Bmm"),
        backward(77, 90, 100, "Bmm"),
        backward(92, 95, 250, "Bmm"),  # of another product
    )
    assert peaks(attention.fused_attention, one) == (12000, 300)
    # A module in that one drops weights of 4 or 2 bytes: a mask of one byte each, what is left of them, and a gradient.
    for mask in (1000, 2000):
        blocks = [replace(block, of=replace(block.of, qualified="layer")) for block in one.blocks]
        for birth, size, saved_by in ((12, mask, "NativeDropoutBackward0"), (13, 4000, "BmmBackward0")):
            dropped = replace(of("forward", saved_by), qualified="layer.drop")
            blocks.append(replace(blocks[0], birth=birth * GAP, end=82 * GAP, bytes=size, requested=size, of=dropped))
        change = attention.fused_attention(one, blocks, "")
        assert isinstance(change, Change) and one.replay(change.blocks)[0] == 300


def test_other_layers_of_the_size_of_attentions_weights() -> None:
    """An MLP in the same module has values of that size, and dropout far from softmax: both stay."""

    def of(phase: str, saved_by: str | None = None, node: str | None = None) -> Contributor:
        frame = Frame("train.py", "forward", 3, text="return torch.softmax(q @ k, -1) @ v")
        category = "activation" if phase == "forward" else "temporary"
        return replace(contributor(phase, category, frame, saved_by=saved_by), operator=node, qualified="layer")

    rows: list[Row] = [
        (10, 80, 4000, 0, of("forward", "SoftmaxBackward0")),
        (12, 80, 4000, 0, of("forward", "GeluBackward0")),
    ]
    rows += [(15 + i, 80, 100, 0, of("forward")) for i in range(5)]
    rows += [(30, 80, 1000, 0, of("forward", "NativeDropoutBackward0"))]
    rows += [(31, 80, 4000, 0, of("forward", "AddmmBackward0"))]
    rows += [(60, 70, 4000, 0, of("backward", None, "BmmBackward0"))]
    rows += [(66, 75, 4000, 0, of("backward", None, "SoftmaxBackward0"))]
    assert peaks(attention.fused_attention, program(*rows)) == (21500, 9500)


def test_lines_of_pytorch_between_a_product_and_its_operator() -> None:
    """torch.einsum, and what torch has in the place of an operator."""
    within = Frame(f"{TORCH}/_native/registry.py", "call", 958, text="return kernel(*args)")
    for line, is_found in (("scores = torch.einsum(form, q, k)", True), ("scores = self.score(q, k)", False)):
        scores = contributor("forward", "temporary", within, Frame("train.py", "forward", 3, text=line))
        weights = contributor("forward", "activation", saved_by="SoftmaxBackward0")
        backward = [
            replace(contributor("backward", "temporary"), operator=node)
            for node in ("BmmBackward0", "SoftmaxBackward0")
        ]
        one = program(
            (10, 12, 4000, 0, scores), (11, 80, 4000, 0, weights), *((60, 70, 4000, 0, made) for made in backward)
        )
        assert isinstance(attention.fused_attention(one, one.blocks, ""), Change) is is_found


def test_a_checkpoint_saves_nothing_in_an_evaluation_that_has_a_graph() -> None:
    """But for the output of each call; the last graph's blocks have no category that says so. What another method of
    the module makes has no call of it."""

    def made(i: int, category: str, *outer: Frame) -> Contributor:
        return replace(contributor("forward", category, *outer), qualified=f"net.{i}")

    called = Frame("train.py", "Net.forward", 1, module="Net", module_address=5)
    blocks = [
        (10 * i + 5 * j, 95, 100, 0, made(i, category, Frame(f"{TORCH}/f.py", "f", j), called))
        for i, category in ((1, "activation"), (3, "temporary"))
        for j in range(3)
    ]
    one = program(*blocks)
    assert peaks(checkpoint.checkpoint, one, "net.*")[1] == 600 - 2 * 100  # of net.1 alone
    one.stretches = [replace(one.stretches[0], nodes_made=8, nodes_run=0), *one.stretches[1:]]
    assert peaks(checkpoint.checkpoint, one, "net.*")[1] == 100 + 300  # the output of net.1, and net.3 as it is called
    other = program(*((*row[:4], made(1, "activation", Frame("train.py", "inverse", 1))) for row in blocks))
    assert peaks(checkpoint.checkpoint, other, "net.*") == (600, 600)


def test_a_graph_that_no_backward_pass_runs() -> None:
    change = no_grad.no_grad(graph(0), graph(0).blocks, "")
    assert not isinstance(change, str)
    assert (graph(0).peak, graph(0).replay(change.blocks)[0]) == (800, 300)
    assert isinstance(no_grad.no_grad(graph(8), graph(8).blocks, ""), str)


def test_a_graph_of_an_evaluation_that_is_kept_while_training_goes_on() -> None:
    """Training of steps 1 and 3 asks for none of it: losses of evaluations are in a list."""
    made = contributor("forward", "activation", Frame("train.py", "test", 20))
    rows: list[Row] = [(10 + 5 * i, -1, 100, 0, made) for i in range(8)]
    rows += [
        (150, 160, 1, 1, GRADIENT),
        *((210 + 5 * i, -1, 100, 2, made) for i in range(8)),
        (350, 360, 1, 3, GRADIENT),
    ]
    one = program(*rows, steps=4)
    one.stretches = [
        replace(mark, loop="training", nodes_made=8, nodes_run=8)
        if mark.step % 2
        else replace(mark, loop="evaluation", nodes_made=8)
        for mark in one.stretches
    ]
    assert peaks(no_grad.no_grad, one) == (1601, 400)  # a result of each, and three that forward still reads


def kept(last: int = 60, device: str = "cuda:0") -> Program:
    made = contributor("forward", "kept", Frame("train.py", "test", 3))
    rows: list[Row] = [(100 * i + 10, 700, last if i == 5 else 60, i, made) for i in range(6)]
    rows += [
        (100 * i + 20 + 5 * j, 100 * i + 90, 1, i, contributor("other", "input")) for i in range(6) for j in range(4)
    ]
    return program(*sorted(rows, key=lambda row: row[0]), steps=8, device=device)


def test_results_that_wait_for_the_end_of_an_evaluation() -> None:
    one = kept()
    change = evaluation.keep_evaluation(one, one.blocks, "")
    assert not isinstance(change, str)
    assert one.replay(change.blocks)[0] < 70 < one.peak


@pytest.mark.parametrize(
    ("inputs", "shape", "is_proposed"),
    [
        ((10, 110), (8, 8), True),  # results alone: those are on the host, too
        ((10, 420), (8, 8), False),
        ((510, 420), (8, 8), True),  # in its own step
        ((10, 420), (), True),  # a number may lie on either side
    ],
)
def test_results_that_the_device_reads_later(
    inputs: tuple[int, ...], shape: tuple[int, ...], is_proposed: bool
) -> None:
    one = kept()
    lives: dict[int, Any] = {}
    for birth, of in ((420, ()), (520, inputs)):
        moments = tuple(each * GAP for each in of)
        lives[birth * GAP] = SimpleNamespace(birth=birth * GAP, inputs=moments, shape=shape, reads=[])
    one.read, one.beside = lives, one
    assert isinstance(evaluation.keep_evaluation(one, one.blocks, ""), Change) is is_proposed


def test_results_of_two_lines() -> None:
    """Both are named; what is small beside them is not."""
    lines = [Frame("train.py", "test", line) for line in (3, 4, 5)]
    rows: list[Row] = []
    for i in range(6):
        sizes = zip(lines, (60, 50, 1), strict=True)
        rows += [
            (100 * i + 10 + j, 700, size, i, contributor("forward", "kept", line))
            for j, (line, size) in enumerate(sizes)
        ]
        rows += [(100 * i + 20 + 5 * j, 100 * i + 90, 1, i, contributor("other", "input")) for j in range(4)]
    one = program(*rows, steps=8, device="cuda:0")
    change = evaluation.keep_evaluation(one, one.blocks, "")
    assert isinstance(change, Change) and change.frame == lines[0]
    assert change.write == ".cpu() behind what is kept in this line, and in line 4"


def test_results_that_no_evaluation_clears() -> None:
    """Each of two adds its own to a list, between which other steps lie; what joins all of them goes, too."""
    made, joins = contributor("forward", "kept"), contributor("other", "temporary")
    steps = [*range(5), *range(7, 12)]
    rows: list[Row] = [(100 * i + 10, 1290, 60, i, made) for i in steps]
    rows += [(100 * i + 20 + 5 * j, 100 * i + 90, 1, i, contributor("other", "input")) for i in steps for j in range(4)]
    rows.append((1220, 1280, 600, 12, joins))
    one = program(*sorted(rows, key=lambda row: row[0]), steps=13, device="cuda:0")
    assert peaks(evaluation.keep_evaluation, one) == (1200, 62)


def test_blocks_of_unlike_sizes_are_no_results_of_an_evaluation() -> None:
    one = kept(last=90)
    assert isinstance(evaluation.keep_evaluation(one, one.blocks, ""), str)


def test_what_is_on_the_host_is_not_moved_there() -> None:
    one = kept(device="cpu")
    for rule in (evaluation.keep_evaluation, data.load_late):
        assert rule(one, one.blocks, "") == "it lies in host memory already"


def test_data_of_all_steps() -> None:
    rows: list[Row] = [(i, -1, 100, -1, contributor("data", "input")) for i in range(1, 9)]
    one = program(*rows, (150, 160, 10, 1, contributor("forward", "activation")), device="cuda:0")
    assert peaks(data.load_late, one) == (810, 110)
    few = program(*rows[:2], device="cuda:0")
    assert isinstance(data.load_late(few, few.blocks, ""), str)


def test_what_a_collection_freed() -> None:
    made = contributor("other", "kept")
    one = program((10, 250, 100, 0, made), (110, 250, 100, 1, made), (210, 250, 100, 2, made))
    assert garbage.collect(one, one.blocks, "") == "no collection freed anything"
    one.garbage = frozenset({made.stack})
    assert peaks(garbage.collect, one) == (300, 100)


def test_the_type_of_parameters_decides_what_is_shorter() -> None:
    rows = [
        (1, -1, 4096, -1, contributor("forward", "parameter", Frame("train.py", "build", 3))),
        (110, 150, 8192, 1, contributor("forward", "activation")),
        (105, 150, 2048, 1, contributor("forward", "input")),
    ]
    peaks = {}
    for types in ("", "float32", "bfloat16", "bfloat16 float32", "float64"):
        one = program(*rows, types=types)
        made = (precision.half_model(one, one.blocks, ""), precision.single_precision(one, one.blocks, ""))
        peaks[types] = [None if isinstance(change, str) else one.replay(change.blocks)[0] for change in made]
    half = 2048 + 4096 + 2048
    assert peaks == {
        "": [half, None],
        "float32": [half, None],
        "bfloat16": [None, None],
        "bfloat16 float32": [half, None],
        "float64": [None, 2048 + 4096 + 1024],
    }


def test_the_line_of_a_model_is_the_one_that_moves_it() -> None:
    """A server's own __init__ around it is no module's, where it is known what ran."""
    linear = Frame(f"{TORCH}/nn/modules/linear.py", "Linear.__init__", 109)
    made = Frame(f"{TORCH}/nn/init.py", "zeros", 3)
    inside = Frame("train.py", "Server.__init__", 5, text="self.net = Net(config)")
    moves = Frame("train.py", "Server.__init__", 5, text='self.net = Net(config).eval().to("cuda")')
    plain = Frame("train.py", "build", 7, text="weight = zeros(8)")
    for stack, line in (((linear, inside), 9), ((linear, moves), 5), ((made, plain), 7)):
        one = program((1, -1, 4096, -1, contributor("other", "parameter", *stack)))
        change = precision.half_model(one, one.blocks, "")
        assert not isinstance(change, str) and change.frame is not None and change.frame.line == line
    parameter: Row = (1, -1, 4096, -1, contributor("other", "parameter", linear, inside))
    # A library moves it: where its model is made, as far as that is known.
    moved = Frame(f"{TORCH}/nn/modules/module.py", "Module.to", 3), Frame("train.py", "main", 5, text="Trainer(model)")
    one, model = program((1, -1, 4096, -1, contributor("other", "parameter", *moved))), Frame("train.py", "main", 2)
    for models, place in (((), moved[1]), ((model,), model), ((model, moved[1]), moved[1])):
        one.models = models
        change = precision.half_model(one, one.blocks, "")
        assert not isinstance(change, str) and change.frame == place
    lazy: Row = (2, -1, 9000, 0, contributor("forward", "parameter", *layer("Lazy", "empty", 1)))
    one = program(parameter, lazy)
    change = precision.half_model(one, one.blocks, "")
    assert not isinstance(change, str) and change.frame == inside


def test_the_line_of_a_model_that_a_library_s_trainer_asks_for() -> None:
    """Trainer(model_init=make): what ran is a Net, no Trainer."""
    site = "/venv/lib/python3.11/site-packages/trainers/trainer.py"
    made = Frame("train.py", "make", 9, text="return Net()")
    stack = (
        Frame(f"{TORCH}/nn/modules/linear.py", "Linear.__init__", 109),
        Frame("train.py", "Net.__init__", 5),
        made,
        Frame(site, "Trainer.call_model_init", 900),
        Frame(site, "Trainer.__init__", 400),
    )
    ran = contributor("forward", "activation", Frame(f"{TORCH}/nn/modules/module.py", "_call_impl", 1, module="Net"))
    one = program((1, -1, 4096, -1, contributor("other", "parameter", *stack)), (10, 60, 4096, 0, ran))
    change = precision.half_model(one, one.blocks, "")
    assert not isinstance(change, str) and change.frame == made


def test_adapters_say_nothing_of_the_models_type() -> None:
    assert recorded._most(Counter(bfloat16=4100, float32=70)) == {"bfloat16"}
    assert recorded._most(Counter(bfloat16=4100, float32=700)) == {"bfloat16", "float32"}
    assert recorded._most(Counter()) == frozenset()
