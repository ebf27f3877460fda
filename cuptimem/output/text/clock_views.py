"""What counted the steps, and what counts them better."""

from cuptimem.output.text.blocks import Block, Text
from cuptimem.output.text.words import place, plural
from cuptimem.report.leaks import STEPS_NEEDED
from cuptimem.report.model import Clock, Report
from cuptimem.report.stacks import Frame

_KINDS = {
    "step": "prof.step()",
    "optimizer": "the optimizer's step",
    "backward": "backward passes",
    "data": "the data loader's next batch",
    "module": "calls of the outermost module",
}
_LOOPS = 4  # that are explained
_FEW = {"optimizer": "the optimizer stepped", "backward": "backward ran", "data": "the data loader was asked"}


def _at(where: tuple[str, int, str] | None) -> str:
    return f" at {place(Frame(where[0], where[2], where[1]))}" if where is not None else ""


def counted_by(clock: Clock) -> str:
    """backward passes at train.py:30"""
    return "nothing" if clock.kind is None else _KINDS.get(clock.kind, clock.kind) + _at(clock.where)


def notes(clock: Clock) -> list[Block]:
    """What a step is where that is not plain, and what prof.step() makes of it."""
    said = []
    passed, rate = clock.passed, clock.rate
    if passed is not None:
        what = _FEW.get(passed.kind, f"{passed.kind} ticked")
        said.append(
            f"{what} only {plural(passed.steps, 'time')}{_at(passed.where)} ({STEPS_NEEDED} are needed); "
            "if that ends your iteration, prof.step() behind it counts those"
        )
    if rate is not None and rate.joined:
        said.append(
            f"a step is an iteration: {plural(rate.updates, 'round')} of updates, up to the one{_at(rate.where)}"
        )
    elif rate is not None:
        said.append(
            f"a step is one round of updates, {rate.updates} to an iteration, which ends{_at(rate.where)}; "
            "prof.step() there counts iterations"
        )
    return [Text(f"  {line}", "dim") for line in said]


def loop_lines(report: Report) -> list[Block]:
    """What each loop counts and where, but for a first one that the clock counts: "evaluation 2" is a line's name."""
    clock, begun = report.clock, report.steps[0].loop if report.steps else ""
    first = {change.loop: change for change in reversed(clock.changes)}
    changes = sorted(first.values(), key=lambda one: one.step if one.loop != begun else 0)
    said = [
        f"{one.loop}: {_KINDS.get(one.kind, one.kind)}{_at(one.where)}, "
        f"from {'the first step' if one.loop == begun else f'step {one.step}'} on"
        for one in changes
        if one.loop != begun or (one.kind, one.where) != (clock.kind, clock.where)
    ]
    if said[_LOOPS:]:
        said[_LOOPS:] = [f"and {plural(len(said) - _LOOPS, 'more loop')} (--json has all)"]
    return [Text(f"  {line}", "dim") for line in said]
