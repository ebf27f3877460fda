"""Full names of operators: which operator each allocation is named after, where that is asked for."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.torches

BEGIN = """
import threading
import torch
import cuptimem

core.capture_stop()

def named(trace):
    '''Each block that a trace has, as (bytes, phase, operator).'''
    rows = trace.report.contents("allocated").contributors
    return sorted((c.bytes, c.phase, c.operator) for c in rows)

def problems(trace):
    text = trace.report.environment.get("problems", "")
    return text.splitlines()

def events(path):
    return sum(row[0] == "operator" for row in core.trace_dump(str(path)))

weight, bias, batch = torch.ones(20, 10), torch.ones(20), torch.ones(30, 10)
"""

Run = Callable[..., dict[str, Any]]


def test_forward_is_named_after_its_innermost_operator(run: Run) -> None:
    """linear runs addmm, which makes the result. zeros and randn have their memory from empty, which says nothing."""
    found = run(
        BEGIN
        + """
with cuptimem.profile("a.cmem", operators=True) as prof:
    made = torch.nn.functional.linear(batch, weight, bias)
    drawn = torch.randn(7)
    plain = torch.empty(11)
    one = torch.nn.functional.layer_norm(batch, (10,))
report(named=named(prof), problems=problems(prof))
"""
    )
    assert found["problems"] == []
    sizes = {tuple(row) for row in found["named"]}
    assert {(2400, "other", "aten::addmm"), (28, "other", "aten::randn"), (44, "other", "aten::empty")} <= sizes
    assert {name for _, _, name in sizes} == {"aten::addmm", "aten::randn", "aten::empty", "aten::native_layer_norm"}


def test_backward_has_the_names_of_its_nodes_and_of_operators_that_python_runs_there(run: Run) -> None:
    found = run(
        BEGIN
        + """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x + x

    @staticmethod
    def backward(context, gradient):
        return gradient.exp() * 2

x = torch.ones(500, requires_grad=True)
with cuptimem.profile("a.cmem", operators=True) as prof:
    Twice.apply(x).sin().sum().backward()
names = {name for _, phase, name in named(prof) if phase == "backward"}
report(forward=[row for row in named(prof) if row[1] != "backward"], backward=sorted(names))
"""
    )
    assert {("aten::add", 2000), ("aten::sin", 2000)} <= {(name, size) for size, _, name in found["forward"]}
    assert {"SinBackward0", "aten::exp", "aten::mul"} <= set(found["backward"])
    assert "PyNode" not in found["backward"]


def test_threads_have_operators_of_their_own(run: Run) -> None:
    """One thread is inside an operator while the other one runs and allocates."""
    found = run(
        BEGIN
        + """
inside, go_on = threading.Event(), threading.Event()

def slow(x):
    first = x.cos()
    inside.set()
    go_on.wait()
    return x.new_empty(100)

library = torch.library.Library("mine", "FRAGMENT")
library.define("slow(Tensor x) -> Tensor")
library.impl("slow", slow, "CPU")
with cuptimem.profile("a.cmem", operators=True) as prof:
    thread = threading.Thread(target=torch.ops.mine.slow, args=(batch,))
    thread.start()
    inside.wait()
    made = batch.exp(), torch.empty(5)
    go_on.set()
    thread.join()
report(named=named(prof))
"""
    )
    assert found["named"] == [
        [20, "other", "aten::empty"],
        [400, "other", "mine::slow"],
        [1200, "other", "aten::cos"],
        [1200, "other", "aten::exp"],
    ]


def test_names_that_lie_where_others_lay(run: Run) -> None:
    """Names of a library's operators go with it, and others come to lie in their memory."""
    found = run(
        BEGIN
        + """
import gc
with cuptimem.profile("a.cmem", operators=True) as prof:
    for i in range(30):
        library = torch.library.Library("mine", "FRAGMENT")
        library.define(f"short{i}(Tensor x) -> Tensor")
        library.impl(f"short{i}", lambda x: x.new_empty(100 + i), "CPU")
        getattr(torch.ops.mine, f"short{i}")(batch)
        library._destroy()
        del library
        gc.collect()
report(named=named(prof))
"""
    )
    assert found["named"] == [[4 * (100 + i), "other", f"mine::short{i}"] for i in range(30)]


def test_nothing_where_it_is_not_asked_for(run: Run) -> None:
    found = run(
        BEGIN
        + """
counts, names = [], []
for i, on in enumerate((False, True, False)):
    with cuptimem.profile(f"{i}.cmem", operators=on) as prof:
        made = batch.exp(), batch.sin()
    counts.append(events(f"{i}.cmem"))
    names.append(sorted({str(name) for *_, name in named(prof)}))
report(counts=counts, names=names)
"""
    )
    assert found["counts"][0] == found["counts"][2] == 0 and found["counts"][1] > 0
    assert found["names"] == [["None"], ["aten::exp", "aten::sin"], ["None"]]


def test_one_event_where_the_operator_stays_the_same(run: Run) -> None:
    found = run(
        BEGIN
        + """
with cuptimem.profile("a.cmem", operators=True) as prof:
    for _ in range(1000):
        batch.exp()
report(events=events("a.cmem"), named=named(prof))
"""
    )
    assert found["events"] <= 3 and found["named"] == [[1_200_000, "other", "aten::exp"]]


def test_a_window_knows_what_ran_before_it(run: Run) -> None:
    """Blocks from before a window's file, and its first allocation while the same operator is the last one named."""
    found = run(
        BEGIN
        + """
with cuptimem.profile("a.cmem", operators=True) as prof:
    early, other = batch.exp(), batch.sin()
    with cuptimem.profile("b.cmem") as inner:
        late = batch[:10].sin()
ends = [cuptimem.open(path).contents("end").contributors for path in ("a.cmem", "b.cmem")]
report(ends=[sorted((c.bytes, c.operator) for c in end if c.operator) for end in ends])
"""
    )
    assert found["ends"] == [[[400, "aten::sin"], [1200, "aten::exp"], [1200, "aten::sin"]]] * 2


def test_a_folded_trace_keeps_the_names_of_what_stays(run: Run) -> None:
    found = run(
        BEGIN
        + """
kept = []
with cuptimem.profile("a.cmem", operators=True, max_size=60_000) as prof:
    for step in range(6000):
        for _ in range(10):
            batch.exp(), batch.sin(), batch.cos()
        kept.append((batch[:1].tan(), batch[:2].tanh()))
        prof.step()
rows = [c for c in prof.report.contents("kept").contributors if c.count > 100]
report(compacted=prof.report.compacted is not None, kept=sorted((c.bytes, c.count, c.operator) for c in rows))
""",
        timeout=240,
    )
    assert found["compacted"]
    assert found["kept"] == [[240_000, 6000, "aten::tan"], [480_000, 6000, "aten::tanh"]]


def test_a_pytorch_without_these_functions_is_a_problem(run: Run) -> None:
    found = run(
        BEGIN
        + """
from cuptimem.record import torch_events
torch_events._core = type("Core", (), {**{name: staticmethod(getattr(core, name)) for name in dir(core)},
                                       "operators_test": staticmethod(lambda begin: False)})
with cuptimem.profile("a.cmem", operators=True) as prof:
    made = batch.exp()
report(problems=problems(prof), named=named(prof), events=events("a.cmem"))
"""
    )
    assert found["problems"] == ["names of operators are not recorded: an operator that ran as a test was not seen"]
    assert found["named"] == [[1200, "other", None]] and found["events"] == 0


def test_compiled_code_allocates_outside_of_operators(run: Run) -> None:
    """Inductor's code takes memory without an operator. What it leaves to PyTorch's kernels has a name."""
    found = run(
        BEGIN
        + """
@torch.compile(backend="eager")
def eager(x):
    return x.exp().sin()

with cuptimem.profile("a.cmem", operators=True) as prof:
    eager(batch)
report(named=[row for row in named(prof) if row[0] == 1200])
""",
        timeout=240,
    )
    assert found["named"] == [[1200, "other", "aten::exp"], [1200, "other", "aten::sin"]]


def test_the_command_and_the_environment(run: Run) -> None:
    found = run(
        BEGIN
        + """
import os, subprocess, sys

program = "import torch; kept = torch.ones(100).exp()"
for path, words, more in (("a.cmem", ("-m", "cuptimem", "run", "-q", "--operators", "-o", "a.cmem"), {}),
                          ("b.cmem", ("-m", "cuptimem", "run", "-q", "-o", "b.cmem"), {"CUPTIMEM_OPERATORS": "1"})):
    subprocess.run([sys.executable, *words, "-c", program], check=True, env={**os.environ, **more})
report(events=[events("a.cmem") > 0, events("b.cmem") > 0])
"""
    )
    assert found["events"] == [True, False], "options of the command replace those of the environment"
