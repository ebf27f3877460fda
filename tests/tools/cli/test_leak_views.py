"""Leaks and suspects: how they are shown, what the JSON says, and the exit codes."""

import json as standard_json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.cli import leaks as verb
from cuptimem.output import json
from cuptimem.output.text import leak_views, text, views
from cuptimem.report.leaks import UNDECIDED
from cuptimem.report.load import from_dict
from tests.conftest import Result
from tests.tools.cli import leak_sample, sample

Run = Callable[..., Result]
Make = Callable[..., cuptimem.Report]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda *rows, **more: from_dict("run.cmem", leak_sample.analysis(tmp_path, *rows, **more))


def shown(report: cuptimem.Report, top: int = 10) -> str:
    return text.render(views.leaks(report, top), 80)


def prose(report: cuptimem.Report, top: int = 10) -> str:
    """In one line, for sentences that are wrapped."""
    return " ".join(shown(report, top).split())


# -- data ----------------------------------------------------------------------------------------------------------


def test_lines(make: Make) -> None:
    kept, graph = make(leak_sample.row(), leak_sample.nodes()).leaks
    assert kept.frame is not None and kept.frame.source == "losses.append(x * 2)"
    assert kept.frame == kept.made_frame and kept.library_frame is None and kept.retained_at == ()
    # What keeps a graph is to be changed, not what made its nodes.
    assert graph.frame is not None and graph.frame.source == "total = total + loss"
    assert graph.made_frame is not None and graph.made_frame.source == "return model(x).square().mean()"
    assert graph.library_frame is not None and graph.library_frame.function == "Linear.forward"
    assert graph.where == graph.frame.place
    assert [part.where for part in graph.parts] == [graph.made_frame.place, graph.frame.place]
    lost, none = make(leak_sample.row(stack=1, parts=[(49_152, 24, 1)]), leak_sample.row(stack=0)).leaks
    assert (lost.where, none.where, lost.parts[0].where) == ("(stack lost)", "(no Python line)", "(stack lost)")
    assert lost.frame is lost.library_frame is None


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"nodes": "torch 2.3.1 was never tried"}, "torch 2.3.1 was never tried"),
        ({}, "the recording does not say that they were counted"),
    ],
)
def test_nodes_that_were_not_counted_are_in_no_leak(make: Make, meta: dict[str, str], reason: str) -> None:
    rows = [leak_sample.row(), leak_sample.nodes()]
    report = make(*rows, suspects=rows, meta=meta)
    assert [one.kind for one in (*report.leaks, *report.suspects)] == ["bytes", "bytes"]
    assert (report.nodes, report.nodes_reason) == (None, reason)
    assert f"Graph nodes: not available ({reason})." in prose(report)
    assert "No leak: 24 steps judged, no tensors grow" in shown(make(meta=meta))
    assert json.leaks(report)["nodes"] == {"counted": False, "live": None, "reason": reason}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places begin with the test's folder."""
    monkeypatch.chdir(tmp_path.parent)


# -- text ----------------------------------------------------------------------------------------------------------


def test_a_list_that_keeps_outputs(make: Make) -> None:
    report = make(leak_sample.row())
    lines = shown(report).partition("\n\n")[2].splitlines()  # below the heading, which is wrapped
    folder = Path(report.leaks[0].stack[0].file).parent.name
    assert lines[:5] == [
        "1 leak in 24 steps",
        "",
        "1. +2.0 KiB a step on cpu",
        f"   {folder}/train.py:14 in train",
        "       losses.append(x * 2)",
    ]
    assert "48.0 KiB alive in 24 blocks; made in steps 0 to 23, one a step." in prose(report)
    assert "At this rate +2.0 MiB per 1,000 steps." in prose(report)
    assert "Confidence" not in prose(report)
    assert "Graph nodes alive at the end of the last step: 96." in prose(report)


@pytest.mark.parametrize(
    ("kept", "changes", "said"),
    [
        (49_151, {}, True),
        (49_152, {}, False),
        (0, {"cause": "cycle"}, False),
        (0, {"holders": [("losses in function train", 24, 49_152, None)]}, False),
        (0, {"kind": "nodes", "keeps": [leak_sample.row()]}, True),
        (0, {"kind": "nodes"}, False),  # whether they are gone is not known
    ],
)
def test_what_held_a_leak_may_be_gone(make: Make, kept: int, changes: dict[str, Any], said: bool) -> None:
    report = make(leak_sample.row(**changes))
    report = replace(report, devices=tuple(replace(device, kept=kept) for device in report.devices))
    assert ("What held them was gone when the recording ended" in prose(report)) == said


def test_what_an_entry_keeps_is_in_what_is_alive(make: Make) -> None:
    """The summary's table has the same bytes."""
    kept = leak_sample.row(relation="retained by the graph")
    report = make(leak_sample.nodes() | {"keeps": [kept], "total_bytes_per_step": 4800 / 24 * 24 + 2048.0})
    said = "96 nodes (about 115.2 KiB beside tensors) alive, with what it keeps about 163.2 KiB; made in"
    assert said in prose(report)
    assert "about 163.2 KiB" in str(report)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"leaks": ["a"]}, "1 leak in 24 steps: {} +2.0 KiB a step"),
        (
            {"leaks": ["a"], "suspects": ["one epoch"]},
            "1 leak in 24 steps: {} +2.0 KiB a step; cannot tell: 1 line grew in every step (+2.0 KiB a step)",
        ),
        (
            {"suspects": ["one epoch"]},
            "cannot tell: 1 line grew in every step: {} +2.0 KiB a step; 24 steps judged",
        ),
        (
            {"suspects": ["few births"]},
            "cannot tell: 1 line grew: {} +2.0 KiB a step; 24 steps judged",
        ),
        ({}, "no leak: 24 steps judged, nothing grows"),
    ],
)
def test_the_last_closing_line(make: Make, tmp_path: Path, rows: dict[str, list[str]], said: str) -> None:
    """What stands behind a colon is of what stands before it."""
    leaks = [leak_sample.row() for _ in rows.get("leaks", ())]
    suspects = [leak_sample.row(reason=reason) for reason in rows.get("suspects", ())]
    assert leak_views.line(make(*leaks, suspects=suspects)) == said.format(f"{tmp_path.name}/train.py:14")


def test_who_holds_a_suspect(make: Make, tmp_path: Path) -> None:
    """Where nothing can tell, a person can: the last closing line and the summary have the name, too."""
    path = "Plotting.history (class) → " + "list[0:24] → " * 5 + "tensor"
    report = make(suspects=[leak_sample.row(reason="few births", holders=[(path, 24, 49_152, None)])])
    place = f"{tmp_path.name}/train.py:14"
    held = f"{place} +2.0 KiB a step, held by Plotting.history (class); 24 steps judged"
    assert leak_views.line(report) == f"cannot tell: 1 line grew: {held}"
    assert f"{place} is held by {path}" in " ".join(str(report).split())


def test_a_growing_graph(make: Make) -> None:
    report = make(leak_sample.nodes())
    lines = shown(report).splitlines()
    at = lines.index("1. graph +4 nodes a step (about 4.8 KiB)")
    assert lines[at + 1].startswith("   kept by ") and lines[at + 1].endswith("/train.py:15 in train")
    assert lines[at + 2].strip() == "total = total + loss"
    assert lines[at + 3].startswith("   made at ") and lines[at + 3].endswith("/train.py:5 in forward (75 % of them)")
    assert lines[at + 4].strip() == "return model(x).square().mean()"
    assert lines[at + 5].strip() == "in torch/nn/modules/linear.py:134 Linear.forward"
    assert "96 nodes (about 115.2 KiB beside tensors) alive; made in steps 0 to 23." in prose(report)
    assert "At this rate about +4.7 MiB per 1,000 steps." in prose(report)
    same = make(leak_sample.nodes(stack=leak_sample.TOTAL, parts=[(96 * 1229, 96, leak_sample.TOTAL)]))
    assert "made at" not in shown(same)  # kept where it is made: one line says it


@pytest.mark.parametrize(
    ("kept", "peak", "part"),
    [
        (0, 1 << 30, "about 115.2 KiB"),
        (48 << 10, 1 << 30, "about 115.2 KiB"),
        (1 << 30, 1 << 20, "about 115.2 KiB"),  # more than the peak: a trifle of nodes is the reason
        (1 << 30, 2 << 30, ""),
    ],
)
def test_nodes_are_beside_tensors(make: Make, kept: int, peak: int, part: str) -> None:
    """Nothing is larger than the peak beside it without a word why."""
    keeps = [leak_sample.row(relation="retained by the graph") | {"bytes": kept, "bytes_per_step": kept / 24}]
    rate = 4916 + kept / 24
    report = make(leak_sample.nodes() | {"keeps": keeps if kept else [], "total_bytes_per_step": rate})
    (device,) = report.devices
    report = replace(report, devices=(replace(device, peak=replace(device.peak, bytes=peak)),))
    why = f"{part} of this are graph nodes, no tensors: in the whole process, but in no peak of tensors"
    assert (why in " ".join(str(report).split())) == bool(part)
    assert ("graph nodes, beside tensors), " in leak_views.line(report) + ", ") == bool(part)
    assert ("about 4.8 KiB of it graph nodes" in leak_views.line(report)) == bool(part and kept)


def test_stacks_are_told_apart_by_what_differs(make: Make) -> None:
    both = [(36_864, 18, leak_sample.LOSS), (12_288, 6, leak_sample.EVALUATED)]
    callers = shown(make(leak_sample.row(stack=leak_sample.LOSS, parts=both)))
    assert "    75 %  called from " in callers and "    25 %  called from " in callers
    assert "train.py:11 in train" in callers and "train.py:19 in evaluate" in callers
    others = [(36_864, 18, leak_sample.LOSS), (12_288, 6, leak_sample.OUTPUTS)]
    assert shown(make(leak_sample.row(stack=leak_sample.LOSS, parts=others))).count(" %  made at ") == 2
    below = [(12_288, 6, stack) for stack in leak_sample.BELOW]
    lines = shown(make(leak_sample.row(stack=leak_sample.BELOW[0], parts=below)))
    assert lines.count(":14 ") == 1 and "and 1 more line\n" in lines  # the largest is not named once more above them
    same = [(36_864, 18, leak_sample.LOSS), (12_288, 6, leak_sample.LOSS)]
    assert "on 2 different stacks" in shown(make(leak_sample.row(stack=leak_sample.LOSS, parts=same)))


@pytest.mark.parametrize(
    ("per_step", "said"),
    [
        (1.0, "one a step"),
        (3.0, "3 a step"),
        (2.5, "2.5 a step"),
        (0.25, "one every 4 steps"),
        (1234.0, "1,234 a step"),
    ],
)
def test_how_often(make: Make, per_step: float, said: str) -> None:
    assert f"made in steps 0 to 23, {said}." in prose(make(leak_sample.row(count_per_step=per_step)))


@pytest.mark.parametrize(
    ("per_step", "said", "thousand"),
    [
        (0.4, "+0.4 B", "+400 B"),
        (4.0, "+4 B", "+3.9 KiB"),
        (100.4, "+100 B", "+98.0 KiB"),
        (1536.0, "+1.5 KiB", "+1.5 MiB"),
    ],
)
def test_rates(make: Make, per_step: float, said: str, thousand: str) -> None:
    report = make(leak_sample.row(bytes_per_step=per_step))
    assert f"1. {said} a step on cpu" in shown(report)
    assert f"At this rate {thousand} per 1,000 steps." in prose(report)


def test_slow_graphs_have_a_fraction_of_a_node_a_step(make: Make) -> None:
    slow = make(leak_sample.nodes(count_per_step=0.3, bytes_per_step=0.3 * 1229))
    assert "1. graph +0.3 nodes a step (about 369 B)" in shown(slow)
    replaced = make(leak_sample.nodes(count_per_step=0.0, bytes_per_step=2.0 * 1229, signature="growing"))
    assert "1. graph +2 nodes a step (about 2.4 KiB)" in shown(replaced)
    one = make(leak_sample.nodes(count_per_step=1.0, bytes_per_step=1229.0))
    assert "1. graph +1 node a step (about 1.2 KiB)" in shown(one)


def test_what_else_is_said_of_a_leak(make: Make) -> None:
    report = make(leak_sample.row(cause="cycle", confidence="medium", signature="growing"))
    assert "reference cycles" in prose(report) and "gc.collect()" in prose(report)
    assert "Confidence: medium." in prose(report)
    assert "replaced by more or larger ones" in prose(report)


def test_who_holds_little_of_a_leak_is_not_who_holds_it(make: Make) -> None:
    """A search in the loop named what held the newest block then; the rest had no name, at the end none has."""
    momentary = [("root.children in work()", 1, 2_048, 24), ("others", 23, 47_104, 24)]
    cycle = "only a reference cycle: Node.parent → Node.children"
    for cause, holders, said in (
        ("", momentary, ""),
        ("", [("outputs in train()", 24, 49_152, None), *momentary[:1]], "held by outputs in train()"),
        ("cycle", momentary, "held only by reference cycles"),
        ("cycle", [(cycle, 24, 49_152, None)], "held only by reference cycles"),
    ):
        report = make(leak_sample.row(cause=cause, holders=holders))
        assert leak_views.line(report).partition(" a step")[2] == (f", {said}" if said else "")
        assert leak_views.why(report.leaks[0]) == said
        assert ("held by root.children" in prose(report)) == (not cause)
        assert (cycle in prose(report)) == (holders[0][0] == cycle)


REASONS = {
    "few births": "record a longer run",
    "stopped": "a cache that fills up",
    "one epoch": "where there is only one epoch (max_steps)",
    "no collection": "call gc.collect() before you ask",
    "collections unknown": "If the program called gc.collect() before it dumped the snapshot, it is a leak",
    "filling": "record until it is full",
    "late garbage": "a trainer and its callback",
    "garbage": "waited for a collection",
    "freed behind the loop": "was freed when that was over",
    "one pass": "Record until the same code has run again",
    "carried on": "record two of them to tell",
    "events lost": "a lost free looks like a leak",
    "negligible": "too slow to matter",
    "a reason of a later version": "a reason of a later version",
}


@pytest.mark.parametrize("reason", REASONS)
def test_suspects_say_what_speaks_for_them(make: Make, reason: str) -> None:
    report = make(suspects=[leak_sample.row(reason=reason)])
    (suspect,) = report.suspects
    assert suspect.undecided == (reason in UNDECIDED) == bool(report.undecided)
    often = "" if reason == "few births" else "in every step "
    said = f"Cannot tell: 1 line grew {often}(+2.0 KiB a step); 24 steps judged"
    assert (said if suspect.undecided else "No leak: 24 steps judged, ") in shown(report)
    assert "nothing grows\n" not in shown(report)
    after = shown(report).split("Suspects:")[1]
    assert "train.py:14 in train" in after and "losses.append(x * 2)" in after
    assert "++" not in after
    assert REASONS[reason] in prose(report)


def test_what_was_judged(make: Make) -> None:
    assert "\nNo leak: 24 steps judged, nothing grows\n" in shown(make())
    two = make(steps={"training": 24, "evaluation": 12})
    assert "No leak: 24 steps of training and 12 steps of evaluation judged, nothing grows" in shown(two)
    short = make(steps={"training": 24, "evaluation": 3})
    assert "No leak: 24 steps of training judged, nothing grows in them; " in shown(short)
    assert "Not judged: 3 steps of evaluation (8 are needed)." in shown(short)
    assert "of training" in prose(make(leak_sample.row(), steps={"training": 24, "evaluation": 3}))


def test_what_cannot_be_judged(make: Make) -> None:
    few = make(steps={"training": 7})
    assert "Leaks: not judged, for 7 steps are too few (8 are needed)" in shown(few)
    assert "Steps are counted by the optimizer's step" in shown(few) and "prof.step()" in shown(few)
    assert "not judged" not in shown(make(steps={"training": 8}))
    none = make(steps={})
    assert "Leaks: not judged, for no steps were seen" in shown(none)
    assert "prof.step()" in prose(none)
    for report in (few, none):
        assert "No leak" not in shown(report) and "No leak" not in str(report)


def test_a_run_without_tensors(make: Make) -> None:
    empty = make(steps={}, devices=[])
    assert "Nothing was allocated" in shown(empty) and "judged" not in shown(empty) + str(empty)
    assert "allocated by PyTorch in what is left of the recording." in shown(replace(empty, state="cut"))


def test_many_are_cut_and_said(make: Make) -> None:
    report = make(*[leak_sample.row()] * 5, suspects=[leak_sample.row(reason="stopped")] * 4)
    cut = shown(report, 2)
    assert "5 leaks in 24 steps" in cut
    assert "\n2. " in cut and "\n3. " not in cut
    assert "3 more leaks are not shown (-n)" in cut and "2 more suspects are not shown (-n)" in cut
    assert "more" not in shown(report, 5).replace("more or larger", "")


def test_eighty_columns(make: Make) -> None:
    long = [leak_sample.row(cause="cycle", signature="growing", confidence="low"), leak_sample.nodes()]
    report = make(*long, suspects=[leak_sample.row(reason=reason) for reason in REASONS], meta={"nodes": "counted"})
    assert max(map(len, shown(report).splitlines()[1:])) <= 80
    assert max(map(len, shown(make(steps={})).splitlines()[1:])) <= 80
    assert max(map(len, text.render(leak_views.short(report), 80).splitlines())) <= 80


# -- in the summary ------------------------------------------------------------------------------------------------


def test_summary_names_leaks_between_peak_and_trend(make: Make) -> None:
    report = make(*[leak_sample.row(), leak_sample.nodes()] * 2, suspects=[leak_sample.row(reason="one epoch")])
    lines = str(report).splitlines()
    also = "; cannot tell: 1 line grew in every step (+2.0 KiB a step)"
    starts = ["What the peak on cpu", f"4 leaks in 24 steps{also}", "Steps: 24"]
    at = [next(i for i, line in enumerate(lines) if line.startswith(start)) for start in starts]
    assert at == sorted(at)
    table = lines[at[1] + 1 : at[2] - 1]
    # Three, then how many more, then what is no tensor.
    assert [line.split()[0] for line in table[:6]] == ["a", "+2.0", "about", "+2.0", "and", "about"]
    assert table[1].split()[:5] == ["+2.0", "KiB", "48.0", "KiB", "cpu"]
    assert "96 graph nodes" in table[2] and "total = total + loss" in table[2]
    assert table[4].strip() == "and 1 more"


def test_summary_without_leaks(make: Make) -> None:
    assert "\nNo leak: 24 steps judged, nothing grows\n" in str(make())
    garbage = make(suspects=[leak_sample.row(reason="garbage")])
    assert "\nNo leak: 24 steps judged, what grew has stopped, was freed, or was garbage\n" in str(garbage)
    slow = make(suspects=[leak_sample.row(reason="negligible", bytes_per_step=4.0)])
    said = "\nNo leak: 24 steps judged, train.py:14 grows by 4 B a step, negligible\n"
    assert said in str(slow).replace(str(Path(slow.suspects[0].where).parent) + "/", "")
    assert "\nLeaks: not judged, too few steps (8 are needed)\n" in str(make(steps={"training": 3}))
    assert "eaks:" not in str(make(steps={})) and "No leak" not in str(make(steps={}))  # it says there are no steps


def test_summary_leads_to_the_leaks(tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    path.touch()
    for rows, first in (([leak_sample.row()], "leaks"), ([], "peak")):
        report = from_dict(str(path), leak_sample.analysis(tmp_path, *rows))
        assert str(report).splitlines()[-1].startswith(f"Next: cuptimem {first} ")


# -- JSON ----------------------------------------------------------------------------------------------------------

KEYS = [
    "kind", "bytes", "estimated", "bytes_per_step", "count", "count_per_step", "total_bytes_per_step", "first_step",
    "last_step", "loop", "device", "line", "stack", "stack_lost", "retained_at", "parts", "backward", "signature",
    "cause", "confidence", "reason", "undecided", "relation", "keeps", "holders",
]  # fmt: skip


def test_json_tells_no_leak_from_not_judged(make: Make) -> None:
    loops = json.leaks(make(steps={"training": 24, "evaluation": 3}))["judged"]
    assert loops == [
        {"loop": "training", "steps": 24, "enough": True},
        {"loop": "evaluation", "steps": 3, "enough": False},
    ]
    assert json.leaks(make(steps={}))["judged"] == []


def test_documented_keys() -> None:
    """docs/json.md names every key of a leak."""
    documented = (Path(__file__).parents[3] / "docs" / "json.md").read_text().split("## `leaks`")[1].split("\n## ")[0]
    assert [key for key in (*KEYS, "judged", "leaks", "suspects", "nodes") if f"`{key}`" not in documented] == []


# -- the verb ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [[], ["--json"]])
@pytest.mark.parametrize(
    ("rows", "suspects", "asked", "code"),
    [
        (1, 0, [], 0),
        (1, 0, ["--fail-on-leak"], 3),
        (0, 1, ["--fail-on-leak"], 0),
        (0, 1, ["--fail-on-growth"], 3),
        (1, 0, ["--fail-on-growth"], 3),
        (0, 0, ["--fail-on-growth"], 0),
        (0, 0, ["--fail-on-leak"], 0),
    ],
)
def test_exit_codes(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rows: int,
    suspects: int,
    asked: list[str],
    code: int,
    machine: list[str],
) -> None:
    report = make(*[leak_sample.row()] * rows, suspects=[leak_sample.row(reason="one epoch")] * suspects)
    monkeypatch.setattr("cuptimem.cli.reading.read", lambda path, min_rate: report)
    assert verb.main(["run.cmem", *asked, *machine]) == code
    out: Any = capsys.readouterr().out
    if machine:
        assert len(standard_json.loads(out)["leaks"]) == rows
    else:
        assert ("1 leak in 24 steps" in out) == bool(rows)


def test_a_file_that_cannot_be_read(call: Run, tmp_path: Path) -> None:
    done = call("leaks", "--fail-on-leak", "missing.cmem")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1 and "missing.cmem" in done.err
    wrong = call("leaks", "x", "-n", "0")
    assert wrong.code == 2 and "at least 1" in wrong.err


def test_an_unread_trace_end_to_end(run: Run, call: Run, tmp_path: Path) -> None:
    write_synthetic(str(tmp_path / "run.cmem"), 20_000, 1)
    done = call("leaks", "run.cmem")
    assert (done.code, done.err) == (0, "") and "\x1b" not in done.out
    document = standard_json.loads(call("leaks", "run.cmem", "--json").out)
    report = cuptimem.open(tmp_path / "run.cmem")
    assert [row["steps"] for row in document["judged"]] == list(report.loops.values())
    assert len(document["leaks"]) == len(report.leaks) and len(document["suspects"]) == len(report.suspects)


def test_a_report_of_an_analysis_without_steps(tmp_path: Path) -> None:
    raw = sample.analysis(tmp_path)
    raw["steps"] = []
    assert "not judged" in shown(from_dict("x", raw | {"leaks": [], "suspects": [], "live_nodes": 0}))
