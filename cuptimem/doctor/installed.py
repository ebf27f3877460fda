"""Python, the C core, the system and the packages that cuptimem uses."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib import metadata

import cuptimem
from cuptimem.doctor.checks import INSTALLED, Check
from cuptimem.errors import Error, core, recording_core

_MINORS = ((3, 11), (3, 12), (3, 13), (3, 14), (3, 15))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _python() -> Check:
    abi = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    text = f"{platform.python_implementation()} {platform.python_version()} ({abi}) at {sys.executable}"
    minors = "3.11 to 3.15"
    if sys.implementation.name != "cpython" or sys.version_info[:2] < _MINORS[0]:
        return Check(INSTALLED, "Python", "failed", text, "nothing can be recorded", f"use CPython {minors}")
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if not gil or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return Check(
            INSTALLED,
            "Python",
            "failed",
            text + ", free-threaded",
            "nothing can be recorded or read",
            f"run the program with a Python that has the GIL ({minors})",
        )
    if sys.version_info[:2] not in _MINORS:
        return Check(
            INSTALLED,
            "Python",
            "warning",
            text,
            "cuptimem was never run with it: stacks may be missing",
            f"use {minors}",
        )
    return Check(INSTALLED, "Python", "ok", text)


def _core_check() -> Check:
    try:
        module = core()
        recording_core()
    except Error as error:
        return Check(INSTALLED, "C core", "failed", " ".join(str(error).split()), "nothing can be recorded")
    return Check(INSTALLED, "C core", "ok", str(module.__file__))


def _simulate_check() -> Check:
    """Whether `cuptimem simulate` could run here; a lack of it is no fault."""
    from cuptimem.simulation import environment, launch

    try:
        build = environment.check()
        libraries = launch.preload(tempfile.gettempdir())
    except Error as error:
        return Check(INSTALLED, "simulate", "note", " ".join(str(error).split()), "no GPU can be simulated")
    return Check(
        INSTALLED,
        "simulate",
        "ok",
        f"torch {build.version}, CUDA {build.cuda}, runs on {os.path.dirname(libraries[0])}",
    )


def checks() -> Iterator[Check]:
    yield Check(INSTALLED, "cuptimem", "ok", f"{cuptimem.__version__} at {os.path.dirname(cuptimem.__file__)}")
    yield _python()
    yield _core_check()
    libc = " ".join(platform.libc_ver()).strip() or "unknown"
    machine = platform.machine()
    text = f"{platform.system()} {platform.release()} {machine}, {libc}"
    if platform.system() != "Linux":
        yield Check(INSTALLED, "system", "failed", text, "nothing can be recorded; reports can be read", "use Linux")
    elif machine != "x86_64":
        yield Check(INSTALLED, "system", "warning", text, "on such a processor cuptimem was run in an emulator alone")
    else:
        yield Check(INSTALLED, "system", "ok", text)
    rich = _version("rich")
    if rich is None:
        yield Check(
            INSTALLED,
            "rich",
            "warning",
            "not installed",
            "no tables on a terminal",
            f"{sys.executable} -m pip install rich",
        )
    else:
        yield Check(INSTALLED, "rich", "ok", rich)
    yield _simulate_check()
    numpy = _version("numpy")
    yield Check(INSTALLED, "numpy", "ok" if numpy else "note", numpy or "not installed (cuptimem does not need it)")
