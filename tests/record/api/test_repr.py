"""What a prompt, a debugger and a failed assertion show of a report and its parts: one short line in any case."""

import dataclasses
import fcntl
import inspect
import os
import pickle
import re
import struct
import sys
import termios
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "analysis"))

import craft

import cuptimem
from cuptimem.output.text import cells
from cuptimem.report.brief import Brief
from cuptimem.report.model import LiveTensor
from tests.conftest import Result
from tests.tools.notebook import traces


@pytest.fixture(scope="module", autouse=True)
def _craft_library() -> None:
    craft.Trace.library = craft.encoder()


def parts(one: Any) -> Iterator[Any]:
    """An object and all that it consists of."""
    yield one
    if dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            yield from parts(getattr(one, field.name))
    elif isinstance(one, tuple):
        for inner in one:
            yield from parts(inner)


SHAPES = ("training", "without_steps", "no_event", "many_lines", "hostile_names", "with_losses", "crashed")


@pytest.mark.parametrize("shape", SHAPES)
def test_one_line_of_at_most_120_characters(tmp_path: Path, shape: str) -> None:
    report = getattr(traces, shape)(tmp_path / "run.cmem")
    shown = [part for part in parts(report) if isinstance(part, Brief)]
    shown += [report.account()] if report.devices else []
    kinds = {type(part).__name__ for part in shown}
    assert kinds >= {"Report", "Steps", "Leaks", "Clock"} and (not report.devices or kinds >= {"Peak", "Contributor"})
    for part in shown:
        text = repr(part)
        home = "cuptimem" if hasattr(cuptimem, type(part).__name__) else type(part).__module__
        assert text.startswith(f"<{home}.{type(part).__name__} ") and text.endswith(">")
        assert len(text) <= 120 and text.isprintable(), text
    assert str(report).count("\n") > 3 or not report.devices  # print() shows all of it


def test_print_fits_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = traces.training(tmp_path / "run.cmem")
    whole = str(report)
    for width in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        for shown in (report, report.peak, report.leaks, report.account()):
            assert max(map(cells.cell_len, str(shown).splitlines())) <= width
    monkeypatch.delenv("COLUMNS")
    reading, writing = os.openpty()
    with os.fdopen(reading), os.fdopen(writing, "w") as terminal:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 70, 0, 0))
        monkeypatch.setattr(sys, "stdout", terminal)
        narrow = str(report)
    assert max(map(cells.cell_len, narrow.splitlines())) <= 70 < max(map(cells.cell_len, whole.splitlines()))


def test_what_they_say(tmp_path: Path) -> None:
    report = traces.training(tmp_path / "run.cmem")
    device, contributor = report.devices[0], report.peak.contributors[0]
    assert [repr(one) for one in (report, device, report.peak, contributor, report.steps, report.leaks)] == [
        "<cuptimem.Report run.cmem: peak 1.6 KiB on cpu in step 29, 30 steps, no leak, 1 suspect>",
        "<cuptimem.Device cpu: 0 B at start, peak 1.6 KiB in step 29, 1.3 KiB at end, 91 allocations>",
        "<cuptimem.Peak cpu: 1.6 KiB in 33 blocks in step 29, most at train.py:1>",
        "<cuptimem.Contributor 1000 B in 1 block at train.py:1, other, unknown>",
        "<cuptimem.Steps 30 steps, highest peak 1.6 KiB on cpu in step 29>",
        "<cuptimem.Leaks 0>",
    ]
    assert repr(report.steps[3]) == (
        "<cuptimem.Step 3 on cpu: 1.2 KiB at start, peak 1.3 KiB, 1.2 KiB at end, 310 B allocated>"
    )
    assert repr(traces.without_steps(tmp_path / "none.cmem")).endswith(", leaks not judged>")
    crashed = traces.crashed(tmp_path / "crashed.cmem")
    assert repr(crashed).endswith("1 suspect, cut>")
    assert repr(report.suspects).startswith("<cuptimem.Leaks 1, first 10 B a step at train.py:")
    tensor = LiveTensor("h.0.weight", "parameter", 64, "h.0", "float32", (2, 8), ())
    assert repr(tensor) == "<cuptimem.report.contents.LiveTensor h.0.weight float32[2, 8]: 64 B, parameter>"


def test_print_shows_their_tables(tmp_path: Path) -> None:
    report = traces.training(tmp_path / "run.cmem")
    for shown, first in (
        (report.peak, "cpu: 1.6 KiB in 33 blocks"),
        (report.suspects, "1 suspect"),
        (report.steps, "  step"),
    ):
        assert str(shown).startswith(first) and str(shown).count("\n") > 1
    profile = cuptimem.profile()
    assert str(profile) == repr(profile)


def test_they_stay_plain_data(tmp_path: Path) -> None:
    report = traces.training(tmp_path / "run.cmem")
    assert pickle.loads(pickle.dumps(report)) == report == dataclasses.replace(report)
    assert dataclasses.replace(report, events=0) != report
    as_dictionary = dataclasses.asdict(report)
    assert as_dictionary["devices"][0]["peak"]["bytes"] == report.peak.bytes
    assert repr(as_dictionary["steps"]) == "<cuptimem.Steps 30 rows>"


def test_a_failed_assertion_names_what_differs(run: Callable[..., Result], tmp_path: Path) -> None:
    test = tmp_path / "test_differs.py"
    test.write_text(
        "import dataclasses, cuptimem\n"
        "line = cuptimem.Line(1, 1, 'forward', 'a.py:1', (), None)\n"
        "def test_differs():\n    assert line == dataclasses.replace(line, count=7)\n"
    )
    said = run("-m", "pytest", "-vv", "--color=no", str(test)).out
    assert "assert <cuptimem.Line 1 B in 1 block at a.py:1, forward> == <cuptimem.Line 1 B in 7 blocks" in said
    assert "['count']" in said and "count: 1 != 7" in said


def test_public_names_can_be_pickled_and_their_source_is_found() -> None:
    for name in cuptimem.__all__[1:]:
        one = getattr(cuptimem, name)
        if inspect.ismodule(one):
            continue
        assert one.__qualname__ == name and pickle.loads(pickle.dumps(one)) is one
        if one is not cuptimem.Error:  # C code makes it
            assert re.search(rf"^(class|def) {name}\b", inspect.getsource(one), re.M)
    assert (cuptimem.Error.__module__, cuptimem.Error.__qualname__) == ("cuptimem", "Error")
    assert pickle.loads(b"ccuptimem._core\nError\n.") is cuptimem.Error  # as it was pickled before
    with pytest.raises(cuptimem.Error) as caught:
        cuptimem.open("/nowhere.cmem")
    last = traceback.format_exception_only(caught.value)[-1]
    assert last == "cuptimem.Error: /nowhere.cmem: No such file or directory\n"
