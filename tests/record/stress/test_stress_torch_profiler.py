"""Beside torch's own profilers, which report memory through the same functions that we hook."""

import pytest

PROFILERS = {
    "profiler": "torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)",
    "autograd": "torch.autograd.profiler.profile(profile_memory=True)",
}
ORDERS = ["theirs around ours", "ours around theirs", "theirs closes first", "ours closes first"]


@pytest.mark.torch
@pytest.mark.parametrize("kind", PROFILERS)
def test_both_give_right_numbers(forked, kind):
    answer = forked(
        f"""
import torch
def make(): return {PROFILERS[kind]}
def work():
    p = torch.randn(64, 64, requires_grad=True)
    y = torch.empty(12345)
    z = (p @ p).relu().sum(); z.backward()
    return p, y, z
work()
results = {{}}
for order in {ORDERS}:
    theirs, ours = make(), cuptimem.profile("run.cmem", overwrite=True)
    if order.startswith("theirs around"):
        theirs.__enter__(); ours.start(); kept = work(); core.capture_sync(); found = heap("run.cmem"); ours.stop()
        theirs.__exit__(None, None, None)
    elif order.startswith("ours around"):
        ours.start(); theirs.__enter__(); kept = work(); theirs.__exit__(None, None, None)
        core.capture_sync(); found = heap("run.cmem"); ours.stop()
    elif order.startswith("theirs closes"):
        theirs.__enter__(); ours.start(); kept = work(); theirs.__exit__(None, None, None)
        core.capture_sync(); found = heap("run.cmem"); ours.stop()
    else:
        ours.start(); theirs.__enter__(); kept = work(); core.capture_sync(); found = heap("run.cmem"); ours.stop()
        more = torch.empty(999); theirs.__exit__(None, None, None)
    events = rows("run.cmem")
    exact = sum(1 for r in events if r.kind == "alloc" and r.size == 4 * 12345)
    averages = theirs.key_averages()
    theirs_bytes = max(getattr(e, "self_cpu_memory_usage", 0) for e in averages if e.key == "aten::empty")
    alive = {{storage(t)[0]: storage(t)[1] for t in (kept[0], kept[1], kept[0].grad, kept[2])}}
    results[order] = dict(once=exact, has=all(found["live"].get(a) == n for a, n in alive.items()),
                          duplicates=found["duplicates"], unknown=found["unknown"], lost=found["lost"],
                          extra=len([a for a in found["live"] if a not in alive]), theirs=theirs_bytes)
    del kept
say(results=results)
""",
        timeout=180,
    )
    for order, result in answer["results"].items():
        assert result["once"] == 1 and result["has"], (order, result)
        assert (result["duplicates"], result["lost"]) == (0, 0), (order, result)
        assert result["theirs"] >= 4 * 12345, (order, result)
    assert answer["results"]["ours closes first"]["extra"] == 0


@pytest.mark.torch
def test_beside_the_memory_recorder(child):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch.cuda.memory._record_memory_history needs a CUDA device")
    answer = child(
        """
import torch
torch.cuda.memory._record_memory_history()
with cuptimem.profile("run.cmem"):
    x = torch.empty(12345, device="cuda")
    core.capture_sync()
    found = heap("run.cmem")
snapshot = torch.cuda.memory._snapshot()
say(has=found["live"].get(x.data_ptr(), 0) >= 4 * 12345, theirs=len(snapshot["segments"]))
"""
    )
    assert answer["has"] and answer["theirs"] > 0
