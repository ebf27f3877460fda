"""python -m evidence.gpu with a simulated device in the GPU's place: every check runs, and the simulated device
gives the expected answers."""

import json
import subprocess
from pathlib import Path

import pytest

from evidence.gpu import tables
from evidence.gpu.checks import CHECKS, NESTED, lengths
from evidence.gpu.compare_real import NO_GPU
from tests.conftest import ROOT, Result, clean_environment

KEYS = [check.key for check in CHECKS]


def run(python: str, *arguments: str) -> Result:
    done = subprocess.run(
        [python, "-W", "ignore", "-m", "evidence.gpu", *arguments],
        capture_output=True,
        text=True,
        env={**clean_environment(), "CUDA_VISIBLE_DEVICES": ""} if not arguments else clean_environment(),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    return Result(done.returncode, done.stdout, done.stderr)


# extended: cudasim/tests and on_device/simulated ask the same of the simulated device.
@pytest.mark.cuda_torch
@pytest.mark.extended
def test_every_check_on_the_simulated_device(sim_python: str) -> None:
    done = run(sim_python, "--stand-in", "h100")
    assert done.code == 0, done.out + done.err
    said = [line.split(maxsplit=1)[1] for line in done.out.splitlines() if line[:3].strip().isdigit()]
    assert said == [f"{key:20} as expected" for key in KEYS]


@pytest.mark.cuda_torch
def test_without_a_gpu_it_says_so(sim_python: str) -> None:
    done = run(sim_python)
    assert (done.code, done.err) == (NO_GPU, "")
    assert done.out.startswith("There is no GPU here")


def test_every_question_has_a_check() -> None:
    assert {check.number for check in CHECKS} == set(range(1, 11))
    assert len(set(KEYS)) == len(KEYS)


def test_other_answers_are_seen() -> None:
    by_key = {check.key: check for check in CHECKS}
    answers = {
        "virtual": [{"records": 2, "callbacks": [547, 549, 551, 552, 550, 548]}, {"records": 0, "callbacks": []}],
        "nested": [
            {
                "driver_domain": {name: {"driver": calls} for name, calls in NESTED.items()},
                "both_domains": {n: {"driver": calls, "same_id": n != "cudaFree"} for n, calls in NESTED.items()},
            }
        ],
        "correlation": [
            {"memory": {"records": 20, "zero": 20, "matched": 0}, "kernels": {"records": 10, "zero": 0, "matched": 10}}
        ],
        "kinds": [{"nested": 3}],
        "own": [{"callbacks": 1}],
        "lengths": [{"version": 18, "lengths": {"49": 128}}, {"version": 777, "lengths": {}}],
        "ends": [{"late": 1, "inside_after_return": 0, "child": 0}, {"late": 0, "inside_after_return": 0, "child": -1}],
        "ours_first": [{"kernels_inside": 0, "kernels_after": 5, "unknown_frees": 0}],
        "theirs_first": [{"kernels_before": 4, "kernels_around": 0, "unknown_frees": 0}],
        "back end native": [
            {"mode": "slots", "unknown_frees": 0, "ledger": [{"residual": 0}]},
            {"mode": "callbacks", "unknown_frees": 0, "ledger": [{"residual": 1}]},
        ],
    }  # fmt: skip
    for key, facts in answers.items():
        assert all(by_key[key].judge(one) for one in facts), key
    assert set(answers) | {"cost"} | {key for key in KEYS if key.startswith("back end")} == set(KEYS)


def test_lengths_by_version() -> None:
    assert lengths(130001)["49"] == 128 and lengths(130000)["50"] == 80
    assert lengths(18)["49"] == 120 and lengths(24)["49"] == 128
    assert lengths(5) == {}


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tables.NOT_RUN in tables.driver([])
    rows = [
        {"check": "virtual", "told": "0 records", "differs": ""},
        {"check": "kinds", "told": "", "differs": "nested: 1"},
    ]
    monkeypatch.setattr(tables, "DRIVER_RESULTS", tmp_path)
    (tmp_path / "x.json").write_text(json.dumps({"device": {"name": "GPU X"}, "rows": rows}))
    made = tables.driver(tables.driver_results())
    assert "| GPU X |" in made and "| 0 records |" in made and "| **nested: 1** |" in made
    assert made.count(tables.NOT_RUN) == len(CHECKS) - 2
