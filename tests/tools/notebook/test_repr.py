"""What a notebook shows of reports, whatever is in the trace: whole HTML, without script, within its bytes."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.notebook import display, picture, svg
from cuptimem.output.text import text, views
from cuptimem.output.text.words import size
from cuptimem.printable import printable
from cuptimem.report.chart import Span
from cuptimem.report.model import Contents, Report
from tests.tools.notebook import traces

_EMPTY = ("br", "img", "meta", "input", "hr")


class Checked(HTMLParser):
    """Fails where elements do not nest; collects what there is."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


_ALLOWED = {"div", "p", "b", "br", "img", "table", "thead", "tbody", "tr", "th", "td", "code", "details", "summary"}
_AROUND = {"style", "iframe", "pre"}


_NAMES = [*(name for name in traces.ALL if name != "many_lines"), pytest.param("many_lines", marks=pytest.mark.scaled)]


@pytest.fixture(scope="module", params=_NAMES)
def named(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, many_lines: int
) -> tuple[str, Report, str]:
    """The name of a trace, its report, and the report's HTML."""
    path = tmp_path_factory.mktemp("trace") / "run.cmem"
    name = request.param
    report = traces.many_lines(path, many_lines) if name == "many_lines" else traces.ALL[name](path)
    return request.param, report, report._repr_html_() or ""


def _shown(report: Report) -> list[Any]:
    """All that a notebook can show of a report."""
    parts: list[Any] = [report, report.steps, report.leaks, report.suspects, *report.peaks]
    return [*parts, *report.leaks, *report.suspects]


def test_ipython_shows_every_part_as_its_text(named: tuple[str, Report, str]) -> None:
    """IPython prefers its printer of tuples to what a subclass of tuple says about itself."""
    formatters = pytest.importorskip("IPython.core.formatters", reason="IPython is not installed: notebooks need it")
    formatter = formatters.DisplayFormatter()
    for shown in _shown(named[1])[1:]:
        found, _ = formatter.format(shown, include={"text/plain"})
        assert found["text/plain"] == display.as_text(shown)
        assert len(found["text/plain"]) < display.MOST


def test_every_part_is_whole_html_without_script(named: tuple[str, Report, str]) -> None:
    name, report, html_of_report = named
    for shown in _shown(report) if name != "many_lines" else [report]:
        html = html_of_report
        if shown is not report:
            assert shown._repr_mimebundle_() == {"text/plain": text.render(display.blocks(shown))}
            html = shown._repr_html_()
        checked = Checked(html)
        assert checked.names <= _ALLOWED | _AROUND, checked.names
        assert not [name for _, name, _ in checked.attributes if name.startswith("on")]
        styles = {value for _, name, value in checked.attributes if name == "style"}
        assert styles <= {"text-align: left", "text-align: right"}
        assert "cuptimem cannot draw this" not in html
        assert len(json.dumps(html)) <= display.MOST
        html = re.sub(r'srcdoc="[^"]*"', "", html)
        for character in "\x1b\u202e\u2028\r":
            assert character not in html
        for source in re.findall(r'src="([^"]*)"', html):
            assert source.startswith("data:image/svg+xml;base64,")


def test_what_is_missing_is_said(named: tuple[str, Report, str]) -> None:
    name, report, html = named
    said = Checked(html).text
    assert traces.SAID.get(name, "") in said
    for caveat in views.caveats(report):
        assert isinstance(caveat, text.Text)
        assert printable(caveat.text[:80]).split("<")[0] in said


def test_hostile_names_are_text(tmp_path: Path) -> None:
    report = traces.hostile_names(tmp_path / "run.cmem")
    for shown in _shown(report):
        html = re.sub(r'srcdoc="[^"]*"', "", shown._repr_html_())
        assert "<script" not in html.lower() and "onerror=alert(1)>" not in html
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in (report.peak._repr_html_() or "")
    for document in _pictures(report._repr_html_() or ""):
        assert {element.tag.rpartition("}")[2] for element in ET.fromstring(document).iter()} <= {
            "svg", "title", "line", "text", "path", "rect", "circle",
        }  # fmt: skip


def _pictures(html: str) -> list[bytes]:
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', html)
    return [base64.b64decode(data) for data in found]


def test_the_picture_is_an_svg_of_the_reports_numbers(named: tuple[str, Report, str]) -> None:
    _, report, html = named
    documents = _pictures(html)
    assert len(documents) == len([device for device in report.devices if device.peak.bytes])
    for device, document in zip(report.devices, documents, strict=False):
        root = ET.fromstring(document)
        words = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]
        assert any(word.startswith(f"peak {size(device.peak.bytes)}") for word in words)


def test_the_layers_sum_to_the_live_bytes(named: tuple[str, Report, str]) -> None:
    name, report, _ = named
    if name == "without_its_file":
        return
    for chart in report.charts([Span(intervals=svg.COLUMNS, blocks=1)]):
        device = report.device(chart.device)
        drawn = picture.of_chart(report, device, chart)
        assert len(drawn.layers) <= len(svg.COLOURS) and len(drawn.times_ns) == len(drawn.total) <= svg.COLUMNS
        for column, total in enumerate(drawn.total):
            assert sum(layer.values[column] for layer in drawn.layers) == total
            assert all(layer.values[column] >= 0 for layer in drawn.layers)
        assert max(drawn.total) == device.peak.bytes
        assert sum(layer.at_peak for layer in drawn.layers) == device.peak.bytes
        plain = picture.of_timeline(report, device)
        assert max(plain.total) == device.peak.bytes


def test_an_error_of_ours_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = traces.training(tmp_path / "run.cmem")

    def broken(*_: object) -> str:
        raise RuntimeError("<broken>")

    monkeypatch.setattr(svg, "image", broken)
    html = report._repr_html_() or ""
    Checked(html)
    assert "cuptimem cannot draw this: RuntimeError: &lt;broken&gt;" in html and str(report).split("\n")[0] in html
    assert report._repr_mimebundle_()["text/plain"] == str(report)


def test_contents_of_every_kind(tmp_path: Path) -> None:
    report = traces.training(tmp_path / "run.cmem")
    for what in ("peak", *cuptimem.report.model.TABLES):
        contents = report.contents(what)
        assert isinstance(contents, Contents)
        assert f"{size(contents.bytes)} in" in Checked(contents._repr_html_() or "").text


def test_the_interactive_page_gives_way_to_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = traces.training(tmp_path / "run.cmem")
    assert "<iframe" in (report._repr_html_() or "")
    monkeypatch.setattr(display, "MOST", 200_000)
    html = report._repr_html_() or ""
    assert "<iframe" not in html and "No interactive picture here: it would have more than" in html
    assert "display: none" not in html and "<img" in html
