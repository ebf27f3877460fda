"""The Memory page in a real TensorBoard, in a real browser."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic import write_synthetic

pytest.importorskip("tensorboard", reason="tensorboard is not installed here: pip install tensorboard")

import cuptimem
from cuptimem.report.model import Report
from cuptimem.tensorboard import export
from cuptimem.tensorboard.data import FOLDER
from tests import browser
from tests.tools.tensorboard.support import HOSTILE, report, tensorboard, write

pytestmark = pytest.mark.browser

# TensorBoard's own page logs these; nothing of ours does.
TENSORBOARDS_OWN = ("WARNING: Multiple instances of Three.js being imported.",)


class Watch(browser.Watch):
    def _console(self, message: Any) -> None:
        if message.text not in TENSORBOARDS_OWN:
            super()._console(message)


HOSTILE_RUN = "<img src=x onerror=alert(1)> \u202e'\"&"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    source = tmp_path_factory.mktemp("source")
    small = report(source)
    frame = replace(small.peak.contributors[0].stack[0], function=HOSTILE[:200], text=HOSTILE)
    peak = replace(
        small.peak, contributors=(replace(small.peak.contributors[0], stack=(frame,)), *small.peak.contributors[1:])
    )
    hostile = replace(
        small,
        devices=(replace(small.devices[0], peak=peak),),
        environment={"script": HOSTILE[:100], "problems": HOSTILE[:100]},
    )
    return {
        "large": replace(report(source, scale=1_000_003), start_realtime_ns=1_700_000_100_000_000_000),
        "small": small,
        HOSTILE_RUN: hostile,
    }


@pytest.fixture(scope="module")
def address(reports: dict[str, Report], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    logs = tmp_path_factory.mktemp("board") / "logs"
    for name, made in reports.items():
        write(made, logs / name, 20 if name == "large" else 0)
    write(reports["small"], logs / "spoiled")
    (file,) = (logs / "spoiled" / FOLDER).iterdir()
    file.write_bytes(file.read_bytes()[:100])
    trace = tmp_path_factory.mktemp("trace") / "a.cmem"
    write_synthetic(str(trace), 5000)
    export.write(trace, logs / "recorded", None)
    reports["recorded"] = cuptimem.open(trace)
    with tensorboard(logs) as url:
        yield url


@contextmanager
def opened(browser_process: Any, address: str, sign: str) -> Iterator[Any]:
    """The frame with the Memory page, once the sign is there; it may log nothing, and asks only this machine."""
    context = browser_process.new_context(viewport={"width": 1600, "height": 1000})
    context.set_default_timeout(browser.PATIENCE)
    page = context.new_page()
    watch = Watch(page)
    page.goto(f"{address}#cuptimem")
    page.locator("iframe[src*=plugin_entry]").wait_for()
    frame = page.frame_locator("iframe[src*=plugin_entry]")
    frame.locator(sign).first.wait_for()
    yield frame
    context.close()
    assert watch.faults == []


@pytest.fixture
def memory_page(browser_process: Any, address: str) -> Iterator[Any]:
    with opened(browser_process, address, "[data-tile=peak]") as page:
        yield page


def choose(page: Any, run: str) -> None:
    section = page.locator("#side section").filter(has=page.locator("h2").get_by_text(run, exact=True))
    section.locator(".recording").click()
    page.locator("#shown h1").get_by_text(f"{run} ·").wait_for()


def numbers(page: Any, selector: str) -> list[int]:
    return [int(one) for one in page.locator(selector).evaluate_all("all => all.map((one) => one.dataset.bytes)")]


def test_tensorboard_lists_the_plugin_as_active(address: str) -> None:
    with urllib.request.urlopen(f"{address}data/plugins_listing", timeout=60) as answer:
        listed = json.load(answer)["cuptimem"]
    assert listed["enabled"] and listed["tab_name"] == "Memory"
    assert listed["loading_mechanism"]["type"] == "IFRAME"


def test_its_data_server_reads_the_scalars(address: str, reports: dict[str, Report]) -> None:
    """The reader that TensorBoard uses by default is another one than EventAccumulator."""
    query = "data/plugin/scalars/scalars?run=large&tag=Memory%2FPeak%2Fcpu"
    with urllib.request.urlopen(f"{address}{query}", timeout=60) as answer:
        found = [(step, value) for _time, step, value in json.load(answer)]
    from tests.tools.tensorboard.support import four_bytes

    assert found == [(20 + step.index, four_bytes(step.peak)) for step in reports["large"].steps]


def test_runs_peak_steps_and_leaks(memory_page: Any, reports: dict[str, Report]) -> None:
    assert memory_page.locator("#side h2").all_inner_texts()[:4] == [
        HOSTILE_RUN.replace("\u202e", "\\u202e"),
        "large",
        "recorded",
        "small",
    ]
    choose(memory_page, "large")
    made = reports["large"]
    assert numbers(memory_page, "[data-tile=peak]") == [made.peak.bytes]
    assert sum(numbers(memory_page, "#peak tbody td:first-child")) == made.peak.bytes
    rows = memory_page.locator("#steps .scroll tbody tr")
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["20", "21", "22"]
    assert numbers(memory_page, "#steps .scroll tbody td:nth-child(4)") == [step.peak for step in made.steps]
    assert "too few steps" in memory_page.locator("#leaks").inner_text()
    assert memory_page.locator("#timeline canvas").count() == 1


def test_a_recording_is_drawn_as_the_timeline_command_draws_it(memory_page: Any, reports: dict[str, Report]) -> None:
    choose(memory_page, "recorded")
    made = reports["recorded"]
    memory_page.locator("#timeline .timeline canvas").first.wait_for()
    assert cuptimem_size(memory_page, made.peak.bytes) in memory_page.locator("#timeline").inner_text()
    devices = {device.name: device.peak.bytes for device in made.devices}
    assert numbers(memory_page, "[data-tile=peak]") == [devices[made.devices[0].name]]
    for _ in range(2):  # the largest lines and a row for the others; then all of them
        assert sum(numbers(memory_page, "#peak tbody td:first-child")) == made.peak.bytes
        for button in memory_page.locator("#peak .all").all():
            button.click()
    assert memory_page.locator("#peak tbody tr").count() == len(made.peak.lines)


def cuptimem_size(page: Any, value: int) -> str:
    """As the page writes it."""
    return str(page.locator("body").evaluate("(_, bytes) => cuptimem.size(bytes)", value))


def test_two_runs_are_compared(memory_page: Any, reports: dict[str, Report]) -> None:
    choose(memory_page, "large")
    section = memory_page.locator("#side section").filter(
        has=memory_page.locator("h2").get_by_text("small", exact=True)
    )
    section.locator(".compare").click()
    memory_page.locator("#comparison table").wait_for()
    small, large = reports["small"].peak.bytes, reports["large"].peak.bytes
    sums = [sum(numbers(memory_page, f"#comparison tbody td:nth-child({column})")) for column in (1, 2, 3)]
    assert sums == [small, large, large - small]
    legend = memory_page.locator("#timeline .u-legend").inner_text()
    assert "this: allocated" in legend and "other: allocated" in legend  # both curves
    memory_page.get_by_role("button", name="End comparison").click()
    memory_page.locator("#peak table").wait_for()


def test_a_broken_file_is_named(memory_page: Any) -> None:
    said = memory_page.locator("#side .broken").inner_text()
    assert "spoiled/cycle-0" in said and "cut or damaged" in said


def test_a_folder_of_broken_files_alone(browser_process: Any, reports: dict[str, Report], tmp_path: Path) -> None:
    write(reports["small"], tmp_path / "logs" / "spoiled")
    (file,) = (tmp_path / "logs" / "spoiled" / FOLDER).iterdir()
    file.write_bytes(file.read_bytes()[:100])
    with tensorboard(tmp_path / "logs") as url, opened(browser_process, url, "#side .broken") as page:
        assert page.locator("#shown").inner_text() == "No recording can be shown. The list says why."


def test_hostile_names_are_text(memory_page: Any) -> None:
    choose(memory_page, HOSTILE_RUN.replace("\u202e", "\\u202e"))
    memory_page.locator("#peak summary").first.click()
    assert memory_page.locator("img").count() == 0
    assert "</script><img" in memory_page.locator("#peak").inner_text()
    assert "</script><img" in memory_page.locator("#shown .caveat").first.inner_text()


def test_it_works_by_keyboard(memory_page: Any) -> None:
    choose(memory_page, "small")
    button = memory_page.locator("#side .recording").nth(1)
    button.focus()
    button.press("Enter")
    memory_page.locator("#shown h1").get_by_text("large ·").wait_for()
    assert memory_page.locator("#side .recording").nth(1).evaluate("one => one === document.activeElement")


def test_ranks_of_a_job(browser_process: Any, tmp_path: Path) -> None:
    for rank in range(2):
        write(report(tmp_path / "source", scale=1 + 1000 * rank), tmp_path / "logs" / "job" / f"rank{rank}")
    with tensorboard(tmp_path / "logs") as url, opened(browser_process, url, "[data-tile=peak]") as page:
        page.get_by_role("button", name="2 ranks of job").click()
        page.locator("#ranks table").first.wait_for()
        assert [row.split("\t")[0] for row in page.locator("#ranks tbody").first.inner_text().splitlines()] == [
            "1",
            "0",
        ]
        assert "rank 1: +3.9 MiB" in page.locator("#ranks").inner_text()
        page.locator(".recording").first.click()
        page.locator("[data-tile=peak]").wait_for()
        assert page.locator("#ranks").count() == 0
