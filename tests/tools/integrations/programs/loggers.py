"""The same loop with W&B, MLflow, TensorBoard and print."""

import mlflow
import torch
import wandb
from torch.utils.tensorboard import SummaryWriter

import cuptimem

run = wandb.init(project="test")
mlflow.start_run()
for logger in (run, mlflow, SummaryWriter("tb"), print):
    with cuptimem.log(logger, path="run.cmem", every=2, wait=60, summary=False) as memory:
        weight = torch.zeros(256, 256)
        for step in range(1, 5):
            torch.add(weight, 1)
            memory.step()
            if logger is run:
                run.log({"loss": 1.0}, step=step)
mlflow.end_run()
run.finish()
