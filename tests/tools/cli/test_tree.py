"""The tree of stacks: what its rows sum to, where it steps to the right, what it leaves out."""

import random
import sys
from pathlib import Path

import pytest

import cuptimem
from cuptimem.output import json
from cuptimem.output.text import blocks, text, tree_views, views
from tests.tools.cli import stacked
from tests.tools.cli.stacked import ATTENTION, CALL, DATA, LINEAR, MAIN, MLP, STEP, TRAIN, Call


def lines(report: cuptimem.Report, least: float = 0.01, inverted: bool = False, width: int | None = None) -> list[str]:
    shown = tree_views.full(report.peak, least, inverted)
    return text.render(shown[2:], width).splitlines()[1:]


def test_calls_that_lead_to_one_another_alone_do_not_step_to_the_right(tmp_path: Path) -> None:
    assert lines(stacked.trained(tmp_path)) == [
        "  90 B   90 %       3  ├ train.py:9 main",
        "  90 B   90 %       3  │ loop.py:90 Loop.step +2",
        "  70 B   70 %       2  │ ├ gpt.py:30 Attention.forward +2",
        "  20 B   20 %       1  │ └ gpt.py:50 MLP.forward +1",
        "  10 B   10 %       1  └ train.py:4 load",
    ]


def test_inverted(tmp_path: Path) -> None:
    """From the lines that allocate outwards; of a run of library lines still the innermost that says something."""
    assert lines(stacked.trained(tmp_path), inverted=True) == [
        "  70 B   70 %       2  ├ gpt.py:30 Attention.forward +5",
        "  70 B   70 %       2  │ train.py:9 main",
        "  20 B   20 %       1  ├ gpt.py:50 MLP.forward +4",
        "  20 B   20 %       1  │ train.py:9 main",
        "  10 B   10 %       1  └ train.py:4 load",
    ]


def test_what_is_too_small_is_summed(tmp_path: Path) -> None:
    rows: list[tuple[int, str, list[Call]]] = [
        (80, "forward", [LINEAR, ATTENTION, MAIN]),
        (5, "forward", [LINEAR, MLP, MAIN]),
        (4, "forward", [STEP, MAIN]),
        (3, "forward", [MAIN]),
        (6, "data", [DATA]),
        (2, "before start", []),
    ]
    report = stacked.report(tmp_path, rows)
    assert lines(report, least=0.5) == [
        "  92 B   92 %       4  ├ train.py:9 main",
        "  80 B   80 %       1  │ ├ gpt.py:30 Attention.forward +1",
        "   9 B    9 %       2  │ ├ (2 smaller ones)",
        "   3 B    3 %       1  │ └ (by the line above itself)",
        "   8 B    8 %       2  └ (2 smaller ones)",
    ]
    everything = lines(report, least=0)
    assert any(line.endswith("(before start)") for line in everything) and not any("smaller" in s for s in everything)


def test_small_lines_beside_a_chain_are_counted_where_it_ends(tmp_path: Path) -> None:
    rows: list[tuple[int, str, list[Call]]] = [
        (60, "forward", [LINEAR, ATTENTION, STEP, TRAIN, MAIN]),
        (37, "forward", [LINEAR, MLP, STEP, TRAIN, MAIN]),
        (2, "forward", [CALL, TRAIN, MAIN]),
        (1, "forward", [CALL, MAIN]),
    ]
    assert lines(stacked.report(tmp_path, rows), least=0.05) == [
        "  100 B  100 %       4  └ train.py:9 main",
        "   99 B   99 %       3    loop.py:70 Loop.train",
        "   97 B   97 %       2    loop.py:90 Loop.step",
        "   60 B   60 %       1    ├ gpt.py:30 Attention.forward +1",
        "   37 B   37 %       1    ├ gpt.py:50 MLP.forward +1",
        "    3 B    3 %       2    └ (2 smaller ones beside these calls)",
    ]


def some_report(folder: Path, seed: int) -> cuptimem.Report:
    r = random.Random(seed)
    files = ["/home/me/train.py", *(stacked.SITE + name for name in ("pack/a.py", "torch/b.py")), "<frozen c>"]
    rows: list[tuple[int, str, list[Call]]] = []
    for _ in range(r.randrange(1, 30)):
        calls = [(r.choice(files), "f", r.randrange(3)) for _ in range(r.randrange(6))]
        rows.append((r.randrange(1, 30), r.choice(["forward", "other"]), calls))
    return stacked.report(folder, rows)


@pytest.mark.parametrize("inverted", [False, True])
def test_rows_sum(tmp_path: Path, inverted: bool) -> None:
    """Every row that has rows below it is their sum, less what stands beside a chain; the outermost are the whole."""
    for seed in range(150):
        report = some_report(tmp_path, seed)
        root = tree_views.build(report.peak.contributors, inverted)
        for least in (0.0, 4.0, 30.0, 1e9):
            rows = tree_views._rows(root, least, inverted)
            depths = [next(i for i, c in enumerate(row[2]) if c not in "├└│ ") for row in rows]
            # The first row of each entry has a branch mark right before its text.
            heads = [row[2][depth - 2] in "├└" for row, depth in zip(rows, depths, strict=True)]

            def below(at: int, rows: list[tuple[int, int, str]], depths: list[int], heads: list[bool]) -> list[int]:
                found = []
                for i in range(at + 1, len(rows)):
                    if depths[i] < depths[at] or (depths[i] == depths[at] and heads[i]):
                        break
                    if depths[i] == depths[at] + 2 and heads[i]:
                        found.append(i)
                return found

            tops = [i for i in range(len(rows)) if depths[i] == 2 and heads[i]]
            assert sum(rows[i][0] for i in tops) == report.peak.bytes
            assert sum(rows[i][1] for i in tops) == report.peak.count
            for at, row in enumerate(rows):
                parts = [rows[i] for i in below(at, rows, depths, heads)]
                if not heads[at]:
                    assert row[0] <= rows[at - 1][0] and row[1] <= rows[at - 1][1]
                elif parts:
                    # A chain that ends in a line with nothing below has what is beside it alone.
                    end = at
                    while end + 1 < len(rows) and depths[end + 1] == depths[at] and not heads[end + 1]:
                        end += 1
                    leaf = len(parts) == 1 and "beside" in parts[0][2]
                    assert sum(part[0] for part in parts) + leaf * rows[end][0] == row[0]
                    assert sum(part[1] for part in parts) + leaf * rows[end][1] == row[1]


def test_a_deep_stack_needs_no_recursion(tmp_path: Path) -> None:
    """A trace may be anybody's: at each of thousands of calls something else is called, too."""
    deep = 3 * sys.getrecursionlimit()
    calls: list[Call] = [("/home/me/deep.py", "walk", number) for number in range(deep)]
    report = stacked.report(tmp_path, [(5, "other", calls), *((5, "other", calls[i:]) for i in range(1, deep, 500))])
    assert len(lines(report, least=0)) > deep // 500
    (tree,) = json.tree(report, (report.peak,), False)["trees"]
    assert len(tree["nodes"]) == deep + 1


def test_nothing(tmp_path: Path) -> None:
    report = stacked.report(tmp_path, [])
    assert not any(isinstance(block, blocks.Table) for block in tree_views.full(report.peak, 0.01, False))
    assert "Nothing was allocated" in text.render(views.tree(report, [], 0.01, False))
