"""Exports opened by the programs they are for: torch.cuda._memory_viz, MemoryViz.js and speedscope in a browser.

Their own code, see consumers/README.md.
"""

import base64
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import viewer
from cuptimem.output import exports
from cuptimem.output.exports import Options
from cuptimem.report.model import Report
from tests import browser

# Of what MemoryViz.js reads, the opcodes that the export writes.
READ = {"PROTO", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "MARK", "STOP", "BININT", "BININT1", "LONG1"} | {
    *("SHORT_BINUNICODE", "BINUNICODE", "EMPTY_LIST", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS")
}
CONSUMERS = Path(__file__).with_name("consumers")


def snapshot(trace: str, path: Path, **more: Any) -> dict[str, Any]:
    exports.export(trace, "memory-viz", str(path), Options(**more))
    with path.open("rb") as file:
        whole: dict[str, Any] = pickle.load(file)
    return whole


def numbers(whole: dict[str, Any]) -> dict[int, str]:
    """Device names by their numbers."""
    return {int(n): name for n, name in (row.split(" is ") for row in whole["cuptimem"]["devices"].split(", ") if row)}


# -- torch.cuda._memory_viz ----------------------------------------------------------------------------------------


def test_snapshot_has_the_reports_bytes(trace: str, report: Report, tmp_path: Path) -> None:
    whole = snapshot(trace, tmp_path / "out.pickle")
    names = numbers(whole)
    assert set(names.values()) == {
        d.name for d in report.devices if d.peak.bytes or d.allocated or d.ooms or d.reserved_peak
    }
    for number, name in names.items():
        live = peak = 0
        for e in whole["device_traces"][number]:
            live += {"alloc": e["size"], "free_completed": -e["size"]}.get(e["action"], 0)
            peak = max(peak, live)
        device = report.device(name)
        assert (peak, live) == (max(device.peak.bytes, device.start), device.end)
        blocks = [b for s in whole["segments"] if s["device"] == number for b in s["blocks"]]
        assert sum(b["size"] for b in blocks if b["state"] == "active_allocated") == device.end
    for segment in whole["segments"]:
        assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"]
        at = segment["address"]
        for b in segment["blocks"]:
            assert b["address"] == at
            at += b["size"]


@pytest.mark.torch
def test_torchs_own_reader(trace: str, tmp_path: Path) -> None:
    memory_viz = pytest.importorskip("torch.cuda._memory_viz", reason="needs PyTorch: its reader of snapshots")
    whole = snapshot(trace, tmp_path / "out.pickle")
    text = memory_viz.segsum(whole)
    assert f"segments: {len(whole['segments'])}" in text
    flat = {"flamegraph_lines": ""}

    def lines(text: str) -> str:
        flat["flamegraph_lines"] = text
        return text

    memory_viz.memory(whole, format_flamegraph=lines)
    end = sum(b["size"] for s in whole["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
    drawn = sum(
        int(line.rsplit(" ", 1)[1]) for line in flat["flamegraph_lines"].splitlines() if ";active_allocated" in line
    )
    assert drawn == end
    memory_viz.segments(whole, format_flamegraph=lines)
    memory_viz.compare(whole["segments"], whole["segments"], format_flamegraph=lines)
    assert "snapshot.pickle" in memory_viz.trace_plot(whole)
    if len(whole["device_traces"]) and sum(map(len, whole["device_traces"])) < 5000:
        assert memory_viz.trace(whole).count("entries") == sum(bool(t) for t in whole["device_traces"])


def test_newest_events_only(traces: Callable[[str], str], tmp_path: Path) -> None:
    whole = snapshot(traces("synthetic_cuda"), tmp_path / "all.pickle")
    newest = snapshot(traces("synthetic_cuda"), tmp_path / "new.pickle", newest=1500)
    assert [trace[-1500:] for trace in whole["device_traces"]] == newest["device_traces"]
    assert whole["segments"] == newest["segments"]


def test_loading_calls_nothing(trace: str, tmp_path: Path) -> None:
    """An unpickler that knows no class and no function loads it, and so does no opcode that MemoryViz.js lacks."""
    import pickletools

    path = tmp_path / "out.pickle"
    exports.export(trace, "memory-viz", str(path))
    used = {opcode.name for opcode, *_ in pickletools.genops(path.read_bytes())}
    assert used <= READ


# -- in a browser --------------------------------------------------------------------------------------------------


def memory_viz_page(folder: Path) -> Path:
    page = folder / "memory_viz.html"
    page.write_text(viewer(), encoding="utf-8")
    return page


DRAWN = """(device) => {
  const snapshot = snapshot_cache["snapshot.pickle"];
  const polygons = [...document.querySelectorAll("polygon")].filter(p => p.__data__ && p.__data__.elem !== undefined);
  return {
    highest: process_alloc_data(snapshot, device, false, 15000).max_size,
    blocks: polygons.filter(p => p.__data__.elem !== "summarized").map(p => p.__data__.size),
  };
}"""


@pytest.mark.browser
@pytest.mark.parametrize(
    "trace", ["hostile", "compacted", "two_devices", "before_start", "synthetic_cuda"], indirect=True
)
def test_memory_viz_draws_the_bytes(trace: str, report: Report, tmp_path: Path, browser_page: Any) -> None:
    path = tmp_path / "out.pickle"
    whole = snapshot(trace, path)
    data = path.read_bytes()
    encoded = base64.b64encode(data + b"\x00" * (3 - len(data) % 3)).decode()
    files = [{"name": "snapshot.pickle", "base64": encoded}]
    browser_page.goto(memory_viz_page(tmp_path).as_uri())
    for number, name in numbers(whole).items():
        device = report.device(name)
        allocs = [e["size"] for e in whole["device_traces"][number] if e["action"] == "alloc"]
        if not allocs:
            continue
        browser_page.reload()
        browser_page.evaluate("([files, view]) => add_local_files(files, view)", [files, "Active Memory Timeline"])
        if len(numbers(whole)) > 1:
            browser_page.evaluate("n => { gpu.node().value = String(n); selected_change(); }", number)
            browser_page.evaluate(
                "n => { for (const k in selection_to_div) if (!k.endsWith(',' + n)) selection_to_div[k].remove(); }",
                number,
            )
        found = browser_page.evaluate(DRAWN, number)
        assert found["highest"] == max(device.peak.bytes, device.start)
        assert sorted(found["blocks"]) == sorted(allocs)


@pytest.mark.browser
@pytest.mark.parametrize("name", ["plain", "lost", "two_devices", "synthetic_cuda", "hostile", "before_start"])
def test_memory_viz_walks_back_through_the_heap(
    traces: Callable[[str], str], tmp_path: Path, browser_page: Any, name: str
) -> None:
    """Allocator State History undoes event after event from what there is at the end: each state has its blocks."""
    path = tmp_path / "out.pickle"
    whole = snapshot(traces(name), path, newest=400)
    encoded = base64.b64encode(path.read_bytes() + b"\x00" * (3 - path.stat().st_size % 3)).decode()
    browser_page.goto(memory_viz_page(tmp_path).as_uri())
    found = browser_page.evaluate(
        """([encoded]) => {
          const snapshot = unpickle_and_annotate(decode_base64(encoded));
          const out = [];
          for (const [device, events] of snapshot.device_traces.entries()) {
            const view = MemoryView(d3.select('body').append('div'), {register() {}}, snapshot, device);
            out.push(events.map((e, i) => view.draw(i)));
          }
          return out;
        }""",
        [encoded],
    )
    for number, states in enumerate(found):
        end = sum(b["requested_size"] for s in whole["segments"] if s["device"] == number for b in s["blocks"])
        held = sum(s["total_size"] for s in whole["segments"] if s["device"] == number)
        assert not states or states[-1] == [held, end]
        assert all(0 <= allocated <= reserved for reserved, allocated in states)


@pytest.fixture
def speedscope(browser_process: Any, tmp_path: Path) -> Iterator[Callable[[str, Path], Any]]:
    """speedscope's own page with a profile, opened as its command line opens it."""
    context = browser_process.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(browser.PATIENCE)
    page = context.new_page()
    watch = browser.Watch(page)

    def go(name: str, path: Path) -> Any:
        encoded = json.dumps(base64.b64encode(path.read_bytes()).decode())
        script = tmp_path / "profile.js"
        script.write_text(f"speedscope.loadFileFromBase64({json.dumps(name)}, {encoded})")
        page.goto("about:blank")
        page.goto(f"{(CONSUMERS / 'speedscope/index.html').as_uri()}#localProfilePath={script}")
        page.get_by_text("Sandwich").wait_for()
        page.get_by_text("Sandwich").click()
        page.get_by_text("Symbol Name").wait_for()
        return page

    yield go
    context.close()
    # Its flame chart is drawn by WebGL, whose driver in software talks of its own slowness.
    assert [fault for fault in watch.faults if "GL Driver Message" not in fault] == []


@pytest.mark.browser
def test_speedscope_shows_the_bytes(
    traces: Callable[[str], str], tmp_path: Path, speedscope: Callable[[str, Path], Any]
) -> None:
    path = tmp_path / "out.json"
    exports.export(traces("plain"), "speedscope", str(path), Options(what="allocated"))
    text = speedscope("plain.speedscope.json", path).inner_text("body")
    # 12 steps of 512 and 2048 bytes.
    assert "6.00 KB (20%)" in text and "24.00 KB (80%)" in text
    assert "main (train.py:10)" in text and "forward (model.py:20)" in text
    assert "cpu allocated in all" in text


@pytest.mark.browser
def test_speedscope_takes_collapsed_stacks_and_hostile_names(
    traces: Callable[[str], str], tmp_path: Path, speedscope: Callable[[str, Path], Any]
) -> None:
    path = tmp_path / "out.txt"
    exports.export(traces("plain"), "collapsed", str(path), Options(what="allocated"))
    text = speedscope("plain.collapsed.txt", path).inner_text("body")
    assert "main (train.py:10)" in text and "24,576 (80%)" in text
    path = tmp_path / "hostile.json"
    exports.export(traces("hostile"), "speedscope", str(path))
    page = speedscope("hostile.speedscope.json", path)
    assert page.locator("img[src=x]").count() == 0 and "</script>" in page.inner_text("body")


def test_speedscope_schema(trace: str, report: Report, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    exports.export(trace, "speedscope", str(path))
    whole = json.loads(path.read_text(encoding="ascii"))
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema, which nbclient brings")
    jsonschema.validate(whole, json.loads((CONSUMERS / "speedscope/file-format-schema.json").read_text()))
    frames = len(whole["shared"]["frames"])
    for profile in whole["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert sum(profile["weights"]) == profile["endValue"]
        assert all(0 <= frame < frames for sample in profile["samples"] for frame in sample)
    shown = {profile["name"]: profile["endValue"] for profile in whole["profiles"]}
    for d in report.devices:
        assert shown[f"{d.name} at the peak"] == d.peak.bytes
        assert shown[f"{d.name} at the end"] == d.end
        assert shown[f"{d.name} allocated in all"] == d.allocated
        assert shown[f"{d.name} kept: allocated since the start, alive at the end"] == d.kept


def test_default_names() -> None:
    assert exports.default_path("a/run.cmem", "speedscope") == "a/run.speedscope.json"
    assert exports.default_path("a/run.cmem", "csv", "steps") == "a/run.steps.csv"
