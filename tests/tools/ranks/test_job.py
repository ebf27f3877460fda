"""A real job of four processes: who differs, where and why is what was planted."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import ROOT, Result, clean_environment
from tests.forkserver import Forks

pytestmark = [pytest.mark.torch, pytest.mark.costly]

HERE = Path(__file__).parent
LONG, KEPT = 4096, 512  # rows of the longer batch and of the others


def launch(folder: Path, *command: str) -> Result:
    """Four ranks."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", *command]
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(torchrun, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    return Result(done.returncode, done.stdout, done.stderr)


def fork(forks: Forks, folder: Path, script: Path) -> Result:
    """The same, without four imports of PyTorch and torchrun's own."""
    server = forks.of(script.read_text())
    return server.run(HERE / "forked.py", "4", str(script), environment=clean_environment(), cwd=folder)


@pytest.fixture(scope="module", params=["forks", pytest.param("torchrun", marks=pytest.mark.extended)])
def job(request: pytest.FixtureRequest, forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, script = tmp_path_factory.mktemp("job"), HERE / "ddp.py"
    done = fork(forks, folder, script) if request.param == "forks" else launch(folder, str(script))
    assert done.code == 0, done.err
    return folder


def test_each_rank_differs_as_was_planted(job: Path) -> None:
    found = cuptimem.ranks(job)
    assert [rank.rank for rank in found.ranks] == [0, 1, 2, 3]
    assert {rank.world for rank in found.ranks} == {4}
    assert found.label(found.middle) in ("0", "2") and not found.missing and not found.failed
    longer, keeps, *_ = found.differences  # when gloo's threads free a bucket may differ by itself
    assert [found.label(at) for at in longer.ranks] == ["3"]
    assert (longer.step, longer.alone) == (17, True)
    batch = next(row for row in longer.lines if row.name.endswith("ddp.py:29"))  # x = torch.randn(rows, 256)
    assert (batch.bytes, batch.middle) == (LONG * 256 * 4, KEPT * 256 * 4)
    assert [found.label(at) for at in keeps.ranks] == ["1"]
    kept = keeps.categories[0]
    assert kept.name == "kept" and kept.bytes % 102_400 == 0 and kept.middle == 0
    assert keeps.lines[0].name.endswith("ddp.py:35")
    (leak,) = [one for one in found.growths if one.growth.decided]
    assert [found.label(at) for at in leak.ranks] == ["1"]
    assert round(leak.growth.bytes_per_step) == 102_400 and leak.growth.line.endswith("ddp.py:35")
    assert "kept" in leak.growth.holder


def test_the_verb_says_it(job: Path, run: Callable[..., Result], call: Callable[..., Result]) -> None:
    done = run("-m", "cuptimem", "ranks", "run-*.cmem", cwd=job)
    assert done.code == 0, done.err
    assert "in step 17, in its other steps as the others" in done.out
    assert "a larger batch, or longer samples: its input has 8.0 times the bytes" in done.out
    assert "! leak on rank 1 only: 100.0 KiB a step" in done.out
    order = [line.split()[0] for line in done.out.splitlines()[3:7]]
    assert order[:2] == ["3", "1"] and sorted(order[2:]) == ["0", "2"]
    document = json.loads(call("ranks", ".", "--json", cwd=job).out)
    assert [rank["label"] for rank in document["ranks"]] == order
    assert document["differences"][0]["ranks"] == ["3"]


def test_gather_says_the_same_without_files(job: Path) -> None:
    gathered = (job / "gathered.txt").read_text()
    assert "in step 17, in its other steps as the others" in gathered
    assert "! leak on rank 1 only: 100.0 KiB a step" in gathered


@pytest.mark.extended
def test_a_dead_rank_costs_a_line(tmp_path: Path) -> None:
    """torchrun ends the job's ranks when one fails; this one ends well, but too early."""
    done = launch(tmp_path, str(HERE / "ddp.py"), "dies")
    assert "! no trace of rank 2" in (tmp_path / "gathered.txt").read_text(), done.err
    assert "rank 0 did not answer" not in done.err


@pytest.mark.extended
def test_sharded_ranks(tmp_path: Path) -> None:
    """FSDP2, recorded from outside; the file of the program has no word of cuptimem."""
    code = f"import sys; sys.argv = ['run', '-o', 'run-{{rank}}.cmem', {str(HERE / 'fsdp.py')!r}]; from cuptimem.cli"
    start = tmp_path / "start.py"
    start.write_text(f"{code} import main\nsys.exit(main(sys.argv))\n")
    done = launch(tmp_path, str(start))
    assert done.code == 0, done.err
    found = cuptimem.ranks(tmp_path)
    assert len(found.ranks) == 4
    # Three of four differ, so that one of them is the middle one; when gloo's threads free a bucket differs by itself.
    differences = {found.label(at): one for one in found.differences for at in one.ranks}
    loaded, longer = differences["2"], differences["3"]
    assert loaded.lines[0].name.endswith("fsdp.py:12") and loaded.lines[0].more == 16 << 20
    assert loaded.batch is None
    assert longer.step == 17 and longer.batch is not None and round(longer.batch) == 64
    (leak,) = [one for one in found.growths if one.growth.decided]
    assert [found.label(at) for at in leak.ranks] == ["1"]
    assert round(leak.growth.bytes_per_step) == 102_400 and leak.growth.line.endswith("fsdp.py:29")
