"""Four threads train four models and hand tensors to each other; they meet at barriers, where nothing moves."""

import queue
import threading
from collections.abc import Callable

import torch
from torch import nn

THREADS = 4


def main(check: Callable[[str], None] = lambda name: None, steps: int = 12) -> float:
    torch.manual_seed(7)
    models = [
        nn.Sequential(nn.Linear(16 + number, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
        for number in range(THREADS)
    ]
    barrier = threading.Barrier(THREADS)
    gifts = [queue.SimpleQueue() for _ in range(THREADS)]
    results = [0.0] * THREADS
    errors: list[BaseException] = []

    def meet(number, name):
        barrier.wait()
        if number == 0:
            check(name)
        barrier.wait()

    def train(number):
        generator = torch.Generator().manual_seed(number)
        model = models[number]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        meet(number, "models")
        total = 0.0
        for _ in range(steps):
            for _ in range(5):
                x = torch.randn(32, 16 + number, generator=generator)
                loss = model(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                gifts[(number + 1) % THREADS].put(loss.detach() * torch.ones(number + 5))
                total += float(gifts[number].get(timeout=300).sum())
            meet(number, "between")
            y = model(x)
            meet(number, "graphs")
            y.sum().backward()
            meet(number, "gradients")
        results[number] = total

    def guarded(number):
        try:
            train(number)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    check("joined")
    return sum(results)


if __name__ == "__main__":
    print(f"{main():.4f}")
