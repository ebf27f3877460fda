"""What pages about stacks embed: every sum is the report's, whatever is merged, and nothing of a trace is markup."""

import base64
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.output.pages import diff, flamegraph, stacks_data, tables
from cuptimem.output.text import blocks, tree_views
from cuptimem.report import grouping
from cuptimem.report.diff import compare
from cuptimem.report.stacks import Frame
from tests.tools.pages import stack_reports


def embedded(page: str) -> Any:
    found = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def sums(data: dict[str, Any]) -> list[tuple[int, int]]:
    return [(sum(values["bytes"]), sum(values["count"])) for values in data["values"]]


def names(data: dict[str, Any], row: int) -> tuple[str, ...]:
    """Functions of a row, the outermost first."""
    node, found = data["rows"]["node"][row], []
    while node >= 0:
        found.append(data["strings"][data["frames"]["name"][data["nodes"]["frame"][node]]])
        node = data["nodes"]["parent"][node]
    return tuple(reversed(found))


def of(data: dict[str, Any], what: str, run: int = 0) -> int:
    return next(i for i, m in enumerate(data["measures"]) if m["what"] == what and m["run"] == run)


@pytest.mark.parametrize("seed", range(8))
def test_every_measure_sums_to_the_report(tmp_path: Path, seed: int) -> None:
    report = stack_reports.some(tmp_path, seed)
    data = stacks_data.of_report(report)
    assert [m["what"] for m in data["measures"]] == list(stacks_data.WHATS)
    for measure, (size, count) in zip(data["measures"], sums(data), strict=True):
        assert (size, count) == (measure["bytes"], measure["count"])
        if measure["what"] != "leaked":
            contents = report.contents(measure["what"], measure["device"])
            assert (size, count) == (contents.bytes, contents.count)


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_the_contributors(tmp_path: Path, seed: int) -> None:
    report = stack_reports.some(tmp_path, seed)
    data = stacks_data.of_report(report)
    values = data["values"][of(data, "peak")]
    found: Counter[tuple[Any, ...]] = Counter()
    for row, size in zip(values["row"], values["bytes"], strict=True):
        found[names(data, row), data["strings"][data["rows"]["phase"][row]]] += size
    expected: Counter[tuple[Any, ...]] = Counter()
    for one in report.peak.contributors:
        path = tuple(stacks_data.frame_name(frame) for frame in reversed(one.stack))
        expected[path, one.phase] += one.bytes
    assert found == expected


@pytest.mark.parametrize("rows", [1, 5, 20, 10_000])
def test_what_is_merged_is_counted_and_nothing_is_lost(tmp_path: Path, rows: int) -> None:
    report = stack_reports.some(tmp_path, 5, rows=80)
    peak = report.peak
    assert len({(c.stack, c.phase) for c in peak.contributors}) > 30
    data = stacks_data.of_contents([peak], rows)
    assert sums(data) == [(peak.bytes, peak.count)]
    (measure,) = data["measures"]
    labels = [data["strings"][label] for label in data["rows"]["label"]]
    smaller = [(row, number) for row, number in enumerate(data["rows"]["smaller"]) if number]
    assert all(labels[row] == "*" for row, _ in smaller)
    assert sum(number for _, number in smaller) == measure["merged"]
    merged = {row for row, _ in smaller}
    values = data["values"][0]
    at_merged = sum(size for row, size in zip(values["row"], values["bytes"], strict=True) if row in merged)
    assert at_merged == measure["merged_bytes"]
    assert (measure["merged"] == 0) == (rows == 10_000)
    assert bool(stacks_data.merged_note(data, rows)) == (measure["merged"] > 0)
    # The largest keep their place.
    largest = max(peak.contributors, key=lambda c: c.bytes)
    assert any(size >= largest.bytes for size in values["bytes"])


@pytest.mark.scaled
def test_many_lines_make_a_small_page(tmp_path: Path, many_lines: int) -> None:
    report = stack_reports.many_lines(tmp_path, many_lines)
    page = flamegraph.html(report)
    assert len(page) < 1_500_000
    data = embedded(page)
    assert sums(data)[of(data, "peak")] == (report.peak.bytes, many_lines)
    assert data["measures"][0]["merged"] == many_lines - stacks_data.ROWS
    assert f"{many_lines - stacks_data.ROWS:,} smaller ones are merged" in page


def test_a_deep_stack_keeps_both_ends(tmp_path: Path) -> None:
    calls = [("/home/me/deep.py", f"f{i}", i) for i in range(5000)]
    data = stacks_data.of_report(stack_reports.by_hand(tmp_path, {"peak": [(5, 1, "other", calls)]}))
    path = names(data, 0)
    assert len(path) == stacks_data.DEPTH + 1
    assert path[0] == "f4999" and path[-1] == "f0" and "(4,600 calls in between)" in path


def test_leaks_are_the_verdicts(tmp_path: Path) -> None:
    """Blocks of leaks, and of what they keep; graph nodes are said, not drawn."""
    line = Frame("/home/me/train.py", "main", 9)

    def leak(kind: str, size: int, keeps: tuple[cuptimem.Leak, ...] = ()) -> cuptimem.Leak:
        part = cuptimem.report.leaks.LeakPart(size, 2, (line,))
        return cuptimem.Leak(
            kind=kind, device="cpu", bytes=size, count=2, bytes_per_step=1.0, count_per_step=1.0, first_step=0,
            last_step=9, loop="1", stack=(line,), retained_at=(), parts=(part,), signature="survivors", cause="",
            confidence="high", reason="", keeps=keeps,
        )  # fmt: skip

    from dataclasses import replace

    report = replace(stack_reports.some(tmp_path), leaks=(leak("nodes", 999, (leak("bytes", 30),)), leak("bytes", 12)))
    data = stacks_data.of_report(report)
    assert sums(data)[of(data, "leaked")] == (42, 4)
    assert "2 nodes (about 999 B)" in flamegraph.html(report)


def test_libraries() -> None:
    site = "/venv/lib/python3.11/site-packages/"
    files = {
        "/home/me/train.py": "your code",
        site + "torch/nn/functional.py": "PyTorch",
        site + "transformers/trainer.py": "transformers",
        site + "six.py": "six",
        "/usr/lib/python3.11/threading.py": "Python",
        "<frozen importlib._bootstrap>": "Python",
        "/tmp/torchinductor_me/ab/cab" + "a" * 48 + ".py": "torch.compile",
    }
    assert {file: stacks_data.library(Frame(file, "f", 1)) for file in files} == files
    assert stacks_data.library(Frame(site + "transformers/trainer.py", "f", 1, own=True)) == "your code"


def everything(report: cuptimem.Report) -> list[str]:
    return [
        flamegraph.html(report),
        tables.tree(report, report.peaks, False),
        tables.table(report, report.peaks, "line", "bytes"),
        diff.html(report, report, compare(report, report)),
    ]


def test_nothing_of_a_trace_is_markup(tmp_path: Path) -> None:
    for page in everything(stack_reports.hostile(tmp_path)):
        assert page.count("</script>") == page.count("<script")
        assert "<img" not in page
        for character in ("\u202e", "\u2066", "\x1b", "\x00"):
            assert character not in page
        assert "n" * 1000 not in page
        page.encode()


@pytest.mark.parametrize("seed", range(6))
def test_diff_is_that_of_diff(tmp_path: Path, seed: int) -> None:
    before, after = stack_reports.some(tmp_path, seed), stack_reports.some(tmp_path, seed + 100)
    devices = compare(before, after)
    data = embedded(diff.html(before, after, devices))
    for one, shown in zip(devices, data["devices"], strict=True):
        for section, row in zip(one.shown, shown["sections"], strict=True):
            assert (row["what"], tuple(row["bytes"]), tuple(row["rest"])) == (section.what, section.bytes, section.rest)
            assert [tuple(change[1:3]) for change in row["changes"]] == [c.bytes for c in section.changes]
            for run in (0, 1):
                total = sum(change[1 + run] for change in row["changes"]) + row["others"][1 + run] + row["rest"][run]
                assert total == section.bytes[run]
            kinds = {(change[0], change[1] == 0, change[2] == 0) for change in row["changes"]}
            assert kinds <= {
                ("added", True, False),
                ("removed", False, True),
                *((k, False, False) for k in ("grew", "shrank", "same", "moved")),
            }
    stacks = data["stacks"]
    for run, report in enumerate((before, after)):
        for what in ("peak", "end"):
            contents = report.contents(what)
            assert sums(stacks)[of(stacks, what, run)] == (contents.bytes, contents.count)


def test_equal_recordings_differ_in_nothing(tmp_path: Path) -> None:
    before, after = stack_reports.some(tmp_path, 4), stack_reports.some(tmp_path, 4)
    data = embedded(diff.html(before, after, compare(before, after)))["stacks"]
    for what in ("peak", "end"):
        assert data["values"][of(data, what, 0)] == data["values"][of(data, what, 1)]


def test_what_needs_no_script(tmp_path: Path) -> None:
    """Rows without scripts are those that the verbs print."""
    report = stack_reports.some(tmp_path, 2)
    page = tables.table(report, report.peaks, "function", "blocks")
    rows = grouping.group(report.peak.contributors, "function", "blocks")
    shown = re.findall(r'<tr><td class="number">.*?</tr>', page)
    assert len(shown) == len(rows) and rows[0].key in shown[0]
    tree = tables.tree(report, report.peaks, True)
    lines = tree_views._rows(tree_views.build(report.peak.contributors, True), 0.005 * report.peak.bytes, True)
    assert all(line[2].split("├")[-1].split("└")[-1].split(blocks.TAIL)[0].strip()[:20] in tree for line in lines)
