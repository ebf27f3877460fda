"""Scalars, as TensorBoard's own reader finds them: every step, in the program's own numbers."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboard", reason="tensorboard is not installed here: pip install tensorboard")

import cuptimem
from cuptimem.report.model import Report
from cuptimem.tensorboard import export
from cuptimem.tensorboard import scalars as written
from cuptimem.tensorboard.data import FOLDER, SUFFIX
from tests.conftest import Result
from tests.tools.tensorboard.support import four_bytes, rank_environment, report, scalars, write

Run = Callable[..., Result]


def agree(found: dict[str, dict[int, tuple[float, float]]], reports: list[tuple[int, Report]]) -> int:
    """Every scalar is what its report says, and none is missing. Returns how many there are."""
    expected: dict[tuple[str, int], tuple[float, float]] = {}
    for first, one in reports:
        for step in one.steps:
            at = (one.start_realtime_ns + step.end_ns) / 1e9
            number = first + step.index
            expected[f"Memory/Allocated/{step.device}", number] = four_bytes(step.end), at
            expected[f"Memory/Peak/{step.device}", number] = four_bytes(step.peak), at
            if step.reserved is not None:
                expected[f"Memory/Reserved/{step.device}", number] = four_bytes(step.reserved), at
    others = {tag: rows for tag, rows in found.items() if tag.startswith(("Memory/A", "Memory/P", "Memory/R"))}
    assert {(tag, step): value for tag, rows in others.items() for step, value in rows.items()} == expected
    return len(expected)


def test_cycles_append_to_one_file(tmp_path: Path) -> None:
    made = report(tmp_path / "source")
    for first in (0, 100, 200):
        write(made, tmp_path / "run", first)
    files = [name for name in os.listdir(tmp_path / "run") if "tfevents" in name]
    assert len(files) == 1 and files[0].endswith(".cuptimem")
    assert agree(scalars(tmp_path / "run"), [(first, made) for first in (0, 100, 200)]) == 18


def test_after_an_error_the_file_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = report(tmp_path / "source")
    write(made, tmp_path / "run")
    (file,) = (tmp_path / "run").glob("*tfevents*")
    before = file.read_bytes()

    def full(*_arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(written, "_event", full)
    with pytest.raises(OSError, match="No space left"):
        write(made, tmp_path / "run", 100)
    assert file.read_bytes() == before


def test_ranks_are_runs_of_their_own(tmp_path: Path) -> None:
    from cuptimem.tensorboard.handler import run_folder

    one, two = (report(tmp_path / "source", environment=rank_environment(rank, 2)) for rank in (0, 1))
    assert run_folder("logs", one) == os.path.join("logs", "rank0")
    assert run_folder("logs", two) == os.path.join("logs", "rank1")
    alone = report(tmp_path / "source", environment=rank_environment(0, 1))
    assert run_folder("logs", alone) == "logs"
    hostile = report(tmp_path / "source", environment={"rank": "../../etc", "world_size": "2"})
    assert run_folder("logs", hostile) == "logs"
    assert run_folder("logs", hostile, {"rank": "3", "world_size": "4"}) == os.path.join("logs", "rank3")


@pytest.mark.torch
def test_a_spawned_rank_has_no_variables(run: Run, tmp_path: Path) -> None:
    program = (
        "import torch, torch.distributed as d, cuptimem\n"
        "d.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1)\n"
        "d.get_rank, d.get_world_size = lambda: 1, lambda: 2\n"
        "with cuptimem.profile(on_trace_ready=cuptimem.tensorboard_handler('logs')) as prof:\n"
        "    for _ in range(2):\n        torch.ones(100)\n        prof.step()\n"
    )
    done = run("-c", program)
    assert done.code == 0 and "cuptimem" not in done.err, done.err
    assert os.listdir(tmp_path / "logs") == ["rank1"]
    assert sorted(scalars(tmp_path / "logs" / "rank1")["Memory/Peak/cpu"]) == [0, 1]


def test_worker_names_stay_in_their_folder(tmp_path: Path) -> None:
    from cuptimem.tensorboard.handler import worker_name

    made = report(tmp_path / "source", environment={"host": "../../x/y\n", "pid": "7"})
    for name in (worker_name(made), worker_name(made, "/etc/passwd"), worker_name(made, "..")):
        assert name and "/" not in name and not name.startswith(".") and name.isprintable()


TRAINING = """
import json, sys
import torch
from torch.utils.tensorboard import SummaryWriter
import cuptimem

logdir, named = sys.argv[1:3]
cycles = []

def ready(prof):
    handler(prof)
    report = prof.report
    blocks = [one for leak in report.leaks for one in (leak, *leak.keeps) if one.kind == "bytes"]
    leaks = [sum(one.bytes for one in blocks), len(report.leaks)]
    cycles.append([prof.first_step, report.start_realtime_ns, report.steps.to_dicts(), leaks])

handler = cuptimem.tensorboard_handler(logdir)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
schedule = cuptimem.schedule(skip_first=3, wait=4, warmup=1, active=10)
with SummaryWriter(logdir) as writer, cuptimem.profile(schedule=schedule, on_trace_ready=ready) as prof:
    for step in range(36):
        loss = model(torch.randn(8 + step, 64)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.append(torch.ones(1000))
        writer.add_scalar("Loss", step, step)
        prof.step()

plain = []
other = cuptimem.tensorboard_handler(named)
for _ in range(2):
    with cuptimem.profile() as prof:  # no prof.step(): the optimizer counts
        for step in range(9):
            model(torch.randn(8, 64)).sum().backward()
            optimizer.step()
    other(prof)
    other(prof)  # the same recording again
    plain.append([prof.report.clock.kind, prof.report.start_realtime_ns, prof.report.steps.to_dicts()])
print(json.dumps([cycles, plain]))
"""


@pytest.fixture(scope="module")
def trained(needs_torch: None, tmp_path_factory: pytest.TempPathFactory, python: str) -> tuple[Path, Any]:
    import subprocess

    from tests.conftest import clean_environment

    folder = tmp_path_factory.mktemp("trained")
    done = subprocess.run(
        [python, "-c", TRAINING, str(folder / "logs" / "one"), str(folder / "logs" / "plain")],
        capture_output=True,
        text=True,
        env=clean_environment(),
        cwd=folder,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "cuptimem" not in done.stderr
    return folder / "logs", json.loads(done.stdout)


def expected(cycles: list[Any]) -> dict[tuple[str, int], tuple[float, float]]:
    found = {}
    for first, start, steps in cycles:
        for step in steps:
            at = (start + step["end_ns"]) / 1e9
            found[f"Memory/Allocated/{step['device']}", first + step["index"]] = four_bytes(step["end"]), at
            found[f"Memory/Peak/{step['device']}", first + step["index"]] = four_bytes(step["peak"]), at
    return found


def flat(found: dict[str, dict[int, Any]], *starts: str) -> dict[tuple[str, int], Any]:
    return {(tag, step): value for tag, rows in found.items() if tag.startswith(starts) for step, value in rows.items()}


@pytest.mark.torch
def test_cycles_of_a_schedule_have_the_programs_own_steps(trained: tuple[Path, Any]) -> None:
    logs, (cycles, _plain) = trained
    found = scalars(logs / "one")
    assert [first for first, *_ in cycles] == [8, 23]
    assert flat(found, "Memory/A", "Memory/P") == expected([cycle[:3] for cycle in cycles])
    assert sorted(found["Memory/Peak/cpu"]) == [*range(8, 18), *range(23, 33)]


@pytest.mark.torch
def test_the_pages_files_have_the_same_steps(trained: tuple[Path, Any]) -> None:
    logs, (cycles, _plain) = trained
    files = sorted((logs / "one" / FOLDER).iterdir(), key=lambda one: one.stat().st_mtime_ns)
    assert len(files) == len(cycles) == 2
    for file, (first, start, steps, _leaks) in zip(files, cycles, strict=True):
        found = json.loads(gzip.decompress(file.read_bytes()))
        assert found["start_realtime_ns"] == start
        assert [(row[0], row[6]) for row in found["steps"]] == [(first + s["index"], s["peak"]) for s in steps]
        (device,) = found["chart"]["devices"]
        assert device["steps"]["index"] == [first + step["index"] for step in steps]
        assert device["peak"]["step"] == found["devices"][0]["peak_step"] >= first
        assert found["leaks"][0]["first_step"] >= first


@pytest.mark.torch
def test_the_summary_writers_scalars_are_in_the_same_run(trained: tuple[Path, Any]) -> None:
    logs, _ = trained
    loss = scalars(logs / "one")["Loss"]
    assert [(step, value) for step, (value, _time) in sorted(loss.items())] == [
        (step, float(step)) for step in range(36)
    ]
    ours, theirs = sorted(name for name in os.listdir(logs / "one") if "tfevents" in name)
    assert "cuptimem" in ours and "cuptimem" not in theirs  # read first: see tensorboard/scalars.py


@pytest.mark.torch
def test_leaked_bytes_are_those_of_the_verdicts(trained: tuple[Path, Any]) -> None:
    logs, (cycles, _plain) = trained
    found = scalars(logs / "one")["Memory/Leaked/cpu"]
    assert {step: value for step, (value, _time) in found.items()} == {17: cycles[0][3][0], 32: cycles[1][3][0]}
    assert all(verdicts == 1 and size >= 8 * 4000 for *_, (size, verdicts) in cycles)


@pytest.mark.torch
def test_another_clock_goes_on_counting_in_the_next_recording(trained: tuple[Path, Any]) -> None:
    logs, (_cycles, plain) = trained
    assert [kind for kind, *_ in plain] == ["optimizer", "optimizer"]
    counts = [len({step["index"] for step in steps}) for *_, steps in plain]
    starts = [0, counts[0]]
    found = flat(scalars(logs / "plain"), "Memory/A", "Memory/P")
    assert found == expected([(first, start, steps) for first, (_, start, steps) in zip(starts, plain, strict=True)])
    assert len(list((logs / "plain" / FOLDER).glob(f"*{SUFFIX}"))) == 2  # the second call replaced the first's file


@pytest.mark.torch
def test_a_trace_is_exported(run: Run, tmp_path: Path) -> None:
    program = (
        "import cuptimem, torch\nwith cuptimem.profile('a.cmem') as prof:\n"
        "    for _ in range(9):\n        x = torch.ones(5000)\n        prof.step()\n"
    )
    done = run("-c", program)
    assert done.code == 0, done.err
    for _ in range(2):  # again: it replaces
        export.write(tmp_path / "a.cmem", tmp_path / "logs", None)
    made = cuptimem.open(tmp_path / "a.cmem")
    assert agree(scalars(tmp_path / "logs"), [(0, made)]) == 2 * len(made.steps)
    assert len(list((tmp_path / "logs" / FOLDER).iterdir())) == 1


def test_what_cannot_be_written_is_one_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Training goes on."""
    handler = cuptimem.tensorboard_handler(tmp_path / "logs")
    os.rmdir(tmp_path / "logs")
    (tmp_path / "logs").write_text("in the way")
    with cuptimem.profile(on_trace_ready=handler) as prof:
        prof.step()
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "TensorBoard gets nothing of this cycle" in said


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(cuptimem.Error, match="cannot be made"):
        cuptimem.tensorboard_handler(tmp_path / "file" / "logs")
