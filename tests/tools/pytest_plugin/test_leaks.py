"""What a test leaves behind, and what grows in its loops."""

import itertools
import re
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from cuptimem.pytest_plugin import own
from tests.tools.pytest_plugin.measured import Run, run_suite

__all__ = ["run_suite"]

START = """
import gc
import pytest
import torch

leak = pytest.mark.limit_tensor_leaks
KEPT = []
"""

LEFT = (
    START
    + """
@pytest.fixture
def function():
    held = []
    yield held
    held.clear()

class Thing:
    def __init__(self):
        self.tensors = {}

@pytest.fixture(scope="module")
def module():
    hidden = []
    thing = Thing()
    thing.add = hidden.append
    return thing

@pytest.fixture(scope="session")
def session():
    hidden = []
    def add(tensor):
        hidden.append(tensor)
    yield add

@leak("0 B")
def test_nothing(function):
    local = torch.ones(100)
    function.append(torch.ones(100))
    cycle = []
    cycle += [cycle, torch.ones(100)]

@leak("400 B")
def test_equal():
    KEPT.append(torch.ones(100))

@leak("399 B")
def test_one_byte_less():
    KEPT.append(torch.ones(100))

@leak("0 B")
def test_of_module(module):
    module.tensors["a"] = torch.ones(100)
    module.add(torch.ones(50))
    KEPT.append(torch.ones(10))

@leak("0 B")
def test_of_session_asked_for_late(request):
    request.getfixturevalue("session")(torch.ones(7))

@leak("0 B")
def test_gradients(module):
    module.layer = torch.nn.Linear(4, 4, bias=False)
    module.layer(torch.ones(1, 4)).sum().backward()

@leak("0 B")
def test_fails():
    KEPT.append(torch.ones(100))
    assert False

class Hostile:
    @property
    def __class__(self):
        raise RuntimeError("asked for its class")

    def __getattr__(self, name):
        raise RuntimeError(f"asked for {name}")

@pytest.fixture(scope="session")
def hostile():
    return [Hostile()]

@leak("0 B")
def test_hostile(hostile):
    hostile.append(Hostile())
    hostile.append(torch.ones(9))  # the last test: the fixture ends with it, and still it had it
"""
)


def test_what_stays_alive(run_suite: Callable[..., Run]) -> None:
    backwards = "def pytest_collection_modifyitems(items):\n    items.reverse()\n"
    other_way = run_suite(conftest=backwards, test_it=LEFT)
    run = run_suite(conftest="", test_it=LEFT)
    assert run.figures == other_way.figures  # which do not depend on the order
    leaked = {test: devices["cpu"]["leaked"] for test, devices in run.figures.items()}
    assert leaked == {
        "test_nothing": 0,
        "test_equal": 400,
        "test_one_byte_less": 400,
        "test_of_module": 640,
        "test_of_session_asked_for_late": 28,
        "test_gradients": 128,
        "test_hostile": 36,
    }
    assert "1 failed, 7 passed, 5 over leak limit in" in run.out
    assert "400 B left behind on cpu, the limit is 399 B: 1 B too much" in run.out
    assert re.findall(r"(\S+ B)  of these held by (.*)", run.out) == [
        ("400 B", "KEPT in module test_it → list[1]"),
        ("600 B", "fixture 'module' (module)"),
        ("40 B", "KEPT in module test_it → list[2]"),
        ("28 B", "fixture 'session' (session)"),
        ("128 B", "fixture 'module' (module)"),
        ("36 B", "fixture 'hostile' (session)"),
    ]


LOOPS = (
    START
    + """
def loop(keep, steps=20):
    model = torch.nn.Linear(10, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for i in range(steps):
        loss = model(torch.ones(4, 10)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        keep(i, loss)

@leak("0 B")
def test_bytes():
    kept = []
    loop(lambda i, loss: kept.append(torch.ones(1000)))

@leak("0 B")
def test_nodes():
    kept = []
    loop(lambda i, loss: kept.append(loss))

@leak("1 MiB")
def test_below_the_limit():
    kept = []
    loop(lambda i, loss: kept.append(torch.ones(1000)))

@leak("0 B")
def test_clean():
    loop(lambda i, loss: None)

@leak("0 B", warmup=2)
def test_warm_up():
    loop(lambda i, loss: KEPT.append(torch.ones(10)) if i < 2 else None)

@leak("0 B", warmup=2)
def test_behind_the_warm_up():
    loop(lambda i, loss: KEPT.append(torch.ones(10)) if i == 4 else None)

@leak("0 B", warmup=2)
def test_behind_the_loop():
    loop(lambda i, loss: None)
    KEPT.append(torch.ones(10))

@leak("0 B", filter_fn=lambda contributor: contributor.bytes >= 1200)
def test_chosen():
    for _ in range(3):
        KEPT.append(torch.ones(100))
    KEPT.append(torch.ones(7))

@leak("0 B", filter_fn=lambda contributor: contributor.frame.function != "test_left_out" and contributor.stack)
def test_left_out():
    KEPT.append(torch.ones(100))

@leak("0 B", filter_fn=lambda contributor: 1 / 0)
def test_wrong_filter():
    KEPT.append(torch.ones(100))

made, calls = {}, []

@leak("0 B", warmup=2)
def test_calls():
    calls.append(1)
    made.setdefault(1, torch.ones(10))

@leak("0 B", warmup=1)
def test_each_call():
    KEPT.append(torch.ones(10))

def test_how_often():
    assert len(calls) == 3
"""
)


def test_loops_and_calls(run_suite: Callable[..., Run]) -> None:
    run = run_suite(test_it=LOOPS)
    wrong = re.findall(r"^_+ test_it\.py::(\w+) _+\n(.*)\n", run.out, re.MULTILINE)
    assert [test for test, _ in wrong] == [
        "test_bytes",
        "test_nodes",
        "test_behind_the_warm_up",
        "test_behind_the_loop",
        "test_chosen",
        "test_wrong_filter",
        "test_each_call",
    ]
    said = dict(wrong)
    assert "grown in a loop on cpu" in said["test_bytes"]
    assert "3.0 graph nodes a step" in run.out
    assert said["test_chosen"].startswith("1.2 KiB left behind on cpu")
    assert (
        said["test_wrong_filter"] == "could not be measured: its filter_fn raised ZeroDivisionError: division by zero"
    )
    assert said["test_each_call"].startswith("40 B left behind")


BOTH = (
    LOOPS.partition("@leak")[0]
    + """
@leak("0 B")
def test_more_grew():
    freed = []
    loop(lambda i, loss: freed.append(torch.ones(1000)))
    KEPT.append(torch.ones(300))

@leak("0 B")
def test_more_was_left():
    freed = []
    loop(lambda i, loss: freed.append(torch.ones(10)))
    KEPT.append(torch.ones(30000))
"""
)


def test_the_rows_below_a_headline_sum_to_it(run_suite: Callable[..., Run]) -> None:
    out = run_suite(test_it=BOTH).out
    for test in ("test_more_grew", "test_more_was_left"):
        said = out.partition(f"test_it.py::{test} _")[2].partition("\n")[2].partition("\nits trace")[0]
        headline, *rows = said.splitlines()
        first = itertools.takewhile(lambda row: not row.endswith(" in all:"), rows)
        sums = [float(row.split()[0]) for row in first if "of these" not in row]
        assert sum(sums) == pytest.approx(float(headline.split()[0]), abs=0.1) and len(sums) < len(rows), said


UNCLEAR = (
    LOOPS.partition("@leak")[0]
    + """
def keep_some(size):
    kept = []
    loop(lambda i, loss: kept.append(torch.ones(size)) if i % 6 == 0 else None)

def cycle(i, loss):
    one = [torch.ones(1000)]
    one.append(one)

@leak("16000 B")
def test_at_the_limit():
    keep_some(1000)

@leak("15999 B")
def test_over_it():
    keep_some(1000)

@leak("0 B")
def test_cycles():
    loop(cycle)
"""
)


def test_growth_that_cannot_be_told_from_a_leak(run_suite: Callable[..., Run]) -> None:
    """It fails where its bytes are over the limit, and says which it is."""
    run = run_suite(test_it=UNCLEAR)
    wrong = dict(re.findall(r"^_+ test_it\.py::(\w+) _+\n(.*\n.*)\n", run.out, re.MULTILINE))
    assert wrong.keys() == {"test_over_it", "test_cycles"}, run.out
    assert "grown in a loop, which may be a leak, on cpu, the limit is 15,999 B: 1 B too much" in wrong["test_over_it"]
    assert "may be a leak (few births): grew by " in wrong["test_over_it"]
    assert "may be a leak (late garbage): grew by " in wrong["test_cycles"]
    assert {test: devices["cpu"]["leaked"] for test, devices in run.figures.items()} == dict.fromkeys(run.figures, 0)


LIBRARY = """
import functools
import torch

_table = None
_registry = []

class Masks:
    by_size = {}

def table():
    global _table
    if _table is None:
        _table = torch.ones(1000)
    return _table

@functools.cache
def cached(size):
    return torch.ones(size)

@functools.lru_cache
def pair(size):
    return torch.ones(size), torch.zeros(size)

def mask(size):
    if size not in Masks.by_size:
        Masks.by_size[size] = torch.ones(size)

def register(tensor=None):
    _registry.append(torch.ones(500) if tensor is None else tensor)
"""

USES = (
    START
    + """
import lazy

@leak("0 B")
def test_first():
    lazy.table(), lazy.cached(10), lazy.pair(20), lazy.mask(30)

@leak("0 B")
def test_second():
    lazy.table(), lazy.cached(10), lazy.pair(20), lazy.mask(30), lazy.mask(31)

@leak("0 B")
def test_own_tensor():
    lazy.register(torch.ones(11))

@leak("0 B")
def test_three_times():
    for _ in range(3):
        lazy.register()
"""
)


def test_what_a_library_makes_once(run_suite: Callable[..., Run], pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("site-packages")
    (folder / "lazy.py").write_text(LIBRARY)
    run = run_suite("-o", "pythonpath=site-packages", test_it=USES)
    leaked = {test: devices["cpu"]["leaked"] for test, devices in run.figures.items()}
    assert leaked == {"test_first": 0, "test_second": 0, "test_own_tensor": 44, "test_three_times": 4000}
    assert "not counted: 2,000 bytes that a global of lazy keeps, as if made once" in run.out


@pytest.mark.parametrize(
    ("project", "leaked"),
    [
        ({"pyproject.toml": '[project]\nname = "Lazy.Things"\n'}, 4320),
        ({"src/lazy/__init__.py": ""}, 4320),
        ({"lazy/__init__.py": "raise ImportError('the installed one is under test')"}, 4320),
        ({"pyproject.toml": '[project]\nname = "other"\n', "src/other/__init__.py": ""}, 0),
        ({"pyproject.toml": "[tool]\n"}, 0),
    ],
)
def test_an_installed_package_under_test_is_no_library(
    run_suite: Callable[..., Run], pytester: pytest.Pytester, project: dict[str, str], leaked: int
) -> None:
    """As tox installs it."""
    metadata = "site-packages/Lazy_Things-1.0.dist-info"
    installed = {
        "site-packages/lazy/__init__.py": LIBRARY,
        f"{metadata}/METADATA": "Metadata-Version: 2.1\nName: Lazy.Things\nVersion: 1.0\n",
        f"{metadata}/RECORD": f"lazy/__init__.py,,\n{metadata.partition('/')[2]}/RECORD,,\n",
    }
    for name, text in {**installed, **project}.items():
        file = pytester.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    run = run_suite(
        "-o",
        "pythonpath=site-packages",
        "--import-mode=importlib",
        test_it=USES.partition('@leak("0 B")\ndef test_second')[0],
    )
    assert run.figures["test_first"]["cpu"]["leaked"] == leaked, run.out
    assert ("1 over leak limit" in run.out) == bool(leaked)
    assert not leaked or "lazy/__init__.py" in run.out  # the line that made it


def test_modules_of_a_distribution() -> None:
    files = (
        "lazy/__init__.py lazy/sub/__init__.py lazy/more.py google/cloud/lazy/__init__.py google/cloud/lazy/a.py "
        "google/lone.py single.py _fast.cpython-311-x86_64-linux-gnu.so __editable___lazy_finder.py ../../bin/tool.py "
        "lazy-1.0.dist-info/METADATA lazy.libs/libx.so.1 odd-name/x.py"
    )
    assert own._modules(map(PurePosixPath, files.split())) == {
        "lazy",
        "google.cloud.lazy",
        "google.lone",
        "single",
        "_fast",
    }


COMPILED = (
    START
    + """
@leak("0 B")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("time", ["first", "second"])
def test_compiled(backend, time, layer):
    compiled = torch.compile(layer, backend=backend)
    compiled(torch.ones(4, 8)).sum().backward()
    layer.zero_grad()

@pytest.fixture(scope="module")
def layer():
    return torch.nn.Linear(8, 8)
"""
)


def test_the_first_use_of_a_compiled_model_is_no_leak(run_suite: Callable[..., Run]) -> None:
    run = run_suite(test_it=COMPILED)
    assert run.outcomes["passed"] == 4 and run.code == 0, run.out
    assert [devices["cpu"]["leaked"] for devices in run.figures.values()] == [0, 0, 0, 0]


@pytest.mark.parametrize("end, code", [("raise KeyboardInterrupt", 2), ('pytest.exit("enough", 3)', 3)])
def test_an_interrupted_test(run_suite: Callable[..., Run], end: str, code: int) -> None:
    """pytest has taken the values of its fixtures from it by the time of its teardown."""
    text = f"{START}\n@leak('0 B')\ndef test_first():\n    torch.ones(10)\n\n"
    run = run_suite(test_it=f"{text}@leak('0 B')\ndef test_it(tmp_path):\n    torch.ones(10)\n    {end}\n")
    assert run.code == code and run.figures["test_first"]["cpu"]["leaked"] == 0
    assert "AttributeError" not in run.out + run.err and "INTERNALERROR" not in run.out + run.err


OF_AN_INSTANCE = (
    START
    + """
class TestIt:
    @leak("0 B")
    def test_it(self):
        self.kept = [torch.ones(100)]

@leak("1 MiB")
def test_losses():
    layer, losses = torch.nn.Linear(10, 10), []
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(30):
        loss = layer(torch.ones(1, 10)).sum()
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss)
"""
)


def test_what_the_tests_instance_has_and_what_grew_in_a_loop(run_suite: Callable[..., Run]) -> None:
    run = run_suite(test_it=OF_AN_INSTANCE)
    assert run.code == 0, run.out
    assert run.figures["test_it"]["cpu"]["leaked"] == 0
    assert run.figures["test_losses"]["cpu"]["leaked"] > 30 * 4  # the losses, and their graphs
