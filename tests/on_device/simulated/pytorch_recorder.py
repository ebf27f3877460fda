"""python -m tests.on_device.simulated.pytorch_recorder TRACE: PyTorch's own recorder beside cuptimem; every stack is
compared.

Prints as JSON how many there were, and what PyTorch's own tools make of the snapshot.
"""

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import torch
from torch.cuda import _memory_viz

import cuptimem
from cuptimem import _core
from tests.on_device.simulated import checks, recorded, torch_memory
from tests.on_device.simulated.ending import leave
from tests.on_device.simulated.programs import gpt_fp32


def ours(stack: tuple[Any, ...] | None) -> list[tuple[str, int, str]]:
    assert stack is not None, "a stack was lost"
    return [(file, line, function.rpartition(".")[2]) for file, line, function, *_ in stack]


def theirs(frames: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(frame["filename"], frame["line"], frame["name"]) for frame in frames]


def main() -> None:
    trace = Path(sys.argv[1])
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python")
    with cuptimem.profile(trace):
        gpt_fp32.main(lambda label, quiet=False, held=0: None)
        _core.capture_sync()
        devices, _ = recorded.replay(_core.trace_dump(str(trace)))
        said = torch_memory.device(0)
    stacks = devices[0].stacks
    checks.same_list("stacks", [ours(stack) for stack in stacks], [theirs(frames) for frames in said.frames])
    file = trace.with_suffix(".pickle")
    torch.cuda.memory._dump_snapshot(str(file))
    snapshot = pickle.loads(file.read_bytes())
    page = _memory_viz.trace_plot(snapshot)
    print(
        json.dumps(
            {
                "stacks": len(stacks),
                "with frames": sum(bool(stack) for stack in stacks),
                "deepest": max(len(stack or ()) for stack in stacks),
                "segments": len(snapshot["segments"]),
                "page": len(page),
                "summary": len(_memory_viz.segsum(snapshot)),
                "trace": _memory_viz.trace(snapshot).count("\n"),
            }
        )
    )


if __name__ == "__main__":
    main()
    leave()
