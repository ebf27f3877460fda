"""The parser of every verb: wrong usage is one line and exit code 2."""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from cuptimem import interpreter
from cuptimem.cli.streams import complain

_FIRST_OF_A_PROGRAM = {"-m": "module", "-c": "program"}


class Parser(argparse.ArgumentParser):
    """ArgumentParser without abbreviations, and with errors of one line."""

    def __init__(self, verb: str, **how: Any) -> None:
        super().__init__(prog=f"cuptimem {verb}", allow_abbrev=False, exit_on_error=False, **how)

    def error(self, message: str) -> NoReturn:
        complain(f"{message}; see: {self.prog} --help", self.prog)
        sys.exit(2)

    def print_help(self, file: Any = None) -> None:
        """As argparse prints it, but errors of writing are raised."""
        print(self.format_help(), end="", file=file)

    # Argparse's overloads only relate the namespace's type to the result's.
    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """The options. Ends the process with exit code 2 and one line for wrong usage."""
        try:
            options, left = self.parse_known_args(args, namespace)
        except argparse.ArgumentError as error:
            self.error(_message(error))
        if left:
            unknown = next((word for word in left if word.startswith("-")), None)
            self.error(f"{left[0]!r} is one argument too many" if unknown is None else self._unknown(unknown))
        if "file" in options and options.file is None:
            options.file = self._newest_here()
        return options

    def parse_before_program(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The options before the program, and as `program` the program with its arguments: see interpreter.split."""
        takes_value = self.own_options().get
        own, program = interpreter.split(arguments, takes_value)
        if not program and interpreter.split([*arguments, "-"], takes_value)[0] != own:
            self.error(f"{arguments[-1]} needs a value")
        options = self.parse_args([word for option in own for word in option])
        options.program = program
        if len(program) == 1 and program[0] in _FIRST_OF_A_PROGRAM and arguments[-2:-1] != ["--"]:
            self.error(f"{program[0]} needs a {_FIRST_OF_A_PROGRAM[program[0]]}")
        return options

    def own_options(self) -> dict[str, bool]:
        """Every option by each of its names, and whether it takes a value."""
        # argparse has no public list of its options; shtab and argcomplete read this one, too.
        return {name: action.nargs != 0 for name, action in self._option_string_actions.items()}

    def _newest_here(self) -> str:
        """The trace that was written to last in the current folder; prints its name on standard error."""
        try:
            with os.scandir(".") as entries:
                found = [(when, entry.name) for entry in entries if (when := _written(entry)) is not None]
        except OSError as error:
            self.error(f"this folder cannot be read: {error.strerror}; name FILE")
        if not found:
            complain(
                "no FILE is named and no trace (*.cmem) is in this folder; make one: cuptimem run script.py", self.prog
            )
            sys.exit(2)
        newest = max(found)[1]
        complain(f"reading {newest}, the newest here")
        return newest

    def _unknown(self, word: str) -> str:
        near = difflib.get_close_matches(word.partition("=")[0], self.own_options(), n=1, cutoff=0.75)
        return f"unknown option {word}" + (f", did you mean {near[0]}?" if near else "")


def name(text: str) -> str:
    """An argument that names a file to write."""
    if not text:
        raise argparse.ArgumentTypeError("needs a name of a file")
    return text


def _written(entry: "os.DirEntry[str]") -> int | None:
    """When a trace was last written to, in nanoseconds; None for anything else."""
    try:
        hidden = entry.name.startswith(".")  # a temporary file of cuptimem
        is_trace = entry.name.endswith(".cmem") and not hidden and entry.is_file()
        return entry.stat().st_mtime_ns if is_trace else None
    except OSError:  # it was removed since the folder was read
        return None


def _message(error: argparse.ArgumentError) -> str:
    name = (error.argument_name or "").rpartition("/")[2]
    message = "needs a value" if error.message == "expected one argument" else error.message
    if not name:  # the error is about several arguments that are missing
        return message
    message = re.sub(r"invalid \w+ value: ", "invalid number: ", message)  # argparse names the function of the type
    # Our messages are predicates of the option; those of argparse are whole sentences.
    return f"{name} {message}" if message.startswith(("needs ", "takes ")) else f"{name}: {message}"
