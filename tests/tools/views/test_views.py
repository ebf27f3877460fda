"""Every view of every recording: it shows what is there, says what is missing, stays safe, and has the same numbers."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.output.text import views as reporter
from cuptimem.output.text.blocks import Text
from cuptimem.output.text.words import size
from cuptimem.report.model import Report
from tests.tools.views import recordings, views

CHARACTERS = "\x00\x1b\r\u202e\u2066\u2028"
NAMES = [*recordings.BY_HAND, *(pytest.param(name, marks=pytest.mark.torch) for name in recordings.REAL)]
NAMES[NAMES.index("10,000 lines")] = pytest.param("10,000 lines", marks=pytest.mark.costly)
NAMES[NAMES.index("100,000 lines")] = pytest.param("100,000 lines", marks=pytest.mark.long)


@pytest.fixture(scope="session")
def trace_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    top = tmp_path_factory.mktemp("recordings")
    with ExitStack() as running:

        def path_of(name: str) -> Path:
            folder = top / name
            if (folder / "run.cmem").exists():
                return folder / "run.cmem"
            if name == "unfinished":
                return recordings.unfinished(folder, running)
            if name in recordings.REAL:
                return getattr(recordings, name)(folder)
            return recordings.BY_HAND[name](folder)

        yield path_of


@pytest.fixture(params=NAMES)
def recording(request: pytest.FixtureRequest, trace_of: Callable[[str], Path]) -> tuple[str, Path]:
    return request.param, trace_of(request.param)


def expected(report: Report) -> dict[tuple[str, str], Any]:
    numbers: dict[tuple[str, str], Any] = {}
    for device in report.devices:
        name = device.name
        leaked = [one for leak in report.leaks for one in (leak, *leak.keeps) if one.kind == "bytes"]
        values = {"peak": device.peak.bytes, "drawn peak": device.peak.bytes, "end": device.end}
        values |= {"allocated": device.allocated, "leaked": sum(one.bytes for one in leaked if one.device == name)}
        numbers |= {(what, name): value for what, value in values.items()}
        numbers["steps", name] = [step.peak for step in report.steps if step.device == name]
    return numbers


def caveats(report: Report) -> list[str]:
    return [block.text.removeprefix("! ") for block in reporter.caveats(report) if isinstance(block, Text)]


def flat(text: str) -> str:
    """Without what a view may change: escapes, and where lines end."""
    return re.sub(r"\s+", " ", text)


def said_of(caveat: str) -> str:
    """What of a caveat stands in every view: up to what is not printable."""
    return flat(re.split(r"[\x00\u202e]", caveat)[0])[:200]


def test_each_view(recording: tuple[str, Path], tmp_path: Path) -> None:
    name, trace = recording
    report = cuptimem.open(trace)
    wanted = expected(report)
    faults = []
    for kind, show in views.ALL.items():
        view = show(trace, tmp_path)
        for key, value in view.numbers.items():
            if key in wanted and value != wanted[key]:
                faults.append(f"{kind}: {key} is {value}, in the report {wanted[key]}")
        said = flat("\n".join(view.texts))
        for text in view.texts:
            if any(character in text for character in CHARACTERS) or ("\n" in text.strip() and text.isspace()):
                faults.append(f"{kind}: {ascii(text[:200])} is not printable")
                break
        if re.search("<img src=x|</script>", view.markup, re.IGNORECASE):
            faults.append(f"{kind}: markup of the trace")
        if kind == "scalar":
            continue
        missing = [line for line in map(said_of, caveats(report)) if line not in said]
        faults += [f"{kind}: does not say {line}" for line in missing]
        if kind in ("timeline", "flamegraph", "tree", "table", "notebook") and report.devices:
            shown = {"tree": "allocated", "table": "end"}.get(kind, "peak")
            if size(wanted[shown, report.devices[0].name]) not in said:
                faults.append(f"{kind}: does not show {shown} bytes")
    assert faults == []
    assert name not in recordings.SAID or any(recordings.SAID[name] in line for line in caveats(report))
