"""The tree of stacks: what its rows sum to, where it steps to the right, what it leaves out."""

import random
import sys
from pathlib import Path

import pytest

import cuptimem
from cuptimem.output import json
from cuptimem.output.text import text, tree_views
from tests.tools.cli import stacked
from tests.tools.cli.stacked import Call


def lines(report: cuptimem.Report, least: float = 0.01, inverted: bool = False, width: int | None = None) -> list[str]:
    shown = tree_views.full(report.peak, least, inverted)
    return text.render(shown[2:], width).splitlines()[1:]


def test_inverted(tmp_path: Path) -> None:
    """From the lines that allocate outwards; of a run of library lines still the innermost that says something."""
    assert lines(stacked.trained(tmp_path), inverted=True) == [
        "  70 B   70 %       2  ├ gpt.py:30 Attention.forward +5",
        "  70 B   70 %       2  │ train.py:9 main",
        "  20 B   20 %       1  ├ gpt.py:50 MLP.forward +4",
        "  20 B   20 %       1  │ train.py:9 main",
        "  10 B   10 %       1  └ train.py:4 load",
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
