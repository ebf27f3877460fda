"""cuptimem stop PID"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import asking, reading, window
from cuptimem.errors import Error


def parser() -> argparse.ArgumentParser:
    result = reading.bare_parser("stop", "Ends the window that `cuptimem start PID` opened, and prints its summary.")
    window.add_pid(result)
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    pid: int = options.pid
    asking.check(pid)
    path = asking.listening(pid)
    if path is None:
        raise Error(f"process {pid} is not in standby, so no window is open")
    asked = asking.Asked(pid, path, {"verb": "stop"})
    place = asking.root(pid)
    try:
        found = asked.answer(asking.PATIENCE)
    except TimeoutError:
        raise Error(
            f"process {pid} does not answer: {asking.why_silent(pid)}; its trace can be read as it is"
        ) from None
    asked.close()
    if not found:
        raise Error(f"process {pid} ended before it answered; its trace has everything up to then")
    window.show(options, place + found["path"])
    return 0
