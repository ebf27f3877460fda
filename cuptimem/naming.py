"""Names of trace files. Runs inside the profiled process: imports nothing that Python has not loaded by itself."""

import os

from cuptimem.errors import Error

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC = b"CUPTIMEM"  # how a trace begins (docs/trace-format.md)


def rank_of(variables: "Mapping[str, str]") -> str | None:
    """The rank of this process where a launcher started several, else None."""
    rank = variables.get("RANK", "")
    return rank if rank.isascii() and rank.isdigit() and variables.get("WORLD_SIZE", "1") != "1" else None


def default_name(script: str, pid: int, rank: str | None) -> str:
    """cuptimem-<script>.<pid>.cmem, with the rank before the pid where there is one."""
    stem = os.path.basename(script)
    if stem.endswith(".py"):
        stem = stem[:-3]
    stem = "".join(c if c.isalnum() or c in "._-" else "_" for c in stem)[:80].strip("-.") or "python"
    return f"cuptimem-{stem}.{f'rank{rank}.' if rank is not None else ''}{pid}.cmem"


def expand(template: str, pid: int, rank: str | None) -> str:
    """The template with {pid} and {rank} filled in; every other brace stays as it is."""
    return template.replace("{pid}", str(pid)).replace("{rank}", rank if rank is not None else "0")


def with_suffix(path: str, suffix: str) -> str:
    """run.cmem and 2 give run-2.cmem."""
    root, extension = os.path.splitext(path)
    return f"{root}-{suffix}{extension}"


def of_process(path: str, pid: int, rank: str | None) -> str:
    """run.cmem of one process among several: run.4711.cmem, run.rank3.4711.cmem."""
    root, extension = os.path.splitext(path)
    return f"{root}.{f'rank{rank}.' if rank is not None else ''}{pid}{extension}"


def check_target(path: str, overwrite: bool, how: str) -> None:
    """Raises Error if no trace can be made at an absolute path, or if it has a file that is not to be replaced.

    how: what its caller's user would say to replace it.
    """
    if os.path.isdir(path):
        raise Error(f"{shown(path)} is a directory; name a file in it")
    if os.path.exists(path) and not os.path.isfile(path):  # a rename would put a file where root has /dev/null
        raise Error(f"{shown(path)} is a device or a pipe; name a file")
    if os.path.lexists(path) and not overwrite:
        raise Error(f"{shown(path)} exists; choose another name, or replace it with {how}")
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise Error(f"{shown(folder)} is not a directory; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Error(f"{shown(folder)} cannot be written to; choose another place")


def free_name(path: str, first: int = 2) -> str:
    """The path itself if nothing is there, else the first of run-2.cmem, run-3.cmem, ... that is free."""
    if not os.path.lexists(path):
        return path
    number = first
    while os.path.lexists(with_suffix(path, str(number))):
        number += 1
    return with_suffix(path, str(number))


def shown(path: str, here: str | None = None) -> str:
    """The path as seen from a folder, by default the current one."""
    try:
        here = here or os.getcwd()
    except OSError:
        return path
    absolute = os.path.abspath(path)
    return absolute[len(here) + 1 :] if here != "/" and absolute.startswith(here + "/") else absolute


def typed(path: str, here: str | None = None) -> str:
    """What shown() gives, as one word of a shell's command."""
    name = shown(path, here)
    if name.startswith("-"):  # it would be an option
        name = f"./{name}"
    if all(c.isalnum() or c in "._-+=:@%,/" for c in name):
        return name
    if name.isprintable():
        return "'" + name.replace("'", "'\\''") + "'"
    return "$'" + "".join(map(_typed, name)) + "'"


def _typed(character: str) -> str:
    """Between $' and ', as bash, zsh and POSIX of 2024 have it."""
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    # Octal: the digits of \\x have no end in some shells.
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(character))
