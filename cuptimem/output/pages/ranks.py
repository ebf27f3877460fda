"""The pages of `cuptimem ranks -o` and of `cuptimem diff` for two sets of ranks: bars, and what the text says."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cuptimem.distributed.changes import RanksDiff
from cuptimem.distributed.comparison import Ranks
from cuptimem.distributed.summary import RankSummary
from cuptimem.output.pages import page
from cuptimem.output.pages.stacks_data import short
from cuptimem.output.text import rank_diff_views, rank_views
from cuptimem.output.text.blocks import Block, Table, Text
from cuptimem.output.text.words import plural, size

ROWS = 512  # ranks of a page
_OTHERS = "other"
_COLOURS = (*rank_views.SHOWN, _OTHERS)


def html(ranks: Ranks) -> str:
    blocks = rank_views.full(ranks, ROWS)
    shown = ranks.order[:ROWS]
    bars = [(ranks.label(at), [("", ranks.ranks[at])]) for at in shown]
    return _page(blocks, bars, "Ranks", len(ranks.ranks) - len(shown))


def diff(found: RanksDiff, failed: Iterable[tuple[str, str]]) -> str:
    blocks = rank_diff_views.full(found, failed, ROWS)
    shown = rank_diff_views.order(found)[:ROWS]
    bars = [
        (
            str(pair.rank),
            [(name, one) for name, one in (("before", pair.before), ("after", pair.after)) if one is not None],
        )
        for pair in shown
    ]
    return _page(blocks, bars, "Ranks, before and after", len(found.pairs) - len(shown))


def _page(
    blocks: Sequence[Block], bars: Sequence[tuple[str, Sequence[tuple[str, RankSummary]]]], what: str, left: int
) -> str:
    title = next(block.text for block in blocks if isinstance(block, Text))
    most = max((one.own.peak.bytes for _, some in bars for _, one in some if one.own is not None), default=0)
    drawn = [(short(label), [_bar(name, one, most) for name, one in some]) for label, some in bars]
    used = {part["kind"] for _, some in drawn for bar in some for part in bar["parts"]}
    return page.render(
        "ranks.html",
        {},
        ("assets/ranks.css",),
        title=f"{what}: {short(title)}",
        heading=short(title),
        caveats=[f"{plural(left, 'more rank')} without a bar"] if left else [],
        bars=drawn if most else [],
        kinds=[(name, _kind(name)) for name in _COLOURS if _kind(name) in used],
        blocks=[block(one) for one in blocks[1:]],
    )


def _bar(name: str, one: RankSummary, most: int) -> dict[str, Any]:
    peak = one.own.peak if one.own is not None else None
    sums = _parts(peak.categories, peak.bytes) if peak is not None else {}
    return {
        "name": name,
        "size": size(peak.bytes if peak is not None else 0),
        "parts": [
            {"kind": _kind(part), "said": f"{part} {size(bytes)}", "width": f"{100 * bytes / most:.3f}"}
            for part, bytes in sums.items()
            if bytes > 0 and most
        ],
    }


def _parts(categories: Mapping[str, int], bytes: int) -> dict[str, int]:
    sums = {name: sum(categories.get(one, 0) for one in parts) for name, parts in rank_views.SHOWN.items()}
    return {**sums, _OTHERS: bytes - sum(sums.values())}


def _kind(part: str) -> str:
    return f"part{_COLOURS.index(part)}"


def block(of: Block) -> dict[str, Any]:
    """Of the text: its lines as they are, its tables with all columns."""
    if isinstance(of, Table):
        numbers = [column.right for column in of.columns]
        code = [column.name == "code" for column in of.columns]
        return {
            "names": list(zip((column.name.strip() for column in of.columns), numbers, strict=True)),
            "rows": [list(zip(map(short, row), numbers, code, strict=True)) for row in of.rows],
        }
    return {"text": short(of.text.strip().removeprefix("! ")), "style": of.style, "names": None}
