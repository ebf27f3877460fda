"""The fuzzer's harness in short, with gcc alone: the kept corpus, mutations that are always the same, and memory that
runs out. `make fuzz` is the long version (docs/testing.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import fuzz

from tests.build import SANITIZERS

MUTATIONS = 3000
OOM_INPUTS = 14
OOM_MOST = 60


@pytest.fixture(scope="module")
def driver() -> Path:
    return fuzz.build_driver(SANITIZERS["address"])


def corpus() -> list[Path]:
    return sorted(fuzz.CORPUS.iterdir())


def run(driver: Path, folder: Path, *words: object) -> str:
    done = subprocess.run(
        [str(driver), *map(str, words)],
        env={**os.environ, "FUZZ_FOLDER": str(folder)},
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"the input is {folder / 'current'}\n{done.stderr[-6000:]}"
    return done.stdout


def test_the_corpus_is_small_and_holds_every_kind_of_input() -> None:
    inputs = [path.read_bytes() for path in corpus()]
    assert 100 < len(inputs) < 400 and sum(map(len, inputs)) < 300 << 10
    assert sum(data.startswith(b"CMFZ") for data in inputs) >= 10  # with a ring file
    assert sum(data.startswith(b"CUPTIMEM") for data in inputs) >= 50
    assert any(path.name.startswith("regression-") for path in corpus())


def test_corpus(driver: Path, tmp_path: Path) -> None:
    assert run(driver, tmp_path, "replay", *corpus()) == f"{len(corpus())} inputs\n"


@pytest.mark.parametrize("seed", [1, 2])
def test_mutations(driver: Path, tmp_path: Path, seed: int) -> None:
    assert run(driver, tmp_path, "mutate", seed, MUTATIONS // 2, *corpus()) == f"{MUTATIONS // 2} mutations\n"


def test_out_of_memory(driver: Path, tmp_path: Path) -> None:
    """The k-th allocation fails, alone or with all after it: an error or the right answer, nothing else."""
    some = corpus()[:: max(1, len(corpus()) // OOM_INPUTS)]
    failures = int(run(driver, tmp_path, "oom", OOM_MOST, *some).split()[0])
    assert failures >= 20 * len(some)


def test_a_broken_promise_is_noticed(driver: Path, tmp_path: Path) -> None:
    """The driver's own check, and the sanitizers are on: an input that is not there ends it with a word."""
    done = subprocess.run([str(driver), "replay", str(tmp_path / "none")], check=False, capture_output=True, text=True)
    assert done.returncode == 2 and "cannot read" in done.stderr
    assert b"__asan" in driver.read_bytes() and b"__ubsan" in driver.read_bytes()
