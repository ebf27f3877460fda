"""What a case needs, and whether it is here."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess

_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


def library(name: str) -> str | None:
    """The path of a shared library of the system."""
    return next((path for folder in _FOLDERS if os.path.exists(path := f"{folder}/{name}")), None)


def missing(python: str, need: str) -> str:
    """Why a need is not met by this machine and this interpreter; "" if it is."""
    if found := re.fullmatch(r"3\.(\d+)(\+|-|)", need):
        minor, kind = int(found[1]), found[2]
        running = _minor(python)
        met = running >= minor if kind == "+" else running <= minor if kind == "-" else running == minor
        return "" if met else f"Python {need} only"
    if need == "root":
        return "" if os.geteuid() == 0 else "needs root"
    if need == "other user":
        return _other_user(python)
    if need.startswith("$"):
        return "" if shutil.which(need[1:]) else f"{need[1:]} is not installed"
    if need.startswith("bin/"):
        return "" if os.path.exists(os.path.join(os.path.dirname(python), need[4:])) else f"{need[4:]} is not installed"
    if need.startswith("lib"):
        return "" if library(need) else f"{need} is not installed"
    return _import_failure(python, need)


@functools.cache
def _minor(python: str) -> int:
    text = subprocess.run([python, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, check=True)
    return int(text.stdout)


@functools.cache
def _other_user(python: str) -> str:
    """Whether the interpreter is where another user than root may start it, with cuptimem."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return "needs root and setpriv"
    # By a shell, for setpriv itself may still do what root may as it starts a program.
    user = ["setpriv", "--reuid", "65534", "--clear-groups", "sh", "-c", '"$@"', "sh"]
    command = [*user, python, "-c", "import cuptimem"]
    return (
        "" if subprocess.run(command, capture_output=True).returncode == 0 else "other users may not start this Python"
    )


@functools.cache
def _import_failure(python: str, module: str) -> str:
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return "" if subprocess.run([python, "-c", code]).returncode == 0 else f"{module} is not installed"
