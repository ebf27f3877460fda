"""What doctor finds as a file for a bug report: with versions, settings and limits, without private paths and names."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

from cuptimem import environ
from cuptimem.doctor.checks import Diagnosis
from cuptimem.output.scrubbing import Scrubber

# Installed packages that decide what is recorded, or which PyTorch this is: by name, or by how the name begins.
_PACKAGES = re.compile(
    r"(?:cuptimem|torch\w*|triton|numpy|rich|jinja2|cloudpickle|pytest(?:-xdist)?|transformers|accelerate|lightning"
    r"|pytorch-lightning|deepspeed|bitsandbytes|flash-attn|xformers|jax\w*|cupy\w*|tensorflow|ray|dask|distributed"
    r"|ipython|ipykernel|tensorboard|nvidia-.*|cuda-.*)$",
    re.IGNORECASE,
)
_VARIABLES = re.compile(r"(?:CUPTIMEM|PYTORCH|TORCH|CUDA|NVIDIA|NCCL|OMP|MKL|MALLOC|LD_|PYTHON)")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH|COOKIE|DSN|PROXY|RUN_ID", re.IGNORECASE)
_SYSTEM = ("/dev/", "/proc/", "/sys/", "/usr/", "/lib", "/etc/", "/opt/", "/run/", "/tmp", "/var/tmp")
_PATH = re.compile(r"(?<![\w./~>-])/[\w.@+~ -]*[\w@+~-](?:/[\w.@+~-]+)*/?")
_BELOW = re.compile(r"(~|<here>|<tmp>)/[\w.@+~ -]*[\w@+~-](?:/[\w.@+~-]+)+(?![\w-])")
_LIMITS = ("memory.max", "memory.high", "cpu.max", "pids.max")


def contents(diagnosis: Diagnosis) -> dict[str, Any]:
    """All of it, as JSON can have it: doctor's own keys, then `packages`, `python`, `system`, `variables`."""
    found = {
        **diagnosis.to_dict(),
        "packages": dict(sorted(_packages())),
        "python": _python(),
        "system": _system(),
        "variables": dict(sorted(_variables())),
    }
    scrubbed: dict[str, Any] = _each_text(found, _scrubber(found))
    return scrubbed


def _packages() -> Iterator[tuple[str, str]]:
    for one in metadata.distributions():
        name = one.metadata["Name"] if one.metadata is not None else None
        if name and _PACKAGES.match(name):
            yield name, one.version


def _variables() -> Iterator[tuple[str, str]]:
    """What may be a secret is only said to be set."""
    for name, value in environ.inherited().items():
        if _VARIABLES.match(name):
            yield name, "<set>" if _SECRET.search(name) or "://" in value else value


def _python() -> dict[str, Any]:
    flags = {name: getattr(sys.flags, name) for name in ("optimize", "isolated", "no_site", "dev_mode", "safe_path")}
    return {
        "version": sys.version,
        "build": sysconfig.get_config_var("CONFIG_ARGS") or "",
        "compiler": platform.python_compiler(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "shared": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
        "flags": flags,
        "virtual": sys.prefix != sys.base_prefix,
    }


def _system() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "distribution": _line_of("/etc/os-release", "PRETTY_NAME=").strip('"'),
        "processor": _line_of("/proc/cpuinfo", "model name").lstrip("\t: "),
        "processors": len(os.sched_getaffinity(0)),
        "memory": _line_of("/proc/meminfo", "MemTotal:").strip(),
        "limits": {name: _first_line(f"/sys/fs/cgroup/{name}") for name in _LIMITS},
        "ptrace_scope": _first_line("/proc/sys/kernel/yama/ptrace_scope"),
        "perf_event_paranoid": _first_line("/proc/sys/kernel/perf_event_paranoid"),
        "driver": _first_line("/proc/driver/nvidia/version"),
    }


def _first_line(path: str) -> str:
    """Empty: there is none, or it may not be read."""
    return _line_of(path, "")


def _line_of(path: str, begin: str) -> str:
    """The rest of the first line that begins so."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return next((line[len(begin) :].rstrip("\n") for line in file if line.startswith(begin)), "")
    except OSError:
        return ""


def _each_text(item: Any, change: Callable[[str], str]) -> Any:
    if isinstance(item, str):
        return change(item)
    if isinstance(item, Mapping):
        return {key: _each_text(value, change) for key, value in item.items()}
    return [_each_text(one, change) for one in item] if isinstance(item, list | tuple) else item


def _scrubber(found: Any) -> Callable[[str], str]:
    """Folders of this Python and program become words. Of paths below the home, the working directory and
    the one for temporary files, and below others that are not the system's, only the last name stays."""
    texts: list[str] = []

    def see(text: str) -> str:
        texts.append(text)
        return text

    _each_text(found, see)
    scrubber = Scrubber(
        [("meta", "host", socket.gethostname()), *(("string", "", text) for text in texts)], owner=_user()
    )
    folders = {
        os.path.realpath(os.path.dirname(os.path.dirname(os.path.dirname(__file__)))): "<cuptimem>",
        tempfile.gettempdir(): "<tmp>",
        os.getcwd(): "<here>",
        sys.base_prefix: "<python>",
        sys.prefix: "<prefix>",
        os.path.expanduser("~").rstrip("/"): "~",
    }
    known = {folder: word for folder, word in folders.items() if folder.count("/") > 1}
    longest = sorted(known, key=len, reverse=True)

    def change(text: str) -> str:
        for folder in longest:
            text = re.sub(rf"{re.escape(folder)}(?![\w-])", known[folder], text)
        text = _BELOW.sub(lambda match: f"{match[1]}/{_last_name(match[0])}", text)
        text = _PATH.sub(lambda match: _last_name(match[0]), text)
        return scrubber.without_names(text)

    return change


def _last_name(path: str) -> str:
    is_of_system = path.startswith(_SYSTEM) and not path.startswith(("/tmp/", "/var/tmp/"))
    return path if is_of_system or path.count("/") < 2 else f".../{path.rstrip('/').rpartition('/')[2]}"


def _user() -> tuple[str, str] | None:
    """As scrub has it: root is a word of code."""
    import pwd

    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        return None
    return (user.pw_name, user.pw_dir.rstrip("/")) if user.pw_uid else None
