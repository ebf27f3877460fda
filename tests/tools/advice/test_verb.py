"""cuptimem advice, on a trace made by hand: needs no PyTorch."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import cuptimem
import cuptimem.advice.adviser
from cuptimem.advice import Adviser
from cuptimem.advice.technique import Change, Technique
from cuptimem.cli import main
from cuptimem.errors import Error
from cuptimem.notebook import display
from cuptimem.output.text import advice_views, text
from cuptimem.report.advice import Advice, Estimate, Proposal, Rejected
from cuptimem.report.stacks import Frame
from tests.event_kinds import THREAD
from tests.unit.analysis import craft


@pytest.fixture
def trace(tmp_path: Path) -> str:
    craft.Trace.library = craft.encoder()
    t = craft.Trace()
    t.alloc(64, 1000, t.line(1))
    t.alloc(128, 500, t.line(2))
    t.free(128)
    return t.write(tmp_path / "run.cmem")


def test_nothing_to_say(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advice", trace]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("peak 1.5 KiB on cpu\n")
    assert "No change that is known here would save 2 % of it." in shown
    assert "no optimizer" in shown


@pytest.mark.parametrize(("graph", "has"), [(False, "293.0 KiB of it (100 %)"), (True, "283.2 KiB of it (97 %)")])
def test_a_leak_that_has_much_of_the_peak_stands_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], graph: bool, has: str
) -> None:
    """No change saves what a list or a graph keeps; of the last block it is not known yet whether it is kept."""
    craft.Trace.library = craft.encoder()
    t = craft.Trace()
    t.add(THREAD, 1, 11)
    for step in range(30):
        t.alloc(20_000 * (step + 1), 10_000, t.line(1))
        if graph:
            t.node(step + 1, t.line(1))
        t.alloc(1 << 20, 500, t.line(2))
        t.free(1 << 20)
        t.tick(craft.STEP, 0, t.line(3))
    for mark in (5, 6):  # a full collection, which finds nothing
        t.mark(mark, 2)
    path = t.write(tmp_path / "run.cmem", meta={"nodes": "counted"})
    assert main(["advice", path]) == 0
    peak, leak, *_ = capsys.readouterr().out.splitlines()
    assert peak.startswith("peak 293.5 KiB on cpu") and leak.startswith(f"a leak has {has}: ")
    assert leak in display.as_text(cuptimem.open(path).advice)
    assert main(["advice", "--json", path]) == 0
    [found] = json.loads(capsys.readouterr().out)["leaks"]
    assert found["bytes"] == (290_000 if graph else 300_000) and found["leak"]["kind"] == (
        "nodes" if graph else "bytes"
    )


def test_json(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advice", "--json", trace]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"device": "cpu", "peak": 1500, "step": None, "reason": "", "proposals": []}.items() <= found.items()
    assert all(set(row) == {"technique", "reason", "bytes"} for row in found["rejected"])


def test_what_if_that_does_not_apply(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advice", "--what-if", "optimizer=sgd", trace]) == 1
    assert capsys.readouterr().err == "cuptimem: sgd does not apply: the optimizer keeps no state\n"
    assert main(["advice", "--what-if", "spell", trace]) == 1
    assert "no change 'spell'" in capsys.readouterr().err


def test_combinations(trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    def estimate(_: Adviser, **changes: object) -> Estimate:
        asked.append(changes)
        return Estimate("cpu", 100, 100 - 10 * len(asked), tuple((name, "") for name in changes), "exact")

    monkeypatch.setattr(Adviser, "estimate", estimate)
    both = ["--change", "optimizer=sgd,checkpoint=layer.1,layer.2", "--change", "fused+batch=x2"]
    assert main(["advice", *both, trace]) == 0
    assert asked == [{"sgd": True, "checkpoint": "layer.1,layer.2"}, {"fused": True, "batch": "x2"}]
    assert capsys.readouterr().out.splitlines() == [
        "cpu: 90 B with sgd, checkpoint (recorded: 100 B, 10 % less)",
        "cpu: 80 B with fused, batch (recorded: 100 B, 20 % less)",
    ]
    assert main(["advice", "--json", *both, trace]) == 0
    found = json.loads(capsys.readouterr().out)["estimates"]
    assert [[one["change"] for one in row["changes"]] for row in found] == [["sgd", "checkpoint"], ["fused", "batch"]]


@pytest.mark.parametrize("words", [["--change", "sgd,sgd"], ["--change", "sgd", "--budget", "1"], ["--budget", "x"]])
def test_wrong_questions(trace: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["advice", *words, trace])
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("cuptimem advice: ")


def test_what_does_not_go_together(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = cuptimem.open(trace)
    one = Technique("one", True, "exact", lambda program, blocks, value: Change(blocks, None, ""))
    two = replace(one, name="two", without=("one",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuptimem.advice.adviser, "TECHNIQUES", (one, two))
        for names in (("one", "two"), ("two", "one")):
            with pytest.raises(Error, match=f"^{names[1]} does not go together with {names[0]}$"):
                cuptimem.estimate(report, **dict.fromkeys(names, True))


def test_an_estimate_without_a_change(trace: str) -> None:
    report = cuptimem.open(trace)
    assert cuptimem.estimate(report).bytes == report.peak.bytes == 1500
    assert report.advice.proposals == ()


def test_rows() -> None:
    line = Frame("train.py", "main", 7)
    rows = (
        Proposal("zero_grad_late", True, 90, 10, line, "zero_grad() here", "none", "exact"),
        Proposal("chunked_loss", False, 50, 50, None, "in parts", "again", "rough"),
    )
    rejected = (Rejected("fused", "elsewhere", 100), Rejected("sgd", "elsewhere"), Rejected("accumulate", "", 120))
    shown = text.render(advice_views.advice(Advice("cuda:0", 100, 3, rows, rejected)), 200)
    assert "free: no slower, equal up to rounding" in shown
    assert shown.index("zero_grad_late") < shown.index("trades") < shown.index("about 50 B")
    assert "would raise this peak: accumulate by 20 B" in shown
    assert "saves nothing here: fused, sgd (elsewhere)" in shown


def test_it_prints_its_rows(trace: str) -> None:
    one = Advice("cpu", 100, 3, (Proposal("sgd", False, 50, 50, None, "SGD", "<learns>", "exact"),), note="of a part")
    for shown in (str(one), one._repr_mimebundle_()["text/plain"]):
        assert shown.startswith("peak 100 B on cpu in step 3\nof a part\n") and "50 B   50 %  sgd" in shown
    html = one._repr_html_()
    assert html is not None and "&lt;learns&gt;" in html and "<table" in html
    assert repr(one) == "<cuptimem.report.advice.Advice cpu: 1 proposals>"
    assert str(cuptimem.estimate(cuptimem.open(trace))).startswith("cpu: 1.5 KiB with ")


def test_an_estimate() -> None:
    one = Estimate("cuda:0", 100, 40, (("checkpoint", "blocks.*"), ("sgd", "")), "rough", ("a note",))
    shown = text.render(advice_views.estimate(one), 200)
    assert shown.splitlines() == [
        "cuda:0: about 40 B with checkpoint=blocks.*, sgd (recorded: 100 B, 60 % less)",
        "a note",
    ]
