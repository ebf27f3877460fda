"""Read-only and full file systems, for the trace and for the rings. Needs root and a mount namespace."""

import os
import shutil
import subprocess

import pytest


@pytest.fixture
def mounted(child, tmp_path):
    """Runs a program in a mount namespace of its own after some mounts."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting needs root and unshare")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("this container may not make a mount namespace")

    def run(mounts, program, *arguments, **options):
        return child(
            program, *arguments, before=("unshare", "-m", "sh", "-ec", f'{mounts}; exec "$@"', "sh"), **options
        )

    (tmp_path / "small").mkdir()
    return run


WORK = """
why, n, place = "", 0, ""
try:
    with cuptimem.profile(sys.argv[1]) as prof:
        core.capture_share()
        for i in range(int(sys.argv[2])): n += core.capture_emit(2, 3000, first=2 * i + 1)
    place = core.trace_meta(sys.argv[1]).get("ring.place", "")
except cuptimem.Error as error: why = str(error)
said = {"why": why, "n": n, "place": place, "active": core.capture_active(), "tasks": tasks().count("cuptimem")}
if not why:
    found = heap(sys.argv[1])
    said.update(found=found["allocations"] + found["frees"], lost=found["lost"])
    said["complete"] = prof.report.complete
with cuptimem.profile("after.cmem") as after: said["again"] = core.capture_emit(1, 5)
said["rest"] = sorted(os.listdir("small"))
say(**said)
"""


def test_full_disk_for_the_trace(mounted, tmp_path):
    answer = mounted("mount -t tmpfs -o size=1m none small", WORK, "small/run.cmem", 120)
    assert answer["why"] == "" and answer["n"] > 0 and answer["active"] is False and answer["tasks"] == 0
    assert answer["stderr"].count("cuptimem: recording ended") == 1 and "No space left" in answer["stderr"]
    assert answer["found"] > 0 and answer["again"] == 10


def test_disk_that_is_full_from_the_start(mounted):
    fill = "mount -t tmpfs -o size=1m none small; dd if=/dev/zero of=small/fill bs=4k count=300 2>/dev/null || true"
    answer = mounted(fill, WORK, "small/run.cmem", 1)
    assert answer["why"] != "" and "\n" not in answer["why"] and answer["again"] == 10
    assert answer["rest"] == ["fill"], "an empty trace was left on a full disk"


def test_read_only_disk(mounted):
    answer = mounted("mount -t tmpfs -o ro none small", WORK, "small/run.cmem", 1)
    assert "small" in answer["why"] and "\n" not in answer["why"] and answer["again"] == 10


@pytest.mark.parametrize("what", ["size=64k", "size=1m", "ro"])
def test_ring_folder_that_cannot_be_used(mounted, tmp_path, what):
    rings = str(tmp_path / "small")
    answer = mounted(f"mount -t tmpfs -o {what} none small", WORK, "run.cmem", 10, CUPTIMEM_RING_DIR=rings)
    assert answer["why"] == "" and answer["n"] == answer["found"] and answer["lost"] == 0 and answer["complete"]
    assert answer["place"] in ("shared", "beside", "private") and answer["rest"] == []
    assert "another place was taken" in answer["stderr"]


@pytest.mark.parametrize("what", ["size=64k", "ro", "size=0"])
def test_shared_memory_that_is_not_there(mounted, what):
    mounts = "mount -t tmpfs none /dev" if what == "size=0" else f"mount -t tmpfs -o {what} none /dev/shm"
    if what == "size=0":  # no /dev/shm at all
        mounts += "; mknod -m 666 /dev/null c 1 3; mknod -m 444 /dev/urandom c 1 9"
    answer = mounted(mounts, WORK, "run.cmem", 10, CUPTIMEM_RING_DIR="")
    assert answer["why"] == "" and answer["n"] == answer["found"] and answer["lost"] == 0 and answer["complete"]
    assert answer["place"] in ("beside", "private") and answer["stderr"] == ""
