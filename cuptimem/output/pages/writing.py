"""Pages that verbs write: where they go, what they may replace, and the browser that opens them."""

import argparse
import os
import sys
from pathlib import Path

from cuptimem import environ, naming, regular_files
from cuptimem.errors import Error
from cuptimem.output.text import terminal
from cuptimem.output.text.words import size
from cuptimem.whole_files import is_stream, replacing

# In the head of every page (pages/templates/page.html): a file that has it may be replaced.
_GENERATOR = b'<meta name="generator" content="cuptimem'
_HEAD = 4096


def add_output(parser: argparse.ArgumentParser, what: str = "a page for a browser", always: bool = False) -> None:
    """-o, --force and --open. always: the verb writes a page in any case."""
    default = "default: beside the trace" if always else "instead of text"
    parser.add_argument(
        "-o", "--output", metavar="FILE", help=f"write {what}, one HTML file that needs no network ({default})"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace FILE even if it is no page of cuptimem")
    parser.add_argument("--open", action="store_true", help="write the page, then open it in a browser")


def wanted(options: argparse.Namespace) -> bool:
    """Whether a verb that prints text otherwise is asked for a page."""
    asked = options.output is not None or bool(options.open)
    if asked and getattr(options, "json", False):
        raise Error("--json is printed and -o writes a page: choose one")
    return asked


def beside(trace: str, kind: str) -> str:
    """run.cmem and "flamegraph" give run-flamegraph.html in the same folder."""
    return f"{os.path.splitext(trace)[0]}-{kind}.html"


def target(options: argparse.Namespace, default_name: str) -> str:
    """Where the page goes. Raises Error for a place that cannot be written to: call it before a trace is read."""
    path = default_name if options.output is None else options.output
    if not path:
        raise Error("the page needs a name")
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise Error(f"{path} is a directory; name a file in it")
    if options.output is None and os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        # It may have come with the trace, and lead anywhere.
        raise Error(f"{naming.shown(path)} is no ordinary file; name the page with -o")
    if is_stream(path):
        return path
    if not os.path.isdir(folder):
        raise Error(f"{naming.shown(folder)} is not a directory; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Error(f"{naming.shown(folder)} cannot be written to; choose another place with -o")
    _check_replaceable(options, path)
    return path


def _check_replaceable(options: argparse.Namespace, path: str) -> None:
    if not os.path.exists(path):
        return
    for name in ("file", "before", "after"):
        trace = getattr(options, name, None)
        if trace is not None and os.path.exists(trace) and os.path.samefile(trace, path):
            raise Error(f"{path} is the trace itself; choose another name")
    if not options.force and not _is_page(path):
        raise Error(f"{path} exists and is no page of cuptimem; choose another name, or replace it with --force")


def _is_page(path: str) -> bool:
    try:
        with regular_files.opened(path) as file:
            return _GENERATOR in file.read(_HEAD)
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from None


def write_page(options: argparse.Namespace, default_name: str, text: str) -> str:
    """Writes the page, says where it is and how large, opens it if asked; the path. Raises Error, one line."""
    path = target(options, default_name)
    encoded = encode(text)
    if not write(path, encoded):
        return path
    opening = "" if options.open else "; open it in a browser, or repeat with --open"
    terminal.say(f"wrote {naming.shown(path)} ({size(len(encoded))}){opening}")
    if options.open:
        open_browser(path)
    return path


def encode(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")  # a lone surrogate has no UTF-8


def write(path: str, content: bytes) -> bool:
    """To a place that target() gave. False: to a stream, of which nothing stays. Raises Error, one line."""
    try:
        stream = is_stream(path)
        with replacing(path if stream else os.path.realpath(path)) as file:
            file.write(content)
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from None
    return not stream


def open_browser(path: str) -> bool:
    """Opens a page where there is a browser with a window; says how to open it where there is none."""
    import webbrowser

    address = Path(path).resolve().as_uri()
    # Without a display, webbrowser would start a text browser in this terminal.
    graphical = sys.platform in ("darwin", "win32") or any(
        environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if graphical and webbrowser.open(address):
        return True
    print(f"cuptimem: no browser was found here; open {address}", file=sys.stderr)
    return False
