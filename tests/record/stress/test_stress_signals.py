"""Signals at any moment: in hooks, and while a profile is being entered or left."""

import json
import select
import signal
import time

import pytest


@pytest.mark.torch
@pytest.mark.parametrize("timer", ["ITIMER_REAL", pytest.param("ITIMER_PROF", marks=pytest.mark.extended)])
def test_handlers_that_allocate(child, scale, keep, timer):
    answer = child(
        """
import itertools, signal, torch
timer = getattr(signal, sys.argv[1]); which = signal.SIGALRM if sys.argv[1] == "ITIMER_REAL" else signal.SIGPROF
numbers, calls, kept = itertools.count(1), 0, []
def handler(*_):
    global calls
    number = next(numbers)  # its own: on a busy machine the next signal comes before this one is through
    x = torch.empty(10 + number % 5)
    if number % 20 == 0: kept.append(x)
    calls += 1
wanted, loops = int(sys.argv[2]), 0
p = torch.randn(16, 16, requires_grad=True)
with cuptimem.profile("run.cmem"):
    signal.signal(which, handler)
    signal.setitimer(timer, 0.001, 0.001)
    while calls < wanted:
        (p @ p).relu().sum().backward(); loops += 1
    signal.setitimer(timer, 0)
    p.grad = None
    core.capture_sync()
    found = heap("run.cmem")
truth = dict(storage(x) for x in kept)
say(calls=calls, loops=loops, same=found["live"] == truth, kept=len(truth),
    **{k: found[k] for k in ("unknown", "duplicates", "lost", "allocations")})
""",
        timer,
        scale(400, 20_000),
    )
    assert answer["same"] and answer["kept"] == answer["calls"] // 20 and answer["loops"] > 0
    assert (answer["unknown"], answer["duplicates"], answer["lost"]) == (0, 0, 0)
    keep(signals=answer["calls"], allocations=answer["allocations"], lost=answer["lost"])


INTERRUPTED = """
import gc, signal, sys, time
TORCH = sys.argv[2] == "torch"
if TORCH:
    import torch
    hold = torch.randn(8, 8, requires_grad=True); graph = (hold @ hold).relu()
points = int(sys.argv[1])
def state():
    import warnings
    return (core.capture_active(), recorder._capture is not None, tasks().count("cuptimem"), gc.isenabled(),
            len(warnings.filters), sys.getswitchinterval(), sum(r[4] for r in core.sources_rows()),
            [type(f).__name__ for f in sys.meta_path], torch.is_grad_enabled() if TORCH else None)
class Stop(Exception): pass
def once(error):
    # A signal at each of this many places in turn: the profile function counts Python's calls and returns, C's too.
    global seen
    seen, fired = 0, False
    def count(frame, event, argument):
        global seen
        seen += 1
        if seen == at:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT if error is KeyboardInterrupt else signal.SIGUSR1)
    prof = cuptimem.profile()
    inside = False
    sys.setprofile(count)
    try:
        with prof:
            sys.setprofile(None) if which == "enter" else None
            inside = True
            if which == "exit": seen = 0
    except error:
        fired = True
    finally:
        sys.setprofile(None)
    return fired
def handler(*_): raise Stop
signal.signal(signal.SIGUSR1, handler)
with cuptimem.profile(): pass
normal = state()
bad, fired, swept = [], 0, 0
for error in (KeyboardInterrupt, Stop):
    for which in ("enter", "exit"):
        # A profile beside PyTorch takes a third of a second: unless there is time, one of both errors for each place.
        apart = TORCH and points < 100
        at = 1 + (apart and error is Stop)
        misses = 0
        while misses < 3 and at < points:
            try: hit = once(error)
            except BaseException as other: bad.append((which, at, repr(other))); hit = True
            fired += hit; swept += 1
            misses = 0 if hit else misses + 1
            now = state()
            if now != normal: bad.append((which, at, error.__name__, repr(now)))
            if core.capture_active(): recorder.close_all()
            at += 1 + apart if at < 400 else 1 + at // 40
with cuptimem.profile("last.cmem") as prof: pass
say(bad=bad[:12], count=len(bad), fired=fired, swept=swept, complete=prof.report.complete, normal=repr(normal))
"""


@pytest.mark.parametrize("what", ["without", pytest.param("torch", marks=pytest.mark.torch)])
def test_interrupt_at_every_call_of_enter_and_exit(child, scale, keep, what):
    """A handler raises after the n-th call or return of Python code in entering and leaving, for every n."""
    answer = child(INTERRUPTED, 100_000 if scale(0, 1) else 60, what, timeout=200)
    assert answer["bad"] == [], answer["count"]
    assert answer["complete"] and answer["fired"] > 100
    keep(interrupts=answer["fired"])


def test_interrupts_from_outside(start, scale, keep):
    """SIGINT at swept delays, from another process, against a loop of nothing but profiles. The next one is sent when
    the last one has been dealt with: docs/limits.md."""
    wanted = scale(120, 2000)  # so that one in a hundred is one
    process = start(
        """
import signal
hits, rounds, bad = 0, 0, []
while hits < int(sys.argv[1]):
    try:
        print("ready", flush=True)
        while True:
            with cuptimem.profile():
                rounds += 1
    except KeyboardInterrupt:
        hits += 1
    if core.capture_active() or recorder._capture is not None or tasks().count("cuptimem"):
        bad.append((hits, core.capture_active()))
        recorder.close_all()
signal.signal(signal.SIGINT, signal.SIG_IGN)
with cuptimem.profile("last.cmem") as prof: pass
say(hits=hits, rounds=rounds, bad=bad, complete=prof.report.complete)
""",
        wanted,
    )
    delay = 0.0
    try:
        while (line := process.stdout.readline()) == "ready\n":
            delay = (delay + 0.00737) % 0.15  # on a busy machine a profile takes that long
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            while not select.select([process.stdout], [], [], 10)[0]:
                process.send_signal(signal.SIGINT)  # Python drops what a finalizer or a callback raises
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, err[-3000:]
    answer = json.loads(line)
    # Before __exit__'s first instruction: docs/limits.md.
    assert len(answer["bad"]) <= answer["hits"] // 100, answer
    assert answer["complete"] and answer["hits"] == wanted
    keep(interrupts=answer["hits"], profiles=answer["rounds"], left_open=len(answer["bad"]))
