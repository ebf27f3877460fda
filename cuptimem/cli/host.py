"""cuptimem host FILE | PID"""

import argparse
import os
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.errors import Error, core
from cuptimem.output import json
from cuptimem.output.text import terminal, views
from cuptimem.report import host


def parser() -> argparse.ArgumentParser:
    result = reading.bare_parser(
        "host",
        "Who has the host's memory: the recorded process and every one below it (workers, ranks, helpers), private and "
        "shared; /dev/shm; mapped files; and what grows or is copied (docs/ledger.md).",
    )
    result.add_argument(
        "file",
        metavar="FILE|PID",
        nargs="?",
        help="a trace, or the number of a process that runs now, recorded or not (default: the newest *.cmem in this "
        "folder)",
    )
    result.add_argument("-n", "--top", type=reading.count, default=20, metavar="N", help="processes (20)")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    if options.file.isdecimal() and not os.path.exists(options.file):
        return _now(options)
    report = reading.read(options)
    if report.host is None:
        raise Error(
            f"{options.file}: it has no samples of processes: the recording was shorter than half a second, is older "
            "than they are, or the system allows no thread with descriptors of its own"
        )
    if options.json:
        json.show(json.host(report, report.host), json_options.bounds(options))
    else:
        terminal.show(views.host(report, report.host, options.top))
    return 0


def _now(options: argparse.Namespace) -> int:
    tree = core().tree_now(int(options.file)) if len(options.file) < len(str(1 << 31)) else None
    found = None if tree is None else host.of_now(tree)
    if found is None:
        raise Error(f"{options.file} is no file, nor a process that this user may read")
    if options.json:
        json.show(json.host(None, found), json_options.bounds(options))
    else:
        terminal.show(views.host_now(found, options.top))
    return 0
