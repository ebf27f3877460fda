"""Autograd's nodes: the join between a backward allocation and the forward line, and the live graph."""

import pytest

pytestmark = pytest.mark.torches

JOIN = """
import collections, threading
import torch
from cuptimem.record import torch_events

def join():
    '''Every backward allocation with the stack that the reader would charge, as (function, line) innermost first.'''
    owner = {}                      # ring -> autograd's thread number
    created = {}                    # (autograd thread, number) -> (stack of creation, node running then)
    running = collections.defaultdict(list)
    charged = []
    for e in events():
        if e.kind == THREAD:
            owner[e.thread] = e.size or owner.get(e.thread, 0)
        elif e.kind == NODE_NEW:
            created[owner[e.thread], e.address] = (e, running[e.thread][-1] if running[e.thread] else None)
        elif e.kind == NODE_RUN:
            running[e.thread].append((e.size, e.address, e.origin))
        elif e.kind == NODE_DONE:
            running[e.thread].pop()
        elif e.kind == ALLOC:
            inside = bool(running[e.thread])
            assert inside == bool(e.flags & IN_NODE)
            if inside:
                thread, number, name = running[e.thread][-1]
                made = created.get((thread, number))
                while made is not None and made[1] is not None and made[0].flags & NODE_STACK:
                    made = created.get(made[1][:2])      # double backward: one more link
                charged.append((e, name, number, made[0] if made else None))
    assert not any(running.values()), "every node that ran is over"
    return charged

def lines(event):
    return [line for file, _, line in event.frames() if file == __file__]
"""


def test_every_backward_byte_has_a_forward_line(run):
    answer = run(
        JOIN
        + """
torch_events.install()
core.capture_record(True)
model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), 2)
x = torch.randn(4, 16, 64)
y = model(x).square().mean()
y.backward()
core.capture_record(False)
charged = join()
total = sum(e.size for e, *_ in charged)
found = sum(e.size for e, _, number, made in charged if made is not None and made.origin)
accumulated = sum(e.size for e, _, number, made in charged if number == 2**64 - 1)
report(total=total, found=found, accumulated=accumulated, names=sorted({name for _, name, _, _ in charged})[:3],
       own=sum(not e.flags & NODE_STACK for e, *_ in charged))
"""
    )
    assert answer["total"] > 1_000_000 and answer["found"] + answer["accumulated"] == answer["total"]
    assert answer["accumulated"] == 0 and answer["own"] == 0
    assert answer["names"][0].startswith("N5torch8autograd")


def test_forward_in_one_thread_backward_in_another(run):
    answer = run(
        JOIN
        + """
torch_events.install()
core.capture_record(True)
made = {}
def forward():
    leaf = torch.ones(50, 50, requires_grad=True)
    made["y"] = (leaf * 3).exp().sum(); made["line"] = sys._getframe().f_lineno
noise = (torch.ones(7, 7, requires_grad=True) * 2).sum()      # the same numbers on this thread
t = threading.Thread(target=forward); t.start(); t.join()
made["y"].backward()
core.capture_record(False)
charged = [c for c in join() if c[0].size == 10000]
report(lines=[lines(c[3])[:1] for c in charged], line=made["line"])
"""
    )
    assert answer["lines"] and all(line == [answer["line"]] for line in answer["lines"])


def test_double_backward_goes_back_to_the_forward_line(run):
    answer = run(
        JOIN
        + """
torch_events.install()
core.capture_record(True)
q = torch.ones(300, requires_grad=True)
cube = (q ** 3).sum(); forward = sys._getframe().f_lineno
g, = torch.autograd.grad(cube, q, create_graph=True)
middle = (g ** 2).sum(); second = sys._getframe().f_lineno
middle.backward()
core.capture_record(False)
charged = [c for c in join() if c[0].size == 1200]
report(lines=sorted({lines(c[3])[0] for c in charged if c[3]}), forward=forward, second=second,
       lost=sum(c[3] is None for c in charged))
"""
    )
    assert answer["lines"] == [answer["forward"], answer["second"]] and answer["lost"] == 0


def test_custom_function_shows_its_own_stack(run):
    answer = run(
        JOIN
        + """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g * 2 + torch.zeros(77)
torch_events.install()
core.capture_record(True)
x = torch.ones(77, requires_grad=True)
Double.apply(x).sum().backward()
core.capture_record(False)
own = [c for c in join() if c[1] == "N5torch8autograd6PyNodeE"]
report(own=[(c[0].flags, c[0].frames()[0][1]) for c in own], made=[lines(c[3])[0] for c in own],
       line=Double.backward.__code__.co_firstlineno + 5)
"""
    )
    assert answer["own"] and all(flags == 1 and name.endswith("backward") for flags, name in answer["own"])
    assert set(answer["made"]) == {answer["line"]}


def test_checkpoint_recomputation_shows_the_models_lines(run):
    answer = run(
        JOIN
        + """
from torch.utils.checkpoint import checkpoint
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
x = torch.randn(4, 16, requires_grad=True)
results = {}
for reentrant in (False, True):
    restart()
    torch_events.install()
    core.capture_record(True)
    checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    core.capture_record(False)
    own = [c[0] for c in join() if not c[0].flags & NODE_STACK]
    again = [e for e in own if any(f[1].endswith("Linear.forward") for f in e.frames())]
    results[str(reentrant)] = sorted({e.size for e in again})
    torch_events.remove()
report(**results)
"""
    )
    assert answer["False"] and answer["True"] and 1024 in answer["False"] and 1024 in answer["True"]


def test_exceptions_pass_and_leave_no_node_running(run):
    answer = run(
        JOIN
        + """
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): raise RuntimeError("boom")
torch_events.install()
core.capture_record(True)
caught = 0
for _ in range(100):
    try: Bad.apply(torch.ones(4, requires_grad=True)).sum().backward()
    except RuntimeError as error: caught += "boom" in str(error)
a = torch.ones(2, requires_grad=True); b = (a * 2).exp(); b.sum().backward()
try: b.sum().backward()
except RuntimeError as error: second = str(error)[:40]
z = torch.zeros(7)
core.capture_record(False)
join()
last = [e for e in events(ALLOC) if e.size == 28][-1]
runs, ends = len(events(NODE_RUN)), len(events(NODE_DONE))
report(caught=caught, second=second, flags=last.flags, runs=runs, ends=ends)
"""
    )
    assert answer["caught"] == 100 and answer["second"].startswith("Trying to backward through the graph")
    assert answer["flags"] == 0 and answer["runs"] == answer["ends"] > 200


def test_live_nodes_are_counted(run):
    answer = run(
        """
import gc, torch
from cuptimem.record import torch_events
torch_events.install()
core.capture_record(True)
def live():
    gc.collect()
    alive = set()
    for e in events(NODE_NEW, NODE_FREE):
        (alive.add if e.kind == NODE_NEW else alive.discard)(e.address)
    return len(alive)
layer = torch.nn.Linear(8, 1); optimizer = torch.optim.SGD(layer.parameters(), lr=.1)
base, total, counts = live(), 0, []
for i in range(50):
    loss = layer(torch.randn(4, 8)).pow(2).mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
    total = total + loss
    if i % 10 == 9: counts.append(live() - base)
del total, loss
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g * 2
gone = live() - base
kept = [F.apply(torch.randn(3, requires_grad=True)) for _ in range(10)]
custom = live() - base
del kept
report(counts=counts, gone=gone, custom=custom, end=live() - base)
"""
    )
    assert answer == {"counts": [50, 100, 150, 200, 250], "gone": 0, "custom": 10, "end": 0}


def test_recording_that_stops_inside_a_node_does_not_leave_it_running(run):
    answer = run(
        JOIN
        + """
class Off(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g):
        core.capture_record(False)
        return g * 2
torch_events.install()
core.capture_record(True)
Off.apply(torch.ones(4, requires_grad=True)).sum().backward()
core.capture_record(True)
torch.ones(9)
core.capture_record(False)
join()
report(flags=[e.flags for e in events(ALLOC) if e.size == 36], runs=len(events(NODE_RUN)), ends=len(events(NODE_DONE)))
"""
    )
    assert answer["flags"] == [0] and answer["runs"] == answer["ends"]


def test_calibration_refuses_what_it_cannot_tell(run):
    answer = run(
        """
import torch
core.sources_install()
make = torch._C._functions.DelayedError
nodes = [make("x", 0) for _ in range(8)][1:]
pairs = [(id(n), n._sequence_nr()) for n in nodes]
before = torch.random.get_rng_state()
good = core.autograd_calibrate(pairs)
wrong = core.autograd_calibrate([(a, n + 1000) for a, n in pairs])
few = core.autograd_calibrate(pairs[:2])
static = core.autograd_calibrate([])
core.autograd_calibrate([(a, n + 1000) for a, n in pairs])   # a failure turns node runs off
core.capture_record(True)
(torch.ones(3, requires_grad=True) * 2).sum().backward()
core.capture_record(False)
report(good=good, wrong=wrong, few=few, static=static, runs=len(events(NODE_RUN)), new=len(events(NODE_NEW)),
       free=len(events(NODE_FREE)))
"""
    )
    assert answer["good"] is None and answer["static"] is None
    assert "sequence number" in answer["wrong"] and "too few" in answer["few"]
    assert (answer["runs"], answer["free"]) == (0, 0) and answer["new"] == 2


def test_calibration_draws_no_random_number_and_leaves_nothing(run):
    answer = run(
        """
import torch, gc
from cuptimem.record import torch_events
torch.manual_seed(1)
state = torch.random.get_rng_state()
core.sources_install()
gc.collect(); core.capture_record(True)
why = torch_events.calibrate(torch)
ours = len(events(NODE_NEW, NODE_FREE))
y = torch.ones(1, requires_grad=True) * 2
report(why=why, same=bool((state == torch.random.get_rng_state()).all()), ours=ours, program=len(events(NODE_NEW)))
"""
    )
    assert answer == {"why": None, "same": True, "ours": 0, "program": 1}
