"""What `cuptimem doctor` runs in a process of its own: a tiny program is recorded and compared with what it held.

Prints one JSON object; whatever fails is in it as one line. CUDA is not asked for anything here, so that what a driver
or CUPTI does to its process is no verdict on the rest: selftest_cuda.py asks, in another one. The program below is
compiled under a name of its own, because cuptimem's own files never show in a stack.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from importlib import import_module
from types import ModuleType
from typing import Any

from cuptimem.doctor.selftest_cuda import one_line

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
_ALLOC, _FREE, _NODE_NEW, _NODE_FREE = "alloc", "free", "node_new", "node_free"


def describe_torch(torch: ModuleType) -> dict[str, Any]:
    """Version, build and place; a torch that is only half there has None in it."""
    version = getattr(torch, "version", None)
    return {
        "version": str(getattr(torch, "__version__", "unknown")),
        "file": getattr(torch, "__file__", None),
        "cuda": getattr(version, "cuda", None),
        "hip": getattr(version, "hip", None),
        "debug": bool(getattr(version, "debug", False)),
    }


def loaded_cupti() -> str:
    """The file of the libcupti in this process, as torch's CUDA builds bring one; "" where there is none."""
    try:
        with open("/proc/self/maps", errors="surrogateescape") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/libcupti" in line}
    except OSError:
        return ""
    return min(paths, default="")


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
        answer["cupti"] = loaded_cupti()
        with cuptimem.profile(path):
            core.capture_share()  # without torch, too, it is shown where rings would lie
            answer["rows"] = core.sources_rows()
            if torch is not None and hasattr(torch, "ones"):
                answer["checks"] = _record(core, torch, path)
            answer["offsets"] = core.sources_offsets()
        meta = core.trace_meta(path)
        answer["meta"] = {
            key: meta.get(key, "") for key in ("ring.place", "ring.path", "ring.bytes", "nodes", "problems")
        }
        answer["trace_bytes"] = os.path.getsize(path)
        if answer["checks"]:
            answer["checks"].append(_joined(path))
    except (Error, OSError) as error:
        answer["error"] = " ".join(str(error).split())
    return answer


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
    from cuptimem.report.load import analyze

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
