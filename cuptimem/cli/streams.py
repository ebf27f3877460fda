"""Standard output and error of the command: closed, full, or in an encoding that lacks some of our characters."""

import codecs
import os
import sys

from cuptimem.printable import plain, printable

TYPE_CHECKING = False  # `run` must import nothing that the program's folder could shadow

if TYPE_CHECKING:
    from typing import TextIO

_HANDLER = "cuptimem.plain"
_DEFAULTS = ("strict", "surrogateescape", "backslashreplace")  # what Python chooses; all else is the user's choice


def prepare() -> None:
    """Makes both streams take any text. Where one was closed, what is written to it is dropped."""
    codecs.register_error(_HANDLER, _plain)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # print(file=None) would take the other one
            setattr(sys, name, open(os.devnull, "w", errors=_HANDLER))  # noqa: SIM115  for as long as the process
        elif getattr(stream, "errors", None) in _DEFAULTS and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_HANDLER)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """The replacement for characters that the encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(plain, error.object[error.start : error.end])), error.end


def drop(stream: "TextIO") -> None:
    """Drops what the stream still holds: Python would fail at exit to write it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def complain(line: str, by: str = "cuptimem") -> None:
    """One line on standard error, whatever is in it."""
    try:
        print(f"{by}: {printable(line)}", file=sys.stderr, flush=True)
    except OSError:  # the exit code has to do
        drop(sys.stderr)
