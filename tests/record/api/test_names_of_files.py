"""Which file a profile writes where its name is taken: by itself, this process, another of the program, anybody."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.record import recorder, role
from tests.conftest import Result

torch = pytest.importorskip("torch", reason="the torch-free run leaves these out")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("only_new_objects")]

KIB = 1024


def record(path: Path, kib: int, **options: Any) -> cuptimem.Profile:
    with cuptimem.profile(path, **options) as prof:
        torch.empty(kib * KIB, dtype=torch.uint8)
    return prof


def contents(folder: Path) -> dict[str, int]:
    """KiB allocated by file."""
    return {
        path.name: cuptimem.open(path).device("cpu").allocated // KIB
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".")
    }


def test_a_new_profile_replaces_what_this_process_has_written(tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    first, second = record(path, 1), record(path, 2)
    assert (first.path, second.path) == (str(path), str(path))
    assert contents(tmp_path) == {"run.cmem": 2}
    with pytest.raises(cuptimem.Error, match="another recording by now"):  # not the second one's report
        _ = first.report
    with cuptimem.profile(), cuptimem.profile(path):  # a file that is written at its end
        torch.empty(3 * KIB, dtype=torch.uint8)
    record(path, 4)
    assert contents(tmp_path) == {"run.cmem": 4}


def test_numbers_begin_again_with_a_new_profile(tmp_path: Path) -> None:
    for kib in (1, 4):
        prof = cuptimem.profile(tmp_path / "run.cmem")
        for number in range(3):
            with prof:
                torch.empty((kib + number) * KIB, dtype=torch.uint8)
    assert contents(tmp_path) == {"run-2.cmem": 5, "run-3.cmem": 6, "run.cmem": 4}


def test_what_has_changed_since_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    record(path, 1)
    path.rename(tmp_path / "mine.cmem")
    path.write_text("precious")
    with pytest.raises(cuptimem.Error, match="exists; .* with overwrite=True$"):
        record(path, 2)
    assert path.read_text() == "precious"


def test_a_file_that_is_being_recorded_to_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    outer, inner = cuptimem.profile(path), cuptimem.profile(tmp_path / "inner.cmem")
    with outer, inner:
        for taken in (outer, inner):
            for overwrite in (False, True):
                with pytest.raises(cuptimem.Error, match="being recorded to"):
                    record(Path(str(taken.path)), 1, overwrite=overwrite)
    assert outer.report.complete and inner.report.complete
    assert sorted(one.name for one in tmp_path.iterdir()) == ["inner.cmem", "run.cmem"]


def test_calls_in_threads_number_their_files(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    @cuptimem.profile(tmp_path / "run.cmem")
    def work() -> None:
        both.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == ["run-2.cmem", "run.cmem"]


PROCESSES = """\
import json, multiprocessing, os, sys, torch, cuptimem

@cuptimem.profile("run.cmem", overwrite={overwrite})
def work(kib):
    torch.empty(kib * 1024, dtype=torch.uint8)

def child(kib, barrier):
    barrier.wait()
    for more in (0, 10):
        work(kib + more)
        line = json.dumps([os.path.basename(work.profile.path), os.getpid(), kib + more])
        os.write(1, (line + "\\n").encode())  # at once: print() makes two writes where nothing buffers
    barrier.wait()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    barrier = context.Barrier(2)
    children = [context.Process(target=child, args=(kib, barrier)) for kib in (1, 2)]
    if sys.argv[2] == "before":
        work(100)
    for one in children: one.start()
    for one in children: one.join()
    if sys.argv[2] == "after":
        work(100)
    print(json.dumps([os.path.basename(work.profile.path), os.getpid(), 100]))
"""


@pytest.mark.parametrize(
    ("method", "when", "overwrite"),
    [("fork", "after", False), ("fork", "before", True), ("forkserver", "before", True)]
    + [pytest.param("spawn", "before", False, marks=pytest.mark.extended)],
)
def test_other_processes_have_files_of_their_own(
    forked: Callable[..., Result], tmp_path: Path, method: str, when: str, overwrite: bool
) -> None:
    """Nothing is lost and nothing refused, whichever process is first."""
    (tmp_path / "prog.py").write_text(PROCESSES.format(overwrite=overwrite))
    if overwrite:
        old = tmp_path / "run.cmem"
        old.write_text("of yesterday")
        os.utime(old, (0, 0))
    done = forked("prog.py", method, when)
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    (tmp_path / "prog.py").unlink()
    assert contents(tmp_path) == {name: kib for name, _, kib in rows} and len(rows) == 5
    if when == "before":
        main = rows[-1][1]
        assert rows[-1][0] == "run.cmem"
        for name, pid, kib in rows[:-1]:
            assert pid != main and name == (f"run.{pid}.cmem" if kib < 10 else f"run.{pid}-2.cmem")


GRANDCHILD = """\
import multiprocessing, cuptimem

def record(kib):
    import torch  # not in the process between
    with cuptimem.profile("run.cmem", overwrite=True):
        torch.empty(kib * 1024, dtype=torch.uint8)

def child():
    other = multiprocessing.get_context("spawn").Process(target=record, args=(2,))
    other.start()
    other.join()

if __name__ == "__main__":
    record(1)
    one = multiprocessing.get_context("spawn").Process(target=child)
    one.start()
    one.join()
"""


def test_a_grandchild_leaves_what_the_program_wrote(forked: Callable[..., Result], tmp_path: Path) -> None:
    """The file is older than the process that started it."""
    (tmp_path / "prog.py").write_text(GRANDCHILD)
    assert forked("prog.py").code == 0
    (tmp_path / "prog.py").unlink()
    found = contents(tmp_path)
    assert found["run.cmem"] == 1 and sorted(found.values()) == [1, 2]


def test_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that finds the name taken by another one."""
    path = tmp_path / "run.cmem"
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert record(path, 1).path == str(path)
    recorder._finished.clear()  # as if another rank had written it
    for overwrite in (False, True):
        prof = record(path, 2, overwrite=overwrite)
        assert prof.path == str(tmp_path / f"run.rank3.{os.getpid()}.cmem")
    assert contents(tmp_path)["run.cmem"] == 1
    os.utime(path, (0, 0))
    assert not role.is_of_this_run(str(path))
    assert record(path, 3, overwrite=True).path == str(path)


def test_a_file_is_own_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    record(path, 1)
    assert recorder.is_own(str(path))
    os.utime(path)
    assert not recorder.is_own(str(path)) and not recorder.is_own(str(tmp_path / "none.cmem"))


def test_an_inner_profile_replaces_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with cuptimem.profile(), pytest.raises(cuptimem.Error, match="is a device or a pipe"):
        cuptimem.profile(tmp_path / "pipe", overwrite=True).__enter__()
    assert (tmp_path / "pipe").is_fifo()
