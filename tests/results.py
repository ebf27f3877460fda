"""Results of long runs: docs/FOLDER/<date>.md, or <date>-NAME.md for several of a day; parts of pages; JSON."""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

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


def json_text(result: Mapping[str, Any]) -> str:
    """JSON with a line for each entry, and for each row of a list of rows: short, and a change is read in a diff."""
    entries = []
    for key, value in result.items():
        if isinstance(value, list) and any(isinstance(row, (dict, list)) for row in value):
            rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
            entries.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            entries.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(entries) + "\n}\n"
