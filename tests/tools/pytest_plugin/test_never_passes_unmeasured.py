"""What must not make a test pass: lost events, a body that did not run, limits that are not the nearest."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cuptimem.errors import Error
from cuptimem.pytest_plugin import judging
from cuptimem.pytest_plugin.limits import MEMORY, Limit, Limits
from cuptimem.pytest_plugin.session import _file_name
from cuptimem.report.load import from_dict
from tests.conftest import clean_environment
from tests.tools.cli import sample
from tests.tools.pytest_plugin.measured import Run, run_suite

__all__ = ["run_suite"]

START = """
import os, unittest
import pytest
import torch

memory, leak = pytest.mark.limit_tensor_memory, pytest.mark.limit_tensor_leaks
KEPT, CALLS, MODEL = [], [], torch.nn.Linear(100, 100)
"""


def failed(run: Run) -> dict[str, str]:
    """Tests in the short summary, with their word."""
    rows = [line.split(" ")[:2] for line in run.out.splitlines() if " - " in line and "::" in line]
    return {row[1].rpartition("::")[2]: row[0] for row in rows}


LEAKS = (
    START
    + """
class TestInstance:
    def setup_method(self):
        self.kept, self.model = KEPT, MODEL

    @leak("0 B")
    def test_list(self):
        self.kept.append(torch.ones(1000))

    @leak("0 B")
    def test_gradients(self):
        self.model(torch.ones(3, 100)).sum().backward()

@leak("150 KiB")
def test_three_lines():
    a, b, c, total = [], [], [], torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([total], 0.1)
    for _ in range(30):
        loss = total * 2
        loss.backward()
        optimizer.step()
        a.append(torch.ones(1000))
        b.append(torch.ones(1000))
        c.append(torch.ones(1000))

@leak("0 B", warmup=2)
class TestNearest:
    @leak("0 B")
    def test_first_call(self):
        CALLS.append(1)
        KEPT.append(torch.ones(1000)) if len(CALLS) == 1 else None

@pytest.fixture
def late():
    yield
    KEPT.append(torch.ones(1000))

@leak("0 B")
def test_teardown(late):
    torch.ones(3)

def refuse(contributor):
    pytest.fail("of the filter")

@leak("0 B", filter_fn=refuse)
def test_filter():
    KEPT.append(torch.ones(1000))
"""
)


def test_what_is_left_behind(run_suite: Callable[..., Run]) -> None:
    run = run_suite(test_it=LEAKS)
    assert failed(run) == {
        "test_list": "LEAK",
        "test_gradients": "LEAK",
        "test_three_lines": "LEAK",
        "test_first_call": "LEAK",
        "test_filter": "UNMEASURED",
    }, run.out
    assert run.figures["test_teardown"]["cpu"]["leaked"] == 0
    assert run.figures["test_three_lines"]["cpu"]["leaked"] > 300_000
    assert "its filter_fn raised Failed: of the filter" in run.out


def test_several_warmups(run_suite: Callable[..., Run]) -> None:
    run = run_suite(test_it=f"{START}\n@leak('0 B', device='cuda', warmup=5)\n@leak('0 B')\ndef test_it(): pass\n")
    assert run.code == pytest.ExitCode.USAGE_ERROR
    assert "limits on leaks with several warmups: give each device the same" in run.out + run.err


UNMEASURED = (
    START
    + """
class TestElsewhere(unittest.TestCase):
    def run(self, result=None):
        pass

    @memory("1 KiB")
    def test_body(self):
        raise AssertionError

@memory("1 KiB")
def test_ends_the_recording():
    from cuptimem.record import recorder

    os.truncate(recorder._capture.file.path, 10)

@memory("1 KiB")
def test_next():
    torch.ones(200)

def test_without_a_limit():
    torch.ones(200)
"""
)
FIRST_FAILS = """
from cuptimem.record import recorder
from cuptimem.errors import Error

real = recorder.open_window

def open_window(*arguments, **options):
    recorder.open_window = real
    raise Error("no room for a trace")

recorder.open_window = open_window
"""
LOSES = """
import dataclasses
from cuptimem.pytest_plugin import measuring

real = measuring.read

def read(*arguments, **options):
    report = real(*arguments, **options)
    return dataclasses.replace(report, lost=dataclasses.replace(report.lost, events=3))

measuring.read = read
"""


def test_a_recording_that_ends_by_itself(run_suite: Callable[..., Run]) -> None:
    run = run_suite(test_it=UNMEASURED)
    assert failed(run) == {"test_body": "UNMEASURED", "test_ends_the_recording": "UNMEASURED"}, run.out
    assert "its body did not run in this process" in run.out
    assert run.peak("test_next") == run.peak("test_without_a_limit") == 800


def test_a_recording_that_cannot_start(run_suite: Callable[..., Run]) -> None:
    run = run_suite("-k", "next or without", conftest=FIRST_FAILS, test_it=UNMEASURED)
    assert failed(run) == {"test_next": "UNMEASURED"}, run.out
    assert "could not be measured: no room for a trace" in run.out and run.peak("test_without_a_limit") == 800


def test_lost_events(run_suite: Callable[..., Run]) -> None:
    run = run_suite("-k", "next or without", conftest=LOSES, test_it=UNMEASURED)
    assert failed(run) == {"test_next": "UNMEASURED"}, run.out
    assert "1 test: its recording has lost 3 events: its figures would be wrong" in run.out


ENDED_EARLY = (
    START
    + """
from cuptimem.record import recorder

def close_windows():
    for window in reversed(recorder._capture.windows[:]):
        recorder.close_window(window)

def stop():
    recorder._capture.core.capture_stop({})

@pytest.mark.parametrize("end", [recorder.close_all, close_windows, stop])
class TestEnds:
    @memory("1 KiB")
    def test_memory(self, end):
        end()
        torch.ones(1000)

    @leak("0 B")
    def test_leak(self, end):
        end()
        KEPT.append(torch.ones(1000))

    @leak("0 B")
    def test_teardown(self, end, request):
        KEPT.append(torch.ones(1000))
        request.addfinalizer(end)

    def test_fixture(self, end, tensor_memory):
        end()
        torch.ones(1000)
        with pytest.raises(__import__("cuptimem").Error, match="ended inside the test"):
            tensor_memory.peak_bytes

@memory("1 KiB")
async def test_coroutine():
    recorder.close_all()
    torch.ones(1000)

class TestCase(unittest.TestCase):
    @memory("1 KiB")
    def test_case(self):
        recorder.close_all()
        torch.ones(1000)

    @leak("0 B")
    def test_case_leak(self):
        self.addCleanup(recorder.close_all)
        KEPT.append(torch.ones(1000))

@memory("1 KiB")
def test_another_process(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    torch.ones(1000)

@memory("1 KiB")
def test_fails():
    recorder.close_all()
    assert not torch.ones(1000).sum()

@memory("1 KiB")
def test_skips():
    recorder.close_all()
    pytest.skip("of the test")

@leak("0 B")
def test_no_body():
    raise AssertionError

@leak("0 B")
def test_no_teardown():
    KEPT.append(torch.ones(1000))

@memory("1 KiB")
def test_after():
    torch.ones(1000)
"""
)
REPLACES = """
import asyncio, inspect, pytest
from _pytest.runner import call_and_report

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj())
        return True

def pytest_runtest_setup(item):
    if item.name == "test_no_teardown":  # a plugin that has its own
        item.teardown = lambda: None

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if item.name == "test_no_body":  # it runs nothing, as what runs tests elsewhere
        call_and_report(item, "setup")
        call = pytest.CallInfo.from_call(lambda: None, "call")
        item.ihook.pytest_runtest_logreport(report=item.ihook.pytest_runtest_makereport(item=item, call=call))
        call_and_report(item, "teardown", nextitem=nextitem)
        return True
"""


def test_a_recording_that_is_ended_inside_the_test(run_suite: Callable[..., Run]) -> None:
    run = run_suite(conftest=REPLACES, test_it=ENDED_EARLY)
    ends = [
        f"{test}[{end}]" for test in ("memory", "leak", "teardown") for end in ("close_all", "close_windows", "stop")
    ]
    others = ("coroutine", "case", "case_leak", "another_process", "no_body", "no_teardown")
    assert failed(run) == {
        **{f"test_{name}": "UNMEASURED" for name in (*ends, *others)},
        "test_fails": "FAILED",
        "test_after": "MEMORY",
    }, run.out
    assert run.outcomes["skipped"] == run.outcomes["failed"] == 1, run.outcomes
    assert run.outcomes["not"] == len(ends) + len(others)


def test_reserved_bytes_that_are_not_known(tmp_path: Path) -> None:
    """With another allocator than PyTorch's own nothing is reserved, and no limit holds."""
    report = from_dict("x", sample.analysis(tmp_path))
    limits = Limits((Limit(MEMORY, 1 << 40, "1T", of="reserved"),))
    device = replace(report.devices[0], name="cuda:0", reserved_peak=None)
    with pytest.raises(Error, match="what PyTorch reserves on cuda:0 is not known"):
        judging.memory_failures(limits, replace(report, devices=(device,)), tmp_path)
    for other in (replace(device, reserved_peak=1), replace(device, allocations=0)):
        assert judging.memory_failures(limits, replace(report, devices=(other,)), tmp_path) == []


DEVICES = (
    START
    + """
def test_devices(tensor_memory):
    cycle = [torch.ones(1000)]
    cycle.append(cycle)
    del cycle
    assert tensor_memory.on("cpu").peak_above_start - 4000 <= "0 B"
    assert tensor_memory.on("cpu").kept_bytes == 0 == tensor_memory.on("cuda").peak_bytes
    for name in ("CPU", "cpu:0", "cuda:01", "cuda:\u0663", "nonsense"):
        with pytest.raises(ValueError, match="no device is called"):
            tensor_memory.on(name)
"""
)


def test_devices_of_the_fixture(run_suite: Callable[..., Run]) -> None:
    assert run_suite(test_it=DEVICES).code == 0


def test_the_release_of_pytorch_is_unknown_before_it_is_imported() -> None:
    program = "from cuptimem.pytest_plugin import measuring; print(measuring.environment()['torch'])"
    done = subprocess.run([sys.executable, "-c", program], env=clean_environment(), capture_output=True, text=True)
    assert done.stdout == "None\n", done.stderr


def test_names_of_traces() -> None:
    ids = ["test_it.py::test_a", "tests/it.py::test_a", "tests-it.py::test_a", "test_it.py::test_a[a b]"]
    names = {_file_name(one) for one in ids}
    assert len(names) == len(ids) and "test_it.py-test_a.cmem" in names
