"""A whole training step captured in a CUDA graph with its own pool, replayed, and dropped; eager work beside it."""

import torch
from torch import nn

from tests.on_device.simulated.programs import Check


def main(check: Check) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(256, 512, device="cuda"), torch.randint(10, (256,), device="cuda")

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    check("warm", quiet=True)

    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    check("captured")
    for replay in range(3):
        x.copy_(torch.randn(256, 512))
        graph.replay()
        check(f"replayed {replay + 1} times")
    scores = model(x)
    check("eager work beside the graph")
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=graph.pool()), torch.no_grad():
        scores = model(x)
    second.replay()
    check("a second graph in the same pool")
    del graph, second, loss, scores
    optimizer.zero_grad(set_to_none=True)
    check("graphs gone", quiet=True)
    torch.cuda.empty_cache()
    check("cache empty", quiet=True)
