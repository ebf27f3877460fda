"""Recordings by hand and a TensorBoard process, for the tests of what cuptimem writes for it and shows in it."""

import os
import re
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensorboard.plugins import base_plugin
from werkzeug.test import Client

from cuptimem.report.load import from_dict
from cuptimem.report.model import Report
from cuptimem.tensorboard import handler
from cuptimem.tensorboard.plugin import Plugin
from tests.conftest import clean_environment
from tests.tools.cli.sample import analysis

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[2J\n" + "x" * 100_000


def report(folder: Path, *, scale: int = 1, **changes: Any) -> Report:
    """Three steps on the CPU, a peak of 4096 bytes times `scale`."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = analysis(folder)
    device = raw["devices"][0]
    device["contributors"] = [(size * scale, *rest) for size, *rest in device["contributors"]]
    device["peak"] *= scale
    device["timeline"] = [(at, low * scale, high * scale, None) for at, low, high, _ in device["timeline"]]
    for step in raw["steps"]:
        step["peak"] *= scale
        step["end"] *= scale
    return replace(from_dict(None, raw), **changes)


def write(made: Report, run: Path, first_step: int = 0, name: str = "cycle") -> None:
    handler.write(made, str(run), "worker", f"{name}-{first_step}", first_step, drawn=False)


def plugin(logdir: Path | None) -> Plugin:
    """As TensorBoard makes it for a folder."""
    return Plugin(base_plugin.TBContext(logdir=None if logdir is None else str(logdir)))


def get(one: Plugin, path: str, **query: str) -> Any:
    return Client(one.get_plugin_apps()[path]).get(path, query_string=query)


def runs(one: Plugin) -> dict[str, Any]:
    answer = get(one, "/runs")
    assert answer.status_code == 200 and answer.content_type == "application/json"
    found: dict[str, Any] = answer.json
    return found


def scalars(run: Path) -> dict[str, dict[int, tuple[float, float]]]:
    """By tag and step: the value, and seconds since 1970; all of them, as TensorBoard's own reader has them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run), size_guidance={"scalars": 0})
    read.Reload()
    return {
        tag: {event.step: (event.value, event.wall_time) for event in read.Scalars(tag)}
        for tag in read.Tags()["scalars"]
    }


def four_bytes(value: int) -> float:
    """What is left of a number in a scalar."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    return float(rounded)


@contextmanager
def tensorboard(logdir: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """A TensorBoard of its own; gives its address."""
    log = logdir.parent / "tensorboard.log"
    command = [sys.executable, "-m", "tensorboard.main", "--port", "0", "--logdir", str(logdir), *arguments]
    with open(log, "wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**clean_environment(), **(env or {})})
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(30)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 120  # a loaded machine
    while time.monotonic() < deadline:
        said = log.read_text(errors="replace")
        found = re.search(r"TensorBoard \S+ at (http://\S+)", said)
        if found is not None:
            return found[1]
        if process.poll() is not None:
            raise AssertionError(f"tensorboard ended with {process.returncode}:\n{said}")
        time.sleep(0.1)
    raise AssertionError(f"tensorboard did not say its address:\n{log.read_text(errors='replace')}")


def rank_environment(rank: int, world: int) -> dict[str, str]:
    return {"rank": str(rank), "world_size": str(world), "host": os.uname().nodename, "pid": "1"}
