"""The HTML of a report in a real browser: as GitHub shows it, and where the notebook is trusted."""

import html
import re
from pathlib import Path
from typing import Any

import pytest

from tests.tools.notebook import traces

pytestmark = pytest.mark.browser


def sanitised(source: str) -> str:
    """What is left of an output on GitHub: no script, style, iframe or attributes with styles."""
    source = re.sub(r"(?s)<(script|style|iframe)\b.*?</\1>", "", source)
    return re.sub(r'\s(?:style|class|id|on\w+)="[^"]*"', "", source)


def _opened(page: Any, folder: Path, body: str) -> None:
    path = folder / "page.html"
    path.write_text(f'<!doctype html><meta charset="utf-8"><title>{html.escape("t")}</title>{body}')
    page.goto(path.as_uri())


@pytest.mark.parametrize("name", ["training", "hostile_names"])
def test_without_trust_the_picture_and_the_tables_are_there(browser_page: Any, tmp_path: Path, name: str) -> None:
    report = traces.ALL[name](tmp_path / "run.cmem")
    _opened(browser_page, tmp_path, sanitised(report._repr_html_() or ""))
    assert browser_page.locator("iframe").count() == 0
    image = browser_page.locator("img").first
    assert image.is_visible()
    assert browser_page.evaluate("document.images[0].complete && document.images[0].naturalWidth") == 900
    assert image.get_attribute("alt").startswith("Live bytes on cpu over ")
    assert browser_page.get_by_text("What the peak on cpu is made of").is_visible()
    assert browser_page.locator("table").first.is_visible()


@pytest.mark.parametrize("name", ["training", "hostile_names", "one_event"])
def test_with_trust_the_interactive_page_takes_the_pictures_place(browser_page: Any, tmp_path: Path, name: str) -> None:
    report = traces.ALL[name](tmp_path / "run.cmem")
    _opened(browser_page, tmp_path, report._repr_html_() or "")
    assert not browser_page.locator("img").first.is_visible()
    inside = browser_page.frame_locator("iframe")
    inside.locator("#timeline canvas").first.wait_for(state="visible")
    assert browser_page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
    assert browser_page.evaluate("window.injected === undefined")
    browser_page.set_viewport_size({"width": 820, "height": 900})
    bottom = "canvas => canvas.getBoundingClientRect().bottom <= document.documentElement.clientHeight"
    assert inside.locator("canvas.blocks").evaluate(bottom), "the lower picture is cut"
    assert browser_page.get_by_text("What the peak on cpu is made of").is_visible()


def test_two_outputs_do_not_touch_each_other(browser_page: Any, tmp_path: Path) -> None:
    first = traces.training(tmp_path / "a.cmem")._repr_html_() or ""
    second = sanitised(traces.one_event(tmp_path / "b.cmem")._repr_html_() or "")
    _opened(browser_page, tmp_path, first + second)
    assert [image.is_visible() for image in browser_page.locator("img").all()] == [False, True]
