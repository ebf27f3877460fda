"""Whether a program can be simulated in this environment: found out before anything runs, without importing torch."""

import ast
import os
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from cuptimem.errors import Error

_TESTED = "2.14.1"
_MAJORS = ("12", "13")  # of CUDA
_INDEX = "https://download.pytorch.org/whl/cu130"


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """The contents of torch/version.py."""

    version: str
    cuda: str | None  # "13.0"; None: a CPU build
    hip: str | None


def check() -> TorchBuild:
    """The installed torch, if a simulated device can stand under it.

    Raises Error, one line with the command that helps, where it cannot: no Linux with glibc, no torch, a torch without
    CUDA or with one that is not simulated.
    """
    _check_system()
    build = installed_torch()
    if build is None:
        raise Error(f"there is no torch in {sys.executable} to simulate a GPU for; install it: {_install(_TESTED)}")
    if build.hip is not None:
        raise Error(
            f"torch {build.version} is a ROCm build, and only CUDA is simulated; a CUDA build needs no GPU to be "
            f"installed or simulated: {_install(build.version)}"
        )
    if build.cuda is None:
        raise Error(
            f"torch {build.version} is a CPU-only build: the allocator that would be simulated is not in it. A CUDA "
            f"build needs no GPU to be installed or simulated: {_install(build.version)}"
        )
    if build.cuda.split(".")[0] not in _MAJORS:
        raise Error(
            f"torch {build.version} is built for CUDA {build.cuda}; only CUDA {' and '.join(_MAJORS)} are simulated: "
            f"{_install(build.version)}"
        )
    return build


def _check_system() -> None:
    if sys.platform != "linux":
        raise Error(
            f"a simulated GPU needs Linux with glibc (this is {sys.platform}); traces from one can be read here"
        )
    if libc() is None:
        raise Error(
            "a simulated GPU needs glibc (this Python runs on another C library, such as musl's, for which there is no "
            "CUDA build of torch); use an image like python:3.12-slim"
        )


def libc() -> str | None:
    """ "glibc 2.36", or None with another C library."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None
    return text if text and text.startswith("glibc") else None


def installed_torch() -> TorchBuild | None:
    """The version of the torch on this interpreter's path. Raises Error where its version.py has none."""
    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return None
    path = os.path.join(os.path.dirname(spec.origin), "version.py")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise Error(f"cannot tell which torch this is: {path}: {error.strerror}") from error
    version = _value(text, "__version__")
    if version is None:
        raise Error(f"cannot tell which torch this is: {path} names no version")
    return TorchBuild(version, _value(text, "cuda"), _value(text, "hip"))


def _value(text: str, name: str) -> str | None:
    match = re.search(rf"^{name}\s*(?::[^=\n]+)?=\s*(.+)$", text, re.MULTILINE)
    if match is None:
        return None
    try:
        value = ast.literal_eval(match[1].strip())
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, str) and value else None


def _install(version: str) -> str:
    """The command that puts a CUDA 13 build in its place: the same version, if that has one."""
    plain = version.split("+")[0]
    numbers = [int(part) for part in re.findall(r"\d+", plain)[:2]]
    wanted = plain if re.fullmatch(r"[\d.]+", plain) and numbers >= [2, 11] else _TESTED
    return f"{sys.executable} -m pip install --force-reinstall torch=={wanted} --index-url {_INDEX}"
