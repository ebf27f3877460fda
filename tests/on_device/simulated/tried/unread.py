"""What nothing reads again, and is there all the same: of each case as it is, and with its change by hand; and what
looks like it, where the change would be wrong."""

import argparse
import copy
import io
from collections import OrderedDict
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

DEVICE, ROWS = "cuda", 4096


def show(result):
    """What the program computes; on the simulated device that is nothing but a shape."""
    print(result.shape if DEVICE == "cuda" else repr(result.double().sum().item()))


def held(by_hand):
    """A variable holds what two products have read already."""
    first = torch.rand(1024, 1024, device=DEVICE)

    def power(frames):
        frames = frames * 2
        real, imaginary = frames @ first, frames @ first.T
        if by_hand:
            frames = None
        return torch.cat([real, imaginary]).sum(1)

    with torch.no_grad():
        for _ in range(3):
            show(power(torch.rand(ROWS, 1024, device=DEVICE)))


def graph(by_hand):
    """Within a step that trains: a second model's graph, which no backward pass runs, until its name is bound again."""
    models = [
        nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.Tanh()))).to(DEVICE) for _ in "ab"
    ]
    model, other = models
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(ROWS, 256, device=DEVICE)
        with torch.set_grad_enabled(by_hand != "no_grad"):
            goal = other(x).mean(1)
        loss = F.mse_loss(model(x).mean(1), goal.detach())
        if by_hand == "release":
            goal = None
        optimizer.zero_grad()
        loss.backward()
        show(loss.detach())
        optimizer.step()


def elementwise(by_hand):
    """The last reader of its input writes as much again; ReLU behind a layer is not at the peak."""
    layer = nn.Linear(1024, 1024).to(DEVICE)
    with torch.no_grad():
        for _ in range(3):
            x = F.relu(layer(torch.rand(ROWS, 1024, device=DEVICE)))
            x = torch.cat([x, x, x])
            x = x.mul_(0.5) if by_hand else x * 0.5
            show(x)


def leaky(by_hand):
    """Autograd keeps the input, and would keep the output where that lies in it."""
    layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(6)).to(DEVICE)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(ROWS, 512, device=DEVICE)
        for layer in layers:
            x = layer(x)
            x = F.leaky_relu(x, 0.1, inplace=bool(by_hand))
        optimizer.zero_grad()
        x.mean().backward()
        show(layers[0].weight.grad)
        optimizer.step()


def subtracted(by_hand):
    """The second operand is read no more, the first one is."""
    layer = nn.Linear(1024, 1024).to(DEVICE)
    with torch.no_grad():
        x = torch.rand(ROWS, 1024, device=DEVICE)
        for _ in range(3):
            guess = layer(x)
            step = guess.sub_(x) if by_hand else x - guess
            x = torch.cat([x, step]).view(2, -1, 1024).amax(0)
        show(x)


def leaf(by_hand):
    """Of which the gradient is asked for."""
    layer = nn.Linear(1024, 8).to(DEVICE).requires_grad_(False)
    for _ in range(3):
        x = torch.rand(ROWS, 1024, device=DEVICE, requires_grad=True)
        score = layer(x.mul_(2) if by_hand else x * 2).sum()
        score.backward()
        show(x.grad)


def later(by_hand):
    """A step that is to come reads what the first ones do not."""
    layer = nn.Linear(1024, 1024).to(DEVICE)
    with torch.no_grad():
        x = torch.rand(ROWS, 1024, device=DEVICE)
        for step in range(5):
            guess = layer(x)
            half = guess.mul_(0.5) if by_hand else guess * 0.5
            if step == 4 and DEVICE == "cpu":
                show(guess)
            x = torch.cat([half, half])[:ROWS]


def branch(by_hand):
    """A step that is to come runs the graph that the first ones do not."""
    model, other = (nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 256)).to(DEVICE) for _ in "ab")
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    for step in range(6):
        x = torch.randn(ROWS, 256, device=DEVICE)
        y = model(x)
        loss = F.mse_loss(y, x)
        with torch.set_grad_enabled(not by_hand):
            extra = other(y).square().mean()
        if step >= 4:
            loss = loss + extra
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0 or step == 5:
            show(extra.detach())


def twice(by_hand):
    """A backward pass of which a graph is made, in autograd's own thread."""
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1)).to(DEVICE)
    for _ in range(3):
        x = torch.rand(ROWS, 64, device=DEVICE, requires_grad=True)
        slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
        slope.square().mean().backward()
        show(model[0].weight.grad)
        model.zero_grad()


def flow(by_hand):
    """What a graph that nothing runs made goes through several variables, whose names have other values later."""
    model, other = (nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 256)).to(DEVICE) for _ in "ab")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        x = torch.randn(ROWS, 256, device=DEVICE)
        with torch.set_grad_enabled(by_hand != "no_grad"):
            goal = other(x)
        aim = 0.5 + 0.9 * goal.mean(dim=1)
        if by_hand == "release":
            goal = None
        aim = aim.detach()
        goal = model(x).mean(dim=1)
        loss = F.mse_loss(goal, aim)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        show(loss.detach())


def resumed(by_hand):
    """A checkpoint, nested and as torch.load made it on the device, stays where the model has copied it."""
    model = nn.Sequential(nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1024)).to(DEVICE)
    file = io.BytesIO()
    torch.save({"state": {"model": model.state_dict()}, "step": 3}, file)
    file.seek(0)
    checkpoint = torch.load(file, map_location=DEVICE)
    model.load_state_dict(checkpoint["state"]["model"])
    if by_hand:
        checkpoint = None
    with torch.no_grad():
        for _ in range(3):
            show(model(torch.rand(64, 1024, device=DEVICE)))


def retained(by_hand):
    """A backward pass keeps its graph, and none runs it again."""
    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.Tanh()))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.randn(ROWS, 256, device=DEVICE)).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=not by_hand)
        optimizer.step()
    show(loss.detach())


def needed(by_hand):
    """The second backward pass runs what the first one has kept."""
    model, judge = (nn.Sequential(*(nn.Linear(256, 256) for _ in range(3)), nn.Tanh()).to(DEVICE) for _ in "ab")
    for _ in range(3):
        drawn = model(torch.randn(ROWS, 256, device=DEVICE))
        judged = judge(drawn).square().mean()
        judged.backward(retain_graph=not by_hand)
        size = drawn.square().mean()
        size.backward()
        show(size.detach())
        judged = size = drawn = None
        model.zero_grad()
        judge.zero_grad()


class Output(OrderedDict):
    """As a library's: each value is an attribute, too."""

    def __init__(self, **values):
        super().__init__(values)
        vars(self).update(values)


@dataclass
class Batch:
    mixed: torch.Tensor
    scores: torch.Tensor | None = None


def records(by_hand):
    """Objects hold what has been read of them."""
    layer = nn.Linear(64, 4096, bias=False).to(DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def score(x):
        scores = layer(x)
        return Output(scores=scores, loss=scores.square().mean())

    for _ in range(3):
        batch = Batch(torch.randn(ROWS, 4096, device=DEVICE))
        x = batch.mixed[:, :64].contiguous()
        if by_hand:
            batch = None
        output = score(x)
        loss = output.loss
        if by_hand:
            output = None
        optimizer.zero_grad()
        loss.backward()
        show(loss.detach())
        optimizer.step()


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.learns, self.taught = (
            nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.Tanh()))) for _ in "ab"
        )

    def forward(self, x, by_hand):
        with torch.set_grad_enabled(by_hand != "no_grad"):
            goal = self.taught(x).mean(1)
        return F.mse_loss(self.learns(x).mean(1), goal.detach())


def inside(by_hand):
    """One module calls both models: lines outside of it are those of what trains."""
    pair = Pair().to(DEVICE)
    optimizer = torch.optim.SGD(pair.learns.parameters(), lr=0.1)
    for _ in range(3):
        loss = pair(torch.randn(ROWS, 256, device=DEVICE), by_hand)
        optimizer.zero_grad()
        loss.backward()
        show(loss.detach())
        optimizer.step()


def mapped(by_hand):
    """torch.func, which has no hooks on what autograd saves; of the data, steps take rows."""
    weights = torch.randn(8, 64, 64, device=DEVICE)
    data = torch.randn(4 * ROWS, 64, device="cpu" if by_hand else DEVICE)

    def error(one, x):
        return torch.tanh(x @ one).square().mean()

    for step in range(3):
        rows = torch.arange(64) + step
        x = data[rows.to(data.device)].to(DEVICE)
        show(torch.func.vmap(torch.func.grad(error), in_dims=(0, None))(weights, x))


def snapshot(by_hand):
    """Weights of an earlier step, which are loaded again; a mean of all of them, which the device computes with."""
    model = nn.Sequential(nn.Linear(256, 2048), nn.Tanh(), nn.Linear(2048, 256)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mean = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(3):
        if step == 1:
            weights = model.state_dict()
            kept = {name: value.cpu() for name, value in weights.items()} if by_hand else copy.deepcopy(weights)
        loss = model(torch.randn(64, 256, device=DEVICE)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for name, value in model.state_dict().items():
            mean[name].lerp_(value, 0.1)
    model.load_state_dict(kept)
    show(loss.detach())


def parts(by_hand):
    """Of what each step makes, the program keeps one column: a view, which keeps all of it."""
    layer, kept = nn.Linear(256, 256).to(DEVICE), []
    with torch.no_grad():
        for _ in range(6):
            x = layer(torch.randn(ROWS, 256, device=DEVICE))
            kept.append(x[:, 0].clone() if by_hand else x[:, 0])
        show(torch.cat(kept))


def listed(by_hand):
    """As in parts, and all of it is in another list; or is written behind that, which a copy would not have."""
    layer, kept, whole = nn.Linear(256, 256).to(DEVICE), [], []
    with torch.no_grad():
        for _ in range(6):
            whole.append(layer(torch.randn(ROWS, 256, device=DEVICE)))
            kept.append(whole[-1][:, 0])
        for _ in range(6):
            x = layer(torch.randn(ROWS, 256, device=DEVICE))
            kept.append(x[:, 0].clone() if by_hand else x[:, 0])
            x.mul_(2)
        show(torch.cat(kept))


CASES = {
    function.__name__: function
    for function in (
        held,
        graph,
        elementwise,
        leaky,
        subtracted,
        leaf,
        later,
        branch,
        twice,
        flow,
        resumed,
        retained,
        needed,
        records,
        inside,
        mapped,
        snapshot,
        parts,
        listed,
    )
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--hand", default="")
    options = parser.parse_args()
    CASES[options.case](options.hand)
