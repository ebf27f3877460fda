"""What tries found, as text: tables of what changes the peak, and a line for each of the others."""

from collections.abc import Mapping, Sequence

from cuptimem.output.text import advice_views, leak_views
from cuptimem.output.text.blocks import Block, Column, Table, Text
from cuptimem.output.text.words import plural, share, size
from cuptimem.report.advice import Advice, Proposal
from cuptimem.simulation import changes
from cuptimem.simulation.tries import CPU, NOTHING, STEPS, Tried

LEAST = 0.02  # of the peak: what saves less is named, and no row

_UNTRIED = "predicted, and not tried"
_LINES = 12  # of a failed program's output
_TABLES = {
    (True, True): "free: no slower, equal up to rounding",
    (True, False): "free, but not tried: as predicted alone; why stands below",
    (False, None): "trades: each with its cost",
}  # by whether it is free, and whether it was tried; of a trade that is no matter


def blocks(
    found: Sequence[Tried],
    program: str,
    device: str,
    predicted: Mapping[str, int],
    advised: Advice | None = None,
    most: int | None = STEPS,
    untried: Sequence[Proposal] = (),
) -> list[Block]:
    """found: the program as it is first. predicted: the peak with a change, as a recording foretells it. advised: what
    the same recording advises, which has the lines and what to write there. most: steps behind which a try
    ended. untried: proposals that are none of the found."""
    as_it_is, *tried = found
    where = "the CPU" if device == CPU else f"a simulated {device}"
    if as_it_is.error == NOTHING:
        here = f"cuptimem advice --try --device {CPU} {program}"
        return [Text(f"{program} allocates nothing on a GPU. To try it on the CPU: {here}", "warning", hang=2)]
    if as_it_is.peak_bytes is None:
        return [Text(f"{program} fails as it is, on {where}: {as_it_is.error}", "warning"), *_output(as_it_is)]
    is_part = most is not None and as_it_is.steps >= most
    stretch = f"in {plural(as_it_is.steps, 'step')}" if is_part else "in the whole run"
    reserved = f" ({size(as_it_is.reserved_bytes)} reserved)" if as_it_is.reserved_bytes else ""
    title = f"{program} on {where}: peak {size(as_it_is.peak_bytes)}{reserved} {stretch}"
    result: list[Block] = [Text(f"{title}; {plural(len(tried), 'change')} tried", "title"), Text()]
    if advised is not None:
        result[1:1] = leak_views.at_peak(advised.leaks, advised.peak)
    proposals = {one.technique: one for one in advised.proposals} if advised is not None else {}
    advised_rows = proposals.keys() - {one.change for one in tried if one.error is not None}
    rows = [one for one in tried if _is_row(one, as_it_is) or one.change in advised_rows]
    rows += [Tried(one.technique, None, None, 0, why_not=_UNTRIED) for one in untried]
    predicted = {**{one.technique: one.bytes for one in untried}, **predicted}
    rows.sort(key=lambda one: _peak(one, proposals))
    for kind, words in _TABLES.items():
        if chosen := [one for one in rows if _kind(one, proposals) == kind]:
            result += [Text(words, "strong"), _table(chosen, as_it_is, predicted, proposals), Text()]
    little = [one for one in tried if one.is_answer and one not in rows]
    beside = [f"{_UNTRIED}: {', '.join(one.technique for one in untried)}"] if untried else []
    unread = [f"not known is what reads a block last: {as_it_is.unread}"] if as_it_is.unread else []
    lines = (*_little(little, as_it_is), *_without(tried), *beside, *unread, *(_later(as_it_is) if is_part else ()))
    return result + [Text(line, hang=2, prose=True) for line in lines]


def _kind(one: Tried, proposals: Mapping[str, Proposal]) -> tuple[bool, bool | None]:
    row = proposals.get(one.change)
    is_free = row.free if row is not None else changes.is_free(one.change)
    return is_free, one.is_answer if is_free else None


def _later(as_it_is: Tried) -> list[str]:
    """What a few steps did not come to."""
    text = f"What comes behind {plural(as_it_is.steps, 'step')}, such as an evaluation, is not in these peaks"
    return [f"{text}: --steps 0 runs to the end, and so do --change no_grad and --change keep_evaluation"]


def _peak(one: Tried, proposals: Mapping[str, Proposal]) -> int:
    """As tried; of what could not be tried, as predicted."""
    return one.peak_bytes if one.peak_bytes is not None and one.is_answer else proposals[one.change].bytes


def _is_row(one: Tried, as_it_is: Tried) -> bool:
    return one.is_answer and (abs(_saved(one, as_it_is)) >= LEAST or abs(_reserved(one, as_it_is)) >= LEAST)


def _saved(one: Tried, as_it_is: Tried) -> float:
    """As a share of the peak; negative where the change raises it."""
    return 1 - (one.peak_bytes or 0) / (as_it_is.peak_bytes or 1)


def _reserved(one: Tried, as_it_is: Tried) -> float:
    """The same of what the allocator reserved, for changes that are about that alone."""
    if one.change != "expandable" or not one.reserved_bytes or not as_it_is.reserved_bytes:
        return 0
    return 1 - one.reserved_bytes / as_it_is.reserved_bytes


def _table(
    rows: Sequence[Tried], as_it_is: Tried, predicted: Mapping[str, int], proposals: Mapping[str, Proposal]
) -> Table:
    with_reserved = as_it_is.reserved_bytes is not None
    columns = [Column("change", flexible=True), Column("saves", True), Column("", True), Column("peak tried", True)]
    columns += [Column("predicted", True)] * bool(predicted) + [Column("reserved", True)] * with_reserved
    first, with_places = len(columns), any(one.write or one.change in proposals for one in rows)
    if with_places:
        columns += advice_views.PLACE
    lines = []
    for one in rows:
        before, peak, foretold = as_it_is.peak_bytes or 0, _peak(one, proposals), predicted.get(one.change)
        line = [one.change, size(before - peak), share(before - peak, before), size(peak) if one.is_answer else "-"]
        line += [size(foretold) if foretold is not None else "-"] * bool(predicted)
        line += [size(one.reserved_bytes or 0) if one.is_answer else "-"] * with_reserved
        lines.append((*line, *_place(one, proposals.get(one.change))) if with_places else tuple(line))
    return Table(tuple(columns), tuple(lines), first)


def _place(tried: Tried, proposal: Proposal | None) -> tuple[str, ...]:
    if proposal is not None and not tried.write:
        return advice_views.place(proposal)
    costs = [changes.KINDS[name].cost for name, _ in changes.parse(tried.change)] if tried.write else []
    return "" if tried.frame is None else tried.frame.shown, tried.write, tried.cost or "; ".join(costs)


def _little(tried: Sequence[Tried], as_it_is: Tried) -> list[str]:
    names = ", ".join(one.change for one in sorted(tried, key=lambda one: one.peak_bytes or 0))
    return [f"tried, changes the peak by less than {LEAST:.0%}: {names}"] if names else []


def _without(tried: Sequence[Tried]) -> list[str]:
    """Those without an answer: whether these save anything is not known."""
    failed = [f"does not work with this program: {one.change}: {one.error}" for one in tried if one.error is not None]
    return failed + [f"not applied: {one.change}: {one.why_not}" for one in tried if one.why_not]


def _output(one: Tried) -> list[Block]:
    return [Text(f"  {line}", "dim", cut=True) for line in one.output.rstrip().splitlines()[-_LINES:]]
