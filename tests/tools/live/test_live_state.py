"""What `cuptimem live` says of a trace: as a report of it, and nothing that only the future shows."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuptimem.cli import live as verb
from cuptimem.errors import Error
from cuptimem.live import processes, sparks, view
from cuptimem.live.following import Follower
from cuptimem.live.state import LiveState
from cuptimem.output.text import text
from cuptimem.report import load


@pytest.fixture(scope="module")
def state(trained: Path) -> LiveState:
    follower = Follower(str(trained), judge=False)
    follower.poll()
    follower.judge()
    return follower.state()


pytestmark = pytest.mark.torch


def test_the_state_is_as_a_report(trained: Path, state: LiveState) -> None:
    report = load.analyze(str(trained), tables=("end",))
    (device,) = state.devices
    assert (device.device, device.allocated, device.peak) == (
        "cpu",
        report.devices[0].end,
        report.devices[0].peak.bytes,
    )
    ended = [(step.index, step.peak) for step in report.steps.ended]
    assert [(step.number, step.peak) for step in device.steps] == ended and len(ended) == state.steps == 24
    contents = report.contents("end", "cpu")
    assert {line.where: line.bytes for line in device.lines} == {line.where: line.bytes for line in contents.lines}
    assert sum(device.categories.values()) == device.allocated
    assert (state.state, state.step, state.phase, state.lost) == ("complete", None, "training", 0)


def test_categories_that_need_the_future_are_not_known_yet(trained: Path) -> None:
    follower = Follower(str(trained), judge=False)
    follower.poll()
    device = follower.state().devices[0]
    assert set(device.categories) <= {"parameter", "gradient", "optimizer state", "buffer", "unknown"}
    assert device.categories["parameter"] > 0 and device.categories["unknown"] > 0
    shown = text.render(view.blocks(follower.state(), view.Shown()), 80)
    assert "not known yet" in shown and "Growth: not judged yet" in shown


def test_growth_is_judged(trained: Path, state: LiveState) -> None:
    verdict = state.verdict
    assert verdict is not None and verdict.steps == 24
    assert verdict.growth == 40_000
    (growing,) = verdict.growing
    assert growing.where.endswith("train.py:11")
    shown = text.render(view.blocks(state, view.Shown()), 80)
    assert "Growth suspected: 39.1 KiB a step, 24 steps judged; most at" in shown
    line = next(row for row in state.devices[0].lines if row.where == growing.where)
    assert line.judged[0] == "kept"
    assert [row for row in shown.splitlines() if "train.py:11" in row and "kept, step" in row]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(state: LiveState, width: int) -> None:
    for order in view.ORDERS:
        shown = view.Shown(order=order, columns=width, rows=2)
        lines = text.render(view.blocks(state, shown), width).splitlines()
        assert max(map(len, lines)) <= width
        assert [line for line in lines if "more l" in line] or width == 40  # where the end of it has no room


def test_the_command_prints_a_frame(trained: Path) -> None:
    run = [sys.executable, "-m", "cuptimem", "live", str(trained)]
    done = subprocess.run([*run, "--once"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("train.py · pid ") and " · has ended · 24 steps · " in done.stdout
    assert done.stderr == ""
    raw: dict[str, Any] = json.loads(
        subprocess.run([*run, "--json"], capture_output=True, text=True, check=True).stdout
    )
    assert raw["devices"][0]["allocated"] == sum(line["bytes"] for line in raw["devices"][0]["lines"])
    assert raw["growth"]["bytes_per_step"] == 40_000
    assert len(raw["devices"][0]["steps"]) == 24
    piped = subprocess.run(run, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert (piped.returncode, piped.stdout) == (1, "")
    assert piped.stderr == "cuptimem: the view needs a terminal; one frame of text: cuptimem live --once\n"


# --- which trace ------------------------------------------------------------------------------


def test_a_process_is_found_by_what_it_writes(tmp_path: Path, trained: Path) -> None:
    mine = tmp_path / "mine.cmem"
    mine.write_bytes(trained.read_bytes())
    with trained.open("rb"), mine.open("r+b"):
        assert processes.traces_of(os.getpid()) == [str(mine)]
        assert verb.found(str(os.getpid())) == str(mine)
        parent = [one for one in processes.descendants(os.getppid()) if one == os.getpid()]
        assert parent == [os.getpid()]


def test_who_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Error, match="there is no process 999999999"):
        verb.found("999999999")
    with subprocess.Popen(["sleep", "60"]) as other:  # this process may have children that are recorded
        with pytest.raises(Error, match=f"process {other.pid} is not recorded"):
            verb.found(str(other.pid))
        other.kill()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "recorded", list)
    with pytest.raises(Error, match="no process that is recorded was found"):
        verb.found(None)
    monkeypatch.setattr(processes, "recorded", lambda: [(7, "/elsewhere/a.cmem")])
    with pytest.raises(Error, match=r"elsewhere: cuptimem live 7 \(/elsewhere/a.cmem\)"):
        verb.found(None)
    monkeypatch.setattr(processes, "recorded", lambda: [(7, str(tmp_path / "a.cmem"))])
    assert verb.found(None) == str(tmp_path / "a.cmem")


def test_how_a_process_is() -> None:
    assert processes.state_of(os.getpid(), "") == "runs"
    assert (
        processes.state_of(os.getpid(), f"{os.getpid()} 1 {processes._namespace()}") == "is gone"
    )  # another began then
    assert processes.state_of(os.getpid(), f"{os.getpid()} 1 1") == "unknown"
    assert processes.state_of(None, "") == "unknown"
    with subprocess.Popen(["sleep", "60"]) as child:
        child.send_signal(19)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert processes.state_of(child.pid, "") == "is stopped"
        child.kill()


def test_a_curve() -> None:
    assert sparks.curve([], 5) == ""
    assert sparks.curve([3, 3, 3], 5) == "▁▁▁"
    assert sparks.curve([9, 0, 50, 100], 3) == "▁▄█"
