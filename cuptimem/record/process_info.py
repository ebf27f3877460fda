"""The meta entries of a trace about its process: command, host, versions, ranks. Loads nothing new into the program."""

import os
import sys
import time

import cuptimem
from cuptimem import environ, interpreter, sizes
from cuptimem.errors import own
from cuptimem.record import role

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIGITS = 20  # of a number in the environment; more are none of ours


def directory() -> str:
    """The working directory, "" if it has been removed."""
    try:
        return os.getcwd()
    except own(OSError):
        return ""


def _quoted(argument: str) -> str:
    """As a shell would need it (shlex would pull in half the standard library)."""
    if argument and all(c.isalnum() or c in "@%+=:,./_-" for c in argument):
        return argument
    return "'" + argument.replace("'", "'\"'\"'") + "'"


def _installed_torch() -> str | None:
    """The version of torch on the path, without importing it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        version = getattr(torch, "__version__", None)
        return None if version is None else str(version)
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except own(OSError):
            continue
        for name in names:
            if name.startswith("torch-") and name.endswith(".dist-info"):
                return name[len("torch-") : -len(".dist-info")]
    return None


def environment(forked_by: int) -> dict[str, str]:
    """The meta entries of this process's trace: key and text. forked_by: the recorded process that forked it, or 0."""
    system = os.uname()
    arguments = list(sys.orig_argv)
    meta = {
        "cuptimem": cuptimem.__version__,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "platform": f"{system.sysname} {system.release} {system.machine}",
        "host": system.nodename,
        "pid": str(os.getpid()),
        "argv": " ".join(_quoted(argument) for argument in arguments),
        "script": interpreter.script_of(arguments),
        "directory": directory(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "stdlib": os.path.dirname(os.__file__),
    }
    torch = _installed_torch()
    if torch is not None:
        meta["torch"] = torch
    if "torch" not in sys.modules:
        meta["nodes"] = "PyTorch was not imported"  # torch_events replaces it
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        value = environ.get(name)
        if value:
            meta[name.lower()] = value
    now = role.of_this_process(forked_by)
    if now:
        meta["role"] = now
    simulated = simulated_device(environ.obeyed())
    if simulated:
        meta["simulated"] = simulated
    return {key: value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for key, value in meta.items()}


def simulated_device(variables: "Mapping[str, str]") -> str:
    """The device that stands in for a GPU here: "l4, 22.0 GiB"; "" where none was preloaded."""
    if "CUPTIMEM_SIM_CHILD" not in variables and "libcuptimem_sim.so" not in variables.get("LD_PRELOAD", ""):
        return ""
    said = variables.get("CUPTIMEM_SIM_DEVICE", "") or "device"
    number, memory = variables.get("CUPTIMEM_SIM_DEVICES", ""), variables.get("CUPTIMEM_SIM_MEMORY", "")
    if number.isdecimal() and len(number) < _DIGITS and int(number) > 1:
        said = f"{int(number)} x {said}"
    if memory.isdecimal() and len(memory) < _DIGITS:
        said += f", {sizes.text(int(memory))}"
    return said
