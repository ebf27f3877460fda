"""Totals over all runs, as lines for people, JSON, and the table in evidence/leaks/results/README.md."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evidence.leaks.judge import RATE_GOAL, Judgement, Said
from evidence.leaks.suite import Program
from evidence.leaks.truth import Truth

GROWTH = {"GROWS": "undecidable", "NEGLIGIBLE": "negligible"}  # what else than a leak growth is


@dataclass(frozen=True, slots=True)
class Row:
    """A program: what the oracle says, and what cuptimem said of the short and the long run."""

    program: Program
    truth: Truth | None  # None: undecided
    problem: str  # of the program itself: undecided, or the label contradicts the oracle; "" if none
    runs: tuple[tuple[Said, Judgement], ...]

    @property
    def oracle(self) -> str:
        return truth_words(self.truth, self.program.label)

    @property
    def passed(self) -> bool:
        return not self.problem and bool(self.runs) and all(judgement.passed for _, judgement in self.runs)


@dataclass(frozen=True, slots=True)
class Totals:
    """Over runs: two of each program that is right about itself."""

    programs: int
    broken: int  # programs that contradict the oracle, or of which it cannot tell
    leaking: int  # runs
    growing: int  # of programs whose growth is undecidable
    negligible: int
    clean: int
    found: int
    said_growing: int  # of growing, called so
    said_negligible: int
    false_alarms: int
    failed: int
    lines_right: int
    rates: int
    rates_within: int  # RATE_GOAL
    rate_median: float
    rate_max: float
    suspects: int
    suspects_of_clean: int
    strays: int
    entries: int  # of the leaks found
    single: int  # leaks found that are one entry

    @property
    def precision(self) -> float:
        """Of the runs that were accused, how many leak."""
        accused = self.found + self.false_alarms
        return self.found / accused if accused else 1.0

    @property
    def recall(self) -> float:
        return self.found / self.leaking if self.leaking else 1.0

    @property
    def line_accuracy(self) -> float:
        return self.lines_right / self.found if self.found else 1.0


def totals(rows: Sequence[Row]) -> Totals:
    judged = [(row, said, judgement) for row in rows if not row.problem for said, judgement in row.runs]
    errors = [j.rate_error for _, _, j in judged if j.outcome == "found" and j.rate_error is not None]
    count = [j.outcome for _, _, j in judged].count
    labels = [row.program.label for row, _, _ in judged].count
    return Totals(
        programs=len(rows),
        broken=sum(bool(row.problem) for row in rows),
        leaking=labels("LEAK"),
        growing=labels("GROWS"),
        negligible=labels("NEGLIGIBLE"),
        clean=labels(""),
        found=count("found"),
        said_growing=sum(j.right for row, _, j in judged if row.program.label == "GROWS"),
        said_negligible=sum(j.right for row, _, j in judged if row.program.label == "NEGLIGIBLE"),
        false_alarms=count("false alarm"),
        failed=count("failed"),
        lines_right=sum(bool(j.line_right) for _, _, j in judged if j.outcome == "found"),
        rates=len(errors),
        rates_within=sum(error <= RATE_GOAL for error in errors),
        rate_median=statistics.median(errors) if errors else 0.0,
        rate_max=max(errors, default=0.0),
        suspects=sum(len(said.suspects) for _, said, _ in judged),
        suspects_of_clean=sum(len(said.suspects) for row, said, _ in judged if not row.program.label),
        strays=sum(len(j.strays) for _, _, j in judged),
        entries=sum(j.entries for _, _, j in judged),
        single=sum(j.entries == 1 for _, _, j in judged),
    )


def truth_words(truth: Truth | None, label: str = "") -> str:
    if truth is None:
        return "undecided"
    if not truth.leaks:
        return "clean"
    parts = []
    if truth.bytes:
        parts.append(f"{truth.bytes:,.1f} B")
    if truth.nodes:
        parts.append(f"{truth.nodes:.2f} nodes")
    return ", ".join([GROWTH.get(label, "leak"), *parts])


def run_words(said: Said, judgement: Judgement) -> str:
    words = judgement.outcome
    if judgement.outcome == "found":
        error = judgement.rate_error
        words += ", line right" if judgement.line_right else ", WRONG LINE"
        words += f", rate {error:.1%} off" if error is not None else ", no rate"
        words += f", {judgement.entries} entries" if judgement.entries > 1 else ""
    elif not judgement.right and judgement.outcome in ("cannot tell", "negligible"):
        words = f"WRONGLY {words}"
    if said.suspects:
        words += f", {len(said.suspects)} suspect{'s' if len(said.suspects) > 1 else ''}"
    return words


def line(row: Row) -> str:
    head = f"  {row.program.name:<5} {row.oracle:<32}"
    if row.problem:
        return f"{head} BROKEN: {row.problem}"
    mark = "  " if row.passed else "!!"
    rows = [head + mark + " | ".join(f"{run_words(*run):<44}" for run in row.runs)]
    for said, judgement in row.runs:
        if judgement.note:
            rows.append(f"          {said.steps} steps: {judgement.note}")
        rows += [f"          {said.steps} steps, stray: {stray}" for stray in judgement.strays]
    return "\n".join(rows)


def summary(t: Totals) -> list[str]:
    lines = [
        f"{t.programs} programs, {t.leaking + t.growing + t.negligible + t.clean} runs: {t.leaking} of leaking, "
        f"{t.clean} of clean programs, {t.growing} undecidable, {t.negligible} negligible",
        f"recall        {t.recall:8.1%}   {t.found} of {t.leaking} found",
        f"precision     {t.precision:8.1%}   {t.false_alarms} false alarms",
        f"first line    {t.line_accuracy:8.1%}   {t.lines_right} of {t.found} right",
        f"rate error    {t.rate_median:8.1%}   median, {t.rate_max:.1%} at most; {t.rates_within} of {t.rates} in 10 %",
        f"suspects      {t.suspects:8}   {t.suspects_of_clean} of them in runs of clean programs",
        f"strays        {t.strays:8}   further entries of leaking programs that name another line",
        f"entries       {t.entries / max(t.found, 1):8.2f}   a leak found; {t.single} of {t.found} are one entry",
        f"cannot tell   {t.said_growing:8}   of {t.growing} runs where that is right",
        f"negligible    {t.said_negligible:8}   of {t.negligible} runs where that is right",
    ]
    if t.failed:
        lines.append(f"failed        {t.failed:8}   runs")
    if t.broken:
        lines.append(f"broken        {t.broken:8}   programs that contradict the oracle, or that it cannot decide")
    return lines


def as_json(rows: Sequence[Row], about: dict[str, Any], public: Sequence[dict[str, Any]] | None) -> dict[str, Any]:
    t = totals(rows)
    return {
        "schema": 2,
        "about": about,
        "totals": {
            **dataclasses.asdict(t),
            "precision": t.precision,
            "recall": t.recall,
            "line_accuracy": t.line_accuracy,
        },
        "programs": [
            {
                "name": row.program.name,
                "about": row.program.about,
                "label": row.program.label,
                "problem": row.problem,
                "passed": row.passed,
                "truth": dataclasses.asdict(row.truth) if row.truth else None,
                "runs": [
                    {
                        **dataclasses.asdict(said),
                        **dataclasses.asdict(judgement),
                        "rate_error": judgement.rate_error,
                        "passed": judgement.passed,
                    }
                    for said, judgement in row.runs
                ],
            }
            for row in rows
        ],
        "public": public,
    }


def as_markdown(rows: Sequence[Row], about: dict[str, Any], source: str) -> str:
    text = [
        "# Evidence: leak verdicts against an independent oracle",
        "",
        "Written by `make evidence`; the numbers behind it are in "
        f"[{source}]({source}). The programs are in `evidence/leaks/programs`, their oracle's rule is in",
        "`evidence/leaks/truth.py`. Each program runs twice under `cuptimem run`, with N (24 to 48) and with 3N steps.",
        "The oracle never sees cuptimem: it counts the allocator's own calls and the C library's bytes.",
        "",
        f"{about['date']}, commit {about['commit']}, Python {about['python']}, torch {about['torch']}.",
        "",
        "```",
        *summary(totals(rows)),
        "```",
        "",
        "Rates are per step. Right of the oracle's: what cuptimem said, and how far its rate is off.",
        "",
        "| program | what it is | N | oracle | N steps | 3N steps |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [run_words(*run) for run in row.runs] or [row.problem.splitlines()[0], ""]
        text.append(
            f"| {row.program.name} | {row.program.about} | {row.program.steps} | {row.oracle} | "
            + " | ".join(cells)
            + " |"
        )
    return "\n".join(text) + "\n"
