"""python -m benchmarks.pytest_plugin [--tests N] [--rounds N]

What the pytest plugin costs. Suites of one kind of test are run without the plugin and with it, one after the other in
each round; what is shown is the smallest processor time of all rounds, for that is what other load disturbs least.

`unused` is a suite without PyTorch, markers or options: its import and all of its hooks, in all, measured within the
process, for a whole run varies by more. The others are milliseconds a test beside the same
test without the plugin. A tenth of the tests beside all of them shows whether the cost is linear. `leaks` is measured
with a fiftieth: each of its tests pays one garbage collection of the whole process, which is measured by itself, too.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

OFF = ("-p", "no:cuptimem")
HEAD = "import pytest\n{0}\n@pytest.mark.parametrize('i', range({1}))\ndef test_it(i):\n    {2}\n"
TENSORS = ("import torch", "torch.ones(16)")
# A plugin that is loaded first, imports ours by itself and puts a clock around each of its hooks.
STOPWATCH = """
import time
import pytest

began = time.thread_time()
import cuptimem.pytest_plugin as plugin

spent = time.thread_time() - began

def timed(function):
    def call(*arguments):
        global spent
        began = time.thread_time()
        try:
            return function(*arguments)
        finally:
            spent += time.thread_time() - began
    return call

@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    for caller in config.pluginmanager.get_hookcallers(plugin):
        for implementation in caller.get_hookimpls():
            if implementation.plugin is plugin:
                implementation.function = timed(implementation.function)

def pytest_unconfigure():
    print("spent:", spent)
"""
COLLECTION = """
import gc, time, pytest, torch
gc.collect()
began = time.process_time()
gc.collect()
print(time.process_time() - began)
"""


def seconds(folder: Path, *options: str) -> float:
    """Processor time of one run of the suite in a folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"benchmarks.pytest_plugin: {done.stdout[-2000:]}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def unused(tests: int) -> float:
    """Seconds that the plugin takes of a run with nothing for it to do."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_it.py").write_text(HEAD.format("", tests, "pass"))
        (folder / "stopwatch.py").write_text(STOPWATCH)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "stopwatch", "-p", "no:cacheprovider"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": name},
            capture_output=True,
            text=True,
            check=True,
        )
    return float(done.stdout.rpartition("spent: ")[2].split()[0])


def compare(tests: int, rounds: int, body: tuple[str, str], *options: str) -> tuple[float, float]:
    """Seconds without the plugin and with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_it.py").write_text(HEAD.format(body[0], tests, body[1]))
        seconds(folder, *OFF)  # writes compiled files
        pairs = [(seconds(folder, *OFF), seconds(folder, *options)) for _ in range(rounds)]
    return min(without for without, _ in pairs), min(within for _, within in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pytest_plugin", description=__doc__)
    parser.add_argument("--tests", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    costs = [unused(given.tests // 10) for _ in range(3 * given.rounds)]
    print(f"unused, {given.tests // 10:,} tests: {min(costs) * 1e3:.1f} ms in all")
    leaks = ("-o", "cuptimem_limit_tensor_leaks=1MiB")
    for what, tests, options in (
        ("--cuptimem", given.tests // 10, ("--cuptimem",)),
        ("--cuptimem", given.tests, ("--cuptimem",)),
        ("leaks", max(10, given.tests // 50), leaks),
    ):
        without, within = compare(tests, given.rounds, TENSORS, *options)
        print(
            f"{what}, {tests:,} tests: {(within - without) * 1e3 / tests:+.2f} ms a test, "
            f"beside {without * 1e3 / tests:.2f}"
        )
    done = subprocess.run([sys.executable, "-c", COLLECTION], capture_output=True, text=True, check=True)
    print(f"one collection of a process with pytest and PyTorch: {float(done.stdout) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
