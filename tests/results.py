"""Results of long runs: docs/FOLDER/<date>.md, or <date>-NAME.md for several of a day; and parts of pages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
END = "<!-- to here -->"


def write(folder: str, title: str, lines: Iterable[str], *, name: str = "") -> Path:
    """The page, in the place of an earlier one of today."""
    today = time.strftime("%Y-%m-%d")
    target = ROOT / "docs" / folder / f"{today}{f'-{name}' if name else ''}.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join([f"# {title}, {today}", "", *lines]).rstrip() + "\n")
    print(f"wrote {target.relative_to(ROOT)}")
    return target


def replaced(text: str, made: str, begin: str) -> str:
    """The text with what stands between the two marks replaced. ValueError without the marks."""
    before, mark, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"the text lacks {begin!r} or {END!r} behind it")
    return f"{before}{begin}\n\n{made}\n\n{END}{after}"


def table(rows: Mapping[str, object]) -> list[str]:
    """Numbers by what they count."""
    shown = {what: f"{value:,}" if isinstance(value, int) else value for what, value in rows.items()}
    return ["| what | number |", "|---|---:|", *(f"| {what} | {value} |" for what, value in shown.items())]
