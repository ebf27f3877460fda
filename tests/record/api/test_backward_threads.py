"""The wait for PyTorch's threads of backward passes; other threads with their name stand in for them."""

import ctypes
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem.record import backward_threads
from tests.conftest import Result

PR_SET_NAME = 15


@pytest.fixture
def torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch", types.ModuleType("torch")))


class Stand:
    """A thread of that name that sleeps for so many moments shorter than the pause between two looks, then for long."""

    def __init__(self, moments: int) -> None:
        self.left = moments
        self._named, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Stand":
        self._thread.start()
        self._named.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.left = 0
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_autograd_3", 0, 0, 0)
        self._named.set()
        while self.left > 0:
            time.sleep(0.0005)
            self.left -= 1
        self._end.wait()


@pytest.mark.usefixtures("torch_is_there")
def test_waits_until_they_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_threads, "_LIMIT", 60)  # on a busy machine their moments are longer
    with Stand(200) as one, Stand(400) as other:
        backward_threads.wait()
        assert (one.left, other.left) == (0, 0)


@pytest.mark.usefixtures("torch_is_there")
def test_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_threads, "_LIMIT", 0.05)
    with Stand(1 << 40):
        before = time.monotonic()
        waiting = threading.Thread(target=backward_threads.wait, daemon=True)
        waiting.start()
        waiting.join(60)
        assert not waiting.is_alive() and time.monotonic() - before >= 0.05


@pytest.mark.usefixtures("torch_is_there")
def test_gives_up_where_time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bytes] = []

    def look() -> list[bytes]:
        looks.append(b"%d" % len(looks))  # never the same
        return looks[-1:]

    monkeypatch.setattr(backward_threads, "_LIMIT", 0.05)
    monkeypatch.setattr(backward_threads, "_look", look)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    backward_threads.wait()
    assert 10 < len(looks) < 100


def test_nothing_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(backward_threads, "_look", lambda: pytest.fail("it looked"))
    backward_threads.wait()


PROGRAM = f"""
import ctypes, threading, time
import torch
from cuptimem.record import backward_threads

backward_threads._LIMIT = 60  # as above
kept = []

def work():
    ctypes.CDLL(None).prctl({PR_SET_NAME}, b"pt_autograd_0", 0, 0, 0)
    named.set()
    for _ in range(100):
        time.sleep(0.0005)
    kept.append(torch.empty(12345, dtype=torch.uint8))
    time.sleep(60)

named = threading.Event()
threading.Thread(target=work, daemon=True).start()
named.wait()
"""


@pytest.mark.torch
def test_a_recording_holds_what_they_did_last(forked: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = forked("-m", "cuptimem", "run", "-q", "-o", "run.cmem", "program.py")
    assert done.code == 0, done.err
    assert cuptimem.open(tmp_path / "run.cmem").peak.bytes >= 12345


def test_an_interrupt_ends_the_wait_only(run: Callable[..., Result], tmp_path: Path) -> None:
    interrupted = "def wait():\n    raise KeyboardInterrupt\nbackward_threads.wait = wait\n"
    (tmp_path / "program.py").write_text(f"from cuptimem.record import backward_threads\n{interrupted}")
    done = run("-m", "cuptimem", "run", "-o", "run.cmem", "program.py")
    assert "wrote run.cmem" in done.err and cuptimem.open(tmp_path / "run.cmem").complete
