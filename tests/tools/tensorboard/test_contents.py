"""What may be in a recording's file: the handler writes nothing else, and the page is given nothing else."""

import copy
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic import write_synthetic

pytest.importorskip("tensorboard", reason="tensorboard is not installed here: pip install tensorboard")

import cuptimem
from cuptimem.report.load import from_dict
from cuptimem.report.model import Report
from cuptimem.tensorboard import limits, packed, picture, writing
from cuptimem.tensorboard.checks import Damaged, check
from cuptimem.tensorboard.comparison import compare
from cuptimem.tensorboard.data import FOLDER, SUFFIX, prepare
from tests.tools.cli.sample import UNKNOWN, analysis
from tests.tools.tensorboard.support import get, plugin, report, runs, write

GOLDEN = sorted((Path(__file__).parents[2] / "golden" / "traces").glob("*.cmem"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A recording with something in each of its parts."""
    made: dict[str, Any] | None = None
    for trace in GOLDEN:
        opened = cuptimem.open(trace)
        found = json.loads(writing.fitting(prepare(opened, 0, picture.of(opened, 0) if opened.devices else None)))
        if made is None or (len(found["leaks"]) > 0) > (len(made["leaks"]) > 0):
            made = found
        if found["chart"] and found["ooms"]:
            oom = found
    assert made is not None
    made["ooms"] = oom["ooms"]
    made["chart"]["devices"][0]["ooms"] = [{**row, "stack": 0} for row in oom["chart"]["devices"][0]["ooms"]]
    made["resident"] = [[1, 2]]
    made["caveats"] = made["chart"]["caveats"] = made["devices"][0]["notes"] = ["text"]
    made["chart"]["compacted"] = {"begin": 0, "end": 1, "events": 2}
    made["chart"]["opening"] = [0, 1]
    made["chart"]["resident"] = {"time": [1], "bytes": [2]}
    made["chart"]["devices"][0]["used"] = {"time": [1], "bytes": [2]}
    made["leaks"][0]["keeps"] = [copy.deepcopy(made["leaks"][0])]
    assert made["steps"] and made["chart"]["leaks"] and made["chart"]["devices"][0]["charts"][0]["blocks"]["bytes"]
    check(made)
    return made


Path_ = tuple[str | int, ...]


def places(part: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every part of a recording: of lists the first entry."""
    if path:
        yield path
    if isinstance(part, dict):
        for name, inner in part.items():
            yield from places(inner, (*path, name))
    elif isinstance(part, list) and part:
        yield from places(part[0], (*path, 0))


def changed(whole: dict[str, Any], path: Path_, value: Any) -> dict[str, Any]:
    """A copy with another value there; no value: without it."""
    made = copy.copy(whole)
    part: Any = made
    for name in path[:-1]:
        part[name] = copy.copy(part[name])
        part = part[name]
    if value is MISSING:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return made


MISSING = object()
WRONG = (MISSING, {"x": [1]}, [[1], {}], 1.5, True, "x" * 20_000, 1 << 70, -(1 << 70), float("inf"))


def read(path: Path_) -> bool:
    """Whether a script or an answer reads it."""
    names = [name for name in path if isinstance(name, str)]
    unread = names[0] in ("environment", "ooms") or names[-1] in ("undecided", "confidence", "cause")
    return not unread and names.count("keeps") < 2


def test_every_field_that_is_read_is_checked(whole: dict[str, Any]) -> None:
    """Whatever is there instead: the recording has a reason, or can be shown and compared."""
    passed: dict[Path_, int] = {}
    tried = 0
    for path in places(whole):
        for value in WRONG:
            if value is MISSING and isinstance(path[-1], int):
                continue  # a shorter list may be a list
            tried += 1
            made = changed(whole, path, value)
            try:
                check(made)
            except Damaged as error:
                assert str(error).startswith(("it is damaged: ", "it has format", "it is not one of")), error
                assert len(str(error)) < 200 and str(error).isprintable()
            else:
                passed[path] = passed.get(path, 0) + 1
                compare(made, whole)
                compare(whole, made)
    # What is right after all: a fraction, a flag, a line without "category" or "parts", an older chart.
    allowed = dict.fromkeys(("bytes_per_step", "total_bytes_per_step", "rate", "requested", "allocated", "category"), 1)
    allowed |= dict.fromkeys(("parts", "stackedBy", "advice", "adviceNote", "host"), 1)
    allowed |= dict.fromkeys(("complete", "estimated", "verdict"), 1)
    unchecked = {path: count for path, count in passed.items() if read(path) and count > allowed.get(str(path[-1]), 0)}
    assert unchecked == {}
    assert tried > 1000


ODD: dict[str, Any] = {
    "chart.contributors.line": [1 << 20],
    "chart.contributors.stack": [1 << 20],
    "chart.stacks": [[1 << 20]],
    "chart.frames.file": [-1],
    "chart.devices.0.charts.0.intervals.low": [],
    "chart.devices.0.charts.0.intervals.phases": [],
    "chart.devices.0.charts.0.entries.interval": [5000],
    "chart.devices.0.charts.0.entries.contributor": [-1],
    "chart.devices.0.charts.0.contributors": [1 << 20],
    "chart.devices.0.charts.0.blocks.contributor": [1 << 20],
    "chart.devices.0.steps.loop": [99],
    "chart.leaks.0.line": 1 << 20,
    "chart.leaks.0.stack": -2,
    "chart.opening": [5, 1],
    "chart.phases.0": "another",
    "chart.groups.line": [["only one"]],
    "steps.0.0": 1 << 53,
    "devices.0.timeline": [[1, 2, 3, "text"]],
    "first_step": -(1 << 60),
}


@pytest.mark.parametrize("name", ODD)
def test_numbers_refer_to_what_is_there(whole: dict[str, Any], name: str) -> None:
    path = tuple(int(part) if part.isdecimal() else part for part in name.split("."))
    with pytest.raises(Damaged, match=r"^it is damaged: "):
        check(changed(whole, path, ODD[name]))


def test_a_bad_recording_is_one_entry_among_the_good_ones(tmp_path: Path, whole: dict[str, Any]) -> None:
    logs = tmp_path / "logs"
    write(report(tmp_path / "source"), logs / "good")
    bad = [changed(whole, ("chart",), "<img src=x>"), changed(whole, ("leaks", 0, "keeps"), [7])]
    bad += [changed(whole, ("format",), 10**4000), changed(whole, ("<b>" + "x" * 5000,), 1) | {"steps": {"<b>": 1}}]
    for number, data in enumerate([whole, *bad]):
        path = logs / "more" / FOLDER / f"{number}{SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (
            json.dumps(data)
            if number != 3
            else json.dumps({**data, "format": 0}).replace('"format": 0', '"format": ' + "9" * 300)
        )
        path.write_bytes(gzip.compress(text.encode()))
    one = plugin(logs)
    found = runs(one)
    assert [entry["name"] for entry in found["recordings"]] == ["cycle-0", "0"]
    assert {entry["name"]: entry["why"] for entry in found["broken"]} == {
        "1": "it is damaged: chart is not an object",
        "2": "it is damaged: leaks[0].keeps[0] is not an object",
        "3": "it has format of another kind, this cuptimem reads 1: update cuptimem",
        "4": "it is damaged: steps is no list of rows",
    }
    good, bad_id = found["recordings"][1]["id"], found["broken"][0]["id"]
    assert get(one, "/data", id=good).json == whole
    assert get(one, "/compare", before=good, after=bad_id).json == {"error": found["broken"][0]["why"]}


# -- what the handler writes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", GOLDEN, ids=lambda trace: trace.stem)
def test_what_the_handler_writes_is_shown(trace: Path) -> None:
    made = cuptimem.open(trace)
    data = prepare(made, 7, picture.of(made, 7) if made.devices else None)
    found = packed.decoded(writing.fitting(data))
    assert (found["chart"] is None) == (not made.devices)
    assert json.loads(json.dumps(data)) == found  # nothing was left out


def large(folder: Path, devices: int, lines: int, frames: int, letter: str) -> Report:
    raw = analysis(folder)
    frame = [(f"/home/{letter * 290}/{i}.py", letter * 300, i, i, -1, -1, None, 0, letter * 300) for i in range(frames)]
    raw["stacks"] = {i + 2: [(*frame[0][:2], i, i, *frame[0][4:]), *frame[1:]] for i in range(lines)}
    whole = {
        **raw["devices"][0],
        "contributors": [(1000 + i, 1, i + 2, i + 2, "forward", None, *UNKNOWN) for i in range(lines)],
        "peak": sum(range(1000, 1000 + lines)),
        "timeline": [(at, 10**10 + at, 10**10 + 2 * at, None if at % 2 else 10**11 + at) for at in range(2048)],
    }
    raw["devices"] = [{**whole, "name": f"cuda:{number}"} for number in range(devices)]
    made = from_dict(None, raw)
    steps = [replace(made.steps[0], index=i, device=f"cuda:{i % devices}", peak=10**10 + i) for i in range(20_000)]
    return replace(made, steps=type(made.steps)(steps))


@pytest.mark.scaled
@pytest.mark.parametrize(
    ("devices", "lines", "frames", "letter"),
    [
        (1, 600, 30, "x"),
        pytest.param(8, 600, 30, "x", marks=pytest.mark.extended),
        (8, 600, 30, "\U0001f600"),
        pytest.param(64, 100, 30, "\x01", marks=pytest.mark.extended),
        (300, 20, 3, "é"),
    ],
)
def test_the_handler_writes_no_more_than_is_read(
    tmp_path: Path, devices: int, lines: int, frames: int, letter: str
) -> None:
    made = large(tmp_path, devices, lines, frames, letter)
    text = writing.fitting(prepare(made))
    assert limits.excess(text) == ""
    data = packed.decoded(text)
    assert [device["name"] for device in data["devices"]] == [device.name for device in made.devices[:256]]
    for device, whole in zip(data["devices"], made.devices, strict=False):
        assert sum(line["bytes"] for line in device["lines"]) + device["rest"]["bytes"] == whole.peak.bytes
        assert sum(line["count"] for line in device["lines"]) + device["rest"]["count"] == whole.peak.count
        assert len(device["lines"]) + device["rest"]["lines"] == lines
        rows = device["timeline"]
        assert (max(row[2] for row in rows), min(row[1] for row in rows)) == (10**10 + 2 * 2047, 10**10)
        assert max(row[3] for row in rows if row[3] is not None) == 10**11 + 2046
    assert len(data["steps"]) + data["steps_left_out"] == len(made.steps)
    assert (data["steps"][0][0], data["steps"][-1][0]) == (0, 19_999)


def test_a_picture_that_is_too_large_is_left_out(tmp_path: Path) -> None:
    made = report(tmp_path)
    data = prepare(made, 0, {"stacks": [[0] * limits.VALUES]})
    assert packed.decoded(writing.fitting(data))["chart"] is None
    assert packed.decoded(writing.fitting(prepare(made, 0, {"not": "drawable"})))["chart"] is None


def test_what_the_page_would_refuse_is_an_error(tmp_path: Path) -> None:
    made = report(tmp_path)
    with pytest.raises(cuptimem.Error, match="duration_ns is too small or too large"):
        writing.fitting(prepare(replace(made, duration_ns=1 << 80)))


@pytest.mark.scaled
def test_a_long_cycle_is_far_below_the_limits(tmp_path: Path) -> None:
    trace = tmp_path / "a.cmem"
    write_synthetic(str(trace), 1_000_000)
    made = cuptimem.open(trace)
    text = writing.fitting(prepare(made, 0, picture.of(made, 0)))
    assert limits.excess(text, share=4) == "" and json.loads(text)["chart"] is not None
