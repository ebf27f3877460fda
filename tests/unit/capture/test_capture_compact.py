"""Compaction leaves events out and changes nothing that a report says, but for the timeline between bounds."""

import ctypes
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuptimem import _core
from cuptimem.report.model import TABLES
from tests import event_kinds
from tests.build import rooms

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "analysis"))

import craft  # noqa: E402
import driver_model  # noqa: E402
from capture_support import REPLAYED  # noqa: E402

DRIVER = [Path(__file__).parent / "compact/driver.c"]
DRIVER += [ROOT / "csrc/compact" / f"{name}.c" for name in ("compact", "compact_blocks", "compact_driver")]
DRIVER += [*rooms("base"), *REPLAYED]


@pytest.fixture(scope="module")
def compact() -> ctypes.CDLL:
    craft.Trace.library = craft.encoder()
    library = craft.library("compact.so", DRIVER)
    library.compact.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 4, ctypes.c_void_p, ctypes.c_size_t]
    library.compact.restype = ctypes.c_long
    return library


def compacted(library: ctypes.CDLL, trace: craft.Trace, whole: int, cut: int, rest: int) -> craft.Trace:
    events = trace.events
    rest = min(rest, len(events))
    whole = min(whole, len(events) - rest)
    given = (craft.Event * max(1, len(events)))(*events)
    room = 4 * len(events) + 64
    out = (craft.Event * room)()
    count = library.compact(given, len(events), whole, cut, rest, out, room)
    assert count >= 0
    result = craft.Trace()
    result.definitions = trace.definitions
    result.events = list(out[:count])
    return result


SUMS = (16, 17)  # kinds of records that only a compaction writes
COMPACTED = SUMS[1]


class Program:
    """A random program: blocks, forward and backward nodes, ticks, windows; flags are as the hooks give them."""

    def __init__(self, seed: int, length: int) -> None:
        self.random = random.Random(seed)
        self.trace = craft.Trace()
        self.lines = [self.trace.line(n) for n in range(1, 9)]
        self.alive: dict[tuple[int, int], int] = {}
        self.direct: set[tuple[int, int]] = set()  # taken from CUDA for themselves
        self.nodes: list[tuple[int, int]] = []  # creating thread, sequence
        self.sequence = {1: 0, 2: 0}
        self.running: dict[int, int] = {1: 0, 2: 0}
        for thread in (1, 2):
            self.trace.add(event_kinds.THREAD, 100 + thread, thread + 10, thread=thread)
        self.windows = 0
        for _ in range(length):
            self.step()

    def thread(self) -> int:
        return 1 if self.random.random() < 0.8 else 2

    def flags(self, thread: int) -> int:
        if not self.running[thread]:
            return 0
        return craft.IN_NODE | (craft.NODE_STACK if self.random.random() < 0.7 else 0)

    def step(self) -> None:
        r, t = self.random, self.trace
        thread = self.thread()
        action = r.choices(
            [
                *(
                    "alloc",
                    "free",
                    "node",
                    "run",
                    "done",
                    "drop",
                    "tick",
                    "lost",
                    "odd",
                    "reserved",
                    "window",
                    "thread",
                ),
                *("segment", "read", "operator"),
            ],
            [30, 25, 8, 8, 9, 6, 5, 0.3, 2, 1, 0.5, 0.2, 2, 0.5, 10],
        )[0]
        device = {"device": craft.CUDA, "index": 0} if r.random() < 0.2 else {"device": craft.CPU, "index": -1}
        key = device["device"], r.randrange(1, 40) * 64
        line = r.choice(self.lines) if r.random() < 0.95 else r.randrange(2)
        if action == "alloc":
            if key in self.alive and r.random() < 0.95:
                return  # mostly a correct program; now and then a free was lost
            size = r.randrange(1, 1 << 20)  # so that no two contributors are equal
            self.alive[key] = size
            direct = craft.DIRECT if key[0] == craft.CUDA and r.random() < 0.3 else 0
            t.alloc(key[1], size, line, thread=thread, flags=self.flags(thread) | direct, **device)
            if direct:
                self.direct.add(key)
            else:
                self.direct.discard(key)
            if r.random() < 0.4:
                t.add(event_kinds.REQUESTED, key[1], r.randrange(size), thread=thread, **device)
        elif action == "free" and (self.alive or r.random() < 0.05):
            if self.alive and r.random() < 0.97:
                key = r.choice(list(self.alive))
                told = key[0] == craft.CUDA and r.random() < 0.5  # some tell their device, others do not
                device = {"device": key[0], "index": 0 if told else -1}
                del self.alive[key]
                if key in self.direct:
                    t.add(event_kinds.SEGMENT_FREE, key[1], thread=thread, device=craft.CUDA, index=-1)
                    return
            t.free(key[1], r.choice([0, 64]), thread=thread, **device)
        elif action == "node":
            t.node(self.sequence[thread], line, thread=thread, flags=self.flags(thread))
            self.nodes.append((thread, self.sequence[thread]))
            self.sequence[thread] += 1
        elif action == "run":
            self.running[thread] += 1
            if self.nodes and r.random() < 0.7:
                creator, sequence = r.choice(self.nodes)
                t.run(sequence, creator + 10, thread=thread, name=r.choice("MN"))
            else:
                t.run(craft.NO_SEQUENCE, 0, thread=thread, name="A")
        elif action == "done":
            t.done(thread=thread)
            self.running[thread] = max(0, self.running[thread] - 1)
        elif action == "drop" and self.nodes:
            creator, sequence = self.nodes.pop(r.randrange(len(self.nodes)))
            t.add(event_kinds.NODE_FREE, sequence, creator + 10, thread=thread)
        elif action == "tick":
            t.tick(r.choice([craft.OPTIMIZER, craft.OPTIMIZER, craft.DATA]), 7000 + r.randrange(2), self.lines[0])
        elif action == "lost":
            t.add(event_kinds.LOST, 0, 3, thread=thread)
            self.running[thread] = 0
        elif action == "odd":
            t.alloc(r.choice([0, 64]), 0, line, thread=thread, flags=self.flags(thread), **device)
        elif action == "reserved":
            t.add(event_kinds.RESERVED, 0, r.choice([1 << 20, 1 << 21]), **device)
        elif action == "segment":
            at, cuda = 0x100000 + r.randrange(4) * 0x1000, {"device": craft.CUDA, "index": r.choice([0, 0, 0, 1])}
            if r.random() < 0.5:
                t.add(event_kinds.SEGMENT_NEW, at, r.randrange(1, 1 << 20), line, thread=thread, **cuda)
            else:
                t.add(event_kinds.SEGMENT_FREE, at, thread=thread, device=craft.CUDA, index=-1)
        elif action == "operator":
            t.operator(r.choice(["aten::add", "aten::mm", ""]), thread=thread)
        elif action == "read":
            t.add(event_kinds.HOST_READ, 64, 8, line, thread=thread, device=craft.CUDA, index=0)
        elif action == "window":
            self.windows += 1
            t.mark(craft.WINDOW_OPEN if self.windows % 2 else craft.WINDOW_CLOSE, (self.windows + 1) // 2)
        elif action == "thread":
            t.add(event_kinds.THREAD, 100 + thread, thread + 10, thread=thread)


def origins(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Contributors by where they were made. What a block is for depends on what happens around it: a compaction leaves
    that out."""
    sums_of: dict[tuple[Any, ...], list[int]] = {}
    for size, count, *where in rows:
        both = sums_of.setdefault(tuple(where[:4]), [0, 0])
        both[0] += size
        both[1] += count
    return sorted(((*both, *where) for where, both in sums_of.items()), key=repr)


# What a compaction may change: how many records there are is told by it, so only the curve between bounds is.
def comparable(result: dict[str, Any]) -> dict[str, Any]:
    result = dict(result)
    result.pop("compacted")
    devices = []
    for device in result.pop("devices"):
        device = dict(device)
        points = device.pop("timeline")
        device["timeline"] = max((p[2] for p in points), default=0)
        device.pop("tables")  # see below
        device.pop("check")  # of a compacted stretch the totals cannot be checked
        device.pop("above")  # the peak of a window's own blocks may be at another moment than that of all: see most()
        if device["requested_peak"] is None:  # no block that is left reports it: they are as large as was requested
            device["requested_peak"] = device["peak"]
        device["contributors"] = origins(device["contributors"])
        devices.append(device)
    steps = []
    for row in result.pop("steps"):
        shown, rest = row["contributors"], row["rest"]  # the ten largest: which they are depends on what they are for
        whole = sum(one[0] for one in shown) + rest[0], sum(one[1] for one in shown) + rest[1]
        steps.append({**row, "contributors": None, "rest": whole})
    return {**result, "devices": devices, "steps": steps}


def tables(result: dict[str, Any]) -> list[Any]:
    """A compaction leaves no stack of what it only counts: that is missing in the rows, and stands beside them."""
    found = []
    for device in result["devices"]:
        for what, (rows, rest) in device["tables"].items():
            if what == "above":
                continue
            counted = what in ("start", "end")
            assert not counted or rest == (0, 0)
            whole = sum(row[0] for row in rows) + rest[0], sum(row[1] for row in rows) + rest[1]
            found.append((device["device"], what, origins(rows) if counted else None, whole))
            assert what != "allocated" or whole == (device["allocated"], device["allocations"])
    return found


def most(result: dict[str, Any]) -> dict[str, int]:
    """Of each device, what the window's own blocks had at most. Of a compacted trace it is a lower bound."""
    return {device["device"]: device["above"][0] for device in result["devices"]}


DEVICE_SUMS = ("device", "start", "peak", "end", "allocated", "freed", "allocations", "frees")
STEP_SUMS = ("index", "device", "start", "peak", "end", "allocated", "freed", "allocations")


def sums(result: dict[str, Any]) -> list[Any]:
    """A window's file may name a device on which nothing is or was: such rows of zeros are left out. Devices come in
    the order of the blocks that were alive, which a compaction may change."""
    devices = sorted([device[key] for key in DEVICE_SUMS] for device in result["devices"])
    steps = sorted([row[key] for key in STEP_SUMS] for row in result["steps"])
    return [[row for row in devices if any(row[1:])], [row for row in steps if any(row[2:])], result["events"]]


def divided_by_ticks(trace: craft.Trace) -> craft.Trace:
    """Says before each tick that leads may be missing: steps then begin and end at ticks, as in older traces."""
    result = craft.Trace()
    result.definitions = trace.definitions
    for event in trace.events:
        if event.kind == event_kinds.TICK:
            result.events.append(craft.Event(event.thread, 0, event.time, 0, 0, 0, COMPACTED, 0, 0, -1))
        result.events.append(event)
    return result


def check(library: ctypes.CDLL, folder: Path, trace: craft.Trace, whole: int, cut: int, rest: int) -> None:
    short = compacted(library, trace, whole, cut, rest)
    for path in folder.glob("*.cmem"):
        path.unlink()
    a = divided_by_ticks(trace).write(folder / "a.cmem", per_batch=50)
    b = divided_by_ticks(short).write(folder / "b.cmem", per_batch=37)
    left_out = len(trace.events) - sum(e.kind not in SUMS for e in short.events)
    windows = [e.address for e in trace.events if e.kind == event_kinds.MARK and e.size == craft.WINDOW_OPEN]
    for window in [0, *windows]:
        assert tables(_core.analyze(a, window=window, tables=TABLES)) == tables(
            _core.analyze(b, window=window, tables=TABLES)
        )
        one, other = _core.analyze(a, window=window), _core.analyze(b, window=window)
        assert comparable(one) == comparable(other)
        assert all(bytes_ <= most(one)[device] for device, bytes_ in most(other).items())
        assert one["compacted"] is None or one["compacted"]["events"] == 0
        if window == 0:
            assert (other["compacted"]["events"] if other["compacted"] else 0) == left_out
        else:
            _core.extract(a, str(folder / "c.cmem"), window)
            _core.extract(b, str(folder / "d.cmem"), window)
            cut_a, cut_b = _core.analyze(str(folder / "c.cmem")), _core.analyze(str(folder / "d.cmem"))
            assert sums(cut_a) == sums(cut_b)  # its ids are numbered as they come
            (folder / "c.cmem").unlink()
            (folder / "d.cmem").unlink()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**9),
    length=st.integers(1, 400),
    whole=st.integers(0, 300),
    cut=st.sampled_from([1, 7, 40, 1000]),
    rest=st.integers(0, 100),
)
def test_a_compaction_changes_no_number(
    compact: ctypes.CDLL, tmp_path: Path, seed: int, length: int, whole: int, cut: int, rest: int
) -> None:
    check(compact, tmp_path, Program(seed, length).trace, whole, cut, rest)


@pytest.mark.parametrize("rest", [0, 300])
def test_a_training_loop_compacts_to_its_survivors_and_peaks(compact: ctypes.CDLL, tmp_path: Path, rest: int) -> None:
    """Numbers known beforehand: 40 steps of 6 temporaries in a row, 2 activations at the peak, 1 block that stays."""
    trace = craft.Trace()
    trace.add(event_kinds.THREAD, 101, 11)
    for step in range(40):
        for i in range(6):
            trace.alloc(64, 100 + i, trace.line(1))
            trace.free(64)
        for i in range(2):
            trace.node(2 * step + i, trace.line(2 + i))
            trace.alloc(1024 * (i + 1), 10_000, trace.line(2 + i))
        for i in (1, 0):
            trace.run(2 * step + i, 11)
            trace.free(1024 * (i + 1))
            trace.done()
            trace.add(event_kinds.NODE_FREE, 2 * step + i, 11)
        trace.alloc((1 << 20) + 64 * step, 1000, trace.line(9))
        trace.tick(craft.OPTIMIZER, 7000, trace.line(10))
    check(compact, tmp_path, trace, 0, 100_000, rest)
    short = compacted(compact, trace, 0, 100_000, rest)
    per_step = len(trace.events) // 40
    kinds = [e.kind for e in short.events[: -rest or None]]
    steps = 40 - rest // per_step - (1 if rest else 0)
    # Two activations with their frees, one survivor, a tick, and what leads to it, the step's first block; two nodes
    # came and went in each but the first step.
    assert 4 * steps <= kinds.count(event_kinds.ALLOC) <= 4 * steps + 6
    assert kinds.count(event_kinds.NODE_NEW) <= 4 and kinds.count(event_kinds.NODE_RUN) <= 3 + steps
    report = _core.analyze(short.write(tmp_path / "known.cmem"))
    assert [row["peak"] for row in report["steps"]] == [20_000 + 1000 * n for n in range(40)]
    assert [row["allocations"] for row in report["steps"]][1:] == [9] * 39
    assert report["devices"][0]["end"] == 40_000 and report["devices"][0]["frees"] == 8 * 40


def epochs(seed: int) -> craft.Trace:
    """Training and evaluation, each with batches made on the fly, of random numbers of batches and blocks."""
    r, t = random.Random(seed), craft.Trace()
    t.add(event_kinds.THREAD, 101, 11)
    free, sequence = list(range(64, 64 * 40, 64)), 0

    def new(line: int) -> int:
        address = free.pop(r.randrange(len(free)))
        t.alloc(address, r.randrange(1, 1 << 16), t.line(line))
        return address

    def drop(address: int) -> None:
        t.free(address)
        free.append(address)

    for _ in range(r.randint(1, 4)):
        for _ in range(r.randint(2, 8)):
            batch = [new(10 + i) for i in range(r.choice([1, 2]))]
            t.tick(craft.MODULE, 300, t.line(20))
            held = [new(30 + r.randrange(6)) for _ in range(r.randint(2, 8))]
            for _ in range(r.randint(5, 40)):
                drop(new(30 + r.randrange(6)))
            t.node(sequence, t.line(21))
            t.run(sequence, 11)
            t.done()
            t.add(event_kinds.NODE_FREE, sequence, 11)
            sequence += 1
            t.tick(craft.BACKWARD, 0, t.line(22))
            t.tick(craft.OPTIMIZER, 7000, t.line(23))
            for address in (*held, *batch):
                drop(address)
            drop(new(24))
        for _ in range(r.randint(0, 5)):
            batch = [new(40)]
            t.tick(craft.MODULE, 300, t.line(41), flags=0x20)
            for address in (*batch, *[new(42 + r.randrange(4)) for _ in range(3)]):
                drop(address)
        drop(new(50))
    return t


@pytest.mark.parametrize("whole", [0, 40])
def test_steps_begin_where_they_would_without_a_compaction(compact: ctypes.CDLL, tmp_path: Path, whole: int) -> None:
    compactions = 0
    for seed in range(250):
        trace = epochs(seed)
        short = compacted(compact, trace, whole, [7, 40, 1000][seed % 3], [0, 0, 50][seed // 3 % 3])
        compactions += len(short.events) < len(trace.events)
        paths = tmp_path / f"{seed}.cmem", tmp_path / f"{seed}-compacted.cmem"
        one, other = (_core.analyze(t.write(path)) for t, path in zip((trace, short), paths, strict=True))
        assert comparable(one) == comparable(other), seed
    assert compactions > 200


def test_operators_go_with_their_allocations(compact: ctypes.CDLL, tmp_path: Path) -> None:
    """Of 20 operators a step, two made a block that stays: their names stay, and the one that each step ends with."""
    trace = craft.Trace()
    for step in range(30):
        for i in range(18):
            trace.operator(f"aten::short{i}")
            trace.alloc(64, 100, trace.line(1))
            trace.free(64)
        for i, name in enumerate(("aten::mm", "aten::add")):
            trace.operator(name)
            trace.alloc((1 << 20) + 128 * step + 64 * i, 1000, trace.line(2))
        trace.operator("aten::last")
        trace.tick(craft.OPTIMIZER, 7000, trace.line(3))
    check(compact, tmp_path, trace, 0, 10**6, 0)
    short = compacted(compact, trace, 0, 10**6, 0)
    assert [e.kind for e in short.events].count(event_kinds.OPERATOR) <= 4 * 30
    (rows, _) = _core.analyze(short.write(tmp_path / "short.cmem"), tables=("end",))["devices"][0]["tables"]["end"]
    assert {row[5]: row[:2] for row in rows} == {"aten::mm": (30_000, 30), "aten::add": (30_000, 30)}


def test_a_stretch_longer_than_a_compaction_takes(compact: ctypes.CDLL, tmp_path: Path) -> None:
    """No clock at all: a window of 262,144 events stands for a step, and the peak over two of them is right."""
    trace = craft.Trace()
    line = trace.line(1)
    for i in range(70_000):
        trace.alloc(64 * (i % 500 + 1), i + 1, line)
        if i >= 400:
            trace.free(64 * ((i - 400) % 500 + 1))
    trace.events *= 2
    for i, event in enumerate(trace.events):
        event.time = (1 << 20) + 1024 * i
    half = len(trace.events) // 2
    one, other = (
        _core.analyze(t.write(tmp_path / name, per_batch=100_000))
        for t, name in ((trace, "a.cmem"), (compacted(compact, trace, 0, 10**9, 0), "b.cmem"))
    )
    assert half * 2 > 1 << 18 and other["compacted"]["events"] > 270_000
    assert comparable(one) == comparable(other)


def test_many_programs(compact: ctypes.CDLL, tmp_path: Path) -> None:
    """Enough of them that each rule of the compaction is needed by some."""
    for seed in range(450):
        choice = random.Random(seed)
        length, whole = choice.randint(1, 300), choice.choice([0, 0, 50])
        check(
            compact, tmp_path, Program(seed, length).trace, whole, choice.choice([7, 40, 1000]), choice.choice([0, 30])
        )


# --- the driver level -------------------------------------------------------------------------------------


def driver_program(seed: int, steps: int, *, windows: bool = False) -> driver_model.Driver:
    """Driver allocations with blocks in them, pools, totals, launches; some reserved bytes and requests that fail."""
    opened = 0
    program = driver_model.Driver(seed, 0, unwound=1)
    t, chance = program.trace, program.random
    cuda = driver_model.CUDA
    t.add(event_kinds.THREAD, 101, 11)  # it stays, and with it the time that all others are told from
    for _ in range(steps):
        if windows and chance.random() < 0.03:
            opened += 1
            t.mark(craft.WINDOW_OPEN if opened % 2 else craft.WINDOW_CLOSE, (opened + 1) // 2)
        program.step()
        what = chance.random()
        if what < 0.1:
            t.tick(craft.OPTIMIZER, 7000, program.lines[0])
        elif what < 0.2:
            t.add(event_kinds.RESERVED, 0, chance.randrange(1, 4) << 20, **cuda)
        elif what < 0.22:
            t.add(event_kinds.OOM, 0, 1 << 30, program.lines[1], **cuda)
        elif what < 0.3:
            t.add(event_kinds.POOL, 0xF00 + chance.randrange(2), chance.randrange(1 << 20), flags=4, thread=9, **cuda)
            t.add(event_kinds.DRIVER_MORE, 99, driver_model.UTILIZED, thread=9)
        elif what < 0.5:
            correlation = chance.randrange(1 << 32)
            t.add(event_kinds.LAUNCH, 5, correlation, program.lines[2], flags=1, **cuda)
            t.add(
                event_kinds.WORK, correlation, chance.randrange(10**6), t.name(chance.choice("ab")), flags=1, thread=9
            )
        elif what < 0.55 and program.blocks:
            t.add(event_kinds.DEFERRED_FREE, 0x77, **cuda)
            program.do_drop()
    program.deliver(0)
    return program


def test_refused_requests_say_what_was_alive_then(compact: ctypes.CDLL, tmp_path: Path) -> None:
    """Though the blocks around them came and went, and are compacted."""
    trace = craft.Trace()
    trace.alloc(0x10000, 5000, trace.line(1))
    for step in range(20):
        trace.alloc(0x20000, 9000, trace.line(2))
        trace.free(0x20000)
        trace.alloc(64, 100 + step, trace.line(2))
        trace.add(event_kinds.OOM, (0, 2**64 - 1)[step % 2], 1 << 50, trace.line(3))
        trace.free(64)
        trace.add(event_kinds.OOM, 777, 1 << 50, trace.line(3))
        trace.tick(craft.STEP, 1, trace.line(9))
    short = compacted(compact, trace, 3, 10_000, 3)
    assert sum(e.kind not in SUMS for e in short.events) < len(trace.events)
    asked = [
        [row[2] for row in _core.analyze(t.write(tmp_path / f"{n}.cmem"))["devices"][0]["ooms"]]
        for n, t in enumerate((trace, short))
    ]
    assert asked[0] == asked[1] == [bytes for step in range(20) for bytes in (5100 + step, 777)]


def driver_sums(report: dict[str, Any], other: dict[str, Any]) -> Any:
    """All but whose the memory is: where every block of an allocation came and went, a compaction does not say that
    PyTorch had it. Where nothing is cached, blocks may lie in addresses without memory: then whose it is changes
    sums, too."""
    driver = dict(report["driver"])
    for device in driver["devices"]:
        live: dict[tuple[str, str, int], int] = {}
        for row in device["live"]:
            key = (row["kind"], row["library"], row["stack"])
            live[key] = live.get(key, 0) + row["bytes"]
        device["live"] = live
    ledgers = []
    for row, like in zip(report["ledger"], other["ledger"], strict=True):
        rest = {key: value for key, value in row.items() if key not in ("cached", "driver", "residual")}
        given_out = row["cached"] + sum(line["bytes"] for line in row["driver"])
        ledgers.append((rest, *((given_out, row["residual"]) if row["cached"] and like["cached"] else ())))
    fragments = [
        {key: value for key, value in row.items() if key not in ("free_on_device", "largest_request")}
        for row in report["fragmentation"]
    ]
    return driver, ledgers, fragments, report["events"]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**9),
    steps=st.integers(1, 300),
    whole=st.integers(0, 200),
    cut=st.sampled_from([7, 40, 1000]),
    rest=st.integers(0, 60),
)
def test_a_compaction_changes_no_ledger(
    compact: ctypes.CDLL, tmp_path: Path, seed: int, steps: int, whole: int, cut: int, rest: int
) -> None:
    trace = driver_program(seed, steps).trace
    short = compacted(compact, trace, whole, cut, rest)
    for path in tmp_path.glob("*.cmem"):
        path.unlink()
    one, other = (
        _core.analyze(t.write(tmp_path / name, per_batch=60)) for t, name in ((trace, "a.cmem"), (short, "b.cmem"))
    )
    if rest:  # what is not compacted may have records of what was left out: they are compared with nothing
        for report in (one, other):
            check = report["driver"]["record_check"]
            report["driver"]["record_check"] = {key: check[key] for key in ("records", "missing", "alone")}
    assert driver_sums(one, other) == driver_sums(other, one)
    if one["kernels"] is not None:
        for key in ("launches", "ran", "names"):  # who was held goes with its block
            assert one["kernels"][key] == other["kernels"][key], key


def test_a_compaction_changes_no_ledger_of_a_window(compact: ctypes.CDLL, tmp_path: Path) -> None:
    """Its peaks and first failures are its own; records may come in another window than what they say."""
    for seed in range(120):
        trace = driver_program(seed, 10 + seed * 2, windows=True).trace
        short = compacted(compact, trace, seed % 3 * 50, 40 if seed % 2 else 1000, 0)
        a, b = (str(tmp_path / name) for name in ("a.cmem", "b.cmem"))
        for one, path in ((trace, a), (short, b)):
            Path(path).unlink(missing_ok=True)
            divided_by_ticks(one).write(Path(path), per_batch=60)
        for window in (e.address for e in trace.events if e.kind == event_kinds.MARK and e.size == craft.WINDOW_OPEN):
            one, other = _core.analyze(a, window=window), _core.analyze(b, window=window)
            for report in (one, other):
                del report["driver"]["record_check"]
            assert driver_sums(one, other) == driver_sums(other, one), (seed, window)
            cut = []
            for path, name in ((a, "c.cmem"), (b, "d.cmem")):
                (tmp_path / name).unlink(missing_ok=True)
                _core.extract(path, str(tmp_path / name), window)
                cut.append(_core.analyze(str(tmp_path / name))["driver"])
            for key in ("allocations", "frees", "unknown_frees", "failed_frees", "replaced"):
                assert cut[0][key] == cut[1][key], (seed, window, key)
            assert max(driver["record_check"]["missing"] for driver in cut) <= len(trace.events)


def test_what_the_driver_gave_out_for_a_moment_is_compacted(compact: ctypes.CDLL, tmp_path: Path) -> None:
    """Every tensor a driver allocation with its records: what stays is alive at the end, or was at the peak."""
    trace = craft.Trace()
    cuda = driver_model.CUDA
    trace.add(event_kinds.THREAD, 101, 11)
    records = []

    def told(kind: int, address: int, size: int, correlation: int, flags: int) -> None:
        trace.add(kind, address, size, trace.line(1) if kind == event_kinds.DRIVER_NEW else 0, flags=flags, **cuda)
        trace.add(event_kinds.DRIVER_MORE, correlation, driver_model.CORRELATION)
        records.append((address, 100, correlation, kind == event_kinds.DRIVER_FREE))

    def deliver(keep: int) -> None:
        while len(records) > keep:
            address, size, correlation, release = records.pop(0)
            flags = driver_model.RELEASE if release else 0
            trace.add(event_kinds.DRIVER_RECORD, address, size, 0, flags=flags, thread=9, **cuda)
            trace.add(event_kinds.DRIVER_MORE, correlation, driver_model.CORRELATION, thread=9)

    for i in range(1000):
        told(event_kinds.DRIVER_NEW, 512 * (i % 7 + 1), 100, 2 * i, driver_model.ASYNC)
        trace.alloc(512 * (i % 7 + 1), 100, trace.line(1), flags=craft.DIRECT, **cuda)
        if i % 100 == 50:
            told(event_kinds.DRIVER_NEW, 1 << 20 | i << 9, 100, 10_000 + i, driver_model.DEV)
        deliver(30)
        trace.free(512 * (i % 7 + 1), **cuda)
        told(event_kinds.DRIVER_FREE, 512 * (i % 7 + 1), 0, 2 * i + 1, 0)
        if i % 250 == 249:
            trace.tick(craft.OPTIMIZER, 7000, trace.line(2))
    deliver(1)  # one record never comes
    short = compacted(compact, trace, 0, 10**6, 0)
    one, other = (_core.analyze(t.write(tmp_path / name)) for t, name in ((trace, "a.cmem"), (short, "b.cmem")))
    assert driver_sums(one, other) == driver_sums(other, one)
    driver = other["driver"]
    assert (driver["allocations"], driver["frees"]) == (1010, 1000)
    assert driver["record_check"] == {
        "records": 2009,
        "matched": 2009,
        "missing": 1,
        "differ": 0,
        "alone": 0,
        "dropped": 0,
    }
    assert (driver["devices"][0]["bytes"], driver["devices"][0]["peak"]) == (1000, 1100)
    kinds = [e.kind for e in short.events]
    # Of each of 4 steps: what stays, what was alive at the peaks of blocks and driver, and the free before the tick.
    assert kinds.count(event_kinds.DRIVER_NEW) <= 10 + 3 * 4 and kinds.count(event_kinds.DRIVER_FREE) <= 3 * 4
    assert len(kinds) < 200 and other["compacted"]["events"] > 9_000


def test_what_is_told_again_and_again_is_compacted(compact: ctypes.CDLL) -> None:
    trace = craft.Trace()
    cuda = driver_model.CUDA
    for i in range(1000):
        for more in range(3):
            trace.add(event_kinds.POOL, 0xF00, 3 * i + more, flags=4, thread=9, **cuda)
            trace.add(event_kinds.DRIVER_MORE, i, driver_model.UTILIZED, thread=9)
        for what in (driver_model.TOTAL, driver_model.USED):
            trace.add(event_kinds.DEVICE, what, 1000 - i, thread=9, **cuda)
        trace.add(event_kinds.LAUNCH, 5, i, trace.line(1), flags=1, **cuda)
        trace.add(event_kinds.WORK, i, 10, trace.name("k"), flags=1, thread=9)
    short = compacted(compact, trace, 0, 10**6, 0).events
    pools = [(e.kind, e.address, e.size) for e in short if e.kind in (event_kinds.POOL, event_kinds.DRIVER_MORE)]
    told = [
        [(event_kinds.POOL, 0xF00, 3 * i + 2), (event_kinds.DRIVER_MORE, i, driver_model.UTILIZED)] for i in range(1000)
    ]
    assert pools == [row for rows in told for row in rows]
    assert [
        (e.kind, e.address, e.size) for e in short if e.kind not in (event_kinds.POOL, event_kinds.DRIVER_MORE)
    ] == [
        (event_kinds.DEVICE, driver_model.TOTAL, 1000),
        (event_kinds.DEVICE, driver_model.USED, 1000),
        (event_kinds.DEVICE, driver_model.TOTAL, 1),
        (event_kinds.DEVICE, driver_model.USED, 1),
        (event_kinds.LAUNCH, 0, 1000),
        (event_kinds.WORK, 1000, 10_000),
        (SUMS[1], 10_000 - 2000 - 4, 0),
    ]
