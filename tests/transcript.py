"""What commands print, as documents show it."""

import os
import re
import shlex
import subprocess
from pathlib import Path

_MESSAGE = 100  # characters of an exception's


def transcript(python: Path, command: str, folder: Path, *, columns: int | None = None, code: int = 0) -> str:
    """`$ cuptimem ...` and what it prints, indented. Left out: process ids, of a traceback all but its last
    line, warnings of PyTorch's C++. Raises CalledProcessError where it does not exit with that code."""
    program, *arguments = shlex.split(command, comments=True)
    assert program == "cuptimem", command
    environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    environment.update(NO_COLOR="1", PYTHONUNBUFFERED="1", **({"COLUMNS": str(columns)} if columns else {}))
    done = subprocess.run(
        [python, "-m", "cuptimem", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    if done.returncode != code:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout)
    text = re.sub(r"( ·)?\s+pid \d+", "", done.stdout).rstrip()
    text = re.sub(r"^\[W\d.*\n", "", text, flags=re.MULTILINE)  # PyTorch's own, with the time of day
    text = re.sub(r"^(Traceback .*\n)(?:[ ].*\n)+", r"\1  ...\n", f"{text}\n", flags=re.MULTILINE)
    lines = [f"$ {command}", *(_shortened(line) for line in text.splitlines())]
    return "\n".join(f"    {line}".rstrip() for line in lines)


def _shortened(line: str) -> str:
    """PyTorch's messages about refused memory go on for five lines of a terminal."""
    return f"{line[:_MESSAGE]} ..." if re.match(r"[\w.]+Error: ", line) and len(line) > _MESSAGE else line
