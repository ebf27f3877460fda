"""The runner of `make attribution`: two programs through all of it, and what it makes of answers."""

import dataclasses
from pathlib import Path

import pytest

from evidence.attribution import answers, page, suite
from evidence.attribution.answers import Answer, Leak, Line
from evidence.attribution.judge import judge, true_peak

BANK = suite.read(suite.PROGRAMS / "memory_bank.toml")


def right_answer(program: suite.Program) -> Answer:
    """What would be right of it."""
    lines = [Line(program.path.name, line["line"], line["bytes"]) for line in program.counted["lines"]]
    leak = Leak([(program.path.name, program.leaking()[0])], ["encoder.bank → dict[0:50]"])
    steps = {"training": 50}
    return Answer(true_peak(program), program.counted["categories"], lines, lines[0], steps, "leak", [leak])


@pytest.mark.parametrize(
    ("changed", "question"),
    [
        ({}, ""),
        ({"peak": 5_000_000}, "peak"),
        ({"lines": [Line("memory_bank.py", 1, 3276800)]}, "biggest line: table"),
        ({"lines": [Line("memory_bank.py", 17, 3000000)]}, "biggest line: table"),
        ({"closing": None}, "biggest line: closing lines"),
        ({"categories": {**BANK.counted["categories"], "kept": 0}}, "category: kept"),
        ({"categories": {**BANK.counted["categories"], "unknown": 50_000}}, "category: unknown"),
        ({"steps": {"training": 49}}, "steps: training"),
        ({"steps": {"training": 50, "evaluation": 1}}, "steps: evaluation"),
        ({"verdict": "no leak"}, "verdict"),
        ({"leaks": [Leak([("memory_bank.py", 1)], ["encoder.bank"])]}, "leak's line"),
        ({"leaks": [Leak([("memory_bank.py", 17)], ["z"])]}, "leak's holder"),
    ],
)
def test_a_wrong_answer_is_a_miss(changed: dict[str, object], question: str) -> None:
    checks = judge(BANK, dataclasses.replace(right_answer(BANK), **changed))  # type: ignore[arg-type]
    assert [check.question for check in checks if not check.right] == [question] * bool(question)


def test_categories_with_an_open_border_are_judged_as_a_sum() -> None:
    program = dataclasses.replace(BANK, truth={**BANK.truth, "together": ["kept", "activation"]})
    answer = right_answer(BANK)
    moved = {**answer.categories, "kept": 0, "activation": sum(answer.categories[k] for k in ("kept", "activation"))}
    checks = judge(program, dataclasses.replace(answer, categories=moved))
    assert all(check.right for check in checks) and any("+" in check.question for check in checks)


def test_a_difference() -> None:
    program = suite.read(suite.PROGRAMS / "contrastive_pairs.toml")
    before, after = ({e["line"]: e["bytes"] for e in c["lines"]} for c in (program.counted, program.counted["diff"]))
    number = max(after, key=lambda n: after[n] - before.get(n, 0))
    change = after[number] - before[number]
    rows = [
        {"line": f"a/{program.path.name}:{number}", "bytes": {"before": 0, "after": change - 8}},
        {"line": "(before the start)", "bytes": {"before": 0, "after": 9}},
        {"line": f"a/{program.path.name}:{number}", "bytes": {"before": 0, "after": 8}},
    ]
    answer = dataclasses.replace(right_answer(BANK), changes=answers.changes_of({"lines": rows}))
    assert [check.right for check in judge(program, answer) if check.question == "diff"] == [True]


def test_closing_lines() -> None:
    errors = """cuptimem: peak 9.0 MiB on cpu in step 59; most of it: activations 7.6 MiB (84 %)
cuptimem:      7.5 MiB  83 %  …/examples/leak.py:34 Probe.keep
cuptimem:    896.5 KiB  10 %  …/examples/leak.py:21 Classifier.forward
cuptimem: 2 leaks in 60 steps: …/examples/leak.py:34 +128.0 KiB a step"""
    assert answers.closing_line(errors) == Line("leak.py", 34, 7864320)
    assert answers.closing_line(errors.splitlines()[3]) is None
    of_which = "cuptimem:      2.0 MiB  80 %  gan.py:7 <module>, of which 1.0 MiB leaky_relu, 1.0 MiB conv2d"
    assert answers.closing_line(of_which) == Line("gan.py", 7, 2 * 2**20)


def test_every_program_has_its_truth() -> None:
    for program in suite.programs():
        assert program.about and program.counted, program.name
        if program.truth.get("verdict") == "leak":
            assert program.leaking()
        program.numbers("steps")
        for name, size in program.numbers("categories").items():
            if name != "workspace":
                counted = program.counted["categories"].get(name, 0)
                assert abs(counted - size) <= 0.01 * true_peak(program), (program.name, name, counted, size)
        for entry in program.counted["lines"]:
            assert program.path.read_text().splitlines()[entry["line"] - 1].strip() == entry["code"], program.name


def test_sums_are_arithmetic_alone() -> None:
    assert suite.arithmetic("4 * (3 + 5) - 64 / 2") == 0
    for text in ("2 ** 9", "len('a')", "1 / 3"):
        with pytest.raises(ValueError, match="not a"):
            suite.arithmetic(text)


@pytest.mark.torch
def test_two_programs(python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(suite, "WITH_LIBRARIES", Path(python))
    programs = suite.programs(["memory_bank", "swa_average"])
    checks = [check for program in programs for check in judge(program, answers.ask(program, tmp_path))]
    right = {(check.program, check.question) for check in checks if check.right}
    assert {(p.name, q) for p in programs for q in ("peak", "biggest line: table", "verdict")} <= right
    about = {"date": "2026-01-01", "commit": "abc", "torch": "2", "python": "3"}
    text = page.page(programs, checks, {"broken": "exit code 1"}, about)
    assert f"| **all** | {sum(c.right for c in checks)} | {len(checks)} |" in text
    assert text.count("\n| memory_bank | ") == 1 + sum(not c.right for c in checks if c.program == "memory_bank")
    assert "`broken` was not judged: exit code 1" in text
