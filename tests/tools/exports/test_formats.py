"""csv, json, collapsed and chrome: read as their formats are documented, bytes against the report."""

import csv
import gc
import gzip
import json
import pickle
import re
import weakref
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.errors import Error
from cuptimem.output import exports
from cuptimem.output.exports import Options, events
from cuptimem.report.model import Report
from tests.tools.exports.conftest import totals
from tests.unit.analysis.craft import Trace

csv.field_size_limit(1 << 24)


def made(trace: str, kind: str, path: Path, **more: Any) -> Path:
    written = exports.export(trace, kind, str(path), Options(**more))
    assert written.path == str(path) and written.what and written.opens
    if path.is_file():
        assert written.bytes == path.stat().st_size
    return path


# -- csv and json --------------------------------------------------------------------------------------------------


def sums(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int, int]]:
    """Alive at the start, alive at the end, allocated: of each device."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        of, size = found[row["device"]], int(row["bytes"])
        before = row["when"] == "before start"
        of[0] += size * before
        of[1] += size * (row["freed_ns"] in ("", None))
        of[2] += size * (not before)
    return {device: (a, b, c) for device, (a, b, c) in found.items()}


def expected(report: Report) -> dict[str, tuple[int, int, int]]:
    all_of = {d.name: (d.start, d.end, d.allocated) for d in report.devices}
    return {device: values for device, values in all_of.items() if any(values)}


def test_csv_sums_to_the_report(trace: str, report: Report, tmp_path: Path) -> None:
    folder = made(trace, "csv", tmp_path / "out")
    with (folder / "allocations.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert sums(rows) == expected(report)
    with (folder / "steps.csv").open(newline="", encoding="utf-8") as file:
        steps = list(csv.DictReader(file))
    assert [{k: "" if v is None else str(v) for k, v in row.items()} for row in report.steps.to_dicts()] == steps
    with (folder / "stacks.csv").open(newline="", encoding="utf-8") as file:
        known = {row["stack"] for row in csv.DictReader(file)}
    assert {row["stack"] for row in rows if row["file"]} <= known
    for cell in (cell for row in rows for cell in row.values()):
        assert cell.isprintable() and not cell.startswith(("=", "@", "+", "-"))


def test_json_sums_to_the_report(trace: str, report: Report, tmp_path: Path) -> None:
    path = made(trace, "json", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    seen: set[int] = set()
    for row in rows:
        by_kind[row["kind"]].append(row)
        if row["kind"] == "stack":
            seen.add(row["id"])
        if row["kind"] == "allocation" and row["stack"] is not None:
            assert {row["stack"], row["origin"]} <= seen
    assert sums(by_kind["allocation"]) == expected(report)
    assert {d["device"]: (d["peak"], d["end"], d["allocated"]) for d in by_kind["device"]} == totals(report)
    assert len(by_kind["step"]) == len(report.steps)
    (head,) = by_kind["recording"]
    assert head["state"] == report.state and head["missing"] == list(events.caveats(report))


names = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=30)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(names, names, st.integers(1, 1 << 40)), min_size=1, max_size=6))
def test_hostile_names_change_no_sum(
    traces: Callable[[str], str], tmp_path: Path, blocks: list[tuple[str, str, int]]
) -> None:
    trace = Trace()
    for number, (file, function, size) in enumerate(blocks):
        trace.alloc(0x1000 << number, size, trace.stack((file, function, 1), ("train.py", function, 2)))
    (tmp_path / "h.cmem").unlink(missing_ok=True)
    path = trace.write(tmp_path / "h.cmem")
    total = sum(size for *_, size in blocks)
    rows = csv.DictReader(made(path, "csv", tmp_path / "h.csv", table="allocations", force=True).open(newline=""))
    assert sum(int(row["bytes"]) for row in rows) == total
    lines = made(path, "json", tmp_path / "h.jsonl", force=True).read_text("ascii").splitlines()
    assert sum(json.loads(line).get("bytes", 0) for line in lines) == total
    stacks = made(path, "collapsed", tmp_path / "h.txt", force=True).read_text("utf-8")
    assert sum(stack_lines(stacks).values()) == total
    assert (
        json.loads(made(path, "speedscope", tmp_path / "h.json", force=True).read_text())["profiles"][0]["endValue"]
        == total
    )
    chrome = json.loads(made(path, "chrome", tmp_path / "h.chrome", force=True).read_text("ascii"))
    assert sum(e["args"]["Bytes"] for e in chrome["traceEvents"] if e["name"] == "[memory]") == total


@pytest.mark.parametrize("kind", ["csv", "json", "memory-viz"])
def test_names_are_asked_for_once(
    traces: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Python's part of an export grows with origins of blocks, not with events."""
    asked: list[object] = []
    where = events.Events.where
    monkeypatch.setattr(events.Events, "where", lambda source, of: asked.append(of) or where(source, of))
    made(traces("synthetic_cpu"), kind, tmp_path / "out")
    assert 0 < len(asked) == len(set(asked)) < 1000


@pytest.mark.parametrize("kind", ["chrome", "memory-viz", "csv", "json"])
def test_progress_and_its_end(traces: Callable[[str], str], tmp_path: Path, kind: str) -> None:
    trace = str(tmp_path / "t.cmem")
    write_synthetic(trace, 100_000)
    shares: list[float] = []
    made(trace, kind, tmp_path / "out", progress=lambda share: shares.append(share) or True)
    assert shares == sorted(shares) and 0.5 < shares[-1] <= 1
    with pytest.raises(Error, match="cancelled"):
        made(trace, kind, tmp_path / "cancelled", progress=lambda share: share < 0.9)
    assert not (tmp_path / "cancelled").is_file()


ADDRESSES = [1, 255, 256, 2**31 - 1, 2**31, 2**47 - 1, 2**47, 2**56, 2**63 - 1, 2**63, 2**64 - 4096]


def test_addresses_of_every_width(tmp_path: Path) -> None:
    trace = Trace()
    for address in ADDRESSES:
        trace.alloc(address, address % 5000 + 1, trace.line(1))
    path = trace.write(tmp_path / "t.cmem")
    viz = pickle.loads(made(path, "memory-viz", tmp_path / "out.pickle").read_bytes())
    assert [one["addr"] for one in viz["device_traces"][0] if one["action"] == "alloc"] == ADDRESSES
    assert [one["address"] for one in viz["segments"]] == ADDRESSES
    assert [one["blocks"][0]["size"] for one in viz["segments"]] == [one % 5000 + 1 for one in ADDRESSES]
    rows = csv.DictReader(made(path, "csv", tmp_path / "out.csv", table="allocations").open(newline=""))
    assert [int(row["address"]) for row in rows] == ADDRESSES


# -- collapsed -----------------------------------------------------------------------------------------------------


def stack_lines(text: str) -> dict[str, int]:
    """flamegraph.pl: /^(.*)\\s+?(\\d+)$/, frames between semicolons, none of them empty."""
    found = {}
    for line in text.split("\n")[:-1]:
        match = re.fullmatch(r"(.*) (\d+)", line)
        assert match is not None and match[1] not in found, line[:200]
        assert all(match[1].split(";")), line[:200]
        found[match[1]] = int(match[2])
    return found


@pytest.mark.parametrize("what", ["peak", "end", "kept", "allocated", "temporary"])
def test_collapsed_sums_to_the_report(trace: str, report: Report, tmp_path: Path, what: str) -> None:
    found = stack_lines(made(trace, "collapsed", tmp_path / "out.txt", what=what).read_text("utf-8"))
    expected = sum(report.contents(what, d.name).bytes for d in report.devices)
    assert sum(found.values()) == expected


# -- chrome --------------------------------------------------------------------------------------------------------


def chrome(trace: str, path: Path, **more: Any) -> dict[str, Any]:
    data = made(trace, "chrome", path, **more).read_bytes()
    whole: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return whole


def check_trace_events(whole: dict[str, Any]) -> None:
    """Google's "Trace Event Format": the fields that each phase must have, and their types."""
    open_slices: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    assert isinstance(whole["traceEvents"], list) and whole["displayTimeUnit"] in ("ms", "ns")
    for e in whole["traceEvents"]:
        assert isinstance(e["name"], str) and e["ph"] in "CXbeiM" and isinstance(e["pid"], int)
        assert isinstance(e["ts"], (int, float)) and e["ts"] >= 0 and isinstance(e.get("args", {}), dict)
        if e["ph"] == "C":
            assert e["args"] and all(isinstance(value, (int, float)) for value in e["args"].values())
        else:
            assert isinstance(e["tid"], int)
        if e["ph"] == "X":
            assert isinstance(e["dur"], (int, float)) and e["dur"] >= 0
        if e["ph"] == "i":
            assert e["s"] in ("g", "p", "t")
        if e["ph"] == "M":
            assert e["name"] in ("process_name", "process_labels", "thread_name", "thread_sort_index")
        if e["ph"] in "be":
            assert isinstance(e["cat"], str)
            key = (e["pid"], e["cat"], e["id"], e["name"])
            if e["ph"] == "b":
                open_slices[key].append(e)
            else:
                assert open_slices[key].pop()["ts"] <= e["ts"]
    assert not any(open_slices.values())


def test_chrome_is_a_trace_and_has_the_reports_bytes(trace: str, report: Report, tmp_path: Path) -> None:
    whole = chrome(trace, tmp_path / "out.json.gz", least=0)
    check_trace_events(whole)
    rows = whole["traceEvents"]
    highest: dict[str, int] = defaultdict(int)
    last: dict[str, int] = {}
    for e in rows:
        if e["ph"] == "C":
            highest[e["name"]] = max(highest[e["name"]], e["args"]["bytes"])
            last[e["name"]] = e["args"]["bytes"]
    for d in report.devices:
        if d.peak.bytes:
            assert highest[f"allocated {d.name}"] == d.peak.bytes
            assert last[f"allocated {d.name}"] == d.end
        if d.reserved_peak is not None:
            assert highest[f"reserved {d.name}"] == d.reserved_peak
    memory = [e["args"] for e in rows if e["name"] == "[memory]"]
    assert max((m["Total Allocated"] for m in memory), default=0) == max(
        (d.peak.bytes for d in report.devices), default=0
    )
    compacted = sum(d.allocated for d in report.devices) if report.compacted else 0
    if not compacted:
        assert sum(m["Bytes"] for m in memory) == sum(d.end for d in report.devices)
    drawn = sum(e["args"]["bytes"] for e in rows if e["ph"] == "b")
    if not compacted:
        assert drawn == sum(d.start + d.allocated for d in report.devices)
    steps = [e for e in rows if e.get("cat") == "step"]
    if report.devices:
        assert len(steps) == len({step.index for step in report.steps})


def test_chrome_leaves_small_blocks_to_the_counters(traces: Callable[[str], str], tmp_path: Path) -> None:
    trace = traces("plain")
    whole = chrome(trace, tmp_path / "out.json", least=1024)
    assert {e["args"]["bytes"] for e in whole["traceEvents"] if e["ph"] == "b"} == {2048}
    assert max(e["args"]["bytes"] for e in whole["traceEvents"] if e["ph"] == "C") == cuptimem.open(trace).peak.bytes
    assert any("1.0 KiB" in note for note in whole["otherData"]["missing"])


# -- all of them ---------------------------------------------------------------------------------------------------

FILES = ("chrome", "memory-viz", "speedscope", "collapsed", "json")


@pytest.mark.parametrize("kind", FILES)
def test_what_is_missing_is_said(traces: Callable[[str], str], tmp_path: Path, kind: str) -> None:
    for name, word in (("lost", "lost"), ("compacted", "compacted"), ("crashed", "missing")):
        written = exports.export(traces(name), kind, str(tmp_path / f"{name}.{kind}"))
        assert any(word in note for note in written.notes), (name, written.notes)


@pytest.mark.parametrize("kind", [*FILES, "csv"])
def test_nothing_is_replaced_unasked(traces: Callable[[str], str], tmp_path: Path, kind: str) -> None:
    trace, path = traces("plain"), tmp_path / "out"
    exports.export(trace, kind, str(path))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Error, match="there already"):
        exports.export(trace, kind, str(path))
    exports.export(trace, kind, str(path), Options(force=True))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", FILES)
def test_no_part_of_a_file_is_left(traces: Callable[[str], str], tmp_path: Path, kind: str) -> None:
    with pytest.raises(Error):
        exports.export(traces("plain"), kind, str(tmp_path / "none" / "out"))
    with pytest.raises(Error):
        exports.export(traces("plain"), kind, str(tmp_path / "out"), Options(device="cuda:7"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", FILES)
def test_gz_is_compressed(traces: Callable[[str], str], tmp_path: Path, kind: str) -> None:
    trace = traces("plain")
    plain = made(trace, kind, tmp_path / "out").read_bytes()
    assert gzip.decompress(made(trace, kind, tmp_path / "out.gz").read_bytes()) == plain


@pytest.mark.scaled
@pytest.mark.parametrize("kind", [*FILES, "csv"])
def test_many_lines(traces: Callable[[str], str], tmp_path: Path, kind: str, long: bool) -> None:
    path = tmp_path / "out"
    few = Options(what="peak", table="allocations" if kind == "csv" else None)  # that the test does not take longer
    assert exports.export(traces("many_lines"), kind, str(path), few).bytes > 0
    if kind == "chrome":  # it stays usable: the smallest blocks are in the counters alone
        whole = json.loads(path.read_bytes())
        assert sum(e["ph"] == "b" for e in whole["traceEvents"]) <= 50_000
        assert (whole["otherData"]["smallest block drawn, bytes"] > 0) == long


def test_an_unknown_format(traces: Callable[[str], str]) -> None:
    with pytest.raises(Error, match="chrome, memory-viz"):
        exports.export(traces("plain"), "pdf")


def test_a_report_exports_its_window(tmp_path: Path) -> None:
    trace = str(tmp_path / "run.cmem")
    write_synthetic(trace, 20_000, windows=3)
    part = cuptimem.report.load.analyze(trace, window=3)
    written = part.export("json", device=part.devices[0].name)
    assert written.path == str(tmp_path / "run.jsonl.gz")
    rows = [json.loads(line) for line in gzip.decompress(Path(written.path).read_bytes()).splitlines()]
    assert sum(r["bytes"] for r in rows if r["kind"] == "allocation" and r["when"] == "allocated") == sum(
        d.allocated for d in part.devices
    )
    with pytest.raises(Error, match="--force"):
        part.export("json")
    Path(trace).unlink()
    write_synthetic(trace, 10_000)
    with pytest.raises(Error):
        part.export("json", force=True)


def test_a_snapshot_leaves_nothing_in_the_process(
    traces: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuptimem.output.exports import memory_viz

    exports_made: list[weakref.ref[object]] = []
    before = memory_viz._Export.__init__

    def begin(self: Any, *arguments: Any) -> None:
        before(self, *arguments)
        exports_made.append(weakref.ref(self))

    monkeypatch.setattr(memory_viz._Export, "__init__", begin)
    trace = str(tmp_path / "t.cmem")
    write_synthetic(trace, 1000)
    made(trace, "memory-viz", tmp_path / "out")
    gc.collect()
    assert [one() for one in exports_made] == [None]
