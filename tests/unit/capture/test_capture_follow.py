"""A recording that another process follows: within its bound, past it, after its kill."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capture_support import ROOT

from cuptimem import _core
from tests.conftest import clean_environment

# Each line that comes in is one round of allocations with their frees; then it says how many events there were.
RECORDS = """
import os, sys
from cuptimem import _core as c
path, max_size = sys.argv[1], int(sys.argv[2])
c.capture_start(path, {}, max_size=max_size)
c.capture_record(True)
emitted = 0
for line in sys.stdin:
    if line == "stop\\n":
        c.capture_stop()
    else:
        emitted += c.capture_emit(1, 2000, 1)
    if line == "round\\n":
        c.capture_sync()
    print(emitted, flush=True)
"""


class Recording:
    def __init__(self, folder: Path, max_size: int = 0) -> None:
        self.path = str(folder / "t.cmem")
        rings = folder / "rings"
        rings.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-c", RECORDS, self.path, str(max_size)],
            env={**clean_environment(), "PYTHONPATH": str(ROOT), "CUPTIMEM_RING_DIR": str(rings)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str) -> int:
        """Events so far."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(what, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@pytest.fixture
def recordings(tmp_path: Path) -> Iterator[list[Recording]]:
    made: list[Recording] = []
    yield made
    for one in made:
        one.process.kill()
        one.process.communicate()


def read(follower: Any) -> tuple[int, int]:
    """Records since it began, and how often it began again."""
    agains, word, total = 0, "more", 0
    while word != "end":
        word, count = follower.read(5000)
        agains += word == "again"
        total += count
    return total, agains


@pytest.mark.parametrize("max_size", [0, 40_000], ids=["whole", "past the bound"])
def test_each_event_is_read_once(tmp_path: Path, recordings: list[Recording], max_size: int) -> None:
    recording = Recording(tmp_path, max_size)
    recordings.append(recording)
    emitted = recording.ask("round")
    follower = _core.Follower(recording.path)
    read(follower)
    passed = False
    for _ in range(150):
        emitted = recording.ask("round")
        assert read(follower)[1] == 0
        assert follower.state == "recording"
        assert follower.totals()["records"] >= emitted
        passed = passed or Path(f"{recording.path}.tail").exists()
    assert passed == (max_size > 0)
    recording.ask("stop")
    assert read(follower)[1] == 0
    report = _core.analyze(recording.path)
    assert follower.state == "complete"
    assert follower.totals()["records"] == report["events"]
    assert (report["compacted"] is not None) == passed
    device = report["devices"][0]
    assert follower.devices()[0][1:4] == (device["end"], 0, device["peak"])


def test_one_that_came_too_late_begins_again(tmp_path: Path, recordings: list[Recording]) -> None:
    """The side file goes round while nobody looks: what the follower lacks is compacted by then."""
    recording = Recording(tmp_path, 40_000)
    recordings.append(recording)
    for _ in range(20):
        recording.ask("round")
    follower = _core.Follower(recording.path)
    assert read(follower)[1] == 0
    for _ in range(100):
        recording.ask("round")
    assert read(follower)[1] == 1
    emitted = recording.ask("round")
    assert read(follower)[1] == 0
    assert follower.devices()[0][1:3] == (0, 0)
    counted = sum(int(one[3]) for one in _core.trace_dump(recording.path)[:-1] if one[0] == "compacted")
    assert counted > 0 and emitted > 200_000


@pytest.mark.parametrize("max_size", [0, 40_000], ids=["whole", "past the bound"])
def test_a_kill_loses_nothing(tmp_path: Path, recordings: list[Recording], max_size: int) -> None:
    recording = Recording(tmp_path, max_size)
    recordings.append(recording)
    for _ in range(25):
        recording.ask("round")
    follower = _core.Follower(recording.path)
    read(follower)
    emitted = recording.ask("not written yet")
    recording.process.send_signal(signal.SIGKILL)
    recording.process.wait()
    assert read(follower)[1] == 0
    assert follower.state == "recovered"
    assert follower.devices()[0][1:3] == (0, 0)
    if not max_size:
        kinds = [one[0] for one in _core.trace_dump(recording.path)[:-1]]
        assert kinds.count("alloc") * 2 == emitted
    assert follower.totals()["records"] >= emitted
    assert json.dumps(follower.devices()) == json.dumps(follower.devices())


def test_a_stopped_process_is_still_recording(tmp_path: Path, recordings: list[Recording]) -> None:
    recording = Recording(tmp_path)
    recordings.append(recording)
    recording.ask("round")
    recording.process.send_signal(signal.SIGSTOP)
    follower = _core.Follower(recording.path)
    records = read(follower)[0]
    assert follower.state == "recording" and records > 0
    assert read(follower) == (0, 0)
