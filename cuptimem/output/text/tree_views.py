"""Blocks by their whole stacks, as a tree of text: every row is as many bytes as the rows below it."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from cuptimem.output.text.blocks import TAIL, Block, Column, Table, Text
from cuptimem.output.text.peak_views import rest_name, when
from cuptimem.output.text.words import code, count, function, more, plural, share, size
from cuptimem.report.model import Contents, Contributor
from cuptimem.report.stacks import Frame, near_file

_BRANCH, _LAST, _PASS, _BLANK = "├ ", "└ ", "│ ", "  "


@dataclass(slots=True)
class Node:
    """All blocks with one line on their stacks, called by the lines above it."""

    name: str  # of what is no line
    frame: Frame | None
    bytes: int = 0
    count: int = 0
    own_bytes: int = 0  # of blocks with stacks that end here
    own_count: int = 0
    below: "dict[object, Node]" = field(default_factory=dict)


def build(contributors: Iterable[Contributor], inverted: bool = False) -> Node:
    """The root: from the outermost calls inwards; inverted, from the lines that allocate outwards."""
    root = Node("", None)
    for contributor in contributors:
        node = root
        node.bytes += contributor.bytes
        node.count += contributor.count
        frames = contributor.stack if inverted else tuple(reversed(contributor.stack))
        for frame in frames:
            node = _step(node, (frame.file, frame.line, frame.function), "", frame, contributor)
        if not frames:
            node = _step(node, contributor.where, contributor.where, None, contributor)
        node.own_bytes += contributor.bytes
        node.own_count += contributor.count
    return root


def _step(node: Node, key: object, name: str, frame: Frame | None, contributor: Contributor) -> Node:
    below = node.below.setdefault(key, Node(name, frame))
    below.bytes += contributor.bytes
    below.count += contributor.count
    return below


def full(contents: Contents, least: float, inverted: bool) -> list[Block]:
    """least: the share of the whole below which lines are only summed."""
    title = f"{contents.device}: {size(contents.bytes)} in {plural(contents.count, 'block')}, {when(contents)}"
    if inverted:
        title += ", from the lines that allocate outwards"
    blocks: list[Block] = [Text(), Text(title, "title")]
    rows = _rows(build(contents.contributors, inverted), least * contents.bytes, inverted)
    if contents.rest_bytes or contents.rest_count:
        rows.append((contents.rest_bytes, contents.rest_count, rest_name(contents)))
    columns = (
        Column("live" if contents.what in ("peak", "start", "end") else "bytes", right=True, style="strong"),
        Column("share", right=True),
        Column("blocks", right=True, optional=1),
        Column("stack", flexible=True, tail=True),
    )
    cells = tuple((size(row[0]), share(row[0], contents.bytes), count(row[1]), row[2]) for row in rows)
    return [*blocks, Table(columns, cells)] if cells else blocks


def _rows(root: Node, least: float, inverted: bool) -> list[tuple[int, int, str]]:
    """Bytes, blocks and text of each row, in their order. Deep stacks need no recursion."""
    rows: list[tuple[int, int, str]] = []
    pending: list[tuple[str, str, Node | tuple[int, int, str]]] = []

    def put_below(node: Node, lead: str, beside: list[Node]) -> None:
        """What comes below a node; with what stands beside its chain it sums to where that began."""
        large, small = _split(node, least)
        entries: list[Node | tuple[int, int, str]] = list(large)
        if small:
            alone = len(small) == 1 and not small[0].below
            entries.append(_sum(small, _label(small[0]) if alone else f"({plural(len(small), 'smaller one')})"))
        if node.own_count and (large or small):
            entries.append((node.own_bytes, node.own_count, "(by the line above itself)"))
        if beside:
            entries.append(_sum(beside, f"({plural(len(beside), 'smaller one')} beside these calls)"))
        for one in reversed(entries):
            last = one is entries[-1]
            pending.append((lead + (_LAST if last else _BRANCH), lead + (_BLANK if last else _PASS), one))

    put_below(root, "", [])
    while pending:
        lead, next_, one = pending.pop()
        if not isinstance(one, Node):
            rows.append((one[0], one[1], lead + one[2]))
            continue
        chain, beside = _chain(one, least)
        for node, others in _chain_rows(chain, inverted):
            text = code(node.frame)
            rows.append((node.bytes, node.count, f"{lead}{_label(node)}{more(others)}{TAIL if text else ''}{text}"))
            lead = next_
        put_below(chain[-1], next_, beside)
    return rows


def _sum(nodes: list[Node], name: str) -> tuple[int, int, str]:
    return sum(one.bytes for one in nodes), sum(one.count for one in nodes), name


def _split(node: Node, least: float) -> tuple[list[Node], list[Node]]:
    """The nodes below that are large enough for a row, and the others."""
    ordered = sorted(node.below.values(), key=lambda one: (-one.bytes, _label(one)))
    large = [one for one in ordered if one.bytes >= least]
    return large, ordered[len(large) :]


def _chain(node: Node, least: float) -> tuple[list[Node], list[Node]]:
    """A node and what it leads to while that is one line alone, which needs no step to the right; and the lines that
    are too small for a row beside them."""
    chain, beside = [node], []
    while not chain[-1].own_count:
        large, small = _split(chain[-1], least)
        if len(large) != 1:
            break
        beside += small
        chain += large
    return chain, beside


def _chain_rows(chain: list[Node], inverted: bool) -> list[tuple[Node, int]]:
    """The nodes of a chain that get a row: each line of the user's; of each run of library lines with the same bytes
    the innermost that says something, with the number of the others."""
    found: list[tuple[Node, int]] = []
    run: list[Node] = []

    def end_run() -> None:
        if run:
            inwards = run if inverted else run[::-1]
            best = next((one for one in inwards if one.frame and not one.frame.is_plumbing), inwards[0])
            found.append((best, len(run) - 1))
            run.clear()

    for node in chain:
        if run and run[-1].bytes != node.bytes:
            end_run()
        if node.frame is not None and node.frame.is_library:
            run.append(node)
        else:
            end_run()
            found.append((node, 0))
    end_run()
    return found


def _label(node: Node) -> str:
    if node.frame is None:
        return node.name
    if node.frame.truncated:
        return "(outer calls that were not kept)"
    file = near_file(node.frame.file) or os.path.basename(node.frame.file)
    return f"{file}:{node.frame.line} {function(node.frame)}"
