"""Every view of a recording, written by its own verb: the text that it shows, and the numbers that it is drawn from."""

import base64
import contextlib
import csv
import gzip
import html
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cuptimem
from cuptimem import cli
from cuptimem.printable import printable
from cuptimem.tensorboard import data as board_data
from cuptimem.tensorboard import picture as board_picture
from cuptimem.tensorboard import scalars


@dataclass
class View:
    """numbers: by what ("peak", "end", "allocated", "leaked", "steps") and device."""

    markup: str  # as it stands in the file
    texts: list[str]  # from the trace or about it: what a reader sees
    numbers: dict[tuple[str, str], Any] = field(default_factory=dict)


def strings(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield key
            yield from strings(value)
    elif isinstance(data, list):
        for value in data:
            yield from strings(value)


def run(*arguments: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert cli.main([*arguments, "--force"]) == 0, arguments
    return said.getvalue()


def page(trace: Path, folder: Path, verb: str, *arguments: str) -> tuple[View, Any]:
    path = folder / "page.html"
    run(verb, str(trace), *arguments, "-o", str(path))
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', text)
    assert found is not None
    data = json.loads(gzip.decompress(base64.b64decode(found[1])))
    body = re.sub(r"<(style|script)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    texts = [html.unescape(part) for part in re.split(r"<[^>]*>", body)]
    return View(body, [*texts, *strings(data)]), data


def timeline_numbers(data: Any) -> dict[tuple[str, str], Any]:
    numbers: dict[tuple[str, str], Any] = {}
    for device in data["devices"]:
        name, charts = device["name"], device["charts"]
        numbers["peak", name] = device["peak"]["bytes"]
        numbers["end", name] = device["end"]
        numbers["steps", name] = device["steps"]["peak"]
        if charts:
            numbers["drawn peak", name] = max(charts[0]["intervals"]["high"], default=0)
            numbers["allocated", name] = sum(charts[0]["intervals"]["allocated"])
        numbers["leaked", name] = sum(
            leak["bytes"] for leak in data["leaks"] if leak["verdict"] and leak["device"] == name
        )
    return numbers


def timeline(trace: Path, folder: Path) -> View:
    view, data = page(trace, folder, "timeline")
    view.numbers = timeline_numbers(data)
    return view


def measured(data: Any) -> dict[tuple[str, str], Any]:
    """Of pages about stacks: what their rows sum to."""
    numbers: dict[tuple[str, str], Any] = {}
    for measure, values in zip(data["measures"], data["values"], strict=True):
        assert sum(values["bytes"]) == measure["bytes"] and sum(values["count"]) == measure["count"]
        if measure["run"] == 0:
            numbers[measure["what"], measure["device"]] = measure["bytes"]
    return numbers


def flamegraph(trace: Path, folder: Path) -> View:
    view, data = page(trace, folder, "flamegraph")
    view.numbers = measured(data)
    return view


def tree(trace: Path, folder: Path) -> View:
    view, data = page(trace, folder, "tree", "--what", "allocated")
    view.numbers = measured(data)
    return view


def table(trace: Path, folder: Path) -> View:
    view, data = page(trace, folder, "table", "--what", "end")
    view.numbers = measured(data)
    return view


def diff(trace: Path, folder: Path) -> View:
    view, data = page(trace, folder, "diff", str(trace))
    view.numbers = measured(data["stacks"])
    return view


def notebook(trace: Path, folder: Path) -> View:
    report = cuptimem.open(trace)
    text = re.sub(r'srcdoc="[^"]*"', "", report._repr_html_() or "")
    return View(text, [html.unescape(part) for part in re.split(r"<[^>]*>", text)])


def board(trace: Path, folder: Path) -> View:
    report = cuptimem.open(trace)
    chart = board_picture.of(report, 0) if report.devices else None
    data = json.loads(json.dumps(board_data.prepare(report, 0, chart)))
    numbers = timeline_numbers(chart) if chart is not None else {}
    columns = {name: i for i, name in enumerate(board_data.STEP_COLUMNS)}
    for device in data["devices"]:
        name = device["name"]
        steps = [row[columns["peak"]] for row in data["steps"] if row[columns["device"]] == name]
        found = {"peak": device["peak"], "end": device["end"], "allocated": device["allocated"], "steps": steps}
        found["leaked"] = sum(leak["bytes"] for leak in data["leaks"] if leak["verdict"] and leak["device"] == name)
        for what, value in found.items():
            assert numbers.get((what, name), value) == value
            numbers[what, name] = value
        assert sum(line["bytes"] for line in device["lines"]) + device["rest"]["bytes"] == device["peak"]
    return View("", list(strings(data)), numbers)


def scalar(trace: Path, folder: Path) -> View:
    """What the event file gets."""
    report = cuptimem.open(trace)
    numbers: dict[tuple[str, str], Any] = {}
    for _, _, values in scalars.points(report, 0):
        for tag, value in values.items():
            _, what, name = tag.split("/", 2)
            if what == "Peak":
                numbers.setdefault(("steps", name), []).append(value)
            if what == "Leaked":
                numbers["leaked", name] = value
    return View("", [], numbers)


def exported(kind: str) -> Callable[[Path, Path], View]:
    def view(trace: Path, folder: Path) -> View:
        path = folder / kind
        said = run("export", str(trace), "--to", kind, "-o", str(path))
        if kind == "csv":
            return _tables(path, said)
        if kind == "memory-viz":
            return View("", [said])
        text = path.read_text(encoding="utf-8")
        numbers: dict[tuple[str, str], Any] = {}
        texts = [said]
        if kind == "speedscope":
            data = json.loads(text)
            texts += [data["name"], *strings(data)]
            names = {"at the peak": "peak", "at the end": "end", "allocated in all": "allocated"}
            for one in data["profiles"]:
                name, _, what = one["name"].partition(" ")
                if what in names:
                    assert one["endValue"] == sum(one["weights"])
                    numbers[names[what], name] = one["endValue"]
        elif kind == "json":
            rows = [json.loads(line) for line in text.splitlines()]
            assert text.isascii()  # its strings are exact, so what a terminal must not see stands in escapes
            texts += map(printable, strings(rows))
            for row in rows:
                if row["kind"] == "device":
                    numbers |= {(what, row["device"]): row[what] for what in ("peak", "end", "allocated")}
                    numbers["steps", row["device"]] = []
                if row["kind"] == "step":
                    numbers["steps", row["device"]].append(row["peak"])
        elif kind == "chrome":
            texts += strings(json.loads(text))
        else:
            texts += text.splitlines()
            report = cuptimem.open(trace)
            if len(report.devices) == 1:
                total = sum(int(line.rpartition(" ")[2]) for line in text.splitlines())
                numbers["peak", report.devices[0].name] = total
        return View("", texts, numbers)

    return view


def _tables(folder: Path, said: str) -> View:
    numbers: dict[tuple[str, str], Any] = {}
    texts = [said]
    csv.field_size_limit(1 << 24)
    for name in ("steps", "allocations"):
        with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                texts += row.values()
                if name == "steps":
                    numbers.setdefault(("steps", row["device"]), []).append(int(row["peak"]))
                elif row["freed_ns"] == "":
                    key = ("end", row["device"])
                    numbers[key] = numbers.get(key, 0) + int(row["bytes"])
    return View("", texts, numbers)


EXPORTS = ("chrome", "memory-viz", "speedscope", "collapsed", "csv", "json")
ALL: dict[str, Callable[[Path, Path], View]] = {
    one.__name__: one for one in (timeline, flamegraph, tree, table, diff, notebook, board, scalar)
}
ALL |= {kind: exported(kind) for kind in EXPORTS}
