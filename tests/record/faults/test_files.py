"""Traces that were moved, cut, or have lost or got a side file: a report, or one clear line. Never a traceback."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem import _core
from tests.conftest import Result
from tests.record.faults import traces
from tests.unit.trace import tracelib

Call = Callable[..., Result]


def answers(call: Call, path: Path, *, verbs: tuple[str, ...] = ("summary",)) -> bool:
    """Whether there is a report; else it is one line that names the file."""
    for verb in verbs:
        done = call(verb, str(path))
        assert "Traceback" not in done.out + done.err
        if done.code != 0:
            assert done.code == 1 and not done.out
            assert done.err.startswith("cuptimem: ") and done.err.count("\n") == 1 and path.name in done.err
            return False
        assert done.out and not done.err
    return True


@pytest.mark.parametrize("made_by", ["crafted", "synthetic"])
def test_cut_at_every_chunk(call: Call, tmp_path: Path, made_by: str) -> None:
    whole, cut = tmp_path / "whole.cmem", tmp_path / "cut.cmem"
    if made_by == "crafted":
        traces.write(whole)
    else:
        write_synthetic(str(whole), 3000, 1)
    content = whole.read_bytes()
    chunks = tracelib.chunks_of(content)
    bounds = [0, *(at for at, _, _ in chunks), len(content)]
    after_meta = chunks[1][0]
    for size in sorted({bound + by for bound in bounds for by in (-9, -1, 0, 1, 15, 16, 17)}):
        if 0 <= size <= len(content):
            cut.write_bytes(content[:size])
            assert answers(call, cut) is (size >= after_meta), size
            if after_meta <= size < len(content):
                assert not cuptimem.open(cut).complete, size


def test_moved(call: Call, tmp_path: Path) -> None:
    """A trace names no place that it needs: elsewhere, under another name, read-only, by a link, the same is shown."""
    first, moved = tmp_path / "run.cmem", tmp_path / "other folder" / "named\nagain.cmem"
    traces.write(first)
    shown = call("peak", str(first), "--json").out
    moved.parent.mkdir()
    first.rename(moved)
    moved.chmod(0o400)
    first.symlink_to(moved)
    assert call("peak", str(moved), "--json").out == shown
    assert call("peak", str(first), "--json").out == shown
    first.unlink()
    first.symlink_to(tmp_path / "nowhere")
    assert not answers(call, first)


def test_a_rank_of_thousands_of_digits(call: Call, tmp_path: Path) -> None:
    """Python refuses to make a number of it: the run is not that of a rank."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed here: pip install tensorboard")
    meta = {**traces.Names().meta, "rank": "9" * 5000, "world_size": "9" * 5000}
    trace = traces.write(tmp_path / "run.cmem", traces.Names(meta=meta))
    done = call("export", trace, "--to", "tensorboard", "-o", str(tmp_path / "run"))
    assert (done.code, done.err) == (0, "") and sorted(p.name for p in (tmp_path / "run").iterdir())[1:] == ["plugins"]


@pytest.mark.parametrize(
    ("verb", "options", "beside"),
    [
        ("timeline", (), "run-timeline.html"),
        ("flamegraph", (), "run-flamegraph.html"),
        ("export", ("--to", "chrome"), "run.chrome.json.gz"),
        ("export", ("--to", "csv"), "run-csv"),
        ("export", ("--to", "tensorboard"), "run-tensorboard"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_came_with_a_trace_is_not_written_through(
    call: Call, tmp_path: Path, verb: str, options: tuple[str, ...], beside: str
) -> None:
    """A link, to nothing or to a folder, or a pipe that has the name which a page or an export gets by itself."""
    if "tensorboard" in options:
        pytest.importorskip("tensorboard", reason="tensorboard is not installed here")
    trace, link, elsewhere = Path(traces.write(tmp_path / "run.cmem")), tmp_path / beside, tmp_path / "elsewhere"
    assert call(verb, str(trace), *options).code == 0 and link.exists()  # the name is right
    for make in (lambda: None, elsewhere.mkdir):
        make()
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)
        else:
            link.unlink()
        link.symlink_to(elsewhere)
        for force in ((), ("--force",)):
            done = call(verb, str(trace), *options, *force)
            assert done.code == 1 and done.err.count("\n") == 1 and beside in done.err, done.err
    assert list(elsewhere.iterdir()) == []
    link.unlink()
    os.mkfifo(link)
    assert call(verb, str(trace), *options).code == 1


@pytest.mark.parametrize("code", ["a b", "1e999", "../../x", "code\x1b[2J", "a," * 600, "x" * 1025])
def test_code_that_names_no_package(call: Call, tmp_path: Path, code: str) -> None:
    """It is as if the trace named none: a second reading does not take it for what somebody typed."""
    trace = traces.write(tmp_path / "run.cmem", traces.Names(meta={**traces.Names().meta, "code": code}))
    report = cuptimem.open(trace)
    assert report.code == () and report.contents("end", "cpu").bytes == report.device("cpu").end
    assert call("timeline", trace).code == 0
    assert call("export", trace, "--to", "speedscope").code == 0


@pytest.mark.torch
def test_side_file_is_missing_or_anothers(call: Call, killed: Path, tmp_path: Path) -> None:
    """A killed process's trace with its side file is whole anywhere; without it, the report says what is missing."""
    trace, side = tmp_path / "moved.cmem", tmp_path / "moved.cmem.tail"
    shutil.copyfile(killed, trace)
    right = Path(f"{killed}.tail").read_bytes()
    side.write_bytes(right)
    report = cuptimem.open(trace)
    assert report.state == "recovered" and len(report.steps) == 300
    other = bytearray(right)
    other[24] ^= 1  # ring.id of its header
    gap = bytearray(right)
    gap[4096 : 4096 + 64] = bytes(64)  # where its first part begins
    wrong = {
        "missing": lambda: side.unlink(),
        "empty": lambda: side.write_bytes(b""),
        "another trace's": lambda: side.write_bytes(other),
        "the trace itself": lambda: shutil.copyfile(trace, side),
        "a folder": lambda: (side.unlink(), side.mkdir()),
    }
    for name, make in wrong.items():
        make()
        report = cuptimem.open(trace)
        assert (report.state, report.complete) == ("cut", False), name
        assert "its side file (its name with .tail) is not here" in report.reason, name
        assert answers(call, trace, verbs=("summary", "steps"))
    side.rmdir()
    for size in (1, 31, 4095, 4096, 5000, len(right) // 2, len(right) - 1):
        side.write_bytes(right[:size])
        assert answers(call, trace)
    side.write_bytes(gap)
    assert answers(call, trace)


@pytest.mark.torch
def test_ring_is_missing_or_cut(call: Call, killed: Path, tmp_path: Path) -> None:
    """A trace on another machine: what is in the ring is missing, and the report says so."""
    trace = tmp_path / "moved.cmem"
    ring = tmp_path / ".cuptimem-ring-0"
    content = killed.read_bytes()
    path = _core.trace_meta(str(killed))["ring.path"]
    for size in (None, 0, 4096, 1 << 20):
        if size is not None:
            ring.write_bytes(Path(path).read_bytes()[:size])
        chunks = [tracelib.chunk(kind, payload) for _, kind, payload in tracelib.chunks_of(content)]
        tracelib.write_file(trace, [*chunks, tracelib.meta_chunk(("ring.path", str(ring)))])
        shutil.copyfile(f"{killed}.tail", f"{trace}.tail")
        assert answers(call, trace)
        report = cuptimem.open(trace)
        assert report.state == "cut" and "its ring file is not here" in report.reason
    os.unlink(ring)
