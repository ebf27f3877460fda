"""What a report of known content looks like, number by number."""

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

import cuptimem
from cuptimem.output import json
from cuptimem.output.text import blocks, peak_views, text, views, words
from cuptimem.report.load import from_dict, operator_name
from cuptimem.report.model import Contents, Steps
from cuptimem.report.stacks import short_file
from tests.tools.cli import sample


def lines_table(contents: Contents, top: int) -> blocks.Table:
    (table,) = peak_views.lines_table(contents, top)
    assert isinstance(table, blocks.Table)
    return table


@pytest.fixture
def report(tmp_path: Path) -> cuptimem.Report:
    return from_dict(str(tmp_path / "run.cmem"), sample.analysis(tmp_path))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places begin with the test's folder."""
    monkeypatch.chdir(tmp_path.parent)


def test_summary(report: cuptimem.Report) -> None:
    folder = Path(report.path or "").parent.name
    lines = [line.rstrip() for line in str(report).splitlines()]
    assert lines[0] == "train.py · 30 ms · 21 allocations · 2 threads · torch 2.13.0 · Python 3.11.7 · pid 42"
    figures = "4.0 KiB", "1", "96 B", "3.9 KiB", "112 B", "21", "14.6 KiB"
    assert re.split(" {2,}", lines[3].strip()) == ["cpu", *figures]
    rows = {tuple(line.split())[:6]: line for line in lines}
    assert ("3.9", "KiB", "98", "%", "4", "forward") in rows
    assert f"{folder}/train.py:5  step      y = model(x)" in rows["3.9", "KiB", "98", "%", "4", "forward"]
    assert any(line.startswith("Steps: 3, counted by the optimizer's step at") for line in lines)
    assert "96 B (step 0) to 112 B (step 2), +16 B in 2 steps" in lines[-1]


def test_the_clock_says_what_it_passed_over_and_what_prof_step_would_change(tmp_path: Path) -> None:
    raw = sample.analysis(tmp_path)
    place = (str(tmp_path / "fit.py"), 30, "main")
    raw["clock"] = {**raw["clock"], "kind": "backward", "passed": ("optimizer", place, 1)}
    shown = str(from_dict("run.cmem", raw))
    at = f"{tmp_path.name}/fit.py:30"
    assert "counted by backward passes at " in shown
    assert (
        f"\n  the optimizer stepped only 1 time at {at} (8 are needed); if that ends your iteration, prof.step()"
        in shown
    )
    one = json.of(from_dict("run.cmem", raw).clock)
    assert one["passed"] == {
        "kind": "optimizer",
        "where": {"file": place[0], "line": 30, "function": "main"},
        "steps": 1,
    }
    assert one["rate"] is None


@pytest.mark.parametrize(
    ("joined", "said"),
    [
        (True, "a step is an iteration: 5 rounds of updates, up to the one at {}"),
        (
            False,
            "a step is one round of updates, 5 to an iteration, which ends at {}; prof.step() there counts iterations",
        ),
    ],
)
def test_the_clock_says_how_many_updates_are_an_iteration(tmp_path: Path, joined: bool, said: str) -> None:
    raw = sample.analysis(tmp_path)
    raw["clock"] = {**raw["clock"], "rate": (5, (str(tmp_path / "gan.py"), 40, "main"), joined)}
    report = from_dict("run.cmem", raw)
    assert f"\n  {said.format(f'{tmp_path.name}/gan.py:40')}\n" in str(report)
    assert json.of(report.clock)["rate"]["updates"] == 5 and json.of(report.clock)["rate"]["joined"] is joined


def test_loops_are_told_apart(tmp_path: Path) -> None:
    """What an evaluation does must not read as growth, or its end, of the training."""
    raw = sample.analysis(tmp_path)
    first = raw["steps"][0]
    ends = {"training": (100, 200, 300), "evaluation": (5000, 5000)}
    raw["steps"] = [
        {**first, "loop": loop, "peak": end, "end": end} for loop, all_ends in ends.items() for end in all_ends
    ]
    for index, step in enumerate(raw["steps"]):
        step["index"] = index
    trend = str(from_dict("x", raw)).splitlines()[-3:]
    assert trend[0].startswith("Steps: 5, counted by") and trend[0].endswith(": 3 training, 2 evaluation")
    assert trend[1].startswith("  cpu, training: peak per step 100 B to 300 B, ")
    assert trend[1].endswith(" 100 B (step 0) to 200 B (step 1), +100 B in 1 step")  # another loop follows step 2
    assert trend[2].startswith("  cpu, evaluation: ") and trend[2].endswith("4.9 KiB live at step ends, steady")
    for step, end in zip(raw["steps"], (1 << 20, (1 << 20) + 4, (1 << 20) + 8, 0, 0), strict=True):
        step.update(peak=end, end=end)  # a range whose ends read the same is one size
    same = "  cpu, training: peak per step 1.0 MiB; 1.0 MiB live at step ends, +4 B in 1 step"
    assert str(from_dict("x", raw)).splitlines()[-2] == same


def test_a_second_loop_of_a_name_is_explained(tmp_path: Path) -> None:
    raw = sample.analysis(tmp_path)
    loops = ("training", "evaluation", "training", "evaluation 2")
    raw["steps"] = [{**raw["steps"][0], "index": index, "loop": loop} for index, loop in enumerate(loops)]
    kinds = ("module", raw["clock"]["kind"], "data")
    places = (("/p/eval.py", 7, "evaluate"), raw["clock"]["where"], ("/p/eval.py", 9, "test"))
    raw["clock"]["changes"] = [
        {"step": index, "loop": loops[index], "kind": kind, "where": where}
        for index, kind, where in zip((1, 2, 3), kinds, places, strict=True)
    ]
    said = [
        "  evaluation: calls of the outermost module at /p/eval.py:7, from step 1 on",
        "  evaluation 2: the data loader's next batch at /p/eval.py:9, from step 3 on",
    ]
    made = from_dict("x", raw)
    for shown in (str(made), text.render(views.steps(made, tuple(made.steps), 0))):
        lines = shown.splitlines()
        assert [line for line in lines if line.startswith("  evaluation")] == said


def test_every_caveat_is_said(report: cuptimem.Report, tmp_path: Path) -> None:
    raw = sample.analysis(tmp_path)
    raw.update(complete=False, state="cut", reason="disk full")
    raw["lost"] = {"events": 1000, "stacks": 2, "unknown_frees": 3, "replaced": 4, "seeds_skipped": 5}
    raw["backward"]["unresolved"] = 2048
    raw["devices"][0].update(ooms=[(5, 1 << 30, 4096, 2, 1, [], True, -1, 2, None, None, [])], ooms_total=1)
    marked = [line for line in str(from_dict("x", raw)).splitlines() if line.startswith("! ")]
    for what in ("missing", "disk full", "1,000 events", "2 stacks", "3 frees", "4 blocks", "5 tensors", "2.0 KiB"):
        assert sum(what in line for line in marked) == 1, what
    assert any("out of memory on cpu: asked for 1.0 GiB with 4.0 KiB in use" in line for line in marked)
    assert not [line for line in str(report).splitlines() if line.startswith("! ")]


def test_lines_sum_to_the_peak_however_few_are_shown(report: cuptimem.Report) -> None:
    for top in (1, 2, 10):
        table = lines_table(report.peak, top)
        assert sum(int(row[2]) for row in table.rows) == report.peak.count
        assert len(table.rows) == 2


def test_report_objects(report: cuptimem.Report) -> None:
    assert pickle.loads(pickle.dumps(report)) == report
    assert report.device("cpu") is report.devices[0]
    with pytest.raises(cuptimem.Error, match="there: cpu"):
        report.device("cuda")
    assert report.timeline("cpu")[1] == cuptimem.TimelinePoint(10_000_000, 96, 4096, None)
    step = report.step_peak(1)
    assert sum(c.bytes for c in step.contributors) + step.rest_bytes == step.bytes == 4096
    assert report.survivors[0].bytes == 16


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (-1536, "-1.5 KiB"), (1 << 20, "1.0 MiB")),
        *((5 << 40, "5.0 TiB"), (3 << 50, "3.0 PiB"), (1 << 62, "4.0 EiB"), (1 << 70, "1024.0 EiB")),
    ],
)
def test_sizes(value: int, shown: str) -> None:
    assert words.size(value) == shown


def test_operator_names() -> None:
    assert operator_name("N5torch8autograd9generated14AddmmBackward0E") == "AddmmBackward0"
    assert operator_name("torch::autograd::AccumulateGrad") == "AccumulateGrad"
    assert operator_name("14AddmmBackward0") == "AddmmBackward0"
    assert operator_name("MyFunctionBackward") == "MyFunctionBackward"
    assert operator_name("aten::addmm") == "aten::addmm"
    assert operator_name(None) is None


GENERATED = "cqmfiq5ls4nbxndu5wbahle4a4h2dik6pvvrv4oaoyudugoysikg"


@pytest.mark.parametrize(
    ("file", "shown", "library"),
    [
        ("/v/lib/python3.11/site-packages/torch/nn/functional.py", "torch/nn/functional.py", True),
        ("/usr/lib/python3/dist-packages/torch/_tensor.py", "torch/_tensor.py", True),
        ("/usr/lib/python3.12/threading.py", "threading.py", True),
        ("/home/me/project/model.py", "project/model.py", False),
        ("/home/me/lib/python/model.py", "python/model.py", False),
        ("<string>", "<string>", False),
        ("<frozen runpy>", "<frozen runpy>", True),
        ("<eval_with_key>.1", "<eval_with_key>.1", True),
        ("train.py", "train.py", False),
        (f"/tmp/torchinductor_me/qm/{GENERATED}.py", "torch.compile/cqmfiq5ls….py", True),
        (f"/tmp/torchinductor_me/xx/{GENERATED}.py", f"xx/{GENERATED}.py", False),
    ],
)
def test_files(file: str, shown: str, library: bool) -> None:
    assert short_file(file) == shown
    assert cuptimem.Frame(file, "f", 1).is_library is library


def test_narrow_text_is_cut_and_marked(report: cuptimem.Report) -> None:
    table = lines_table(report.peak, 10)
    for width in (70, 90):
        rows = text.render([table], width).splitlines()
        assert max(len(row) for row in rows) <= width
    assert "…" not in text.render([table], 90)  # columns go, so that lines and code are whole
    where = table.rows[0][4]
    narrow = text.render([table], 40).splitlines()[1]
    assert "  …" in narrow and narrow.endswith(where[-11:])  # the line's number stays


def test_durations() -> None:
    assert [words.duration(ns) for ns in (0, 350_000, 9_940_000, 9_960_000, 950_000_000, 723_000_000_000)] == [
        "0 ms", "0.3 ms", "9.9 ms", "10 ms", "950 ms", "12 min 3 s",
    ]  # fmt: skip


def test_of_many_loops_three_are_named(report: cuptimem.Report, tmp_path: Path) -> None:
    """In text; JSON has all of them. Four have room."""
    first = report.steps[0]

    def with_loops(number: int) -> cuptimem.Report:
        steps = [
            replace(first, index=2 * n + i, loop=f"training {n + 1}", peak=90, end=80)
            for n in range(number)
            for i in (0, 1)
        ]
        return replace(report, steps=Steps(steps))

    shown = text.render(views.summary(with_loops(60)))
    assert "2 training 1, 2 training 2, 2 training 3, 57 more loops (114 steps)" in shown and "training 4" not in shown
    shown = text.render(views.leaks(with_loops(60), 9))
    assert "2 steps of training 1, 2 steps of training 2, 2 steps of training 3 and 57 more loops (114 steps)" in shown
    assert "training 4" not in shown
    shown = text.render(views.summary(with_loops(4)))
    assert "2 training 1, 2 training 2, 2 training 3, 2 training 4\n" in shown and "more loops" not in shown
    leaks = json.leaks(with_loops(60))
    assert [row["loop"] for row in leaks["judged"]] == [f"training {n + 1}" for n in range(60)]


def test_text_out_of_a_trace_is_harmless_when_shown() -> None:
    """A terminal's commands and changes of direction are escapes, a tab is a space; data stay what they are."""
    frame = cuptimem.Frame("f.py", "f", 1, text="  x = '\x1b[2J\u202e€'\t# \x07")
    assert words.code(frame) == r"x = '\x1b[2J\u202e€' # \x07"
    assert frame.source == "x = '\x1b[2J\u202e€'\t# \x07"
    assert words.code(cuptimem.Frame("f.py", "f", 1)) == ""
