"""Whether a program fits on each of several cards, or with each of several settings of PyTorch's allocator.

Each answer is that of `simulate` (questions.py), or follows from one by arithmetic: of the cards of one architecture
the largest is asked first, and one with clearly more or clearly less memory than was taken there is not run.
Between architectures nothing follows: PyTorch chooses other kernels, and a program may choose other types.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cuptimem.report.brief import Brief
from cuptimem.simulation import cards, settings
from cuptimem.simulation.launch import Setup
from cuptimem.simulation.result import EXIT_CODES, Interval, Simulation, VerdictKind

# Of a card's memory: what kernels of one architecture take beside tensors may differ by less, with the number of
# multiprocessors.
CLEARLY = 0.05

Ask = Callable[["Case"], Simulation]


@dataclass(frozen=True, slots=True)
class Case:
    """What the program is to run on."""

    name: str  # of the card or the setting
    setup: Setup


@dataclass(frozen=True, slots=True, repr=False)
class Row(Brief):
    """The answer for one of them. Bytes are of the fullest device."""

    case: Case
    verdict: VerdictKind
    reason: str
    takes: Interval | None  # what it takes of a device where it finds room; high None: no bound is known
    by: Literal["run", "arithmetic"]
    simulation: Simulation | None  # of the run on this one

    @property
    def free(self) -> int | None:
        """What stays free at the peak with everything at its high end; below 0: what is lacking at least."""
        if self.takes is None:
            return None
        memory = self.case.setup.memory
        if self.verdict == "fits":
            return None if self.takes.high is None else memory - self.takes.high
        return memory - self.takes.low if self.takes.low > memory else None

    @property
    def code(self) -> int:
        return EXIT_CODES[self.verdict]


def of_cards(setup: Setup, chosen: Sequence[cards.Card]) -> list[Case]:
    return [Case(one.key, replace(setup, card=one, memory=one.memory)) for one in cards.larger(chosen, 0)]


def of_settings(setup: Setup, environment: dict[str, str]) -> list[Case]:
    """The allocator as it is, and with one setting more."""
    tried = [Case(one, replace(setup, alloc_conf=one)) for one in settings.candidates(environment, settings.COMPARED)]
    return [Case(settings.current(environment) or "as it is", setup), *tried]


def answers(cases: Sequence[Case], ask: Ask, *, arithmetic: bool) -> tuple[Row, ...]:
    """A row for each case in their order; fewer where the program failed for another reason: that is the last one."""
    rows: dict[int, Row] = {}
    for group in _by_architecture(cases) if arithmetic else [list(range(len(cases)))]:
        nearest: Row | None = None  # the smallest one that was run
        for number in group:
            row = _derived(nearest, cases[number]) if arithmetic and nearest is not None else None
            if row is None:
                row = nearest = asked(cases[number], ask(cases[number]))
            rows[number] = row
            if row.verdict == "script failed":
                return (*(rows[other] for other in sorted(rows) if other != number), row)
    return tuple(rows[number] for number in sorted(rows))


def exit_code(rows: Sequence[Row]) -> int:
    """Of the gate: 5 the program failed, 3 it does not fit everywhere, 4 that is not known, 0 it fits everywhere."""
    codes = {row.code for row in rows}
    return next((code for code in (5, 3, 4) if code in codes), 0)


def _by_architecture(cases: Sequence[Case]) -> list[list[int]]:
    """Numbers of cases, in each group that with the most memory first."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(case.setup.card.capability, []).append(number)
    return [sorted(group, key=lambda number: -cases[number].setup.memory) for group in groups.values()]


def asked(case: Case, one: Simulation) -> Row:
    return Row(case, one.verdict, one.reason, _taken(one), "run", one)


def _taken(one: Simulation) -> Interval | None:
    if one.need is not None:
        return Interval(one.need.low, None if one.need.takes_everything else one.need.high)
    fullest = max(one.devices, key=lambda device: device.used.high or device.used.low, default=None)
    return None if fullest is None or one.verdict == "script failed" else fullest.used


def _derived(known: Row, case: Case) -> Row | None:
    """What follows from a run on a larger card of this architecture; None: nothing does."""
    one = known.simulation
    assert one is not None
    if known.takes is None or not one.devices:
        return Row(case, known.verdict, known.reason, None, "arithmetic", None)
    memory, least, used = case.setup.memory, _least(one, known.case.setup, case.setup), _used(known, case.setup)
    if least * (1 - CLEARLY) > memory:
        text = f"its tensors, CUDA's context and libraries alone take about {cards.text(least)}"
        most = None if used is None else used.high
        return Row(case, "does not fit", text, Interval(least, most), "arithmetic", None)
    if used is None or used.high is None or used.high > memory * (1 - CLEARLY):
        return None
    if one.verdict == "fits":
        text = f"about {cards.text(memory - used.high)} stay free at its peak"
        return Row(case, "fits", text, used, "arithmetic", None)
    if one.verdict == "undecided":  # for another reason than memory
        return Row(case, "undecided", one.reason, used, "arithmetic", None)
    return None


def _least(one: Simulation, known: Setup, wanted: Setup) -> int:
    """Tensors, contexts and libraries alone."""
    change = wanted.context_range.low - known.context_range.low
    if one.need is not None:
        return one.need.low + change
    fullest = max(one.devices, key=lambda device: device.used.low)
    # What was reserved and not in tensors is a cache that PyTorch gives back before it gives up.
    cache = max(0, (fullest.reserved or fullest.allocated).low - fullest.allocated.low)
    return fullest.used.low - cache + change


def _used(known: Row, wanted: Setup) -> Interval | None:
    """What is used at both ends with the contexts of another card; None: no request may have been refused in the run
    that says it, for an allocator that has emptied its cache would use more with more room."""
    one, context = known.simulation, known.case.setup.context_range
    if one is None or one.retries or one.caught_ooms or any(device.refused for device in one.devices):
        return None
    fullest = max(one.devices, key=lambda device: device.used.high or device.used.low)
    if fullest.used.high is None or any(device.used.high is None for device in one.devices):
        return None
    contexts = round((fullest.context_range.high or 0) / context.high) if context.high else 0
    low = fullest.used.low + contexts * (wanted.context_range.low - context.low)
    return Interval(low, fullest.used.high + contexts * (wanted.context_range.high - context.high))
