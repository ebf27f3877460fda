"""A loop with Accelerate and two trackers; the second one sees what the first has added."""

import json

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker

import cuptimem


class Kept(GeneralTracker):
    name = "kept"
    requires_logging_directory = False
    tracker = None

    def __init__(self):
        super().__init__()
        self.rows = []

    def store_init_configuration(self, values):
        pass

    def log(self, values, step=None, **kwargs):
        self.rows.append({**values, "at": step})


kept = Kept()
accelerator = Accelerator(
    cpu=True, log_with=[cuptimem.integrations.AccelerateTracker("run-{rank}.cmem", wait=60), kept]
)
accelerator.init_trackers("test", config={"lr": 0.1})
model = torch.nn.Linear(256, 256, bias=False)
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), foreach=False))
for step in range(1, 31):
    accelerator.backward(model(torch.ones(2, 256)).sum())
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        accelerator.log({"loss": 1.0}, step=step)
accelerator.end_training()
with open("rows.json", "w") as file:
    json.dump(kept.rows, file)
