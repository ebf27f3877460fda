"""Python's own command line. Part of every recording: imports nothing but sys."""

import sys

CALL = "cuptimem.simulation.call"  # python -m CALL FOLDER NAME calls a function of that name

_WITH_VALUE = "WX"
_LONG_WITH_VALUE = "--check-hash-based-pycs"


def split(arguments: list[str]) -> tuple[list[list[str]], list[str]]:
    """Options before the program, each with its value, and the program: "-m" or "-c" and what follows, or a script, "-"
    or nothing. Without the interpreter's name. As CPython reads them: -Bm pkg is -B -m pkg."""
    options: list[list[str]] = []
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        at += 1
        if argument == "--":
            return options, arguments[at:]
        if argument == "-" or not argument.startswith("-"):
            return options, arguments[at - 1 :]
        option = [argument]
        if argument.startswith("--"):
            takes_next = argument == _LONG_WITH_VALUE
        else:
            last = next((index for index, flag in enumerate(argument) if flag in f"{_WITH_VALUE}mc"), len(argument))
            if argument[last : last + 1] in ("m", "c"):
                before, rest = argument[1:last], argument[last + 1 :]
                if before:
                    options.append([f"-{before}"])
                return options, [f"-{argument[last]}", *([rest] if rest else []), *arguments[at:]]
            takes_next = last == len(argument) - 1
        if takes_next:
            option += arguments[at : at + 1]
            at += 1
        options.append(option)
    return options, []


def without(option: list[str], letters: str) -> list[str]:
    """The option without these flags; empty if nothing is left: -Is without I is -s."""
    name = option[0]
    if name.startswith("--") or set(name) & set(_WITH_VALUE):
        return option
    left = "".join(flag for flag in name[1:] if flag not in letters)
    return [f"-{left}"] if left else []


def script_of(arguments: list[str]) -> str:
    """What this interpreter was asked to run: the script, the module after -m, "-c", "-" or "" for a prompt.

    For cuptimem.simulate(function) the function's name.
    """
    program = split(arguments[1:])[1]
    if program[:2] == ["-m", CALL]:
        return program[-1]
    if program[:1] == ["-m"]:
        return program[1] if len(program) > 1 else ""
    return program[0] if program else ""


def flags() -> list[str]:
    """The options this Python was started with, for the program: `python -X dev -i -m cuptimem run ...`.

    An installed `cuptimem` command may carry -I, -E, -s or -P in its first line. They protect the command, so the
    program does not get them.
    """
    options, program = split(sys.orig_argv[1:])
    if program[:1] != ["-m"]:
        options = [without(option, "IEsP") for option in options]
    return [part for option in options for part in option]
