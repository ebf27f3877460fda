"""Puts a page together: one HTML file without references to anything outside of it.

What a trace says goes in as data, never as markup: JSON, compressed and in base64, which pages.js unpacks.
Text that a template prints is escaped by jinja2. A content security policy forbids everything but the page's own parts.
"""

import base64
import gzip
import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

UPLOT = ("vendor/uplot/uPlot.iife.min.js", "vendor/uplot/uPlot.min.css")
D3 = ("vendor/d3/d3.min.js",)
FLAME_GRAPH = (
    *D3,
    "vendor/d3-flame-graph/d3-flamegraph.umd.min.js",
    "vendor/d3-flame-graph/d3-flamegraph.css",
)


@cache
def asset(path: str) -> str:
    """The text of a script or style sheet in this package."""
    return (files(__package__) / path).read_text(encoding="utf-8")


def embed(data: object) -> str:
    """Data as text that is safe anywhere in HTML."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def render(template: str, data: object, assets: Iterable[str] = (), **context: Any) -> str:
    """The page.

    template: a file in templates/, which extends page.html. data: anything json.dumps takes, for `cuptimem.data()` in
    scripts. assets: scripts and style sheets of this package besides pages.js and pages.css, in their order.
    """
    chosen = ["assets/pages.css", "assets/pages.js", *assets]
    return (
        _environment()
        .get_template(template)
        .render(
            data=embed(data),
            styles=[asset(path) for path in chosen if path.endswith(".css")],
            scripts=[asset(path) for path in chosen if path.endswith(".js")],
            **context,
        )
    )


@cache
def _environment() -> "Environment":
    import jinja2  # takes longer to load than all else here

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cuptimem.output.pages"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.globals["raw"] = _raw
    return environment


def _raw(text: str) -> str:
    """Our own script or style sheet, which must not end its element."""
    from markupsafe import Markup

    for end in ("</script", "</style", "<!--"):
        if end in text.lower():
            raise ValueError(f"an asset has {end!r} in it, which would end its element")
    return Markup(text)
