"""Live autograd nodes: every node that is seen coming is seen going, whatever made it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
pytestmark = [pytest.mark.torches, pytest.mark.torch]

COUNTS = """
import gc, threading, torch
from cuptimem.record import torch_events
from torch.utils.checkpoint import checkpoint
torch_events.install()
gc.freeze()  # else each collection visits all that PyTorch has made
core.capture_record(True)
def live():
    gc.collect()
    thread_of, alive = {}, set()
    for e in events(THREAD, NODE_NEW, NODE_FREE):
        if e.kind == THREAD: thread_of[e.thread] = e.size or thread_of.get(e.thread, 0)
        elif e.kind == NODE_NEW: alive.add((thread_of[e.thread], e.address))
        else: alive.remove((e.size, e.address))
    return len(alive)
"""


def test_every_node_that_came_goes(tmp_path):
    compilers = ["compiled"] if os.environ.get("CUPTIMEM_TEST_TORCHES") else []  # many seconds
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "nodes_program.py"), *compilers],
        env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parents[2]}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["wrong"] == [] and answer["second"] == {} and answer["unseen"] is None
    # Examples that a compiler keeps; TorchScript's first nodes before torch 2.13, whose type is met when one runs.
    assert set(answer["first"]) <= {"compiled", "torchscript"}
    assert answer["first"].get("torchscript", 0) <= 2
    assert len(answer["ways"]) >= 30 + len(compilers) and set(answer["made"]) == set(answer["ways"])


def test_a_running_loss_keeps_five_nodes_a_step(run):
    answer = run(
        COUNTS
        + """
layer = torch.nn.Linear(8, 1); optimizer = torch.optim.SGD(layer.parameters(), lr=.1)
before, total, counts = live(), 0, []
for i in range(50):
    loss = layer(torch.randn(4, 8)).pow(2).mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
    total = total + loss
    if i % 10 == 9: counts.append(live() - before)
del total, loss
report(counts=counts, end=live() - before)
"""
    )
    assert answer == {"counts": [50, 100, 150, 200, 250], "end": 0}


def test_what_is_kept_is_counted_wherever_it_was_made_or_goes(run):
    answer = run(
        COUNTS
        + """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g * 2
def leaf(n=3): return torch.ones(n, requires_grad=True)
before, counts = live(), {}
kept = [F.apply(leaf()) for _ in range(10)]
counts["custom function"] = live() - before
kept.clear()
q = leaf(5)
g, = torch.autograd.grad((q ** 3).sum(), q, create_graph=True)          # pow's and sum's backward made nodes
kept = [g]; del g
counts["double backward"] = live() - before > 0
kept[0].sum().backward()
kept.clear(); counts["after double backward"] = live() - before
kept = [checkpoint(lambda x: x * 2, leaf(3), use_reentrant=False) for _ in range(7)]
counts["checkpoint"] = live() - before
for y in kept: y.sum().backward()
del y; counts["checkpoint after backward"] = live() - before
kept.clear(); counts["checkpoint gone"] = live() - before
def make(): kept.extend((leaf() * 2).exp() for _ in range(6))
threads = [threading.Thread(target=make) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
counts["of three threads"] = live() - before
t = threading.Thread(target=kept.clear); t.start(); t.join()
counts["destroyed by a fourth"] = live() - before
base = [leaf(4) * 1 for _ in range(5)]
for b in base: b[1:3].mul_(2)                                            # CopySlices and what it wraps
counts["written views"] = live() - before > 5
del b; base.clear()
counts["views gone"] = live() - before
a = leaf()
for _ in range(8): torch.autograd.backward([(a * 2).sum(), (a * 3).sum()])   # a GraphRoot each time
counts["many roots"] = live() - before
report(**counts)
"""
    )
    assert answer == {
        "custom function": 10,
        "double backward": True,
        "after double backward": 0,
        "checkpoint": 7,
        "checkpoint after backward": 7,
        "checkpoint gone": 0,
        "of three threads": 36,
        "destroyed by a fourth": 0,
        "written views": True,
        "views gone": 0,
        "many roots": 0,
    }


def test_hooks_that_come_off_leave_nothing_behind(run):
    """Every vtable and slot holds after `remove` what it held before; another capture counts as the first one did."""
    answer = run(
        COUNTS
        + """
def work():
    a = torch.ones(4, requires_grad=True)
    for _ in range(5):
        b = a * 1; b[1:3].mul_(2); torch.autograd.backward([b.sum(), (a * 3).sum()])
work()
first = len(events(NODE_NEW)), live()
rows = core.sources_rows()
torch_events.remove()
off = [row for row in core.sources_rows() if row[4]]
work()
between = len(events(NODE_NEW))
restart(); torch_events.install(); core.capture_record(True)
work()
report(first=first, between=between, second=(len(events(NODE_NEW)), live()), off=off,
       same=core.sources_rows() == rows, vtables=sum("_Sp_counted" in row[1] and row[4] for row in rows),
       deleter=any("deleteNode" in row[1] and row[4] for row in rows))
"""
    )
    assert answer["off"] == [] and answer["same"]
    assert answer["first"] == answer["second"] and answer["first"][0] == answer["between"] > 20
    assert answer["first"][1] == 0
    assert (answer["vtables"] >= 10) == answer["deleter"]


def test_a_hook_that_misses_nodes_is_found_at_start(run):
    """Without calibrated offsets no end is recorded; the check at start sees it."""
    answer = run(
        """
import torch
from cuptimem.record import live_nodes, torch_events
core.sources_install()
good = torch_events.calibrate(torch) or torch_events.check_nodes(torch)
core.autograd_calibrate([])
nodes = [torch._C._functions.DelayedError("x", 0) for _ in range(8)]
core.autograd_calibrate([(id(n), n._sequence_nr() + 1000) for n in nodes])       # fails: offsets are unknown again
blind = torch_events.check_nodes(torch)
core.sources_remove()
off = torch_events.check_nodes(torch)
report(good=good, blind=blind, off=off, version=torch.__version__)
"""
    )
    assert answer["good"] is None
    assert answer["blind"] == "of 4 nodes made as a test, 4 were seen coming and 0 going"
    assert answer["off"] == "of 4 nodes made as a test, 0 were seen coming and 0 going"


def test_the_check_allocates_nothing_and_records_nothing(run):
    answer = run(
        """
import torch
from cuptimem.record import torch_events
core.sources_install(); torch_events.calibrate(torch)
torch.manual_seed(1); state = torch.random.get_rng_state()
core.capture_record(True)
with torch.no_grad(), torch.device("meta"):
    why = torch_events.check_nodes(torch)
grad = torch.is_grad_enabled()
core.capture_record(False)
report(why=why, grad=grad, same=bool((state == torch.random.get_rng_state()).all()),
       kinds=sorted({e.kind for e in events() if e.kind != THREAD}))
"""
    )
    assert answer == {"why": None, "grad": True, "same": True, "kinds": []}


@pytest.mark.parametrize(
    ("version", "problem", "claim"),
    [
        ("2.13.0+cpu", None, "counted"),
        ("2.4.0", None, "counted"),
        ("2.14.9+cu130", None, "counted"),
        ("2.13.0+cpu", "of 4 nodes made as a test, 4 were seen coming and 0 going", None),
        ("2.3.1", None, "tested"),
        ("2.99.0", None, "tested"),
        ("2.14.0.dev20261101", None, "tested"),
        ("2.13.0a0+git1234", None, "tested"),
        ("unknown", None, "tested"),
    ],
)
def test_the_claim(version, problem, claim, monkeypatch):
    from cuptimem.record import live_nodes

    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", "6", "1", "x86_64")))
    said = live_nodes.claim(version, problem)
    if claim == "tested":
        assert said.startswith("they have not been tested with torch " + version) and "2.13.0" in said
    else:
        assert said == (claim or problem)


def test_other_machines_make_no_claim(monkeypatch):
    from cuptimem.record import live_nodes

    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", "6", "1", "aarch64")))
    assert live_nodes.claim("2.13.0", None) == "they have not been tested on aarch64 yet"


def test_the_trace_says_it(run):
    answer = run(
        """
import cuptimem, importlib, os, signal, subprocess
core.capture_stop()
with cuptimem.profile("early.cmem"): pass
import torch
with cuptimem.profile("late.cmem"):
    with cuptimem.profile("window.cmem"): pass
killed = subprocess.run([sys.executable, "-c", '''
import sys; sys.path[:] = %r
import cuptimem, os, signal
cuptimem.profile("killed.cmem").__enter__()
import torch
os.kill(os.getpid(), signal.SIGKILL)''' % sys.path]).returncode
from cuptimem.record import live_nodes
print(__import__("json").dumps({"claims": [core.trace_meta(f"{n}.cmem")["nodes"] for n in
                                ("early", "late", "window", "killed")],
      "expected": live_nodes.claim(torch.__version__, None), "killed": killed}))
""",
        afresh=True,
    )
    assert answer["killed"] == -9
    assert answer["claims"] == ["PyTorch was not imported", *[answer["expected"]] * 3]
