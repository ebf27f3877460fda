"""Checkpoints that are put into a program from outside."""

from torch import nn

from cuptimem.simulation.changes.checkpoints import Checkpoint


class Layer(nn.Module):
    """As those of transformers, which checkpoint themselves in training."""

    gradient_checkpointing = False


def test_a_layer_with_a_switch_has_that_alone() -> None:
    """Modules are looked at again before each outermost call: evaluation stays as it is."""
    layer, own = Layer(), Layer()
    own.gradient_checkpointing = True
    plain = nn.Linear(2, 2)
    change = Checkpoint("checkpoint", "*", "cpu")
    for _ in range(2):
        change._wrap_all([layer, own, plain])
    assert layer.gradient_checkpointing and hasattr(layer, "_gradient_checkpointing_func")
    assert not hasattr(own, "_gradient_checkpointing_func")
    assert ["forward" in vars(one) for one in (layer, own, plain)] == [False, False, True]
