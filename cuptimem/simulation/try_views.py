"""What tries found, as text: one table, and a line for each change that has no place in it."""

from collections.abc import Mapping, Sequence

from cuptimem.output.text.blocks import Block, Column, Table, Text
from cuptimem.output.text.words import plural, share, size
from cuptimem.simulation.tries import CPU, Tried

LEAST = 0.02  # of the peak: what saves less is named, and no row

_LINES = 12  # of a failed program's output


def blocks(found: Sequence[Tried], program: str, device: str, predicted: Mapping[str, int]) -> list[Block]:
    """found: the program as it is first. predicted: the peak with a change, as a recording foretells it."""
    as_it_is, *tried = found
    where = "the CPU" if device == CPU else f"a simulated {device}"
    if as_it_is.peak_bytes is None:
        return [Text(f"{program} fails as it is, on {where}: {as_it_is.error}", "warning"), *_output(as_it_is)]
    stretch = f"in {plural(as_it_is.steps, 'step')}" if as_it_is.steps else "in the whole run"
    reserved = f" ({size(as_it_is.reserved_bytes)} reserved)" if as_it_is.reserved_bytes else ""
    title = f"{program} on {where}: peak {size(as_it_is.peak_bytes)}{reserved} {stretch}"
    result: list[Block] = [Text(f"{title}; {plural(len(tried), 'change')} tried", "title"), Text()]
    rows = sorted((one for one in tried if _is_row(one, as_it_is)), key=lambda one: one.peak_bytes or 0)
    if rows:
        result += [_table(rows, as_it_is, predicted), Text()]
    little = [one for one in tried if one.is_answer and one not in rows]
    return result + [Text(line, hang=2, prose=True) for line in (*_little(little, as_it_is), *_without(tried))]


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


def _table(rows: Sequence[Tried], as_it_is: Tried, predicted: Mapping[str, int]) -> Table:
    with_reserved = as_it_is.reserved_bytes is not None
    columns = [Column("change", flexible=True), Column("saves", True), Column("", True), Column("peak tried", True)]
    columns += [Column("predicted", True)] * bool(predicted) + [Column("reserved", True)] * with_reserved
    lines = []
    for one in rows:
        saved = (as_it_is.peak_bytes or 0) - (one.peak_bytes or 0)
        line = [one.change, size(saved), share(saved, as_it_is.peak_bytes or 1), size(one.peak_bytes or 0)]
        foretold = predicted.get(one.change)
        line += [size(foretold) if foretold is not None else "-"] * bool(predicted)
        line += [size(one.reserved_bytes or 0)] * with_reserved
        lines.append(tuple(line))
    return Table(tuple(columns), tuple(lines))


def _little(tried: Sequence[Tried], as_it_is: Tried) -> list[str]:
    names = ", ".join(one.change for one in sorted(tried, key=lambda one: one.peak_bytes or 0))
    return [f"tried, changes the peak by less than {LEAST:.0%}: {names}"] if names else []


def _without(tried: Sequence[Tried]) -> list[str]:
    """Those without an answer: these save something or nothing, which nobody knows."""
    failed = [f"does not work with this program: {one.change}: {one.error}" for one in tried if one.error is not None]
    return failed + [f"not applied: {one.change}: {one.why_not}" for one in tried if one.why_not]


def _output(one: Tried) -> list[Block]:
    return [Text(f"  {line}", "dim", cut=True) for line in one.output.rstrip().splitlines()[-_LINES:]]
