"""`python -m tests.browser`: which tests it runs, what it says where there is no browser, what it writes."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import browser, browser_run

ROOT = Path(__file__).resolve().parents[3]


def without_browser(folder: Path) -> dict[str, str]:
    """An environment whose PATH has no browser."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPTIMEM_BROWSER")}
    return {**environment, "PATH": str(folder)}


def test_a_skip_names_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "opens_without_a_fault"],
        cwd=ROOT,
        env=without_browser(tmp_path),
        capture_output=True,
        text=True,
    )
    assert "1 skipped" in done.stdout and "apt-get install chromium" in done.stdout, done.stdout
    assert "make browser-tests" in done.stdout


def test_it_fails_without_a_browser(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.browser"], cwd=ROOT, env=without_browser(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 1 and browser.INSTALL in done.stderr


def test_a_blank_page_opens_without_a_fault(browser_page: Any, request: pytest.FixtureRequest) -> None:
    browser_page.goto("data:text/html,<title>it</title>")
    assert browser_page.title() == "it"
    assert request.node.get_closest_marker("browser") is not None


def entry(name: str, when: str, outcome: str) -> dict[str, str]:
    return {"$report_type": "TestReport", "nodeid": name, "when": when, "outcome": outcome}


def test_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that logged an error fails at the end of its test, which is no success."""
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "1.0")  # Playwright may be missing
    entries = [
        {"$report_type": "SessionStart"},
        *(entry("good", when, "passed") for when in ("setup", "call", "teardown")),
        entry("late", "setup", "passed"),
        entry("late", "call", "passed"),
        entry("late", "teardown", "failed"),
        entry("bad", "setup", "passed"),
        entry("bad", "call", "failed"),
        entry("bad", "teardown", "passed"),
        entry("none", "setup", "skipped"),
    ]
    outcomes = browser_run.results(entries)
    assert outcomes == {"good": "passed", "late": "failed", "bad": "failed", "none": "skipped"}
    sizes = browser_run.opened([{"test": "good", "page": "a.html", "bytes": 2048}, {"test": "good", "bytes": 512}])
    text = browser_run.text(outcomes, sizes, "150.0", "2026-01-02")
    assert "Chromium 150.0" in text and "1 passed, 2 failed, 1 skipped" in text
    assert "| `good` | passed | 2.0 KiB, 0.5 KiB |" in text and "| `bad` | failed |  |" in text
