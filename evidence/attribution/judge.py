"""Compares what cuptimem says of a program with its truth, question by question."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.attribution.answers import Answer, Line
from evidence.attribution.suite import Program

TOLERANCE = 0.01  # of the peak
TRANSIENT = ("activation", "temporary")
LEAST = 0.98  # a line with this share of the biggest line's bytes is as good


@dataclass(frozen=True)
class Check:
    program: str
    question: str
    expected: str
    given: str
    right: bool


def true_peak(program: Program) -> int:
    """Of blocks: with what operators allocate inside of themselves."""
    return max(int(program.counted["peak"]), int(program.counted["allocator"]))


def hidden(program: Program) -> int:
    """What operators allocate inside of themselves at the peak: counted in sum, of a line and category that the account
    does not see. cuBLAS's workspace is not meant: the truth names it."""
    workspace = program.numbers("categories").get("workspace", 0)
    return max(0, true_peak(program) - int(program.counted["peak"]) - workspace)


def close(given: int, expected: int, peak: int, slack: int = 0) -> bool:
    return -TOLERANCE * peak <= given - expected <= TOLERANCE * peak + slack


def true_categories(program: Program) -> dict[str, int]:
    """As they were counted; what the author computed comes first."""
    return {**program.counted["categories"], **program.numbers("categories")}


def groups(program: Program, categories: Mapping[str, int]) -> list[list[str]]:
    """Categories whose sum is judged, because their border is a matter of words: those that the truth names, and
    activations with temporaries where the peak has both."""
    peak = true_peak(program)
    merged = [program.truth["together"]] if "together" in program.truth else []
    if min(categories.get(name, 0) for name in TRANSIENT) > TOLERANCE * peak:
        touching = [group for group in merged if set(group) & set(TRANSIENT)]
        merged = [group for group in merged if group not in touching]
        merged.append(sorted({*TRANSIENT, *(name for group in touching for name in group)}))
    return merged


def category_checks(program: Program, answer: Answer) -> Iterator[Check]:
    expected, given, peak = true_categories(program), answer.categories, true_peak(program)
    merged = groups(program, expected)
    single = sorted({*expected, *given} - {name for group in merged for name in group})
    for group in [*merged, *([name] for name in single)]:
        right, said = (sum(table.get(name, 0) for name in group) for table in (expected, given))
        if max(right, said) > TOLERANCE * peak:
            share = f"{right:,} ({right / peak:.0%})", f"{said:,} ({said / peak:.0%})"
            yield Check(
                program.name, f"category: {' + '.join(group)}", *share, close(said, right, peak, hidden(program))
            )


def line_checks(
    program: Program, question: str, given: Line | None, lines: Sequence[Mapping[str, Any]], peak: int, slack: int = 0
) -> Check:
    """The biggest of the lines that were counted, and its bytes. slack: what the given bytes were rounded by."""
    best = max(lines, key=lambda line: abs(line["bytes"]))
    expected = f"{program.path.name}:{best['line']} {best['bytes']:,}"
    if given is None:
        return Check(program.name, question, expected, "nothing", False)
    own = [line["bytes"] for line in lines if given.file == program.path.name and line["line"] == given.number]
    right = bool(own) and abs(own[0]) >= LEAST * abs(best["bytes"])
    right = right and close(abs(given.bytes), abs(own[0]), peak, hidden(program) + slack)
    return Check(program.name, question, expected, str(given), right)


def biggest_checks(program: Program, answer: Answer) -> Iterator[Check]:
    lines, peak = program.counted["lines"], true_peak(program)
    if not lines:
        return
    yield line_checks(program, "biggest line: table", answer.lines[0] if answer.lines else None, lines, peak)
    slack = round(answer.closing.bytes * 0.005) if answer.closing else 0
    yield line_checks(program, "biggest line: closing lines", answer.closing, lines, peak, slack)


def change_checks(program: Program, answer: Answer) -> Iterator[Check]:
    if "diff" not in program.truth:
        return
    before = {line["line"]: line["bytes"] for line in program.counted["lines"]}
    after = {line["line"]: line["bytes"] for line in program.counted["diff"]["lines"]}
    changes = [{"line": n, "bytes": after.get(n, 0) - before.get(n, 0)} for n in {*before, *after}]
    peak = max(true_peak(program), program.counted["diff"]["peak"])
    yield line_checks(program, "diff", answer.changes[0] if answer.changes else None, changes, peak)


def step_checks(program: Program, answer: Answer) -> Iterator[Check]:
    for kind, number in program.numbers("steps").items():
        given = answer.steps.get(kind, 0)
        yield Check(program.name, f"steps: {kind}", str(number), str(given), given == number)


def leak_checks(program: Program, answer: Answer) -> Iterator[Check]:
    if "verdict" not in program.truth:
        return
    verdict = program.truth["verdict"]
    said = answer.verdict + "".join(f"; {file}:{n}" for leak in answer.leaks for file, n in leak.lines[:1])
    yield Check(program.name, "verdict", verdict, said, answer.verdict == verdict)
    if verdict != "leak":
        return
    own = program.leaking()
    leak = answer.leaks[0] if answer.leaks else None
    where = leak.lines[0] if leak and leak.lines else ("no line", 0)
    right = where[0] == program.path.name and where[1] in own
    lines = " or ".join(f"{program.path.name}:{line}" for line in own)
    yield Check(program.name, "leak's line", lines, f"{where[0]}:{where[1]}", right)
    holder = leak.holders[0] if leak and leak.holders else "none"
    found = re.search(program.truth["holder"], holder) is not None
    yield Check(program.name, "leak's holder", program.truth["holder"], holder, found)


def judge(program: Program, answer: Answer) -> list[Check]:
    peak = true_peak(program)
    about_peak = [
        Check(program.name, "peak", f"{peak:,}", f"{answer.peak:,}", close(answer.peak, peak, peak)),
        *biggest_checks(program, answer),
        *category_checks(program, answer),
    ]
    return [
        *([] if "moment" in program.truth else about_peak),
        *step_checks(program, answer),
        *leak_checks(program, answer),
        *change_checks(program, answer),
    ]
