"""Step clocks, creation stamps, and that everything is as it was afterwards."""

import pytest


def test_ticks_and_stamps(run):
    answer = run(
        """
import copy, torch
from cuptimem import torch_events
torch_events.install()
core.capture_record(True)
class Mine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
    def forward(self, x): return self.layer(x)
m = Mine()
opt = torch.optim.AdamW(m.parameters())
loader = torch.utils.data.DataLoader(torch.randn(6, 2), batch_size=2)
for x in loader:
    opt.zero_grad(); m(x).sum().backward()
    opt.step()                                   # the line that ticks
twin = copy.deepcopy(m)
core.capture_record(False)
import inspect
line = next(i for i, l in enumerate(open(__file__), 1) if "the line that ticks" in l)
born = [(e.origin, e.size, e.address) for e in events(OBJECT_NEW)]
made = [b for b in born if b[1] != 3]
iterators = [b for b in born if b[1] == 3]
ticks = events(TICK)
steps = [e for e in ticks if e.size == 2]
report(made=[(n, k) for n, k, _ in made], addresses=sorted(a for _, _, a in made) == sorted([id(m), id(m.layer),
       id(opt), id(twin), id(twin.layer)]),
       iterators=[n for n, _, _ in iterators],
       same={a for _, _, a in iterators} == {e.address for e in ticks if e.size == 3},
       kinds=[e.size for e in ticks], lines=[[f[2] for f in e.frames() if f[0] == __file__] for e in steps],
       line=line,
       objects=[e.address == id(opt) for e in steps])
"""
    )
    assert sorted(map(tuple, answer["made"])) == [("AdamW", 2), ("Linear", 1), ("Linear", 1), ("Mine", 1), ("Mine", 1)]
    assert answer["addresses"] and answer["kinds"] == [3, 2, 3, 2, 3, 2, 3] and answer["objects"] == [True] * 3
    assert answer["lines"] == [[answer["line"]]] * 3
    assert set(answer["iterators"]) == {"_SingleProcessDataLoaderIter"} and answer["same"]


def test_remove_leaves_torch_as_it_was(run):
    answer = run(
        """
import torch, gc
from torch.optim import Optimizer
from cuptimem import torch_events
def look():
    optimizer, loader = sys.modules["torch.optim.optimizer"], sys.modules["torch.utils.data.dataloader"]
    return [id(torch.nn.Module.__dict__["__init__"]), id(torch.nn.Module.__dict__["__setstate__"]),
            id(Optimizer.__dict__["__init__"]), id(Optimizer.__dict__["__setstate__"]),
            [id(loader._BaseDataLoaderIter.__dict__[name]) for name in ("__init__", "_reset", "__next__")],
            list(optimizer._global_optimizer_post_hooks.values()),
            [id(f) for f in sys.meta_path], sum(r[4] for r in core.sources_rows()), sorted(vars(torch.nn.Module))]
before = look()
changed = []
for _ in range(3):
    torch_events.install(); torch_events.install()
    changed.append(sum(a != b for a, b in zip(before, look())))
    torch_events.remove(); torch_events.remove()
report(same=look() == before, changed=changed)
"""
    )
    assert answer["same"] and answer["changed"] == [8, 8, 8]


def test_what_others_put_on_top_of_ours_stays_and_ours_falls_silent(run):
    answer = run(
        """
import torch
from cuptimem import torch_events
torch_events.install()
ours = torch.nn.Module.__init__
calls = []
def theirs(self, *args, **kwargs):
    calls.append(type(self).__name__); ours(self, *args, **kwargs)
torch.nn.Module.__init__ = theirs
torch_events.remove()
kept = torch.nn.Module.__init__ is theirs
core.capture_record(True)
torch.nn.Linear(1, 1)
silent = len(events(OBJECT_NEW))
torch_events.install()
torch.nn.Linear(1, 1)
once = len(events(OBJECT_NEW))
report(kept=kept, silent=silent, once=once, calls=calls)
"""
    )
    assert answer == {"kept": True, "silent": 0, "once": 1, "calls": ["Linear", "Linear"]}


INFERENCE = """
import copy, io, pickle, time, torch
from cuptimem import torch_events
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
    def forward(self, x):
        for _ in range(20): x = self.inner(x)
        return x
net = Net()
torch_events.install()
core.capture_record(True)
x = torch.ones(2, 4)
end = time.time() + 30
while time.time() < end and not any(e.size == 4 for e in events(TICK)):
    for _ in range(500): net(x)
mark = len(events(TICK))
for _ in range(7): net(x)
ticks = events(TICK)[mark:]
hooks = len(net._forward_pre_hooks), len(net.inner._forward_pre_hooks)
twin = copy.deepcopy(net)
saved = pickle.loads(pickle.dumps(net))
buffer = io.BytesIO(); torch.save(net, buffer); buffer.seek(0)
loaded = torch.load(buffer, weights_only=False)
mark = len(events(TICK))
for other in (twin, saved, loaded): other(x)
foreign = len(events(TICK)) - mark
text = b"cuptimem" in pickle.dumps(net)
torch_events.remove()
report(kinds=[e.size for e in ticks], net=[e.address == id(net) for e in ticks], hooks=hooks, foreign=foreign,
       text=text,
       left=(len(net._forward_pre_hooks), len(net.inner._forward_pre_hooks)), problems=torch_events.problems())
"""


def test_module_calls_tick_where_nothing_else_does(run):
    answer = run(INFERENCE)
    assert answer["kinds"] == [4] * 7 and all(answer["net"]) and answer["hooks"] == [1, 0]
    assert answer["left"] == [0, 0] and answer["foreign"] == 0 and answer["text"] is False and answer["problems"] == []


def test_module_calls_tick_in_a_program_that_mostly_waits(run):
    """Whenever the main thread can be asked, it has just come out of its sleep, never out of its model."""
    answer = run(
        """
import time, torch
from cuptimem import torch_events
net = torch.nn.Linear(4, 4)
torch_events.install(); core.capture_record(True)
end = time.time() + 30
while time.time() < end and sum(e.size == 4 for e in events(TICK)) < 3:
    time.sleep(0.05)
    net(torch.ones(2, 4))
core.capture_record(False)
found = [e for e in events(TICK) if e.size == 4]
report(ticks=len(found), net={e.address for e in found} == {id(net)}, hooks=len(net._forward_pre_hooks))
torch_events.remove()
""",
        timeout=90,
    )
    assert answer == {"ticks": 3, "net": True, "hooks": 1}


def test_module_calls_are_left_alone_where_an_optimizer_ticks(run):
    answer = run(
        """
import time, torch
from cuptimem import torch_events
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
opt = torch.optim.SGD(net.parameters(), lr=.1)
torch_events.install()
core.capture_record(True)
looks = []
real = torch_events._installed.look
core.main_thread_call(lambda: (looks.append(1), real()))
end = time.time() + 20
while time.time() < end and len(looks) < 4:
    net(torch.ones(2, 4)).sum().backward(); opt.step(); opt.zero_grad()
hooked = len(net._forward_pre_hooks)
torch_events.remove()
report(looks=len(looks), hooked=hooked)
"""
    )
    assert answer == {"looks": 4, "hooked": 0}


@pytest.mark.parametrize("how", ["torch.compile(net, backend='eager')", "(net.compile(backend='eager'), net)[1]"])
def test_compiled_modules_are_never_hooked(run, how):
    answer = run(
        f"""
import time, torch
from cuptimem import torch_events
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
model = {how}
torch_events.install()
core.capture_record(True)
looks = []
real = torch_events._installed.look
core.main_thread_call(lambda: (looks.append(1), real()))
end = time.time() + 40
while time.time() < end and len(looks) < 4: model(torch.ones(2, 4))
hooks = [len(m._forward_pre_hooks) for m in (*net.modules(), *model.modules())]
torch_events.remove()
report(looks=len(looks), hooks=sum(hooks), ticks=len(events(TICK)))
"""
    )
    assert answer == {"looks": 4, "hooks": 0, "ticks": 0}


def test_interrupts_pass_through_the_call_in_the_main_thread(run):
    answer = run(
        """
import time
def interrupt(): raise KeyboardInterrupt
core.sources_install()
core.main_thread_call(interrupt)
caught = False
try:
    end = time.time() + 20
    while time.time() < end: time.sleep(0.001)
except KeyboardInterrupt: caught = True
core.main_thread_call(None)
report(caught=caught)
"""
    )
    assert answer["caught"]


def test_a_mistake_in_that_call_ends_it_and_nothing_else(run):
    answer = run(
        """
import time
messages, calls = [], []
sys.unraisablehook = lambda what: messages.append(type(what.exc_value).__name__)
def wrong(): calls.append(1); raise ValueError("ours")
core.sources_install()
core.main_thread_call(wrong)
end = time.time() + 30
while time.time() < end and not calls: time.sleep(0.001)
end = time.time() + 1                            # it would be called again
while time.time() < end: time.sleep(0.001)
report(messages=messages, calls=len(calls))
"""
    )
    assert answer == {"messages": ["ValueError"], "calls": 1}


COMPILED = """
import torch, torch._dynamo
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters
from cuptimem import torch_events
graphs = CompileCounter()
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=.1, momentum=.9)
model = torch.compile(net, fullgraph=True, backend=graphs)

@torch.compile(fullgraph=True, backend=graphs)
def makes(x): return torch.nn.ReLU()(x) + 1

step = opt.step if {eager} else torch.compile(opt.step, backend=graphs)
def train():
    for _ in range(3):
        model(torch.ones(3, 4)).sum().backward(); step(); opt.zero_grad()
    torch.manual_seed(0); makes(torch.ones(1, 4))
def count(): return [graphs.frame_count, sum(counters["graph_break"].values())]

when = "{when}"
seen = []
if when == "before": torch_events.install(); core.capture_record(True)
train(); seen.append(count())
if when == "middle": torch_events.install(); core.capture_record(True)
train(); seen.append(count())
torch_events.remove()
train(); seen.append(count())
report(seen=seen, ticks=[e.size for e in events(TICK)])
"""


@pytest.mark.parametrize("eager", [True, False], ids=["eager step", "compiled step"])
def test_compiled_graphs_neither_break_nor_compile_again(run, eager):
    bare = run(COMPILED.format(when="never", eager=eager))["seen"]
    before = run(COMPILED.format(when="before", eager=eager))
    middle = run(COMPILED.format(when="middle", eager=eager))
    assert bare[0] == bare[1] == bare[2] and bare[0][0] >= 2
    assert before["seen"] == bare and middle["seen"] == bare
    if eager:
        assert before["ticks"] == [2] * 6 and middle["ticks"] == [2] * 3
