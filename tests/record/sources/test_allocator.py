"""Allocations and frees on the CPU: every block, its size, its line."""

import pytest

pytestmark = pytest.mark.torches

TRAIN = """
import torch
from torch import nn
from cuptimem.record import torch_events

before = alive()
torch_events.install()
core.capture_record(True)
results = []

def compare(name):
    heap = Heap()
    truth = {a: n for a, n in alive().items() if a not in before}
    results.append((name, len(truth), heap.sizes() == truth, len(heap.duplicates), len(heap.unknown_frees)))

torch.manual_seed(0)
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), 2)
head = nn.Linear(64, 10)
compare("model")
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()])
for step in range(3):
    x, y = torch.randn(8, 16, 64), torch.randint(0, 10, (8, 16))
    loss = nn.functional.cross_entropy(head(model(x)).view(-1, 10), y.view(-1))
    compare("forward")
    loss.backward()
    compare("backward")
    optimizer.step()
    compare("step")
    optimizer.zero_grad()
torch.empty(0)
del x, y, loss
compare("end")
torch_events.remove()
report(results=results, problems=torch_events.problems())
"""


def test_live_set_is_byte_exact_in_a_training_run(run):
    answer = run(TRAIN)
    assert answer["problems"] == []
    assert [r[0] for r in answer["results"]] == ["model", *["forward", "backward", "step"] * 3, "end"]
    for name, blocks, equal, duplicates, unknown in answer["results"]:
        assert blocks > 20 and equal and duplicates == 0 and unknown == 0, name


def test_events_carry_line_device_and_size(run):
    answer = run(
        """
import torch
core.sources_install()
core.capture_record(True)
def make():
    return torch.ones(1000)   # line of this
x = make()
address = x.untyped_storage().data_ptr()
del x
core.capture_record(False)
a = next(e for e in events(ALLOC) if e.address == address)
f = next(e for e in events(FREE) if e.address == address)
report(size=a.size, device=(a.type, a.index), flags=a.flags, function=a.frames()[0][1], free=(f.type, f.index),
       line=a.frames()[0][2] - make.__code__.co_firstlineno, order=[e.kind for e in events(ALLOC, FREE)])
"""
    )
    assert answer["size"] == 4000 and answer["device"] == [0, -1] and answer["flags"] == 0
    assert answer["function"] == "make" and answer["line"] == 1
    assert answer["free"] == [0, -1] and answer["order"] == ["alloc", "free"]


def test_empty_tensors_leave_no_event(run):
    program = "import torch; core.sources_install(); core.capture_record(True); torch.empty(0)\nreport(n=len(events()))"
    assert run(program) == {"n": 0}


def test_every_ring_says_who_owns_it_before_anything_else(run):
    answer = run(
        """
import os, threading, torch
core.sources_install()
core.capture_record(True)
def work(): torch.ones(5); torch.ones(5)
t = threading.Thread(target=work); t.start(); t.join()
work()
core.capture_record(False)
firsts = {}
for e in events(): firsts.setdefault(e.thread, e.kind)
report(owners=[(e.address, e.size) for e in events(THREAD)], pid=os.getpid(), firsts=list(firsts.values()))
"""
    )
    assert answer["firsts"] == ["thread", "thread"] and [answer["pid"], 0] in answer["owners"]


def test_out_of_memory_is_recorded_before_the_exception(run):
    answer = run(
        """
import torch
core.sources_install()
core.capture_record(True)
try: torch.empty(1 << 50, dtype=torch.uint8)
except RuntimeError as error: core.capture_record(False)
report(oom=[(e.size, e.address, e.type, e.index) for e in events(OOM)], line=[f[1] for f in events(OOM)[0].frames()])
"""
    )
    assert answer["oom"] == [[1 << 50, 2**64 - 1, 0, -1]] and answer["line"] == ["<module>"]


def test_blocks_are_not_counted_twice_under_torch_profiler(run):
    answer = run(
        """
import torch
core.sources_install()
core.capture_record(True)
with torch.profiler.profile(profile_memory=True):
    x = torch.ones(1000)
    del x
core.capture_record(False)
report(allocs=sum(e.size == 4000 for e in events(ALLOC)), duplicates=len(Heap().duplicates),
       unknown=len(Heap().unknown_frees))
"""
    )
    assert answer["allocs"] == 1 and answer["duplicates"] == 0 and answer["unknown"] == 0


def test_mapped_and_shared_storages(run):
    answer = run(
        """
import torch
core.sources_install()
core.capture_record(True)
results = {}
for strategy in ("file_descriptor", "file_system"):
    torch.multiprocessing.set_sharing_strategy(strategy)
    x = torch.ones(1000).share_memory_()
    address = x.untyped_storage().data_ptr()
    live = Heap().live
    results[strategy] = [(e.size, e.address - address, e.type, e.index) for e in live.values()]
    del x
    results[strategy + " freed"] = len(Heap().live)
open("bytes", "wb").write(b"0" * 8192)
x = torch.from_file("bytes", shared=False, size=8192, dtype=torch.uint8)
results["file"] = [(e.size, e.address - x.data_ptr()) for e in Heap().live.values()]
del x
results["file freed"] = len(Heap().live)
report(**results)
"""
    )
    assert answer["file_descriptor"] == [[4000, 0, 0, -1]]
    assert answer["file_system"] == [[4064, -64, 0, -1]]
    assert answer["file"] == [[8192, 0]]
    assert [answer[k] for k in answer if k.endswith("freed")] == [0, 0, 0]


def test_device_reports_become_events_and_totals(run):
    """No GPU here: the hook is called as a device's allocator would, through the slot of libc10."""
    answer = run(
        """
import ctypes, torch
symbol = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
slot, = slots("libc10.so", symbol)
value = lambda: ctypes.c_uint64.from_address(slot).value
before = value()
core.sources_install()
hooked = value()
from ctypes import c_int64, c_size_t, c_uint16, c_void_p
call = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_size_t, c_size_t, c_uint16)(hooked)
cuda1 = 1 | 1 << 8
core.capture_record(True)
call(0x7000, 512, 512, 2 << 20, cuda1)
call(0x7200, 1024, 1536, 2 << 20, cuda1)
call(0x7000, -512, 1024, 2 << 20, cuda1)
call(0x7200, -1024, 0, 0, cuda1)
call(None, 512, 0, 0, cuda1)
call(0x9000, 0, 0, 0, cuda1)
core.capture_record(False)
all = [(e.kind, e.address, e.size, e.type, e.index) for e in events() if e.kind != THREAD]
core.sources_remove()
report(all=all, changed=before != hooked, restored=value() == before, original=core.sources_lookup(symbol) == before)
"""
    )
    assert answer["all"] == [
        ["alloc", 0x7000, 512, 1, 1],
        ["reserved", 512, 2 << 20, 1, 1],
        ["alloc", 0x7200, 1024, 1, 1],
        ["free", 0x7000, 512, 1, 1],
        ["free", 0x7200, 1024, 1, 1],
        ["reserved", 0, 0, 1, 1],
    ]
    assert answer["changed"] and answer["restored"] and answer["original"]
