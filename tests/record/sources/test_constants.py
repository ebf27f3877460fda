"""Copies of the extension's constants, in modules that must load without it."""

from cuptimem import _core
from cuptimem.output.exports import events
from cuptimem.report import chart, load


def test_phases() -> None:
    assert (*chart.PHASES, "before start") == _core.PHASES


def test_reserved_stacks() -> None:
    assert (events._NO_STACK, events._LOST_STACK) == (_core.STACK_NONE, _core.STACK_LOST)
    assert load._LOST_STACK == _core.STACK_LOST
