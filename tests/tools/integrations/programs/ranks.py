"""Two ranks: rank 1 is refused memory, rank 0 waits for it as in a collective, until it is told of the page."""

import glob
import os
import time

import torch
from torch.distributed.elastic.multiprocessing.errors import record

import cuptimem


def is_told():
    return any("another rank" in open(path).read() for path in glob.glob("logs/**/0/stderr.log", recursive=True))


@record
def main():
    try:
        train()
    except RuntimeError:
        # torchrun ends rank 0 a tenth of a second after this one, which on a busy machine is before it has looked.
        until = time.monotonic() + 60
        while not is_told() and time.monotonic() < until:
            time.sleep(0.05)
        raise


def train():
    model = torch.nn.Linear(256, 256)
    with cuptimem.log(lambda found, step: None, path="run-{rank}.cmem") as memory:
        for _ in range(3):
            model(torch.ones(2, 256)).sum().backward()
            memory.step()
        if os.environ["RANK"] == "1":
            torch.empty(10**15)
        while not glob.glob("*.oom.txt"):
            time.sleep(0.01)
        time.sleep(60)  # ended by torchrun


main()
