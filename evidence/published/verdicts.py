"""Expected verdicts beside simulated ones: evidence/published/verdicts.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.published.runs import Job
from evidence.published.tables import GIB, Program

RESULTS = "verdicts.jsonl"
NOT_EXPLAINED = "not explained"


@dataclass(frozen=True, slots=True)
class Row:
    program: Program
    simulated: str  # the verdict of `cuptimem simulate`; "" where the program was not run
    outcome: str  # right, wrong, undecided, failed, not run
    peak: tuple[int, int | None] | None
    seconds: float
    reason: str


def job(program: Program) -> Job:
    return Job(program.name, program.options, (str(program.file), *program.arguments))


def plain(verdict: str) -> str:
    """What a plain run on that card would do: with settings alone it fits no plain run."""
    return "does not fit" if verdict == "fits with settings" else verdict


def row_of(program: Program, result: Mapping[str, Any] | None) -> Row:
    if result is None:
        return Row(program, "", "not run", None, 0.0, "")
    answer = result["answer"]
    verdict = answer["verdict"]
    if verdict == "undecided":
        outcome = "undecided"
    elif verdict in ("fits", "fits with settings", "does not fit"):
        outcome = "right" if plain(verdict) == program.expected else "wrong"
    else:
        outcome = "failed"
    return Row(program, verdict, outcome, _peak(answer), result["seconds"], answer.get("reason") or "")


def _peak(answer: Mapping[str, Any]) -> tuple[int, int | None] | None:
    """Tensors at the peak, at both ends. Where it did not fit, of the run without a limit."""
    devices = answer.get("devices") or []
    if not devices:
        return None
    fullest = max(devices, key=lambda device: device["allocated"]["low"])["allocated"]
    if answer["verdict"] in ("does not fit", "fits with settings") and answer.get("peak"):
        return answer["peak"], None
    return fullest["low"], fullest["high"]


def told(program: Program, result: Mapping[str, Any]) -> str:
    """A line of progress."""
    row = row_of(program, result)
    return f"{row.outcome:9} {row.program.name}: expected {row.program.expected}, {row.simulated}: {row.reason}"


def _gib(peak: tuple[int, int | None] | None) -> str:
    if peak is None:
        return ""
    low, high = peak[0] / GIB, None if peak[1] is None else peak[1] / GIB
    return f"{low:.2f}" if high is None or f"{high:.2f}" == f"{low:.2f}" else f"{low:.2f} to {high:.2f}"


def counts(rows: Sequence[Row]) -> Counter[str]:
    return Counter(row.outcome for row in rows)


def page(rows: Sequence[Row], explanations: Mapping[str, str], about: Mapping[str, str]) -> str:
    total, near = counts(rows), counts([row for row in rows if row.program.within_10_percent])
    decided = total["right"] + total["wrong"]
    published = [row for row in rows if row.program.basis == "published"]
    outcomes = ("right", "wrong", "undecided", "failed", "not run")
    lines = [
        "# Verdicts on programs of public libraries",
        "",
        f"Written by `make evidence-published` on {about['date']}, simulated at {about['commits']}, "
        f"torch {about['torch']}; "
        f"{about['libraries']}.",
        "The programs (`evidence/published/programs`) follow the documentation of their libraries,",
        "with random weights. The expected verdict was written down before anything was simulated (`programs.toml`,",
        "with its source and its arithmetic).",
        "",
        f"**{len(rows)} runs: {decided} decided, of which {total['right']} as expected and {total['wrong']} not; "
        f"{total['undecided']} undecided, {total['failed']} failed.**",
        "",
        "| | runs | as expected | not as expected | undecided | failed | not run |",
        "|---|---|---|---|---|---|---|",
        _counted("all", total, outcomes),
        _counted("within 10 % of the card's size", near, outcomes),
        _counted("with a published figure behind it", counts(published), outcomes),
        "",
        f"All together took {sum(row.seconds for row in rows) / 60:.0f} minutes of simulating. *Fits with settings* "
        "counts as",
        "*does not fit*: a plain run would end in an OutOfMemoryError. Peaks are GiB of tensors, without the context;",
        "of a program that does not fit, those of the run without a limit.",
        "",
        "## Not as expected, undecided, failed",
        "",
        "| program | card | expected | simulated | what `simulate` says | why |",
        "|---|---|---|---|---|---|",
    ]
    for entry in rows:
        if entry.outcome != "right":
            program = entry.program
            why = explanations.get(program.name, NOT_EXPLAINED)
            cells = (program.name, program.card, program.expected, entry.simulated or "not run", entry.reason, why)
            lines.append(table_line(cells))
    lines += [
        "",
        "## Every run",
        "",
        "| program | what | card | margin | expected | basis | simulated | outcome | peak, expected | simulated | s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in rows:
        program = entry.program
        cells = (
            f"[{program.name}]({program.source})",
            f"{program.kind} ({program.library})",
            f"{program.card}, {program.card_gib:g} GiB",
            f"{program.margin:.2f}",
            program.expected,
            program.basis,
            entry.simulated or "not run",
            entry.outcome,
            f"{program.peak_gib:.2f}",
            _gib(entry.peak),
            f"{entry.seconds:.0f}",
        )
        lines.append(table_line(cells))
    return "\n".join(lines) + "\n"


def _counted(name: str, found: Counter[str], outcomes: Sequence[str]) -> str:
    return table_line((name, str(sum(found.values())), *(str(found[outcome]) for outcome in outcomes)))


def table_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
