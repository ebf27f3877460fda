"""The benchmarks run and say what they should; how long things take is never asserted here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [path for path in (str(ROOT),) if path not in sys.path]

from benchmarks.measure import paired, spread  # noqa: E402
from benchmarks.promises import PROMISES, Verdict  # noqa: E402


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUPTIMEM_BENCH": "1"}
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)


EVERY = {
    "micro", "gpt", "small_step", "transformers", "resnet", "size", "analysis", "windows", "analysis_driver", "report",
    "resident", "stopped", "import", "cuda", "cuda_gpt2", "driver", "kernels", "driver_step", "simulator",
    "steady",
}  # fmt: skip
SHORT = {"micro", "analysis", "windows", "analysis_driver", "import"}


@pytest.mark.torch
@pytest.mark.scaled
def test_quick_run(tmp_path, long):
    target = tmp_path / "result.json"
    names = EVERY if long else SHORT
    done = run("--quick", "--json", str(target), *sorted(names))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(target.read_text())
    assert result["schema"] == 1 and result["quick"] and result["failed"] == []
    assert result["machine"]["torch"]
    assert {row["benchmark"] for row in result["rows"]} == names
    for row in result["rows"]:
        if "ratio" in row:
            assert row["ratio"]["median"] > 0 and row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
    judged = {v["promise"] for v in result["promises"]}
    assert judged == set(PROMISES) if long else {"micro"} < judged < set(PROMISES)
    assert {v["verdict"] for v in result["promises"]} == {"not measured"}, "a quick run judges nothing"
    for name in judged:
        assert PROMISES[name].text in done.stdout
    if long:
        has_every_mode(result["rows"])


def has_every_mode(rows):
    modes = {row["what"] for row in rows if row["benchmark"] == "gpt"}
    assert modes == {"bare", "cuptimem", "torch.profiler", "memray", "tracemalloc"}
    recorded = [row for row in rows if row["benchmark"] == "gpt" and row["what"] == "cuptimem"]
    assert recorded and all(row["disk_bytes_per_step"] > 0 for row in recorded)
    reports = [row for row in rows if row["benchmark"] == "report" and "why" not in row]
    assert {"cuptimem summary", "torch.profiler table"} <= {row["what"] for row in reports}
    assert all(row["recording_mib"] > 0 and row["allocations"] > 100 for row in reports)
    driver = [row["what"] for row in rows if row["benchmark"] == "driver" and "why" not in row]
    assert driver == [] or driver == [
        f"{call}, {mode}"
        for call in ("cudaMalloc", "cudaMallocAsync")
        for mode in ("bare", "empty client", "cuptimem", "empty client, records", "cuptimem, records")
    ]


def test_unknown_names_are_refused():
    done = run("nonsense")
    assert done.returncode == 2
    assert "nonsense" in done.stderr and "micro" in done.stderr


def test_spread():
    found = spread([5.0, 1.0, 3.0])
    assert (found.median, found.n) == (3.0, 3)
    assert 1 <= found.low <= found.q1 <= 3 <= found.q3 <= found.high <= 5
    assert spread([2.0]).q3 == 2.0
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_pairs_are_compared_with_their_neighbours():
    values, base = [11.0, 110.0, 1100.0], [10.0, 100.0, 1000.0]
    assert paired(values, base, ratio=True).median == pytest.approx(1.1)
    assert paired(values, base, ratio=False).median == pytest.approx(10.0)


def test_verdicts():
    assert Verdict(PROMISES["micro"], 99.0).word == "kept"
    assert Verdict(PROMISES["micro"], 101.0).word == "MISSED"
    assert Verdict(PROMISES["micro"], None, why="no").word == "not measured"
    assert Verdict(PROMISES["stopped"], 3.0, (-2.0, 8.0)).word == "kept"
    assert Verdict(PROMISES["stopped"], 3.0, (1.0, 5.0)).word == "MISSED"
