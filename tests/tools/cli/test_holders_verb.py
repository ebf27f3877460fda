"""cuptimem holders: which line a word names, and what is said where nothing is known."""

from dataclasses import replace
from pathlib import Path

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.cli import main
from cuptimem.errors import Error
from cuptimem.output import json
from cuptimem.output.text import held_views, text, views
from cuptimem.report import line_holders
from cuptimem.report.held import HeldLine
from cuptimem.report.leaks import OTHERS, Holder
from cuptimem.report.load import from_dict
from cuptimem.report.stacks import Frame
from tests.tools.cli import sample


def line(file: str, number: int, *holders: tuple[str, int]) -> HeldLine:
    rows = tuple(Holder(path, 1, size) for path, size in holders)
    return HeldLine("cpu", (Frame(file, "fit", number),), rows)


@pytest.fixture
def report(tmp_path: Path) -> cuptimem.Report:
    """Of four lines in two files; line 5 of train.py is alive at its peak alone."""
    raw = sample.analysis(tmp_path)
    raw["devices"][0] |= {"kept": 1, "tables": {"end": ([], (0, 0))}}
    lines = (
        line("/work/model.py", 1, ("cache in fit()", 300), (OTHERS, 100)),
        line("/work/model.py", 16, ("only a reference cycle: Node.next", 64)),
        line("/work/net/model.py", 7, ("no Python object: C++ or numpy holds it", 32)),
    )
    return replace(from_dict("run.cmem", raw), held=lines)


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("model.py:1", "model.py:1"),  # not 16
        ("el.py:16", "model.py:16"),
        (":7", "net/model.py:7"),
        ("net/", "net/model.py:7"),
        ("/work/model.py:16", "model.py:16"),
    ],
)
def test_a_line_by_a_part_of_its_name(report: cuptimem.Report, asked: str, place: str) -> None:
    assert line_holders.of_line(report, asked).frame.place.endswith(place)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("model.py", "may be work/model.py:1, work/model.py:16, net/model.py:7: give more"),
        ("nowhere.py:3", "no line of what was alive or grew is nowhere.py:3; known are work/model.py:1"),
        ("train.py:5", "train.py:5 is not known: nothing of it was alive at the end, and it did not grow"),
    ],
)
def test_a_line_of_which_nothing_is_known(report: cuptimem.Report, asked: str, said: str) -> None:
    with pytest.raises(Error, match=said.replace(".", r"\.")):
        line_holders.of_line(report, asked)


def test_why_nothing_is_known(report: cuptimem.Report) -> None:
    bare = replace(report, held=())
    off = replace(bare, environment={**bare.environment, "holders": "off"})
    killed = replace(bare, state="recovered")
    empty = replace(bare, devices=tuple(replace(one, kept=0) for one in bare.devices))
    said = [line_holders.why_none(one) for one in (report, bare, off, killed, empty)]
    assert ["largest lines" in said[0], "or it took too long" in said[1], "without the search" in said[2]] == [True] * 3
    assert "was killed" in said[3] and "nothing was alive" in said[4]


def test_the_text(report: cuptimem.Report) -> None:
    shown = text.render(views.holders(report, line_holders.known(report), 2), 80)
    assert "400 B in 2 blocks on cpu at the end\n   held by cache in fit() (75 %)\n   and by others (25 %)\n" in shown
    assert "   held by only a reference cycle: Node.next\n" in shown
    assert "  1 more line (--top 3)" in shown and "C++" not in shown


def test_json(report: cuptimem.Report) -> None:
    first, *_ = json.holders(report, line_holders.known(report))["lines"]
    assert first["line"]["line"] == 1 and first["leaks"] == []
    (cpu,) = first["held"]
    assert (cpu["device"], cpu["bytes"], cpu["count"]) == ("cpu", 400, 2)
    assert cpu["holders"][0] == {"path": "cache in fit()", "count": 1, "bytes": 300, "step": None, "put_at": None}


def test_under_a_row() -> None:
    """Two holders, and how many more; one that is left is shown; none under a row of less than 1 %."""
    rows = [line("a.py", 1, ("a", 50), ("b", 30), ("c", 15), (OTHERS, 5)), line("a.py", 2, ("d", 60), (OTHERS, 40))]
    first, second = (one.frame for one in rows)
    assert held_views.under(first, rows, 100, 200) == ["held by a (50 %)", "held by b (30 %), 2 more holders 20 B"]
    assert held_views.under(second, rows, 100, 200) == ["held by d (60 %)", "and by others (40 %)"]
    assert held_views.under(second, rows, 100, 20_000) == held_views.under(None, rows, 100, 200) == []


def test_one_word_is_a_line_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_synthetic("run.cmem", 2000, 1)
    for words in (("model.py:16",), ("run.cmem", "model.py:16"), ("run.cmem",)):
        assert main(["holders", *words]) == 1
        shown = capfd.readouterr().err
        assert ("reading run.cmem, the newest here" in shown) is (words == ("model.py:16",))
        assert ("no line of what was alive or grew is model.py:16" in shown) is (len(words) == 2 or ":" in words[0])
