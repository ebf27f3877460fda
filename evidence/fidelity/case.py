"""One way to run a program: what it consists of, what bare Python does with it, and what it needs."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """A program that is run twice: bare, and recorded.

    `code` and `shows` say what bare Python does, so that a program that fails for another reason than the one it is
    here for is not taken for an equal one.
    """

    name: str
    files: Mapping[str, str]
    # `python` is the interpreter, `@` the place of `-m cuptimem run`, which is empty in the bare run.
    command: str = "python @ s.py"
    shell: bool = False  # the command is the shell's, not one program with its arguments
    options: str = ""  # of `cuptimem run`
    by_environment: bool = False  # recorded by CUPTIMEM=1 instead: `@` stays empty
    stdin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)  # "{work}" is the folder that it runs in
    terminal: bool = False  # standard input, output and error are one terminal
    signals: tuple[signal.Signals, ...] = ()  # one for each line "ready" that the program writes
    code: int = 0  # exit code; negative: a signal
    shows: str = ""  # part of its standard output or error
    hides: str = ""  # in no output of either run: for programs that use cuptimem themselves
    traces: int | None = 1  # how many it leaves; None: that depends on a race in the program
    outputs: tuple[str, ...] = ()  # files that it writes and that are compared
    normal: tuple[tuple[str, str], ...] = ()  # regular expression, replacement: what cannot be equal in this case
    # Modules ("coverage"), Pythons ("3.12+"), libraries ("libjemalloc.so.2"), commands ("$strace"), "root".
    needs: tuple[str, ...] = ()
    known: str = ""  # why recording cannot but be seen here; the result names it
    fixed: bool = False  # part of `make test`
    timeout: float = 60


def program(name: str, source: str, *, before: str = "", **more: object) -> Case:
    """A case whose program is one script, s.py, with `before` in front of it, perhaps with more files."""
    files = {"s.py": before.lstrip("\n") + textwrap.dedent(source).lstrip("\n")}
    for path, text in more.pop("files", {}).items():  # type: ignore[attr-defined]
        files[path] = textwrap.dedent(text).lstrip("\n")
    return Case(name, files, **more)  # type: ignore[arg-type]


def torch_program(name: str, source: str, **more: object) -> Case:
    """The same with PyTorch, which takes seconds to import where other programs run."""
    needs = ("torch", *more.pop("needs", ()))  # type: ignore[misc]
    return program(name, source, **{"needs": needs, "timeout": 180, **more})  # type: ignore[arg-type]
