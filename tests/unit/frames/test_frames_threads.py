"""Threads, the GIL, and fork."""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from frames_support import STACK_FIRST, Log


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """The results of work(0..count-1), each in a thread of its own; the first failure is raised."""
    results: list[Any] = [None] * count
    failures: list[str] = []

    def run(i: int) -> None:
        try:
            results[i] = work(i)
        except BaseException:  # shown below
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures[0]
    return results


def test_capture_while_another_thread_holds_the_gil(core: ModuleType) -> None:
    def descend(n: int) -> Any:
        return core.capture_while_gil_is_held(100000) if n == 0 else descend(n - 1)

    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(descend(26)))
    thread.start()
    while not core.thread_is_ready():
        time.sleep(0.001)
    assert core.hold_gil(), "captures waited for the GIL"
    thread.join()
    stack, different = got[0]
    assert different == 0
    names = [f.name.rsplit(".")[-1] for f in Log(core.log_bytes()).resolve(stack)]
    assert names[:28] == ["descend"] * 27 + ["<lambda>"]


def test_threads_agree_on_ids(core: ModuleType) -> None:
    """Many threads meet the same new stacks at the same moment, without the GIL."""
    branches = "\n".join(f"    if n == {i}: return f()" for i in range(400))
    space: dict[str, Any] = {}
    exec(f"def d(f, n):\n{branches}\n", space)
    d = space["d"]
    start = threading.Barrier(8)

    def work(i: int) -> list[int]:
        start.wait()
        return [d(core.capture_without_gil, n) for _ in range(5) for n in range(400)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        results = in_threads(8, work)
    finally:
        sys.setswitchinterval(interval)
    assert all(r == results[0] for r in results)
    assert len(set(results[0])) == 400
    log = Log(core.log_bytes())
    assert [log.resolve(s)[0].line for s in results[0][:400]] == list(range(2, 402))


def test_threads_while_codes_come_and_go(core: ModuleType) -> None:
    """Readers of the lock-free table while epochs move on and entries are replaced."""
    stop = False

    start = threading.Barrier(4)

    def work(i: int) -> int:
        nonlocal stop
        start.wait()
        if i == 0:
            for n in range(1500):
                space: dict[str, Any] = {"f": core.capture}
                exec(compile(f"def made_{n}(): return f()\nresult = made_{n}()", f"<t{n}>", "exec"), space)
                made.append((n, space["result"]))
            stop = True
            return 0
        mine = set()
        while True:
            mine.add(core.capture_without_gil())
            if stop:
                return len(mine)

    made: list[tuple[int, int]] = []
    results = in_threads(4, work)
    log = Log(core.log_bytes())
    assert results[1:] == [1, 1, 1]
    assert [log.resolve(s)[0].name for _, s in made] == [f"made_{n}" for n, _ in made]


def test_names_in_threads(core: ModuleType) -> None:
    start = threading.Barrier(6)

    def work(i: int) -> list[int]:
        start.wait()
        return [core.name(n) for n in range(1000, 2000)]

    results = in_threads(6, work)
    assert all(r == results[0] for r in results)
    log = Log(core.log_bytes())
    assert [log.names[i] for i in results[0]] == [f"n{n}" for n in range(1000, 2000)]


def test_new_capture_is_seen_by_all_threads(core: ModuleType) -> None:
    first, second = threading.Barrier(4), threading.Barrier(4)

    def here() -> int:
        stack: int = core.capture()
        return stack

    def work(i: int) -> tuple[int, int]:
        stacks = []
        for barrier in (first, second):
            if barrier.wait() == 0:
                core.begin()
            barrier.wait()
            stacks.append(here())
        return stacks[0], stacks[1]

    results = in_threads(4, work)
    log = Log(core.log_bytes())
    for _, stack in results:
        assert log.resolve(stack)[0].name.endswith("here")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_while_threads_define_stacks(core: ModuleType) -> None:
    """The child finds the mutex free, keeps what was known, and can define more."""
    stop = False

    def churn() -> None:
        n = 0
        while not stop:
            space: dict[str, Any] = {"f": core.capture_without_gil}
            exec(compile(f"def c{n}(): f()\nc{n}()", f"<c{n}>", "exec"), space)
            n = (n + 1) % 50  # codes die and come back, which always takes the slow path

    def here() -> int:
        stack: int = core.capture()
        return stack

    def finish_child(good: bool) -> None:
        try:
            core.begin()
            good = good and here() >= STACK_FIRST and Log(core.log_bytes()).stacks[STACK_FIRST].code == 1
            os._exit(0 if good else 1)
        except BaseException:  # nothing of the parent may run in the child
            os._exit(2)

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for t in threads:
        t.start()
    stacks = []
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                signal.alarm(120)  # a child that hangs fails too
            stacks.append(here())
            if pid == 0:
                finish_child(len(set(stacks)) == 1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop = True
        for t in threads:
            t.join()
    assert core.capture() >= STACK_FIRST
