"""A Ray actor that trains, and says what its memory is made of while it does.

pip install ray
python examples/on_demand_ray.py
"""

import ray
import torch

import cuptimem


@ray.remote(max_concurrency=2)  # one call trains, another one asks
class Trainer:
    def __init__(self) -> None:
        self.model = torch.nn.Linear(256, 256)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.memory = cuptimem.on_demand()
        self.goes_on = True

    def train(self) -> int:
        steps = 0
        while self.goes_on:
            self.optimizer.zero_grad()
            self.model(torch.randn(64, 256)).square().mean().backward()
            self.optimizer.step()
            steps += 1
        return steps

    def record(self, steps: int) -> str:
        return f"{self.memory.window(steps=steps).result().report}"

    def stop(self) -> None:
        self.goes_on = False


def main() -> None:
    trainer = Trainer.remote()
    training = trainer.train.remote()
    print(ray.get(trainer.record.remote(20)))
    ray.get(trainer.stop.remote())
    print(f"trained {ray.get(training)} steps")


if __name__ == "__main__":
    main()
