"""Tries, and commands that try, as forks of one process: to import torch is most of what one takes.

python tries_in_one.py DEVICE        for the fixture `in_one`

A request is a line of JSON: code, what it is given, the folder. The answer is one, too: what the code leaves as
`found`, or its traceback. It has `server`, which tries on that device, and `verb`. Commands share that server; those
that try on another device have one of their own.
"""

import contextlib
import io
import json
import os
import sys
import traceback
from typing import Any

from cuptimem import cli
from cuptimem.simulation import largest, tries

Server = tries.Server
kept: dict[str, Server] = {}


class Shared:
    """In the place of tries.Server: the first of its device, which stays open."""

    def __init__(self, device: Any, modules: Any = ()) -> None:
        key = repr(device)
        if key not in kept:
            kept[key] = Server(device, modules).__enter__()
        self._server = kept[key]

    def __enter__(self) -> Server:
        return self._server

    def __exit__(self, *_: object) -> None:
        return


def verb(*arguments: str) -> dict[str, Any]:
    """How a command ended."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(arguments)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def answer(code: str, given: Any, folder: str) -> dict[str, Any]:
    os.chdir(folder)
    scope = {"server": Shared(sys.argv[1]).__enter__(), "verb": verb, "given": given}
    try:
        exec(code, scope)
    except Exception:
        return {"error": traceback.format_exc()}
    return {"found": scope["found"]}


if __name__ == "__main__":
    tries.Server = largest.Server = Shared  # type: ignore[misc, assignment]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), file=answers, flush=True)
    for server in kept.values():
        server.__exit__()
