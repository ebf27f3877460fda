"""What to do next, for a file that is not what the command line needs: the end of an error's line."""

import difflib
import os
import stat
import sys

from cuptimem import regular_files
from cuptimem.naming import MAGIC, typed
from cuptimem.report import snapshots

_RECORD = "record a program: cuptimem run script.py"


def about(path: str) -> str:
    """A hint about a FILE that could not be read as a trace; "" where the error suffices."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return _near(path, ".cmem") or _RECORD
    try:
        head = _head(path) if stat.S_ISREG(mode) else b""
    except OSError:  # it may not be read
        return ""
    if stat.S_ISDIR(mode):
        return "name a trace (*.cmem) in it"
    if head.startswith(MAGIC) or not stat.S_ISREG(mode):
        return ""
    if path.endswith(".py"):
        return f"it is a script, record it: cuptimem run {typed(path)}"
    if head.startswith((b"{", b"[")):
        return "it seems to be JSON: name the trace (*.cmem) that it was made of"
    if snapshots.is_snapshot(head):  # the error says what is wrong with it
        return ""
    return _RECORD if path.endswith(".cmem") else f"traces are called *.cmem; {_RECORD}"


def about_script(script: str) -> str:
    """A hint about a script that does not exist."""
    import shutil

    if os.path.basename(script).startswith("python"):
        return "leave out the interpreter: cuptimem run script.py"
    command = shutil.which(script) or shutil.which(script, path=os.path.dirname(sys.executable))
    try:
        first_line = _head(command).partition(b"\n")[0] if command is not None else b""
    except OSError:  # it may not be read, or is a pipe
        first_line = b""
    if command is not None and first_line.startswith(b"#!") and b"python" in first_line:
        return f"it is a command in Python: cuptimem run {typed(command)}"
    if command is not None:
        return "it is a command; CUPTIMEM=1 CUPTIMEM_FOLLOW=1 in its environment records the Pythons that it starts"
    return _near(script, ".py")


def is_trace(path: str) -> bool:
    """Whether a file begins as traces do, or as what is opened like one."""
    try:
        head = _head(path)
        return head.startswith(MAGIC) or snapshots.is_snapshot(head)
    except OSError:
        return False


def _head(path: str) -> bytes:
    with regular_files.opened(path) as file:
        return file.read(256)


def _near(path: str, ending: str) -> str:
    """The file beside it with nearly the same name."""
    folder, name = os.path.split(path)
    try:
        stems = [other.removesuffix(ending) for other in os.listdir(folder or ".") if other.endswith(ending)]
    except OSError:
        return f"there is no folder {folder}"
    near = difflib.get_close_matches(name.removesuffix(ending), stems, n=1)
    return f"did you mean {os.path.join(folder, near[0])}{ending}?" if near else ""
