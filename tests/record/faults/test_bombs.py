"""Small traces that ask for much: what they define is bounded, the rest is said, and every view stays within the memory
and time that docs/trace-format.md states."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cuptimem import _core
from cuptimem.output.text import views
from cuptimem.report.load import analyze
from tests.record.faults import bombs, rings, traces
from tests.record.faults.traces import craft, tracelib

DEPTH, TEXT = 1024, 4096  # csrc/trace/defs.h
FRAME_COST = 256
ALLOWED, ALLOWED_PER_BYTE = 64 << 20, 2048  # csrc/python/py_analysis.c

MOST = 2**63 - 1  # as many events as one report of losses can have

DEEP = ("deep_each", "torch_chain")
IN_EVERY_VIEW = ("deep_steps", "leaks", "compacted_deep")  # those whose views took the most, and one of each sort


@pytest.fixture(scope="module", autouse=True)
def _encoder() -> None:
    craft.Trace.library = craft.encoder()


def stay_within(folder: Path, paths: Sequence[Path], *wanted: str) -> None:
    words = [f"--view={view}" for view in wanted]
    done = subprocess.run(
        [sys.executable, "-m", "tests.record.faults.bounded", *map(str, paths), f"--folder={folder}", *words],
        cwd=traces.ROOT,
        env={**os.environ, "PYTHONPATH": str(traces.ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_deep_chain_has_bounded_stacks_and_says_so(tmp_path: Path) -> None:
    t = bombs.Raw()
    t.define(tracelib.define_string("a.py"), tracelib.define_string("f"), tracelib.define_code(1, 2, 1, bombs.TABLE))
    bombs.chain(t, 3 * DEPTH)
    for depth in (1, DEPTH, DEPTH + 1, DEPTH + 2, 3 * DEPTH):
        t.alloc(0x1000 * depth, 64, depth + 1)
    path = t.write(tmp_path / "deep.cmem")

    raw = _core.analyze(path)
    lengths = {number - 1: len(frames) for number, frames in raw["stacks"].items()}
    # Where it would be too deep a stack stands for its outer calls, and the next one begins on it.
    assert lengths == {1: 1, DEPTH: DEPTH, DEPTH + 1: 1, DEPTH + 2: 2, 3 * DEPTH: DEPTH}
    assert raw["stacks"][DEPTH + 3][-1][:2] == (None, "...")
    assert raw["lost"]["cut"] == 2
    said = [block.text for block in views.caveats(analyze(path))]
    assert any(line.startswith("! 2 stacks or names are longer than") for line in said), said


def test_as_deep_as_a_recorder_goes_is_not_cut(tmp_path: Path) -> None:
    t = bombs.Raw()
    t.define(
        tracelib.define_string("x" * TEXT), tracelib.define_string("f"), tracelib.define_code(1, 2, 1, bombs.TABLE)
    )
    bombs.chain(t, DEPTH // 2 + 1)  # CM_WALK_DEPTH, and what stands for the frames outside
    t.alloc(0x1000, 64, DEPTH // 2 + 2)
    raw = _core.analyze(t.write(tmp_path / "whole.cmem"))
    (frames,) = raw["stacks"].values()
    assert len(frames) == DEPTH // 2 + 1 and frames[0][0] == "x" * TEXT
    assert (raw["lost"]["cut"], raw["lost"]["unshown"]) == (0, 0)


def test_long_names_are_cut_at_a_character(tmp_path: Path) -> None:
    t = bombs.Raw()
    t.define(
        tracelib.define_string("a" + "é" * TEXT),
        tracelib.define_string("f"),
        tracelib.define_code(1, 2, 1, bombs.TABLE),
    )
    t.define(tracelib.define_stack(0, 1, 0))
    t.alloc(0x1000, 64, 2)
    raw = _core.analyze(t.write(tmp_path / "names.cmem"))
    ((frame,),) = raw["stacks"].values()
    assert frame[0] == "a" + "é" * (TEXT // 2 - 1) and raw["lost"]["cut"] == 1


def test_what_references_to_stacks_cost_is_bounded(tmp_path: Path) -> None:
    """Each of 700 blocks is a row with two references to a stack of its own of 1,024 frames."""
    t = bombs.Raw()
    t.define(tracelib.define_string("f" * 100), tracelib.define_string(""), tracelib.define_code(1, 2, 1, bombs.TABLE))
    bombs.chain(t, DEPTH - 1)
    t.define(*(tracelib.define_stack(DEPTH, 1, 0) for _ in range(700)))
    for i in range(700):
        t.alloc(0x1000 + 64 * i, 64 + i, DEPTH + 1 + i)
    path = t.write(tmp_path / "wide.cmem")
    raw = _core.analyze(path)

    shown = (ALLOWED + ALLOWED_PER_BYTE * os.path.getsize(path)) // (DEPTH * (FRAME_COST + 100))
    (device,) = raw["devices"]
    references = [stack for row in device["contributors"] for stack in row[2:4]]
    assert len(references) - references.count(1) == shown < len(references)
    # The largest are shown. C makes the two of a row in any order, so that the last row may lack the first.
    assert references.index(1) in (shown - 1, shown)
    assert raw["lost"]["unshown"] == references.count(1) + 2 * len(raw["survivors"])  # these come later, at two moments
    assert sum(row[0] for row in device["contributors"]) == device["peak"]  # and the sums stay exact
    said = [block.text for block in views.caveats(analyze(path))]
    assert any(f"! {raw['lost']['unshown']:,} stacks are left out" in line for line in said), said


@pytest.mark.parametrize("entries", [1, 63, 64, 65, 1000])
def test_long_location_tables_are_found_in_by_marks(tmp_path: Path, entries: int) -> None:
    """An entry a line, of one to eight code units: every instruction has the line that it had without marks."""
    units = [1 + i * 5 % 8 for i in range(entries)]
    table = b"".join(bytes([0x80 | 11 << 3 | n - 1, 1, 2]) for n in units)  # one line further, columns 1 and 2
    t = bombs.Raw()
    t.define(tracelib.define_string("a.py"), tracelib.define_string("f"), tracelib.define_code(1, 2, 10, table))
    lines = [11 + entry for entry, n in enumerate(units) for _ in range(n)]
    t.define(*(tracelib.define_stack(0, 1, offset) for offset in range(len(lines) + 1)))
    for offset in range(len(lines) + 1):
        t.alloc(0x1000 + 64 * offset, 64, offset + 2)
    raw = _core.analyze(t.write(tmp_path / "table.cmem"), tables=("allocated",))
    assert [raw["stacks"][offset + 2][0][2] for offset in range(len(lines) + 1)] == [*lines, -1]


def test_a_killed_process_leaves_what_it_would_have_written(tmp_path: Path) -> None:
    written = _core.analyze(str(bombs.write(tmp_path, "leaks", 600)))
    left = _core.analyze(str(bombs.write_with_ring(tmp_path, "leaks", 600)))
    assert (written["state"], left["state"]) == ("complete", "recovered")
    assert [device["peak"] for device in left["devices"]] == [device["peak"] for device in written["devices"]]
    assert left["stacks"] == written["stacks"] and left["lost"] == written["lost"]


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("wild_counts", MOST),  # a sum that went around could say that nothing was lost
        ("shared_positions", (1 << 40) - (rings.BLOCK_EVENTS + 31)),  # no event twice
        ("no_kinds", 1200),
    ],
)
def test_what_a_ring_lacks_is_counted(tmp_path: Path, kind: str, lost: int) -> None:
    raw = _core.analyze(str(bombs.write_with_ring(tmp_path, kind, 600)))
    assert (raw["state"], raw["lost"]["events"]) == ("recovered", lost)


@pytest.mark.parametrize("kind", ["long_log", "all_of_it"])
def test_definitions_of_a_ring_that_mean_nothing_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(_core.Error, match="a (code )?definition (is|names)"):
        _core.analyze(str(bombs.write_with_ring(tmp_path, kind, 600)))


@pytest.mark.costly
def test_analysis_within_the_stated_bound(tmp_path: Path) -> None:
    """Every kind, in a trace and where that is another way to read it in a side file or a ring; deep ones past a depth
    at which stacks are cut."""
    paths = [bombs.write(tmp_path, kind, 2 * DEPTH if kind in DEEP else 500) for kind in bombs.CRAFTED]
    paths += [bombs.write_with_ring(tmp_path, kind, 500) for kind in (*rings.WILD, "deep_steps", "threads")]
    paths += [bombs.write_with_side(tmp_path, kind, 500) for kind in ("leaks", "compacted_deep")]
    stay_within(tmp_path, paths, "analyze", "summary")


def test_more_devices_times_steps_than_fit(tmp_path: Path) -> None:
    """256 devices, and a step for each three bytes: a device has rows of the steps in which something happened on it,
    and the first device of all."""
    path = bombs.write(tmp_path, "quiet_devices", 1000)
    raw = _core.analyze(str(path))
    assert 32768 <= len(raw["steps"]) <= 32768 + os.path.getsize(path) // 256 + 1000
    assert [row["index"] for row in raw["steps"] if row["device"] == "cpu"] == list(range(1000))
    assert {row["device"]: row["end"] for row in raw["steps"]}.keys() == {row["device"] for row in raw["devices"]}
    raw = _core.analyze(str(bombs.write(tmp_path, "devices_in_turn", 2000)))
    changed = [row["index"] for row in raw["steps"] if row["allocations"]]
    assert changed == list(range(2000)) and len(raw["steps"]) < 256 * 2000 // 4


@pytest.mark.costly
def test_every_view_within_the_stated_bound(tmp_path: Path) -> None:
    paths = [bombs.write(tmp_path, kind, 150) for kind in IN_EVERY_VIEW]
    stay_within(tmp_path, [*paths, bombs.write_with_ring(tmp_path, "shared_positions", 150)])


@pytest.mark.parametrize(
    ("kind", "view"), [("escapes", "export collapsed"), ("shapes", "peak --json"), ("users", "scrub")]
)
def test_the_view_that_each_of_these_is_made_for(tmp_path: Path, kind: str, view: str) -> None:
    stay_within(tmp_path, [bombs.write(tmp_path, kind, 4000)], view)


def test_side_files_are_read(tmp_path: Path) -> None:
    path = bombs.write_with_side(tmp_path, "deep_steps", 600)
    alone = len(_core.trace_dump(str(path)))
    os.rename(f"{path}.tail", tmp_path / "aside")
    assert len(_core.trace_dump(str(path))) < alone


@pytest.mark.long
@pytest.mark.parametrize("make", [bombs.write, bombs.write_with_side, bombs.write_with_ring])
def test_ten_thousand_of_each_in_every_view(tmp_path: Path, make: Callable[[Path, str, int], Path]) -> None:
    kinds = [*bombs.CRAFTED, *(rings.WILD if make is bombs.write_with_ring else ())]
    stay_within(tmp_path, [make(tmp_path, kind, 10_000) for kind in kinds])
