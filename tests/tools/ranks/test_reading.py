"""Traces of many ranks, read by the workers of an executor."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.distributed import reading
from tests.conftest import Result
from tests.unit.analysis import craft


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Twelve ranks; the peak of each is as many KiB as its number says, from 100 on."""
    craft.Trace.library = craft.encoder()
    folder = tmp_path / "traces"
    folder.mkdir()
    for number in range(12):
        write(folder / f"run-{number:02}.cmem", number, (100 + number) << 10)
    return folder


def write(path: Path, number: int, peak: int) -> None:
    trace = craft.Trace()
    trace.alloc(0x1000, peak)
    trace.write(path, meta={"rank": str(number), "world_size": "12"})


def peaks(found: cuptimem.Ranks) -> list[tuple[int | None, int]]:
    return [(one.rank, one.own.peak.bytes) for one in found.ranks if one.own is not None]


EXPECTED = [(number, (100 + number) << 10) for number in range(12)]


def test_folders_patterns_and_names(traces: Path) -> None:
    whole = cuptimem.ranks(traces, jobs=1)
    assert peaks(whole) == EXPECTED and whole.missing == ()
    assert reading.expand([traces / "run-0*.cmem", traces / "run-03.cmem"]) == [
        str(traces / f"run-0{number}.cmem") for number in range(10)
    ]


@pytest.mark.parametrize("paths", ["nothing-*.cmem", []])
def test_nothing_to_read(paths: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(cuptimem.Error, match="no trace of any rank"):
        cuptimem.ranks(paths)


def test_a_trace_that_cannot_be_read_costs_a_line(traces: Path) -> None:
    (traces / "run-05.cmem").write_bytes(b"something else")
    found = cuptimem.ranks(traces, jobs=1)
    assert peaks(found) == [one for one in EXPECTED if one[0] != 5]
    assert [path for path, _ in found.failed] == [str(traces / "run-05.cmem")] and found.missing == (5,)
    (only,) = [traces / "run-05.cmem"]
    with pytest.raises(cuptimem.Error):
        cuptimem.ranks(only, jobs=1)


class Unsteady(Executor):
    """Loses every third trace that it is given, as a pool does whose worker is killed: the answer never comes."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self._pool = ThreadPoolExecutor(2)

    def submit(self, call: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        self.given.append(arguments[0])
        if len(self.given) % 3:
            return self._pool.submit(call, *arguments, **named)
        lost: Future[Any] = Future()
        lost.set_exception(ConnectionError("the worker is gone"))
        return lost


def test_what_a_worker_lost_is_read_again_and_counts_once(traces: Path) -> None:
    executor = Unsteady()
    found = cuptimem.ranks(traces, executor=executor)
    assert peaks(found) == EXPECTED and not found.failed
    assert len(executor.given) == 12 + 4 + 1  # and none of those that were read, twice


def test_a_trace_that_ends_its_worker_each_time(traces: Path) -> None:
    """The others are read all the same, and the one is named."""

    class Deadly(Unsteady):
        def submit(self, call: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
            if arguments[0].endswith("run-07.cmem"):
                lost: Future[Any] = Future()
                lost.set_exception(ConnectionError("the worker is gone"))
                return lost
            return self._pool.submit(call, *arguments, **named)

    found = cuptimem.ranks(traces, executor=Deadly())
    assert peaks(found) == [one for one in EXPECTED if one[0] != 7]
    assert found.failed == ((str(traces / "run-07.cmem"), "ConnectionError: the worker is gone"),)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A real scheduler with four worker processes."""
    distributed = pytest.importorskip("distributed")
    import dask

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "300s"}),
        distributed.LocalCluster(
            n_workers=4, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.costly
def test_dask_with_a_worker_killed_in_the_middle(traces: Path, cluster: Any) -> None:
    """The scheduler gives what the dead one had to others."""
    pids = cluster.run(os.getpid)
    executor = cluster.get_executor(pure=False, retries=2)
    real = executor.submit
    given = 0

    def submit(*arguments: Any, **named: Any) -> Any:
        nonlocal given
        given += 1
        if given == 6:
            os.kill(next(iter(pids.values())), signal.SIGKILL)
        return real(*arguments, **named)

    executor.submit = submit
    found = cuptimem.ranks(traces, executor=executor)
    assert peaks(found) == EXPECTED and not found.failed


def test_addresses(traces: Path) -> None:
    """fsspec's own file system in memory stands for s3 and others."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for path in traces.iterdir():
        memory.pipe_file(f"/ranks/{path.name}", path.read_bytes())
    memory.pipe_file("/ranks/readme.txt", b"")
    with ThreadPoolExecutor(1) as here:  # another process has another memory
        for address in ("memory://ranks", "memory://ranks/run-*.cmem"):
            found = cuptimem.ranks(address, executor=here)
            assert peaks(found) == EXPECTED
            assert found.ranks[3].path.endswith("/ranks/run-03.cmem") and found.ranks[3].path.startswith("memory://")
        with pytest.raises(cuptimem.Error, match="run-99"):
            cuptimem.ranks("memory://ranks/run-99.cmem", executor=here)
    with pytest.raises(cuptimem.Error, match="nosuch"):
        cuptimem.ranks("nosuch://bucket/run.cmem", jobs=1)


def test_workers_do_not_run_the_users_script(traces: Path, run: Callable[..., Result], tmp_path: Path) -> None:
    """A script without a guard: its body runs once."""
    script = tmp_path / "compare.py"
    script.write_text(
        f"import cuptimem\nprint('begun', flush=True)\nprint(len(cuptimem.ranks({str(traces)!r}, jobs=2).ranks))\n"
    )
    done = run(str(script))
    assert (done.code, done.out) == (0, "begun\n12\n"), done.err
