"""Traces that make no sense, under the address and undefined-behaviour sanitizers: an answer or one line, no crash."""

import random
import subprocess
from pathlib import Path

import pytest
from craft import BEFORE_START, NO_SEQUENCE, Trace

from benchmarks.synthetic import write_synthetic
from tests.build import SANITIZED, SANITIZERS, build, rooms
from tests.event_kinds import DRIVER_MORE, DRIVER_NEW, REQUESTED, SEGMENT_NEW

EXTREMES = (0, 1, 2, 3, 5, 11, 12, 0x1000, 0x1040, 1 << 40, (1 << 63) - 1, 1 << 63, NO_SEQUENCE - 1, NO_SEQUENCE)


def nonsense(chance: random.Random) -> Trace:
    """Random kinds with random fields: few values, so that they often meet."""
    t = Trace()
    stacks = [0, 1, t.line(1), t.line(2), t.stack(("a.py", "f", 3), ("b.py", "g", 4)), 99_999]
    names = [0, t.name("N5torch8autograd6PyNodeE"), t.name("N9"), t.name(""), 77_777]
    for _ in range(chance.randint(0, 400)):
        kind = chance.choice([1, 1, 1, 2, 2, 5, 6, 7, 10, 10, 13, *range(1, 16), chance.randint(16, 255)])
        address = chance.choice(EXTREMES)
        size = chance.choice(
            [1, 2, 3, 4, 11, 64, 64, 64, 1 << 20, *([-1, -(1 << 63), (1 << 63) - 1] if chance.random() < 0.02 else [])]
        )
        what = chance.choice(names if kind in (6, 11) else stacks)
        t.add(
            kind,
            address,
            size,
            what,
            flags=chance.choice([0, 0, 1, 3, 4, 7]) if chance.random() < 0.3 else 0,
            device=chance.choice([0, 0, 1, 20, 200]),
            index=chance.choice([-1, 0, 1, -128, 127]),
            thread=chance.choice([0, 1, 2, 4_294_967_295]),
            after=chance.choice([0, 1024, 1024, 1 << 24, 1 << 40]),
        )
    return t


SPACES = (0, 0x1000, 0x2000, 0x3000, 0x5000, 1 << 40, (1 << 63) - 1, 1 << 63, NO_SEQUENCE - 0x1000, NO_SEQUENCE)


def driver_nonsense(chance: random.Random) -> Trace:
    """The same of the driver level: allocations, frees and what is said of them, in few addresses that overlap."""
    t = Trace()
    stacks = [0, 1, t.line(1), t.line(2), 99_999]
    names = [0, t.name("/x/libtorch_cuda.so"), t.name("libnccl.so"), t.name(""), 77_777]
    rare = [-1, -(1 << 63), (1 << 63) - 1, 1 << 48, (1 << 48) + 1] if chance.random() < 0.2 else [4096]
    for _ in range(chance.randint(0, 500)):
        kind = chance.choice([*[22, 23, 24] * 4, *range(22, 31), 29, 1, 2, 18, 19, 20, 4, 3, 13])
        address, size = chance.choice(SPACES), chance.choice([*[0x1000, 0x2000, 0x800, 0x3000, 7, 0] * 4, *rare])
        flags = chance.choice([*range(18), 32, 34, 41, 42, 49, 0x80, 0x81, 31, 255])
        if kind == 24:
            size = chance.choice([1, 2, 2, 4, 4, 5, 5, 5, 6, 7, 8])
            address = chance.choice([1, 2, 3, *SPACES]) if size == 2 else address
        elif kind == 29:
            address = chance.choice([1, 2, 3, 4, 5, 6, 6, 6, 7])
        elif kind in (27, 28):
            address, size = chance.choice([1, 2, 3]), chance.choice([1, 2, 3, *rare])
        t.add(
            kind,
            address,
            size,
            chance.choice(names if kind in (24, 25, 28) else stacks),
            flags=flags if kind > 21 else chance.choice([0, 0, 4, 8]),
            device=1 if chance.random() < 0.9 else 0,
            index=chance.choice([0, 0, 0, 0, 1, -1, -128, 127]),
            thread=chance.choice([1, 1, 1, 2, 257, 4_294_967_295]),
            after=chance.choice([0, 1024, 1024, 1 << 24]),
        )
    return t


@pytest.fixture(scope="module")
def harness(needs_sanitizer: None) -> Path:
    sources = [Path(__file__).with_name("harness.c"), *rooms("base", "trace", "heap", "analysis")]
    return build("harness", sources, *SANITIZED, SANITIZERS["address"], link=["-lpthread"])


@pytest.mark.sanitizer
def test_the_heap_links_without_the_analysis(tmp_path: Path) -> None:
    """What is alive is known before anything is asked of it."""
    alone = tmp_path / "alone.c"
    alone.write_text("int main(void) { return 0; }\n")
    build("alone", [alone, *rooms("base", "trace", "heap")], *SANITIZED, SANITIZERS["address"], link=["-lpthread"])


def test_nonsense(harness: Path, tmp_path: Path) -> None:
    paths = []
    for seed in range(300):
        chance = random.Random(seed)
        trace = nonsense(chance)
        paths.append(trace.write(tmp_path / f"{seed}.cmem", per_batch=chance.choice([1, 50, 1000])))
    done = subprocess.run([str(harness), *paths], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "300 traces\n", done.stderr[-3000:]


def test_nonsense_of_the_driver_level(harness: Path, tmp_path: Path) -> None:
    paths = []
    for seed in range(200):
        chance = random.Random(seed)
        trace = driver_nonsense(chance)
        for window in (1, 2):  # somewhere, so that their files are made, too
            trace.mark(chance.choice([1, 2]), window)
        paths.append(trace.write(tmp_path / f"{seed}.cmem", per_batch=chance.choice([1, 50, 1000])))
    done = subprocess.run([str(harness), *paths], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "200 traces\n", done.stderr[-3000:]


def test_a_sound_trace(harness: Path, tmp_path: Path) -> None:

    path = str(tmp_path / "sound.cmem")
    write_synthetic(path, 60_000)
    done = subprocess.run([str(harness), path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_was_asked_for_of_no_seed(harness: Path, tmp_path: Path) -> None:
    trace = Trace()
    trace.add(REQUESTED, 0, 0, flags=BEFORE_START, index=0)
    path = trace.write(tmp_path / "t.cmem")
    done = subprocess.run([str(harness), path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_more_memory_than_can_be_counted(harness: Path, tmp_path: Path) -> None:
    """Sums of sizes that are possible each; of segments, and of mappings by ten lines side by side."""
    segments, mappings = Trace(), Trace()
    for number in range(33_000):
        segments.add(SEGMENT_NEW, 0x1000 * (number + 1), 1 << 48, device=1, index=0, after=32)
    lines = [mappings.line(n) for n in range(20)]
    for number in range(1, 33_000):
        mappings.add(DRIVER_NEW, number << 48, 1 << 48, lines[number % 20], flags=10, device=1, index=0, after=32)
        mappings.add(DRIVER_MORE, 0, 7, after=32)
    mappings.alloc(1 << 48, 512, device=1, index=0)
    paths = [t.write(tmp_path / f"{n}.cmem", per_batch=5000) for n, t in enumerate((segments, mappings))]
    done = subprocess.run([str(harness), *paths], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "2 traces\n", done.stderr[-3000:]
