"""Timeline pages: their bytes, and the seconds from opening one in a headless Chromium to its first picture.

Beside them PyTorch's memory_viz on the same run: MemoryViz.js, as the tests of exports have it, with the snapshot that
`cuptimem export --to memory-viz` makes, in one page.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Spread, spread
from benchmarks.promises import PROMISES, Verdict
from benchmarks.synthetic import write_synthetic

EVENTS = (10_000, 1_000_000, 10_000_000)
QUICK = (10_000,)
ROUNDS = 5
LIMIT_MS = 120_000
LONGEST_STRING = 2**29 - 24  # of V8
CONSUMERS = Path(__file__).resolve().parents[1] / "tests/tools/exports/consumers"


def opening(browser: Any, path: Path, drawn: str) -> float:
    """Seconds from the address to the first picture, in a fresh context: nothing is cached."""
    context = browser.new_context(viewport={"width": 1600, "height": 1000})
    page = context.new_page()
    begin = time.perf_counter()
    page.goto(path.as_uri(), timeout=LIMIT_MS)
    page.wait_for_selector(drawn, timeout=LIMIT_MS)
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds = time.perf_counter() - begin
    context.close()
    return seconds


def timeline_page(trace: Path) -> Path:
    """Made by the verb, in a process of its own."""
    path = trace.with_suffix(".html")
    command = [sys.executable, "-m", "cuptimem", "timeline", str(trace), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def viewer(more: str = "") -> str:
    """PyTorch's file as a page, with d3's file for its imports, which are from a network. more: code at its end."""
    code = (CONSUMERS / "memory_viz/MemoryViz.js").read_text(encoding="utf-8")
    code, imports = re.subn(r"^import .*skypack.*$", "", code, flags=re.MULTILINE)
    assert imports == 5
    code = re.sub(r"^export function", "function", code, flags=re.MULTILINE)
    d3 = (CONSUMERS / "d3/d3.min.js").read_text(encoding="utf-8")
    return (
        f"<!doctype html><meta charset=utf-8><title>MemoryViz.js</title><body><script>{d3}</script><script>\n"
        f"const {{axisLeft, scaleLinear, zoom, zoomIdentity, brushX}} = d3;\n{code}\n{more}</script>"
    )


def memory_viz_page(trace: Path) -> Path | str:
    """PyTorch's viewer with the run in it; else why there is none."""
    snapshot = trace.with_suffix(".pickle")
    command = [sys.executable, "-m", "cuptimem", "export", str(trace), "--to", "memory-viz", "-o", str(snapshot)]
    subprocess.run(command, check=True, capture_output=True)
    size = snapshot.stat().st_size
    if size > LONGEST_STRING * 3 // 4:
        return f"its snapshot has {size:,} bytes, more than the longest string of a browser holds"
    data = snapshot.read_bytes()
    text = base64.b64encode(data + b"\0" * (3 - size % 3)).decode()
    path = trace.with_name(f"{trace.stem}-memory-viz.html")
    run = f'add_local_files([{{name: "run.pickle", base64: "{text}"}}], "Active Memory Timeline");'
    path.write_text(viewer(run), encoding="utf-8")
    return path


def measured(quick: bool) -> tuple[list[dict[str, Any]], dict[int, tuple[int, Spread]]]:
    """Rows for the table, and of each number of events the page's bytes and seconds."""
    from playwright.sync_api import Error

    from tests.browser import launched

    rows: list[dict[str, Any]] = []
    found: dict[int, tuple[int, Spread]] = {}
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder, launched() as browser:
        for events in QUICK if quick else EVENTS:
            trace = Path(folder) / f"{events}.cmem"
            write_synthetic(str(trace), events)
            pages = [("timeline", timeline_page(trace), ".mark.peak")]
            viewer = memory_viz_page(trace)
            if isinstance(viewer, str):
                rows.append({"benchmark": "pages", "what": f"memory_viz, {events:,} events", "why": viewer})
            else:
                pages.append(("memory_viz", viewer, "svg polygon"))
            for name, path, drawn in pages:
                try:
                    times = spread([opening(browser, path, drawn) for _ in range(1 if quick else ROUNDS)])
                except Error as error:
                    why = str(error).splitlines()[0]
                    rows.append({"benchmark": "pages", "what": f"{name}, {events:,} events", "why": why})
                    continue
                size = path.stat().st_size
                what = f"{name}, {events:,} events, {size:,} bytes"
                rows.append({"benchmark": "pages", "what": what, "unit": "s", "step": times.to_dict(), "bytes": size})
                if name == "timeline":
                    found[events] = size, times
    return rows, found


def verdicts(found: dict[int, tuple[int, Spread]]) -> list[Verdict]:
    """Of the most events: ten million, unless it was a quick run, which judges nothing."""
    if not found:
        return []
    size, times = found[max(found)]
    return [
        Verdict(PROMISES["page-size"], size / 1e6),
        Verdict(PROMISES["page-open"], times.median, (times.low, times.high)),
    ]


def missing() -> str:
    """Why nothing can be measured here; "" where it can."""
    from tests import browser

    if browser.find() is None:
        return f"no Chromium on this machine: {browser.INSTALL}"
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed: make demo"
    return ""
