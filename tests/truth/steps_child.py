"""Loops as people write them; how many steps does the report see? Prints JSON: case -> what was seen.

python steps_child.py
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import cuptimem  # noqa: E402


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def forward_backward(net: nn.Module) -> torch.Tensor:
    loss = net(torch.randn(4, 8)).square().mean()
    loss.backward()
    return loss


def batches(count: int, workers: int = 0) -> DataLoader:
    return DataLoader(TensorDataset(torch.randn(4 * count, 8)), batch_size=4, num_workers=workers)


def plain(prof: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        forward_backward(net)
        optimizer.step()


def recreated_optimizer(prof: Any) -> None:
    net = model()
    for _ in range(12):
        optimizer = torch.optim.Adam(net.parameters())
        optimizer.zero_grad()
        forward_backward(net)
        optimizer.step()


def two_optimizers(prof: Any) -> None:
    one, two = model(), model()
    first, second = torch.optim.Adam(one.parameters()), torch.optim.Adam(two.parameters())
    for _ in range(12):
        first.zero_grad()
        forward_backward(one)
        first.step()
        second.zero_grad()
        forward_backward(two)
        second.step()


def optimizers_in_a_loop(prof: Any) -> None:
    nets = [model() for _ in range(3)]
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.1) for n in nets]
    for _ in range(12):
        for net in nets:
            forward_backward(net)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def critic_five_times(prof: Any) -> None:
    critic, generator = model(), model()
    c, g = torch.optim.SGD(critic.parameters(), lr=0.1), torch.optim.SGD(generator.parameters(), lr=0.1)
    for _ in range(6):
        for _ in range(5):
            forward_backward(critic)
            c.step()
        forward_backward(generator)
        g.step()


def lbfgs(prof: Any) -> None:
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)
    x = torch.randn(16, 8)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss

    for _ in range(8):
        optimizer.step(closure)


def optimizer_in_backward(prof: Any) -> None:
    net = model()
    owned = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}

    def apply(parameter: torch.Tensor) -> None:
        owned[parameter].step()
        owned[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(apply)
    for _ in range(12):
        forward_backward(net)


def scaler(prof: Any, overflows: set[int], loader: bool) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scale = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for i, (x,) in enumerate(batches(24)) if loader else ((i, (torch.randn(4, 8),)) for i in range(24)):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        if i in overflows:
            loss = loss * float("inf")
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()


def scaler_one_overflow(prof: Any) -> None:
    scaler(prof, {5}, False)


def scaler_long_overflow(prof: Any) -> None:
    scaler(prof, set(range(8, 16)), True)


def two_phases(prof: Any) -> None:
    net, head = model(), model()
    first = torch.optim.SGD(net.parameters(), lr=0.1)
    second = torch.optim.SGD(head.parameters(), lr=0.1)
    for _ in range(10):
        forward_backward(net)
        first.step()
    for _ in range(10):
        forward_backward(head)
        second.step()


def evaluation(prof: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train, test = batches(10), batches(40)
    for _ in range(3):
        for (x,) in train:
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            for (x,) in test:
                net(x)


def short_evaluation_every_k(prof: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(20):
        optimizer.zero_grad()
        forward_backward(net)
        optimizer.step()
        if i % 5 == 4:
            with torch.no_grad():
                for _ in range(3):
                    net(torch.randn(4, 8))


def accumulation(prof: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for i, (x,) in enumerate(batches(24)):
        (net(x).square().mean() / 4).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def inference_with_loader(prof: Any) -> None:
    net = model().eval()
    with torch.inference_mode():
        for (x,) in batches(9):
            net(x)


def inference_with_calls(prof: Any) -> None:
    net = nn.Sequential(*[nn.Linear(256, 256) for _ in range(12)]).eval()
    with torch.inference_mode():
        while "module" not in str(prof.report.clock.kind) or len(prof.report.steps) < 8:
            for _ in range(200):
                net(torch.randn(128, 256))


def explicit(prof: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(7):
        for _ in range(3):
            forward_backward(net)
            optimizer.step()
        prof.step()


def scheduled(prof: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for _ in range(12):
        optimizer.zero_grad()
        forward_backward(net)
        optimizer.step()
        schedule.step()


CASES = [
    plain, recreated_optimizer, two_optimizers, optimizers_in_a_loop, critic_five_times, lbfgs, optimizer_in_backward,
    scaler_one_overflow, scaler_long_overflow, two_phases, evaluation, short_evaluation_every_k, accumulation,
    inference_with_loader, inference_with_calls, explicit, scheduled,
]  # fmt: skip


def main() -> None:
    found = {}
    for case in CASES:
        torch.manual_seed(0)
        with cuptimem.profile() as prof:
            case(prof)
        report = prof.report
        steps = [s for s in report.steps if s.device == "cpu"]
        tiles = all(a.end_ns == b.begin_ns and a.end == b.start for a, b in zip(steps, steps[1:], strict=False))
        found[case.__name__] = {
            "steps": len(steps),
            "loops": Counter(s.loop for s in steps),
            "indices": [s.index for s in steps] == list(range(len(steps))),
            "tiles": tiles,
            "clock": str(report.clock.kind),
            "changes": len(report.clock.changes),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
