"""Views as HTML for places that strip styles and scripts: plain tables, and attributes that GitHub keeps.

The text comes from a trace, which may have anything in it: printable characters only, cut, and escaped.
"""

import html
from collections.abc import Sequence

from cuptimem.output.text.blocks import Block, Column, Table, Text
from cuptimem.output.text.cells import cut
from cuptimem.printable import printable

_CELL, _LINE = 100, 500  # characters; names have more in no program that people write


def escaped(text: str, most: int = _LINE, keep_end: bool = False) -> str:
    """Text as HTML, on one line."""
    text = text[-2 * most :] if keep_end else text[: 2 * most]  # escapes make it longer, never shorter
    return html.escape(cut(printable(text), most, keep_end))


def render(blocks: Sequence[Block]) -> str:
    """The blocks as HTML; empty lines part paragraphs."""
    parts: list[str] = []
    lines: list[str] = []

    def end_paragraph() -> None:
        if lines:
            parts.append(f"<p>{'<br>'.join(lines)}</p>")
            lines.clear()

    for block in blocks:
        if isinstance(block, Table):
            end_paragraph()
            parts.append(table(block))
        elif block.text.strip():
            lines.append(_line(block))
        else:
            end_paragraph()
    end_paragraph()
    return "\n".join(parts)


def _line(line: Text) -> str:
    bare = line.text.lstrip(" ")
    indent = "&nbsp;" * (len(line.text) - len(bare))
    text = escaped(bare)
    if line.style in ("title", "strong", "warning"):
        return f"{indent}<b>{text}</b>"
    return indent + text


def table(one: Table) -> str:
    """Numbers stand right, files and code in a font of fixed width."""
    head = "".join(f"<th {_align(column)}>{escaped(column.name)}</th>" for column in one.columns)
    rows = [f"<tr>{head}</tr>"]
    for number, cells in enumerate(one.rows):
        row = "".join(_cell(cell, column) for cell, column in zip(cells, one.columns, strict=True))
        rows.append(f"<tr>{row}</tr>")
        if under := one.under[number : number + 1]:
            rows += _under(one.columns, under[0])
    return f"<table>\n<thead>{rows[0]}</thead>\n<tbody>\n{chr(10).join(rows[1:])}\n</tbody>\n</table>"


def _under(columns: Sequence[Column], lines: Sequence[str]) -> list[str]:
    """A row for all of them."""
    if not lines:
        return []
    first = next((i for i, column in enumerate(columns) if column.flexible), 0)
    text = "<br>".join(escaped(line.strip()) for line in lines)
    before = f'<td colspan="{first}"></td>' if first else ""
    left = 'align="left" style="text-align: left"'
    return [f'<tr>{before}<td colspan="{len(columns) - first}" {left}>{text}</td></tr>']


def _align(column: Column) -> str:
    """Twice: GitHub takes the style away, JupyterLab's own style sheet overrides the attribute."""
    side = "right" if column.right else "left"
    return f'align="{side}" style="text-align: {side}"'


def _cell(text: str, column: Column) -> str:
    shown = escaped(text, _CELL, column.keep_end)
    if column.flexible and shown and not text.startswith("("):
        shown = f"<code>{shown}</code>"
    if column.style == "strong" and shown:
        shown = f"<b>{shown}</b>"
    nowrap = " nowrap" if column.right else ""
    return f"<td {_align(column)}{nowrap}>{shown}</td>"


def folded(summary: str, body: str, is_open: bool = False) -> str:
    """A part that opens with a click, without script."""
    return f"<details{' open' if is_open else ''}><summary>{escaped(summary)}</summary>\n{body}\n</details>"
