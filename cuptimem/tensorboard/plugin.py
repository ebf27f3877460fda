"""The Memory page's side in TensorBoard's process: which files it serves, and what it answers."""

import os
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from cuptimem.errors import Error
from cuptimem.output.pages import timeline
from cuptimem.output.text.words import shortened
from cuptimem.printable import printable
from cuptimem.tensorboard.data import STEP_COLUMNS
from cuptimem.tensorboard.files import Files
from cuptimem.tensorboard.ranks import job_of
from cuptimem.tensorboard.walk import Found

# What the page loads besides its own modules, in this order: the timeline's parts, and what they share.
_PARTS = (
    *(("cuptimem.output.pages", path) for path in ("assets/pages.css", "assets/pages.js", *timeline.SCRIPTS)),
    ("cuptimem.tensorboard", "assets/memory.css"),
)
_MODULES = tuple(("cuptimem.tensorboard", f"assets/{name}.js") for name in ("index", "runs", "curves", "tables"))

# All that can be asked for by name. A request's path is looked up here and never joined to a folder.
_ASSETS = {"/" + path.rpartition("/")[2]: (package, path) for package, path in (*_PARTS, *_MODULES)}

_SEARCH_AGAIN = 20  # seconds between two searches for the first file


class Plugin(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard has no types
    plugin_name = "cuptimem"

    def __init__(self, context: Any) -> None:
        self._files = Files(_folders(context))
        self._active = False
        self._looked = float("-inf")

    def is_active(self) -> bool:
        """Asked for with each list of plugins: searches seldom, and no more once there is something."""
        if not self._active and time.monotonic() - self._looked >= _SEARCH_AGAIN:
            self._active = self._files.any()
            self._looked = time.monotonic()
        return self._active

    def frontend_metadata(self) -> Any:
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Memory")

    def get_plugin_apps(self) -> dict[str, Any]:
        apps = {path: _asset(*where) for path, where in _ASSETS.items()}
        answers = {
            "/parts": self.parts,
            "/runs": self.runs,
            "/data": self.data,
            "/compare": self.compare,
            "/ranks": self.ranks,
        }
        return {**apps, **{path: wrappers.Request.application(answer) for path, answer in answers.items()}}

    def parts(self, request: wrappers.Request) -> Any:
        """The page's style sheets and scripts, in the order in which they are loaded."""
        names = [path.rpartition("/")[2] for _package, path in _PARTS]
        styles = [name for name in names if name.endswith(".css")]
        return _json(request, {"styles": styles, "scripts": [name for name in names if name not in styles]})

    def runs(self, request: wrappers.Request) -> Any:
        """All recordings; those that cannot be read with the reason."""
        listed = self._files.list()
        if listed.good:
            self._active = True
        answer = {
            "recordings": [{**_named(found), **summary} for found, summary in listed.good],
            "broken": [{**_named(found), "why": printable(why)} for found, why in listed.broken],
            "waiting": listed.waiting,
            "notes": listed.notes,
            "columns": STEP_COLUMNS,
        }
        return _json(request, answer)

    def data(self, request: wrappers.Request) -> Any:
        """One recording, as it is in its file."""
        try:
            return _json(request, self._files.text(self._asked(request, "id")))
        except Error as error:
            return _refusal(request, error)

    def compare(self, request: wrappers.Request) -> Any:
        """The peaks of two recordings, line by line."""
        try:
            before, after = (self._asked(request, name) for name in ("before", "after"))
            return _json(request, self._files.comparison(before, after))
        except Error as error:
            return _refusal(request, error)

    def ranks(self, request: wrappers.Request) -> Any:
        """The last recordings of all ranks of a recording's job, compared."""
        try:
            return _json(request, self._files.ranks(self._asked(request, "id")))
        except Error as error:
            return _refusal(request, error)

    def _asked(self, request: wrappers.Request, name: str) -> Found:
        return self._files.one(request.args.get(name, ""))


def _named(found: Found) -> dict[str, str]:
    """How the page calls it. A path may have anything in it, and thousands of characters."""
    named = {"id": found.id, "run": shortened(found.run, 300), "name": shortened(found.name, 300)}
    job = job_of(found.run)
    return named if job is None else {**named, "job": shortened(job, 300)}


def _folders(context: Any) -> dict[str, str]:
    """What TensorBoard was asked to show, by the prefix of its runs: --logdir, or --logdir_spec=a:one,b:two."""
    spec = getattr(context.flags, "logdir_spec", "") or ""
    folders = {}
    for number, part in enumerate(spec.split(",") if spec else ()):
        name, colon, path = part.partition(":")
        if not colon or "/" in name:
            name, path = f"{number}", part
        folders[name] = os.path.expanduser(path)
    if not folders and context.logdir:
        folders[""] = os.path.expanduser(context.logdir)
    return folders


def _json(request: wrappers.Request, content: dict[str, Any] | bytes, code: int = 200) -> Any:
    return http_util.Respond(request, content, "application/json", code=code)


def _refusal(request: wrappers.Request, error: Error) -> Any:
    return _json(request, {"error": str(error)}, code=404)


def _asset(package: str, path: str) -> Callable[..., Any]:
    kind = "text/css" if path.endswith(".css") else "text/javascript"

    @wrappers.Request.application
    def serve(request: wrappers.Request) -> Any:
        return http_util.Respond(request, (files(package) / path).read_bytes(), kind)

    return serve
