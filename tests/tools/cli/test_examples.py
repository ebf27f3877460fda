"""The three programs of docs/examples.md: what the page says of them is what their recordings say."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import ROOT, Result
from tests.tools.cli.examples import OTHER_PROGRAMS, SECTIONS, TARGET

pytestmark = pytest.mark.torch

MIB = 1 << 20
Recorded = Callable[..., tuple[Result, cuptimem.Report]]


@pytest.fixture
def recorded(forked: Callable[..., Result], tmp_path: Path) -> Recorded:
    def call(program: str, *options: str, code: int = 0) -> tuple[Result, cuptimem.Report]:
        done = forked("-m", "cuptimem", "run", "-f", "-o", "x.cmem", str(ROOT / "examples" / program), *options)
        assert done.code == code, done.err
        return done, cuptimem.open(tmp_path / "x.cmem")

    return call


def line_of(program: str, text: str) -> int:
    lines = (ROOT / "examples" / program).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.strip().startswith(text)]
    return found


def bytes_by(report: cuptimem.Report, name: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for one in report.peak.contributors:
        key = str(getattr(one, name))
        sums[key] = sums.get(key, 0) + one.bytes
    return sums


def test_the_page_has_the_commands_that_made_it() -> None:
    page, title, _ = TARGET.read_text().partition(OTHER_PROGRAMS)
    assert title
    shown = [line[6:] for line in page.splitlines() if line.startswith("    $ ")]
    assert shown == [one.command for section in SECTIONS for one in section.shown]
    made: set[str] = set()
    for words in map(shlex.split, shown):
        made |= {words[words.index("-o") + 1]} if "-o" in words else set()
        assert all(word in made for word in words if word.endswith(".cmem")), words
        assert all((ROOT / word).is_file() for word in words if word.endswith(".py")), words


def test_leak(recorded: Recorded) -> None:
    _, report = recorded("leak.py")
    assert report.suspects == ()
    kept, graph = report.leaks
    assert (kept.kind, kept.bytes_per_step, kept.count) == ("bytes", 256 * 128 * 4, 60)
    assert kept.frame is not None and kept.frame.line == line_of("leak.py", "self.seen.append")
    assert [holder.path for holder in kept.holders] == ["probe.seen (Probe) in module program → list[0:60]"]
    assert graph.kind == "nodes" and graph.retained_at[0].line == line_of("leak.py", "total = total + loss")
    assert [holder.path for holder in graph.holders] == ["total in module program → .grad_fn"]


def test_out_of_memory(recorded: Recorded) -> None:
    done, report = recorded("out_of_memory.py", "--room", "512", code=1)
    assert done.err.count("Out of memory on cpu: ") == 1
    oom = report.oom_left
    assert oom is not None and oom.frame is not None
    assert oom.frame.function == "Layer.forward" and oom.requested % MIB == 0
    attention = {line_of("out_of_memory.py", text) for text in ("scores = q", "mixed = scores")}
    assert oom.frame.line in attention
    live = sum(one.bytes for one in oom.contributors)
    assert sum(one.bytes for one in oom.contributors if one.category == "activation") > 0.9 * live
    held = [one.bytes for one in oom.contributors if one.frame is not None and one.frame.line in attention]
    assert sum(held) > 0.9 * live


def test_too_big_a_peak(recorded: Recorded) -> None:
    scores = 16_000 * 1024 * 4
    _, report = recorded("too_big_a_peak.py", "--steps", "2")  # its second step has the optimizer's state
    before = report.peak.bytes
    line = line_of("too_big_a_peak.py", "return F.cross_entropy")
    at_the_line = sum(one.bytes for one in report.peak.contributors if one.frame and one.frame.line == line)
    assert 3 * scores <= at_the_line < 3 * scores + MIB and at_the_line > 0.7 * before
    categories = bytes_by(report, "category")
    assert categories["temporary"] >= 2 * scores and categories["activation"] >= scores
    assert categories["parameter"] + categories["optimizer state"] < 0.25 * before
    assert bytes_by(report, "module")["LanguageModel"] >= 3 * scores

    _, report = recorded("too_big_a_peak.py", "--steps", "2", "--chunks", "8")
    assert report.peak.bytes < 0.5 * before
