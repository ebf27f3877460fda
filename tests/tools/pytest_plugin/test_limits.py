"""Which limit holds, and what is no limit at all."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from cuptimem.report.load import open as open_trace
from tests.conftest import clean_environment
from tests.tools.pytest_plugin.measured import Run, run_suite

__all__ = ["run_suite"]

NEAREST = """
import pytest
import torch

limit = pytest.mark.limit_tensor_memory
pytestmark = limit("3 KiB")

def use(kib):
    torch.ones(kib << 8)

def test_module_holds():
    use(3)

def test_module_fails():
    use(4)

@limit(4096)
def test_equal():
    use(4)

@limit("4095 B")
def test_one_byte_less():
    use(4)

@limit("1 KiB")
@limit("5 kb", device="cpu")
def test_its_device_goes_first():
    use(5)

@pytest.mark.parametrize("kib", [5, pytest.param(6, marks=limit("6 KiB")), pytest.param(6)])
@limit("5 KiB")
def test_parameter(kib):
    use(kib)

@limit("7 KiB")
class TestBase:
    def test_class_holds(self):
        use(7)

    @limit("1 KiB")
    def test_function_fails(self):
        use(2)

@limit("8 KiB")
class TestDerived(TestBase):
    def test_class_holds(self):
        use(8)
"""


def test_the_nearest_limit_holds(run_suite: Callable[..., Run]) -> None:
    run = run_suite(
        "-v",
        "-o",
        "cuptimem_limit_tensor_memory=1 B",
        test_it=NEAREST,
        test_ini="from test_it import use\n\ndef test_ini():\n    use(1)\n",
    )
    failed = {line.split(" ")[0].partition("::")[2] for line in run.out.splitlines() if " MEMORY " in line}
    assert failed == {
        "test_module_fails",
        "test_one_byte_less",
        "test_parameter[6_1]",
        "TestBase::test_function_fails",
        "TestDerived::test_function_fails",
        "test_ini",
    }
    assert "4,096 B tensors at most on cpu, the limit is 4,095 B: 1 B too much" in run.out
    assert run.code == 1


MARKERS = {
    'limit_tensor_memory("12 parsecs")': "'12 parsecs' is no size; write it like \"512 MiB\"",
    "limit_tensor_memory(-1)": 'a size is a text like "512 MiB", or a number of bytes, not -1',
    "limit_tensor_memory(True)": 'a size is a text like "512 MiB", or a number of bytes, not True',
    "limit_tensor_memory()": 'takes one size, as in limit_tensor_memory("512 MiB")',
    'limit_tensor_memory("1B", "2B")': 'takes one size, as in limit_tensor_memory("512 MiB")',
    'limit_tensor_memory("1B", devise="cpu")': "takes device, of, not devise",
    'limit_tensor_memory("1B", device="gpu")': 'unknown device \'gpu\': it is "cpu", "pinned", "cuda" or "cuda:0"',
    'limit_tensor_memory("1B", device="cuda:01")': "unknown device 'cuda:01'",
    'limit_tensor_memory("1B", of="blocks")': "of='blocks' is none of 'tensors', 'reserved', 'device'",
    'limit_tensor_memory("1B", device="cpu", of="reserved")': "of='reserved' is about CUDA devices",
    'limit_tensor_leaks("1B", warmup=-1)': "warmup is a number of calls, not -1",
    'limit_tensor_leaks("1B", filter_fn=3)': "filter_fn is a function of a contributor, not 3",
    'limit_tensor_memory("1B")\n@pytest.mark.limit_tensor_memory("2B")': "two limits for each device",
}


@pytest.mark.parametrize("marker, workers", [*((marker, "") for marker in MARKERS), (next(iter(MARKERS)), "-n2")])
def test_wrong_markers_end_the_run_at_collection(run_suite: Callable[..., Run], marker: str, workers: str) -> None:
    if workers:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    text = f"import pytest\n\ndef test_other():\n    assert 0\n\n@pytest.mark.{marker}\ndef test_it():\n    assert 0\n"
    run = run_suite(*workers.split(), test_it=text)
    said = run.out + run.err
    assert MARKERS[marker] in said and "test_it.py::test_it: limit_tensor" in said or "two limits" in said
    assert "Traceback" not in said and "INTERNALERROR" not in said and "assert 0" not in said
    assert run.code == pytest.ExitCode.USAGE_ERROR


OPTIONS = {
    ("-o", "cuptimem_limit_tensor_memory=much"): "cuptimem_limit_tensor_memory: 'much' is no size",
    ("-o", "cuptimem_limit_tensor_leaks=much"): "cuptimem_limit_tensor_leaks: 'much' is no size",
    ("--cuptimem-most=0",): "--cuptimem-most is a number of rows, 1 or more, not",
    ("--cuptimem-most=x",): "--cuptimem-most is a number of rows, 1 or more, not",
    ("--cuptimem-save=a/b",): "a/b",
    ("--cuptimem-compare-fail=peak:5parsecs",): "peak:5parsecs",
    ("--cuptimem-compare=missing",): "missing",
    ("--cuptimem-traces=test_a_file.py/x",): "--cuptimem-traces: ",
    ("--cuptimem-json=.",): "--cuptimem-json: . is a folder; name a file",
    ("-o", "cuptimem_measure=maybe"): "cuptimem_measure is yes or no, not 'maybe'",
}


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_wrong_options_end_the_run_before_any_test(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    pytester.makepyfile(test_a_file="def test_it():\n    assert 0\n")
    run = pytester.runpytest_subprocess(*options)
    said = run.stdout.str() + run.stderr.str()
    (line,) = [line for line in said.splitlines() if line.startswith("ERROR: ")]
    assert OPTIONS[options] in line
    assert "Traceback" not in said and "assert 0" not in said
    assert run.ret == pytest.ExitCode.USAGE_ERROR


CUDA = """
import pytest

limit = pytest.mark.limit_tensor_memory

@limit("1 MiB", device="cuda")
def test_device():
    assert 0

@limit("1 MiB", of="reserved")
def test_reserved():
    assert 0

@limit("1 MiB", device="cpu")
def test_cpu():
    pass
"""


def test_a_cuda_limit_without_cuda_skips_with_the_reason(run_suite: Callable[..., Run]) -> None:
    run = run_suite("-rs", test_it=CUDA)
    assert run.outcomes == {"passed": 1, "skipped": 2}
    assert "its limit is about a CUDA device, and there is none (--cuptimem-simulate simulates one)" in run.out


def test_costs_nothing_when_unused(pytester: pytest.Pytester) -> None:
    """Neither PyTorch nor the extension nor the plugin's own parts are imported, and no test pays for a hook."""
    pytester.makeconftest(
        """
        import sys

        def pytest_sessionfinish(session):
            print("\\nimported:", *sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "cuptimem")))
            manager = session.config.pluginmanager
            plugin = manager.get_plugin("cuptimem")
            print("hooks:", *sorted(caller.name for caller in manager.get_hookcallers(plugin)))
        """
    )
    pytester.makepyfile("def test_it():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-s"],
        cwd=pytester.path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert lines["imported"] == "cuptimem cuptimem.pytest_plugin"
    assert "runtest" not in lines["hooks"]


def test_a_size_of_numpy_and_a_device_of_torch(run_suite: Callable[..., Run]) -> None:
    run = run_suite(
        test_it="import numpy, pytest, torch\n"
        "@pytest.mark.limit_tensor_memory(numpy.int64(4), device=torch.device('cpu'))\n"
        "def test_it():\n    torch.ones(2)\n"
    )
    assert run.code == 1 and "8 B tensors at most on cpu, the limit is 4 B: 4 B too much" in run.out


NAMES = """
import pytest
import torch

@pytest.mark.parametrize("name, number", [("a b", 10), ("a-b", 20)])
@pytest.mark.limit_tensor_memory("1 B")
def test_it(name, number):
    torch.ones(number)
"""


def test_each_test_has_a_trace_of_its_own(run_suite: Callable[..., Run], pytester: pytest.Pytester) -> None:
    run = run_suite("--cuptimem-traces=traces", test_it=NAMES)
    assert run.code == 1 and run.out.count("trace: ") == 2
    reports = [open_trace(path) for path in pytester.path.glob("traces/*.cmem")]
    # Not by the program, which is python -c in workers of xdist.
    titled = {report.title: report.device("cpu").peak_above_start for report in reports}
    assert titled == {"test_it.py::test_it[a b-10]": 40, "test_it.py::test_it[a-b-20]": 80}
    assert all(str(report).startswith(f"{report.title} · ") for report in reports)


def test_where_no_trace_can_be_kept(run_suite: Callable[..., Run]) -> None:
    run = run_suite(test_it=NAMES)  # without a cache
    assert "its trace is not kept: there is no folder for it; --cuptimem-traces=DIR names one" in run.out
