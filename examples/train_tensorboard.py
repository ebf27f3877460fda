"""A small network trained with curves and memory in TensorBoard, in one run.

python examples/train_tensorboard.py runs/small     trains for 60 steps, a few seconds on one core
tensorboard --logdir runs                           SCALARS has Loss and Memory/..., MEMORY has the rest

Memory is recorded in cycles: 10 of every 20 steps. `--leak` keeps each step's scores on a list, a common mistake.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import cuptimem

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("logdir", nargs="?", default="runs/small")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--leak", action="store_true")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32 * 8 * 8, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.first(images)
        x = F.relu(x)
        x = F.max_pool2d(x, 2)
        x = self.second(x)
        x = F.relu(x)
        x = F.max_pool2d(x, 2)
        return self.head(x.flatten(1))


def main(options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    history = []
    handler = cuptimem.tensorboard_handler(options.logdir)
    schedule = cuptimem.schedule(wait=8, warmup=2, active=10)
    with (
        SummaryWriter(options.logdir) as writer,
        cuptimem.profile(schedule=schedule, on_trace_ready=handler) as prof,
    ):
        for step in range(options.steps):
            images = torch.randn(options.batch, 3, 32, 32)
            labels = images.mean(dim=(1, 2, 3)).mul(100).long().clamp(0, 9)
            scores = model(images)
            loss = F.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if options.leak:
                history.append(torch.cat([scores.detach()] * 64))
            writer.add_scalar("Loss", loss.item(), step)
            prof.step()


if __name__ == "__main__":
    main(parser.parse_args())
