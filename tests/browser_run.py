"""Runs the tests that open pages, in a Chromium that must be there, and writes docs/browser/<date>.md."""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests import browser

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str]) -> int:
    """arguments: for pytest, such as -k timeline. With some, nothing is written."""
    if browser.find() is None:
        print(f"no Chromium was found: {browser.INSTALL}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        report, pages = Path(folder) / "report", Path(folder) / "pages"
        chosen = [argument for argument in arguments if os.path.exists(argument.split("::")[0])] or ["tests"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-m", "browser", f"--report-log={report}", *chosen]
            + [argument for argument in arguments if argument not in chosen],
            cwd=ROOT,
            env={"CUPTIMEM_BROWSER": "required", **os.environ, "CUPTIMEM_BROWSER_PAGES": str(pages)},
        )
        outcomes = results(_lines(report))
        sizes = opened(_lines(pages))
    failed = done.returncode != 0 or not outcomes or any(outcome != "passed" for outcome in outcomes.values())
    if not outcomes:
        print("no test that opens a page was run", file=sys.stderr)
    if arguments or not outcomes:
        return 1 if failed else 0
    target = ROOT / "docs" / "browser" / f"{time.strftime('%Y-%m-%d')}.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(text(outcomes, sizes, version(), time.strftime("%Y-%m-%d")))
    print(f"wrote {target.relative_to(ROOT)}")
    return 1 if failed else 0


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def results(entries: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Each test with its outcome, of what pytest-reportlog wrote; a set-up or an end that fails is a failure."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.get("$report_type") != "TestReport":
            continue
        name, outcome = entry["nodeid"], entry["outcome"]
        if outcome != "passed" or (entry["when"] == "call" and name not in found):
            found[name] = outcome
    return found


def opened(entries: Iterable[dict[str, Any]]) -> dict[str, list[int]]:
    """Bytes of the files that each test opened."""
    found: dict[str, list[int]] = {}
    for entry in entries:
        found.setdefault(entry["test"], []).append(entry["bytes"])
    return found


def version() -> str:
    with browser.launched() as process:
        return str(process.version)


def text(outcomes: dict[str, str], sizes: dict[str, list[int]], chromium: str, date: str) -> str:
    """The result as a page of docs/."""
    counts = {outcome: list(outcomes.values()).count(outcome) for outcome in dict.fromkeys(outcomes.values())}
    lines = [
        f"# Pages in a browser, {date}",
        "",
        f"`make browser-tests`: Chromium {chromium}, headless; Playwright {importlib.metadata.version('playwright')}, "
        f"Python {platform.python_version()}.",
        "",
        f"Result: {', '.join(f'{number} {outcome}' for outcome, number in counts.items())}. The tests check that each "
        "page logs no error and asks for nothing but itself.",
        "",
        "| test | outcome | pages opened |",
        "|---|---|---|",
    ]
    for name, outcome in outcomes.items():
        pages = ", ".join(f"{size / 1024:,.1f} KiB" for size in sizes.get(name, []))
        shown = name.removeprefix("tests/").replace("|", "\\|")
        lines.append(f"| `{shown}` | {outcome} | {pages} |")
    return "\n".join(lines) + "\n"
