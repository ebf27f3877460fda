"""What a recording of minutes costs, in its first 20 seconds and after them: python -m benchmarks steady.

Each recorder has a process of its own, which records from its first step to its last. The processes run blocks of steps
by turns and are stopped by SIGSTOP between them, so that no thread of one runs in the time of another; what it did not
do in its block it does in its next. A block's figures are compared with those of bare's block of the same round.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks import workloads
from benchmarks.worker import recording

ROOT = Path(__file__).resolve().parents[1]
FIRST = 20.0  # seconds of a process's own blocks
BLOCK = 0.5  # seconds, about
PARTS = ("first 20 s", "after them")

Block = dict[str, float]  # seconds of a step: "step" by the wall, "own" of its thread's CPU, "cpu" of the process's


def program(name: str, mode: str) -> None:
    """A process: answers each line, a number of steps, with what they took."""
    run = workloads.WORKLOADS[name]()
    thread = threading.Thread(target=run, args=(1,))  # as in benchmarks/worker.py
    thread.start()
    thread.join()
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder, recording(mode, Path(folder), 0):
        for line in sys.stdin:
            own, whole = time.thread_time(), resource.getrusage(resource.RUSAGE_SELF)
            times = run(int(line))
            own, after = time.thread_time() - own, resource.getrusage(resource.RUSAGE_SELF)
            cpu = after.ru_utime + after.ru_stime - whole.ru_utime - whole.ru_stime
            block = {"step": statistics.fmean(times), "own": own / len(times), "cpu": cpu / len(times)}
            print(json.dumps(block), flush=True)


class _Stopped:
    """A process that runs only while it is asked."""

    def __init__(self, name: str, mode: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.steady", name, mode]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("CUPTIMEM", None)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        self.ask(2)

    def ask(self, steps: int) -> Block:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        answer: Block = json.loads(self.process.stdout.readline())
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def measured(name: str, modes: tuple[str, ...], seconds: float) -> dict[str, dict[str, list[Block]]]:
    """Blocks of each mode, by PARTS; modes has "bare"."""
    processes = {mode: _Stopped(name, mode) for mode in modes}
    found: dict[str, dict[str, list[Block]]] = {mode: {part: [] for part in PARTS} for mode in modes}
    order, passed = random.Random(1), 0.0
    try:
        each = processes["bare"].ask(2)["step"]
        steps = max(1, round(BLOCK / each))
        while passed < seconds:
            for mode in order.sample(modes, len(modes)):
                found[mode][PARTS[passed >= FIRST]].append(processes[mode].ask(steps))
            passed += steps * each
    finally:
        for process in processes.values():
            process.end()
    return found


if __name__ == "__main__":
    program(*sys.argv[1:])
