"""The table of a run of `make advice`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from evidence.advice.judge import PEAK_GOAL, SAVING_GOAL, TRY_GOAL, Alarm, Finding, Peak
from evidence.advice.suite import FREE, TRADE

HEAD = """\
# Advice, {date}

`make advice`: {about}.
{programs} programs, {changes} changes by hand; {seen} of the programs were seen by whoever made a rule.

Each program was recorded unchanged and cuptimem asked (`cuptimem advice --try`) by a process that reads no changed
program and no truth. What no rule predicts is proposed where its try saves; of such a row no saving is judged. The
truth is `torch.cuda.max_memory_allocated()` of the program changed by hand, on the same simulated device without
cuptimem (`python -m evidence.advice.truth`). A change saves if that is 2 % of the peak or more.
"""
COLUMNS = (
    "technique",
    "kind",
    "saves in",
    "right line",
    "near",
    "wrong line",
    "missed",
    "false alarms",
    "saving within 20 %",
    "peak within 5 %",
    "tried within 1 %",
)


@dataclass
class Result:
    findings: list[Finding] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    peaks: list[Peak] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # by program


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.0%})" if whole else "")


def _errors(values: Sequence[float], goal: float) -> str:
    if not values:
        return "-"
    sizes = [abs(value) for value in values]
    within = sum(size <= goal for size in sizes)
    return f"{_share(within, len(sizes))}, median {statistics.median(sizes):.1%}, largest {max(sizes):.1%}"


def totals(result: Result) -> dict[str, str]:
    found = result.findings
    outcomes = [finding.outcome for finding in found]
    real = [alarm for alarm in result.alarms if alarm.counted]
    return {
        "techniques that save, proposed at the right line": _share(outcomes.count("right"), len(found)),
        "proposed at a line beside it": str(outcomes.count("near")),
        "proposed at a wrong line": str(outcomes.count("wrong line")),
        "missed": str(outcomes.count("missed")),
        "false alarms, free": str(sum(alarm.free for alarm in real)),
        "false alarms, trades": str(sum(not alarm.free for alarm in real)),
        "... of these, rows that say what to make sure of": str(sum(not alarm.is_sure for alarm in real)),
        "proposed, but counted by nobody": str(sum(not alarm.counted for alarm in result.alarms)),
        f"savings proposed, within {SAVING_GOAL:.0%}": _errors(
            [f.error for f in found if f.error is not None], SAVING_GOAL
        ),
        f"peaks predicted, within {PEAK_GOAL:.0%}": _errors(
            [p.error for p in result.peaks if p.error is not None], PEAK_GOAL
        ),
        f"peaks tried, within {TRY_GOAL:.0%}": _errors(
            [p.try_error for p in result.peaks if p.try_error is not None], TRY_GOAL
        ),
    }


def by_technique(result: Result) -> Iterator[str]:
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|---|---|" + "---:|" * 6 + "---|---|---|"
    for technique in sorted(FREE) + sorted(TRADE):
        found = [finding for finding in result.findings if finding.technique == technique]
        peaks = [peak for peak in result.peaks if peak.technique == technique]
        if not found and not peaks:
            continue
        outcomes = [finding.outcome for finding in found]
        cells = [
            technique,
            "free" if technique in FREE else "trade",
            str(len(found)),
            *(str(outcomes.count(outcome)) for outcome in ("right", "near", "wrong line", "missed")),
            str(sum(alarm.technique == technique and alarm.counted for alarm in result.alarms)),
            _errors([f.error for f in found if f.error is not None], SAVING_GOAL),
            _errors([p.error for p in peaks if p.error is not None], PEAK_GOAL),
            _errors([p.try_error for p in peaks if p.try_error is not None], TRY_GOAL),
        ]
        yield "| " + " | ".join(cells) + " |"


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 1024**2:,.1f}"


def details(result: Result) -> Iterator[str]:
    """What was not right."""
    for finding in result.findings:
        head = f"- {finding.program}, {finding.technique}: "
        if finding.outcome != "right":
            yield head + f"{finding.outcome}; it saves {_mib(finding.saved)} MiB"
        if finding.error is not None and abs(finding.error) > SAVING_GOAL:
            yield head + f"said to save {_mib(finding.proposed)} MiB, saves {_mib(finding.saved)}"
    for alarm in result.alarms:
        what = "a false alarm" if alarm.counted else "counted by nobody"
        lines = ", ".join(map(str, sorted(alarm.lines))) or "no line"
        yield f"- {alarm.program}, {alarm.technique} ({lines}): said to save {_mib(alarm.proposed)} MiB: {what}"
    for peak in result.peaks:
        head = f"- {peak.program}, {peak.key}: "
        if peak.error is not None and abs(peak.error) > PEAK_GOAL:
            yield head + f"{_mib(peak.predicted)} MiB predicted, {_mib(peak.true)} true ({peak.error:+.1%})"
        if peak.try_error is not None and abs(peak.try_error) > TRY_GOAL:
            yield head + f"{_mib(peak.tried)} MiB tried, {_mib(peak.true)} by hand ({peak.try_error:+.1%})"
    for name, why in result.failed.items():
        yield f"- {name}: {why.splitlines()[-1]}"


def all_peaks(result: Result) -> Iterator[str]:
    yield "| program | change | before, MiB | after, MiB | predicted | error | tried |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for peak in result.peaks:
        error = "-" if peak.error is None else f"{peak.error:+.1%}"
        cells = [
            peak.program,
            peak.key,
            _mib(peak.before),
            _mib(peak.true),
            _mib(peak.predicted),
            error,
            _mib(peak.tried),
        ]
        yield "| " + " | ".join(cells) + " |"


def page(result: Result, unseen: Result, head: dict[str, object]) -> str:
    parts = [HEAD.format(**head), "| | all | of programs not seen |\n|---|---|---|"]
    other = totals(unseen)
    parts += ["\n".join(f"| {key} | {value} | {other[key]} |" for key, value in totals(result).items())]
    text = "\n".join(parts) + "\n\n## By technique\n\n" + "\n".join(by_technique(result))
    text += "\n\n## What was not right\n\n" + ("\n".join(details(result)) or "Nothing.")
    return text + "\n\n## Every change\n\n" + "\n".join(all_peaks(result)) + "\n"
