"""The data of the timeline page against the report, byte for byte."""

import base64
import gzip
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.cli import main as cli_main
from cuptimem.output.pages import timeline
from cuptimem.output.text import words
from cuptimem.report.chart import Span
from cuptimem.report.load import analyze
from cuptimem.report.model import Report
from tests.conftest import clean_environment
from tests.tools.pages import timeline_traces as traces
from tests.unit.snapshot.made import event, snapshot


def report_of(trace: Any, folder: Path, name: str = "crafted.cmem", **options: Any) -> Report:
    return cuptimem.open(trace.write(folder / name, **options))


def embedded(page: str) -> dict[str, Any]:
    """The data of a page as its script reads it."""
    found = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    assert found is not None
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return data


def levels(chart: dict[str, Any]) -> list[dict[int, int]]:
    """Of each interval, the bytes of each contributor when it is highest; -1: of the rest."""
    rows = chart["entries"]
    length = len(chart["intervals"]["high"])
    result: list[dict[int, int]] = [{} for _ in range(length)]
    number, held = 0, {}
    steps = zip(rows["contributor"], rows["interval"], rows["high"], rows["end"], strict=True)
    listed = [(number := number + step, *others) for step, *others in steps]
    for place, (contributor, interval, high, end) in enumerate(listed):
        last = place + 1 == len(listed) or listed[place + 1][0] != contributor
        result[interval][contributor] = high
        for later in range(interval + 1, length if last else listed[place + 1][1]):
            result[later][contributor] = end
        held[contributor] = end
    for row, high in zip(result, chart["intervals"]["high"], strict=True):
        row[-1] = high - sum(row.values())
    return result


@pytest.fixture
def synthetic(tmp_path: Path) -> Report:
    path = str(tmp_path / "run.cmem")
    write_synthetic(path, 10_000)
    return cuptimem.open(path)


def test_series_sum_to_the_live_curve(synthetic: Report) -> None:
    data = timeline.data(synthetic)
    (device,) = data["devices"]
    assert len(device["charts"]) >= 2  # one of all, one around the peak
    for chart in device["charts"]:
        for row in levels(chart):
            assert min(row.values()) >= 0
        assert max(chart["intervals"]["high"]) == synthetic.peak.bytes == device["peak"]["bytes"]


def test_the_peak_has_the_contributors_of_the_report(synthetic: Report) -> None:
    data = timeline.data(synthetic)
    chart = data["devices"][0]["charts"][-1]
    place = chart["intervals"]["high"].index(synthetic.peak.bytes)
    row = levels(chart)[place]
    labels, lines = data["groups"]["line"], data["contributors"]["line"]
    found: dict[str, int] = {}
    for contributor, size in row.items():
        if contributor >= 0 and size:
            label = labels[lines[chart["contributors"][contributor]]][0]
            found[label] = found.get(label, 0) + size
    expected: dict[str, int] = {}
    for one in synthetic.peak.contributors:
        expected[one.where] = expected.get(one.where, 0) + one.bytes
    assert found == expected
    assert row[-1] == 0


def test_born_and_died_sum_to_the_totals(synthetic: Report) -> None:
    device = timeline.data(synthetic)["devices"][0]
    overview = device["charts"][0]
    assert sum(overview["intervals"]["allocated"]) == synthetic.devices[0].allocated
    assert sum(overview["intervals"]["freed"]) == synthetic.devices[0].freed
    for name in ("allocated", "freed"):
        assert sum(overview["entries"][name]) <= sum(overview["intervals"][name])


def test_steps_are_those_of_the_report(synthetic: Report) -> None:
    steps = timeline.data(synthetic)["devices"][0]["steps"]
    begin, times = 0, []
    for difference, length in zip(steps["begin"], steps["length"], strict=True):
        begin += difference
        times.append((begin, begin + length))
    assert times == [(step.begin_ns, step.end_ns) for step in synthetic.steps]
    assert steps["peak"] == [step.peak for step in synthetic.steps]


def test_blocks_are_live_bytes(tmp_path: Path) -> None:
    """With every block in the chart, those alive at the peak are the peak."""
    report = report_of(traces.training(), tmp_path)
    chart = timeline.data(report)["devices"][0]["charts"][0]
    assert chart["leastBlock"] == 0
    blocks, moment = chart["blocks"], report.peak.time_ns
    alive = [
        size
        for size, begin, end in zip(blocks["bytes"], blocks["begin"], blocks["end"], strict=True)
        if begin <= moment and (end < 0 or end > moment)
    ]
    assert sum(alive) == report.peak.bytes


def test_frames_and_stacks_are_there_once(synthetic: Report) -> None:
    data = timeline.data(synthetic)
    frames = data["frames"]
    rows = list(zip(frames["file"], frames["line"], frames["function"], frames["module"], strict=True))
    assert len(set(map(tuple, data["stacks"]))) == len(data["stacks"])
    assert len(rows) >= len(set(rows)) > 3
    assert max(max(stack) for stack in data["stacks"]) == len(rows) - 1


def test_leaks_are_listed_and_their_contributors_known(tmp_path: Path) -> None:
    report = report_of(traces.training(60, leak=True), tmp_path)
    found = [*report.leaks, *report.suspects]
    assert [leak.frame.line for leak in found if leak.frame is not None] == [40]
    data = timeline.data(report)
    (leak,) = data["leaks"]
    assert (leak["bytes"], leak["alive"]) == (found[0].bytes, words.size(found[0].bytes))
    assert leak["verdict"] == bool(report.leaks)
    assert data["groups"]["line"][leak["line"]][0] == "train.py:40"
    marked = [i for i, number in enumerate(data["contributors"]["leak"]) if number == 0]
    assert bool(marked) == bool(report.leaks)
    assert all(data["contributors"]["line"][i] == leak["line"] for i in marked)


def test_the_peak_is_in_the_markup_too(synthetic: Report) -> None:
    page = timeline.page(synthetic)
    assert f"{synthetic.peak.bytes:,} bytes" in page
    for line in synthetic.peak.lines[:5]:
        assert f'<td class="number">{line.bytes:,}</td>' in page


def test_advice_is_in_the_markup_and_the_data(tmp_path: Path) -> None:
    report = report_of(traces.training(6), tmp_path)
    (one,) = report.advice.proposals
    assert one.technique == "batch" and one.frame is not None
    page = timeline.page(report)
    data = embedded(page)
    (row,) = data["advice"]
    assert data["groups"]["line"][row["line"]][0] == row["where"] == one.frame.place
    text = page[page.index('<table class="advice">') :]
    assert text.index(row["saves"]) < text.index(row["where"]) < text.index("half the batch") < text.index("</table>")
    assert timeline.data(report)["advice"] == []  # of a notebook's picture


def steps_shown(report: Report) -> list[int | str]:
    """Of the table of steps: their numbers, and what its gaps say."""
    rows = re.findall(r'<tr><td class="number">(\d+)</td><td>\w*</td>|>… ([^,]*), of at most', timeline.page(report))
    return [int(step) if step else left for step, left in rows]


@pytest.mark.parametrize("steps", [20, 21, 60])
def test_a_gap_between_steps_is_a_row(tmp_path: Path, steps: int) -> None:
    """Its row says how many are left out; of one more than is shown none is."""
    shown = steps_shown(report_of(traces.training(steps, leak=True), tmp_path))
    assert shown == ([*range(10), "40 more steps", *range(50, 60)] if steps == 60 else [*range(steps)])


def test_the_peaks_step_is_among_the_rows(tmp_path: Path) -> None:
    trace = traces.training(30)
    trace.alloc(1 << 44, 1 << 24, trace.line(70))
    trace.tick(traces.STEP, 1, trace.line(31, "train.py"))
    trace.free(1 << 44)
    for _ in range(30):
        trace.alloc(1 << 44, 8, trace.line(70))
        trace.tick(traces.STEP, 1, trace.line(31, "train.py"))
        trace.free(1 << 44)
    report = report_of(trace, tmp_path)
    peak = report.peak.step
    assert peak is not None and 12 < peak < 48
    left = [f"{peak - 11} more steps", f"{49 - peak} more steps"]
    assert steps_shown(report) == [*range(10), left[0], peak - 1, peak, peak + 1, left[1], *range(51, 61)]


def test_hostile_names_are_text(tmp_path: Path) -> None:
    report = report_of(traces.hostile(), tmp_path)
    page = timeline.page(report)
    data = embedded(page)
    assert any("</script>" in file for file in data["files"])  # in the data, as text
    assert page.count("</script>") == page.count("<script")
    assert "<img src=x" not in page
    assert "\u202e" not in page and "\u202e" not in json.dumps(data, ensure_ascii=False)
    assert max(len(file) for file in data["files"]) <= 2 * timeline.LONGEST
    assert len(page) < 2**20


def test_refused_allocations_reserved_and_devices(tmp_path: Path) -> None:
    report = report_of(traces.device(), tmp_path)
    data = timeline.data(report)
    assert [device["name"] for device in data["devices"]] == ["cuda:0", "cpu"]
    cuda = data["devices"][0]
    (oom,) = report.ooms
    assert cuda["ooms"] == [
        {
            "time": oom.time_ns,
            "requested": oom.requested,
            "allocated": oom.allocated,
            "stack": cuda["ooms"][0]["stack"],
            "step": oom.step,
        }
    ]
    assert max(cuda["charts"][0]["intervals"]["reserved"]) == report.devices[0].reserved_peak
    assert set(data["devices"][1]["charts"][0]["intervals"]["reserved"]) == {-1}


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    report = report_of(traces.training(), tmp_path, lost=7)
    page = timeline.page(report)
    assert report.lost.events == 7
    assert "7 events found no room and are lost" in page
    assert any("7 events" in line for line in embedded(page)["caveats"])
    crashed = report_of(traces.training(), tmp_path, name="crashed.cmem", end=None)
    assert crashed.state == "cut"
    assert "the end of the recording is missing" in timeline.page(crashed)


@pytest.mark.parametrize("make", [traces.one_event, traces.no_event])
def test_next_to_nothing_is_a_page(tmp_path: Path, make: Any) -> None:
    report = report_of(make(), tmp_path)
    page = timeline.page(report)
    assert len(embedded(page)["devices"]) == len(report.devices)


def test_a_page_stays_small(tmp_path: Path) -> None:
    """A million events in a tenth of the 20 MB of ten million events: what a page holds is bounded."""
    path = str(tmp_path / "run.cmem")
    write_synthetic(path, 1_000_000)
    assert len(timeline.page(cuptimem.open(path))) < 2_000_000


def test_show_writes_a_page_and_never_over_other_files(tmp_path: Path, synthetic: Report) -> None:
    path = synthetic.show(tmp_path / "page.html", open=False)
    assert embedded(Path(path).read_text())["duration"] == synthetic.duration_ns
    assert synthetic.show(path, open=False) == path  # its own page
    other = tmp_path / "notes.html"
    other.write_text("mine")
    with pytest.raises(cuptimem.Error, match="no page of cuptimem"):
        synthetic.show(other, open=False)
    assert other.read_text() == "mine"


def test_the_verb_writes_beside_the_trace(
    tmp_path: Path, synthetic: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli_main(["timeline", str(synthetic.path)]) == 0
    page = tmp_path / "run-timeline.html"
    assert embedded(page.read_text())["duration"] == synthetic.duration_ns
    said = capsys.readouterr().out
    assert said.startswith("wrote ") and page.name in said and "KiB" in said
    page.write_text("mine")
    assert cli_main(["timeline", str(synthetic.path)]) == 1
    assert page.read_text() == "mine"
    assert cli_main(["timeline", str(synthetic.path), "--force"]) == 0
    assert embedded(page.read_text())["duration"] == synthetic.duration_ns
    assert cli_main(["timeline", str(synthetic.path), "--beside", str(synthetic.path), "--force"]) == 0
    both = embedded(page.read_text())["beside"]
    assert [(one["later"], one["data"]["duration"]) for one in both] == [(0, synthetic.duration_ns)] * 2


@pytest.mark.torch
def test_run_open_makes_the_page_and_changes_nothing_else(tmp_path: Path) -> None:
    """Modules of the program's folder that would be in the way are not, its exit code and its output are its own."""
    (tmp_path / "train.py").write_text("import sys, torch\nx = torch.ones(1000)\nprint('mine')\nsys.exit(7)\n")
    for name in ("jinja2", "webbrowser"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('imported')")
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho \"$1\" > '{opened}'\n")
    browser.chmod(0o755)
    command = [sys.executable, "-m", "cuptimem", "run", "--open", "-o", "run.cmem", "train.py"]
    environment = {**clean_environment(), "BROWSER": f"{browser} %s"}
    environment.pop("DISPLAY", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (7, "mine\n"), done.stderr
    page = tmp_path / "run-timeline.html"
    assert page.name in done.stderr
    assert opened.read_text().strip() == page.as_uri()
    (device,) = embedded(page.read_text())["devices"]
    assert device["peak"]["bytes"] == 4000


def test_forty_devices_share_the_page(tmp_path: Path) -> None:
    """A span of a device is drawn of that device alone, and there are never more spans than the core takes."""
    traces.Trace.library = traces.craft.encoder()
    trace = traces.Trace()
    for device in range(40):
        trace.alloc(0x1000, 1000 + device, trace.line(device + 1), device=1, index=device)
    for _ in range(300):
        trace.tick(traces.craft.OPTIMIZER, 0x77, trace.line(30))
    report = report_of(trace, tmp_path)
    data = timeline.data(report)
    assert len(data["devices"]) == 40
    drawn = [len(device["charts"]) for device in data["devices"]]
    assert min(drawn) >= 1 and max(drawn) > min(drawn)
    intervals = sum(len(chart["intervals"]["high"]) for device in data["devices"] for chart in device["charts"])
    assert intervals <= 3 * timeline.FINE * Span().intervals  # of all, of steps, of peaks


def test_contributors_have_categories_and_modules(tmp_path: Path) -> None:
    """Each contributor of the chart is under the category and the module that the report has for it."""
    from tests.tools.cli import labelled

    tables = timeline._Tables()
    report = labelled.report(tmp_path)
    numbers = [tables.contributor(one) for one in report.peak.contributors]
    assert numbers == list(range(len(labelled.ROWS))), "one of each: no two are alike"
    data = tables.columns()
    named = data["contributors"]

    def labels(grouping: str, at: int) -> list[str]:
        return [data["groups"][grouping][group][at] for group in named[grouping]]

    assert labels("category", 0) == [row[6] for row in labelled.ROWS]
    assert labels("module", 1) == [row[7] or "" for row in labelled.ROWS]
    assert labels("module", 0)[-1] == "(outside modules)"
    assert [name for name in named["savedBy"] if name] == ["ReluBackward0", "AddmmBackward0"]


def test_the_peak_without_scripts_has_categories(tmp_path: Path) -> None:
    from tests.tools.cli import labelled

    table = timeline._peak_table(labelled.report(tmp_path).devices[0])
    assert table["kind"] == "category" and table["rows"][0]["kind"] == "optimizer state"


def test_segments_are_in_the_markup_with_their_holes(tmp_path: Path) -> None:
    """An expandable one of 100 MiB of addresses, whose middle is not mapped: 40 MiB, 20 of a block, and 40 empty."""
    at, mib = 0x7F0000000000, 1 << 20
    trace = [
        event("segment_map", at, 40 * mib, 1),
        event("segment_map", at + 40 * mib, 20 * mib, 2),
        event("segment_map", at + 60 * mib, 40 * mib, 3),
        event("alloc", at, 20 * mib, 4),
        event("segment_unmap", at + 40 * mib, 20 * mib, 5),
    ]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot([], [trace]), 4))
    page = timeline.page(analyze(str(path)))
    assert "60.0 MiB of 80.0 MiB reserved are in no block" in page
    assert page.count('<div class="segment">') == 2  # at the peak and at the end
    assert 'title="20.0 MiB of 40.0 MiB in blocks" style="left:0.00%;width:40.00%"><b style="width:50%">' in page
    assert 'title="0 B of 40.0 MiB in blocks" style="left:60.00%;width:40.00%"><b style="width:0%">' in page
