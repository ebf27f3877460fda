"""Copies of the extension's constants, in modules that must load without it."""

from cuptimem import _core
from cuptimem.report import chart, model


def test_phases() -> None:
    assert (*chart.PHASES, "before start") == _core.PHASES


def test_reserved_stacks() -> None:
    assert (model._NO_STACK, model._LOST_STACK) == (_core.STACK_NONE, _core.STACK_LOST)
