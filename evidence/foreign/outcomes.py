"""Outcomes of a pytest run, from its report log, and where two runs differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PROCESS = "(the process)"


def of_log(lines: Iterable[str]) -> dict[str, str]:
    """Test id → outcome. A test that began and never ended took its process with it."""
    phases: dict[str, dict[str, dict[str, object]]] = {}
    found: dict[str, str] = {}
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:  # the last line of a process that was killed
            continue
        if row.get("$report_type") == "CollectReport" and row["outcome"] == "failed":
            found[row["nodeid"] or PROCESS] = "not collected"
        elif row.get("$report_type") == "CollectReport" and row["outcome"] == "skipped":
            found[row["nodeid"]] = "skipped"
        elif row.get("$report_type") == "TestReport":
            phases.setdefault(row["nodeid"], {})[row["when"]] = row
    return found | {name: _outcome(rows) for name, rows in phases.items()}


def _outcome(phases: Mapping[str, Mapping[str, object]]) -> str:
    if any(phases.get(when, {}).get("outcome") == "failed" for when in ("setup", "teardown")):
        return "error"
    decisive = phases.get("call") or phases["setup"]
    if "teardown" not in phases:
        return "not ended"
    expected = "wasxfail" in decisive
    word = str(decisive["outcome"])
    return {"skipped": "xfailed", "passed": "xpassed"}[word] if expected and word != "failed" else word


@dataclass(frozen=True)
class Difference:
    """A test whose outcomes were not the same: those of the first run, then those of its repetitions alone."""

    test: str
    bare: tuple[str, ...]
    recorded: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Where a way is not steady the test is flaky by itself; where both are and agree, it depends on others."""
        again = set(self.bare[1:]), set(self.recorded[1:])
        if not again[0] or not again[1]:
            return "differs"
        if len(again[0]) > 1 or len(again[1]) > 1:
            return "flaky"
        if again[0] != again[1]:
            return "differs"
        return "differs only after other tests"


def differing(bare: Mapping[str, str], recorded: Mapping[str, str]) -> list[str]:
    """Tests with unequal outcomes, those of one run only included."""
    return sorted(name for name in bare.keys() | recorded.keys() if bare.get(name) != recorded.get(name))


def counts(outcomes: Mapping[str, str]) -> str:
    """12 passed, 3 skipped"""
    words: dict[str, int] = {}
    for name, word in outcomes.items():
        if name != PROCESS:
            words[word] = words.get(word, 0) + 1
    return ", ".join(f"{words[word]} {word}" for word in sorted(words)) or "none"


def document(
    title: str,
    about: Sequence[str],
    rows: Sequence[tuple[str, str, int, str, str]],
    found: Sequence[tuple[str, str, Difference]],
) -> str:
    """The dated result. Rows: suite, run, tests compared, outcomes bare, outcomes recorded."""
    total = sum(row[2] for row in rows)
    lines = [f"# {title}", "", *about, ""]
    by_verdict = {word: [row for row in found if row[2].verdict == word] for word in VERDICTS}
    lines += [
        f"{total:,} tests; " + ", ".join(f"{len(by_verdict[word])} {text}" for word, text in VERDICTS.items()) + ".",
        "",
    ]
    lines += ["| suite | run | tests | bare | recorded |", "|---|---|---|---|---|"]
    lines += [
        f"| {suite} | {run} | {number} | {bare} | {'the same' if bare == recorded else recorded} |"
        for suite, run, number, bare, recorded in rows
    ]
    for word, text in VERDICTS.items():
        if by_verdict[word]:
            lines += ["", f"## Tests {text.removeprefix('that ')}", ""]
            lines += [
                f"- {suite}: `{row.test}`: bare {', '.join(row.bare)}; recorded {', '.join(row.recorded)}"
                for suite, _, row in by_verdict[word]
            ]
    return "\n".join(lines) + "\n"


VERDICTS = {
    "differs": "that differ",
    "differs only after other tests": "that differ only after other tests",
    "flaky": "that are flaky, with or without cuptimem",
}
