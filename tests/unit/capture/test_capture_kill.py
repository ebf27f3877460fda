"""SIGKILL at any moment: trace and ring together hold exactly what was published."""

import fcntl
import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture_support import COMPLETE, CUT, RECORDING, RECOVERED, Stress, begun_in

# (captures begun, then up to so many seconds): into the first start; starts and stops; block and log changes.
MOMENTS = [(0, 0.03), (1, 0.02), (3, 0.06), (2, 0.15)]


def kill_one(
    stress: Stress, folder: Path, ring_bytes: int, rate: int, moment: tuple[int, float], **environment: str
) -> None:
    folder.mkdir()
    process = stress.start("kill", folder, ring_bytes, rate, **environment)
    captures, seconds = moment
    while begun_in(folder) < captures and process.poll() is None:
        time.sleep(0.001)
    time.sleep(random.uniform(0, seconds))
    process.kill()
    assert process.communicate() == ("", "")


@pytest.mark.parametrize("ring_bytes, rate", [(0, 300), (1 << 20, 100), (1 << 20, 0)], ids=["wide", "small", "lossy"])
def test_kills(stress: Stress, ring_bytes: int, rate: int) -> None:
    """25 kills each. `lossy` publishes faster than the collector can write: losses are exact there too."""
    captures = events = 0
    for i in range(25):
        folder = stress.folder / str(i)
        # A state folder each, for rings whose traces this loop removes.
        kill_one(stress, folder, ring_bytes, rate, MOMENTS[i % 4], XDG_STATE_HOME=str(folder))
        begun, published = stress.run("killed", folder)
        captures += begun
        events += published
        shutil.rmtree(folder)
    assert captures >= 36
    assert events >= 1000


POINTS = [
    *((name, 1, when) for name in ("writer_create", "writer_meta", "frames_begin") for when in ("before", "after")),
    *(("writer_chunk", nth, when) for nth in (1, 2, 9, 30) for when in ("before", "half", "after")),
    *(("blockpool_give", nth, when) for nth in (1, 2, 5, 40) for when in ("before", "after")),
    *((name, nth, when) for name in ("writer_end", "writer_close") for nth in (1, 3) for when in ("before", "after")),
]


LOSSY = [("writer_chunk", 3, "before"), ("writer_chunk", 8, "after"), ("writer_end", 1, "before")]


@pytest.mark.parametrize(
    "point, rate",
    [*((point, 100) for point in POINTS), *((point, 0) for point in LOSSY)],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else str(value),
)
def test_kills_at_chosen_points(stress: Stress, point: tuple[str, int, str], rate: int) -> None:
    """Between any two steps of the collector: read as it is, swept, and read again."""
    folder = stress.folder / "k"
    folder.mkdir()
    process = stress.start("kill", folder, 1 << 20, rate, STRESS_KILL=":".join(map(str, point)))
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == -9
    before = stress.run("killed", folder)
    assert stress.run("sweep", stress.rings) == [1]
    assert stress.run("killed", folder) == before
    assert list(stress.rings.iterdir()) == []


@pytest.mark.parametrize("rate", [0, 100])
def test_the_sweep_completes_what_was_killed(stress: Stress, rate: int) -> None:
    for i in range(8):
        folder = stress.folder / str(i)
        kill_one(stress, folder, 1 << 20, rate, MOMENTS[2])
        before = stress.run("killed", folder)
        left = list(stress.rings.iterdir())
        assert len(left) <= 1
        # A ring without a header might still be in the making: it has a minute.
        started = bool(left) and left[0].read_bytes()[:8].strip(b"\0") != b""
        assert stress.run("sweep", stress.rings) == [int(started)]
        for path in left if not started else []:
            path.unlink()
        assert list(stress.rings.iterdir()) == []
        # Complete now, with the same events, and with nothing to add for the next sweep.
        assert stress.run("killed", folder) == before
        for capture in range(begun_in(folder)):
            assert stress.verify(folder / f"{capture}.cmem").state in (COMPLETE, RECOVERED)


def killed_capture(stress: Stress, least: int = 0, ring_bytes: int = 1 << 20) -> tuple[Path, Path, int]:
    """Trace (of at least so many bytes), ring and number of events of a capture that was killed."""
    folder = stress.folder / "k"
    while True:
        kill_one(stress, folder, ring_bytes, 100, (1, 0.05))
        trace = folder / f"{begun_in(folder) - 1}.cmem"
        rings = list(stress.rings.iterdir())
        if rings and stress.run("killed", folder)[0]:
            found = stress.verify(trace)
            if found.state == RECOVERED and found.events > 0 and trace.stat().st_size >= least:
                return trace, rings[0], found.events
        for ring in rings:
            ring.unlink()
        shutil.rmtree(folder)


def test_the_reader_leaves_the_ring_as_it_is(stress: Stress) -> None:
    trace, ring, events = killed_capture(stress)
    before = ring.read_bytes(), trace.read_bytes()
    for _ in range(2):
        found = stress.verify(trace)
        assert (found.state, found.events) == (RECOVERED, events)
    assert (ring.read_bytes(), trace.read_bytes()) == before


def test_a_ring_that_a_sweeper_holds_is_no_sign_of_life(stress: Stress) -> None:
    """The lock says that a process looks after the ring; whose ring it is stands in it."""
    trace, ring, events = killed_capture(stress)
    with ring.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)  # as a sweeper does
        found = stress.verify(trace)
        assert (found.state, found.events) == (RECOVERED, events)
        # Where the owner is of another namespace nothing is known of it: the lock may be its own.
        header = bytearray(file.read(8192))
        struct.pack_into("<Q", header, 96, 1)
        file.seek(0)
        file.write(header)
        file.flush()
        assert stress.verify(trace).state == RECORDING


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where rings are kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "cuptimem" / "rings"


ALIVE, ID = 72, 24  # offsets in the header


def patch(ring: Path, offset: int, value: int) -> None:
    with ring.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack("<Q", value))


def test_a_ring_whose_trace_is_gone_is_kept_for_seven_days(stress: Stress, kept: Path) -> None:
    trace, ring, events = killed_capture(stress, ring_bytes=8 << 20)
    size, last, bytes_ = ring.stat().st_size, ring.stat().st_mtime, ring.read_bytes()
    (count,), (first,) = struct.unpack_from("<I", bytes_, 20), struct.unpack_from("<Q", bytes_, 64)
    owned = sum(struct.unpack_from("<I", bytes_, first + i * 16384)[0] != 0 for i in range(count))
    moved = trace.rename(trace.with_name("moved.cmem"))
    assert stress.run("sweep", stress.rings) == [1]
    assert list(stress.rings.iterdir()) == []
    [copy] = kept.iterdir()
    stat = copy.stat()
    # Holes where it holds nothing.
    assert owned < count and stat.st_size == size and stat.st_blocks * 512 <= first + owned * 16384
    assert 0 <= stat.st_mtime - int(last) < 60 and stat.st_mode & 0o777 == 0o600
    for _ in range(2):
        found = stress.verify(moved)
        assert (found.state, found.events) == (RECOVERED, events)
        assert stress.run("sweep", stress.rings) == [0]
    os.utime(copy, (0, time.time() - 8 * 86400))
    assert stress.run("sweep", stress.rings) == [1]
    assert list(kept.iterdir()) == []
    assert stress.verify(moved).state == CUT


def test_a_trace_that_comes_back_gets_its_ring(stress: Stress, kept: Path) -> None:
    trace, _, events = killed_capture(stress)
    moved = trace.rename(trace.with_name("moved.cmem"))
    assert stress.run("sweep", stress.rings) == [1]
    # Another capture's trace has its name meanwhile.
    trace.write_bytes(moved.read_bytes()[:40])
    assert stress.run("sweep", stress.rings) == [0]
    assert len(list(kept.iterdir())) == 1
    moved.rename(trace)
    assert stress.run("sweep", stress.rings) == [1]
    assert list(kept.iterdir()) == []
    found = stress.verify(trace)
    assert (found.state, found.events) == (RECOVERED, events)


def orphans(stress: Stress, count: int, *, sized: int = 0) -> dict[int, Path]:
    """So many rings of a killed capture whose trace was moved, one second older each than the one before, by id."""
    trace, ring, _ = killed_capture(stress, ring_bytes=sized or 1 << 20)
    trace.rename(trace.with_name("moved.cmem"))
    bytes_, last = ring.read_bytes(), int(ring.stat().st_mtime)
    ring.unlink()
    made = {}
    for i in range(count):
        path = stress.rings / f".cuptimem-ring-{i:016x}"
        path.write_bytes(bytes_)
        patch(path, ID, i + 1)
        patch(path, ALIVE, (last - 100 - i) * 10**9)
        os.utime(path, (last - 100 - i,) * 2)
        made[i + 1] = path
    return made


def ids(folder: Path) -> list[int]:
    return sorted(struct.unpack_from("<Q", path.read_bytes(), ID)[0] for path in folder.iterdir())


def test_at_most_sixteen_are_kept_the_newest(stress: Stress, kept: Path) -> None:
    """Later ones take the place of older ones, too."""
    made = orphans(stress, 40)
    template = made[1].read_bytes()
    assert stress.run("sweep", stress.rings) == [40]
    assert list(stress.rings.iterdir()) == []
    assert ids(kept) == list(range(1, 17))
    for i in (100, 101, 102):  # newer
        path = stress.rings / f".cuptimem-ring-{i:016x}"
        path.write_bytes(template)
        patch(path, ID, i)
    assert stress.run("sweep", stress.rings) == [3]
    assert ids(kept) == [*range(1, 14), 100, 101, 102]


def test_kept_rings_are_bounded_in_bytes(stress: Stress, kept: Path) -> None:
    orphans(stress, 3)
    assert stress.run("sweep", stress.rings) == [3]
    for path in kept.iterdir():  # 100 MiB of disk each
        number = struct.unpack_from("<Q", path.read_bytes(), ID)[0]
        times = path.stat().st_mtime
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, 100 << 20)
        os.utime(path, (times, times))
        assert number in (1, 2, 3)
    assert stress.run("sweep", stress.rings) == [0]
    assert ids(kept) == [1, 2]


def test_a_ring_whose_trace_cannot_be_written_stays_where_it_is(stress: Stress, kept: Path) -> None:
    trace, ring, events = killed_capture(stress)
    # As on a full disk, for root too: the file may not grow.
    limited = ["prlimit", f"--fsize={trace.stat().st_size}", str(stress.program), "sweep", str(stress.rings)]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n")
    assert ring.exists() and not kept.exists()
    assert stress.run("sweep", stress.rings) == [1]
    found = stress.verify(trace)
    assert (found.state, found.events) == (RECOVERED, events)


def state_of(folder: Path, case: str) -> dict[str, str]:
    """The variables of a process that has nowhere to keep rings."""
    home = folder / "home"
    match case:
        case "nothing set":
            return {}
        case "HOME empty":
            return {"HOME": "", "XDG_STATE_HOME": ""}
        case "HOME relative":
            return {"HOME": "home"}
        case "XDG_STATE_HOME relative":
            return {"XDG_STATE_HOME": "home", "HOME": "home"}
        case "HOME nonexistent":
            return {"HOME": str(folder / "none")}
        case "XDG_STATE_HOME nonexistent":
            return {"XDG_STATE_HOME": str(folder / "none"), "HOME": str(home)}
        case "HOME a file":
            home.rmdir()
            home.touch()
        case "a file in the way":
            (home / ".local").touch()
        case "a folder in the way":  # as another version might leave it
            (home / ".local/state/cuptimem").mkdir(parents=True)
            (home / ".local/state/cuptimem/rings").symlink_to(folder / "none")
        case "HOME of another user":  # sudo
            if os.geteuid() != 0:
                pytest.skip("only root gives a folder away")
            os.chown(home, 65534, 65534)
        case "HOME unwritable":
            return {"HOME": "/proc/self"}
    return {"HOME": str(home)}


@pytest.mark.parametrize(
    "case",
    [
        "nothing set", "HOME empty", "HOME relative", "XDG_STATE_HOME relative", "HOME nonexistent",
        "XDG_STATE_HOME nonexistent", "HOME a file", "a file in the way", "a folder in the way", "HOME of another user",
        "HOME unwritable",
    ],
)  # fmt: skip
def test_without_a_place_to_keep_it_a_ring_stays(
    stress: Stress, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    """As of cron and systemd. It is read there, and goes after its 7 days."""
    trace, ring, events = killed_capture(stress)
    moved = trace.rename(trace.with_name("moved.cmem"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in state_of(tmp_path, case).items():
        monkeypatch.setenv(name, value)
    before = ring.read_bytes()
    for _ in range(2):
        assert stress.run("sweep", stress.rings) == [0]
        assert [path.read_bytes() for path in stress.rings.iterdir()] == [before]
        found = stress.verify(moved)
        assert (found.state, found.events) == (RECOVERED, events)
    patch(ring, ALIVE, (int(time.time()) - 8 * 86400) * 10**9)
    os.utime(ring, (0, time.time() - 8 * 86400))
    assert stress.run("sweep", stress.rings) == [1]
    assert list(stress.rings.iterdir()) == []


def test_a_relative_state_folder_is_ignored(stress: Stress, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """HOME counts then, as the specification says."""
    trace, _, events = killed_capture(stress)
    moved = trace.rename(trace.with_name("moved.cmem"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert stress.run("sweep", stress.rings) == [1]
    assert len(list((tmp_path / ".local/state/cuptimem/rings").iterdir())) == 1 and not (tmp_path / "state").exists()
    found = stress.verify(moved)
    assert (found.state, found.events) == (RECOVERED, events)


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """A file system of its own for kept rings, with these options."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(options: str) -> Path:
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
        if subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode:
            pytest.skip("mounting is refused here")
        monkeypatch.setenv("XDG_STATE_HOME", str(disk))
        return disk / "cuptimem" / "rings"

    yield mount
    subprocess.run(["umount", str(disk)], check=False, stderr=subprocess.DEVNULL)


def test_rings_are_kept_on_another_file_system(stress: Stress, mounted: Callable[[str], Path]) -> None:
    folder = mounted("size=100m")
    orphans(stress, 20)
    assert stress.run("sweep", stress.rings) == [20]
    assert ids(folder) == list(range(1, 17)) and list(stress.rings.iterdir()) == []


# One that fails half-way; one for the first five, however large (three inodes are folders).
@pytest.mark.parametrize("options, room", [("size=16k", 0), ("nr_inodes=8", 5), ("ro", 0)])
def test_no_ring_goes_where_not_all_can_be_kept(
    stress: Stress, mounted: Callable[[str], Path], options: str, room: int
) -> None:
    """A copy that fails half-way leaves nothing; nor does one beyond the newest 16 go before those are kept."""
    folder = mounted(options)
    made = orphans(stress, 20)
    before = {i: path.read_bytes() for i, path in made.items()}
    for _ in range(2):
        stress.run("sweep", stress.rings)
        kept = ids(folder) if folder.exists() else []
        assert kept + ids(stress.rings) == list(range(1, 21))
        assert all(path.read_bytes() == before[i] for i, path in made.items() if path.exists())
        assert len(kept) == room


def test_another_users_ring_stays(stress: Stress, kept: Path) -> None:
    """Also where root sweeps."""
    if os.geteuid() != 0:
        pytest.skip("only root gives a file away")
    [ring] = orphans(stress, 1).values()
    os.chown(ring, 65534, 65534)
    os.utime(ring, (0, 0))
    patch(ring, ALIVE, 0)
    assert stress.run("sweep", stress.rings) == [0]
    assert ring.exists() and not kept.exists()


@pytest.mark.parametrize("what", ["another version", "truncated", "damaged"])
def test_a_ring_that_cannot_be_read_has_its_seven_days(stress: Stress, kept: Path, what: str) -> None:
    [ring] = orphans(stress, 1).values()
    if what == "another version":
        patch(ring, 8, 2 | 2048 << 32)
    elif what == "truncated":
        os.truncate(ring, 1 << 19)
    else:
        patch(ring, 0, 7)
    for age, handled in ((6 * 86400, 0), (8 * 86400, 1)):
        os.utime(ring, (0, time.time() - age))
        assert stress.run("sweep", stress.rings) == [handled]
    assert not ring.exists() and not kept.exists()


def test_a_sweep_in_the_middle_of_another_capture(stress: Stress) -> None:
    """A living process's ring is left alone, by a sweep and by a reader."""
    folder = stress.folder / "k"
    folder.mkdir()
    process = stress.start("kill", folder, 0, 100)
    try:
        while not begun_in(folder) and process.poll() is None:
            time.sleep(0.005)
        for _ in range(20):
            assert stress.run("sweep", stress.rings) == [0]
        traces = list(folder.glob("*.cmem"))
        assert traces
        assert {stress.verify(trace).state for trace in traces} <= {COMPLETE, RECORDING}
    finally:
        process.kill()
        process.communicate()
    stress.run("killed", folder)


def test_a_trace_that_was_cut_misses_what_its_ring_no_longer_has(stress: Stress) -> None:
    """Without its last chunk the trace's covers lie behind the ring's tails: the gap is told as lost."""
    # Room for all that such a capture can publish: what else is told as lost would be in the sums below.
    trace, _, events = killed_capture(stress, 4000, 8 << 20)
    assert stress.verify(trace).told == 0
    whole = trace.read_bytes()
    for keep in (len(whole) - 1, len(whole) // 2):
        trace.write_bytes(whole[:keep])
        found = stress.verify(trace)
        assert found.state == RECOVERED
        # Four producers, each with one event of its own that names its thread.
        assert events <= found.events + found.told <= events + 4
    trace.write_bytes(whole)
    assert stress.verify(trace).events == events


def test_damaged_rings_are_read_without_harm(stress: Stress) -> None:
    """Random bytes in every part of the ring: an answer, never a crash, and never an event twice."""
    trace, ring, events = killed_capture(stress)
    good = ring.read_bytes()
    rng = random.Random(5)
    places = [(0, 4096 + 512), (8192, 8192 + 2048), (8192 + 262144, 1 << 20), (0, len(good))]
    for i in range(60):
        bad = bytearray(good)
        low, high = places[i % 4]
        for _ in range(rng.choice([1, 8, 100])):
            bad[rng.randrange(low, high)] = rng.randrange(256)
        ring.write_bytes(bad)
        process = stress.start("verify", trace)
        process.communicate(timeout=300)
        assert process.returncode in (0, 1)
    for size in (0, 1, 4096, 1 << 19, len(good) - 1):
        ring.write_bytes(good[:size])
        process = stress.start("verify", trace)
        process.communicate(timeout=300)
        assert process.returncode == 0
    ring.write_bytes(good)
    assert stress.verify(trace).events == events
