"""A profile that starts in mid-run: exactly what is alive is seeded, and nothing of the program is run."""

import pytest

pytestmark = pytest.mark.torches


def test_seeds_are_exactly_the_live_storages_and_their_frees_match(run):
    answer = run(
        """
import gc, torch
from torch import nn
from cuptimem.objects import seed
from cuptimem.record import torch_events
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), 2)
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(8, 16, 64)
for _ in range(2):
    loss = model(x).pow(2).mean(); loss.backward(); optimizer.step()
y = model(x)                                    # saved tensors that no Python object holds
if not saved_tensors_tell(): y = y.detach().requires_grad_()
truth = alive()
torch_events.install()
core.capture_record(True)
seeds = seed.seed_alive()
heap = Heap()
first = heap.sizes() == truth, len(truth), len(heap.duplicates)
y.sum().backward(); optimizer.step(); optimizer.zero_grad()
middle = Heap().sizes() == {**alive()}
del y, loss, x, model, optimizer; gc.collect()
end = Heap()
stamps = [(e.origin, e.flags) for e in events(OBJECT_NEW)]
report(first=first, blocks=seeds.blocks, bytes=seeds.bytes == sum(truth.values()), skipped=seeds.skipped,
       problems=seeds.problems,
       middle=middle, end=len(end.live), unknown=len(end.unknown_frees), objects=seeds.objects,
       stamps=sorted({n for n, _ in stamps}), tell=saved_tensors_tell(),
       flags=sorted({f for _, f in stamps}), marks=[(e.size, e.address) for e in events(MARK) if e.size == 3])
"""
    )
    assert (
        answer["first"] == [True, answer["blocks"], 0]
        and answer["blocks"] > (150 if answer["tell"] else 80)
        and answer["bytes"]
    )
    assert (answer["skipped"] == 0 or not answer["tell"]) and answer["problems"] == [] and answer["middle"]
    assert answer["end"] == 0 and answer["unknown"] == 0
    assert answer["objects"] == 23 and answer["flags"] == [4] and answer["marks"] == [[3, answer["skipped"]]]
    assert {"AdamW", "TransformerEncoder", "Linear", "Dropout"} <= set(answer["stamps"])


def test_every_kind_of_storage_against_the_events_of_its_birth(run):
    """Recorded from the start, so that the events are the truth; then the walk must find the same blocks."""
    answer = run(
        """
import gc, io, warnings, torch
import numpy as np
from cuptimem.objects import seed
from cuptimem.record import torch_events
import torch._subclasses.fake_tensor
torch.ones(3).to_sparse(); torch.ones(1).share_memory_()       # what torch makes once and keeps
before = {k for k in alive()}
torch_events.install()
core.capture_record(True)
keep = {}
keep["plain"] = torch.ones(100)
keep["view"] = keep["plain"][3:5]
keep["empty"] = torch.empty(0)
keep["numpy"] = torch.from_numpy(np.ones(1000))
keep["buffer"] = torch.frombuffer(bytearray(640), dtype=torch.uint8)
keep["numpy of ours"] = torch.ones(41).numpy()
buffer = io.BytesIO(); torch.save(torch.ones(123), buffer); buffer.seek(0)
keep["load"] = torch.load(buffer)
torch.save({"a": torch.ones(3000), "b": torch.zeros(500)}, "mapped.pt")
keep["load mapped"] = torch.load("mapped.pt", mmap=True)
keep["file"] = torch.from_file("mapped.pt", shared=False, size=1024, dtype=torch.uint8)
keep["shared"] = torch.ones(2000).share_memory_()
torch.multiprocessing.set_sharing_strategy("file_system")
keep["shared file system"] = torch.ones(3000).share_memory_()
keep["coo"] = torch.eye(7).to_sparse()
keep["csr"] = torch.eye(9).to_sparse_csr()
keep["csc"] = torch.eye(11).to_sparse_csc()
keep["nested"] = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
keep["jagged"] = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
scales, zeros = torch.tensor([.1] * 4), torch.tensor([0] * 4)
keep["quantized"] = torch.quantize_per_channel(torch.ones(4, 4), scales, zeros, 0, torch.quint8)
del scales, zeros
keep["quantized per tensor"] = torch.quantize_per_tensor(torch.ones(5), .1, 0, torch.quint8)
if torch.backends.mkldnn.is_available(): keep["mkldnn"] = torch.ones(64, 64).to_mkldnn()
keep["meta"] = torch.ones(50, device="meta")
with torch._subclasses.fake_tensor.FakeTensorMode(): keep["fake"] = torch.ones(60)
keep["storage only"] = torch.ones(70).untyped_storage()
keep["typed storage"] = torch.ones(71).storage()
keep["lazy"] = torch.nn.LazyLinear(3)
keep["leaf with grad"] = torch.ones(80, requires_grad=True)
keep["leaf with grad"].sum().backward()
keep["retained"] = torch.ones(81, requires_grad=True) * 2
keep["retained"].retain_grad(); keep["retained"].sum().backward()
keep["complex"] = torch.ones(8, dtype=torch.complex64).conj()
keep["clone on write"] = torch._lazy_clone(torch.ones(90))
torch.func.vmap(lambda t: keep.setdefault("batched", t) * 2)(torch.ones(4, 5))
gc.collect()
truth = Heap().sizes()
seeds = seed.seed_alive()
core.capture_record(False)
found = {e.address: e.size for e in events(SEED) if e.type == 0}
seeded = {a: n for a, n in found.items() if a not in before}
missing = {n for a, n in truth.items() if seeded.get(a) != n}
extra = [n for a, n in seeded.items() if truth.get(a) != n]
report(blocks=len(truth), missing=sorted(missing), extra=extra, skipped=seeds.skipped, problems=seeds.problems,
       tell=saved_tensors_tell())
"""
    )
    assert answer["blocks"] > 35
    # The one skipped is a tensor of torch.func that escaped from its transform: only its inner tensor has memory.
    # Before torch 2.10 two saved tensors are skipped as well, which are held elsewhere too.
    skipped = 1 if answer["tell"] else 3
    assert (answer["missing"], answer["extra"], answer["skipped"], answer["problems"]) == ([], [], skipped, [])


def test_the_walk_runs_no_code_of_the_program(run):
    answer = run(
        """
import warnings, torch, torch.utils.checkpoint
from cuptimem.objects import seed
from cuptimem.record import torch_events
calls = []
class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        calls.append(("function", str(func))); return super().__torch_function__(func, types, args, kwargs or {})
    grad = property(lambda self: calls.append("grad"))
    def untyped_storage(self): calls.append("storage")
class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        t = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device="cpu",
                                                dispatch_device=True, dispatch_layout=True)
        t.inner = inner
        return t
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        calls.append(("dispatch", str(func)))
        raise AssertionError("no")
class Sneaky:
    @property
    def __class__(self): calls.append("class"); return torch.Tensor
class Meta(type):
    def __hash__(cls): calls.append("hash"); return 1
    def __eq__(cls, other): calls.append("eq"); return cls is other
    @property
    def __mro__(cls): calls.append("mro"); return ()
class Odd(metaclass=Meta): pass
class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        calls.append(("mode", str(func))); return func(*args, **(kwargs or {}))
class FunctionMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        calls.append(("function mode", str(func))); return func(*args, **(kwargs or {}))
keep = [torch.ones(10).as_subclass(Loud), Wrapper(torch.ones(20)), Sneaky(), Odd(), torch.eye(3).to_sparse()]
leaf = torch.ones(30, requires_grad=True)
middle = leaf * 2                                # a non-leaf: reading .grad would warn
def unpack(x): calls.append("unpack"); return x[0]
with torch.autograd.graph.saved_tensors_hooks(lambda t: (t.clone(),), unpack):
    hooked = leaf.exp()
forwards = []
layer = torch.nn.Linear(30, 30)
layer.register_forward_hook(lambda *a: forwards.append(1))
again = torch.utils.checkpoint.checkpoint(layer, leaf, use_reentrant=False)
forwards.clear(); calls.clear()
state = torch.random.get_rng_state()
torch_events.install()
core.capture_record(True)
torch.set_default_dtype(torch.float64)
with warnings.catch_warnings(record=True) as caught, Mode(), FunctionMode():
    warnings.simplefilter("always")
    seeds = seed.seed_alive()
said, ran = [str(w.message) for w in caught], list(calls)
core.capture_record(False)
sizes = [e.size for e in events(SEED)]
report(calls=ran, forwards=forwards, warnings=said, skipped=seeds.skipped, problems=seeds.problems,
       found=[n in sizes for n in (40, 80, 120)], same=bool((state == torch.random.get_rng_state()).all()),
       tell=saved_tensors_tell())
"""
    )
    assert answer["calls"] == [] and answer["forwards"] == [] and answer["warnings"] == []
    assert answer["found"] == [True] * 3 and answer["same"] and answer["problems"] == []
    assert answer["skipped"] == 0 or not answer["tell"]


def test_custom_functions_and_frozen_objects(run):
    answer = run(
        """
import gc, torch
from cuptimem.objects import seed
from cuptimem.record import torch_events
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * 3); ctx.other = x * 4
        return x * 2
    @staticmethod
    def backward(ctx, g): return g
x = torch.ones(50, requires_grad=True)
kept = [F.apply(x)]
truth_before_freeze = alive()
gc.freeze()
torch_events.install()
core.capture_record(True)
seeds = seed.seed_alive()
found = {e.address: e.size for e in events(SEED)}
core.capture_record(False)
gc.unfreeze()
report(same=found == truth_before_freeze, mine=sum(n == 200 for n in found.values()), skipped=seeds.skipped,
       tell=saved_tensors_tell())
"""
    )
    if answer.pop("tell"):
        assert answer == {"same": True, "mine": 4, "skipped": 0}
    else:  # what only the graph holds
        assert answer == {"same": False, "mine": 3, "skipped": 1}


def test_off_and_on_again_seeds_what_came_meanwhile(run):
    answer = run(
        """
import gc, torch
from cuptimem.objects import seed
from cuptimem.record import torch_events
torch_events.install()
core.capture_record(True)
seed.seed_alive()
a = torch.ones(1000)
core.capture_record(False)
b = torch.ones(2000)
core.capture_record(True)
seed.seed_alive()
del a, b; gc.collect()
frees = {e.address for e in events(FREE)}
sizes = {e.size for e in events(SEED, ALLOC) if e.address in frees}
report(sizes=sorted(sizes), owned=[e.size for e in events(SEED)].count(8000))
"""
    )
    assert {4000, 8000} <= set(answer["sizes"]) and answer["owned"] == 1


def test_without_torch_there_is_nothing_to_seed(run):
    answer = run(
        """
from cuptimem.objects import seed
core.capture_record(True)
seeds = seed.seed_alive()
report(blocks=seeds.blocks, marks=[(e.size, e.address) for e in events(MARK)], torch="torch" in sys.modules)
""",
        afresh=True,
    )
    assert answer == {"blocks": 0, "marks": [[3, 0]], "torch": False}


def test_gpu_blocks_come_from_the_allocators_snapshot(run):
    """No GPU here: PyTorch's snapshot is replaced by one with the shapes of old and new versions."""
    answer = run(
        """
import torch
from cuptimem.objects import seed
torch.cuda.is_initialized = lambda: True
torch.cuda.memory_snapshot = lambda: [
    {"device": 1, "address": 0x1000, "blocks": [
        {"size": 512, "state": "active_allocated"}, {"size": 1024, "state": "inactive"},
        {"size": 2048, "state": "active_allocated"}]},
    {"device": 0, "address": 0x8000, "blocks": [
        {"address": 0x8000, "size": 512, "state": "active_pending_free"},
        {"address": 0x8200, "size": 256, "state": "active_allocated"}]},
]
core.capture_record(True)
seed.seed_alive()
found = [(e.address, e.size, e.type, e.index) for e in events(SEED) if e.type == 1]
def fail(): raise RuntimeError("no snapshots here")
torch.cuda.memory_snapshot = fail
report(found=found, problems=seed.seed_alive().problems)
"""
    )
    assert answer["found"] == [[0x1000, 512, 1, 1], [0x1600, 2048, 1, 1], [0x8200, 256, 1, 0]]
    assert answer["problems"] == ["blocks on the GPU before start are unknown: no snapshots here"]


def test_threads_that_compute_without_a_pause_do_not_stop_the_walk(run):
    """A thread that has waited for the GIL gets it; it must not keep it for as long as the walk would have."""
    answer = run(
        """
import threading, time, torch
from cuptimem.objects import seed
w = torch.ones(256, requires_grad=True)
y = (w * 2).exp()
stop = []
def busy():
    while not stop: pass
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads: thread.start()
interval = sys.getswitchinterval()
core.capture_record(True)
for _ in range(10):
    time.sleep(0.001)
    until = time.monotonic() + 0.002
    while time.monotonic() < until: pass         # long enough for the others to wait already
    seed.seed_alive()
stop.append(True)
for thread in threads: thread.join()
report(restored=sys.getswitchinterval() == interval)
""",
        timeout=300,  # with an interval of minutes each walk would take that long
    )
    assert answer["restored"]


def test_the_walk_leaves_warnings_and_collection_as_they_were(run):
    answer = run(
        """
import gc, warnings, torch
from cuptimem.objects import seed
shown = []
warnings.resetwarnings()
warnings.simplefilter("default")
warnings.showwarning = lambda *a, **k: shown.append(str(a[0]))
def warn(): warnings.warn("once for each place")
warn()
before = list(warnings.filters)
core.capture_record(True)
seed.seed_alive()
warn()
on = gc.isenabled()
gc.disable()
seed.seed_alive()
report(shown=len(shown), same=before == list(warnings.filters), on=on, off=gc.isenabled())
"""
    )
    assert answer == {"shown": 1, "same": True, "on": True, "off": False}


def test_the_walk_does_not_hold_its_callers_locals(run):
    """Not even until the next collection: a tensor that the caller drops is freed at once."""
    answer = run(
        """
import gc, torch, weakref
from cuptimem.objects import seed
gc.disable()
def caller():
    tensor = torch.ones(1000)
    core.capture_record(True)
    seed.seed_alive()
    return weakref.ref(tensor)
report(gone=caller()() is None)
"""
    )
    assert answer == {"gone": True}


def test_a_block_that_a_thread_brings_from_an_operation_begun_before(run):
    """Given to it before recording, and in no object until the thread, which waits for the GIL, has its turn."""
    answer = run(
        """
import threading, time, torch
from cuptimem.objects import seed
from cuptimem.record import torch_events
torch_events.install()
made, begun = [], threading.Event()
def make():
    begun.set()
    made.append(torch.randn(1 << 20))            # some milliseconds without the GIL, then a wait for it
sys.setswitchinterval(0.25)
thread = threading.Thread(target=make)
thread.start()
begun.wait()
later = time.monotonic() + 0.002
while time.monotonic() < later: pass             # the block is there now, and the GIL ours
core.capture_record(True)
seed.seed_alive()
thread.join()
address = made[0].untyped_storage().data_ptr()
report(size=Heap().sizes().get(address))
"""
    )
    assert answer["size"] == 4 << 20
