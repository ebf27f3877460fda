"""Two ranks: rank 1 is refused memory, rank 0 waits for it as in a collective, until it is told of the page."""

import glob
import os
import time

import torch
from torch.distributed.elastic.multiprocessing.errors import record

import cuptimem


@record
def main():
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
