"""Published figures of real GPUs beside simulated ones: evidence/published/accuracy.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.published.runs import Job
from evidence.published.tables import UNITS, Figure, Setup
from evidence.published.verdicts import NOT_EXPLAINED, plain, table_line

RESULTS = "accuracy.jsonl"
BOUNDS = (1, 2, 5, 10)  # per cent
EXPLAINED_FROM = 2.0  # an error beyond it is explained, or the page says that it is not


@dataclass(frozen=True, slots=True)
class Row:
    figure: Figure
    setup: Setup
    low: float | None  # in bytes or in what is counted; None where nothing was measured
    high: float | None
    verdict: str
    then: float | None  # with what PyTorch did then
    seconds: float
    problem: str

    @property
    def error(self) -> float | None:
        """In per cent of the published figure, of the end that is farther from it."""
        ends = [end for end in (self.low, self.high) if end is not None]
        return max((self.off(end) for end in ends), key=abs) if ends and self.figure.number else None

    def off(self, value: float) -> float:
        assert self.figure.number
        return (value - self.figure.number) / self.figure.number * 100


def jobs(setup: Setup) -> list[Job]:
    # What these programs read of the device is printed, or compared with infinity: it decides nothing. A figure that is
    # a verdict needs the run without a limit, for a program that fails anyway is no "does not fit".
    once = ("--no-retry",) if setup.ends == 1 and setup.what != "verdict" else ()
    now = Job(setup.figure, ("--trust-reads", *setup.options, *once), (str(setup.script), *setup.arguments))
    if not setup.then:
        return [now]
    options = tuple(option for option in now.options if option != "--no-retry")
    return [now, Job(_then(setup.figure), (*options, "--no-retry"), (*now.program, "then"))]


def _then(figure: str) -> str:
    return f"{figure} then"


def row_of(figure: Figure, setup: Setup, results: Mapping[str, Mapping[str, Any]]) -> Row:
    result = results.get(figure.name)
    if result is None:
        return Row(figure, setup, None, None, "", None, 0.0, "not run")
    answer = result["answer"]
    low, high = _ends(setup, result)
    problem = ""
    if low is None and setup.what != "verdict":
        problem = answer.get("reason") or answer["verdict"]
    before = results.get(_then(figure.name))
    then = _ends(setup, before)[0] if before and setup.then else None
    seconds = result["seconds"] + (before["seconds"] if before else 0.0)
    return Row(figure, setup, low, high, plain(answer["verdict"]), then, seconds, problem)


def _ends(setup: Setup, result: Mapping[str, Any]) -> tuple[float | None, float | None]:
    answer, measured = result["answer"], result["measured"]
    if setup.what == "verdict":
        return None, None
    if setup.what == "used":
        used = [device["used"] for device in answer.get("devices") or []]
        ended = (answer.get("program") or {}).get("exit_code") == 0
        return (used[0]["low"], used[0]["high"]) if used and ended else (None, None)
    if not measured:
        return None, None
    # The first line is of the first run, at the low end. The second one is of the high end if that ran next.
    attempts = answer.get("attempts") or [{}]
    ran_next = attempts[0].get("with") == "high end" and attempts[0]["outcome"].startswith("ran")
    return measured[0], measured[1] if len(measured) > 1 and ran_next else None


def told(figure: Figure, result: Mapping[str, Any]) -> str:
    """A line of progress, without the set-up's rules: what was measured beside what was published."""
    scale = UNITS.get(figure.unit.split()[0], 1)
    values = ", ".join(f"{value / scale:.6g}" for value in result["measured"])
    used = [device["used"]["low"] / scale for device in result["answer"].get("devices") or []]
    seen = f"{values or 'nothing'} measured, {used[0]:.6g} used" if used else values or "nothing"
    return f"{figure.name}: {figure.value} {figure.unit}, {seen} ({result['answer']['verdict']})"


def summary(rows: Sequence[Row]) -> list[str]:
    """Counts, one fact each."""
    errors = [abs(row.error) for row in rows if row.error is not None and not row.setup.fitted]
    blind = [row for row in rows if row.error is not None and not row.setup.fitted and not row.setup.revised]
    same = [row for row in rows if row.setup.what == "verdict"]
    facts = [f"{len(rows)} figures of {len({row.figure.source for row in rows})} sources"]
    facts += [f"{sum(error <= bound for error in errors)} of {len(errors)} within {bound} %" for bound in BOUNDS]
    facts.append(f"{sum(error > BOUNDS[-1] for error in errors)} beyond")
    facts.append(f"{sum(row.verdict == 'does not fit' for row in same)} of {len(same)} verdicts the same")
    facts.append(f"{sum(bool(row.problem) for row in rows)} without a result")
    facts.append(
        f"of the {len(blind)} whose set-up was not touched after a first result: "
        + ", ".join(f"{sum(abs(row.error or 0) <= bound for row in blind)} within {bound} %" for bound in BOUNDS)
    )
    fitted = sum(row.setup.fitted for row in rows)
    facts.append(f"{fitted} chosen to agree, and not counted among the errors")
    return facts


def _amount(value: float, unit: str) -> str:
    word = unit.split()[0]
    if word == "B":
        return f"{value / 1e9:.3f} GB"
    if word not in UNITS:
        return f"{value:g}"
    amount = value / UNITS[word]
    return f"{amount:.2f} {word}" if amount < 1000 else f"{amount:,.0f} {word}"


def _simulated(row: Row) -> str:
    if row.setup.what == "verdict":
        return row.verdict or "not run"
    if row.low is None:
        return "nothing"
    low, high = (_amount(end, row.figure.unit) if end is not None else "" for end in (row.low, row.high))
    return low if not high or high == low else f"{low.rpartition(' ')[0]} to {high}"


def _published(figure: Figure) -> str:
    return "out of memory" if figure.number is None else _amount(figure.number, figure.unit)


def _judged(row: Row) -> str:
    if row.setup.what == "verdict":
        return "same" if row.verdict == "does not fit" else "**other**"
    if row.error is None:
        return "**no result**"
    text = f"{row.error:+.1f} %" if abs(row.error) >= 0.05 else "0.0 %"
    if row.high is not None and row.figure.number and row.low is not None and row.low < row.figure.number < row.high:
        text += " (published is between)"
    return f"**{text}**" if abs(row.error) > EXPLAINED_FROM else text


def _why(row: Row, explanations: Mapping[str, str]) -> str:
    """What differs, and of a large error the explanation."""
    then = ""
    if row.then is not None:
        then = f"as PyTorch did then: {_amount(row.then, row.figure.unit)} ({row.off(row.then):+.1f} %)"
    revised = f"set-up corrected after a first result: {row.setup.revised}" if row.setup.revised else ""
    parts = [
        "chosen to agree" if row.setup.fitted else "",
        row.setup.differs,
        revised,
        then,
        explanations.get(row.figure.name, ""),
        row.problem,
    ]
    good = row.verdict == "does not fit" if row.setup.what == "verdict" else abs(row.error or 0) <= EXPLAINED_FROM
    if (not good or row.problem) and not explanations.get(row.figure.name):
        parts.append(f"**{NOT_EXPLAINED}**")
    return "; ".join(part for part in parts if part)


def page(
    rows: Sequence[Row],
    figures: Sequence[Figure],
    left_out: Mapping[str, str],
    explanations: Mapping[str, str],
    about: Mapping[str, str],
) -> str:
    lines = [
        "# Accuracy: published figures of real GPUs beside simulated ones",
        "",
        f"Written by `make evidence-published` on {about['date']}, simulated at {about['commits']}, "
        f"torch {about['torch']}; "
        f"{about['libraries']}.",
        "",
        f"{len(figures)} figures were collected before any was simulated "
        "(`evidence/published/figures.toml`: quotation, card, versions, set-up).",
        f"{len(rows)} of them can be simulated here, the other {len(left_out)} cannot: "
        "[each with its reason](#not-simulated). None was dropped for its result.",
        "",
    ]
    lines += [f"- {fact}" for fact in summary(rows)]
    lines += [
        "",
        "An error is (simulated - published) / published; of an interval, that of the end farther from what was",
        f"published. Errors beyond {EXPLAINED_FROM:g} % are in bold: they have an explanation, or the page says that",
        "there is none. The quantity is the source's own: what its script printed.",
        "",
        "| source | figures | within 1 % | within 5 % | beyond 10 % | largest error |",
        "|---|---|---|---|---|---|",
    ]
    by_source: dict[str, list[Row]] = {}
    for row in rows:
        by_source.setdefault(row.figure.source, []).append(row)
    for source, own in by_source.items():
        errors = [row.error for row in own if row.error is not None and not row.setup.fitted]
        sizes = [abs(error) for error in errors]
        cells = (
            source,
            str(len(own)),
            str(sum(size <= 1 for size in sizes)),
            str(sum(size <= 5 for size in sizes)),
            str(sum(size > 10 for size in sizes)),
            f"{max(errors, key=abs):+.1f} %" if errors else "verdicts only",
        )
        lines.append(table_line(cells))
    for source, own in by_source.items():
        lines += [
            "",
            f"## {source}",
            "",
            "| figure | quantity | card, torch then | published | simulated | error | what differs |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in own:
            figure = row.figure
            cells = (
                f"[{figure.name}]({figure.url})" if figure.url.startswith("http") else figure.name,
                figure.quantity,
                f"{figure.card}; {figure.torch}",
                _published(figure),
                _simulated(row),
                _judged(row),
                _why(row, explanations),
            )
            lines.append(table_line(cells))
    lines += ["", "## Not simulated", "", "| figure | source | published | reason |", "|---|---|---|---|"]
    for figure in figures:
        if figure.name in left_out:
            cells = (figure.name, figure.source, f"{figure.value} {figure.unit}", left_out[figure.name])
            lines.append(table_line(cells))
    lines += [
        "",
        f"All together took {sum(row.seconds for row in rows) / 60:.0f} minutes of simulating. Set-ups are in "
        "`evidence/published/setups.toml`, scripts in `evidence/published/figures`.",
    ]
    return "\n".join(lines) + "\n"
