"""Dated results of long runs: docs/FOLDER/<date>.md, or <date>-NAME.md where a folder has several of a day."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write(folder: str, title: str, lines: Iterable[str], *, name: str = "") -> Path:
    """The page, in the place of an earlier one of today."""
    today = time.strftime("%Y-%m-%d")
    target = ROOT / "docs" / folder / f"{today}{f'-{name}' if name else ''}.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join([f"# {title}, {today}", "", *lines]).rstrip() + "\n")
    print(f"wrote {target.relative_to(ROOT)}")
    return target


def table(rows: Mapping[str, object]) -> list[str]:
    """Numbers by what they count."""
    shown = {what: f"{value:,}" if isinstance(value, int) else value for what, value in rows.items()}
    return ["| what | number |", "|---|---:|", *(f"| {what} | {value} |" for what, value in shown.items())]
