"""cuptimem start PID"""

import argparse
from collections.abc import Sequence

from cuptimem import naming
from cuptimem.cli import asking, parsing, reaching, streams, window


def parser() -> argparse.ArgumentParser:
    result = parsing.Parser(
        "start",
        description="Opens a window on a running process, as `cuptimem window` does, and returns. It ends with "
        "`cuptimem stop PID`, or with the process.",
    )
    window.add_pid(result)
    window.add_output(result)
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    pid: int = options.pid
    path = reaching.socket_of(pid)
    fields = {"verb": "start", "force": "1" if options.force else "", **asking.target(pid, options.output)}
    asked = asking.Asked(pid, path, fields)
    trace = asking.opened(pid, asked)
    asked.close()
    shown = naming.shown(asking.root(pid) + trace)
    streams.complain(f"recording process {pid} into {shown}; end it: cuptimem stop {pid}")
    return 0
