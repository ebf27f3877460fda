"""What pytest itself can do: fixtures, kinds of tests, options, several runs in one process."""

import json
import re

import pytest

from cuptimem.report.load import analyze
from tests.tools.pytest_plugin.runs import MemorySuite

pytestmark = pytest.mark.torch


def test_fixtures_are_not_the_tests(memory_suite: MemorySuite) -> None:
    memory_suite.write("""
@pytest.fixture(scope="session")
def of_session():
    yield block(1 << 20)
    block(1 << 21)

@pytest.fixture(scope="module", autouse=True)
def of_module():
    yield block(1 << 19)

@pytest.fixture(scope="class")
def of_class():
    made = block(1 << 18)
    yield made
    del made
    block(1 << 19)

@pytest.fixture
def of_function(of_session):
    yield block(1 << 17)
    block(1 << 18)

@pytest.mark.parametrize("size", [100, 2000, 30])
@pytest.mark.parametrize("twice", [False, True])
def test_it(size, twice, of_session, of_function):
    one = block(size)
    two = block(size) if twice else None

class TestClass:
    def setup_method(self):
        self.before = block(1 << 16)

    def teardown_method(self):
        block(1 << 17)

    @pytest.mark.limit_tensor_leaks(0)
    def test_frees_what_fixtures_made(self, of_class):
        del self.before
        block(300)

    def test_nothing(self, of_class):
        pass

def test_uses_a_finalizer(request):
    request.addfinalizer(lambda: block(1 << 20))
    block(40)
""")
    ended = memory_suite.run()
    assert ended.code == 0, ended.out
    expected = {f"test_it[{twice}-{size}]": size * (1 + twice) for twice in (False, True) for size in (100, 2000, 30)}
    expected |= {
        "TestClass::test_frees_what_fixtures_made": 300,
        "TestClass::test_nothing": 0,
        "test_uses_a_finalizer": 40,
    }
    assert ended.figures() == expected


def test_the_body_of_a_unittest_is_its_method(memory_suite: MemorySuite) -> None:
    memory_suite.write("""
class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = block(1 << 20)

    def setUp(self):
        self.before = block(1 << 17)
        self.addCleanup(block, 1 << 18)

    def tearDown(self):
        block(1 << 19)

    def test_allocates(self):
        block(100)

    @pytest.mark.limit_tensor_memory("1 KiB")
    def test_over(self):
        kept = block(1025)

    @pytest.mark.limit_tensor_leaks("0 B")
    def test_leaves_nothing(self):
        self.made = block(10)

    @pytest.mark.limit_tensor_leaks("99 B", warmup=2)
    def test_leaks(self):
        type(self).kept = block(100)
        type(self).more = [*getattr(type(self), "more", []), block(50)]

    @pytest.mark.limit_tensor_leaks(0)
    def test_fails(self):
        type(self).left = block(7)
        self.fail("of its own")

    @pytest.mark.limit_tensor_leaks(0)
    def test_skips(self):
        type(self).left = block(7)
        self.skipTest("today")

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    def test_parts(self):
        for i in range(3):
            with self.subTest(i=i):
                block(i)

    @unittest.skip("never")
    def test_never(self):
        pass

@pytest.mark.limit_tensor_memory("1 KiB")
class Later(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.before = block(1 << 17)

    async def test_waits(self):
        block(500)

    async def test_over(self):
        kept = block(1026)

class Broken(unittest.TestCase):
    def setUp(self):
        block(60)
        raise OSError("no set-up")

    def test_never_runs(self):
        block(70)
""")
    ended = memory_suite.run()
    assert ended.figures() == {
        "Test::test_allocates": 100,
        "Test::test_over": 1025,
        "Test::test_leaves_nothing": 10,
        "Test::test_leaks": 150,
        "Test::test_parts": 2,
        "Later::test_waits": 500,
        "Later::test_over": 1026,
    }
    assert {name: one for name, one in ended.outcomes.items() if one != "passed"} == {
        "Test::test_over": "failed",
        "Test::test_leaks": "failed",
        "Later::test_over": "failed",
    }
    assert ended.code == 1
    counts = ended.counts
    assert (
        counts["failed"],
        counts["skipped"],
        counts["xfailed"],
        counts["over memory limit"],
        counts["over leak limit"],
    ) == (2, 2, 1, 2, 1), ended.out
    assert "1,025 B tensors at most on cpu, the limit is 1,024 B: 1 B too much" in ended.out
    assert "AssertionError: of its own" in ended.out and "OSError: no set-up" in ended.out


def test_doctests_are_measured(memory_suite: MemorySuite) -> None:
    memory_suite.pytester.makeini("[pytest]\ncuptimem_limit_tensor_memory = 1 KiB\ncuptimem_limit_tensor_leaks = 0 B\n")
    memory_suite.write(
        """
def small():
    '''
    >>> one = block(1000)
    '''

def large():
    '''
    >>> one = torch.empty(1000, dtype=torch.uint8)
    >>> len(torch.empty(25, dtype=torch.uint8))
    25
    '''

def wrong():
    '''
    >>> len(block(2000))
    1
    '''

def leaves():
    '''
    >>> kept.append(block(6))
    '''

kept = []
""",
        "code.py",
    )
    ended = memory_suite.run("--doctest-modules", "code.py")
    assert ended.code == 1
    assert ended.figures() == {"code.small": 1000, "code.large": 1025, "code.leaves": 6}
    assert ended.outcomes == {"code.small": "passed", "code.large": "failed", "code.leaves": "failed"}
    assert ended.counts == {"failed": 1, "passed": 2, "over memory limit": 1, "over leak limit": 1}
    assert re.search(r"1000 B  1 block, [a-z]+, <doctest code.large\[0\]>:1", ended.out) and "25 B" in ended.out


OUTCOMES = """
kept = []

@pytest.mark.limit_tensor_memory("1 KiB")
def test_over():
    one = block(2048)

def test_fails():
    block(5)
    assert False

@pytest.mark.limit_tensor_leaks(0)
def test_fails_and_leaves():
    kept.append(block(5))
    assert False

@pytest.mark.skip(reason="not today")
@pytest.mark.limit_tensor_memory(0)
def test_skipped():
    block(5)

@pytest.mark.limit_tensor_memory(0)
def test_skips_itself():
    block(5)
    pytest.skip("in the middle")

@pytest.fixture
def broken():
    raise OSError("no set-up")

@pytest.mark.limit_tensor_memory(0)
def test_without_set_up(broken):
    block(5)

@pytest.fixture
def breaks_later():
    yield
    raise OSError("no teardown")

@pytest.mark.limit_tensor_leaks(0)
def test_without_teardown(breaks_later):
    block(6)
"""


def test_outcomes_are_as_without_the_plugin(memory_suite: MemorySuite) -> None:
    memory_suite.write(OUTCOMES)
    ended = memory_suite.run("-rs")
    assert ended.counts == {"failed": 2, "passed": 1, "skipped": 2, "over memory limit": 1, "errors": 2}, ended.out
    assert ended.outcomes == {"test_over": "failed", "test_without_teardown": "passed"}
    assert ended.out.count("too much") == 1
    without = memory_suite.run("-p", "no:cuptimem")
    assert without.counts == {"failed": 2, "passed": 2, "skipped": 2, "errors": 2, "warning": 6}, without.out
    assert not without.records and "tensor memory" not in without.out
    verbose = memory_suite.run("-v", "-k", "over")
    assert "test_it.py::test_over MEMORY" in verbose.out


def test_expected_failures(memory_suite: MemorySuite) -> None:
    memory_suite.write("""
kept = []

@pytest.mark.xfail
@pytest.mark.limit_tensor_memory(0)
def test_memory():
    block(1)

@pytest.mark.xfail(strict=True, reason="known leak")
@pytest.mark.limit_tensor_leaks(0)
def test_leak():
    kept.append(block(2))

@pytest.mark.xfail(strict=True)
@pytest.mark.limit_tensor_leaks(0)
def test_strict_without_leak():
    block(3)

@pytest.mark.xfail
@pytest.mark.limit_tensor_leaks(0)
@pytest.mark.limit_tensor_memory(4)
def test_without_leak():
    block(4)

@pytest.mark.xfail(raises=ZeroDivisionError)
@pytest.mark.limit_tensor_memory(0)
def test_another_failure_is_expected():
    block(5)

@pytest.mark.xfail
@pytest.mark.limit_tensor_memory(0)
def test_raises():
    block(6)
    raise ZeroDivisionError

@pytest.mark.xfail(run=False)
@pytest.mark.limit_tensor_memory(0)
def test_does_not_run():
    block(7)
""")
    ended = memory_suite.run("-rxX")
    assert ended.counts == {"failed": 1, "xfailed": 4, "xpassed": 1, "over memory limit": 1}, ended.out
    assert ended.code == 1
    assert ended.outcomes == {
        "test_memory": "xfailed",
        "test_leak": "xfailed",
        "test_strict_without_leak": "failed",
        "test_without_leak": "passed",
        "test_another_failure_is_expected": "failed",
    }
    expected = memory_suite.run("-k", "test_memory or test_leak or test_without_leak")
    assert expected.code == 0 and expected.counts == {"xfailed": 2, "xpassed": 1, "deselected": 4}


def test_stops_at_the_first(memory_suite: MemorySuite) -> None:
    memory_suite.write("""
@pytest.mark.limit_tensor_memory(0)
@pytest.mark.parametrize("size", [0, 10, 20, 30])
def test_it(size):
    block(size)
""")
    ended = memory_suite.run("-x")
    assert ended.code == 1 and ended.counts == {"passed": 1, "over memory limit": 1}
    assert "stopping after 1 failures" in ended.out
    again = memory_suite.run("--lf")  # pytest's cache knows them as failures
    assert again.counts == {"over memory limit": 1}, again.out


def test_pdb_stops_where_there_is_something_to_see(memory_suite: MemorySuite) -> None:
    memory_suite.write("""
def test_fails():
    mine = block(10)
    assert len(mine) == 11

class Test(unittest.TestCase):
    def tearDown(self):
        block(1 << 20)

    def test_ends(self):
        block(20)

@pytest.mark.limit_tensor_memory(29)
def test_over():
    block(30)

@pytest.mark.limit_tensor_memory(1 << 20)
def test_stops_itself():
    mine = block(40)
    breakpoint()
""")
    typed = "p 'length', len(mine)\np 'large', len(block(1 << 10))\nc\np 'again', len(mine)\np len(block(100))\nc\n"
    ended = memory_suite.run("--pdb", stdin=typed)
    assert "('length', 10)" in ended.out and "('large', 1024)" in ended.out and "('again', 40)" in ended.out, ended.out
    assert ended.out.count("entering PDB") == 1  # at the assert: where a limit is judged the body is gone
    assert ended.counts == {"failed": 1, "passed": 2, "over memory limit": 1}
    assert ended.figures() == {"Test::test_ends": 20, "test_over": 30, "test_stops_itself": 140}


def test_tests_that_profile_themselves(memory_suite: MemorySuite) -> None:
    memory_suite.write("""
from cuptimem import profile

def test_without_a_limit():
    with profile() as outer:
        one = block(100)
        with profile("inner.cmem") as inner:
            two = block(2000)
            del two
        three = block(30)
    assert outer.report.device("cpu").peak_above_start == 2100
    assert inner.report.device("cpu").peak_above_start == 2000

@pytest.mark.limit_tensor_memory(3000)
@pytest.mark.limit_tensor_leaks(0)
def test_with_limits(tensor_memory, tmp_path):
    zero = block(7)
    with profile(tmp_path / "outer.cmem") as outer:
        one = block(100)
        with profile() as inner:
            two = block(2000)
        del two
    assert outer.report.device("cpu").peak_above_start == 2100
    assert inner.report.device("cpu").peak_above_start == 2000
    assert tensor_memory.peak_above_start == 2107

def test_left_open():
    global left
    left = profile("left.cmem")
    left.start()
    block(50)

def test_closes_it():
    block(60)
    left.stop()
    block(70)
""")
    ended = memory_suite.run()
    assert ended.code == 0, ended.out
    assert ended.figures() == {
        "test_without_a_limit": 2100,
        "test_with_limits": 2107,
        "test_left_open": 50,
        "test_closes_it": 70,
    }
    (inner,) = analyze(str(memory_suite.path / "inner.cmem")).devices
    assert (inner.name, inner.peak_above_start, inner.allocations) == ("cpu", 2000, 1)
    (left,) = analyze(str(memory_suite.path / "left.cmem")).devices
    assert (left.peak_above_start, left.allocations) == (60, 2)


def test_under_cuptimem_run(memory_suite: MemorySuite) -> None:
    memory_suite.write("""
first = block(5000)

@pytest.mark.limit_tensor_memory(99)
def test_over():
    block(100)

@pytest.mark.limit_tensor_leaks(0)
def test_leaves():
    global kept
    kept = block(200)

def test_at_the_end():
    block(300)
""")
    ended = memory_suite.run(command=("-m", "cuptimem", "run", "-o", "run.cmem", "-m", "pytest"))
    assert ended.code == 1, ended.out + ended.err
    assert ended.counts == {"passed": 2, "over memory limit": 1, "over leak limit": 1}
    assert ended.figures() == {"test_over": 100, "test_leaves": 200, "test_at_the_end": 300}
    whole = analyze(str(memory_suite.path / "run.cmem"))
    assert whole.complete
    (cpu,) = whole.devices
    assert (cpu.peak.bytes, cpu.allocations) == (5500, 4)


def test_twice_in_a_process(memory_suite: MemorySuite) -> None:
    memory_suite.write("""
@pytest.mark.limit_tensor_memory(99)
@pytest.mark.parametrize("size", [90, 100])
def test_it(size):
    block(size)
""")
    (memory_suite.path / "twice.py").write_text("""
import cuptimem, pytest, torch
codes = [int(pytest.main(["--cuptimem-json=1.json"])), int(pytest.main(["-k", "90", "--cuptimem-json=2.json"]))]
print("codes", codes, "active", cuptimem.record.recorder.active())
with cuptimem.profile() as after:
    torch.empty(5, dtype=torch.uint8)
print("after", after.report.device("cpu").peak_above_start)
""")
    ended = memory_suite.run(command=("twice.py",))
    assert "codes [1, 0] active False\nafter 5\n" in ended.out, ended.out + ended.err
    first, second = (json.loads((memory_suite.path / f"{n}.json").read_text())["records"] for n in (1, 2))
    assert [one["devices"]["cpu"]["peak"] for one in first] == [100, 90]
    assert [one["devices"]["cpu"]["peak"] for one in second] == [90]


def test_nearest_marker(memory_suite: MemorySuite) -> None:
    memory_suite.pytester.makeini("[pytest]\naddopts = --strict-markers\ncuptimem_limit_tensor_memory = 1 KiB\n")
    body = "def test_ini():\n    one = block(1024)\n    one = None\n    block(1025)\n"
    memory_suite.write(body, "test_ini.py")
    memory_suite.write("""
pytestmark = pytest.mark.limit_tensor_memory("2 KiB")

def test_module():
    block(2049)

@pytest.mark.limit_tensor_memory("3 KiB")
class TestClass:
    def test_class(self):
        block(3 << 10)

    @pytest.mark.limit_tensor_memory("10 B")
    def test_function(self):
        block(11)

    class TestInner:
        def test_inner(self):
            block(3073)
""")
    ended = memory_suite.run()
    assert ended.counts == {"passed": 1, "over memory limit": 4}, ended.out
    for said in (
        "limit is 1,024 B: 1 B too",
        "limit is 2,048 B: 1 B too",
        "limit is 3,072 B: 1 B too",
        "limit is 10 B",
    ):
        assert said in ended.out
    chosen = memory_suite.run("-k", "class")
    assert (chosen.code, chosen.counts) == (1, {"passed": 1, "over memory limit": 2, "deselected": 2})


def test_collect_only(memory_suite: MemorySuite) -> None:
    memory_suite.write("@pytest.mark.limit_tensor_memory(0)\ndef test_it():\n    block(1)\n")
    memory_suite.run("--cuptimem-save", "-k", "nothing")
    assert memory_suite.run("--cuptimem-save").counts == {"over memory limit": 1}
    ended = memory_suite.run("--collect-only", "-q", "--cuptimem", "--cuptimem-save=other")
    assert ended.code == 0 and "tensor memory" not in ended.out, ended.out
    assert not ended.records and not list(memory_suite.path.glob(".cuptimem/*/other.json"))
    memory_suite.write("@pytest.mark.limit_tensor_memory('many')\ndef test_it():\n    block(1)\n")
    wrong = memory_suite.run("--collect-only", "-q")
    assert wrong.code == 4 and "'many' is no size" in wrong.err and "Traceback" not in wrong.err, wrong.err


def test_subtests(memory_suite: MemorySuite) -> None:
    if not hasattr(pytest, "Subtests"):
        pytest.skip("this pytest has no subtests of its own")
    memory_suite.write("""
@pytest.mark.limit_tensor_memory(10)
@pytest.mark.limit_tensor_leaks(0)
@pytest.mark.parametrize("size", [5, 15])
@pytest.mark.parametrize("fails", [False, True])
def test_parts(subtests, size, fails):
    with subtests.test("first"):
        block(size)
    with subtests.test("second"):
        assert not fails
""")
    ended = memory_suite.run()
    assert ended.outcomes == {
        "test_parts[False-5]": "passed",
        "test_parts[False-15]": "failed",
        "test_parts[True-5]": "failed",
        "test_parts[True-15]": "failed",
    }, ended.out
    assert ended.counts["over memory limit"] == 2


def test_what_cannot_be_measured_is_said(memory_suite: MemorySuite) -> None:
    (memory_suite.path / "conftest.py").write_text("""
from cuptimem.errors import Error
from cuptimem.pytest_plugin import measuring

def read(window, tables=(), again=False):
    raise Error("the trace is gone")

measuring.read = read
""")
    memory_suite.write("""
def test_one():
    block(1)

def test_two():
    block(2)

@pytest.mark.limit_tensor_memory(100)
def test_limited():
    block(3)

@pytest.mark.limit_tensor_leaks(100)
def test_leaks():
    block(3)
""")
    ended = memory_suite.run("--cuptimem-save")
    assert ended.code == 1 and not ended.records and not list(memory_suite.path.glob(".cuptimem/*"))
    assert ended.counts == {"passed": 2, "not measured": 2}, ended.out
    assert "2 tests: the trace is gone" in ended.out
    assert ended.out.count("\ncould not be measured: the trace is gone") == 2
