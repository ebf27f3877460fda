"""How lenses bend, between those that were measured: a Gaussian process whose three numbers are learned, exact."""

import torch

torch.set_default_dtype(torch.float64)
measured = torch.rand(1800, 5, device="cuda")
bend = torch.randn(1800, 1, device="cuda")
numbers = torch.zeros(3, device="cuda", requires_grad=True)
optimizer = torch.optim.Adam([numbers], lr=0.05)


def kernel(one, other):
    length, height, _ = numbers.exp()
    return height * torch.exp(-0.5 * torch.cdist(one, other) ** 2 / length**2)


def unlikely():
    noise = numbers[2].exp()
    covariance = kernel(measured, measured) + noise * torch.eye(len(measured), device="cuda")
    root = torch.linalg.cholesky(covariance)
    solved = torch.cholesky_solve(bend, root)
    return 0.5 * (bend * solved).sum() + root.diagonal().log().sum()


for round in range(4):
    optimizer.zero_grad()
    loss = unlikely()
    loss.backward()
    optimizer.step()

between = torch.rand(900, 5, device="cuda")
covariance = kernel(measured, measured) + numbers[2].exp() * torch.eye(len(measured), device="cuda")
mean = kernel(between, measured) @ torch.cholesky_solve(bend, torch.linalg.cholesky(covariance))
print(mean.detach().mean(dim=0).shape)
