"""cuptimem.on_demand in a program: what a window counts, who may open one, and that nothing of it stays."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import Result

Forked = Callable[..., Result]

ACCOUNT = """\
import gc, json, os, sys, threading
import torch
import cuptimem

torch.set_num_threads(1)


def storages():
    found = {}
    for tensor in gc.get_objects():
        if issubclass(type(tensor), torch.Tensor):
            storage = tensor.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        return torch.relu(self.layer(x))


model = Model()
optimizer = torch.optim.AdamW(model.parameters())


def step():
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()


def device(profile):
    return next(device for device in profile.report.devices if device.name == "cpu")

"""

HUNDRED = """\
class Held:  # what is ours in the process
    def __init__(self):
        gc.collect()
        self.threads = len(os.listdir("/proc/self/task"))
        self.descriptors = sorted(os.listdir("/proc/self/fd"))
        with open("/proc/self/maps") as file:
            self.mappings = [line.split()[-1] for line in file if "cuptimem" in line and ".so" not in line]
        core = sys.modules.get("cuptimem._core")
        self.patched = sum(row[4] for row in core.sources_rows()) if core else 0
        self.callbacks = len(gc.callbacks)
        self.finders = len(sys.meta_path)


for _ in range(3):
    step()
memory = cuptimem.on_demand()
memory.window(seconds=0.01).result()  # what stays loaded once is no leak
before = Held()
wrong, keep, expected_sum, found_sum, lost = [], [], 0, 0, 0
for number in range(ROUNDS):
    keep.append(torch.empty(1000 + number))
    alive = storages()
    window = memory.window()
    window.wait_open()
    sizes = [64 * (number + k) for k in range(1, 6)]
    for size in sizes:
        torch.empty(size, dtype=torch.uint8)
    kept = torch.empty(4096, dtype=torch.uint8)
    window.stop()
    profile = window.result()
    found, expected = device(profile), sum(sizes) + 4096
    expected_sum, found_sum = expected_sum + expected, found_sum + found.allocated
    lost += profile.report.lost.events + profile.report.lost.unknown_frees
    if (found.start, found.allocated, found.allocations, found.end) != (alive, expected, 6, alive + 4096):
        wrong.append((number, found.start, alive, found.allocated, expected, found.allocations, found.end))
    del kept, profile, window
    step()
after = Held()
print(json.dumps({"wrong": wrong, "sums": [expected_sum, found_sum], "lost": lost,
    "before": before.__dict__, "after": after.__dict__}))
"""


@pytest.mark.scaled
def test_many_windows_count_each_byte_once_and_leave_nothing(forked: Forked, long: bool) -> None:
    done = forked("-c", ACCOUNT + HUNDRED.replace("ROUNDS", "100" if long else "12"), timeout=1200)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["wrong"] == [] and found["lost"] == 0
    assert found["sums"][0] == found["sums"][1] > 0
    assert found["after"] == found["before"]
    assert found["before"]["patched"] == 0 and found["before"]["mappings"] == []


QUIET = """
gc.disable()
for _ in range(3):
    step()
memory, kept, made = cuptimem.on_demand(), [], []
for leaks in (False, True):
    window = memory.window()
    window.wait_open()
    for _ in range(60):
        step()
        if leaks:
            kept.append(torch.empty(2000))
    before = gc.get_stats()[2]["collections"]
    window.stop()
    window.result()
    made.append(gc.get_stats()[2]["collections"] - before)
print(json.dumps(made))
"""


def test_a_window_in_which_nothing_grows_ends_without_a_collection(forked: Forked) -> None:
    done = forked("-c", ACCOUNT + QUIET, timeout=1200)
    assert done.code == 0, done.err
    assert json.loads(done.out) == [0, 1]


BESIDE = """\
import time
ready, goes_on, steps = threading.Event(), True, 0


def train():
    global steps
    while goes_on:
        step()
        steps += 1
        ready.set()


def ask():  # beside the training, which is in the main thread
    global goes_on
    try:
        ready.wait()
        memory = cuptimem.on_demand()
        for _ in range(5):
            begun = steps
            profile = memory.window(steps=3).result()
            ended = len({row.index for row in profile.report.steps.ended})
            found.append([ended >= 3, ended <= steps - begun + 1, device(profile).start >= persistent,
                          profile.report.lost.unknown_frees])
    finally:
        goes_on = False


step()
optimizer.zero_grad()
persistent, found = storages(), []
thread = threading.Thread(target=ask)
thread.start()
train()
thread.join()
print(json.dumps(found))
"""


def test_windows_of_steps_open_between_operations_of_the_main_thread(forked: Forked) -> None:
    done = forked("-c", ACCOUNT + BESIDE)
    assert done.code == 0, done.err
    assert json.loads(done.out) == [[True, True, True, 0]] * 5, "no block that Python could not see at the start"


USES = """\
import asyncio, time
memory, said = cuptimem.on_demand(operators=True), {}
first = memory.window()
for name, call in {
    "second": lambda: memory.window(seconds=1),
    "seconds": lambda: memory.window(seconds=0),
    "steps": lambda: memory.window(steps=0),
    "path": lambda: cuptimem.on_demand(path="x"),
    "option": lambda: cuptimem.on_demand(nonsense=1),
}.items():
    try:
        call()
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
said["current"] = memory.current is first
first.stop()
first.stop()
said["first"] = repr(first.result().report)
said["done"] = [first.done(), memory.current is None]

open("there.cmem", "w").close()
for name, window in (("exists", memory.window("there.cmem")), ("folder", None)):
    try:
        (window or memory.window("no/such/run.cmem")).result()
    except cuptimem.Error as error:
        said[name] = str(error)
named = memory.window("run.cmem", seconds=0.01).result()
said["path_of"] = os.path.basename(named.path), cuptimem.open("run.cmem").complete


async def server():
    ticks = 0
    window = memory.window(steps=5)

    async def tick():
        nonlocal ticks
        while not window.done():
            step()
            ticks += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(tick())
    profile = await window
    await task
    said["awaited"] = [len({row.index for row in profile.report.steps.ended}) >= 5, ticks >= 5]

    async def wait():
        await memory.window()

    waiting = asyncio.create_task(wait())
    while memory.current is None:
        await asyncio.sleep(0.01)
    cancelled = memory.current
    waiting.cancel()
    while memory.current is not None:
        await asyncio.sleep(0.01)
    said["cancelled"] = cancelled.cancelled()


asyncio.run(server())
from cuptimem.record import recorder
said["active"] = recorder.active()
last = memory.window("last.cmem")
last.wait_open()
print(json.dumps(said))  # the program ends with a window open
"""


def test_futures_refusals_and_coroutines(forked: Forked, tmp_path: Path) -> None:
    done = forked("-c", ACCOUNT + USES)
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said["second"].startswith("Error: a window without an end is open already, for ")
    assert said["seconds"] == "ValueError: seconds is a number above 0, not 0"
    assert said["steps"] == "ValueError: steps is a number from 1, not 0"
    assert said["path"].startswith("TypeError: on_demand() takes no path")
    assert said["option"].startswith("TypeError: ")
    assert said["first"].startswith("<cuptimem.Report") and said["done"] == [True, True] and said["current"]
    assert said["exists"] == "there.cmem exists; choose another name, or replace it with overwrite=True"
    assert said["folder"] == "no/such is not a directory; make it first"
    assert said["path_of"] == ["run.cmem", True]
    assert said["awaited"] == [True, True] and said["cancelled"] and not said["active"]
    assert cuptimem.open(tmp_path / "last.cmem").complete, "the end of the program ends the window"


LEAKS = """\
import time
goes_on, kept, found = True, [], []


class Node:
    pass


def ask():
    global goes_on
    try:
        report = cuptimem.on_demand().window(steps=30).result().report
        found.extend([[leak.frame.line for leak in report.leaks], [s.reason for s in report.suspects]])
    finally:
        goes_on = False


def loop():
    while goes_on:
        step()
        kept.append(torch.empty(2000))  # the leak
        node = Node()
        node.me, node.tensor = node, torch.empty(3000)  # garbage that waits
        time.sleep(0.02)


step()
thread = threading.Thread(target=ask)
thread.start()
loop()
thread.join()
print(json.dumps(found))
"""


def test_a_window_that_another_thread_asked_for_judges_leaks_as_any_other(forked: Forked) -> None:
    done = forked("-c", ACCOUNT + LEAKS)
    assert done.code == 0, done.err
    line = next(n for n, text in enumerate((ACCOUNT + LEAKS).splitlines(), 1) if "# the leak" in text)
    assert json.loads(done.out) == [[line], []]


def test_a_failing_preparation_keeps_no_window_from_its_end(forked: Forked) -> None:
    """What fails beside the program is tried again as the window opens, and said there."""
    program = """
from cuptimem.record import instruments

def fail():
    raise MemoryError("no room")

instruments.prepare = fail
memory = cuptimem.on_demand()
for _ in range(2):
    window = memory.window(seconds=0.01)
    print(device(window.result()).allocations >= 0)
"""
    done = forked("-c", ACCOUNT + program)
    assert (done.code, done.out.split()) == (0, ["True", "True"]), done.err


THREADS = """
from pathlib import Path
from cuptimem.objects import near, seed

leave = threading.Event()
begun = [threading.Event(), threading.Event()]


def work(event):
    event.set()
    leave.wait()


def decorated(file):  # a function of that file that calls what it gets
    space = {}
    exec(compile("def call(*called):\\n    called[0](*called[1:])", file, "exec"), space)
    return space["call"]


ours = near.OWN + "record/on_demand.py"
space = {"leave": leave, "begun": begun[0]}
exec(compile("def own():\\n    begun.set()\\n    leave.wait()", ours, "exec"), space)
threads = [threading.Thread(target=space["own"]), threading.Thread(target=decorated(ours), args=(work, begun[1]))]
for thread in threads:
    thread.start()
for event in begun:
    event.wait()
print(sum(any(one.f_code is work.__code__ for one in seed._outwards(top)) for top in seed._others()))
print(sum(any(one.f_code is space["own"].__code__ for one in seed._outwards(top)) for top in seed._others()))
leave.set()
for thread in threads:
    thread.join()
"""


def test_a_thread_that_runs_a_function_of_the_programs_is_not_ours(forked: Forked) -> None:
    done = forked("-c", ACCOUNT + THREADS)
    assert (done.code, done.out.split()) == (0, ["1", "0"]), done.err
