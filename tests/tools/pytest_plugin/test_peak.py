"""A test's own peak, to the byte."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import clean_environment
from tests.tools.pytest_plugin.measured import MIB, Run, run_suite

__all__ = ["run_suite"]

WORK = """
import torch

older = torch.ones(1 << 18)

def work():
    global older
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    older = None
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(16, 3, 8, 8)).square().sum().backward()
        optimizer.step()
"""

# The same by PyTorch's own profiler, which knows nothing of cuptimem: blocks by address, older ones left out.
ACCOUNT = """
import json, sys, torch
from work import work
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
    work()
profiler.export_chrome_trace("account.json")
events = [event for event in json.load(open("account.json"))["traceEvents"] if event.get("name") == "[memory]"]
live, now, peak, total, count = {}, 0, 0, 0, 0
for event in sorted(events, key=lambda event: event["ts"]):
    address, size = event["args"]["Addr"], event["args"]["Bytes"]
    if size > 0:
        live[address] = size
        now, total, count = now + size, total + size, count + 1
        peak = max(peak, now)
    else:
        now -= live.pop(address, 0)
print(json.dumps([peak, total, count]))
"""


def test_a_training_step_as_pytorchs_profiler_accounts_for_it(run_suite: Callable[..., Run], tmp_path: Path) -> None:
    run = run_suite(work=WORK, test_it="from work import work\n\ndef test_work():\n    work()\n")
    (tmp_path / "work.py").write_text(WORK)
    command = [sys.executable, "-c", ACCOUNT]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), check=True, capture_output=True, text=True, timeout=240
    )
    figures = run.figures["test_work"]["cpu"]
    assert [figures["peak"], figures["allocated"], figures["allocations"]] == json.loads(done.stdout.splitlines()[-1])


CHARGED = """
import gc
import pytest
import torch

MIB = 1 << 18  # elements
kept = []

@pytest.fixture(scope="session", autouse=True)
def of_session():
    yield torch.ones(64 * MIB)

@pytest.fixture(scope="class")
def of_class():
    yield torch.ones(32 * MIB)

@pytest.fixture(params=["a", "b"])
def of_function(request):
    block = torch.ones(16 * MIB)
    yield block
    torch.ones(128 * MIB)

def test_before():
    kept.append(torch.ones(4 * MIB))

class TestIt:
    def test_fixtures(self, of_class, of_function):
        a = torch.ones(MIB)
        b = torch.ones(2 * MIB)

def test_frees_what_is_older():
    kept.clear()
    torch.ones(3 * MIB)
    torch.ones(MIB)

def test_nothing():
    pass

def test_fails():
    torch.ones(8 * MIB)
    assert False

@pytest.mark.skip
def test_skipped():
    pass
"""

# Allocates in every hook around a body that pytest has, before and behind the plugin's own.
GREEDY = """
import pytest
import torch

def take():
    torch.ones(1 << 24)

@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item):
    take()
    yield
    take()

class Others:
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item):
        take()
        yield
        take()

class Plain:
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item):
        take()

class Late:
    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item):
        take()
        yield
        take()

def pytest_configure(config):
    config.pluginmanager.register(Others())
    config.pluginmanager.register(Plain())

def pytest_collection_finish(session):
    session.config.pluginmanager.register(Late())

def pytest_runtest_setup(item):
    take()

def pytest_runtest_teardown(item):
    take()

def pytest_runtest_makereport(item, call):
    take()

def pytest_runtest_logreport(report):
    take()
"""

PEAKS = {
    "test_before": 4 * MIB,
    "test_fixtures[a]": 3 * MIB,
    "test_fixtures[b]": 3 * MIB,
    "test_frees_what_is_older": 3 * MIB,
    "test_nothing": 0,
}


@pytest.mark.parametrize("conftest", ["", pytest.param(GREEDY, marks=pytest.mark.extended)], ids=["alone", "greedy"])
def test_only_the_body_is_charged(run_suite: Callable[..., Run], conftest: str) -> None:
    run = run_suite(conftest=conftest, test_it=CHARGED)
    assert {test: run.peak(test) for test in run.figures} == PEAKS
    assert run.outcomes == {"passed": 5, "failed": 1, "skipped": 1}


def test_the_order_and_the_number_of_runs_change_nothing(run_suite: Callable[..., Run]) -> None:
    shuffle = """
        import random

        def pytest_addoption(parser):
            parser.addoption("--order", type=int)

        def pytest_collection_modifyitems(config, items):
            random.Random(config.getoption("--order")).shuffle(items)
    """
    module = f"{WORK}\n" + "".join(
        f"def test_{n}():\n    torch.ones({n} << 10)\n    work() if {n} % 2 else None\n" for n in range(1, 6)
    )
    runs = [run_suite(f"--order={order}", conftest=shuffle, test_it=module) for order in (1, 2, 2, 3)]
    first = {test: devices["cpu"] for test, devices in runs[0].figures.items()}
    assert len(first) == 5 and first["test_2"]["peak"] == 8 << 10
    for run in runs:
        assert {test: devices["cpu"] for test, devices in run.figures.items()} == first


def test_traceback_of_a_failing_body_has_no_line_of_ours(run_suite: Callable[..., Run]) -> None:
    run = run_suite(test_it="def test_it():\n    assert 1 == 2\n")
    assert "measuring.py" not in run.out and "assert 1 == 2" in run.out
