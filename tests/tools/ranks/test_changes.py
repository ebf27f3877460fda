"""Two recordings of a job: what changed on which rank, and the page that shows it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cuptimem.distributed.changes import RanksDiff, compare
from cuptimem.distributed.summary import Growth, Held, RankSummary
from cuptimem.output.pages import ranks as page
from cuptimem.output.text import rank_diff_views, text
from tests.conftest import Result
from tests.tools.ranks.test_comparison import MIB, device, held, rank
from tests.tools.ranks.test_reading import write
from tests.unit.analysis import craft


def job(*peaks: Held, **more: object) -> list[RankSummary]:
    return [rank(number, device(peak), **more) for number, peak in enumerate(peaks)]


def shown(found: RanksDiff) -> str:
    return text.render(rank_diff_views.full(found, ()), 200)


def test_the_same_job_has_no_change() -> None:
    found = compare(job(*[held(100 * MIB)] * 3), job(*[held(101 * MIB)] * 3))
    assert found.changes == () and len(found.pairs) == 3
    assert "The peak of no rank has changed by more than 1 %." in shown(found)


def test_each_rank_is_compared_with_itself() -> None:
    """Rank 1 was larger before and is the same; the others have grown at one line."""
    before = job(held(100 * MIB), held(300 * MIB, l9=200 * MIB), held(100 * MIB))
    after = job(held(140 * MIB, l7=40 * MIB), held(300 * MIB, l9=200 * MIB), held(140 * MIB, l7=40 * MIB))
    (change,) = compare(before, after).changes
    assert change.ranks == (0, 2) and change.bytes == 40 * MIB
    assert [(row.name, row.before, row.after) for row in change.lines] == [("train.py:7", 0, 40 * MIB)]
    assert "ranks 0 and 2: about +40.0 MiB (40 %)" in shown(compare(before, after))


def test_all_ranks_are_every_rank() -> None:
    found = compare(job(*[held(100 * MIB)] * 3), job(*[held(50 * MIB)] * 3))
    assert "every rank: about -50.0 MiB (50 %)" in shown(found)


def test_a_peak_as_high_of_something_else_is_a_change() -> None:
    before, after = job(held(100 * MIB, l7=50 * MIB)), job(held(100 * MIB, l8=50 * MIB))
    (change,) = compare(before, after).changes
    assert change.bytes == 0 and {row.more for row in change.lines} == {50 * MIB, -50 * MIB}
    assert "rank 0: as high, of something else" in shown(compare(before, after))


def coded(lines: dict[str, tuple[int, str]]) -> Held:
    sizes = {line: size for line, (size, _) in lines.items()}
    bytes = sum(sizes.values())
    code = {line: text for line, (_, text) in lines.items()}
    return Held(bytes, 1, "training", {"activation": bytes}, sizes, 0, {}, code)


def test_a_line_that_moved_is_the_same_line() -> None:
    before = coded({"a.py:3": (50 * MIB, "y = f(x)"), "a.py:9": (MIB, "pass_on(y)"), "a.py:10": (MIB, "pass_on(y)")})
    after = coded({"a.py:5": (70 * MIB, "y = f(x)"), "a.py:11": (MIB, "pass_on(y)"), "a.py:10": (MIB, "pass_on(y)")})
    (change,) = compare(job(before), job(after)).changes
    assert {(row.name, row.before, row.after) for row in change.lines} == {
        ("a.py:5", 50 * MIB, 70 * MIB),
        ("a.py:9", MIB, 0),  # which of two equal ones it is now is not known
        ("a.py:11", 0, MIB),
    }


def test_leaks_that_began_and_ended() -> None:
    leak = Growth("train.py:7", "training", 1024.0, "cache", True)
    before = [rank(0, device(held(MIB)), growths=(leak,)), rank(1, device(held(MIB)))]
    after = [rank(0, device(held(MIB))), rank(1, device(held(MIB)), growths=(leak,))]
    found = compare(before, after)
    assert [(one.growth, one.ranks) for one in found.begun] == [(leak, (1,))]
    assert [(one.growth, one.ranks) for one in found.ended] == [(leak, (0,))]
    assert "! a new leak on rank 1 only: 1.0 KiB a step at train.py:7, held by cache" in shown(found)
    assert compare(before, before).begun == compare(before, before).ended == ()


def test_what_cannot_be_joined_is_said() -> None:
    before = [rank(0, device(held(MIB))), rank(1, device(held(MIB))), rank(None, device(held(MIB)), path="who.cmem")]
    after = [rank(1, device(held(MIB))), rank(2, device(held(MIB)))]
    found = shown(compare(before, after))
    assert "! rank 0 is in before alone" in found and "! rank 2 is in after alone" in found
    assert "! who.cmem: its rank is not known" in found


def test_a_page_has_the_bars_and_no_markup_of_a_trace() -> None:
    evil = Held(MIB, 1, "training", {"kept": MIB}, {"<script>x</script>:1": MIB}, 0, {}, {})
    html = page.diff(compare(job(held(2 * MIB, l3=MIB)), job(evil)), [("<b>.cmem", "no trace")])
    assert "<script>x" not in html and "<b>.cmem" not in html and "&lt;b&gt;.cmem" in html
    assert re.findall(r'style="width:([0-9.]+)%"', html) == ["100.000", "50.000"]


@pytest.fixture
def two(tmp_path: Path) -> Path:
    craft.Trace.library = craft.encoder()
    for folder, more in (("a", 0), ("b", 1)):
        (tmp_path / folder).mkdir()
        for number in range(3):
            write(tmp_path / folder / f"run-{number}.cmem", number, (8 << 20) + more * number * MIB)
    return tmp_path


def test_the_verb(two: Path, run: Callable[..., Result], call: Callable[..., Result]) -> None:
    done = call("diff", "a", "b/run-*.cmem", cwd=two)
    assert done.code == 0, done.err
    assert "rank 2: +2.0 MiB (25 %)" in done.out and "rank 1: +1.0 MiB (12 %)" in done.out
    assert "rank 0:" not in done.out
    assert call("diff", "a", "b", "-o", "d.html", cwd=two).code == 0
    assert call("ranks", "b", "-o", "r.html", cwd=two).code == 0
    for name, bars in (("d.html", 6), ("r.html", 3)):
        assert (two / name).read_text().count('<div class="bar">') == bars
    wrong = call("diff", "a", "b", "--device", "cpu", cwd=two)
    assert wrong.code == 1 and "--device is of two traces" in wrong.err
