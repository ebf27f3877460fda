"""An actor, and one of two workers of Ray Train, are refused memory. What arrives in this process is printed."""

import os
import traceback

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

import cuptimem

FOLDER = os.getcwd()


@ray.remote
class Actor:
    def work(self):
        with cuptimem.log(print, path=f"{FOLDER}/actor.cmem"):
            torch.empty(10**15)


def train():
    rank = ray.train.get_context().get_world_rank()
    model = prepare_model(torch.nn.Linear(256, 10))
    with cuptimem.log(print, path=FOLDER + "/run-{rank}.cmem") as memory:
        for step in range(4):
            if (rank, step) == (1, 2):
                torch.empty(10**15)
            model(torch.ones(64, 256)).sum().backward()
            memory.step()


ray.init(num_cpus=3, include_dashboard=False)
try:
    ray.get(Actor.remote().work.remote())
except RuntimeError:
    print(traceback.format_exc())
trainer = TorchTrainer(
    train, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=os.path.abspath("results"))
)
try:
    trainer.fit()
except ray.train.TrainingFailedError:
    print(traceback.format_exc())
