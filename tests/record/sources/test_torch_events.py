"""Step clocks, creation stamps, and that nothing of PyTorch is changed for them."""

import sys

import pytest

pytestmark = pytest.mark.torches

# Before 3.12 the interpreter enters a Python function that Python code calls without asking anybody.
SEES_COPIES = sys.version_info >= (3, 12)


def test_ticks_and_stamps(run):
    answer = run(
        """
import copy, pickle, torch
from cuptimem.record import torch_events
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
twin, loaded = copy.deepcopy(m), pickle.loads(pickle.dumps(m))
core.capture_record(False)
line = next(i for i, l in enumerate(open(__file__), 1) if "the line that ticks" in l)
born = [(e.origin, e.size, e.address) for e in events(OBJECT_NEW)]
made = [b for b in born if b[1] != 3]
iterators = [b for b in born if b[1] == 3]
ticks = events(TICK)
steps = [e for e in ticks if e.size == 2]
copies = [loaded, loaded.layer] + ([twin, twin.layer] if SEES_COPIES else [])
report(made=[(n, k) for n, k, _ in made],
       addresses=sorted(a for _, _, a in made) == sorted(map(id, [m, m.layer, opt, *copies])),
       iterators=[n for n, _, _ in iterators],
       same={a for _, _, a in iterators} == {e.address for e in ticks if e.size == 3},
       kinds=[e.size for e in ticks], lines=[[f[2] for f in e.frames() if f[0] == __file__] for e in steps],
       line=line,
       objects=[e.address == id(opt) for e in steps])
""".replace("SEES_COPIES", str(SEES_COPIES))
    )
    models = 3 if SEES_COPIES else 2
    assert sorted(map(tuple, answer["made"])) == [("AdamW", 2)] + [("Linear", 1)] * models + [("Mine", 1)] * models
    assert answer["addresses"] and answer["kinds"] == [3, 4, 5, 2] * 3 + [3] and answer["objects"] == [True] * 3
    assert answer["lines"] == [[answer["line"]]] * 3
    assert set(answer["iterators"]) == {"_SingleProcessDataLoaderIter"} and answer["same"]


def test_nothing_of_torch_is_changed(run):
    """What a program, a profiler or the compiler of graphs can see of it; the slots of its libraries are others."""
    answer = run(
        """
import torch, gc, inspect
from torch.optim import Optimizer
from cuptimem.record import torch_events
loader, optimizer = sys.modules["torch.utils.data.dataloader"], sys.modules["torch.optim.optimizer"]
functions = [torch.nn.Module.__init__, torch.nn.Module.__setstate__, torch.nn.Module.__call__, Optimizer.__init__,
             Optimizer.__setstate__, loader._BaseDataLoaderIter.__init__, loader._BaseDataLoaderIter.__next__]
scopes = torch.ops.profiler
builtins = [torch._C._log_api_usage_once, scopes._record_function_enter_new._op,
            scopes._record_function_exit._RecordFunction._op]
def look():
    return [[(id(f), id(f.__code__), f.__globals__["__name__"], f.__closure__, vars(f)) for f in functions],
            [(id(f), repr(f), f.__name__, id(f.__self__), f.__doc__) for f in builtins],
            {name: id(value) for owner in (torch.nn.Module, Optimizer, loader._BaseDataLoaderIter)
             for name, value in vars(owner).items()},
            list(optimizer._global_optimizer_post_hooks.values()), str(inspect.signature(torch.nn.Module.__init__))]
def slots(): return sum(r[4] for r in core.sources_rows())
before, finders = look(), list(sys.meta_path)
same, patched = [], []
for _ in range(3):
    torch_events.install(); torch_events.install()
    same.append(look() == before); patched.append(slots() > 0)
    torch_events.remove(); torch_events.remove()
report(same=same, patched=patched, after=look() == before, slots=slots(), finders=sys.meta_path == finders)
"""
    )
    assert answer == {"same": [True] * 3, "patched": [True] * 3, "after": True, "slots": 0, "finders": True}


def test_silent_after_removal_and_back_with_the_next_capture(run):
    answer = run(
        """
import torch
from cuptimem.record import torch_events
seen = []
core.capture_record(True)
for hooked in (True, False, True):
    if hooked: torch_events.install()
    before = len(events(OBJECT_NEW)) + len(events(TICK))
    net = torch.nn.Linear(1, 1); opt = torch.optim.SGD(net.parameters(), lr=.1)
    net(torch.ones(1, 1)).sum().backward(); opt.step()
    seen.append(len(events(OBJECT_NEW)) + len(events(TICK)) - before)
    torch_events.remove()
report(seen=seen)
"""
    )
    assert answer == {"seen": [5, 0, 5]}


def test_what_others_put_on_top_of_torch_is_seen_through(run):
    """As deepspeed's zero.Init does with Module.__init__, and a scheduler with an optimizer's step."""
    answer = run(
        """
import functools, torch
from cuptimem.record import torch_events
original = torch.nn.Module.__init__
@functools.wraps(original)
def theirs(module, *args, **kwargs): original(module, *args, **kwargs)
torch.nn.Module.__init__ = theirs
torch_events.install(); core.capture_record(True)
net = torch.nn.Linear(1, 1); opt = torch.optim.SGD(net.parameters(), lr=.1)
scheduler = torch.optim.lr_scheduler.StepLR(opt, 1)
for _ in range(2): net(torch.ones(1, 1)).sum().backward(); opt.step(); scheduler.step()
report(made=[e.origin for e in events(OBJECT_NEW)], ticks=[e.size for e in events(TICK)],
       problems=torch_events.problems())
"""
    )
    assert answer == {"made": ["Linear", "SGD"], "ticks": [4, 5, 2] * 2, "problems": []}


def test_a_step_that_raises_is_none(run):
    answer = run(
        """
import torch
from cuptimem.record import torch_events
torch_events.install(); core.capture_record(True)
net = torch.nn.Linear(1, 1)
class Mine(torch.optim.SGD):
    fails = True
    def step(self, closure=None):
        with torch.profiler.record_function("a part of it"):
            if self.fails: raise ValueError("its own")
            return super().step(closure)
opt = Mine(net.parameters(), lr=.1)
seen = []
def attempt():
    try: opt.step()
    except ValueError: pass
    seen.append(len(events(TICK)))
attempt()
Mine.fails = False
attempt()
try: raise KeyError
except KeyError: attempt()                       # while an exception is being handled, which is no failure of the step
report(seen=seen)
"""
    )
    assert answer == {"seen": [0, 1, 2]}


def test_many_steps_that_never_end_leave_room(run):
    """A generator that is dropped inside a step: its record is freed, and its address used again."""
    answer = run(
        """
import torch
from cuptimem.record import torch_events
torch_events.install(); core.capture_record(True)
net = torch.nn.Linear(1, 1); opt = torch.optim.SGD(net.parameters(), lr=.1)
enter, leave = torch.ops.profiler._record_function_enter_new, torch.ops.profiler._record_function_exit
records = [enter("Optimizer.step#nobody", None) for _ in range(40)]   # not from an optimizer: no step
for r in records: leave._RecordFunction(r)
nothing = len(events(TICK))
opt.step(); opt.step()
report(nothing=nothing, ticks=[e.size for e in events(TICK)])
"""
    )
    assert answer == {"nothing": 0, "ticks": [2, 2]}


INFERENCE = """
import io, pickle, torch, traceback
from cuptimem.record import torch_events
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
    def forward(self, x):
        for _ in range(20): x = self.inner(x)
        return x
class Direct(Net):
    def __call__(self, x): return super().__call__(x)  # before 3.12 the interpreter does not ask for this call
net, direct, loss = Net(), Direct(), torch.nn.MSELoss()
torch_events.install()
core.capture_record(True)
x = torch.ones(2, 4)
def ticks(do):
    mark = len(events(TICK))
    do()
    return [(e.size, e.address) for e in events(TICK)[mark:]]
seven = ticks(lambda: [net(x) for _ in range(7)])
both = ticks(lambda: [loss(net(x), x) for _ in range(2)])
inside = ticks(lambda: [direct(x) for _ in range(3)])
hooks = len(net._forward_pre_hooks), len(net.inner._forward_pre_hooks)
files = []
def fail():
    handle = net.inner.register_forward_hook(lambda *a: 1 / 0)
    try: net(x)
    except ZeroDivisionError as error: files.extend(f.filename for f in traceback.extract_tb(error.__traceback__))
    handle.remove()
after = ticks(lambda: (fail(), net(x)))
saved = pickle.loads(pickle.dumps(net))
buffer = io.BytesIO(); torch.save(net, buffer); buffer.seek(0)
loaded = torch.load(buffer, weights_only=False)
others = ticks(lambda: [other(x) for other in (saved, loaded)])
text = b"cuptimem" in pickle.dumps(net)
torch_events.remove()
mine = lambda found, *modules: found == [(4, id(m)) for m in modules]
report(seven=mine(seven, *[net] * 7), both=mine(both, net, loss, net, loss), after=mine(after, net, net),
       others=mine(others, saved, loaded), inside=inside == [] or mine(inside, *[direct] * 3),
       hooks=hooks, text=text, ours=[f for f in files if "cuptimem" in f], failed=len(files) > 0,
       problems=torch_events.problems())
"""


def test_calls_of_outermost_modules_tick(run):
    answer = run(INFERENCE)
    assert answer["seven"] and answer["both"] and answer["others"]
    assert answer["inside"]  # the call itself may go unseen: then none of those inside it ticks either
    assert answer["after"]  # a call that raises is over, too
    assert answer["failed"] and answer["ours"] == [] and answer["hooks"] == [0, 0]
    assert answer["text"] is False and answer["problems"] == []


def test_every_backward_pass_ticks_once(run):
    """From backward() and from grad(); what a node asks for inside of one does not."""
    answer = run(
        """
import torch
from torch.utils.checkpoint import checkpoint
from cuptimem.record import torch_events
net = torch.nn.Linear(3, 3)
torch_events.install(); core.capture_record(True)
w = torch.ones(3, requires_grad=True)
class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x.square().sum()
    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            return g * torch.autograd.grad(x.square().sum(), x)[0]
@torch.enable_grad()
def hook(g): return torch.autograd.grad((w * 3).sum(), w)[0]
def hooked():
    y = w * 2
    y.register_hook(hook)
    y.sum().backward()
def twice():
    loss = (w * w).sum(); loss.backward(); loss.backward()
def two_orders():
    g, = torch.autograd.grad((w ** 3).sum(), w, create_graph=True); g.sum().backward()
def passes(do, kind=5):
    mark = len(events(TICK))
    try: do()
    except RuntimeError: pass
    return sum(e.size == kind for e in events(TICK)[mark:])
x = torch.ones(1, 3, requires_grad=True)
seen = dict(
    backward=passes(lambda: (w * w).sum().backward()), function=passes(lambda: torch.autograd.backward((w * w).sum())),
    grad=passes(lambda: torch.autograd.grad((w * w).sum(), w)), inner=passes(lambda: Inner.apply(w).backward()),
    hooked=passes(hooked), raises=passes(twice), two_orders=passes(two_orders),
    func=passes(lambda: torch.func.grad(lambda v: (v * v).sum())(torch.ones(3))),
    reentrant=passes(lambda: checkpoint(net, x, use_reentrant=True).sum().backward()),
    checkpoint=passes(lambda: checkpoint(net, x, use_reentrant=False).sum().backward()),
    modules=passes(lambda: checkpoint(net, x, use_reentrant=False).sum().backward(), 4))
(w * w).sum().backward()                        # the line that ticks
line = next(i for i, l in enumerate(open(__file__), 1) if "the line that ticks" in l)
last = [f[2] for f in events(TICK)[-1].frames() if f[0] == __file__]
core.capture_record(False)
torch_events.remove()
report(seen=seen, line=last == [line])
"""
    )
    one = ("backward", "function", "grad", "inner", "hooked", "raises", "func", "reentrant", "checkpoint", "modules")
    assert answer == {"seen": {**dict.fromkeys(one, 1), "two_orders": 2}, "line": True}


@pytest.mark.parametrize(
    "how",
    [
        "torch.compile(net, backend=graphs)",
        pytest.param("(net.compile(backend=graphs), net)[1]", marks=pytest.mark.extended),
    ],
)
def test_calls_of_compiled_modules_tick_and_nothing_is_compiled_again(run, how):
    answer = run(
        f"""
import time, torch
from torch._dynamo.testing import CompileCounter
from cuptimem.record import torch_events
graphs = CompileCounter()
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
model = {how}
torch_events.install()
core.capture_record(True)
model(torch.ones(2, 4))
compiled = graphs.frame_count
for _ in range(4): model(torch.ones(2, 4))
ticks = [e.address == id(model) for e in events(TICK) if e.size == 4]
torch_events.remove()
report(ticks=ticks, again=graphs.frame_count - compiled)
"""
    )
    assert answer == {"ticks": [True] * 5, "again": 0}


def test_interrupts_pass_through_the_call_in_the_main_thread(run):
    answer = run(
        """
import time
def interrupt(): raise KeyboardInterrupt
core.sources_install()
core.main_thread_call(interrupt)
caught = False
try:
    while True: time.sleep(0.001)
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
while not calls: time.sleep(0.001)
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
from cuptimem.record import torch_events
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


@pytest.mark.parametrize(
    "eager", [True, pytest.param(False, marks=pytest.mark.extended)], ids=["eager step", "compiled step"]
)
def test_compiled_graphs_neither_break_nor_compile_again(run, eager):
    bare = run(COMPILED.format(when="never", eager=eager))["seen"]
    before = run(COMPILED.format(when="before", eager=eager))
    middle = run(COMPILED.format(when="middle", eager=eager))
    assert bare[0] == bare[1] == bare[2] and bare[0][0] >= 2
    assert before["seen"] == bare and middle["seen"] == bare
    if eager:
        assert before["ticks"].count(2) == 6 and middle["ticks"].count(2) == 3
