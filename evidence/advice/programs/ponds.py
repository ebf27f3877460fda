"""Ripples on a pond: a physics-informed network for the two-dimensional wave equation with damping."""
import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(1234)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

C = 1.5
DAMPING = 0.1
N_COLLOCATION = 40_000
N_INITIAL = 4_000
N_BOUNDARY = 4_000
EPOCHS = 6


class Wave(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(layers[:-1], layers[1:], strict=True))
        self.activation = nn.Tanh()
        for linear in self.linears:
            nn.init.xavier_normal_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x, y, t):
        a = torch.cat([x, y, t], dim=1)
        for linear in self.linears[:-1]:
            a = self.activation(linear(a))
        return self.linears[-1](a)


def grad(u, x):
    return torch.autograd.grad(u, x, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]


def residual(net, x, y, t):
    u = net(x, y, t)
    u_x = grad(u, x)
    u_y = grad(u, y)
    u_t = grad(u, t)
    u_xx = grad(u_x, x)
    u_yy = grad(u_y, y)
    u_tt = grad(u_t, t)
    return u_tt + DAMPING * u_t - C**2 * (u_xx + u_yy)


def uniform(n):
    return [torch.rand(n, 1, device=device, requires_grad=True) for _ in range(3)]


def boundary(n):
    x, y, t = (torch.rand(n, 1, device=device) for _ in range(3))
    side = torch.randint(0, 2, (n, 1), device=device).to(x.dtype)
    half = n // 2
    x = torch.cat([side[:half], x[half:]])
    y = torch.cat([y[:half], side[half:]])
    return x, y, t


def drop(x, y):
    return torch.exp(-80 * ((x - 0.5) ** 2 + (y - 0.5) ** 2))


def main():
    net = Wave([3] + [96] * 6 + [1]).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    mse = nn.MSELoss()

    x_f, y_f, t_f = uniform(N_COLLOCATION)
    x_i, y_i, _ = uniform(N_INITIAL)
    t_i = torch.zeros_like(x_i, requires_grad=True)
    x_b, y_b, t_b = boundary(N_BOUNDARY)

    for epoch in range(EPOCHS):
        optimizer.zero_grad()

        f = residual(net, x_f, y_f, t_f)
        loss_f = mse(f, torch.zeros_like(f))

        u_i = net(x_i, y_i, t_i)
        loss_i = mse(u_i, drop(x_i, y_i).detach()) + grad(u_i, t_i).square().mean()

        u_b = net(x_b, y_b, t_b)
        loss_b = u_b.square().mean()

        loss = loss_f + 100 * loss_i + 100 * loss_b
        loss.backward()
        optimizer.step()
        print(f"{epoch}: pde {loss_f.item():.3e}  start {loss_i.item():.3e}  edge {loss_b.item():.3e}")


if __name__ == "__main__":
    main()
