"""cuptimem run --live: the program in a child process, and the view of it in this one's terminal.

What the program writes to the terminal is kept until the view is left, and then shown in its place. What goes to a file
or a pipe goes there at once.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from cuptimem.cli import live
from cuptimem.cli.streams import complain
from cuptimem.errors import Error

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LOOKS = 0.1  # seconds between looks at what the program has written


def run(command: Sequence[str], variables: Mapping[str, str], every: float = 1.0) -> int:
    """Runs it, and ends as it ends."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Error("--live needs a terminal; in another one: cuptimem live PID")
    view = live.view_class()
    with tempfile.TemporaryFile() as kept:
        out, err = (kept if stream.isatty() else None for stream in (sys.stdout, sys.stderr))
        child = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        for number in _FORWARDED:
            signal.signal(number, lambda got, frame: child.send_signal(got))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program gets it, too: it decides
        path = live.waited_for(child.pid, lambda: child.poll() is not None)
        problem = ""
        if path is None and child.poll() is None:
            complain(f"there is nothing to view: process {child.pid} records nothing")
        if path is not None:
            try:
                view(live.opened(path, None), every).run()
            except Error as error:
                problem = str(error)
        _show(kept, child, sys.stderr if out is None else sys.stdout)
    if problem:
        complain(problem)
    return _end(child.wait())


def _show(kept: IO[bytes], child: "subprocess.Popen[Any]", stream: IO[str]) -> None:
    """What was kept, and what comes until the program ends."""
    at = 0
    while True:
        ended = child.poll() is not None
        size = os.fstat(kept.fileno()).st_size
        while at < size:
            data = os.pread(kept.fileno(), min(size - at, 1 << 16), at)
            at += len(data)
            with contextlib.suppress(OSError):  # the terminal has gone: the program goes on
                stream.buffer.write(data)  # type: ignore[attr-defined]  # IO[str] has none, sys.stdout has
                stream.flush()
        if ended:
            return
        time.sleep(_LOOKS)


def _end(code: int) -> int:
    if code >= 0:
        return code
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code
