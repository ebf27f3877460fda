"""The extension's view of a trace, and the made-up trace that other tests and benchmarks read."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from tracelib import (
    Event,
    Reader,
    chunk,
    chunks_of,
    decode_batch,
    define_code,
    define_name,
    define_stack,
    define_string,
    end_chunk,
    header,
    meta_chunk,
    one_batch,
    write_file,
)

from benchmarks.synthetic import write_synthetic
from cuptimem import _core
from tests.event_kinds import NODE_RUN, TICK


def replay(dump: list[tuple[Any, ...]]) -> dict[str, int]:
    live: dict[int, int] = {}
    seeds: set[int] = set()
    now = peak = allocations = frees = steps = 0
    for kind, _, _, address, size, *_ in dump:
        if kind in ("alloc", "seed"):
            assert address not in live
            live[address] = size
            now += size
            allocations += kind == "alloc"
            if kind == "seed":
                seeds.add(address)
        elif kind == "free":
            now -= live.pop(address)
            seeds.discard(address)
            frees += 1
        elif kind == "tick" and size == 2:
            steps += 1
        peak = max(peak, now)
    return {
        "events": len(dump),
        "allocations": allocations,
        "frees": frees,
        "steps": steps,
        "peak_bytes": peak,
        "live_bytes": now,
        "seed_bytes": sum(live[address] for address in seeds),
    }


def test_synthetic_tells_the_truth(tmp_path: Path) -> None:
    path = tmp_path / "s.cmem"
    truth = write_synthetic(str(path), 60_000, 7)
    *dump, end = _core.trace_dump(str(path))
    replayed = replay(dump)
    leaking_line = [size for kind, _, _, _, size, origin, *_ in dump if kind == "alloc" and origin[0][1] == 49]
    assert replayed == {key: truth[key] for key in replayed}
    assert truth["leaked_bytes"] == sum(leaking_line) == truth["steps"] * 16384
    assert truth["file_bytes"] == path.stat().st_size
    assert end[:6] == ("end", "complete", "", "", 0, 0)
    kinds = "thread alloc free node_new node_run node_done node_free tick object_new seed mark"
    assert {kind for kind, *_ in dump} == set(kinds.split())
    assert {thread for _, _, thread, *_ in dump} == {1, 2}
    nodes = {"node_new": 0, "node_free": 0, "node_run": 0, "node_done": 0}
    for kind, *_ in dump:
        if kind in nodes:
            nodes[kind] += 1
    assert nodes["node_new"] == nodes["node_free"] and nodes["node_run"] == nodes["node_done"]
    times = [time for _, time, *_ in dump]
    assert times != sorted(times)  # threads overtake each other a little,
    assert max(a - b for a, b in itertools.pairwise(times)) < 100_000  # but only a little


def test_another_reader_made_from_the_document(lib: Any, tmp_path: Path) -> None:
    """docs/trace-format.md says enough: a decoder in Python that follows it agrees with the C one."""
    path = tmp_path / "s.cmem"
    write_synthetic(str(path), 40_000, 3)
    events = [
        event for _, kind, payload in chunks_of(path.read_bytes()) if kind == 2 for event in decode_batch(payload)
    ]
    with Reader(lib, path) as reader:
        assert reader.events() == events


def test_synthetic_is_reproducible(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        write_synthetic(str(path), 5000, seed)
    a, b, c = (path.read_bytes() for path in paths)
    assert a == b != c


@pytest.mark.parametrize(("events", "most"), [(1_000_000, 6.0), (20_000, 9.0)])
def test_bytes_per_event(tmp_path: Path, events: int, most: float) -> None:
    """The whole file over its allocations and frees, node events and definitions included."""
    truth = write_synthetic(str(tmp_path / "s.cmem"), events)
    assert truth["events"] >= events
    assert truth["file_bytes"] / (truth["allocations"] + truth["frees"]) < most


def test_dump(lib: Any, tmp_path: Path) -> None:
    definitions = (
        define_string("f.py") + define_string("C.f") + define_string("m.Block") + define_code(1, 2, 9, b"\x80\x35")
    )
    definitions += define_stack(0, 0, 0, 1) + define_stack(2, 1, 0, 0, 0xFFFF_FFFF_FFFF, 3) + define_name("N")
    events = [
        Event(3, 640, 1, 2**64 - 1, -5, 3, 7, 1, -1),
        Event(3, 640, 1, 1, 1, 0),
        Event(3, 640, 1, 1, 1, 99),
        Event(3, 704, NODE_RUN, 2**64 - 1, 9, 1),
        Event(4, 704, TICK, 1, 2, 3),
        Event(4, 704, 13, 1, 3, 3),
        Event(4, 704, 77),
    ]
    parts = [
        meta_chunk(("k", "v")),
        one_batch(lib, events, definitions),
        meta_chunk((b"\xff", "x")),
        end_chunk(0, 3, 4, "r"),
    ]
    path = write_file(tmp_path / "t.cmem", parts)
    inner = ("f.py", 9, "C.f", 9, 3, 8, 0xFFFF_FFFF_FFFF, "m.Block")
    stack = (inner, (None, -1, "...", -1, -1, -1, 0, None))
    dump = _core.trace_dump(str(path))
    assert dump == [
        ("alloc", 640, 3, 2**64 - 1, -5, stack, 7, 1, -1),
        ("alloc", 640, 3, 1, 1, (), 0, 0, 0),
        ("alloc", 640, 3, 1, 1, None, 0, 0, 0),
        ("node_run", 704, 3, 2**64 - 1, 9, "N", 0, 0, 0),
        ("tick", 704, 4, 1, 2, stack, 0, 0, 0),
        ("mark", 704, 4, 1, 3, stack, 0, 0, 0),
        (77, 704, 4, 0, 0, 0, 0, 0, 0),
        ("end", "complete", "r", "", 3, 5, 0),
    ]
    assert dump[0][5] is dump[4][5]
    assert _core.trace_dump(str(path), limit=2) == dump[:2]
    assert _core.trace_dump(str(path), 7) == dump[:7]
    assert _core.trace_dump(str(path), 8) == dump
    assert _core.trace_meta(str(path)) == {"k": "v", "\ufffd": "x"}


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(_core.Error, match="is a directory"):
        _core.trace_meta(str(tmp_path))
    with pytest.raises(_core.Error, match="No such file"):
        _core.trace_dump(str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="null"):
        _core.trace_dump("a\0b")
    path = tmp_path / "t.cmem"
    path.write_bytes(header() + meta_chunk(("a", "b")) + chunk(2, b"short"))
    with pytest.raises(_core.Error, match="a batch is damaged"):
        _core.trace_dump(str(path))
    assert _core.trace_meta(str(path)) == {"a": "b"}
    assert isinstance(_core.Error("x"), RuntimeError)
