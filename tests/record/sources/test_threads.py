"""Hooks that come and go while others allocate; forks; libraries that arrive while recording."""


def test_install_and_remove_while_four_threads_train(run):
    answer = run(
        """
import threading, time, torch
from cuptimem.record import torch_events
stop, count, errors = False, [0] * 4, []

class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): raise RuntimeError("boom")

def work(i):
    p = torch.randn(16, 16, requires_grad=True)
    while not stop:
        (p @ p).relu().sum().backward(); p.grad = None; count[i] += 1
        if count[i] % 20 == 0:
            try: Bad.apply(p).sum().backward()
            except RuntimeError as error: errors.append("boom" in str(error))
            keep_pace()
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
core.sources_install(); torch_events.calibrate(torch)
core.capture_record(True)
for t in threads: t.start()
cycles, slots_each = 0, set()
while cycles < 150 or min(count) <= 20 or not errors:
    core.sources_remove()
    slots_each.add(core.sources_install()); cycles += 1
    time.sleep(0.001)
stop = True
for t in threads: t.join()
core.sources_remove()
core.capture_record(False)
events()
restart()
core.capture_record(True)
torch.ones(10)
silent = len(events(ALLOC, FREE, NODE_NEW))
report(slots=len(slots_each), errors=all(errors), silent=silent)
"""
    )
    assert answer["slots"] == 1
    assert answer["errors"] and answer["silent"] == 0


def test_live_set_of_four_threads_at_a_barrier(run):
    answer = run(
        """
import threading, torch
from cuptimem.record import torch_events
before = alive()
torch_events.install()
core.capture_record(True)
kept, gates = {}, [threading.Barrier(5) for _ in range(6)]
def work(i):
    for round in range(3):
        p = torch.randn(16, 16, requires_grad=True)
        kept[i] = (p @ p).relu()
        kept[i].sum().backward()
        y = p.sin().exp()
        gates[2 * round].wait(); gates[2 * round + 1].wait()
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads: t.start()
results = []
for round in range(3):
    gates[2 * round].wait()
    heap, truth = Heap(), {a: n for a, n in alive().items() if a not in before}
    results.append((len(truth), heap.sizes() == truth, len(heap.duplicates), len(heap.unknown_frees)))
    gates[2 * round + 1].wait()
for t in threads: t.join()
report(results=results)
"""
    )
    for blocks, equal, duplicates, unknown in answer["results"]:
        assert blocks == 16 and equal and duplicates == 0 and unknown == 0


def test_data_loader_workers_and_raw_forks(run):
    answer = run(
        """
import os, threading, torch
from cuptimem.record import torch_events
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 32
    def __getitem__(self, i): return torch.randn(64, 64) + i
torch_events.install()
core.capture_record(True)
stop = False
def background():
    while not stop: torch.ones(1000) * 2; keep_pace()
thread = threading.Thread(target=background); thread.start()
seen = 0
for strategy in ("file_descriptor", "file_system"):
    torch.multiprocessing.set_sharing_strategy(strategy)
    for x in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2):
        seen += x.shape[0]
del x
codes = []
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        z = torch.randn(100, 100, requires_grad=True); (z @ z).sum().backward()
        os._exit(0 if torch.isfinite(z.grad).all() else 1)
    codes.append(os.waitpid(pid, 0)[1])
stop = True; thread.join()
core.capture_record(False)
heap = Heap()
batch = 8 * 64 * 64 * 4
mapped = [e.size for e in events(ALLOC) if e.size in (batch, batch + 64)]
report(seen=seen, codes=codes, mapped=sorted(set(mapped)), count=len(mapped), duplicates=len(heap.duplicates),
       unknown=len(heap.unknown_frees), ticks=len([e for e in events(TICK) if e.size == 3]))
"""
    )
    assert answer["seen"] == 64 and answer["codes"] == [0] * 10
    assert answer["mapped"] == [131072, 131136] and answer["count"] == 8
    assert answer["duplicates"] == 0 and answer["unknown"] == 0
    assert answer["ticks"] == 10  # 4 batches and the end, twice


def test_a_child_process_may_hook_again(run):
    answer = run(
        """
import os, torch
from cuptimem.record import torch_events
torch_events.install()
pid = os.fork()
if pid == 0:
    torch_events.remove()
    torch_events.install()
    patched = sum(row[4] for row in core.sources_rows())
    torch_events.remove()
    left = sum(row[4] for row in core.sources_rows())
    x = torch.ones(5)
    os._exit(0 if patched >= 11 and left == 0 else 1)
code = os.waitpid(pid, 0)[1]
report(code=code, here=sum(row[4] for row in core.sources_rows()) >= 11)
"""
    )
    assert answer == {"code": 0, "here": True}


def test_torch_that_arrives_while_recording_is_patched_by_the_collector(run):
    """Nothing but the collector's scan: no import hook, no second call of install."""
    answer = run(
        """
import time
core.sources_install()
core.capture_record(True)
import torch
while not sum(row[4] for row in core.sources_rows()) >= 11: time.sleep(0.05)
x = torch.ones(1000)
marks = [(e.size, e.address) for e in events(MARK)]
report(rows=sum(row[4] for row in core.sources_rows()), seen=any(e.size == 4000 for e in events(ALLOC)), marks=marks)
""",
        afresh=True,
    )
    assert answer["rows"] >= 11 and answer["seen"]
    assert sum(slots for kind, slots in answer["marks"] if kind == 4) == answer["rows"]
