"""Callbacks with the real trainers, the newest and those of a year ago (`make trainers`)."""

import contextlib
import csv
import json
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.report import logged
from tests.conftest import ROOT, clean_environment
from tests.tools.ranks import test_starting as starting

pytestmark = [pytest.mark.torch, pytest.mark.extended]

PROGRAMS = Path(__file__).parent / "programs"
WEIGHT = 4 * 256 * 256
STATE = 2 * WEIGHT + 4  # of Adam, with its count of steps
PARTS = ("parameters", "gradients", "state", "activations", "kept", "other")
PYTHONS = os.environ.get("CUPTIMEM_TRAINERS_PYTHONS", "").split(":")


@pytest.fixture(params=[".venv-trainers", ".venv-trainers-old"] if PYTHONS == [""] else PYTHONS)
def trainer_python(request: pytest.FixtureRequest) -> str:
    named = Path(request.param)
    python = named if PYTHONS != [""] else ROOT / named / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{request.param} is not here; `make trainers` makes it")
    return str(python)


def start(python: str, folder: Path, program: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    offline = {"WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    offline |= {"TRACKIO_DIR": str(folder / "trackio"), "HOME": str(folder)}
    return subprocess.run(
        [python, str(PROGRAMS / program), *arguments],
        cwd=folder,
        env={**clean_environment(), **offline, **env},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=400,
    )


def check_parts(row: dict[str, Any], place: str = "memory/cpu/") -> None:
    assert sum(row[f"{place}peak_{part}_bytes"] for part in PARTS) == row[f"{place}peak_bytes"]


def scalars(folder: Path) -> dict[str, list[int]]:
    """Steps of each tag in the event files of a folder."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found: dict[str, list[int]] = {}
    for file in folder.rglob("events.out.tfevents.*"):
        one = accumulator.EventAccumulator(str(file))
        one.Reload()
        for tag in one.Tags()["scalars"]:
            found.setdefault(tag, []).extend(event.step for event in one.Scalars(tag))
    return found


def test_a_trainers_log_history_and_its_reporters_have_the_figures(trainer_python: str, tmp_path: Path) -> None:
    done = start(trainer_python, tmp_path, "hf.py", REPORTERS="wandb tensorboard mlflow trackio")
    assert done.returncode == 0, done.stderr[-3000:]
    history = json.loads((tmp_path / "history.json").read_text())
    steps = [row for row in history if "loss" in row]
    assert [row["step"] for row in steps] == [5, 10, 15, 20]
    for row in steps:
        assert row["memory/step"] == row["step"]
        check_parts(row)
    assert len({row["memory/cpu/peak_parameters_bytes"] for row in steps}) == 1
    assert len({row["memory/cpu/peak_state_bytes"] for row in steps}) == 1
    assert "memory/growth_bytes_per_step" not in steps[0]
    evaluated = [row for row in history if "eval_loss" in row]
    for row in evaluated:
        check_parts(row, "memory/evaluate/cpu/")
        assert row["memory/evaluate/cpu/peak_gradients_bytes"] == 0
        assert "memory/cpu/peak_bytes" not in row
    assert any("memory/save/cpu/peak_bytes" in row for row in history)
    assert "memory/" not in done.stdout  # the console
    assert list(logged.numbers(cuptimem.open(tmp_path / "run-0.cmem")).values()) == list(range(1, 21))
    assert cuptimem.open(tmp_path / "run-0-2.cmem").environment[logged.PHASE] == "predict"
    assert "cuptimem summary run-0.cmem" in done.stderr and "run-0-2.cmem" in done.stderr  # train, then predict
    (run,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    data = run.read_bytes()
    for name in (b"train/memory/cpu/peak_bytes", b"train/memory/evaluate/cpu/peak_state_bytes"):
        assert name in data
    assert scalars(tmp_path).get("train/memory/cpu/peak_bytes") == [5, 10, 15, 20]
    assert trackio_steps(tmp_path / "trackio", "train/memory/step") == [5, 10, 15, 20]
    assert mlflow_steps(trainer_python, tmp_path, "memory/cpu/peak_bytes") == [5, 10, 15, 20]


def trackio_steps(folder: Path, metric: str) -> list[int]:
    """Values of a metric, in its rows of training, in the one project's data base."""
    (base,) = folder.glob("*.db")
    with contextlib.closing(sqlite3.connect(base)) as connection:
        rows = [json.loads(row) for (row,) in connection.execute("SELECT metrics FROM metrics ORDER BY id")]
    return [row[metric] for row in rows if "train/loss" in row]


def mlflow_steps(python: str, folder: Path, metric: str) -> list[int]:
    program = (
        "import json, mlflow\nclient = mlflow.MlflowClient()\n"
        "run, = mlflow.search_runs(search_all_experiments=True, output_format='list')\n"
        f"print(json.dumps([one.step for one in client.get_metric_history(run.info.run_id, {metric!r})]))\n"
    )
    done = subprocess.run(
        [python, "-c", program], cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return sorted(found)


@pytest.mark.parametrize("mode", ["report_to", "attach"])
def test_a_callback_that_is_no_argument(trainer_python: str, tmp_path: Path, mode: str) -> None:
    done = start(trainer_python, tmp_path, "hf.py", mode)
    assert done.returncode == 0, done.stderr[-3000:]
    history = json.loads((tmp_path / "history.json").read_text())
    assert "memory/process_bytes" in history[-1]
    assert list(tmp_path.glob("cuptimem-hf.*.cmem"))


def test_a_trainer_that_is_refused_memory(trainer_python: str, tmp_path: Path) -> None:
    done = start(trainer_python, tmp_path, "hf.py", "oom")
    assert done.returncode == 1
    page = tmp_path / "run-0.oom.txt"
    assert page.read_text().startswith("Out of memory on cpu: 7.3 TiB refused")
    assert done.stderr.rstrip().endswith(f"cuptimem: what the memory was made of: {page}")


def test_a_trainer_that_catches_the_refusal(trainer_python: str, tmp_path: Path) -> None:
    """auto_find_batch_size: it goes on with half the batch."""
    done = start(trainer_python, tmp_path, "hf.py", "caught")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "torch.empty(10**15)" in (tmp_path / "run-0.oom.txt").read_text()
    assert done.stderr.count("out of memory on cpu: run-0.oom.txt") == 1
    assert list(logged.numbers(cuptimem.open(tmp_path / "run-0.cmem")).values()) == list(range(1, 21))


def test_lightning(trainer_python: str, tmp_path: Path) -> None:
    done = start(trainer_python, tmp_path, "pl.py")
    assert done.returncode == 0, done.stderr[-3000:]
    (dashed,) = (tmp_path / "dashed").rglob("metrics.csv")
    assert "memory-evaluate-cpu-peak_bytes" in dashed.read_text() and "memory/" not in dashed.read_text()
    with open(next((tmp_path / "logs").rglob("metrics.csv")), encoding="utf-8") as file:
        rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
    trained = [row for row in rows if "memory/cpu/peak_bytes" in row]
    assert [row["memory/step"] for row in trained] == [5, 10, 15, 20]
    for row in trained:
        check_parts(row)
        assert row["memory/cpu/peak_parameters_bytes"] == row["memory/cpu/peak_gradients_bytes"] == WEIGHT
        assert row["memory/cpu/peak_state_bytes"] == STATE
    assert list(logged.numbers(cuptimem.open(tmp_path / "run-0.cmem")).values()) == list(range(1, 21))
    assert [cuptimem.open(tmp_path / f"run-0-{n}.cmem").environment[logged.PHASE] for n in (2, 3)] == [
        "test",
        "predict",
    ]
    for phase in ("sanity_check", "evaluate", "test", "predict"):
        assert any(f"memory/{phase}/cpu/peak_bytes" in row for row in rows), phase
    assert (tmp_path / "run-0.cmem").exists() and (tmp_path / "run-0-2.cmem").exists()  # fit, test


def test_lightning_is_refused_memory(trainer_python: str, tmp_path: Path) -> None:
    done = start(trainer_python, tmp_path, "pl.py", "oom")
    assert done.returncode == 1
    page = tmp_path / "run-0.oom.txt"
    assert page.read_text().startswith("Out of memory on cpu: 3.6 PiB refused")
    assert f"cuptimem: what the memory was made of: {page}" in done.stderr


def test_accelerate(trainer_python: str, tmp_path: Path) -> None:
    done = start(trainer_python, tmp_path, "hfacc.py")
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["memory/step"] for row in rows] == [row["at"] for row in rows] == [10, 20, 30]
    for row in rows:
        check_parts(row)
        assert row["memory/cpu/peak_state_bytes"] == STATE
        assert row["memory/cpu/live_bytes"] == WEIGHT + STATE
    assert (tmp_path / "run-0.cmem").exists()


def test_a_loop_with_each_logger(trainer_python: str, tmp_path: Path) -> None:
    done = start(trainer_python, tmp_path, "loggers.py")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "step 4: cpu/peak 512.0 KiB" in done.stdout
    assert scalars(tmp_path / "tb")["memory/cpu/peak_bytes"] == [2, 4]
    assert mlflow_steps(trainer_python, tmp_path, "memory/cpu/peak_bytes") == [2, 4]
    (run,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"memory/cpu/peak_bytes" in run.read_bytes()


LAUNCH = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"]
LAUNCH += ["--mixed_precision=no", "--dynamo_backend=no"]
STARTED = {
    "recorded": ([*LAUNCH, "-m", "cuptimem", "run", "-o", starting.RANK, starting.PROGRAM], {}, 0),
    "variables": ([*LAUNCH, starting.PROGRAM], {"CUPTIMEM": starting.RANK, "CUPTIMEM_FOLLOW": "1"}, 1),
}


@pytest.mark.parametrize("way", STARTED)
def test_accelerate_launch(trainer_python: str, tmp_path: Path, way: str) -> None:
    starting.check(tmp_path, trainer_python, *STARTED[way])
