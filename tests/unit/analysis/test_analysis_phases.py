"""Hand-made traces with known answers: the phase and the line that a stack stands for."""

from typing import Any

import pytest
from craft import TORCH, Trace
from hand_made import Analyze, only_device

TRAIN = ("train.py", "main", 9)
CALL = (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1775, 0x77, "Linear")
PHASES = {
    "forward": ((TORCH + "nn/functional.py", "linear", 5), CALL, TRAIN),
    "optimizer": ((TORCH + "optim/adam.py", "step", 5), TRAIN),
    "data": (("dataset.py", "__getitem__", 3), (TORCH + "utils/data/_utils/fetch.py", "fetch", 54), TRAIN),
    "other": (TRAIN,),
}
NESTED = {
    # The closure of an LBFGS step runs the model; a data set may run a module; a custom optimizer is
    # called through torch/optim; a folder that happens to be called torch is the user's.
    "forward": (CALL, ("train.py", "closure", 4), (TORCH + "optim/lbfgs.py", "step", 5), TRAIN),
    "data": (CALL, ("transforms.py", "t", 3), (TORCH + "utils/data/_utils/fetch.py", "fetch", 54), TRAIN),
    "optimizer": (("shampoo.py", "step", 4), (TORCH + "optim/optimizer.py", "wrapper", 5), TRAIN),
    "other": (("/home/me/torch/optim/mine.py", "step", 4), TRAIN),
}


@pytest.mark.parametrize("stacks", [PHASES, NESTED], ids=["plain", "nested"])
@pytest.mark.parametrize("phase", PHASES)
def test_phases(analyze: Analyze, stacks: dict[str, tuple[Any, ...]], phase: str) -> None:
    t = Trace()
    t.alloc(0x1000, 8, t.stack(*stacks[phase]))
    assert [row[4] for row in only_device(analyze(t))["contributors"]] == [phase]


def test_a_loss_by_hand_is_forward_because_it_makes_a_node(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 1, t.line(5))
    t.node(7, t.line(5))
    t.alloc(0x2000, 8, t.line(5))
    rows = only_device(analyze(t))["contributors"]
    assert [(row[0], row[4]) for row in rows] == [(8, "forward"), (1, "other")]


def test_a_loss_by_hand_in_a_closure_is_forward(analyze: Analyze) -> None:
    t = Trace()
    stack = t.stack(("train.py", "closure", 4), (TORCH + "optim/lbfgs.py", "step", 5), TRAIN)
    t.node(7, stack)
    t.alloc(0x1000, 8, stack)
    assert [row[4] for row in only_device(analyze(t))["contributors"]] == ["forward"]


ROUTER = (TORCH + "_native/registry.py", "eager_router", 560)
ADAM = ((TORCH + "optim/adam.py", "step", 5), TRAIN)


@pytest.mark.parametrize(
    ("node", "block", "phase"),
    [
        ((TRAIN,), (ROUTER, TRAIN), "forward"),
        ((TRAIN,), (("/v/lib/python3.11/functools.py", "f", 3), ROUTER, TRAIN), "forward"),
        ((TRAIN,), (("kernels.py", "f", 3), ROUTER, TRAIN), "other"),
        ((TRAIN,), (ROUTER, ("train.py", "main", 10)), "other"),  # another line
        ((("train.py", "closure", 4), *ADAM), (ROUTER, ("train.py", "closure", 4), *ADAM), "forward"),
        ((TRAIN,), (ROUTER, *ADAM), "optimizer"),
        ((), (ROUTER,), "other"),
    ],
)
def test_an_operator_that_is_routed_through_python_is_forward(
    analyze: Analyze, node: tuple[Any, ...], block: tuple[Any, ...], phase: str
) -> None:
    """Its node was made before, by the stack without the router."""
    t = Trace()
    t.node(7, t.stack(*node))
    t.alloc(0x1000, 8, t.stack(*block))
    assert [row[4] for row in only_device(analyze(t))["contributors"]] == [phase]


def test_a_torch_built_in_its_source_tree_is_torch(analyze: Analyze) -> None:
    t = Trace()
    root = "/src/pytorch/torch/"
    # The file of optim is met before the one by which the tree is recognised.
    t.alloc(0x1000, 8, t.stack((root + "optim/adam.py", "step", 5), TRAIN))
    t.alloc(0x2000, 4, t.stack((root + "optim/optimizer.py", "wrapper", 5), TRAIN))
    assert [row[4] for row in only_device(analyze(t))["contributors"]] == ["optimizer", "optimizer"]


def test_stacks_have_their_frames(analyze: Analyze) -> None:
    t = Trace()
    stack = t.stack((TORCH + "nn/functional.py", "linear", 5), CALL, TRAIN)
    t.alloc(0x1000, 8, stack)
    t.alloc(0x2000, 4)
    report = analyze(t)
    assert report["stacks"] == {
        0: [],
        stack: [
            (TORCH + "nn/functional.py", "linear", 5, 5, 4, 9, None, 0, ""),
            (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1775, 1775, 4, 9, "Linear", 0x77, ""),
            ("train.py", "main", 9, 9, 4, 9, None, 0, ""),
        ],
    }
