"""The fixture `tensor_memory`."""

from collections.abc import Callable

import pytest

from cuptimem.report.figures import Size
from tests.tools.pytest_plugin.measured import Run, run_suite

__all__ = ["run_suite"]

USES = """
import pytest
import torch

KEPT = [torch.ones(1 << 18)]

@pytest.fixture
def later(tensor_memory):
    yield torch.ones(1 << 20)

def test_figures(tensor_memory, later):
    assert tensor_memory.peak_above_start == 0
    torch.ones(1000), torch.ones(500)
    assert tensor_memory.peak_above_start == 6000
    assert tensor_memory.peak_bytes == 6000 + (4 << 20) + (1 << 20)
    cycle = []
    cycle += [cycle, torch.ones(10)]
    del cycle
    assert tensor_memory.kept_bytes == 0
    KEPT.append(torch.ones(10))
    assert tensor_memory.kept_bytes == 40
    assert tensor_memory.on("cpu").kept_bytes == 40 == tensor_memory.leaked_bytes
    assert tensor_memory.on("cuda:0").peak_above_start == 0
    assert tensor_memory.report.device("cpu").peak_above_start == 6000

def test_reset(tensor_memory):
    torch.ones(1000)
    tensor_memory.reset()
    assert tensor_memory.peak_above_start == tensor_memory.kept_bytes == 0
    torch.ones(100)
    assert tensor_memory.peak_above_start == 400

@pytest.mark.limit_tensor_memory("4000 B")
@pytest.mark.limit_tensor_leaks("0 B")
def test_block(tensor_memory):
    with pytest.raises(TypeError, match="tensor_memory.reset"):
        with tensor_memory:
            pass

def test_beside_limits(tensor_memory):
    torch.ones(1000)
    assert tensor_memory.peak_above_start <= "3.91 KiB"

def test_reads_well(tensor_memory):
    torch.ones(1 << 20)
    assert tensor_memory.peak_above_start <= "3 MiB"
"""


def test_every_figure(run_suite: Callable[..., Run]) -> None:
    run = run_suite(test_it=USES)
    assert run.outcomes == {"passed": 4, "failed": 1}, run.out
    assert "assert 4194304 B (4.0 MiB) <= '3 MiB'" in run.out


def test_sizes_compare_with_texts_and_numbers() -> None:
    assert Size(1024) == "1 KiB" == Size(1024) and (Size(1024) != "1 KiB") is False
    assert Size(1025) != "1 KiB" and Size(1025) > "1 KiB" and Size(1023) < 1024.5
    assert Size(1024) != "a text" and Size(0) == 0 and hash(Size(7)) == hash(7)
    with pytest.raises(ValueError, match="not a size"):
        assert Size(1) < "a text"


COUNTED = """
import cuptimem.record.recorder as recorder
import pytest

started, real = [], recorder._start

def start(*arguments):
    started.append(1)
    return real(*arguments)

recorder._start = start

@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    config.add_cleanup(lambda: print("captures:", len(started), "before the end:", recorder.active()))
"""

FOUR = """
import pytest
import torch

@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_it(size, tensor_memory):
    torch.ones(size)
    assert tensor_memory.peak_above_start == 4 * size

def test_without():
    torch.ones(1)
"""


@pytest.mark.parametrize(("long", "captures"), [(1 << 30, 1), (-1, 4)])
def test_one_capture_serves_the_run(pytester: pytest.Pytester, long: int, captures: int) -> None:
    """Also where no test has a limit; a capture that has become long gives way to the next one."""
    pytester.makeconftest(f"{COUNTED}\nimport cuptimem.pytest_plugin.measuring as m\nm.LONG = {long}\n")
    pytester.makepyfile(FOUR)
    ran = pytester.runpytest_subprocess("-s")
    ran.assert_outcomes(passed=5)
    ran.stdout.fnmatch_lines([f"captures: {captures} *"])
