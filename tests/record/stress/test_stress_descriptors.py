"""A program that closes all descriptors, as daemons do. Nothing of ours may land in a file of somebody else."""

import json
import os
import subprocess
import sys


def test_a_descriptor_that_was_closed_is_opened_anew(child):
    answer = child(
        """
import time
with cuptimem.profile("run.cmem") as prof:
    core.capture_share()
    n = core.capture_emit(2, 100, first=1)
    core.capture_sync()
    theirs = close_and_take()
    for fd in theirs: os.write(fd, b"mine")
    n += core.capture_emit(2, 20000, first=11)
    time.sleep(1.5)                                     # the lock of the ring is looked after once a second
    n += core.capture_emit(2, 100, first=21)
    core.capture_sync()
    whole = [os.pread(fd, 100, 0) == b"mine" and os.fstat(fd).st_size == 4 for fd in theirs]
whole += [os.pread(fd, 100, 0) == b"mine" for fd in theirs]
found = heap("run.cmem")
say(n=n, found=found["allocations"] + found["frees"], lost=found["lost"], whole=all(whole), left=os.listdir("rings"))
"""
    )
    assert answer["whole"] and answer["n"] == answer["found"] == 80800 and answer["lost"] == 0
    assert answer["left"] == [] and answer["stderr"] == ""


def test_a_side_file_whose_descriptor_was_closed(child):
    """Past the bound too: the side file is opened anew, and who has its number now keeps file and descriptor."""
    answer = child(
        """
import glob, time
with cuptimem.profile("run.cmem", max_size=16 << 20) as prof:
    core.capture_share()
    first = n = 0
    while not os.path.exists("run.cmem.tail"):
        n += core.capture_emit(2, 20000, first=(first := first + 10))
        core.capture_sync()
    theirs = close_and_take()
    for fd in theirs: os.write(fd, b"mine")
    for _ in range(20):
        n += core.capture_emit(2, 20000, first=(first := first + 10))
        core.capture_sync()
whole = [os.pread(fd, 100, 0) == b"mine" and os.fstat(fd).st_size == 4 for fd in theirs]
say(whole=all(whole), active=core.capture_active(), left=glob.glob("*.tail"))
"""
    )
    assert answer["whole"] and answer["left"] == [] and answer["stderr"] == ""


def test_a_trace_that_has_lost_name_and_descriptor(child):
    """Ends with one warning."""
    answer = child(
        """
import time
with cuptimem.profile("run.cmem") as prof:
    core.capture_share()
    core.capture_emit(2, 100, first=1)
    core.capture_sync()
    open("new", "w").write("a new file of theirs")
    os.replace("new", "run.cmem")
    theirs = close_and_take()
    core.capture_emit(2, 20000, first=11)
    time.sleep(0.6)
    core.capture_emit(2, 100, first=31)
sizes = {os.fstat(fd).st_size for fd in theirs}
say(sizes=sorted(sizes), theirs=open("run.cmem").read(), active=core.capture_active(), tasks=tasks().count("cuptimem"))
"""
    )
    assert answer["sizes"] == [0] and answer["theirs"] == "a new file of theirs"
    assert answer["active"] is False and answer["tasks"] == 0
    assert (
        answer["stderr"].count("\n") == 1
        and "recording ended: its trace was replaced by another file" in answer["stderr"]
    )


def test_a_living_process_that_lost_its_lock_is_not_swept(child, start, tmp_path):
    """POSIX locks go with any close of the file. Until ours is taken again the ring says who it belongs to."""
    process = start(
        """
import time
with cuptimem.profile("first.cmem") as prof:
    core.capture_share()
    ring = "rings/" + os.listdir("rings")[0]
    n = core.capture_emit(2, 100, first=1)
    print("ready", flush=True)
    while not os.path.exists("swept"):
        open(ring, "rb").close()                    # drops the lock, over and over
        n += core.capture_emit(1, 1, first=5)
        time.sleep(0.0005)
    there = os.path.exists(ring)
found = heap("first.cmem")
say(n=n, found=found["allocations"] + found["frees"], lost=found["lost"], there=there, complete=prof.report.complete)
"""
    )
    assert process.stdout.readline() == "ready\n"
    (tmp_path / "sweep.py").write_text(
        (tmp_path / "program.py").read_text().split("from stress_child import *")[0]
        + "from stress_child import *\nimport time\nend, n = time.monotonic() + 1.5, 0\nwhile time.monotonic() < end:\n"
        + '    with cuptimem.profile("second.cmem", overwrite=True): n += 1\n'
        + 'say(state=cuptimem.open("first.cmem").complete, n=n)\n'
    )
    try:
        done = subprocess.run(
            [sys.executable, tmp_path / "sweep.py"],
            env={**os.environ, "CUPTIMEM_RING_DIR": str(tmp_path / "rings")},
            cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True,
        )  # fmt: skip
    finally:
        (tmp_path / "swept").touch()
    assert json.loads(done.stdout)["state"] is False, "the first one still records"
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    answer = json.loads(out.splitlines()[-1])
    assert answer["there"] and answer["complete"]
    assert answer["n"] == answer["found"] and answer["lost"] == 0
