"""What rings take of shared memory, and rings that get their file while threads record."""

import ctypes
import os
import subprocess
from pathlib import Path
from typing import IO

import pytest
from capture_support import COMPLETE, RECORDING, RECOVERED, ROOT, WARNINGS, Stress

MIB = 1 << 20
DEFAULT = 16 * MIB
PLACES = ["none", "chosen", "shared", "beside", "private"]  # cm_place


class Room(ctypes.Structure):
    _fields_ = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("rings", ctypes.c_uint64)]


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("rules") / "room.so"
    source = ROOT / "csrc/capture/shared_memory.c"
    subprocess.run(["gcc", "-std=gnu11", "-shared", "-fPIC", *WARNINGS, str(source), "-o", str(target)], check=True)
    lib = ctypes.CDLL(str(target))
    lib.cm_room_for.restype = ctypes.c_uint64
    lib.cm_room_for.argtypes = [Room, ctypes.c_uint64]
    lib.cm_room_measure.argtypes = [ctypes.c_char_p, ctypes.POINTER(Room)]
    return lib


@pytest.mark.parametrize(
    "total, free, rings, wanted, allowed",
    [
        (24 << 30, 20 << 30, 0, DEFAULT, DEFAULT),
        (256 * MIB, 256 * MIB, 0, DEFAULT, DEFAULT),
        (256 * MIB, 255 * MIB, 0, DEFAULT, 255 * MIB // 16),  # a sixteenth of what is free
        (128 * MIB, 124 * MIB, 0, DEFAULT, 31 * MIB // 4),
        (512 * MIB, 496 * MIB, DEFAULT, DEFAULT, DEFAULT),
        (512 * MIB, 480 * MIB, 28 * MIB, DEFAULT, 4 * MIB),  # what the sixteenth has left
        (512 * MIB, 480 * MIB, 28 * MIB + 4096, DEFAULT, 0),  # too small to work well
        (512 * MIB, 480 * MIB, 32 * MIB, DEFAULT, 0),
        (64 * MIB, 64 * MIB, 99 * MIB, DEFAULT, 0),  # others may have broken the rules
        (64 * MIB, 64 * MIB, 0, DEFAULT, 4 * MIB),
        (64 * MIB, 64 * MIB - 16, 0, DEFAULT, 0),
        (128 * MIB, 64 * MIB + 16 * 4095, 0, DEFAULT, 4 * MIB),  # whole pages
        (64 * MIB, 32 * MIB, 0, 2 * MIB, 2 * MIB),  # a ring that was asked to be small is that, or nothing
        (64 * MIB, 32 * MIB - 1, 0, 2 * MIB, 0),
        (32 * MIB, 32 * MIB, 0, DEFAULT, 0),
        (16 * MIB, 16 * MIB, 0, DEFAULT, 0),
        (64 * 1024, 64 * 1024, 0, DEFAULT, 0),
        (1 << 30, 1 << 30, 0, 1 << 30, 64 * MIB),
        (0, 0, 999 * MIB, DEFAULT, DEFAULT),  # a file system without a bound says 0
    ],
)
def test_rules(rules: ctypes.CDLL, total: int, free: int, rings: int, wanted: int, allowed: int) -> None:
    assert rules.cm_room_for(Room(total, free, rings), wanted) == allowed


def test_only_rings_count(rules: ctypes.CDLL, tmp_path: Path) -> None:
    (tmp_path / ".cuptimem-ring-1").write_bytes(b"x" * 5 * 4096)
    with (tmp_path / ".cuptimem-ring-2").open("wb") as sparse:
        sparse.truncate(3 * MIB)
    (tmp_path / "torch_12").write_bytes(b"x" * MIB)
    (tmp_path / ".cuptimem-ring-3").symlink_to(tmp_path / "torch_12")
    (tmp_path / ".cuptimem-ring-4").mkdir()
    room, about = Room(), os.statvfs(tmp_path)
    assert rules.cm_room_measure(os.fsencode(tmp_path), ctypes.byref(room)) == 0
    assert room.rings == 5 * 4096 + 3 * MIB
    assert room.total == about.f_blocks * about.f_frsize
    assert rules.cm_room_measure(os.fsencode(tmp_path / "none"), ctypes.byref(room)) < 0


def rings_in(folder: Path) -> list[int]:
    sizes = []
    for path in folder.glob(".cuptimem-ring-*"):
        try:
            sizes.append(path.stat().st_blocks * 512)
        except FileNotFoundError:
            continue  # it went meanwhile
    return sizes


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def place_of(line: str) -> tuple[str, int]:
    place, size = line.split()
    return PLACES[int(place)], int(size)


def test_starts_that_race(stress: Stress, tmp_path: Path) -> None:
    """Twelve processes see the same room at the same moment, and need long to fill what they take of it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    environment = {
        "STRESS_RING_DIR": "",
        "STRESS_SHARED_DIR": str(shared),
        "STRESS_ROOM": f"{256 * MIB}:{96 * MIB}",
        "STRESS_NETWORK": "1",
        "STRESS_SLOW": "30",
    }
    programs = [stress.start("room", tmp_path / f"{n}.cmem", stdin=True, **environment) for n in range(12)]
    try:
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        places = [place_of(line_of(program.stdout)) for program in programs]
        # Two of 6 MiB, then one of the 4 MiB that are left.
        assert sorted(size for place, size in places if place == "shared") == [4 * MIB, 6 * MIB, 6 * MIB]
        assert {place for place, _ in places} == {"shared", "private"}
        assert sorted(rings_in(shared)) == [4 * MIB, 6 * MIB, 6 * MIB]
    finally:
        ends = [program.communicate("end\n", timeout=120) for program in programs]
    assert [err for _, err in ends] == [""] * 12 and {program.returncode for program in programs} == {0}
    assert rings_in(shared) == []
    assert {stress.verify(tmp_path / f"{n}.cmem").state for n in range(12)} == {COMPLETE}


@pytest.mark.parametrize("network, place", [("", ("beside", DEFAULT)), ("1", ("shared", 5 * MIB))])
def test_a_whole_ring_beside_the_trace_comes_before_a_small_one(
    stress: Stress, tmp_path: Path, network: str, place: tuple[str, int]
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    environment = {
        "STRESS_RING_DIR": "",
        "STRESS_SHARED_DIR": str(shared),
        "STRESS_ROOM": f"{128 * MIB}:{80 * MIB}",
        "STRESS_NETWORK": network,
    }
    program = stress.start("room", tmp_path / "t.cmem", stdin=True, **environment)
    out, err = program.communicate("go\nend\n", timeout=120)
    assert (program.returncode, err, place_of(out)) == (0, "", place)


def test_another_one_keeps_the_lock(stress: Stress, tmp_path: Path) -> None:
    """Nobody waits for ever for one who was stopped while it took room."""
    import fcntl

    shared = tmp_path / "shared"
    shared.mkdir()
    folder = os.open(shared, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        program = stress.start(
            "room", tmp_path / "t.cmem", stdin=True, STRESS_RING_DIR="", STRESS_SHARED_DIR=str(shared)
        )
        out, err = program.communicate("go\nend\n", timeout=120)
    finally:
        os.close(folder)
    assert (program.returncode, err) == (0, "") and place_of(out)[0] in ("beside", "private")


@pytest.mark.parametrize("by_collector", [0, 1], ids=["asked", "collector"])
@pytest.mark.parametrize("room", [None, f"{128 * MIB}:{80 * MIB}"], ids=["wide", "small"])
def test_nothing_is_lost_while_rings_move(stress: Stress, tmp_path: Path, by_collector: int, room: str | None) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    environment = {"STRESS_RING_DIR": "", "STRESS_SHARED_DIR": str(shared)}
    environment |= {"STRESS_ROOM": room or f"{1 << 30}:{1 << 30}", "STRESS_SLOW": "20", "STRESS_NETWORK": "1"}
    for end in ("stop", "kill"):
        path = tmp_path / f"{end}.cmem"
        if end == "kill":
            environment["STRESS_DIE"] = "1"
        program = stress.start("move", path, 4, 20000, by_collector, **environment)
        out, err = program.communicate(timeout=300)
        assert (program.returncode, err) == (-9 if end == "kill" else 0, "")
        where, counts = out.splitlines()
        published, lost = counts.split()
        place, size = place_of(where)
        assert (place, size) == ("shared", 5 * MIB if room else DEFAULT)
        assert rings_in(shared) == ([size] if end == "kill" else [])
        found = stress.verify(path)
        assert found.state == (RECOVERED if end == "kill" else COMPLETE)
        assert (found.producers, found.early_frees) == (4, 0)
        assert (found.events, found.told) == (int(published), int(lost))


def test_before_the_rings_have_a_file(stress: Stress, tmp_path: Path) -> None:
    """Such a recording is read like any other, and what a kill leaves of it is not taken for a damaged one."""
    environment = {"STRESS_RING_DIR": str(stress.rings), "STRESS_SHARED_DIR": str(tmp_path)}
    program = stress.start("nowhere", tmp_path / "t.cmem", stdin=True, **environment)
    assert place_of(line_of(program.stdout))[0] == "none"
    published, lost = line_of(program.stdout).split()
    assert [*rings_in(tmp_path), *rings_in(stress.rings)] == []
    assert stress.verify(tmp_path / "t.cmem").state == RECORDING
    program.kill()
    program.communicate()
    found = stress.verify(tmp_path / "t.cmem")
    assert (found.state, found.events, int(lost)) == (RECOVERED, int(published), 0)
