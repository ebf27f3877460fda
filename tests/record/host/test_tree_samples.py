"""The collector samples the processes below the recorded one: compared with what they read themselves."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cuptimem import _core
from tests.conftest import Result

MIB = 1 << 20
RECORDED, FORKED, SPAWNED, TRACKER, PROGRAM = 1, 3, 4, 5, 0
PROGRAM_TEXT = """
import json, multiprocessing, os, subprocess, sys, time

def own():
    with open("/proc/self/smaps_rollup") as file:
        rows = dict(line.split(":", 1) for line in file if ":" in line and " kB" in line)
    return {key: int(value.split()[0]) << 10 for key, value in rows.items()}

def wait_for(found):
    while not found():
        time.sleep(0.05)

def stay(name):  # at rest, until all were sampled at rest
    with open(f"{name}.part", "w") as file:
        json.dump({"pid": os.getpid(), "parent": os.getppid(), **own()}, file)
    os.rename(f"{name}.part", f"{name}.json")
    wait_for(lambda: os.path.exists("over"))

def sampled():
    from cuptimem import _core
    pids = [json.load(open(f"{name}.json"))["pid"] for name in NAMES]
    looks = [one for one in _core.tree_samples("a.cmem") if one[0] > since and one[6] is not None]
    return any(set(pids) <= {row[0] for row in one[5] if row[6] is not None} for one in looks)

NAMES = ("recorded", "forked", "grandchild", "spawned")

if __name__ == "__main__":
    read = bytearray(os.urandom(1 << 20) * 24)
    if os.fork() == 0:
        own_block = bytearray(os.urandom(1 << 20) * 16)  # 16 MiB of its own
        for at in range(0, 12 << 20, 4096):
            read[at] = 1                                 # and 12 MiB of its parent's, copied
        if os.fork() == 0:
            stay("grandchild")
            os._exit(0)
        stay("forked")
        os.wait()
        os._exit(0)
    process = multiprocessing.get_context("spawn").Process(target=stay, args=("spawned",))
    process.start()
    other = subprocess.Popen(["sleep", "1000"])
    shared = open("/dev/shm/" + sys.argv[1], "wb")
    shared.write(bytes(6 << 20))
    shared.flush()
    wait_for(lambda: all(os.path.exists(f"{name}.json") for name in NAMES[1:]))
    with open("recorded.json", "w") as file:
        json.dump({"pid": os.getpid(), "parent": os.getppid(), **own()}, file)
    since = time.time_ns()
    wait_for(sampled)
    open("over", "w").close()
    other.kill()
    os.unlink("/dev/shm/" + sys.argv[1])
    other.wait()
    process.join()
    os.wait()
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM_TEXT)
    return tmp_path


def test_every_process_below_is_sampled(run: Callable[..., Result], programs: Path) -> None:
    """Names, parents, roles, and sizes as /proc shows them to the processes themselves, at rest."""
    name = f"cuptimem-test-{os.getpid()}"
    done = run("-m", "cuptimem", "run", "-o", "a.cmem", "program.py", name)
    assert done.code == 0, done.err
    samples = _core.tree_samples(str(programs / "a.cmem"))
    times = [sample[0] for sample in samples[:-1]]  # the last one is of the end
    assert all(later - time >= 400_000_000 for time, later in itertools.pairwise(times))  # at most twice a second

    known = {who: json.loads((programs / f"{who}.json").read_text()) for who in ("recorded", "forked", "grandchild")}
    known["spawned"] = json.loads((programs / "spawned.json").read_text())
    roles = {"recorded": RECORDED, "forked": FORKED, "grandchild": FORKED, "spawned": SPAWNED}
    for who, itself in known.items():
        rows = [row for sample in samples for row in sample[5] if row[0] == itself["pid"] and row[6] is not None]
        rows = rows[:-1] if who == "recorded" else rows  # its last sample is of its end
        assert rows, who
        _, parent, start, role, _, status, rollup, _ = rows[-1]
        assert who == "recorded" or parent == itself["parent"]
        assert role == roles[who] and start > 0 and status is not None and rollup is not None
        clean, dirty, shared_clean, shared_dirty, pss, *_ = rollup
        assert abs(clean + dirty - itself["Private_Clean"] - itself["Private_Dirty"]) <= 2 * MIB, who
        assert abs(status[0] - itself["Anonymous"]) <= 2 * MIB, who
        assert pss <= clean + dirty + shared_clean + shared_dirty
    every = {(row[3], row[4]) for sample in samples for row in sample[5]}
    assert (PROGRAM, "sleep") in every and TRACKER in {role for role, _ in every}
    found = {path: (pid, size) for sample in samples for pid, size, path, *_ in sample[6] or ()}
    assert found[f"/dev/shm/{name}"] == (0, 6 * MIB)  # written, never mapped


def test_a_short_recording_has_none(run: Callable[..., Result], programs: Path) -> None:
    done = run("-m", "cuptimem", "run", "-o", "a.cmem", "-c", "x = 1")
    assert done.code == 0, done.err
    assert _core.tree_samples(str(programs / "a.cmem")) == []


def test_a_process_that_runs_now(tmp_path: Path) -> None:
    """Of any process of this user, recorded or not."""
    text = "import time; block = bytearray(b'x') * (32 << 20); print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = _core.tree_now(process.pid)
        process.kill()
    assert found is not None
    (row,) = found[5]
    status, rollup, _ = row[5:]
    assert row[:2] == (process.pid, os.getpid()) and row[3] == RECORDED
    assert status is not None and rollup is not None and 32 * MIB <= status[0] <= 64 * MIB
    assert 32 * MIB <= rollup[1] <= status[0]
    assert any(path.endswith((".so", ".so.6")) or "python" in path for _, _, path, *_ in found[6] or ())
    assert _core.tree_now(process.pid) is None and _core.tree_now(-1) is None and _core.tree_now(1 << 40) is None
