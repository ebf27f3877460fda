"""Past its bound: the side file and compactions, while recording, after a stop, after a kill, on a full disk."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capture_support import COMPLETE, CUT, RECOVERED, Program, Stress
from test_capture_kill import MOMENTS, begun_in, kill_one

from cuptimem import _core

BOUND = {"STRESS_MAX_SIZE": "20000"}  # bytes; the side file has 8 parts of 16 KiB then


def dump(trace: Path) -> list[Any]:
    return _core.trace_dump(str(trace))[:-1]


def told(trace: Path) -> int:
    """Events that the trace has or counts as compacted."""
    records = dump(trace)
    counted = sum(int(r[3]) for r in records if r[0] == "compacted")
    return counted + sum(r[0] not in ("compacted", "compacted_blocks", "sample") for r in records)


# --- killed -----------------------------------------------------------------------------------


POINTS = [
    *((name, 1, when) for name in ("side_create", "side_header") for when in ("before", "after")),
    *(("side_append", nth, when) for nth in (1, 2, 30, 60) for when in ("before", "half", "after")),
    *(("side_release", nth, when) for nth in (1, 2, 9, 12) for when in ("before", "after")),
    *(("writer_chunk", nth, when) for nth in (4, 5, 6, 7, 8, 12, 16) for when in ("before", "half", "after")),
    *((name, 1, when) for name in ("writer_end", "side_close") for when in ("before", "after")),
]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: "-".join(map(str, point)))
def test_killed_past_the_bound(stress: Stress, point: tuple[str, int, str]) -> None:
    """Between any two steps of a compaction: read as it is, swept, read again. Nothing is missing, nothing twice."""
    folder = stress.folder / "k"
    folder.mkdir()
    process = stress.start("kill", folder, 1 << 20, 0, STRESS_KILL=":".join(map(str, point)), **BOUND)
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == -9
    before = stress.run("killed", folder)
    assert before[1] > 0
    assert stress.run("sweep", stress.rings) == [1]
    assert stress.run("killed", folder) == before
    assert list(stress.rings.iterdir()) == []
    assert list(folder.glob("*.tail")) == []


def test_killed_anywhere_past_the_bound(stress: Stress) -> None:
    sides = 0
    for i in range(64):  # 16, and more where the machine is too slow to come past the bound
        if i >= 16 and sides > 0:
            break
        folder = stress.folder / str(i)
        kill_one(stress, folder, 1 << 20, 0, MOMENTS[i % 4], **BOUND)
        sides += bool(list(folder.glob("*.tail")))
        before = stress.run("killed", folder)
        stress.run("sweep", stress.rings)
        assert stress.run("killed", folder) == before
        assert list(folder.glob("*.tail")) == [] or list(stress.rings.iterdir()) != []
        for capture in range(begun_in(folder)):
            assert stress.verify(folder / f"{capture}.cmem").state in (COMPLETE, RECOVERED)
        shutil.rmtree(folder)
    assert sides > 0


def killed_past_the_bound(stress: Stress) -> Path:
    """A killed trace that needs its side file."""
    folder = stress.folder / "needs"
    folder.mkdir()
    process = stress.start("kill", folder, 1 << 20, 0, STRESS_KILL="side_append:60:after", **BOUND)
    process.communicate(timeout=120)
    return max(folder.glob("*.cmem.tail")).with_suffix("")


def test_a_trace_copied_without_its_side_file_says_so(stress: Stress, tmp_path: Path) -> None:
    trace = killed_past_the_bound(stress)
    copy = tmp_path / "copy.cmem"
    shutil.copy(trace, copy)
    report = _core.analyze(str(copy))
    assert report["state"] == "cut"
    assert "side file" in report["reason"] and "not here" in report["reason"]
    shutil.copy(f"{trace}.tail", f"{copy}.tail")
    assert _core.analyze(str(copy))["state"] == "recovered"


def test_without_its_ring_the_side_file_is_still_read(stress: Stress) -> None:
    trace = killed_past_the_bound(stress)
    whole = told(trace)
    for ring in stress.rings.iterdir():
        ring.unlink()
    assert stress.verify(trace).state == CUT
    assert 0 < told(trace) <= whole


@pytest.mark.parametrize("damage", ["flip", "cut", "zeros"])
def test_a_damaged_side_file(stress: Stress, damage: str) -> None:
    trace = killed_past_the_bound(stress)
    side = Path(f"{trace}.tail")
    data = bytearray(side.read_bytes())
    if damage == "flip":
        for at in range(4096, len(data), 500):
            data[at] ^= 0x55
    elif damage == "cut":
        data = data[:9000]
    else:
        data[4096:] = bytes(len(data) - 4096)
    side.write_bytes(data)
    assert _core.analyze(str(trace))["state"] in ("cut", "recovered")


# --- stopped ----------------------------------------------------------------------------------


def record(program: Program, path: Path, *, rounds: int = 30, max_size: int = 0, then: str = "") -> dict[str, Any]:
    """Rounds of 20,000 allocations with their frees; what the program saw, and a report of the trace."""
    done = program(
        f"""
        import json
        path = {str(path)!r}
        c.capture_start(path, {{}}, max_size={max_size})
        c.capture_record(True)
        emitted, sizes = 0, []
        for i in range({rounds}):
            emitted += c.capture_emit(1, 20000, 1)
            try:
                c.capture_sync()
            except c.Error:
                break
            sizes.append(os.path.getsize(path))
        live = c.analyze(path)
        {then}
        warning = c.capture_warning()
        stopped = c.capture_stop()
        print(json.dumps([emitted, sizes, live["state"], live["allocations"], warning, stopped]))
        """
    )
    keys = ["emitted", "sizes", "state", "allocations", "warning", "stopped"]
    return dict(zip(keys, json.loads(done.stdout), strict=True))


def test_the_trace_stops_growing(program: Program, tmp_path: Path) -> None:
    trace = tmp_path / "t.cmem"
    saw = record(program, trace, rounds=60, max_size=200_000)
    assert (saw["warning"], saw["stopped"], saw["state"]) == (None, "", "recording")
    assert saw["allocations"] == 60 * 20000 and saw["emitted"] == 2 * saw["allocations"]
    # Nothing survives here: what still grows are the sums.
    assert saw["sizes"][-1] - saw["sizes"][20] < 20_000
    assert saw["sizes"][-1] < 250_000
    # At the end comes what the side file still had: the newest events, whole.
    assert trace.stat().st_size < 250_000 + (1 << 20)
    assert not Path(f"{trace}.tail").exists()
    report = _core.analyze(str(trace))
    assert report["state"] == "complete"
    assert report["allocations"] == saw["allocations"] and report["devices"][0]["end"] == 0
    assert report["lost"]["events"] == 0
    assert report["devices"][0]["allocated"] == 60 * sum(range(1, 20001))
    assert report["devices"][0]["peak"] == 20000
    assert report["compacted"]["from_step"] == -1 and report["compacted"]["events"] > 500_000
    assert told(trace) - report["threads"] >= saw["emitted"]


def test_the_same_report_with_and_without_a_bound(program: Program, tmp_path: Path) -> None:
    small, large = tmp_path / "small.cmem", tmp_path / "large.cmem"
    record(program, small, rounds=30, max_size=100_000)
    record(program, large, rounds=30)
    one, other = _core.analyze(str(small)), _core.analyze(str(large))
    assert other["compacted"] is None and one["compacted"]["events"] > 0
    for key in ("allocated", "freed", "allocations", "frees", "peak", "start", "end"):
        assert one["devices"][0][key] == other["devices"][0][key]
    assert small.stat().st_size < large.stat().st_size / 2


def test_a_name_that_is_taken_is_left_alone(program: Program, tmp_path: Path) -> None:
    """The recording ends as it would without compaction: one warning, a complete file."""
    trace, mine = tmp_path / "t.cmem", tmp_path / "t.cmem.tail"
    mine.write_text("mine")
    saw = record(program, trace, max_size=100_000)
    assert saw["warning"].startswith("recording ended: the trace has reached its bound of 0.1 MiB (max_size), and its")
    assert saw["warning"].endswith("File exists")
    assert mine.read_text() == "mine"
    assert _core.analyze(str(trace))["state"] == "complete"


@pytest.mark.parametrize("what", [b"CUPTSIDE" + bytes(8192), b""], ids=["old", "empty"])
def test_a_side_file_that_was_left_behind_is_replaced(program: Program, tmp_path: Path, what: bytes) -> None:
    trace, left = tmp_path / "t.cmem", tmp_path / "t.cmem.tail"
    left.write_bytes(what)
    saw = record(program, trace, max_size=100_000)
    assert saw["warning"] is None
    assert not left.exists()
    assert _core.analyze(str(trace))["allocations"] == saw["allocations"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1400k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mounting is refused here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_no_room_for_the_side_file(program: Program, disk: Path) -> None:
    (disk / "fill").write_bytes(bytes(500_000))
    saw = record(program, disk / "t.cmem", max_size=100_000)
    assert saw["warning"].endswith("No space left on device") and "(max_size)" in saw["warning"]
    assert _core.analyze(str(disk / "t.cmem"))["state"] == "complete"
    assert sorted(path.name for path in disk.iterdir()) == ["fill", "t.cmem"]


FILL = """
        try:
            fill = open(path + "x", "wb", 0)
            while fill.write(bytes(4096)):
                pass
        except OSError:
            pass
"""


def test_no_room_to_bring_the_side_file_home(program: Program, disk: Path) -> None:
    """The side file had its room, the trace finds none at the end: both stay, and together they are all there is."""
    trace = disk / "t.cmem"
    saw = record(program, trace, max_size=100_000, then=FILL)
    assert Path(f"{trace}.tail").exists()
    report = _core.analyze(str(trace))
    assert report["state"] == "recovered"
    assert report["allocations"] == saw["allocations"]


def test_a_forked_child_leaves_the_side_file_alone(program: Program, tmp_path: Path) -> None:
    trace = tmp_path / "t.cmem"
    # Python 3.12 warns of any second thread; this one bypasses the recorder, which would end the collector first.
    lines = [
        "import warnings; warnings.simplefilter('ignore')",
        "child = os.fork()",
        "if child == 0: os._exit(0)",
        "os.waitpid(child, 0)",
    ]
    fork = "\n        ".join(lines)
    saw = record(program, trace, max_size=100_000, then=fork)
    assert _core.analyze(str(trace))["allocations"] == saw["allocations"]
