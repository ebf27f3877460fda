"""Who holds what is alive: the lines of text for leaks, for rows of tables and for the verb `holders`."""

from collections.abc import Iterable, Sequence

from cuptimem.output.text.blocks import Block, Text
from cuptimem.output.text.words import code, function, place, plural, share, size
from cuptimem.report.held import HeldLine, holders_of
from cuptimem.report.leaks import OTHERS, Holder
from cuptimem.report.line_holders import LineHolders
from cuptimem.report.model import Report
from cuptimem.report.stacks import Frame

_LEAST = 0.01  # of a table's bytes: a row with less has no holders under it
_MOST = 2  # under a row
_NOBODY = ("no Python object", "nothing in Python")
_WHOLE = 0.995  # of the bytes: a part that reads as 100 %


def said(holder: Holder) -> str:
    """held by losses in train() → list[0:36]"""
    if holder.path == OTHERS:
        return "and by others"
    return holder.path if holder.path.startswith(_NOBODY) else f"held by {holder.path}"


def each(holders: Iterable[Holder], whole: int) -> list[str]:
    """A line for each, with its share of so many bytes where it is not all of them; none for others of 0 %."""
    return [
        said(one) + ("" if one.bytes >= _WHOLE * whole or whole <= 0 else f" ({share(one.bytes, whole)})")
        for one in holders
        if one.path != OTHERS or one.bytes > (1 - _WHOLE) * whole
    ]


def at_end(report: Report) -> str:
    """The moment that the recording ended. Functions that an exception has left still hold their variables then."""
    error = report.environment.get("exception")
    return f"at the end, when {error} had ended it" if error else "at the end"


def entry(report: Report, one: LineHolders) -> list[Block]:
    """A line, and who held what was alive of it at the end."""
    blocks: list[Block] = [Text(f"{place(one.frame)} in {function(one.frame)}", "title")]
    if code(one.frame):
        blocks.append(Text(f"    {code(one.frame)}", cut=True))
    moment = at_end(report)
    for held in one.held:
        blocks.append(Text(f"{size(held.bytes)} in {plural(held.count, 'block')} on {held.device} {moment}"))
        blocks += [Text(f"   {line}", hang=5) for line in each(held.holders, held.bytes)]
    return blocks


def under(
    frame: Frame | None, lines: Sequence[HeldLine], bytes_: int, table_bytes: int, most: int = _MOST
) -> list[str]:
    """What stands under a row of this line, with so many bytes of the table's."""
    if bytes_ < _LEAST * table_bytes:
        return []
    holders = holders_of(lines, frame)
    if len(holders) == most + 1 and holders[-1].path == OTHERS:
        holders = holders[:-1]
    shown = each(holders[:most], bytes_)
    rest = holders[most:]
    if rest:
        shown[-1] += f", {plural(len(rest), 'more holder')} {size(sum(one.bytes for one in rest))}"
    return shown
