"""The fuzzers in short: the seeds, the kept corpus, and a number of runs that are always the same, with gcc alone and,
where there is clang, with libFuzzer; and memory that runs out. `make fuzz` is the long version (tests/README.md)."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.build import SANITIZERS
from tests.tools.fuzz import fuzz, libfuzzer, records, snapshots

MUTATIONS = 1500
RUNS = 300  # of libFuzzer, besides what it begins with
RECORD_RUNS = 2000
SNAPSHOT_RUNS = 2000
OOM_INPUTS = 7
OOM_MOST = 60


def corpus() -> list[Path]:
    return sorted(fuzz.CORPUS.iterdir())


@pytest.fixture(scope="module")
def record_seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = libfuzzer.folder_of(records.seeds(), tmp_path_factory.mktemp("records") / "seeds")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def snapshot_seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = libfuzzer.folder_of(snapshots.seeds(), tmp_path_factory.mktemp("snapshots") / "seeds")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module", params=["reader", "records", "snapshots"])
def driver(needs_sanitizer: None, request: pytest.FixtureRequest) -> Path:
    """A harness without libFuzzer."""
    drivers = {
        "reader": fuzz.build_driver,
        "records": records.build_driver,
        "snapshots": snapshots.build_driver,
    }
    build = drivers[request.param]
    return build(SANITIZERS["address"])


@pytest.fixture(scope="module", params=["reader", "records", "snapshots"])
def fuzzer(needs_sanitizer: None, request: pytest.FixtureRequest) -> Path:
    """A harness with it."""
    if not libfuzzer.works():
        pytest.skip(libfuzzer.NEEDED)
    fuzzers = {
        "reader": fuzz.build_fuzzer,
        "records": records.build_fuzzer,
        "snapshots": snapshots.build_fuzzer,
    }
    return fuzzers[request.param]()


only_reader = pytest.mark.parametrize("driver", ["reader"], indirect=True)
only_snapshots = pytest.mark.parametrize("driver", ["snapshots"], indirect=True)
only_records = pytest.mark.parametrize("driver", ["records"], indirect=True)
each_seed = pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.extended)])


def run(program: Path, folder: Path, *words: object) -> str:
    done = subprocess.run(
        [str(program), *map(str, words)],
        env={**os.environ, "FUZZ_FOLDER": str(folder)},
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"the input is {folder / 'current'}\n{done.stderr[-6000:]}"
    return done.stdout


def run_fuzzer(program: Path, folder: Path, runs: int, inputs: Sequence[Path], *words: object) -> None:
    """So many runs in all. Its limit of time for an input is wall time, which a busy machine would reach; its limit of
    resident memory counts what the process had before exec, which is pytest's own."""
    found = folder / "found"
    found.mkdir()
    folders = {path.parent for path in inputs}
    done = subprocess.run(
        [
            str(program),
            *map(str, words),
            "-timeout=0",
            "-rss_limit_mb=0",
            f"-artifact_prefix={folder}/",
            "-seed=1",
            f"-runs={runs}",
        ]
        + [str(path) for path in (found, *sorted(folders))],
        env={**os.environ, "FUZZ_FOLDER": str(folder)},
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=1800,
    )
    assert done.returncode == 0, f"an input is in {folder}\n{done.stderr[-6000:]}"
    ran = re.search(r"^Done (\d+) runs", done.stderr, re.MULTILINE)
    assert ran is not None and int(ran[1]) >= runs > len(inputs), done.stderr[-3000:]


def test_the_corpus_is_small_and_holds_every_kind_of_input() -> None:
    inputs = [path.read_bytes() for path in corpus()]
    assert 100 < len(inputs) < 400 and sum(map(len, inputs)) < 300 << 10
    assert sum(data.startswith(b"CMFZ") for data in inputs) >= 10  # with a ring file
    assert sum(data.startswith(b"CUPTIMEM") for data in inputs) >= 50
    assert any(path.name.startswith("regression-") for path in corpus())


@only_reader
def test_corpus_and_seeds(driver: Path, seeds: list[Path], tmp_path: Path) -> None:
    inputs = [*corpus(), *seeds]
    assert run(driver, tmp_path, "replay", *inputs) == f"{len(inputs)} inputs\n"


@only_reader
@each_seed
def test_mutations(driver: Path, tmp_path: Path, seed: int) -> None:
    assert run(driver, tmp_path, "mutate", seed, MUTATIONS // 2, *corpus()) == f"{MUTATIONS // 2} mutations\n"


@only_records
@each_seed
def test_record_mutations(driver: Path, record_seeds: list[Path], tmp_path: Path, seed: int) -> None:
    said = f"{len(record_seeds)} inputs, {RECORD_RUNS // 2} mutations\n"
    assert run(driver, tmp_path, seed, RECORD_RUNS // 2, *record_seeds) == said


@only_snapshots
@each_seed
def test_snapshot_mutations(driver: Path, snapshot_seeds: list[Path], tmp_path: Path, seed: int) -> None:
    said = f"{len(snapshot_seeds)} inputs, {SNAPSHOT_RUNS // 2} mutations\n"
    assert run(driver, tmp_path, seed, SNAPSHOT_RUNS // 2, *snapshot_seeds) == said


@pytest.mark.parametrize("fuzzer", ["reader"], indirect=True)
def test_libfuzzer(fuzzer: Path, seeds: list[Path], tmp_path: Path) -> None:
    """clang's sanitizers object to more than gcc's: 0 added to NULL is one such thing."""
    inputs = [*corpus(), *seeds]
    run_fuzzer(fuzzer, tmp_path, len(inputs) + RUNS, inputs, *fuzz.LIMITS)


@pytest.mark.parametrize("fuzzer", ["records"], indirect=True)
def test_libfuzzer_of_records(fuzzer: Path, record_seeds: list[Path], tmp_path: Path) -> None:
    run_fuzzer(fuzzer, tmp_path, 10 * RECORD_RUNS, record_seeds, *records.LIMITS)


@pytest.mark.parametrize("fuzzer", ["snapshots"], indirect=True)
def test_libfuzzer_of_snapshots(fuzzer: Path, snapshot_seeds: list[Path], tmp_path: Path) -> None:
    run_fuzzer(fuzzer, tmp_path, 4 * SNAPSHOT_RUNS, snapshot_seeds, *snapshots.LIMITS)


@only_reader
def test_out_of_memory(driver: Path, tmp_path: Path) -> None:
    """The k-th allocation fails, alone or with all after it: an error or the right answer, nothing else."""
    some = corpus()[:: max(1, len(corpus()) // OOM_INPUTS)]
    failures = int(run(driver, tmp_path, "oom", OOM_MOST, *some).split()[0])
    assert failures >= 20 * len(some)


@only_reader
def test_a_broken_promise_is_noticed(driver: Path, tmp_path: Path) -> None:
    """The driver's own check, and the sanitizers are on: an input that is not there ends it with a word."""
    done = subprocess.run([str(driver), "replay", str(tmp_path / "none")], check=False, capture_output=True, text=True)
    assert done.returncode == 2 and "cannot read" in done.stderr
    assert b"__asan" in driver.read_bytes() and b"__ubsan" in driver.read_bytes()
