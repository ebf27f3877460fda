"""`cuptimem simulate`, but that whoever holds the other end of a socket runs the programs.

python simulate_in_forks.py SOCKET ARGUMENTS     SOCKET: its name, without the null byte; for the fixture `simulate`

A request is a line of JSON, the command and its environment; so is the answer, the exit code and what was printed. A
program with a limit of time of its own is run as always.
"""

import json
import os
import runpy
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuptimem.simulation import api, launch

Run = Callable[..., Any]


def replaced(run: Run, lines: Any, *more: frozenset[int]) -> Run:
    """For launch._run_quietly and launch._run_forwarding: more is what the latter says of signals."""

    def call(
        command: Sequence[str], variables: Mapping[str, str], actions: Sequence[tuple[Any, ...]], timeout: float | None
    ) -> Any:
        if timeout != api.TIMEOUT:
            return run(command, variables, actions, timeout)
        lines.write(json.dumps({"command": command, "environment": dict(variables), "cwd": os.getcwd()}) + "\n")
        lines.flush()
        answer = json.loads(lines.readline())
        show(answer["out"], answer["err"], actions)
        return answer["code"], False, *more

    return call


def show(out: str, err: str, actions: Sequence[tuple[Any, ...]]) -> None:
    """Where those file actions would have had it."""
    if not actions:
        print(out, end="", flush=True)
        print(err, end="", file=sys.stderr, flush=True)
    elif actions[0][0] == os.POSIX_SPAWN_DUP2:
        print(out + err, end="", file=sys.stderr, flush=True)
    else:
        with open(actions[1][2], "w", encoding="utf-8") as file:
            file.write(out + err)


if __name__ == "__main__":
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("\0" + sys.argv.pop(1))
    lines = connection.makefile("rw")
    launch._run_quietly = replaced(launch._run_quietly, lines)
    launch._run_forwarding = replaced(launch._run_forwarding, lines, frozenset())
    runpy.run_module("cuptimem", run_name="__main__", alter_sys=True)
