"""Several `cuptimem max-batch` whose tries are forks of one process: to import torch is most of what one takes.

python largest_in_one.py        for the fixture `ask`

A request is a line of JSON, the folder and the arguments. The answer is one, too: the exit code and what was printed.
All are to be on one device.
"""

import contextlib
import io
import json
import os
import sys
from typing import Any

from cuptimem import cli
from cuptimem.simulation import largest, tries

kept: dict[Any, tries.Server] = {}


class Shared:
    """In the place of tries.Server: the first of its device, which stays open."""

    def __init__(self, setup: Any, modules: Any) -> None:
        self.key = repr(setup)
        if self.key not in kept:
            assert not kept, "another device needs a server of its own"
            kept[self.key] = tries.Server(setup, modules).__enter__()

    def __enter__(self) -> tries.Server:
        return kept[self.key]

    def __exit__(self, *_: object) -> None:
        return


def answer(folder: str, arguments: list[str]) -> dict[str, Any]:
    os.chdir(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["max-batch", *arguments])
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    largest.Server = Shared  # type: ignore[misc, assignment]
    shown = sys.stdout
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(answer(asked["folder"], asked["arguments"])), file=shown, flush=True)
    for server in kept.values():
        server.__exit__()
