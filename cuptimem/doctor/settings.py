"""Whether recording starts by itself; variables of the environment; limits of the process."""

from __future__ import annotations

import difflib
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import cudasim
from cuptimem import environ, interpreter
from cuptimem.doctor.checks import CHILD_SECONDS, SETTINGS, SMALL_DISK, Check, child_environment
from cuptimem.output.text.words import size
from cuptimem.record import autostart
from cuptimem.report import own_code
from cuptimem.simulation import child

_SMALL_ADDRESS_SPACE = 8 << 30  # torch itself maps several GiB


def autostart_check() -> Check:
    """Whether a Python that starts with CUPTIMEM=1 records: tried."""
    if sys.flags.no_site:
        return Check(
            SETTINGS,
            "autostart",
            "warning",
            "this Python runs with -S",
            "`cuptimem run` does not record",
            "leave -S away",
        )
    program = (
        "import sys; r = sys.modules.get('cuptimem.record.recorder'); print('active' if r and r.active() else 'off')"
    )
    with tempfile.TemporaryDirectory(prefix="cuptimem-doctor-") as folder:
        output = os.path.join(folder, "autostart.cmem")
        wanted = {"CUPTIMEM": "1", "CUPTIMEM_OUTPUT": output, "CUPTIMEM_QUIET": "1"}
        options, variables = environ.given(interpreter.isolation(), wanted, child_environment())
        try:
            done = subprocess.run(
                [sys.executable, *options, "-c", program],
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=CHILD_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        else:
            if "active" in done.stdout and os.path.exists(output):
                return Check(
                    SETTINGS, "autostart", "ok", f"{autostart.FILE} is found: `cuptimem run` and CUPTIMEM=1 record"
                )
            said = next((line for line in done.stderr.splitlines() if line.startswith("cuptimem: ")), "").removeprefix(
                "cuptimem: "
            )
    cost = "`cuptimem run` and CUPTIMEM=1 do not record; cuptimem.profile() does"
    if said:
        return Check(SETTINGS, "autostart", "warning", said, cost)
    return Check(
        SETTINGS,
        "autostart",
        "warning",
        f"this Python reads no {autostart.FILE}: it is in no folder that site looks into",
        cost,
        "install cuptimem again with this Python, without CUPTIMEM_NO_PTH",
    )


def variables() -> Iterator[Check]:
    known = {*autostart.VARIABLES, "CUPTIMEM_RING_DIR", own_code.VARIABLE}
    simulated = {*cudasim.VARIABLES, child.VARIABLE, child.OFF}
    if cudasim.CORE in environ.get("LD_PRELOAD"):
        known |= simulated
    found = {name: value for name, value in sorted(environ.obeyed().items()) if name.startswith("CUPTIMEM")}
    for name in found:
        if name not in known:
            if name in simulated:
                said, cost = "for the simulated device, which is not loaded here", "it has no effect"
                yield Check(SETTINGS, name, "note", said, cost, "nothing, or see: cuptimem simulate --help")
                continue
            near = next(iter(difflib.get_close_matches(name, sorted(known), 1, 0.8)), None)
            yield Check(
                SETTINGS,
                name,
                "warning",
                "cuptimem knows no such variable",
                "it has no effect",
                f"did you mean {near}" if near else "unset it",
            )
    text = ", ".join(f"{name}={value}" for name, value in found.items() if name in known)
    yield Check(SETTINGS, "variables", "ok", text or "none of cuptimem's is set")


def _limit(which: int) -> int | None:
    value = resource.getrlimit(which)[0]
    return None if value == resource.RLIM_INFINITY else value


def limits() -> Iterator[Check]:
    space, file, locked = (
        _limit(which) for which in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_MEMLOCK)
    )

    def shown(value: int | None) -> str:
        return "unlimited" if value is None else size(value)

    text = f"address space {shown(space)}, file size {shown(file)}, locked memory {shown(locked)} (not used)"
    if space is not None and space < _SMALL_ADDRESS_SPACE:
        yield Check(
            SETTINGS,
            "ulimit -v",
            "warning",
            f"{size(space)} of address space",
            "torch alone maps several GiB; cuptimem adds 64 MiB",
            "ulimit -v unlimited",
        )
    if file is not None and file < SMALL_DISK:
        yield Check(
            SETTINGS,
            "ulimit -f",
            "warning",
            f"files end at {size(file)}",
            "a recording ends when its trace gets there; rings may find no place",
            "ulimit -f unlimited",
        )
    yield Check(SETTINGS, "limits", "ok", text)
