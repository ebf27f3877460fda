"""A fixed part of the evidence suite; the oracle on trivial programs, the judge on fakes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from evidence.leaks import __main__ as command
from evidence.leaks import results, suite
from evidence.leaks.judge import Entry, Judgement, Said, judge, per_program_step
from evidence.leaks.truth import Oracle, Samples, Truth, Undecided, growth

FIXED = ("p02", "p03", "p11", "p17", "p18", "p58")
EXTENDED = ("p17", "p18", "p58")  # of these: leaks, and what looks like one, of other kinds


def written(tmp_path: Path, body: str, name: str = "p01") -> suite.Program:
    path = tmp_path / f"{name}.py"
    path.write_text(f'"""A test."""\nimport sys\nsteps = int(sys.argv[1])\n{body}')
    return suite.program(path)


# --- the fixed part --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return suite.interpreter(tmp_path_factory.mktemp("evidence"))


@pytest.fixture(scope="session")
def oracle(needs_torch: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with command.oracle(tmp_path_factory.mktemp("oracle")) as process:
        yield process


def test_fixed_part_is_balanced() -> None:
    leaking = [program for program in suite.programs(FIXED) if program.label == "LEAK"]
    assert len(leaking) == len(FIXED) - len(leaking) == 3


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.extended) if one in EXTENDED else one for one in FIXED]
)
def test_program(name: str, oracle: Oracle, python: Path, tmp_path: Path) -> None:
    (program,) = suite.programs([name])
    truth = oracle.truth(program.path, program.steps)
    assert not command.contradiction(program, truth)
    said = suite.record(program, program.steps, python, tmp_path)
    judgement = judge(said, truth, program.marks, short=True)
    assert judgement.passed, (truth, said, judgement)


# --- the programs ----------------------------------------------------------------------------------


def test_programs_keep_the_rules() -> None:
    programs = suite.programs()  # raises for one that does not
    labels = [program.label for program in programs]
    assert labels.count("LEAK") >= 60 and labels.count("") >= 60
    assert labels.count("GROWS") >= 5 and labels.count("NEGLIGIBLE") >= 2


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("p01", "x = 1  # LEAKS\n", "mark"),
        ("p01", "x = 'LEAK'\n", "mark"),
        ("p01", "x = 1  # LEAK\ny = 2  # GROWS\n", "not GROWS and LEAK"),
        ("p01", "x = 'NEGLIGIBLE'\n", "mark"),
        ("p01", "# NEEDS torchvision\n", "VERSIONS"),
        ("p01", "# STEPS 12\n", "24 to 48"),
        ("leaky", "", "tell nothing"),
        ("p01", "import cuptimem\n", "nothing of us"),
    ],
)
def test_rules(name: str, body: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        written(tmp_path, body, name)


def test_marks_and_steps(tmp_path: Path) -> None:
    program = written(tmp_path, "# STEPS 48\nkept = []\nkept.append(1)  # LEAK\n")
    assert (program.marks, program.steps, program.label, program.about) == ((6,), 48, "LEAK", "A test.")


def test_label_and_needs(tmp_path: Path) -> None:
    program = written(tmp_path, "# NEEDS transformers accelerate\nkept.append(1)  # GROWS\n")
    assert (program.marks, program.label, program.needs) == ((5,), "GROWS", ("transformers", "accelerate"))
    assert (written(tmp_path, "").label, written(tmp_path, "").needs) == ("", ())


def test_the_fixed_part_needs_torch_alone() -> None:
    assert not any(program.needs for program in suite.programs(FIXED))


# --- the oracle ------------------------------------------------------------------------------------

LOOP = """
import gc, torch
w = torch.zeros(64, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
kept, total = [], torch.zeros(())
class Knot: pass
for step in range(steps):
    loss = (w * torch.randn(64)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("body", "bytes_per_step", "blocks_per_step", "nodes_per_step"),
    [
        ("    pass\n", 0, 0, 0),
        ("    kept.append(torch.empty(1024))\n", 4096, 1, 0),
        ("    kept.append(torch.empty(1))\n", 4, 1, 0),
        ("    kept.append(torch.empty(1024)) if step % 5 == 4 else None\n", 819.2, 0.2, 0),
        ("    total = total + loss\n", 0, 0, 3),
        ("    total = total + loss.detach()\n", 0, 0, 0),
        ("    knot = Knot(); knot.self, knot.x = knot, torch.empty(1024)\n", 0, 0, 0),
        ("    gc.disable(); knot = Knot(); knot.self, knot.x = knot, torch.empty(1024)\n", 4096, 1, 0),
        ("    kept = [*kept, torch.empty(1024)][-10:]\n", 0, 0, 0),
        ("    kept = [*kept, torch.empty(1024)] if step % 6 else []\n", 0, 0, 0),
        ("    kept = torch.cat([*([kept] if step else []), torch.empty(256)])\n", 1024, 0, 0),
        ("    kept.append(torch.empty(1024)) if step >= steps / 2 else None\n", 4096, 1, 0),
        ("    x = torch.empty(64 + 4096 * step // steps)\n", 0, 0, 0),
        ("    kept.append(loss.item())\n", 0, 0, 0),
    ],
)
def test_oracle(
    body: str,
    bytes_per_step: float,
    blocks_per_step: float,
    nodes_per_step: float,
    oracle: Oracle,
    tmp_path: Path,
) -> None:
    program = written(tmp_path, LOOP + body)
    truth = oracle.truth(program.path, 36)
    assert truth.leaks == (bytes_per_step > 0 or nodes_per_step > 0)
    assert truth.bytes == pytest.approx(bytes_per_step, rel=0.02)
    assert truth.blocks == pytest.approx(blocks_per_step, rel=0.02)
    assert truth.nodes == pytest.approx(nodes_per_step, rel=0.02)
    if nodes_per_step:
        assert 350 * nodes_per_step <= truth.other <= 2500 * nodes_per_step


@pytest.mark.torch
def test_oracle_of_a_program_without_any_clock(oracle: Oracle, tmp_path: Path) -> None:
    body = "import torch\nkept = []\ndef make(): return torch.empty(1024)\n"
    leaking = written(tmp_path, body + "for _ in range(steps): kept.append(make())\n")
    assert oracle.truth(leaking.path, 36).bytes == 4096
    main = "def main():\n  for _ in range(steps): x = make()\nmain()\n"
    assert not oracle.truth(written(tmp_path, body + main).path, 36).leaks


@pytest.mark.torch
def test_oracle_of_a_program_with_packages(oracle: Oracle, tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "keeper.py").write_text("kept = []\ndef keep(x): kept.append(x)\n")
    program = written(tmp_path, "from keeper import keep\n" + LOOP + "    keep(torch.empty(1024))\n")
    assert oracle.truth(program.path, 36, [str(tmp_path / "packages")]).bytes == 4096
    with pytest.raises(Undecided, match="keeper"):
        oracle.truth(program.path, 36)


@pytest.mark.torch
def test_oracle_says_why_a_program_failed(oracle: Oracle, tmp_path: Path) -> None:
    program = written(tmp_path, "raise RuntimeError('no such luck')\n")
    with pytest.raises(Undecided, match="no such luck"):
        oracle.truth(program.path, 36)
    with pytest.raises(Undecided, match="three times"):
        oracle.truth(written(tmp_path, "print(steps)\n").path, 36)


def test_growth_that_is_not_steady_is_undecided() -> None:
    short = Samples(36, [100 * min(i, 20) for i in range(36)])
    long = Samples(108, [100 * min(i, 20) + (9000 if i > 75 else 0) for i in range(108)])
    with pytest.raises(Undecided, match="no steady rise"):
        growth(short, long, 0.5)


def test_jitter_is_no_growth() -> None:
    levels = [1000 + 500 * (i * 7 % 5) for i in range(144)]
    assert growth(Samples(36, levels[:36]), Samples(108, levels[36:]), 0.5) == (0, 0)


# --- the judge -------------------------------------------------------------------------------------

TENSORS = Truth(True, 1000.0, 2.0, 900.0, 0.0)
GRAPH = Truth(True, 4.0, 1.0, 5000.0, 7.0)
CLEAN = Truth(False, 0.0, 0.0, 0.0, 0.0)


def leak(**changed: object) -> Entry:
    return dataclasses.replace(Entry("bytes", 1000.0, 2.0, 36, (7,), "p01.py:7", "survivors"), **changed)


def said(*leaks: Entry, suspects: tuple[Entry, ...] = (), nodes: bool = True, problem: str = "") -> Said:
    return Said(36, "optimizer", nodes, leaks, suspects, problem)


def test_found() -> None:
    judgement = judge(said(leak()), TENSORS, (7, 9))
    assert judgement == Judgement("found", True, True, (), 0.0, None, entries=1) and judgement.passed


def test_wrong_line() -> None:
    judgement = judge(said(leak(lines=(8,)), leak()), TENSORS, (7,))
    assert judgement.outcome == "found" and judgement.line_right is False and not judgement.passed


def test_a_line_of_another_file_is_wrong() -> None:
    assert judge(said(leak(lines=())), TENSORS, (7,)).line_right is False


def test_strays() -> None:
    judgement = judge(said(leak(bytes_per_step=900.0), leak(bytes_per_step=100.0, lines=(3,))), TENSORS, (7,))
    assert len(judgement.strays) == 1 and judgement.byte_error == 0 and judgement.passed


@pytest.mark.parametrize(("rate", "error"), [(1100.0, 0.1), (900.0, 0.1), (1500.0, 0.5), (0.0, 1.0)])
def test_rate_error(rate: float, error: float) -> None:
    judgement = judge(said(leak(bytes_per_step=rate)), TENSORS, (7,))
    assert judgement.rate_error == pytest.approx(error)
    assert judgement.passed == (error <= 0.1)


def test_the_short_run_may_have_a_rate_of_its_own() -> None:
    truth = dataclasses.replace(TENSORS, short_bytes=1300.0)
    assert judge(said(leak(bytes_per_step=1300.0)), truth, (7,), short=True).passed
    assert judge(said(leak(bytes_per_step=1000.0)), truth, (7,), short=True).passed
    assert not judge(said(leak(bytes_per_step=1300.0)), truth, (7,)).passed


def test_a_rate_that_was_not_given_is_wrong() -> None:
    nodes = leak(kind="nodes", count_per_step=7.0)
    assert judge(said(nodes), TENSORS, (7,)).byte_error == 1.0
    assert judge(said(leak(bytes_per_step=4.0)), GRAPH, (7,)).node_error == 1.0


def test_graph() -> None:
    nodes = leak(kind="nodes", count_per_step=7.0, bytes_per_step=8603.0)
    judgement = judge(said(nodes), GRAPH, (7,))
    assert judgement.node_error == 0 and judgement.byte_error is None and judgement.passed
    assert judge(said(dataclasses.replace(nodes, count_per_step=5.0)), GRAPH, (7,)).passed is False


def test_missed() -> None:
    judgement = judge(said(suspects=(leak(said="few births"),)), TENSORS, (7,))
    assert judgement.outcome == "missed" and "few births" in judgement.note and not judgement.passed
    assert "not counted" in judge(said(nodes=False), GRAPH, (7,)).note
    assert "no steps" in judge(dataclasses.replace(said(), clock=None), GRAPH, (7,)).note


def test_clean_and_false_alarm() -> None:
    assert judge(said(suspects=(leak(),)), CLEAN, ()).passed
    judgement = judge(said(leak()), CLEAN, ())
    assert judgement.outcome == "false alarm" and not judgement.passed and "p01.py:7" in judgement.note


def suspect(reason: str, line: int = 7) -> Entry:
    return leak(said=reason, lines=(line,))


@pytest.mark.parametrize(
    ("label", "suspects", "outcome", "passed"),
    [
        ("GROWS", [suspect("one epoch")], "cannot tell", True),
        ("GROWS", [suspect("few births", 3), suspect("filling")], "cannot tell", True),
        ("GROWS", [suspect("one epoch", 3)], "missed", False),
        ("GROWS", [suspect("negligible")], "negligible", False),
        ("GROWS", [], "missed", False),
        ("NEGLIGIBLE", [suspect("negligible")], "negligible", True),
        ("NEGLIGIBLE", [suspect("one epoch")], "cannot tell", False),
        ("NEGLIGIBLE", [suspect("negligible", 3)], "missed", False),
    ],
)
def test_growth_that_is_no_verdict(label: str, suspects: list[Entry], outcome: str, passed: bool) -> None:
    judgement = judge(said(suspects=tuple(suspects)), TENSORS, (7,), label)
    assert (judgement.outcome, judgement.passed) == (outcome, passed)
    if suspects and not passed:
        assert suspects[0].said in judgement.note
    accused = judge(said(leak(), suspects=tuple(suspects)), TENSORS, (7,), label)
    assert accused.outcome == "false alarm" and not accused.passed


def test_entries() -> None:
    assert judge(said(leak(bytes_per_step=600.0), leak(bytes_per_step=400.0)), TENSORS, (7,)).entries == 2


def test_a_recording_that_failed_counts_as_nothing() -> None:
    judgement = judge(said(problem="exit 1: no"), CLEAN, ())
    assert judgement.outcome == "failed" and not judgement.passed


@pytest.mark.parametrize(("loop_steps", "expected"), [(36, 10.0), (35, 10.0), (38, 10.0), (72, 20.0), (12, 10 / 3)])
def test_rates_per_step_of_the_program(loop_steps: int, expected: float) -> None:
    assert per_program_step(10.0, loop_steps, 36) == pytest.approx(expected)


# --- rows, totals, files ---------------------------------------------------------------------------


def rows(tmp_path: Path) -> list[results.Row]:
    leaking = written(tmp_path, "kept = []\nx = 1  # LEAK\nx = 2\n")
    clean = written(tmp_path, "x = 1\n", "p02")
    answers = {
        "p01": {36: said(leak(lines=(5,))), 108: said(leak(lines=(6,), bytes_per_step=1200.0), suspects=(leak(),))},
        "p02": {36: said(), 108: said(leak())},
    }
    return [
        command.row(p, lambda _, t=t: t, lambda p, steps: answers[p.name][steps])
        for p, t in ((leaking, TENSORS), (clean, CLEAN))
    ]


def test_totals(tmp_path: Path) -> None:
    t = results.totals(rows(tmp_path))
    assert (t.programs, t.leaking, t.clean, t.found, t.false_alarms, t.broken) == (2, 2, 2, 2, 1, 0)
    assert (t.precision, t.recall, t.line_accuracy) == (2 / 3, 1.0, 0.5)
    assert (t.rates, t.rates_within, t.rate_max, t.suspects) == (2, 1, pytest.approx(0.2), 1)
    assert (t.entries, t.single, t.growing, t.negligible) == (2, 2, 0, 0)


def test_totals_of_growth_that_is_no_verdict(tmp_path: Path) -> None:
    grows = written(tmp_path, "x = 1  # GROWS\n")
    few = written(tmp_path, "x = 1  # NEGLIGIBLE\n", "p02")
    small = dataclasses.replace(TENSORS, bytes=8.0)
    answers = {
        "p01": {36: said(suspects=(leak(said="one epoch", lines=(4,)),)), 108: said(leak(lines=(4,)))},
        "p02": {36: said(suspects=(leak(said="negligible", lines=(4,)),)), 108: said()},
    }
    made = [
        command.row(p, lambda _, t=t: t, lambda p, steps: answers[p.name][steps])
        for p, t in ((grows, TENSORS), (few, small))
    ]
    t = results.totals(made)
    assert (t.leaking, t.clean, t.growing, t.said_growing, t.negligible, t.said_negligible) == (0, 0, 2, 1, 2, 1)
    assert (t.false_alarms, t.found, t.precision) == (1, 0, 0.0) and not any(row.passed for row in made)
    assert "undecidable, 1,000.0 B" in results.line(made[0]) and "negligible, 8.0 B" in results.line(made[1])


def test_label_against_the_oracle(tmp_path: Path) -> None:
    def never(program: suite.Program, steps: int) -> Said:
        raise AssertionError("a program that is wrong about itself is not run")

    def undecided(program: suite.Program) -> Truth:
        raise Undecided("hard to say")

    clean, leaking = written(tmp_path, "x = 1\n"), written(tmp_path, "x = 1  # LEAK\n", "p02")
    small = written(tmp_path, "x = 1  # NEGLIGIBLE\n", "p03")
    broken = [
        command.row(clean, lambda *_: TENSORS, never),
        command.row(leaking, lambda *_: CLEAN, never),
        command.row(clean, undecided, never),
        command.row(small, lambda _: TENSORS, never),
        command.row(small, lambda _: GRAPH, never),
    ]
    assert not any(row.passed for row in broken)
    assert "no line is marked" in broken[0].problem and "oracle says: clean" in broken[1].problem
    assert broken[2].problem == "hard to say"
    assert all("marked negligible" in row.problem for row in broken[3:])
    assert results.totals(broken).broken == 5 and results.totals(broken).leaking == 0


@pytest.mark.torch
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "DOCS", tmp_path / "docs")
    written_rows = rows(tmp_path)
    target = command.save(written_rows, 12.3, None)
    data = json.loads(target.read_text())
    assert data["totals"]["precision"] == 2 / 3 and data["programs"][0]["runs"][1]["passed"] is False
    table = (tmp_path / "docs" / "README.md").read_text()
    assert "| p02 | A test. | 36 | clean | clean | false alarm |" in table and target.name in table
    for row in written_rows:
        assert row.program.name in results.line(row)


@pytest.mark.torch
def test_public_outcomes_can_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evidence.leaks import public

    script = public.table(public.TABLE.read_text())[1][0]
    monkeypatch.setattr(command, "DOCS", tmp_path)
    monkeypatch.setattr(public, "run_public", lambda folder: [public.Outcome(script, False, 0, 1.0, "", leaks=("x",))])
    target = command.save(rows(tmp_path), 1.0, command._public())
    (saved,) = json.loads(target.read_text())["public"]
    assert saved["script"] == script.name and saved["passed"] is False
