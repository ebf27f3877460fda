"""Leaks of real trainings, from the program to the report, the terminal and the exit code."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import Result, clean_environment
from tests.forkserver import Forks

pytestmark = pytest.mark.torch

Run = Callable[..., Result]
HERE = Path(__file__).parent
LEAKING = HERE / "leaking.py"  # imports torch: never imported here
KEPT_BYTES = 4 * 1000  # of each tensor that one of its flaws keeps
FLAWS = ("keep_outputs", "sum_losses", "grow", "cycles", "waiting", "nothing")


@pytest.fixture(scope="module")
def traces(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process, one trace for each flaw."""
    folder = tmp_path_factory.mktemp("leaks")
    script = folder / "program.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(HERE)!r})\nimport leaking, torch.optim\nleaking.main()\n")
    done = forks.of(script.read_text()).run(script, *FLAWS, environment=clean_environment(), cwd=folder)
    assert (done.code, done.err) == (0, "")
    return folder


def only_leak(report: cuptimem.Report) -> cuptimem.Leak:
    assert len(report.leaks) == 1, [(leak.kind, leak.where) for leak in report.leaks]
    return report.leaks[0]


def function_of(frame: cuptimem.Frame | None) -> str:
    assert frame is not None and frame.file == str(LEAKING)
    return frame.function


def test_a_list_that_keeps_tensors(traces: Path) -> None:
    leak = only_leak(cuptimem.open(traces / "keep_outputs.cmem"))
    assert (leak.kind, leak.device, leak.signature, leak.cause, leak.reason) == ("bytes", "cpu", "survivors", "", "")
    assert function_of(leak.frame) == "keep_outputs"
    assert leak.frame is not None and "append" in leak.frame.source
    assert leak.bytes == leak.count * KEPT_BYTES
    assert leak.bytes_per_step == pytest.approx(KEPT_BYTES, rel=0.1)
    assert leak.count_per_step == pytest.approx(1, rel=0.1)
    assert sum(part.bytes for part in leak.parts) == leak.bytes


def test_a_tensor_that_grows(traces: Path) -> None:
    leak = only_leak(cuptimem.open(traces / "grow.cmem"))
    assert (leak.kind, leak.signature) == ("bytes", "growing")
    assert function_of(leak.frame) == "grow"
    assert leak.bytes_per_step == pytest.approx(KEPT_BYTES, rel=0.1)


def test_a_graph_that_grows(traces: Path) -> None:
    report = cuptimem.open(traces / "sum_losses.cmem")
    if report.nodes is None:
        pytest.skip(f"graph nodes are not counted: {report.nodes_reason}")
    leak = next(leak for leak in report.leaks if leak.kind == "nodes")
    assert function_of(leak.frame) == "sum_losses"
    assert leak.frame is not None and '"total"' in leak.frame.source
    assert function_of(leak.made_frame) == "train"
    assert leak.count_per_step == round(leak.count_per_step) >= 2
    assert report.nodes >= leak.count


def test_cycles_while_no_collection_runs(traces: Path) -> None:
    leak = only_leak(cuptimem.open(traces / "cycles.cmem"))
    assert (leak.kind, leak.cause) == ("bytes", "cycle")
    assert function_of(leak.frame) == "cycles"
    assert leak.bytes_per_step == pytest.approx(KEPT_BYTES, rel=0.1)


def test_garbage_that_waits_is_no_leak(traces: Path) -> None:
    report = cuptimem.open(traces / "waiting.cmem")
    assert report.leaks == ()
    assert [(function_of(one.frame), one.reason) for one in report.suspects] == [("cycles", "garbage")]


def test_a_clean_training(traces: Path) -> None:
    report = cuptimem.open(traces / "nothing.cmem")
    assert (report.leaks, report.suspects) == ((), ())
    assert "No leak: 24 steps judged, no" in str(report)


def test_the_verb(call: Run, traces: Path) -> None:
    done = call("leaks", "keep_outputs.cmem", "--fail-on-leak", cwd=traces)
    assert (done.code, done.err) == (3, "")
    assert "1 leak in 24 steps" in done.out
    assert f"api{os.sep}leaking.py:" in done.out and 'state.setdefault("outputs", [])' in done.out
    document = json.loads(call("leaks", "keep_outputs.cmem", "--json", cwd=traces).out)
    assert document["judged"] == [{"loop": "training", "steps": 24, "enough": True}]
    assert document["leaks"][0]["stack"][0]["function"] == "keep_outputs"
    clean = call("leaks", "nothing.cmem", "--fail-on-leak", cwd=traces)
    assert (clean.code, clean.err) == (0, "")
    assert "No leak: 24 steps judged, no" in clean.out
