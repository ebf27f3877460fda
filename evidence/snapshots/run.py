"""python -m evidence.snapshots.run PROGRAM FOLDER: a program under cuptimem and PyTorch's own recorder at once.

Leaves trace.cmem and snapshot.pickle, or refused.txt with what PyTorch said in the place of a snapshot; unknown.txt
where it does not know the setting.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import cuptimem
from evidence.snapshots.programs import PROGRAMS
from tests.on_device.simulated.ending import leave


def main() -> None:
    program, folder = PROGRAMS[sys.argv[1]], Path(sys.argv[2])
    try:
        torch.cuda.init()
    except RuntimeError as error:
        if "Unrecognized CachingAllocator option" not in str(error):
            raise
        (folder / "unknown.txt").write_text(str(error).splitlines()[0])
        leave()
    try:
        torch.cuda.memory._record_memory_history("all", context="all", stacks="python")
    except RuntimeError as error:
        (folder / "refused.txt").write_text(str(error).splitlines()[0])
    with cuptimem.profile(folder / "trace.cmem"):
        alive = program()
        if not (folder / "refused.txt").exists():
            try:
                torch.cuda.memory._dump_snapshot(str(folder / "snapshot.pickle"))
            except RuntimeError as error:
                (folder / "refused.txt").write_text(str(error).splitlines()[0])
        stats = torch.cuda.memory_stats()
        (folder / "stats.json").write_text(json.dumps({"torch": torch.__version__, **stats}))
    del alive


if __name__ == "__main__":
    main()
    leave()
