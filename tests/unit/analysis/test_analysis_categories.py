"""Hand-made traces with known answers: what blocks are for, whose they are, and what they are called."""

from collections.abc import Callable
from typing import Any

import pytest
from craft import CUDA, DATA, OPTIMIZER, SEEDED, TORCH, WINDOW_CLOSE, WINDOW_OPEN, Trace
from craft import MODULE as CALL
from hand_made import Analyze, only_device

MODULE, PARAMETER, BUFFER, GRADIENT, STATE, TENSOR, WORKSPACE, AUTOCAST = range(1, 9)  # cm_label_kind
BACKWARD_TICK, IN_NODE, NODE_STACK = 5, 1, 2
TRAIN = ("train.py", "main", 9)


class Loop(Trace):
    """A training loop, event by event."""

    def __init__(self) -> None:
        super().__init__()
        self.add(9, 1001, 11)  # THREAD
        self.sequence = 0

    def call(self, module: int, line: int = 1, kind: str = "Linear") -> int:
        call = (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1775, module, kind)
        return self.stack((TORCH + "nn/functional.py", "linear", line), call, TRAIN)

    def forward(self, address: int, size: int, module: int = 0x77) -> int:
        self.sequence += 1
        self.node(self.sequence, self.call(module))
        self.alloc(address, size, self.call(module))
        return self.sequence

    def backward(self, *gradients: tuple[int, int], sequence: int, saved: int = 0, name: str = "MulBackward0") -> None:
        self.run(sequence, 11, name)
        for address, size in gradients:
            self.alloc(address, size, self.line(99), flags=IN_NODE | NODE_STACK)
        self.done()
        if saved:
            self.free(saved)

    def passed(self) -> None:
        self.tick(BACKWARD_TICK, 0, self.line(99))

    def update(self, *states: tuple[int, int]) -> None:
        stack = self.stack((TORCH + "optim/adam.py", "step", 5), TRAIN)
        for address, size in states:
            self.alloc(address, size, stack)
        self.tick(OPTIMIZER, 0x5000, self.line(100))

    def iterate(self, address: int, size: int, *gradients: tuple[int, int], updates: bool = True) -> None:
        """Forward, backward, which frees what forward has saved, and the update."""
        self.backward(*gradients, sequence=self.forward(address, size), saved=address)
        self.passed()
        if updates:
            self.update()

    def walk(self, *labels: tuple[int, int, int, str]) -> None:
        """kind, address, owner, text of each."""
        self.mark(10)  # CM_MARK_WALK
        for kind, address, owner, text in labels:
            self.add(32, address, owner, self.name(text), flags=kind)


def categories(report: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for size, _, _, _, _, _, category, *_ in only_device(report)["tables"]["allocated"][0]:
        found[category] = found.get(category, 0) + size
    return found


def allocated(analyze: Analyze, t: Trace, **how: Any) -> dict[str, int]:
    return categories(analyze(t, tables=("allocated",), **how))


def test_a_step_without_a_walk(analyze: Analyze) -> None:
    t = Loop()
    t.alloc(0x100, 1, t.line(2))  # the batch
    kept = t.forward(0x200, 2)
    t.alloc(0x300, 4, t.call(0x77))  # gone before backward
    t.free(0x300)
    t.backward((0x400, 8), (0x500, 16), sequence=kept, saved=0x200)
    t.free(0x500)
    t.passed()
    t.update((0x600, 32), (0x700, 64))
    t.free(0x700)
    for address in (0x100, 0x400):
        t.free(address)
    assert allocated(analyze, t) == {
        "input": 1,
        "activation": 2,
        "temporary": 4 + 16,
        "gradient": 8,
        "optimizer state": 32 + 64,  # alive when the step returned
    }


def test_what_a_module_moves_is_its_parameter_or_buffer(analyze: Analyze) -> None:
    """To the device for one call, so that no walk sees it. Innermost first: lines of PyTorch 2.14, then of none."""
    module, own = TORCH + "nn/modules/module.py", (TORCH + "nn/modules/rnn.py", "RNNBase._apply", 5)
    moved = ("Module.cuda.<locals>.<lambda>", "Module.to.<locals>.convert", "Module.cuda.<locals>.<lambda>")
    t = Loop()
    for i, (function, line, caller) in enumerate(zip(moved, (966, 1036, 7), (933, 1388, 933), strict=True)):
        applies = [(module, "Module._apply", line), own, (module, "Module.cuda", caller)]
        t.alloc(0x1000 * (i + 1), 1 << i, t.stack((module, function, 1098), *applies, TRAIN))
    fetches = ("/venv/lib/python3.11/site-packages/accelerate/utils/modeling.py", "set_module_tensor_to_device", 345)
    t.alloc(0x5000, 8, t.stack(fetches, TRAIN))
    t.free(0x5000)
    t.iterate(0x6000, 32, (0x7000, 64))
    for address in (0x1000, 0x2000, 0x3000):
        t.free(address)
    found = allocated(analyze, t)
    assert (found["parameter"], found["buffer"]) == (1 + 8, 2)


@pytest.mark.parametrize(("kind", "expected"), [(PARAMETER, "parameter"), (BUFFER, "buffer")])
def test_what_a_constructor_makes_behind_the_last_walk(analyze: Analyze, kind: int, expected: str) -> None:
    """A model that grows, or a new one for each request: as the others of its stack, where a walk has named one."""
    t = Loop()
    built = t.stack((TORCH + "nn/modules/linear.py", "Linear.__init__", 109), TRAIN)
    for i in range(6):
        t.alloc(0x1000 * (i + 1), 16, built)
        if i == 1:
            t.walk((MODULE, 0x77, 0, "net"), (kind, 0x1000, 0x77, "weight"), (kind, 0x2000, 0x77, "weight"))
        t.iterate(0x100, 32, (0x200, 64))
        t.free(0x200)
    assert allocated(analyze, t)[expected] == 6 * 16


def test_what_an_optimizer_frees_itself_is_temporary(analyze: Analyze) -> None:
    t = Loop()
    stack = t.stack((TORCH + "optim/adam.py", "step", 5), TRAIN)
    t.alloc(0x100, 8, stack)
    t.free(0x100)
    t.tick(OPTIMIZER, 0x5000, t.line(100))
    assert allocated(analyze, t) == {"temporary": 8}


@pytest.mark.parametrize("refused", [False, True])
def test_a_forward_that_is_refused_memory_had_activations(analyze: Analyze, refused: bool) -> None:
    t = Loop()
    t.forward(0x100, 8)
    t.forward(0x200, 4)
    if refused:
        t.add(3, 0, 1 << 40, t.line(3))  # OOM
    t.free(0x100)
    t.free(0x200)
    assert allocated(analyze, t) == {"activation" if refused else "temporary": 12}


def test_forward_again_inside_a_node(analyze: Analyze) -> None:
    """Checkpointing: what the recomputation makes is saved, and freed by a node that runs inside."""
    t = Loop()
    outer = t.forward(0x100, 1)
    t.run(outer, 11, "CheckpointFunctionBackward")
    t.alloc(0x200, 8, t.call(0x77), flags=IN_NODE)
    t.run(outer, 11, "MulBackward0")
    t.done()
    t.free(0x200)
    t.done()
    t.free(0x100)
    t.passed()
    report = analyze(t, tables=("allocated",))
    rows = only_device(report)["tables"]["allocated"][0]
    assert [(row[0], row[6], row[8]) for row in rows] == [
        (8, "activation", "MulBackward0"),
        (1, "activation", "MulBackward0"),
    ]


def test_what_saved_an_activation(analyze: Analyze) -> None:
    t = Loop()
    first, second = t.forward(0x100, 4), t.forward(0x200, 8)
    t.backward(sequence=second, saved=0x200, name="N5torch8autograd9generated13GeluBackward0E")
    t.backward(sequence=first, name="N5torch8autograd9generated12MulBackward0E")
    t.passed()
    t.free(0x100)  # later: nothing says whose it was
    rows = only_device(analyze(t, tables=("allocated",)))["tables"]["allocated"][0]
    assert [(row[0], row[6], row[8]) for row in rows] == [(8, "activation", "GeluBackward0"), (4, "activation", None)]


def test_labels_hold_from_birth_on(analyze: Analyze) -> None:
    t = Loop()
    init = t.stack((TORCH + "nn/modules/linear.py", "__init__", 109), TRAIN)
    t.alloc(0x100, 100, init)
    t.alloc(0x200, 50, init)
    t.iterate(0x300, 1, (0x400, 100), updates=False)
    t.update((0x500, 100))
    t.walk(
        (MODULE, 0x77, 0, "net.0"),
        (PARAMETER, 0x100, 0x77, "net.0.weight\tfloat32 5 5"),
        (BUFFER, 0x200, 0x77, "net.0.mean\tfloat32 12"),
        (GRADIENT, 0x400, 0x77, "net.0.weight\tfloat32 5 5"),
        (STATE, 0x500, 0x77, "exp_avg of net.0.weight\tfloat32 5 5"),
    )
    report = analyze(t)
    device = only_device(report)
    assert {(row[0], row[6], row[7]) for row in device["contributors"]} == {
        (100, "parameter", "net.0"),
        (100, "gradient", "net.0"),
        (100, "optimizer state", "net.0"),
        (50, "buffer", "net.0"),
    }
    assert [row[:4] for row in device["tensors"]] == [
        ("net.0.weight\tfloat32 5 5", "parameter", 100, "net.0"),
        ("net.0.weight\tfloat32 5 5", "gradient", 100, "net.0"),
        ("exp_avg of net.0.weight\tfloat32 5 5", "optimizer state", 100, "net.0"),
        ("net.0.mean\tfloat32 12", "buffer", 50, "net.0"),
    ]


def test_what_a_module_is_made_of_is_unknown_without_a_walk(analyze: Analyze) -> None:
    t = Loop()
    t.alloc(0x100, 100, t.stack((TORCH + "nn/modules/linear.py", "__init__", 109), TRAIN))
    t.forward(0x300, 1)
    assert allocated(analyze, t)["unknown"] == 100


def test_gradients_of_passes_without_a_walk(analyze: Analyze) -> None:
    """The walk names one pass; later ones with the same sizes have its names, others none."""
    t = Loop()
    for step, sizes in enumerate([(8, 4), (8, 4), (8, 5)]):
        t.iterate(0x100, 1, (0x200, sizes[0]), (0x300, sizes[1]), updates=False)
        if step == 0:
            t.walk((GRADIENT, 0x300, 0, "b"), (GRADIENT, 0x200, 0, "a"))
        t.alloc(0x900, 1000 * (step + 1), t.line(7))  # a peak in each step
        t.free(0x900)
        names = {0x200: "a", 0x300: "b"} if step < 2 else {}
        found = only_device(analyze(t))["tensors"]
        assert [(row[0], row[2]) for row in found] == [
            (names[address], size) for address, size in zip((0x200, 0x300), sizes, strict=True) if address in names
        ]
        t.free(0x200)
        t.free(0x300)


def test_a_workspace_is_no_gradient(analyze: Analyze) -> None:
    """It is made in the first pass, stays, and no walk finds it."""
    t = Loop()
    for step in range(5):
        kept = t.forward(0x100, 1)
        t.backward((0x200, 8), *([(0x800, 4096)] if step == 0 else []), sequence=kept, saved=0x100)
        t.passed()
        t.update()
        if step < 2:
            t.walk((GRADIENT, 0x200, 0, "a"))
        t.free(0x200)
    assert allocated(analyze, t) == {"activation": 5, "gradient": 40, "unknown": 4096}


def test_a_list_that_grows_in_the_loop_is_kept_and_data_made_before_is_input(analyze: Analyze) -> None:
    t = Loop()
    t.alloc(0x50, 512, t.line(1))  # the data set
    t.alloc(0x60, 16, t.line(1))
    for step in range(5):
        t.alloc(0x1000 + 64 * step, 8, t.line(2))  # appended to a list
        t.iterate(0x100, 1)
        t.walk((PARAMETER, 0x60, 0, "w"))
    assert allocated(analyze, t) == {"input": 512, "parameter": 16, "activation": 5, "kept": 5 * 8}


def train(t: Loop, before: Callable[[int], None], after: Callable[[int], None], steps: int = 8) -> None:
    """A loop with something before each forward and something after each loss."""
    for step in range(steps):
        before(step)
        saved = t.forward(0x100, 1)
        after(step)
        t.backward(sequence=saved, saved=0x100)
        t.passed()
        t.update()


def nothing(step: int) -> None:
    pass


def test_a_batch_is_replaced_and_a_ring_is_kept(analyze: Analyze) -> None:
    """Neither the first of them nor the youngest is anything else, nor the batch that is left over."""
    t = Loop()

    def batch(step: int) -> None:
        t.alloc(0x1000 + 64 * (step % 2), 8, t.line(2))
        if step:
            t.free(0x1000 + 64 * (1 - step % 2))

    def ring(step: int) -> None:
        if step >= 4:
            t.free(0x2000 + 64 * (step - 4))
        t.alloc(0x2000 + 64 * step, 64, t.line(4))

    train(t, batch, ring)
    assert allocated(analyze, t) == {"input": 8 * 8, "activation": 8, "kept": 8 * 64}


def test_a_result_that_is_replaced_outlives_its_step(analyze: Analyze) -> None:
    t = Loop()

    def result(step: int) -> None:
        t.alloc(0x1000 + 64 * (step % 2), 8, t.line(4))
        if step:
            t.free(0x1000 + 64 * (1 - step % 2))

    train(t, nothing, result)
    assert allocated(analyze, t) == {"activation": 8, "kept": 8 * 8}


def test_a_result_that_dies_in_its_step_is_not_kept(analyze: Analyze) -> None:
    t = Loop()

    def result(step: int) -> None:
        t.alloc(0x1000, 8, t.line(4))
        t.free(0x1000)

    train(t, nothing, result)
    assert allocated(analyze, t) == {"activation": 8, "temporary": 8 * 8}


@pytest.mark.parametrize(("grows", "category"), [(0, "temporary"), (64, "kept")])
def test_a_result_of_an_evaluation_is_replaced(analyze: Analyze, grows: int, category: str) -> None:
    """logits = model(x) lives until the next batch's, a cache until the next that has more."""
    t = Loop()
    for step in range(6):
        t.alloc(0x100, 1, t.line(2))  # the batch
        t.alloc(0x1000 + 0x1000 * (step % 2), 8 + grows * step, t.call(0x77))
        if step:
            t.free(0x1000 + 0x1000 * (1 - step % 2))
        t.free(0x100)
    t.free(0x1000 + 0x1000)
    found = allocated(analyze, t)
    assert max(found, key=found.__getitem__) == category, found


def test_an_operators_scratch_says_nothing_about_its_result(analyze: Analyze) -> None:
    """The last results die in their step, as those of the last step may. They are what the others are."""
    t = Loop()

    def result(step: int) -> None:
        t.alloc(0x1000 + 1024 * step, 512, t.line(4))
        for place in (0x100000, 0x100010):
            t.alloc(place, 8, t.line(4))
            t.free(place)
        if step >= 6:
            t.free(0x1000 + 1024 * step)

    train(t, nothing, result)
    assert allocated(analyze, t) == {"activation": 8, "kept": 8 * 512, "temporary": 8 * 16}


def test_what_a_module_makes_without_a_graph_and_a_list_holds(analyze: Analyze) -> None:
    """As in an evaluation. The input of each call is another block, so that there are calls to count."""
    t = Loop()
    for step in range(6):
        t.alloc(0x100, 1, t.line(2))
        t.alloc(0x1000 + 64 * step, 8, t.call(0x77))
        t.free(0x100)
    assert allocated(analyze, t) == {"input": 6, "kept": 6 * 8}


def test_what_a_graph_holds_is_an_activation_for_as_long_as_its_node_lives(analyze: Analyze) -> None:
    t = Loop()
    for step in range(6):
        t.alloc(0x100, 1, t.line(2))
        t.forward(0x1000 + 64 * step, 8)
        t.free(0x100)
    assert allocated(analyze, t) == {"input": 6, "activation": 6 * 8}


def test_what_one_line_makes_many_times_for_a_graph_are_activations(analyze: Analyze) -> None:
    """The forward of a function of one's own makes its result below the line that made its node."""
    t = Loop()
    for _ in range(2):
        made = [0x100 + 16 * i for i in range(8)]
        for address in made:
            t.sequence += 1
            t.node(t.sequence, t.call(0x77))
            t.alloc(address, 1, t.call(0x77, line=2))
            t.alloc(0x900, 2, t.line(3))  # between two calls
            t.free(0x900)
        t.run(t.sequence, 11, "SwishBackward")
        for address in made:
            t.free(address)
        t.done()
        t.passed()
        t.update()
    assert allocated(analyze, t) == {"activation": 16, "temporary": 32}


@pytest.mark.parametrize("ends, category", [(False, "activation"), (True, "kept")])
def test_results_that_outlive_their_graph_are_kept(analyze: Analyze, ends: bool, category: str) -> None:
    """outs.append(out.detach()): the same block as the graph's. With retain_graph=True the graph has it."""
    t = Loop()
    for step in range(8):
        t.alloc(0x100, 1, t.line(2))
        made = t.forward(0x1000 + 64 * step, 8)
        t.backward(sequence=made)
        if ends:
            t.add(8, made, 11)  # NODE_FREE
        t.passed()
        t.update()
        t.free(0x100)
    assert allocated(analyze, t) == {"input": 8, category: 8 * 8}


def test_a_copy_of_the_parameters_is_kept(analyze: Analyze) -> None:
    """Moved by every update; it dies as a batch would, but its blocks have the sizes of parameters."""
    t = Loop()
    for number, size in enumerate((100, 20)):
        t.alloc(0x100 + 256 * number, size, t.line(1))
    for step in range(6):
        t.alloc(0x1000, 7, t.line(5))  # the batch
        t.iterate(0x900, 1)
        t.free(0x1000)
        for number, size in enumerate((100, 20)):
            t.alloc(0x2000 + 256 * (2 * (step % 2) + number), size, t.line(9))
            if step:
                t.free(0x2000 + 256 * (2 * (1 - step % 2) + number))
        t.walk((PARAMETER, 0x100, 0, "w"), (PARAMETER, 0x200, 0, "b"))
    assert allocated(analyze, t) == {"parameter": 120, "input": 6 * 7, "activation": 6, "kept": 6 * 120}


def test_a_batch_of_two_sizes_of_parameters_is_no_copy(analyze: Analyze) -> None:
    t = Loop()
    for number, size in enumerate((100, 20, 3)):
        t.alloc(0x100 + 256 * number, size, t.line(1))
    for step in range(6):
        for number, size in enumerate((100, 20)):
            t.alloc(0x2000 + 256 * (2 * (step % 2) + number), size, t.line(9))
            if step:
                t.free(0x2000 + 256 * (2 * (1 - step % 2) + number))
        t.iterate(0x900, 1)
        t.walk((PARAMETER, 0x100, 0, "w"), (PARAMETER, 0x200, 0, "b"), (PARAMETER, 0x300, 0, "c"))
    assert allocated(analyze, t) == {"parameter": 123, "input": 6 * 120, "activation": 6}


@pytest.mark.parametrize("local", [True, False])
def test_what_is_made_in_the_midst_of_forward_is_an_activation(analyze: Analyze, local: bool) -> None:
    """A mask that the loss uses; in a function it ends with the graph, else when the next one is made."""
    t = Loop()
    loss = t.stack((TORCH + "nn/functional.py", "masked", 1), ("train.py", "main", 50))
    for step in range(4):
        t.alloc(0x100, 1, t.line(2))
        first = t.forward(0x200, 2)
        t.alloc(0x1000 + step, 64, t.line(3))
        if step and not local:
            t.free(0x1000 + step - 1)
        t.sequence += 1
        t.node(t.sequence, loss)
        t.alloc(0x300, 4, loss)
        second = t.sequence
        t.backward(sequence=second, saved=0x300)
        if local:
            t.free(0x1000 + step)
        t.backward(sequence=first, saved=0x200)
        t.passed()
        t.update()
        t.free(0x100)
    assert allocated(analyze, t) == {"input": 4, "activation": 4 * (2 + 64 + 4)}


def test_another_batch_in_the_midst_of_a_step_is_an_input(analyze: Analyze) -> None:
    """Of another domain: a module is called with it next. What needs temporaries is computed from what is there."""
    t = Loop()
    for _ in range(4):
        t.alloc(0x100, 1, t.line(2))
        first = t.forward(0x200, 2)
        t.alloc(0x110, 64, t.line(3))
        second = t.forward(0x300, 4)
        t.alloc(0x120, 16, t.line(5))
        t.alloc(0x130, 128, t.line(5))
        t.free(0x120)
        third = t.forward(0x400, 8)
        for made, saved in ((third, 0x400), (second, 0x300), (first, 0x200)):
            t.backward(sequence=made, saved=saved)
        t.passed()
        t.update()
        for address in (0x100, 0x110, 0x130):
            t.free(address)
    assert allocated(analyze, t) == {"input": 4 * 65, "activation": 4 * (2 + 4 + 8 + 128), "temporary": 4 * 16}


def test_what_inference_collects_is_kept(analyze: Analyze) -> None:
    """Without a graph, an update or a backward pass: what is made after a forward is no data that was read before."""
    t = Loop()
    for step in range(8):
        t.alloc(0x100, 1, t.line(2))
        t.alloc(0x200, 2, t.call(0x77))
        t.alloc(0x1000 + step, 64, t.line(11))
        t.free(0x200)
        t.free(0x100)
    assert allocated(analyze, t)["kept"] == 8 * 64


def test_inputs_of_a_recurrent_network(analyze: Analyze) -> None:
    """One line makes all of them: the first comes before the forward, the others in its midst."""
    t = Loop()
    for _ in range(3):
        made = []
        for moment in range(5):
            t.alloc(0x100 + moment, 8, t.line(2))
            made.append(t.forward(0x200 + moment, 1))
        for moment in reversed(range(5)):
            t.backward(sequence=made[moment], saved=0x200 + moment)
            t.free(0x100 + moment)
        t.passed()
        t.update()
    assert allocated(analyze, t) == {"input": 3 * 5 * 8, "activation": 3 * 5}


@pytest.mark.parametrize("line, category", [(150, "kept"), (2, "input")])
def test_what_an_iteration_makes_for_the_next_is_kept(analyze: Analyze, line: int, category: str) -> None:
    """A queue that is made anew after the update, and used by the next forward, as a batch is. Only the order of the
    program's lines tells them apart: forward 9, backward 99, update 100."""
    t = Loop()
    t.alloc(0x100, 8, t.line(1))
    for step in range(5):
        t.iterate(0x900, 1)
        t.alloc(0x101 + step, 8, t.line(line))
        t.free(0x100 + step)
    assert allocated(analyze, t) == {"input": 8 + 40 * (category == "input"), "activation": 5} | (
        {"kept": 40} if category == "kept" else {}
    )


def test_a_backward_pass_that_is_differentiated_makes_activations(analyze: Analyze) -> None:
    """A gradient penalty: what autograd.grad(create_graph=True) leaves alive ends in loss.backward()."""
    t = Loop()
    for _ in range(3):
        first = t.forward(0x200, 2)
        t.run(first, 11)
        t.node(1000 + first, t.line(99), flags=IN_NODE | NODE_STACK)
        t.alloc(0x300, 64, t.line(99), flags=IN_NODE | NODE_STACK)
        t.done()
        t.passed()
        t.backward((0x400, 8), sequence=first, saved=0x300)
        t.free(0x200)
        t.passed()
        t.update()
        t.free(0x400)
    assert allocated(analyze, t) == {"activation": 3 * (2 + 64), "gradient": 3 * 8}


WRAPPER = (TORCH + "optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", 500)
GRAD_MODE = (TORCH + "utils/_contextlib.py", "context_decorator.<locals>.decorate_context", 120)
SGD = (TORCH + "optim/sgd.py", "SGD.step", 80)
OWN = ("train.py", "Plain.step", 5)
PACKAGE = ("/venv/lib/python3.11/site-packages/opts/lion.py", "Lion.step", 5)


@pytest.mark.parametrize(
    "step, inner, category",
    [
        (SGD, ("train.py", "main.<locals>.closure", 12), "kept"),
        (SGD, ("train.py", "compute", 12), "kept"),  # whatever it is called
        (SGD, ("/venv/lib/python3.11/site-packages/lightning/closure.py", "Closure.__call__", 12), "kept"),
        (SGD, (TORCH + "optim/_functional.py", "sgd", 12), "optimizer state"),
        (OWN, ("train.py", "main.<locals>.closure", 12), "kept"),
        (OWN, ("train.py", "main.<locals>.<lambda>", 12), "kept"),
        (OWN, ("helpers.py", "orthogonal", 12), "optimizer state"),
        (PACKAGE, ("train.py", "compute", 12), "kept"),
        (PACKAGE, ("/venv/lib/python3.11/site-packages/opts/math.py", "sign", 12), "optimizer state"),
    ],
)
def test_a_closure_is_no_part_of_the_optimizer(analyze: Analyze, step: Any, inner: Any, category: str) -> None:
    """In a cache, each replaces the one before."""
    t = Loop()
    stack = t.stack(inner, GRAD_MODE, step, GRAD_MODE, WRAPPER, TRAIN)

    def cache(number: int) -> None:
        t.alloc(0x1000 + 64 * (number % 2), 8, stack)
        if number:
            t.free(0x1000 + 64 * (1 - number % 2))

    train(t, nothing, cache)
    assert allocated(analyze, t) == {"activation": 8, category: 8 * 8}


def test_a_backward_pass_of_a_closure_is_still_inside_the_step(analyze: Analyze) -> None:
    """Of the step clock: passes inside an optimizer's step end no step."""
    t = Loop()
    closure = t.stack((TORCH + "_tensor.py", "Tensor.backward", 5), ("train.py", "c", 12), SGD, WRAPPER, TRAIN)
    for _ in range(9):
        for _ in range(3):
            saved = t.forward(0x100, 1)
            t.backward(sequence=saved, saved=0x100)
            t.tick(BACKWARD_TICK, 0, closure)
        t.update()
    assert len(analyze(t)["steps"]) == 9


def test_files_and_buckets(analyze: Analyze) -> None:
    t = Loop()
    t.alloc(0x1000, 64, t.stack((TORCH + "_utils.py", "_rebuild", 5), (TORCH + "serialization.py", "load", 9), TRAIN))
    t.alloc(0x2000, 32, t.stack((TORCH + "nn/parallel/distributed.py", "_ddp_init_helper", 9), TRAIN))
    t.alloc(0x3000, 16, t.stack((TORCH + "nn/parallel/distributed.py", "_sync", 9), TRAIN))
    t.free(0x3000)
    t.alloc(0x4000, 8, t.stack((TORCH + "storage.py", "cpu", 273), (TORCH + "serialization.py", "_save", 9), TRAIN))
    t.free(0x4000)
    train(t, nothing, nothing, steps=2)
    assert allocated(analyze, t) == {"loaded": 64, "bucket": 32, "temporary": 24, "activation": 2}


def test_a_workspace_that_a_library_was_given(analyze: Analyze) -> None:
    """By a hook, which does not know the device. It belongs to no line and no module."""
    t = Loop()
    t.alloc(0x1000, 4096, t.call(0x77), device=CUDA, index=0)
    t.add(32, 0x1000, flags=WORKSPACE, device=CUDA)
    for _ in range(5):
        t.iterate(0x100, 1)
    device = next(one for one in analyze(t)["devices"] if one["device"] == "cuda:0")
    (row,) = device["contributors"]
    assert (row[0], row[2], row[4], row[6], row[7]) == (4096, 0, "other", "workspace", None)


@pytest.mark.parametrize("backward", [True, False])
def test_half_copies_of_weights_are_autocasts(analyze: Analyze, backward: bool) -> None:
    """The hook's label holds for the block's life, in each step, whatever frees it; a window that opens in its midst
    knows it, too."""
    t = Loop()
    for step in range(6):
        if step == 3:
            t.mark(WINDOW_OPEN, 2)
        saved = t.forward(0x100, 8)
        t.add(32, 0x100, flags=AUTOCAST)
        if step == 2:
            t.mark(WINDOW_CLOSE, 1)
        if backward:
            t.backward(sequence=saved, saved=0x100)
            t.passed()
            t.update()
        else:
            t.free(0x100)
    assert allocated(analyze, t) == {"autocast cache": 6 * 8}


def test_a_graph_that_is_dropped_had_activations(analyze: Analyze) -> None:
    """Evaluation that forgets no_grad: no backward frees them, the next call's graph takes the old one's place."""
    t = Loop()
    for step in range(6):
        made = t.forward(0x100 + step, 8)
        t.tick(4, 0x77, t.line(20))
        if step:
            t.add(8, made - 1, 11)  # NODE_FREE
            t.free(0x100 + step - 1)
    assert allocated(analyze, t) == {"activation": 6 * 8}


def test_modules_by_address_and_time(analyze: Analyze) -> None:
    """Another object at the same address has another name; who has none is not given the old one."""
    t = Loop()
    t.walk((MODULE, 0x77, 0, "first"))
    t.forward(0x100, 1, module=0x77)
    t.add(11, 0x77, 1, t.name("Linear"))  # OBJECT_NEW
    t.forward(0x200, 2, module=0x77)
    t.walk((MODULE, 0x77, 0, "second"))
    t.add(11, 0x77, 1, t.name("Linear"))
    t.forward(0x300, 4, module=0x77)
    t.forward(0x400, 8, module=0x99)
    rows = only_device(analyze(t))["contributors"]
    assert {row[0]: row[7] for row in rows} == {1: "first", 2: "second", 4: None, 8: None}


def test_a_module_that_no_walk_saw_has_no_name_of_a_later_one(analyze: Analyze) -> None:
    t = Loop()
    t.add(11, 0x77, 1, t.name("Linear"))
    t.forward(0x100, 1, module=0x77)
    t.add(11, 0x77, 1, t.name("Linear"))
    t.forward(0x200, 2, module=0x77)
    t.walk((MODULE, 0x77, 0, "seen"))
    rows = only_device(analyze(t))["contributors"]
    assert {row[0]: row[7] for row in rows} == {1: None, 2: "seen"}


def test_many_modules_at_one_address(analyze: Analyze) -> None:
    """Each has its own name, from one making to the next, however far back it is."""
    t = Loop()
    for i in range(200):
        t.add(11, 0x77, 1, t.name("Linear"))
        t.forward(0x1000 + 64 * i, 1000 + i, module=0x77)
        if i % 3:
            t.walk((MODULE, 0x77, 0, f"module {i}"))
    rows = only_device(analyze(t))["contributors"]
    named = {row[7]: row[0] for row in rows if row[7] is not None}
    assert named == {f"module {i}": 1000 + i for i in range(200) if i % 3}
    assert sum(row[0] for row in rows if row[7] is None) == sum(1000 + i for i in range(0, 200, 3))


@pytest.mark.parametrize("alone", [True, False])
def test_a_window_cut_out_has_names_and_labels(analyze: Analyze, tmp_path: Any, alone: bool) -> None:
    from cuptimem import _core

    t = Loop()
    t.alloc(0x100, 100, t.stack((TORCH + "nn/modules/linear.py", "__init__", 109), TRAIN))
    t.walk((MODULE, 0x77, 0, "net"), (PARAMETER, 0x100, 0x77, "net.weight\tfloat32 25"))
    t.mark(WINDOW_OPEN, 1)
    t.iterate(0x200, 8, updates=False)
    t.mark(WINDOW_CLOSE, 1)
    path = tmp_path / "whole.cmem"
    t.write(path)
    source = _core.trace(str(path))
    if not alone:
        _core.analyze(source, window=0)
    _core.extract(source, str(tmp_path / "cut.cmem"), 1)
    whole = _core.analyze(str(path), window=1)
    cut = _core.analyze(str(tmp_path / "cut.cmem"))
    for report in (whole, cut):
        device = only_device(report)
        assert {(row[0], row[6], row[7]) for row in device["contributors"]} == {
            (100, "parameter", "net"),
            (8, "activation", "net"),
        }
        assert [row[:4] for row in device["tensors"]] == [("net.weight\tfloat32 25", "parameter", 100, "net")]


def test_seeds_take_labels(analyze: Analyze) -> None:
    t = Loop()
    t.add(12, 0x100, 100)  # SEED
    t.add(12, 0x200, 50)
    t.mark(SEEDED)
    t.walk((PARAMETER, 0x100, 0, "w"))
    rows = only_device(analyze(t))["contributors"]
    assert {(row[0], row[4], row[6]) for row in rows} == {
        (100, "before start", "parameter"),
        (50, "before start", "before start"),
    }


def test_labels_of_nothing(analyze: Analyze) -> None:
    """Of an address without a block, of no kind, of a name that is not there."""
    t = Loop()
    t.alloc(0x100, 8, t.line(1))
    t.walk((PARAMETER, 0x200, 0, "w"), (0, 0x100, 0, "none"), (77, 0x100, 0, "none"))
    t.add(32, 0x100, 1 << 62, 4000, flags=TENSOR)
    (row,) = only_device(analyze(t))["contributors"]
    assert (row[0], row[6], row[7]) == (8, "unknown", None)


def evaluated(t: Loop, address: int, size: int, line: int = 9) -> None:
    """A call of a module, which records nothing."""
    t.tick(CALL, 0x77, t.line(line))
    call = (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1775, 0x77, "Linear")
    t.alloc(address, size, t.stack((TORCH + "nn/functional.py", "linear", 1), call, ("train.py", "main", line)))


@pytest.mark.parametrize("queries", [4, 1])
def test_a_bank_of_what_calls_made_is_kept(analyze: Analyze, queries: int) -> None:
    """It lives past calls; what one call takes is an input."""
    t = Loop()
    for _ in range(3):
        evaluated(t, 0x100, 1)
        evaluated(t, 0x200, 1)
        t.alloc(0x300, 16, t.line(12))  # torch.cat
        t.free(0x100)
        t.free(0x200)
        for _ in range(queries):
            evaluated(t, 0x400, 2, line=14)
            t.free(0x400)
        t.free(0x300)
    found = allocated(analyze, t)
    assert found["kept" if queries > 1 else "input"] == 48


@pytest.mark.parametrize("loader", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_results_of_calls_with_batches_of_their_own(analyze: Analyze, batch: bool, loader: bool) -> None:
    """A variable has them until the next result; without another batch they may be what the next call takes."""
    t = Loop()
    for i in range(6):
        if loader:
            t.tick(DATA, 0x88, t.line(5))
        if batch:
            t.alloc(0x100 + i % 2, 1, t.line(6))
            t.free(0x101 - i % 2) if i else None
        evaluated(t, 0x200, 2)
        t.free(0x200)
        t.alloc(0x300 + i % 2, 16, t.line(10))
        t.free(0x301 - i % 2) if i else None
    found = allocated(analyze, t)
    assert found["temporary" if batch or loader else "input"] >= 5 * 16
