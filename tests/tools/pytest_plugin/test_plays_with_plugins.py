"""Other plugins of pytest beside this one."""

import json
import re
from importlib.util import find_spec

import pytest

from tests.tools.pytest_plugin.runs import MemorySuite, needs

pytestmark = pytest.mark.torch
needs_xdist = pytest.mark.skipif(find_spec("xdist") is None, reason="pytest-xdist is not installed beside this Python")
needs_timeout = pytest.mark.skipif(find_spec("pytest_timeout") is None, reason="pytest-timeout is not installed")
needs_cov = pytest.mark.skipif(find_spec("pytest_cov") is None, reason="pytest-cov is not installed")

LIMITED = """
kept = []

@pytest.mark.limit_tensor_memory(1000)
@pytest.mark.parametrize("size", range(997, 1003))
def test_memory(size):
    block(size)

@pytest.mark.limit_tensor_leaks(10)
@pytest.mark.parametrize("size", [9, 10, 11])
def test_leaks(size):
    kept.append(block(size))
"""


@needs_xdist
def test_xdist_workers_report_to_the_controller(memory_suite: MemorySuite) -> None:
    memory_suite.write(LIMITED)
    ended = memory_suite.run("-n", "2", "--cuptimem", "--cuptimem-save", "--junitxml=out.xml")
    assert ended.code == 1
    assert ended.counts == {"passed": 7, "over memory limit": 2, "over leak limit": 1}, ended.out
    assert sorted(ended.figures().values()) == [9, 10, 11, 997, 998, 999, 1000, 1001, 1002]
    assert ended.figures("leaked")["test_leaks[11]"] == 11
    assert "11 B left behind on cpu, the limit is 10 B: 1 B too much" in ended.out
    assert "the 10 highest peaks" in ended.out and ended.out.count("test_memory[1002]") == 3
    (file,) = memory_suite.path.glob(".cuptimem/*/baseline.json")
    assert f"{file.relative_to(memory_suite.path)}: 6 written, 0 kept" in ended.out
    assert 'name="cuptimem_leaked_cpu" value="11"' in (memory_suite.path / "out.xml").read_text()


@needs_xdist
@pytest.mark.extended
def test_xdist_workers_are_compared_with_a_baseline(memory_suite: MemorySuite) -> None:
    memory_suite.write(LIMITED)
    assert memory_suite.run("--cuptimem-save").code == 1
    (file,) = memory_suite.path.glob(".cuptimem/*/baseline.json")
    some = memory_suite.run("-n", "1", "-k", "997 or 9]", "--cuptimem-save", "--cuptimem-compare-fail=peak:0B")
    assert some.code == 0 and "3 written, 3 kept" in some.out, some.out
    assert "compared 3, new 0, not comparable 0" in some.out
    assert len(json.loads(file.read_text())["tests"]) == 6
    memory_suite.write(LIMITED.replace("block(size)", "block(size - (size == 998) * 900 + (size == 997))"))
    more = memory_suite.run("-n", "1", "-k", "997 or 998", "--cuptimem-compare-fail=peak:0B")
    assert more.code == 1 and more.counts == {"passed": 2}, more.out
    assert "compared 2, new 0, not comparable 0" in more.out


@needs_xdist
def test_xdist_with_markers_alone(memory_suite: MemorySuite) -> None:
    """The controller, which collects nothing, learns of the limits from the workers' reports."""
    memory_suite.write(LIMITED)
    ended = memory_suite.run("-n", "1", command=("-m", "pytest", "-p", "no:cacheprovider", "--color=no"))
    assert ended.code == 1 and ended.counts == {"passed": 7, "over memory limit": 2, "over leak limit": 1}, ended.out
    assert "1002 B tensors at most on cpu, the limit is 1000 B: 2 B too much" in ended.out
    assert "\nLEAK test_it.py::test_leaks[11] - 11 B left behind on cpu" in ended.out  # in the short summary
    assert "trace: " not in ended.out  # without pytest's cache, and without --cuptimem-traces, none is kept


@needs_xdist
@pytest.mark.extended
def test_a_wrong_marker_under_xdist(memory_suite: MemorySuite) -> None:
    memory_suite.write("@pytest.mark.limit_tensor_memory('many')\ndef test_it():\n    block(1)\n")
    wrong = memory_suite.run("-n", "1", command=("-m", "pytest", "--color=no"))
    assert wrong.code == 4, wrong.out
    assert "ERROR: test_it.py::test_it: limit_tensor_memory: 'many' is no size" in wrong.err
    assert "INTERNALERROR" not in wrong.out and "Traceback" not in wrong.err


@needs("pytest_benchmark")
def test_benchmark_has_the_peak(memory_suite: MemorySuite) -> None:
    memory_suite.plugins = ("benchmark",)
    memory_suite.write("""
def work(size):
    one = block(size)
    two = block(size)

@pytest.mark.limit_tensor_memory(2000)
def test_called(benchmark):
    benchmark(work, 1000)

def test_pedantic(benchmark):
    benchmark.pedantic(work, args=(300,), rounds=7, iterations=3, warmup_rounds=2)

@pytest.mark.limit_tensor_leaks(0)
def test_leaks_nothing(benchmark):
    benchmark(work, 50)

def test_without(tmp_path):
    block(10)
""")
    ended = memory_suite.run("--benchmark-max-time=0.01", "--benchmark-json=times.json", "--cuptimem")
    assert ended.code == 0, ended.out
    times = json.loads((memory_suite.path / "times.json").read_text())["benchmarks"]
    assert {one["name"]: one["extra_info"] for one in times} == {
        "test_called": {"peak_tensor_bytes": 2000},
        "test_pedantic": {"peak_tensor_bytes": 600},
        "test_leaks_nothing": {"peak_tensor_bytes": 100},
    }
    assert ended.figures()["test_called"] == 2000
    off = memory_suite.run("--benchmark-disable", "--cuptimem")
    assert off.code == 0 and off.figures() == ended.figures()


@needs("pytest_rerunfailures")
def test_reruns(memory_suite: MemorySuite) -> None:
    memory_suite.plugins = ("rerunfailures",)
    memory_suite.write("""
calls, kept = [], []

@pytest.fixture(scope="module", autouse=True)
def of_module():
    print("module set up")
    yield
    print("module torn down")

@pytest.mark.limit_tensor_leaks(0)
def test_leaks_once():
    if not kept:
        kept.append(block(20))

@pytest.mark.limit_tensor_memory(100)
def test_second_time_lucky():
    calls.append(1)
    block(300 // len(calls) - 50)

@pytest.mark.limit_tensor_memory(100)
def test_never():
    block(101)
""")
    ended = memory_suite.run("--reruns=3", "-s")
    assert ended.code == 1, ended.out
    counts = ended.counts
    assert (counts["over memory limit"], counts["rerun"]) == (1, 5), ended.out
    assert ended.outcomes == {"test_second_time_lucky": "passed", "test_never": "failed", "test_leaks_once": "passed"}
    assert ended.figures() == {"test_second_time_lucky": 100, "test_never": 101, "test_leaks_once": 0}
    assert (
        len(re.findall(r"^\d.* too much$", ended.out, re.MULTILINE)) == 1
    )  # of the last try, and only where that fails
    assert ended.out.count("module set up") == ended.out.count("module torn down") == 1
    chosen = memory_suite.run("--reruns=3", "--only-rerun=ZeroDivisionError", "-k", "lucky")
    assert chosen.code == 1 and chosen.counts == {"over memory limit": 1, "deselected": 2}, chosen.out


@needs_timeout
def test_timeouts(memory_suite: MemorySuite) -> None:
    memory_suite.write("""
import time

@pytest.mark.timeout(1)
@pytest.mark.limit_tensor_memory(10)
@pytest.mark.limit_tensor_leaks(0)
def test_hangs():
    one = block(100)
    time.sleep(100)

@pytest.mark.timeout(100)
@pytest.mark.limit_tensor_memory(10)
def test_goes_on():
    block(11)

def test_after():
    block(12)
""")
    ended = memory_suite.run()
    assert ended.counts == {"failed": 1, "passed": 1, "over memory limit": 1}, ended.out
    assert ended.figures() == {"test_goes_on": 11, "test_after": 12}
    killed = memory_suite.run("--timeout-method=thread", "-k", "hangs")
    assert killed.code == 1 and "Timeout" in killed.out + killed.err


@needs_cov
def test_coverage_is_the_same(memory_suite: MemorySuite) -> None:
    memory_suite.write("def half(n):\n    if n > 100:\n        return block(n)\n    return None\n", "halves.py")
    memory_suite.write("""
from halves import half

@pytest.mark.limit_tensor_memory(200)
@pytest.mark.parametrize("size", [150, 300])
def test_it(size):
    half(size)
""")
    ended = memory_suite.run("--cov=halves", "--cov-branch", "--cov-report=json:cov.json")
    assert ended.counts == {"passed": 1, "over memory limit": 1}, ended.out
    assert ended.figures() == {"test_it[150]": 150, "test_it[300]": 300}
    with_plugin = json.loads((memory_suite.path / "cov.json").read_text())["files"]
    memory_suite.run("-p", "no:cuptimem", "--cov=halves", "--cov-branch", "--cov-report=json:cov.json")
    assert with_plugin == json.loads((memory_suite.path / "cov.json").read_text())["files"]


@needs("pytest_randomly")
def test_random_order_gives_the_same_figures(memory_suite: MemorySuite) -> None:
    memory_suite.plugins = ("randomly",)
    memory_suite.write("""
@pytest.fixture(scope="module")
def wide():
    return block(1 << 20)

kept = []

@pytest.mark.limit_tensor_leaks("1 MiB")
@pytest.mark.parametrize("size", range(1, 11))
def test_it(size, wide):
    kept.append(block(size * 100))
    block(size)
    kept[:-3] = []
""")
    runs = [memory_suite.run("-v", f"--randomly-seed={seed}") for seed in (1, 2)]
    orders = [re.findall(r"::(test_it\S*) PASSED", ended.out) for ended in runs]
    assert runs[0].code == 0, runs[0].out
    assert runs[0].figures() == runs[1].figures() == {f"test_it[{size}]": size * 101 for size in range(1, 11)}
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]) != []
    assert runs[0].figures("leaked") == {f"test_it[{size}]": size * 100 for size in range(1, 11)}


@needs("pytest_asyncio")
def test_asyncio(memory_suite: MemorySuite) -> None:
    memory_suite.plugins = ("asyncio",)
    memory_suite.write("""
import asyncio
import pytest_asyncio

@pytest_asyncio.fixture
async def before():
    yield block(1 << 20)
    block(1 << 21)

@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared():
    yield block(1 << 20)

async def part(size):
    one = block(size)
    await asyncio.sleep(0)
    return one

@pytest.mark.asyncio
@pytest.mark.limit_tensor_memory(300)
@pytest.mark.parametrize("more", [0, 1])
async def test_together(before, more):
    await asyncio.gather(part(100), part(200 + more))

@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.limit_tensor_leaks(0)
async def test_in_a_thread(shared):
    await asyncio.to_thread(block, 50)

@pytest.mark.asyncio
@pytest.mark.limit_tensor_leaks(0)
async def test_leaves():
    global task
    task = await part(70)
""")
    ended = memory_suite.run()
    assert ended.counts == {"passed": 3, "over memory limit": 1, "over leak limit": 1}, ended.out
    assert ended.figures() == {
        "test_together[0]": 300,
        "test_together[1]": 301,
        "test_in_a_thread": 50,
        "test_leaves": 70,
    }
    assert ended.figures("leaked")["test_leaves"] == 70 and ended.figures("leaked")["test_in_a_thread"] == 0


@needs("pytest_benchmark")
def test_nothing_of_ours_runs_between_rounds(memory_suite: MemorySuite) -> None:
    memory_suite.plugins = ("benchmark",)
    memory_suite.write("""
import collections, sys
import pytest_benchmark.fixture

@pytest.mark.parametrize("rounds", [1, 5, 500])
def test_it(benchmark, rounds, monkeypatch, request):
    calls = collections.Counter()

    def count(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("cuptimem"):
            calls[name, frame.f_code.co_name] += 1

    pause = pytest_benchmark.fixture.PauseInstrumentation
    monkeypatch.setattr(pause, "__enter__", lambda self: sys.setprofile(count))
    monkeypatch.setattr(pause, "__exit__", lambda self, *exception: sys.setprofile(None))
    benchmark.pedantic(block, args=(100,), rounds=rounds)
    assert not calls
""")
    ended = memory_suite.run()
    assert ended.code == 0 and ended.counts == {"passed": 3}, ended.out
    assert ended.figures("allocations") == {"test_it[1]": 1, "test_it[5]": 5, "test_it[500]": 500}
