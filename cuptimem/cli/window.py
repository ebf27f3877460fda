"""cuptimem window PID"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import asking, json_options, parsing, reaching, reading, streams
from cuptimem.output import json
from cuptimem.output.text import terminal, views

_SECONDS = 10.0


def add_pid(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=reading.count, metavar="PID", help="the process")


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=parsing.name,
        metavar="FILE",
        help="the trace, which the process writes (default: cuptimem-<script>.<pid>.cmem in this folder)",
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace FILE if it exists")


def parser() -> argparse.ArgumentParser:
    result = reading.bare_parser(
        "window",
        "Records a running process for some steps or seconds, and prints the summary. The process is in standby "
        "(CUPTIMEM=standby), or is brought there (docs/running.md). Ctrl-C ends the window "
        "sooner; a second one leaves without its summary.",
    )
    add_pid(result)
    result.add_argument("--steps", type=reading.count, metavar="N", help="until so many steps have ended")
    result.add_argument(
        "--seconds", type=_seconds, metavar="S", help=f"for so long ({_SECONDS:g}, unless --steps is given)"
    )
    add_output(result)
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    pid: int = options.pid
    path = reaching.socket_of(pid)
    if options.steps is None and options.seconds is None:
        options.seconds = _SECONDS
    bounds = {
        "steps": "" if options.steps is None else str(options.steps),
        "seconds": "" if options.seconds is None else repr(options.seconds),
    }
    fields = {"verb": "window", "force": "1" if options.force else "", **bounds, **asking.target(pid, options.output)}
    asked = asking.Asked(pid, path, fields)
    trace = asking.opened(pid, asked)
    place = asking.root(pid)
    patience = None if options.seconds is None else options.seconds + asking.PATIENCE
    try:
        streams.complain(f"recording process {pid} into {asking.shown(pid, trace)}; Ctrl-C ends it")
        asking.ended(pid, asked, trace, patience)
    except KeyboardInterrupt:
        asked.end_window()
        asking.ended(pid, asked, trace, asking.PATIENCE)
    asked.close()
    show(options, place + trace)
    return 0


def show(options: argparse.Namespace, trace: str) -> None:
    """The summary of a window."""
    report = reading.read(options, trace, with_lives=not options.json)
    if options.json:
        json.show(json.summary(report), json_options.bounds(options))
    else:
        terminal.show(views.summary(report, "peak"))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"takes a number of seconds above 0, not {text!r}")
    return seconds
