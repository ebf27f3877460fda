"""What `cuptimem doctor` runs in a process of its own: a tiny program is recorded and compared with what it held.

Prints one JSON object; whatever fails is in it as one line. The program below is compiled under a name of its own,
because cuptimem's own files never show in a stack.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import time
from importlib import import_module
from types import ModuleType
from typing import Any

FILE = "<self-test>"
PROGRAM = """\
def forward(leaf):
    return (leaf * leaf).exp()


def run(torch):
    kept = [torch.ones(1000 + 8 * i, dtype=torch.uint8) for i in range(16)]
    leaf = torch.ones(2500, requires_grad=True)
    out = forward(leaf)
    total = out.sum()
    total.backward()
    return [*kept, leaf, out, total, leaf.grad]
"""
FORWARD_LINE, KEPT_LINE = 2, 6
NODES = 3  # mul, exp, sum
DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
_CUPTI_SECONDS = 20
_ALLOC, _FREE, _NODE_NEW, _NODE_FREE = "alloc", "free", "node_new", "node_free"


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_torch(torch: ModuleType) -> dict[str, Any]:
    """Version, build and place; a torch that is only half there has None in it."""
    version = getattr(torch, "version", None)
    about: dict[str, Any] = {
        "version": str(getattr(torch, "__version__", "unknown")),
        "file": getattr(torch, "__file__", None),
        "cuda": getattr(version, "cuda", None),
        "hip": getattr(version, "hip", None),
        "debug": bool(getattr(version, "debug", False)),
        "devices": [],
        "device_problem": None,
    }
    if about["cuda"] or about["hip"]:
        try:
            about["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        except Exception as error:  # a driver may fail in any way; one line says so
            about["device_problem"] = one_line(error)
    return about


def _look_at_cuda(core: ModuleType) -> dict[str, Any]:
    """Initialises CUDA, as no recording ever does: this process ends afterwards."""
    found: dict[str, Any] = {"missing": "", "init": None, "nvml": False}
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError as error:
        found["missing"] = " ".join(str(error).split())
    else:
        found["init"] = int(driver.cuInit(0))
        try:
            ctypes.CDLL(NVML)
        except OSError:
            found["nvml"] = False
        else:
            found["nvml"] = True
    found["probe"] = core.cupti_probe()
    return found


def look(folder: str) -> dict[str, Any]:
    """Imports torch and records, as a user's program would. The trace lies in folder."""
    import cuptimem
    from cuptimem.errors import Error, recording_core

    answer: dict[str, Any] = {"torch": None, "torch_error": None, "error": None, "checks": [], "rows": []}
    torch: ModuleType | None = None
    try:
        torch = import_module("torch")
        answer["torch"] = describe_torch(torch)
    except ModuleNotFoundError as error:
        # A torch that is there but lacks a part of itself, or a package that it needs, is broken and not absent.
        answer["torch_error"] = "" if error.name == "torch" else one_line(error)
    except BaseException as error:  # an import may do anything, exit too
        answer["torch_error"] = one_line(error)
    try:
        core = recording_core()
        answer["frames"] = core.frames_init()
        answer["frame_offsets"] = core.frames_offsets()
        path = os.path.join(folder, "selftest.cmem")
        answer["driver"] = _look_at_cuda(core)
        with cuptimem.profile(path):
            answer["driver_state"] = _driver_state(core)
            answer["rows"] = core.sources_rows()
            if torch is not None and hasattr(torch, "ones"):
                answer["checks"] = _record(core, torch, path)
            answer["offsets"] = core.sources_offsets()
        meta = core.trace_meta(path)
        answer["meta"] = {key: meta.get(key, "") for key in ("ring.place", "ring.path", "nodes", "problems")}
        answer["trace_bytes"] = os.path.getsize(path)
        if answer["checks"]:
            answer["checks"].append(_joined(path))
    except (Error, OSError) as error:
        answer["error"] = " ".join(str(error).split())
    return answer


def _driver_state(core: ModuleType) -> dict[str, Any]:
    """Once it is known: CUPTI may take seconds, for which no recording waits."""
    until = time.monotonic() + _CUPTI_SECONDS
    while True:
        state: dict[str, Any] = core.cupti_state()
        if state["mode"] != "starting" or time.monotonic() > until:
            return state
        time.sleep(0.05)


def _record(core: ModuleType, torch: ModuleType, path: str) -> list[tuple[str, bool, str]]:
    namespace: dict[str, Any] = {}
    exec(compile(PROGRAM, FILE, "exec"), namespace)
    tensors = namespace["run"](torch)
    core.capture_sync()
    truth = {t.data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    live: dict[int, tuple[int, Any]] = {}
    made = ended = 0
    for row in core.trace_dump(path):
        if row[0] == _ALLOC:
            live[row[3]] = (row[4], row[5])
        elif row[0] == _FREE:
            live.pop(row[3], None)
        made += row[0] == _NODE_NEW
        ended += row[0] == _NODE_FREE
    recorded = {address: size for address, (size, _) in live.items()}
    same = sum(recorded.get(address) == size for address, size in truth.items())
    bytes_ok = recorded == truth
    frames = live[tensors[0].data_ptr()][1] if tensors[0].data_ptr() in live else ()
    place = (frames[0][0], frames[0][1]) if frames else None
    kept_nodes = made - ended
    checks = [
        (
            "bytes",
            bytes_ok,
            f"{len(truth)} tensors of {sum(truth.values())} bytes were alive, {same} of them recorded with their size"
            + (f"; {len(recorded) - same} others recorded" if len(recorded) > same else ""),
        ),
        (
            "stack",
            place == (FILE, KEPT_LINE),
            "the line that allocated was found"
            if place == (FILE, KEPT_LINE)
            else f"the line that allocated is {FILE}:{KEPT_LINE}, found was {place and f'{place[0]}:{place[1]}'}",
        ),
    ]
    tensors.clear()
    core.capture_sync()
    left = sum((row[0] == _NODE_NEW) - (row[0] == _NODE_FREE) for row in core.trace_dump(path))
    checks.append(
        (
            "nodes",
            kept_nodes == NODES and left == 0,
            f"{NODES} nodes of autograd were held, {kept_nodes} counted; {left} when they were gone",
        )
    )
    return checks


def _joined(path: str) -> tuple[str, bool, str]:
    from cuptimem.report import analyze

    peak = analyze(path).device("cpu").peak
    found = {
        (c.stack[0].file, c.stack[0].line): c.bytes for c in peak.contributors if c.phase == "backward" and c.stack
    }
    size = found.get((FILE, FORWARD_LINE), 0)
    return (
        "backward",
        size > 0,
        f"{size} bytes that backward allocated stand at the forward line"
        if size > 0
        else f"no bytes of backward stand at the forward line {FILE}:{FORWARD_LINE}",
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cuptimem-doctor-") as folder:
        answer = look(folder)
    sys.stdout.flush()
    print(f"\n{json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main()
