"""The verbs that write pages about stacks, from a trace to a file."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic import write_synthetic
from cuptimem.cli import main
from cuptimem.output.text.words import size
from cuptimem.report.load import analyze
from tests.tools.pages.test_stacks_data import embedded, of, sums


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run.cmem"
    write_synthetic(str(path), 4000, 1, "cuda")
    return path


def written(trace: Path, kind: str) -> str:
    return (trace.parent / f"run-{kind}.html").read_text()


def test_flamegraph(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flamegraph", str(trace)]) == 0
    page = written(trace, "flamegraph")
    wrote = f"wrote {trace.parent / 'run-flamegraph.html'} ({size(len(page.encode()))}); open it in a browser"
    assert capsys.readouterr().out.startswith(wrote)
    report = analyze(str(trace))
    data = embedded(page)
    assert sums(data)[of(data, "peak")] == (report.peak.bytes, report.peak.count)
    assert sums(data)[of(data, "allocated")][0] == report.devices[0].allocated


def test_the_heading_is_a_name_and_facts_are_below(trace: Path) -> None:
    for verb in ("flamegraph", "tree", "table", "timeline"):
        assert main([verb, str(trace), "-o", str(trace.parent / f"run-{verb}.html")]) == 0
        head = written(trace, verb).split("<header>")[1].split("</header>")[0]
        name, facts = (re.findall(pattern, head) for pattern in (r"<h1>(.*?)</h1>", r"<span>(.*?)</span>"))
        assert len(name) == 1 and "allocations" not in name[0], verb
        assert f"{analyze(str(trace)).allocations:,} allocations" in facts, verb


def test_flamegraph_of_a_step(trace: Path) -> None:
    report = analyze(str(trace))
    step = report.steps[-1]
    assert main(["flamegraph", str(trace), "--step", str(step.index)]) == 0
    page = written(trace, "flamegraph")
    data = embedded(page)
    assert [m["what"] for m in data["measures"]] == ["peak", "end", "allocated", "temporary"]
    found = {m["what"]: bytes_ for m, (bytes_, _) in zip(data["measures"], sums(data), strict=True)}
    assert (found["peak"], found["end"], found["allocated"]) == (step.peak, step.end, step.allocated)
    assert f"Only step {step.index}." in page


def test_tree_and_table_and_diff(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["tree", str(trace), "-o", str(trace.parent / "run-tree.html"), "--inverted", "--what", "allocated"]) == 0
    )
    data = embedded(written(trace, "tree"))
    assert data["inverted"] and sums(data)[0][0] == analyze(str(trace)).devices[0].allocated
    assert main(["table", str(trace), "-o", str(trace.parent / "run-table.html"), "--by", "phase"]) == 0
    table = written(trace, "table")
    assert embedded(table)["by"] == "phase" and ", at the peak, " in table
    assert main(["tree", str(trace), "-o", str(trace.parent / "run-tree.html")]) == 0
    assert ", at the peak, " in written(trace, "tree")
    assert main(["diff", str(trace), str(trace), "-o", str(trace.parent / "run-diff.html")]) == 0
    assert all(c[0] == "same" for s in embedded(written(trace, "diff"))["devices"][0]["sections"] for c in s["changes"])
    capsys.readouterr()
    assert main(["tree", str(trace), "--json", "-o", str(trace.parent / "run-tree.html")]) == 1
    assert "choose one" in capsys.readouterr().err


def test_a_bad_place_is_refused_before_the_trace_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flamegraph", str(tmp_path / "none.cmem"), "-o", str(tmp_path / "no" / "a.html")]) == 1
    assert "is not a directory; make it first" in capsys.readouterr().err


def test_text_needs_no_template_engine(trace: Path) -> None:
    """jinja2 is loaded where a page is written, and nowhere else; torch never is."""
    program = (
        "import sys\nfrom cuptimem.cli import main\n"
        f"main(['table', {str(trace)!r}])\nassert 'jinja2' not in sys.modules\n"
        f"main(['table', {str(trace)!r}, '-o', '/dev/null'])\nassert 'jinja2' in sys.modules\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
