"""Loops as people write them; how many steps does the report see? Prints JSON: case -> what was seen.

python steps_child.py
"""

import itertools
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2])]

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


def critic_five_times(prof: Any, iterations: int = 10) -> None:
    critic, generator = model(), model()
    c, g = torch.optim.SGD(critic.parameters(), lr=0.1), torch.optim.SGD(generator.parameters(), lr=0.1)
    for _ in range(iterations):
        for _ in range(5):
            forward_backward(critic)
            c.step()
        forward_backward(generator)
        g.step()


def critic_in_few_iterations(prof: Any) -> None:
    critic_five_times(prof, 6)


def delayed_actor(prof: Any) -> None:
    """As in TD3: the actor moves with every second update of the critic."""
    actor, critic = model(), model()
    a, c = torch.optim.SGD(actor.parameters(), lr=0.1), torch.optim.SGD(critic.parameters(), lr=0.1)
    for i in range(20):
        forward_backward(critic)
        c.step()
        if i % 2:
            forward_backward(actor)
            a.step()


def lbfgs_once(prof: Any) -> None:
    lbfgs(prof, 1, 60)


def lbfgs(prof: Any, steps: int = 8, evaluations: int = 4) -> None:
    net = model()
    optimizer = torch.optim.LBFGS(
        net.parameters(), lr=1e-4, max_iter=evaluations, max_eval=evaluations, tolerance_grad=0, tolerance_change=0
    )
    x = torch.randn(16, 8)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


def step_at_the_end(prof: Any) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for (x,) in batches(20):
        (net(x).square().mean() / 20).backward()
    optimizer.step()


def by_hand(prof: Any) -> None:
    net = model()
    for _ in range(20):
        forward_backward(net)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None


def by_hand_with_grad(prof: Any) -> None:
    w = torch.randn(8, 1, requires_grad=True)
    for _ in range(20):
        (g,) = torch.autograd.grad((torch.randn(4, 8) @ w).square().mean(), w)
        w = (w - 0.1 * g).detach().requires_grad_()


def two_losses_by_hand(prof: Any) -> None:
    one, two = model(), model()
    for _ in range(20):
        one(torch.randn(4, 8)).square().mean().backward()
        two(torch.randn(4, 8)).abs().mean().backward()
        with torch.no_grad():
            for parameter in [*one.parameters(), *two.parameters()]:
                parameter -= 0.1 * parameter.grad
                parameter.grad = None


def inner_gradients(prof: Any) -> None:
    """MAML: a step of the inner loop by hand, the outer one through it."""
    w = torch.randn(8, 1, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.01)
    for _ in range(12):
        fast = w
        for _ in range(3):
            (g,) = torch.autograd.grad((torch.randn(4, 8) @ fast).square().mean(), fast, create_graph=True)
            fast = fast - 0.1 * g
        (torch.randn(4, 8) @ fast).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


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


def validation(prof: Any, *waits: float) -> None:
    """Six validation batches an epoch, while something else takes its time: never the same, never counted."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train, test = batches(12), batches(6)
    at = itertools.cycle(waits or (0,))
    for _ in range(3):
        for (x,) in train:
            time.sleep(next(at))
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            for (x,) in test:
                time.sleep(next(at))
                net(x)


def validation_slow_at_first(prof: Any) -> None:
    validation(prof, 0.3, *[0] * 50)


def validation_slow_in_training(prof: Any) -> None:
    validation(prof, *[0.02] * 12, *[0] * 6)


def validation_slow_in_evaluation(prof: Any) -> None:
    validation(prof, *[0] * 12, *[0.04] * 6)


def validation_by_calls(prof: Any) -> None:
    """Without a loader, and on the line that trains: what tells them apart is that nothing is learned."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(54):
        loss = net(torch.randn(4, 8)).square().mean()
        if i % 18 < 12:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def another_model_is_evaluated(prof: Any) -> None:
    net, shadow = model(), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        for _ in range(8):
            optimizer.zero_grad()
            forward_backward(net)
            optimizer.step()
        with torch.no_grad():
            for _ in range(4):
                shadow(torch.randn(4, 8))


def frozen_part(prof: Any) -> None:
    body, head = nn.Linear(8, 8), model()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for _ in range(12):
        x = torch.randn(4, 8)
        with torch.no_grad():
            x = body(x)
        head(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def evaluation_in_every_iteration(prof: Any) -> None:
    """The full batch, without a loader: twelve epochs of one update and one evaluation."""
    net, x = model(), torch.randn(64, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(12):
        net.train()
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            net(x)


def labels_in_every_iteration(prof: Any) -> None:
    """What the model itself says of a batch, in evaluation mode, is a part of that batch's step."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for (x,) in batches(12):
        net.eval()
        with torch.no_grad():
            said = net(x)
        net.train()
        (net(x) - said).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def frozen_in_evaluation_mode(prof: Any) -> None:
    teacher, net = model().eval(), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(12):
        x = torch.randn(4, 8)
        with torch.no_grad():
            said = teacher(x)
        (net(x) - said).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


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
        for i in range(40):
            time.sleep(1.2 if i == 20 else 0)  # once there was a clock that was late by a second
            net(torch.randn(128, 256))


def generation(prof: Any) -> None:
    """A prompt at one line, then token by token at another, as many as the answer has."""
    net = nn.GRU(8, 8, batch_first=True).eval()
    with torch.no_grad():
        for tokens in (7, 3, 30, 1, 12, 55, 8):
            out, state = net(torch.randn(1, 16, 8))
            for _ in range(tokens):
                out, state = net(out[:, -1:], state)


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
    plain, recreated_optimizer, two_optimizers, optimizers_in_a_loop, critic_five_times, critic_in_few_iterations,
    delayed_actor, lbfgs, lbfgs_once, step_at_the_end, by_hand, by_hand_with_grad, two_losses_by_hand, inner_gradients,
    optimizer_in_backward, scaler_one_overflow, scaler_long_overflow, two_phases, evaluation, short_evaluation_every_k,
    validation, validation_slow_at_first, validation_slow_in_training, validation_slow_in_evaluation,
    validation_by_calls, another_model_is_evaluated, frozen_part,
    evaluation_in_every_iteration, labels_in_every_iteration, frozen_in_evaluation_mode,
    accumulation, inference_with_loader, inference_with_calls, generation, explicit, scheduled,
]  # fmt: skip


def main() -> None:
    found = {}
    for case in CASES:
        torch.manual_seed(0)
        with cuptimem.profile(walks=False, holders=False) as prof:  # half the time, and no matter to steps
            case(prof)
        report = prof.report
        steps = [s for s in report.steps if s.device == "cpu"]
        tiles = all(a.end_ns == b.begin_ns and a.end == b.start for a, b in zip(steps, steps[1:], strict=False))
        found[case.__name__] = {
            "steps": len(steps),
            "loops": Counter(s.loop for s in steps),
            "indices": [s.index for s in steps] == list(range(len(steps))),
            "tiles": tiles,
            "order": [s.loop for s in steps],
            "clock": str(report.clock.kind),
            "passed": report.clock.passed and [report.clock.passed.kind, report.clock.passed.steps],
            "rate": report.clock.rate and [report.clock.rate.updates, report.clock.rate.joined],
            "changes": len(report.clock.changes),
            "allocated": [s.allocated for s in steps],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
