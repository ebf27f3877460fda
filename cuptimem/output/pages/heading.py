"""What stands above every page of a report: its name, what was recorded, what is missing."""

from typing import Any

from cuptimem.output.text import garbage_views, views
from cuptimem.output.text.blocks import Block, Text
from cuptimem.output.text.words import shortened
from cuptimem.report.model import Report

_LONGEST = 1000  # characters of a line: a trace may have any


def head(report: Report, what: str) -> dict[str, Any]:
    """The title, heading, facts and caveats of page.html. what: of what the page is, "memory by stack"."""
    name, *facts = (shortened(one, _LONGEST) for one in views.facts(report))
    return {
        "title": f"{name}: {what}",
        "heading": name,
        "facts": facts,
        "caveats": warnings([*views.heading(report)[1:], *garbage_views.on_pages(report)]),
    }


def warnings(blocks: list[Block]) -> list[str]:
    """Blocks of text as lines of a page."""
    return [line for line in map(_text, blocks) if line]


def _text(block: Block) -> str:
    text = block.text if isinstance(block, Text) else ""
    return shortened(text, _LONGEST).strip().removeprefix("! ")
