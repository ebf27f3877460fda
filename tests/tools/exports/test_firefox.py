"""Firefox Profiler's export: its tables as version 48 of the format has them, its bytes against the report."""

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuptimem.output import exports
from cuptimem.output.exports import Options, firefox
from cuptimem.report.model import Report
from tests.conftest import ROOT

# Firefox Profiler's own code for a command line: `make extended` installs it where npm is.
PROFILER = ROOT / "build/firefox/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js"

# Columns of each table (src/types/profile.js and profile-logic/data-structures.js of firefox-devtools/profiler).
TABLES = {
    "samples": {"weightType", "weight", "eventDelay", "stack", "time"},
    "markers": {"data", "name", "startTime", "endTime", "phase", "category"},
    "stackTable": {"frame", "prefix", "category", "subcategory"},
    "frameTable": {
        *("address", "inlineDepth", "category", "subcategory", "func", "nativeSymbol", "innerWindowID"),
        *("implementation", "line", "column"),
    },
    "funcTable": {"name", "isJS", "relevantForJS", "resource", "fileName", "lineNumber", "columnNumber"},
    "resourceTable": {"lib", "name", "host", "type"},
    "nativeSymbols": {"libIndex", "address", "name", "functionSize"},
    "nativeAllocations": {"time", "weight", "weightType", "stack", "memoryAddress", "threadId"},
}


def exported(trace: str, path: Path, **more: Any) -> dict[str, Any]:
    exports.export(trace, "firefox", str(path), Options(**more))
    profile: dict[str, Any] = json.loads(path.read_text())
    return profile


def retained(table: dict[str, Any]) -> int:
    """Bytes of what the profiler keeps under Retained Memory: allocations whose address has no later free."""
    at: dict[int, int] = {}
    for weight, address in zip(table["weight"], table["memoryAddress"], strict=True):
        if weight >= 0:
            at[address] = weight
        else:
            at.pop(address, None)
    return sum(at.values())


def names(thread: dict[str, Any], stack: int | None) -> list[str]:
    found = []
    while stack is not None:
        frame = thread["stackTable"]["frame"][stack]
        found.append(thread["stringArray"][thread["funcTable"]["name"][thread["frameTable"]["func"][frame]]])
        stack = thread["stackTable"]["prefix"][stack]
    return found[::-1]


def test_tables_are_of_the_format(trace: str, tmp_path: Path) -> None:
    profile = exported(trace, tmp_path / "out.json")
    meta = profile["meta"]
    assert (meta["preprocessedProfileVersion"], meta["categories"][0]["color"]) == (48, "grey")
    assert profile["libs"] == [] and meta["markerSchema"] == []
    for thread in profile["threads"]:
        assert isinstance(thread["pid"], str) and isinstance(thread["tid"], int)
        for name, columns in TABLES.items():
            table = thread[name]
            assert set(table) == columns | {"length"}
            assert {len(column) for column in table.values() if isinstance(column, list)} == {table["length"]}
        stacks, frames, functions = (thread[name] for name in ("stackTable", "frameTable", "funcTable"))
        assert all(prefix is None or prefix < at for at, prefix in enumerate(stacks["prefix"]))
        assert set(stacks["frame"]) == set(range(frames["length"]))
        assert set(frames["func"]) == set(range(functions["length"]))
        strings = thread["stringArray"]
        used = {*functions["name"], *filter(lambda n: n is not None, functions["fileName"]), *thread["markers"]["name"]}
        assert used == set(range(len(strings))) and len(set(strings)) == len(strings)
        times = thread["nativeAllocations"]["time"]
        assert times == sorted(times)


def test_weights_are_balanced_by_address(trace: str, report: Report, tmp_path: Path) -> None:
    profile = exported(trace, tmp_path / "out.json")
    seen = {}
    for thread in profile["threads"]:
        table = thread["nativeAllocations"]
        live = peak = 0
        at: dict[int, int] = {}
        for weight, address, stack in zip(table["weight"], table["memoryAddress"], table["stack"], strict=True):
            live += weight
            peak = max(peak, live)
            if weight < 0:
                assert at.pop(address) == -weight and stack is None
            else:
                assert address not in at and names(thread, stack)
                at[address] = weight
        seen[thread["name"]] = (peak, live, retained(table))
    devices = [device for device in report.devices if device.peak.bytes or device.start]
    wanted = {device.name: (max(device.peak.bytes, device.start), device.end, device.end) for device in devices}
    assert seen == (wanted or {"no allocations": (0, 0, 0)})  # the profiler opens no profile without a thread


def test_columns_are_written_in_pieces(
    traces: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = exported(traces("synthetic_cuda"), tmp_path / "a.json")
    monkeypatch.setattr(firefox, "_FLUSH", 7)
    assert exported(traces("synthetic_cuda"), tmp_path / "b.json") == whole


# -- Firefox Profiler's own reader ---------------------------------------------------------------------------------


def profiler(*words: str, folder: Path) -> str:
    command = ["node", str(PROFILER), *words]
    env = {**os.environ, "PROFILER_CLI_SESSION_DIR": str(folder)}
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    """Opens a profile; what it returns asks questions of it. The profiler answers from a process of its own."""
    folder = tmp_path / "sessions"

    def open_profile(path: Path) -> Callable[..., Any]:
        env = {**os.environ, "PROFILER_CLI_SESSION_DIR": str(folder)}
        # How it ends says little: it asks before the other process is ready, and waits for half a second at most.
        subprocess.run(["node", str(PROFILER), "load", str(path)], env=env, capture_output=True)
        end = time.monotonic() + 120
        while "Profile loaded successfully" not in (said := "".join(log.read_text() for log in folder.glob("*.log"))):
            assert "[ERROR]" not in said and time.monotonic() < end, said
            time.sleep(0.05)
        return lambda *words: json.loads(profiler(*words, "--json", folder=folder))

    yield open_profile
    profiler("stop", "--all", folder=folder)


@pytest.mark.extended
@pytest.mark.skipif(not PROFILER.exists() or not shutil.which("node"), reason="needs make build/firefox/.made")
def test_the_profiler_shows_the_reports_bytes(trace: str, report: Report, tmp_path: Path, opened: Any) -> None:
    """Of each device what is alive at the end and what was allocated in all, each by function."""
    profile = exported(trace, tmp_path / "out.json")
    ask = opened(tmp_path / "out.json")
    seen: dict[str, int] = {}
    for number, thread in enumerate(profile["threads"]):
        ask("thread", "select", f"t-{number}")
        table = thread["nativeAllocations"]
        wanted: Counter[str] = Counter()
        for weight, stack in zip(table["weight"], table["stack"], strict=True):
            wanted.update({names(thread, stack)[-1]: weight} if weight > 0 else {})
        shown: dict[str, Counter[str]] = {}
        for strategy in ("allocations", "retained-allocations") if table["length"] else ():
            ask("strategy", f"native-{strategy}")
            shown[strategy] = Counter()
            for row in ask("thread", "functions", "--limit", "0")["functions"]:
                shown[strategy].update({row["name"]: row["selfSamples"]} if row["selfSamples"] else {})
        assert shown.get("allocations", Counter()) == wanted
        seen[thread["name"]] = shown.get("retained-allocations", Counter()).total()
    ends = {device.name: device.end for device in report.devices if device.peak.bytes or device.start}
    assert seen == (ends or {"no allocations": 0})
