"""A model of 96 MiB from a mapped file: what keeps the file mapped while it is trained, with clean twins.

python mapped.py NAME: writes what /proc shows of the file behind the last step to file-PID.json.
"""

import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy
import torch

from tests.tools.host.ranks import until

ROWS, COLUMNS = 6144, 4096
FILE = Path("weights").absolute()


def resident() -> int:
    """Bytes of the file that this process has."""
    inside, found = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *values = line.split()
        if not key.endswith(":"):
            inside = line.endswith(str(FILE))
        elif key == "Rss:":
            found += inside * int(values[0]) << 10
    return found


def train(model: torch.nn.Linear, rows: Any = None) -> None:
    """30 steps, behind which the file is looked at."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for _ in range(30):
        model(torch.ones(1, COLUMNS) if rows is None else rows[:1]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    has = resident()
    Path(f"file-{os.getpid()}.json").write_text(json.dumps({"resident": has}))
    seen = [(os.getpid(), str(FILE))] if has else []
    until(lambda sample: sample[6] is not None and {(row[0], row[2]) for row in sample[6]}.issuperset(seen))


def save() -> torch.nn.Linear:
    model = torch.nn.Linear(COLUMNS, ROWS, bias=False)
    torch.save(model.state_dict(), FILE)
    return model


def keeps_state() -> None:
    """What was loaded is a variable of the function that trains."""
    model = save()
    state = torch.load(FILE, mmap=True)
    model.load_state_dict(state)
    train(model)
    del state


def drops_state() -> None:
    model = save()
    model.load_state_dict(torch.load(FILE, mmap=True))
    train(model)


def assigns_state() -> None:
    """The model's own weights lie in the file."""
    model = save()
    model.load_state_dict(torch.load(FILE, mmap=True), assign=True)
    for weight in model.parameters():
        weight.requires_grad_(False)
    bias = torch.nn.Parameter(torch.zeros(ROWS))
    model.bias = bias
    train(model)


def keeps_mapping() -> None:
    """A file as safetensors has it, and no tensor in its mapping."""
    global mapping
    values = numpy.ones((ROWS, COLUMNS), dtype="f4")
    header = json.dumps({"weight": {"dtype": "F32", "shape": values.shape, "data_offsets": [0, values.nbytes]}})
    head = len(header).to_bytes(8, "little") + header.encode()
    FILE.write_bytes(head + values.tobytes())
    with open(FILE, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    model = torch.nn.Linear(COLUMNS, ROWS, bias=False)
    read = numpy.frombuffer(mapping, dtype="f4", offset=len(head)).reshape(ROWS, COLUMNS)
    model.load_state_dict({"weight": torch.from_numpy(read.copy())})
    del read
    train(model)


def reads_data() -> None:
    """A data set of the same size, which is mapped to be read."""
    numpy.save(FILE, numpy.ones((ROWS, COLUMNS), dtype="f4"))
    FILE.with_suffix(".npy").rename(FILE)
    rows = torch.from_numpy(numpy.load(FILE, mmap_mode="c"))
    rows.sum()
    train(torch.nn.Linear(COLUMNS, ROWS, bias=False), rows)


mapping: Any = None
CAUSES = {"keeps-state": keeps_state, "keeps-mapping": keeps_mapping}
CLEAN = {"drops-state": drops_state, "assigns-state": assigns_state, "reads-data": reads_data}

if __name__ == "__main__":
    {**CAUSES, **CLEAN}[sys.argv[1]]()
