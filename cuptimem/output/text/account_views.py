"""The balance sheet of a peak, by category and by module: the body of `cuptimem account`, and a line of the summary."""

from collections.abc import Sequence

from cuptimem.output.text.blocks import Block, Column, Style, Table, Text
from cuptimem.output.text.ledger_views import prose
from cuptimem.output.text.peak_views import knows_categories, when
from cuptimem.output.text.words import count, plural, share, size
from cuptimem.report import grouping
from cuptimem.report.account import Account, equal_together, of_contents, together
from cuptimem.report.model import CATEGORIES, Contents

_NAMES = {
    "parameter": "parameters",
    "buffer": "buffers",
    "gradient": "gradients",
    "input": "inputs",
    "activation": "activations",
    "bucket": "buckets",
    "autocast cache": "autocast caches",
    "workspace": "workspaces",
    "temporary": "temporaries",
}


def short(contents: Contents) -> list[Block]:
    """What the bytes are, the largest first; nothing where that is not known of any."""
    if not knows_categories(contents.contributors):
        return []
    sums = zip(of_contents(contents).total.parts, CATEGORIES, strict=True)
    found = sorted(((part, _name(name)) for part, name in sums if part), key=lambda part: -part[0])
    parts = [part for part in found if part[0] * 100 >= contents.bytes]
    others = [part for part in found if part not in parts and part[1] != "unknown"]
    parts += others if len(others) < 2 else [(sum(part for part, _ in others), f"{len(others)} others")]
    parts += [part for part in found if part not in parts and part[1] == "unknown"]  # it is no other category
    return prose(
        " · ".join(f"{name} {size(part)} ({share(part, contents.bytes)})" for part, name in parts), breaks=" · "
    )


def full(accounts: Sequence[Account], top: int) -> list[Block]:
    """A table by category, and one by category and module, for each device."""
    blocks: list[Block] = []
    for one in accounts:
        title = f"{one.device}: {count(one.bytes)} bytes ({size(one.bytes)}) in {plural(one.total.count, 'block')}"
        blocks += [Text(), Text(f"{title}, {when(one.contents)}", "title"), _by_category(one)]
        if not knows_categories(one.contents.contributors):
            blocks += prose("What the blocks are for is not known: the recording has no names of live objects.", "dim")
        if len(one.rows) > 1:
            blocks += [Text(), _by_module(one, top)]
    return blocks


def _name(category: str) -> str:
    return _NAMES.get(category, category)


def _by_category(one: Account) -> Table:
    blocks = {group.key: group.count for group in grouping.group(one.contents.contributors, "category")}
    blocks["unknown"] = blocks.get("unknown", 0) + one.contents.rest_count
    rows = [
        (_name(name), count(part), share(part, one.bytes), count(blocks[name]))
        for name, part in zip(CATEGORIES, one.total.parts, strict=True)
        if part
    ]
    rows.append(("all", count(one.bytes), "", count(one.total.count)))
    return Table((Column("category"), _number("bytes", "strong"), _number("share"), _number("blocks")), tuple(rows))


def _by_module(one: Account, top: int) -> Table:
    used = [name for name in CATEGORIES if one.total.of(name)]
    found = one.rows if len(one.rows) <= top else equal_together(one.rows)
    others = found[top:]
    rows = [(row.module or grouping.OUTSIDE, row) for row in found[:top]]
    if others:
        rows.append((f"({count(len(others))} more)", together(others)))
    rows.append(("all", one.total))
    columns = (
        Column("module", flexible=True, keep_end=True),
        _number("all", "strong"),
        *(_number(_name(name)) for name in used),
    )
    cells = tuple(
        (name, count(row.bytes), *(count(row.of(used_)) if row.of(used_) else "" for used_ in used))
        for name, row in rows
    )
    return Table(columns, cells, first=2)


def _number(name: str, style: Style = "") -> Column:
    return Column(name, right=True, style=style)
