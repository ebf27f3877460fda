"""The pages of `cuptimem tree -o` and `cuptimem table -o`: the same rows as a tree of calls, and as a table."""

from collections.abc import Sequence
from typing import Any

from cuptimem.output.pages import page, stacks_data
from cuptimem.output.pages.heading import head, warnings
from cuptimem.output.text import peak_views, text, tree_views, views
from cuptimem.output.text.part_views import under
from cuptimem.output.text.words import code, count, plural, share, size
from cuptimem.report import grouping
from cuptimem.report.model import Contents, Report

ROWS = 20_000  # of a table
PLAIN = 500  # rows that need no script
_WIDTH = 160
_LEAST = 0.005  # of the tree that needs no script: lines with a smaller share are summed


def tree(report: Report, chosen: Sequence[Contents], inverted: bool) -> str:
    data = {"inverted": inverted, **stacks_data.of_contents(chosen)}
    plain = [text.render(tree_views.full(one, _LEAST, inverted)[1:], _WIDTH) for one in chosen]
    return page.render(
        "tree.html",
        data,
        ("assets/stacks.css", "assets/stacks.js", "assets/tree.js"),
        **head(report, "tree of calls"),
        notes=[*_notes(report, chosen), *stacks_data.merged_note(data)],
        plain=plain,
        empty=not chosen,
    )


def table(report: Report, chosen: Sequence[Contents], by: str, order: str, depth: int | None = None) -> str:
    """by, order, depth: as of grouping; what the page shows first, and all that it shows without scripts."""
    parts = [_parts(one) for one in chosen]
    data = {"by": by, "order": order, "depth": depth, "parts": parts, **stacks_data.of_contents(chosen, ROWS)}
    return page.render(
        "table.html",
        data,
        ("assets/stacks.css", "assets/stacks.js", "assets/table.js"),
        **head(report, f"memory by {by}"),
        notes=[*_notes(report, chosen), *stacks_data.merged_note(data, ROWS)],
        tables=[_plain(one, by, order, depth) for one in chosen],
        by=by,
        empty=not chosen,
    )


def _notes(report: Report, chosen: Sequence[Contents]) -> list[str]:
    notes = [f"Only step {report.step}."] if report.step is not None else []
    return notes + (warnings(views._without_steps(report, chosen[0])) if chosen else [])


def _parts(contents: Contents) -> dict[str, list[str]]:
    """What stands under a line, by what the page's script calls it."""
    said = {
        stacks_data.short(line.frame.place): [stacks_data.short(part) for part in under(line, contents)]
        for line in contents.lines
        if line.frame is not None
    }
    return {place: parts for place, parts in said.items() if parts}


def _plain(contents: Contents, by: str, order: str, depth: int | None) -> dict[str, Any]:
    rows = grouping.group(contents.contributors, by, order, depth)
    shown = [
        (
            size(row.bytes),
            share(row.bytes, contents.bytes),
            count(row.count),
            size(row.bytes // max(1, row.count)),
            stacks_data.short(row.key),
            code(row.frame) if by in ("line", "library-line") else "",
            [stacks_data.short(line) for line in under(row, contents)] if by == "line" else [],
        )
        for row in rows[:PLAIN]
    ]
    for bytes_, count_, name in peak_views.left_out(rows[PLAIN:], contents, "row"):
        shown.append((size(bytes_), share(bytes_, contents.bytes), count(count_), "", name, "", []))
    return {
        "title": f"{contents.device}: {size(contents.bytes)} in {plural(contents.count, 'block')}, "
        f"{stacks_data.moment_of(contents)}",
        "rows": shown,
    }
