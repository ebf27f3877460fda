"""A headless Chromium for tests of pages, driven by Playwright. Nothing is downloaded: the browser is the system's.

    def test_it(browser_page):            # a playwright.sync_api.Page, checked at the end
        browser_page.goto(path.as_uri())

`browser_page` fails its test at the end if the page logged an error or asked for anything but files, `data:` and this
machine. Tests with it are skipped where there is no browser, unless CUPTIMEM_BROWSER=required (make browser-tests).
CUPTIMEM_BROWSER may also be the path of one.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

REQUIRED = os.environ.get("CUPTIMEM_BROWSER") == "required"
INSTALL = "apt-get install chromium (or set CUPTIMEM_BROWSER to the path of a Chromium), then: make browser-tests"
PATIENCE = 120_000  # milliseconds; a loaded machine takes its time
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find() -> str | None:
    """The path of a Chromium on this machine."""
    chosen = os.environ.get("CUPTIMEM_BROWSER")
    if chosen and chosen != "required":
        return chosen
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for path in map(shutil.which, names) if path), None)


@contextmanager
def launched() -> Iterator[Any]:
    """A playwright.sync_api.Browser."""
    from playwright.sync_api import sync_playwright

    path = find()
    if path is None:
        raise RuntimeError(f"no Chromium was found: {INSTALL}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """What a page did that no page of ours does."""

    def __init__(self, page: Any, test: str = "") -> None:
        self.faults: list[str] = []
        self._test = test
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def _request(self, request: Any) -> None:
        if request.url.startswith("file:") and request.is_navigation_request():
            note_page(unquote(urlsplit(request.url).path), self._test)
        if not request.url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "http://localhost:")):
            self.faults.append(f"network: {request.url}")


def note_page(path: str, test: str) -> None:
    """For `python -m tests.browser`: which file a test opened, and how large it is."""
    log = os.environ.get("CUPTIMEM_BROWSER_PAGES")
    if log and os.path.isfile(path):
        with open(log, "a", encoding="utf-8") as file:
            file.write(
                json.dumps({"test": test, "page": os.path.basename(path), "bytes": os.path.getsize(path)}) + "\n"
            )


if __name__ == "__main__":
    from tests.browser_run import main

    sys.exit(main(sys.argv[1:]))
