"""cuptimem live [PID | FILE]"""

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cuptimem import naming
from cuptimem.cli import parsing, reading
from cuptimem.cli.streams import complain
from cuptimem.errors import Error
from cuptimem.live import as_json, processes, view
from cuptimem.live.following import JUDGED, Follower
from cuptimem.output.text import terminal

if TYPE_CHECKING:
    from cuptimem.live.terminal import View

_NEEDS = "the view in a terminal needs Textual: pip install cuptimem[live]; one frame without it: cuptimem live --once"
_ROWS = 10
_LEAST, _EVERY = 0.1, 1.0  # seconds
_START = 20.0  # seconds for a program to begin its recording
_WAIT = 0.05


def parser() -> argparse.ArgumentParser:
    result = parsing.Parser(
        "live",
        description="What a running program's memory is made of now: its trace is followed while it is written. Keys: "
        "h shows them.",
    )
    result.add_argument(
        "target",
        metavar="PID | FILE",
        nargs="?",
        help="a process that is recorded, or a trace (default: what is recorded into this folder)",
    )
    result.add_argument("--once", action="store_true", help="one frame as text, instead of the view in a terminal")
    result.add_argument("--json", action="store_true", help="one frame as JSON")
    result.add_argument(
        "--every", type=_seconds, default=_EVERY, metavar="S", help="seconds between two looks (default: 1)"
    )
    result.add_argument("--rows", type=reading.count, default=_ROWS, metavar="N", help="lines of code with --once")
    reading.add_code(result)
    return result


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _LEAST <= value <= 3600:
        raise argparse.ArgumentTypeError(f"takes seconds from {_LEAST} to 3600, not {text!r}")
    return value


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    path = found(options.target)
    if options.once or options.json:
        return _once(path, options)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Error("the view needs a terminal; one frame of text: cuptimem live --once")
    return show(path, options.every, options.code)


def show(path: str, every: float, code: Sequence[str] | None) -> int:
    """The view, until the user ends it."""
    view_class()(opened(path, code), every).run()
    return 0


def view_class() -> "type[View]":
    """Raises Error without Textual."""
    try:
        from cuptimem.live.terminal import View
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise Error(_NEEDS) from None
    return View


def opened(path: str, code: Sequence[str] | None, *, judge: bool = True) -> Follower:
    with reading.hints_about(path):
        return Follower(path, code=code, judge=judge)


def _once(path: str, options: argparse.Namespace) -> int:
    follower = opened(path, options.code, judge=False)
    with terminal.progress(f"reading {os.path.basename(path)}") as tell:
        follower.poll(lambda records: tell(records / (records + JUDGED)))
        if follower.events <= JUDGED:
            follower.judge()
    state = follower.state()
    if options.json:
        print(json.dumps(as_json.of(state), ensure_ascii=True))
        return 0
    width = terminal.width_of_output() or 80
    terminal.show(view.blocks(state, view.Shown(rows=options.rows, columns=width)), otherwise=width)
    return 0


# -- which trace ---------------------------------------------------------------------------------------------------


def found(target: str | None) -> str:
    """The trace to follow. Raises Error with what there is instead."""
    if target is None:
        return _here()
    if target.isdecimal() and not os.path.exists(target):
        return _of_process(int(target))
    return target


def _here() -> str:
    here = os.path.realpath(".")
    everywhere = processes.recorded()
    written = [path for _, path in everywhere if os.path.dirname(path) == here]
    if written:
        newest = max(written, key=_written)
        others = f", the newest of {len(written)}" if len(written) > 1 else ""
        complain(f"following {naming.shown(newest)}{others}")
        return newest
    if everywhere:
        raise Error(f"nothing is recorded into this folder; elsewhere: {_listed(everywhere)}")
    raise Error("no process that is recorded was found; record one: cuptimem run script.py")


def _written(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _listed(traces: Sequence[tuple[int, str]]) -> str:
    some = [f"cuptimem live {pid} ({path})" for pid, path in traces[:8]]
    return ", ".join(some) + (f" and {len(traces) - 8} more" if len(traces) > 8 else "")


def _of_process(pid: int) -> str:
    try:
        own = processes.traces_of(pid)
    except FileNotFoundError:
        raise Error(f"there is no process {pid}") from None
    except PermissionError:
        raise Error(f"process {pid} is another user's, or may not be looked at; name its trace: FILE") from None
    if own:
        return max(own, key=_written)
    below = []
    for child in processes.descendants(pid):
        try:
            below += [(child, path) for path in processes.traces_of(child)]
        except OSError:  # it has ended
            continue
    if len(below) == 1:
        return below[0][1]
    if below:
        raise Error(f"process {pid} has {len(below)} children that are recorded: {_listed(below)}")
    raise Error(f"process {pid} is not recorded; record it from its start: cuptimem run script.py")


def waited_for(pid: int, has_ended: Callable[[], bool]) -> str | None:
    """The trace of a process that has just been started; None: it ended before it had one, or has none for long."""
    end = time.monotonic() + _START
    while not has_ended() and time.monotonic() < end:
        with contextlib.suppress(OSError):  # it has just ended
            traces = processes.traces_of(pid)
            if traces:
                return max(traces, key=_written)
        time.sleep(_WAIT)
    return None
