"""What `cuptimem doctor` runs to ask CUDA's driver and CUPTI, in a process of its own: either may end it.

Prints JSON objects, one a line. Before each question goes {"asked": what it is about}, so that a process that dies says
of what; after it what was found, of which cuptimem/doctor/cupti.py makes its lines. {"asked": ""} is the last one.

CUDA is initialised here, as no recording ever does. Without a driver nothing is asked, CUPTI least of all: some
releases do not survive a call then.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import time
from importlib import import_module
from typing import Any

DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
_CUPTI_SECONDS = 20


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _say(**found: Any) -> None:
    sys.stdout.flush()
    os.write(1, f"\n{json.dumps(found)}\n".encode())  # whatever becomes of this process


def main() -> None:
    _say(asked=f"the NVIDIA driver ({DRIVER})")
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError as error:
        _say(missing=" ".join(str(error).split()))
    else:
        init = int(driver.cuInit(0))
        _say(init=init)
        if init == 0:
            _ask_device()
    _say(asked="")


def _ask_device() -> None:
    try:
        ctypes.CDLL(NVML)
    except OSError:
        _say(nvml=False)
    else:
        _say(nvml=True)
    _say(asked="PyTorch for its devices")
    _ask_torch()
    _say(asked="CUPTI (by a recording)")
    _record()


def _ask_torch() -> None:
    try:
        torch = import_module("torch")
        if torch.version.cuda or torch.version.hip:
            _say(devices=[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())])
    except ModuleNotFoundError:
        pass  # the self-test says so
    except BaseException as error:  # a driver may fail in any way, and an import may do anything
        _say(device_problem=one_line(error))


def _record() -> None:
    """The driver level's state once it is known: CUPTI may take seconds, for which no recording waits."""
    import cuptimem
    from cuptimem.errors import Error, recording_core

    with tempfile.TemporaryDirectory(prefix="cuptimem-doctor-") as folder:
        try:
            core = recording_core()
            with cuptimem.profile(os.path.join(folder, "cuda.cmem")):
                until = time.monotonic() + _CUPTI_SECONDS
                while (state := core.cupti_state())["mode"] == "starting" and time.monotonic() < until:
                    time.sleep(0.05)
                _say(state=state)
        except (Error, OSError) as error:
            _say(record_problem=one_line(error))


if __name__ == "__main__":
    main()
