"""_core.Reader says what the report says, event by event, and needs no more memory for a longer trace."""

import gc
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem import _core
from cuptimem.report.model import Report


def everything(trace: str, **more: Any) -> list[tuple[Any, ...]]:
    return [event for batch in _core.Reader(trace, **more) for event in batch]


def test_what_is_lost_and_how_it_ended(trace: str, report: Report) -> None:
    reader = _core.Reader(trace)
    for _ in reader:
        pass
    assert (reader.state, reader.reason) == (report.state, report.reason)
    assert reader.lost == {name: getattr(report.lost, name) for name in reader.lost}
    assert reader.start_realtime_ns == report.start_realtime_ns and reader.duration_ns == report.duration_ns
    assert sorted(reader.devices) == sorted(d.name for d in report.devices)
    assert next(reader, None) is None


def test_windows_tile_the_trace(tmp_path: Path) -> None:
    path = str(tmp_path / "w.cmem")
    write_synthetic(path, 20_000, windows=3)
    for window in (2, 3, 4):
        part = cuptimem.report.load.analyze(path, window=window)
        events = everything(path, window=window)
        started = sum(event[4] for event in events if event[0] == "start")
        allocated = sum(event[4] for event in events if event[0] == "alloc")
        assert (started, allocated) == (part.devices[0].start, part.devices[0].allocated)
        assert all(0 <= event[1] <= part.duration_ns for event in events)
    with pytest.raises(_core.Error, match="no window 99"):
        _core.Reader(path, window=99)


def test_stacks_and_unknown_ids(traces: Callable[[str], str]) -> None:
    reader = _core.Reader(traces("plain"))
    stacks = {event[6] for batch in reader for event in batch if event[0] == "alloc"}
    frames = [reader.stack(stack) for stack in sorted(stacks)]
    assert [[row[:3] for row in stack] for stack in frames] == [
        [("train.py", "main", 10)],
        [("model.py", "forward", 20), ("train.py", "main", 11)],
    ]
    assert reader.stack(0) == reader.stack(2**32 - 1) == reader.stack(2**40) == []
    with pytest.raises((OverflowError, TypeError)):
        reader.stack(-1)


def test_closed_and_absent(traces: Callable[[str], str], tmp_path: Path) -> None:
    reader = _core.Reader(traces("plain"))
    reader.close()
    reader.close()
    assert list(reader) == []
    with pytest.raises(ValueError, match="closed"):
        reader.stack(2)
    with pytest.raises(_core.Error):
        _core.Reader(str(tmp_path / "none.cmem"))
    (tmp_path / "text").write_text("no trace")
    with pytest.raises(_core.Error):
        _core.Reader(str(tmp_path / "text"))


def test_a_damaged_file_ends_or_is_refused(traces: Callable[[str], str], tmp_path: Path) -> None:
    """Whatever bytes are changed: an Error, or an iteration that ends."""
    good = Path(traces("two_devices")).read_bytes()
    path = tmp_path / "damaged.cmem"
    endings = set()
    for at in range(16, len(good), 3):
        data = bytearray(good)
        data[at] ^= 0x41
        path.write_bytes(data)
        try:
            reader = _core.Reader(str(path))
            for _ in reader:
                pass
            endings.add(reader.state)
        except _core.Error:
            endings.add("error")
    assert "cut" in endings


def test_threads_of_one_reader(tmp_path: Path) -> None:
    """Two threads that share a Reader get each batch once, or an error that says so."""
    path = str(tmp_path / "t.cmem")
    write_synthetic(path, 200_000)
    expected = len(everything(path))
    reader = _core.Reader(path)
    counts = [0, 0]

    def read(number: int) -> None:
        while True:
            try:
                batch = next(reader, None)
            except RuntimeError as error:
                assert "another thread" in str(error)
                continue
            if batch is None:
                return
            counts[number] += len(batch)

    threads = [threading.Thread(target=read, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == expected


def test_reading_from_the_garbage_collector(tmp_path: Path) -> None:
    """What a finalizer asks of a Reader while a batch is made is refused; each batch comes once."""
    path = str(tmp_path / "t.cmem")
    write_synthetic(path, 50_000)
    expected = everything(path)
    reader = _core.Reader(path)
    found: list[tuple[Any, ...]] = []

    def collecting(phase: str, about: dict[str, int]) -> None:
        try:
            found.extend(next(reader, ()))
        except RuntimeError as error:
            assert "another thread, or further out" in str(error)

    threshold = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(100)
    try:
        for batch in reader:
            found.extend(batch)
    finally:
        gc.callbacks.remove(collecting)
        gc.set_threshold(*threshold)
    assert Counter(found) == Counter(expected)


def test_an_export_has_the_reader_to_itself(traces: Callable[[str], str]) -> None:
    """While it asks for names, stacks are given; the reader neither moves on nor ends, and no second read begins."""
    reader = _core.Reader(traces("plain"))
    refused: list[str] = []

    def names(device: str, *about: Any) -> tuple[bytes, bytes, bytes]:
        assert [row[:3] for row in reader.stack(about[0])]
        for go_on in (reader.close, lambda: next(reader), rows.read):
            with pytest.raises(RuntimeError, match="further out") as error:
                go_on()
            refused.append(str(error.value))
        return b"before\n", device.encode() + b" ", b" " + about[2].encode() + b" "

    gaps, ends = tuple(b",%d=" % n for n in range(7)), tuple(b" %d\n" % n for n in range(4))
    rows = _core.Rows(reader, names, gaps, b"-", ends)
    written = b""
    while (piece := rows.read()) is not None:
        written += piece
    assert rows.count == 24 and rows.read() is None and len(refused) == 3 * written.count(b"before\n") > 0
    assert written.splitlines()[1].startswith(b"cpu 2048,0=-,1=1,2=9437184,3=1024,4=2048,")
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        rows.read()


def test_what_an_export_cannot_use(traces: Callable[[str], str]) -> None:
    """Names that are none, and questions at the wrong time, raise; nothing else of the reader changes."""
    gaps, ends = (b",",) * 7, (b"\n",) * 4
    for answer in (None, (b"", b""), (b"", "", b""), [b"", b"", b""]):
        for made in (
            _core.Rows(_core.Reader(traces("plain")), lambda *_, given=answer: given, gaps, b"", ends),
            _core.MemoryViz(_core.Reader(traces("plain")), lambda *_, given=answer: given, 0),
        ):
            with pytest.raises(TypeError, match="three bytes objects"):
                made.read()
    for wrong in ((gaps[1:], ends), (gaps, ends[1:]), (gaps, ("",) * 4)):
        with pytest.raises(TypeError, match="bytes objects are needed"):
            _core.Rows(_core.Reader(traces("plain")), print, wrong[0], b"", wrong[1])
    viz = _core.MemoryViz(_core.Reader(traces("plain")), lambda *_: (b"whole", b"short", b"about"), 0)
    with pytest.raises(ValueError, match="entries come before"):
        viz.segments(0, 0)
    while viz.read() is not None:
        pass
    assert viz.devices == ["cpu"]
    with pytest.raises(IndexError):
        viz.segments(1, 0)
    assert viz.segments(0, 0) and viz.segments(0, 0) is None


_MEASURE = """
import resource, sys
from cuptimem import _core
count = 0
for batch in _core.Reader(sys.argv[1]):
    count += len(batch)
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_events(tmp_path: Path) -> None:
    peaks, counts = [], []
    for events in (200_000, 2_000_000):
        path = str(tmp_path / f"{events}.cmem")
        write_synthetic(path, events)
        out = subprocess.run([sys.executable, "-c", _MEASURE, path], check=True, capture_output=True, text=True).stdout
        count, peak = map(int, out.split())
        counts.append(count)
        peaks.append(peak)
    assert counts[1] > 9 * counts[0]
    assert peaks[1] - peaks[0] < 4 * 1024  # KiB: live blocks and steps
