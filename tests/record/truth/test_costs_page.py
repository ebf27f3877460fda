"""docs/costs.md has one table, made of one result; what is lost or missed comes first."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [path for path in (str(ROOT),) if path not in sys.path]

from benchmarks import page  # noqa: E402


def result(**more):
    def row(what, share, cpu):
        ratio = dict.fromkeys(("median", "low", "high"), 1 + share / 100)
        return {"benchmark": "gpt", "what": what, "step": {"median": 0.1}, "ratio": ratio, "cpu_ratio": {"median": cpu}}

    def verdict(key, measured, word):
        return {"promise": key, "text": f"promise {key}", "limit": 1, "unit": "%", "measured": measured, "spread": None,
                "verdict": word, "why": "gpt" if key == "realistic" else ""}  # fmt: skip

    machine = {"cpu": "X", "cores": 2, "kernel": "6", "python": "3", "load": 0.1, "load_after": 1.0, "commit": "abc"}
    return {
        "date": "2026-01-02T03:04:05", "machine": machine, "busy": False, "failed": [],
        "rows": [row("bare", 0, 1), row("cuptimem", 0.5, 1.2), row("memray", 3.0, 1.1)],
        "promises": [verdict("size", 5, "kept"), verdict("realistic", 0.5, "kept"), verdict("linear", 9, "MISSED")],
    } | more  # fmt: skip


def test_order():
    """A missed promise; a row where another takes less CPU though more time; what is kept."""
    found = page.lines(result())
    assert [line.what for line in found] == ["promise linear", "a GPT step (bare 100 ms)", "promise size"]
    assert [(line.missed, line.lost) for line in found] == [(True, False), (False, True), (False, False)]
    text = page.measured(result(failed=["pauses: no time was left"]))
    assert "Load 0.10 before, 1.00 after." in text and "not measured: pauses: no time was left" in text
    assert "It was busy" not in text and "It was busy" in page.measured(result(busy=True))


def test_the_page_is_of_its_result():
    text = page.PAGE.read_text(encoding="utf-8")
    made = page.measured(json.loads(page.RESULT.read_text()))
    assert text.count(page.BEGIN) == text.count(page.END) == 1 and made in text
    assert text.count("\n|---") == 1, "one table"


def test_what_is_written_by_hand_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "costs.md")
    monkeypatch.setattr(page, "RESULT", tmp_path / "bench" / "costs.json")
    page.PAGE.write_text(f"before\n{page.BEGIN}old\n{page.END}after\n")
    for _ in range(2):
        page.write(result())
    text = page.PAGE.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text and "a GPT step" in text
    assert json.loads(page.RESULT.read_text()) == result()
