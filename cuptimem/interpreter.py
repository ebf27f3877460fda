"""Python's own command line. Part of every recording: imports nothing but sys."""

import sys

CALL = "cuptimem.simulation.call"  # python -m CALL FOLDER NAME calls a function of that name

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WITH_VALUE = "WX"


def _takes_value(name: str) -> bool:
    return name in ("-W", "-X", "--check-hash-based-pycs")


def split(
    arguments: "Sequence[str]", takes_value: "Callable[[str], bool | None]" = _takes_value
) -> tuple[list[list[str]], list[str]]:
    """Options before the program, each with its value, and the program: "-m" or "-c" and what follows, or a script, "-"
    or nothing. Without the interpreter's name. As CPython reads them: -Bm pkg is -B -m pkg.

    takes_value: of the option with this name, "-W" or "--long"; None for an unknown one. Python's own by default.
    """
    options: list[list[str]] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            return options, words
        if word == "-" or not word.startswith("-"):
            return options, [word, *words]
        name, flags, value = word, "", ""
        if not word.startswith("--"):
            at = next((at for at, letter in enumerate(word) if at and not _is_flag(letter, takes_value)), len(word) - 1)
            name, flags, value = f"-{word[at]}", word[1:at], word[at + 1 :]
        if name in ("-m", "-c"):
            options += [[f"-{flags}"]] if flags else []
            return options, [name, *([value] if value else []), *words]
        taken = 1 if takes_value(name) and not value else 0
        options.append([word, *words[:taken]])
        del words[:taken]
    return options, []


def _is_flag(letter: str, takes_value: "Callable[[str], bool | None]") -> bool:
    return letter not in "mc" and takes_value(f"-{letter}") is False


def without(option: list[str], letters: str) -> list[str]:
    """The option without these flags; empty if nothing is left: -Is without I is -s."""
    name = option[0]
    if name.startswith("--") or set(name) & set(_WITH_VALUE):
        return option
    left = "".join(flag for flag in name[1:] if flag not in letters)
    return [f"-{left}"] if left else []


def ignores_environment(arguments: "Sequence[str]") -> bool:
    """Whether a Python with these options obeys no environment variable (-I, -E)."""
    for name, *_ in split(arguments)[0]:
        flags = "" if name.startswith("--") else name[1:].partition("W")[0].partition("X")[0]
        if set(flags) & set("IE"):
            return True
    return False


def isolation() -> list[str]:
    """Options for another Python that is to obey no more of the environment than this one does."""
    return ["-I"] if sys.flags.isolated else ["-E"] if sys.flags.ignore_environment else []


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
