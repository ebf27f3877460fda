"""The dated result of a run: what was the same, what was not, what was left out and why."""

from __future__ import annotations

import platform
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from evidence.fidelity.judge import Verdict

ROOT = Path(__file__).parents[2]
Verdicts = Mapping[str, Mapping[str, Verdict]]  # by case, by Python


def commit() -> str:
    """The commit, marked where the tree is not exactly it."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown"


def summary(verdicts: Verdicts) -> list[str]:
    """A line for each Python."""
    pythons = sorted({version for row in verdicts.values() for version in row})
    found = []
    for version in pythons:
        counts = Counter(row[version].word for row in verdicts.values() if version in row)
        words = ", ".join(f"{counts[word]} {word}" for word in ("same", "different", "known", "broken", "left out"))
        found.append(f"Python {version}: {sum(counts.values())} cases: {words}")
    return found


def document(
    today: str, at: str, cases: Sequence[tuple[str, str]], verdicts: Verdicts, environments: Mapping[str, str]
) -> str:
    """The result as a page."""
    pythons = sorted(environments)
    lines = [
        f"# Fidelity, {today}",
        "",
        f"Written by `make fidelity` at commit {at}. Each case is a way to run a program (`evidence/fidelity`),",
        "and runs bare and under `cuptimem run`. Compared are standard output, standard error without our own lines,",
        "exit code or signal, the files that are left, and whether a trace is there.",
        "",
        *(f"- {line}" for line in summary(verdicts)),
        *(f"- {environments[version]}" for version in pythons),
        f"- {platform.system()} {platform.release().partition('-')[0]}, {' '.join(platform.libc_ver())}",
        "",
    ]
    for title, word in (
        ("Different", "different"),
        ("Known: what can be seen of the recording, and why", "known"),
        ("Broken: bare Python does not do what the case says", "broken"),
        ("Left out", "left out"),
    ):
        rows = [
            (name, version, line)
            for _, name in cases
            for version, verdict in verdicts[name].items()
            if verdict.word == word
            for line in verdict.lines
        ]
        if rows:
            lines += [f"## {title}", ""]
            for name, line in dict.fromkeys((name, line) for name, _, line in rows):
                where = ", ".join(v for n, v, text in rows if (n, text) == (name, line))
                lines.append(f"- {name} ({where}): {_cell(line)}")
            lines.append("")
    lines += ["## Every case", "", f"| kind | case | {' | '.join(pythons)} |", f"|---|---|{'---|' * len(pythons)}"]
    for kind, name in cases:
        words = [verdicts[name][version].word if version in verdicts[name] else "" for version in pythons]
        lines.append(f"| {kind} | {_cell(name)} | {' | '.join(words)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
