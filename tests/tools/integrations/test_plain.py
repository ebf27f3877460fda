"""cuptimem.log around a loop of one's own: figures to the byte, phases, growth, refused memory, ranks."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import cuptimem
from cuptimem.integrations import live
from cuptimem.output.text import text, views
from cuptimem.report import logged
from tests.conftest import Result

pytestmark = pytest.mark.torch

Run = Callable[..., Result]
PROGRAMS = Path(__file__).parent / "programs"
WEIGHT = 4 * 256 * 256
STATE = 2 * WEIGHT + 4  # of Adam, with its count of steps


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path("rows.json").read_text())
    return found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("since", "waits"), [(0.02, 0.0001), (1.0, 0.005), (60.0, 0.01)])
def test_a_log_waits_for_a_share_of_the_time_since_the_last(
    monkeypatch: pytest.MonkeyPatch, since: float, waits: float
) -> None:
    """Without its thread: nothing is left to be read."""
    now, waited = [100.0], []

    class Changed(contextlib.nullcontext[None]):
        def wait_for(self, _: object, wait: float) -> None:
            waited.append(wait)

    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(live, "recording_core", object)
    monkeypatch.setattr(live.LiveReader, "_open", lambda _: None)
    monkeypatch.setattr(live, "threading", SimpleNamespace(Condition=Changed, Thread=lambda **_: Mock()))
    reader = live.LiveReader(Mock(), None, lambda: None, None)
    now[0] += since
    reader.take()
    reader.take(wait=7)
    assert waited == [pytest.approx(waits), 7]


def test_figures_are_exact_and_growth_is_named(forked: Run) -> None:
    done = forked(str(PROGRAMS / "loop.py"), "leak", cwd=Path.cwd())
    assert done.code == 0, done.err
    *found, last = rows()
    assert [row["at"] for row in found] == [10, 20, 30, 40]
    assert last["at"] == 41 and "memory/evaluate/cpu/peak_bytes" in last, "what is behind the last log comes at the end"
    for row in found:
        assert row["memory/step"] == row["at"]
        assert row["memory/cpu/live_bytes"] == WEIGHT + STATE + 4096 * row["at"]
        assert row["memory/cpu/peak_parameters_bytes"] == WEIGHT
        assert row["memory/cpu/peak_gradients_bytes"] == WEIGHT
        assert row["memory/cpu/peak_state_bytes"] == STATE
        assert row["memory/cpu/peak_kept_bytes"] == 4096 * (row["at"] - 1)
        parts = ("parameters", "gradients", "state", "activations", "kept", "other")
        assert sum(row[f"memory/cpu/peak_{part}_bytes"] for part in parts) == row["memory/cpu/peak_bytes"]
        assert row["memory/process_bytes"] > row["memory/cpu/peak_bytes"]
    assert "memory/growth_bytes_per_step" not in found[0]
    assert found[-1]["memory/growth_bytes_per_step"] == 4096
    assert "1 leak in 40 steps" in done.err and "cuptimem summary run-0.cmem" in done.err


def test_an_evaluation_has_its_own_figures(forked: Run) -> None:
    program = (PROGRAMS / "loop.py").read_text().replace("every=10", "every=41")
    done = forked("-c", program, cwd=Path.cwd())
    assert done.code == 0, done.err
    row, last = rows()
    result = 4096 * 256 * 4
    assert row["memory/evaluate/cpu/peak_bytes"] == WEIGHT + STATE + 2 * result
    assert last["memory/evaluate/cpu/peak_bytes"] == row["memory/evaluate/cpu/peak_bytes"]
    assert row["memory/cpu/peak_bytes"] < 2 * result
    assert row["memory/growth_bytes_per_step"] == 0


NUMBERED = """
import torch, cuptimem
model = torch.nn.Linear(256, 256, bias=False)
optimizer = torch.optim.SGD(model.parameters())
with cuptimem.log(print, path="run.cmem") as memory:
    for step in range(101, 113):
        model(torch.ones(step, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        memory.step(step)
        if step == 108:
            with memory.phase("evaluate"), torch.no_grad():
                for _ in range(4):
                    model(torch.ones(2, 256)).sum()
"""


def test_a_report_has_the_steps_numbers_in_the_logs(forked: Run) -> None:
    done = forked("-c", NUMBERED, cwd=Path.cwd())
    assert done.code == 0, done.err
    report = cuptimem.open("run.cmem")
    assert report.loops == {"training": 12, "evaluation": 4}
    assert logged.numbers(report) == dict(zip([*range(8), *range(12, 16)], range(101, 113), strict=True))
    assert "in step 15 (logged as 112)" in done.err and "in the logs 101 to 112" in " ".join(done.err.split())
    shown = text.render(views.steps(report, report.steps, 0), 120)
    assert "15        112  training" in shown and "11             evaluation" in shown

    for said in ("101-113", "1-2-3", "-", "", "101", "x-y", f"{'9' * 30}-{'9' * 5000}"):  # what does not agree
        assert logged.numbers(replace(report, environment={**report.environment, logged.STEPS: said})) == {}


def test_a_refusal_has_its_page_and_the_exception_its_path(forked: Run) -> None:
    done = forked(str(PROGRAMS / "loop.py"), "oom", cwd=Path.cwd())
    assert done.code == 1
    page = Path("run-0.oom.txt").resolve()
    assert page.read_text().startswith("Out of memory on cpu: 3.6 PiB refused")
    assert "out of memory on cpu: run-0.oom.txt" in done.err
    assert done.err.rstrip().endswith(f"cuptimem: what the memory was made of: {page}")


def test_a_caught_refusal_has_its_page(forked: Run) -> None:
    done = forked(str(PROGRAMS / "loop.py"), "caught", cwd=Path.cwd())
    assert done.code == 0, done.err
    assert "torch.empty(10**15)" in Path("run-0.oom.txt").read_text()
    assert done.err.count("out of memory on cpu: run-0.oom.txt") == 1


def test_it_joins_a_recording(forked: Run) -> None:
    done = forked("-m", "cuptimem", "run", "-o", "whole.cmem", str(PROGRAMS / "loop.py"), cwd=Path.cwd())
    assert done.code == 0, done.err
    assert Path("whole.cmem").exists() and not Path("run-0.cmem").exists()
    assert rows()[0]["memory/cpu/live_bytes"] == WEIGHT + STATE


@pytest.mark.afresh
def test_every_rank_is_told_of_the_failing_ranks_page(run: Run, needs_torch: None) -> None:
    done = run(
        *("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--log-dir", "logs"),
        *("--redirects", "3", str(PROGRAMS / "ranks.py")),
        cwd=Path.cwd(),
    )
    assert done.code == 1
    page = Path("run-1.oom.txt").resolve()
    said = {path.parent.name: path.read_text() for path in Path("logs").rglob("stderr.log")}
    assert "out of memory on cpu: run-1.oom.txt" in said["1"]
    assert "out of memory in another rank: run-1.oom.txt" in said["0"]
    (errors,) = Path("logs").rglob("error.json")
    assert str(page) in json.loads(errors.read_text())["message"]["extraInfo"]["py_callstack"]


def test_what_is_no_logger_is_refused(run: Run) -> None:
    done = run("-c", "import cuptimem; cuptimem.log(3)")
    assert "log() takes a W&B run, mlflow, a SummaryWriter, print or a function, not 3" in done.err
