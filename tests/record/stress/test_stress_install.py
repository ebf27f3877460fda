"""profile() opened and closed hundreds of times while other threads allocate and run backward."""

import pytest


@pytest.mark.torch
def test_windows_under_load(forked, scale, keep):
    rounds = scale(5, 300)
    answer = forked(
        """
import threading, time, torch
rounds = int(sys.argv[1])
sys.setswitchinterval(2e-4)                          # more changes of threads, and this one's turn comes sooner
stop, busy, count = threading.Event(), threading.Event(), [0, 0, 0]
def load(i):
    p = torch.randn(8, 8, requires_grad=True)
    while not stop.is_set():
        busy.wait()
        y = (p @ p).relu()
        y.sum().backward(); p.grad = None; count[i] += 1
threads = [threading.Thread(target=load, args=(i,)) for i in range(3)]
for t in threads: t.start()
wrong, lost, events, overlaps = [], 0, 0, 0
for r in range(rounds):
    mine = []
    busy.set()
    before = torch.empty(3001 + r)                   # alive before: a seed
    with cuptimem.profile("run.cmem", overwrite=True) as outer:
        mine.append(torch.empty(5001 + r))
        inner = cuptimem.profile("inner.cmem", overwrite=True) if r % 4 == 0 else None
        if inner: inner.start()
        mine.append(torch.empty(7001 + r))
        gone = torch.empty(9001 + r); del gone
        if inner: inner.stop()
    busy.clear()                                     # until the next profile
    found = replay(rows("run.cmem"), snapshot_peak=False)
    sizes = {a: b.size for a, b in found.live.items()}
    lost += found.lost; events += found.allocations + found.frees
    for t in (before, *mine):
        a, n = storage(t)
        if sizes.get(a) != n: wrong.append((r, "missing", n, sizes.get(a)))
    if 4 * (9001 + r) in [b.size for b in found.live.values()]: wrong.append((r, "freed is alive"))
    if found.duplicates: wrong.append((r, "duplicates", found.duplicates))
    if inner:
        overlaps += 1
        part = replay(rows("inner.cmem"), snapshot_peak=False)
        a, n = storage(mine[1])
        if part.live[a].size != n: wrong.append((r, "window"))
        if part.allocations > found.allocations: wrong.append((r, "window has more than the whole"))
    if core.capture_active() or "cuptimem" in tasks(): wrong.append((r, "left over"))
stop.set(); busy.set()
for t in threads: t.join()
silent = len(rows("run.cmem"))
say(wrong=wrong[:10], lost=lost, events=events, overlaps=overlaps, backward=min(count),
    slots=sum(r[4] for r in core.sources_rows()))
""",
        rounds,
        timeout=240,
    )
    assert answer["wrong"] == [] and answer["lost"] == 0
    assert answer["backward"] > rounds and answer["overlaps"] == -(-rounds // 4)
    assert answer["slots"] == 0, "hooks stayed in"
    keep(profiles=rounds, events=answer["events"], lost=answer["lost"], backward=answer["backward"])


@pytest.mark.torch
def test_what_all_threads_hold_is_exact_at_a_barrier(forked, scale, keep):
    """Start in the middle of a running training; with every thread held, the trace has exactly what is reachable.

    One block is nobody's: that of an operation which another thread had begun before recording and was still inside,
    without the GIL, when objects were listed. No event has it, and no object yet. On a busy machine a thread may stand
    there for any time, so the threads count what they have done, and that block alone is let off.
    """
    rounds = scale(12, 200)
    answer = forked(
        """
import gc, threading, torch, storages
from cuptimem.objects import living
rounds = int(sys.argv[1])
gate, go, end = threading.Barrier(4), threading.Barrier(4), False
hold, made = [None] * 3, [[], [], []]                # what each operation of a thread's turn left behind
def load(i):
    while not end:
        mine = made[i] = []
        def did(tensor):
            mine.append(storage(tensor)[0])
            return tensor
        p = did(torch.randn(8, 8, requires_grad=True))
        for n in range(5):
            (p @ p).relu().sum().backward()
            mine.append(None if n else storage(p.grad)[0])
        hold[i] = (p, did(did(did(p.sin()).exp()).sum()))
        gate.wait(); go.wait()
progress = lambda: [(mine, len(mine)) for mine in made]
moments = {}
record, listed = core.capture_record, living.all_objects
def record_and_note(on):
    record(on)
    if on: moments["recording"] = progress()
def list_and_note():
    moments["listed"] = progress()
    return listed()
core.capture_record, living.all_objects = record_and_note, list_and_note
threads = [threading.Thread(target=load, args=(i,)) for i in range(3)]
for t in threads: t.start()
wrong, compared, let_off = [], 0, 0
for r in range(rounds):
    prof = cuptimem.profile("run.cmem", overwrite=True)
    prof.start()                       # while the threads are in forward or backward
    gate.wait()
    gc.collect(); gc.disable()
    core.capture_sync()
    result = replay(rows("run.cmem"), snapshot_peak=False)
    ours, theirs = {a: b.size for a, b in result.live.items()}, storages.reachable()
    gc.enable()
    skipped = sum(x.address for x in rows("run.cmem") if x.kind == "mark" and x.size == 3)
    missing = {a: n for a, n in theirs.items() if ours.get(a) != n}
    extra = {a: n for a, n in ours.items() if a not in theirs}
    for (mine, at), (then, still) in zip(moments["recording"], moments["listed"]):
        if mine is then and at == still and at < len(mine):
            let_off += missing.pop(mine[at], 0) > 0
    if (missing and not skipped) or extra: wrong.append((r, missing, extra, skipped))
    compared += len(theirs)
    prof.stop()
    if r == rounds - 1: end = True
    go.wait()
for t in threads: t.join()
say(wrong=wrong[:5], compared=compared, let_off=let_off)
""",
        rounds,
        timeout=240,
    )
    assert answer["wrong"] == [] and answer["compared"] > 10 * rounds
    keep(profiles=rounds, blocks_compared=answer["compared"], let_off=answer["let_off"])


def test_torch_arrives_while_the_capture_ends(child, scale, keep):
    """Another thread is in `import torch` when the last window closes: no hook may outlive the capture."""
    rounds = scale(30, 1000)
    answer = child(
        """
import threading, types, importlib.machinery
from cuptimem.record import instruments
class Stub:                                              # a torch that imports quickly, over and over
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "torch" else None
    def create_module(self, spec): return None
    def exec_module(self, module): module.__version__ = "0"
sys.meta_path.insert(0, Stub())
left, met = [], 0
sys.setswitchinterval(1e-5)
for i in range(int(sys.argv[1])):
    sys.modules.pop("torch", None)
    prof = cuptimem.profile()
    prof.start()
    t = threading.Thread(target=lambda: __import__("torch"))
    t.start()
    if i % 2:
        for _ in range(i % 97): pass
    prof.stop()
    t.join()
    events = sys.modules.get("cuptimem.record.torch_events")
    met += events is not None
    if instruments._hooked or instruments._waiting or (events and events._installed): left.append(i)
    if any(type(f).__name__ == "ImportWatch" for f in sys.meta_path): left.append((i, "path"))
    if core.capture_active(): left.append((i, "capture"))
say(left=left[:5], met=met)
""",
        rounds,
    )
    assert answer["left"] == [] and answer["met"] > 0
    keep(rounds=rounds)
