"""Memory that CUDA itself hands out, to any client: starts and stops the CUPTI thread, and notes its mode in the trace.

Runs inside the profiled process: imports nothing that Python has not loaded by itself. Everything is done in C
(csrc/sources/cupti/cupti.h); in a process that never uses CUDA that is a comparison of two numbers now and then.
"""

import sys

from cuptimem.errors import own

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from cuptimem.record.recorder import Options

PERIOD_MS = 200  # between two polls of records and devices
WAIT_MS = 1000  # for the subscription, where CUDA is in use when the profile starts
UNUSED = "CUDA was not used"
TOO_SLOW = "CUPTI did not answer in time"
THEIRS = "torch.profiler was recording, and CUPTI's records are its own then (start it after this profile)"
TURNED_OFF = "it was turned off (driver=False, --no-driver)"

_COUNTS = ("callbacks", "records", "dropped", "foreign_buffers", "unknown_records")
_BUSY = 16  # EBUSY

_wanted = False
_kernels = False
_records = True
_problem = ""  # why it cannot even be started
_said: set[str] = set()
_say: "Callable[[str], None] | None" = None


def start(core: "ModuleType", options: "Options", say: "Callable[[str], None]") -> None:
    """Subscribes before recording starts. Nothing is lost until then, because relocation slots record meanwhile.
    say: gets a line for each thing that the user should know. Never raises: tensors are recorded without it."""
    global _wanted, _kernels, _records, _problem, _say
    _said.clear()
    _say = say
    _wanted, _kernels, _problem = options.driver, options.kernels, ""
    if not _wanted:
        return
    # It may be one that holds no subscription: taking CUPTI's buffers would leave it without its own, unnoticed.
    _records = not getattr(sys.modules.get("torch.autograd.profiler"), "_is_profiler_enabled", False)
    try:
        core.cupti_start(_kernels, _records, PERIOD_MS, WAIT_MS, lambda: _note_mode(core))
    except own(OSError) as error:
        _wanted = False
        _problem = f"its thread cannot be started: {error.strerror or error}"
        if error.errno == _BUSY:
            _problem = "CUPTI has not let go of the last profile's thread"


def begin(core: "ModuleType") -> None:
    """Takes the first sample of the devices, once recording is on and PyTorch's older blocks are in the trace."""
    if _wanted:
        core.cupti_flush(False)
    if _problem or _wanted and core.cupti_state()["mode"] not in ("off", "waiting", "starting"):
        _note_mode(core)


def flush(core: "ModuleType", last: bool = False) -> None:
    """Writes what CUPTI still holds into the rings, while recording is on. last: incomplete records, too."""
    if _wanted:
        core.cupti_flush(last)


def stop(core: "ModuleType") -> dict[str, str]:
    """Stops and unloads all of it. Returns notes for the trace."""
    global _wanted
    if _wanted:
        core.cupti_stop()
    found = _notes(core)
    _warn(found)
    _wanted = False
    return found


def forget(core: "ModuleType") -> None:
    """Drops the parent's state in a forked child."""
    global _wanted
    _wanted = False
    core.cupti_forget()


def _note_mode(core: "ModuleType") -> None:
    """Notes the changed mode in the trace at once, so that a killed process has it there, too."""
    found = _notes(core)
    try:
        core.capture_note(found)
    except own(OSError) as error:
        if _say is not None:
            _say(f"the driver level could not be written to the trace: {error.strerror or error}")
    _warn(found)


def version_text(version: int) -> str:
    """cuptiGetVersion's number in words: 130001 is of CUDA 13.0; up to CUDA 12.9 it only counts."""
    if version >= 100000:
        return f"CUPTI {version // 10000}.{version // 100 % 100} ({version})"
    return f"CUPTI of interface {version}" if version else "CUPTI of unknown version"


def _notes(core: "ModuleType") -> dict[str, str]:
    """The meta keys: driver is callbacks, slots or none; driver.reason why not more; driver.cupti version and path;
    driver.kernels yes, no, or refused: requested, and not delivered, or not until the end."""
    if not _wanted:
        return {"driver": "none", "driver.reason": _problem or TURNED_OFF}
    state = core.cupti_state()
    mode, reason = state["mode"], state["reason"]
    if mode == "starting":  # still, at the end
        mode, reason = "slots", TOO_SLOW
    if mode not in ("callbacks", "slots"):
        return {"driver": "none", "driver.reason": reason or UNUSED}
    if not _records and not reason:
        reason = THEIRS
    found = {
        "driver": mode,
        "driver.reason": reason,
        "driver.cupti": f"{version_text(state['version'])}, {state['path']}" if state["path"] else "",
        "driver.interface": "multi-subscriber" if state["v2"] else "single",
        "driver.activity": "yes" if state["activity"] else "no",
        "driver.kernels": "yes" if state["kernels"] else "refused" if _kernels else "no",
        "driver.time_base_changed": "yes" if state["time_base_changed"] else "no",
    }
    found.update({f"driver.{name}": str(state[name]) for name in _COUNTS})
    return found


def _warn(found: dict[str, str]) -> None:
    """Prints one line where something is missing although CUDA is used."""
    mode, reason = found["driver"], found["driver.reason"]
    if _say is None or not reason or reason in (UNUSED, TURNED_OFF) or reason in _said:
        return
    if mode == "callbacks" and found["driver.kernels"] != "refused":
        return  # only the second source is missing, or events before it was subscribed
    _said.add(reason)
    if mode == "callbacks":
        _say(f"kernels are not recorded from now on: {reason}")
    elif mode == "slots":
        kernels = ", nor are kernels" if _kernels else ""
        _say(f"memory that libraries take from CUDA by themselves is not recorded{kernels}: {reason}")
    else:
        _say(f"memory that CUDA gives to others than PyTorch is not recorded: {reason}")
