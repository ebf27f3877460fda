"""Two workers of Ray Train, without a word of cuptimem. Planted: worker 1 has one longer batch.

Arguments: what CUPTIMEM is in the workers.
"""

import os
import sys

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model


def train():
    rank = ray.train.get_context().get_world_rank()
    model = prepare_model(torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters())
    for step in range(12):
        x = torch.randn(4096 if (rank, step) == (1, 7) else 512, 256)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


ray.init(num_cpus=3, include_dashboard=False, runtime_env={"env_vars": {"CUPTIMEM": sys.argv[1]}})
TorchTrainer(
    train, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=os.path.abspath("results"))
).fit()
