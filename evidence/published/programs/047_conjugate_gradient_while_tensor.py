# needs: torch
# the conjugate gradient method as Shewchuk writes it (https://www.cs.cmu.edu/~quake-papers/painless-conjugate-gradient.pdf, B2):
# a while loop that ends on a value on the device, bounded by 200 steps
import torch

n = 20000
g = torch.Generator(device="cuda").manual_seed(0)
a = torch.randn(n, n, device="cuda", generator=g)
a = a @ a.T / n + torch.eye(n, device="cuda")
b = torch.randn(n, device="cuda", generator=g)
x = torch.zeros_like(b)
r = b - a @ x
p = r.clone()
rs = torch.dot(r, r)
steps = 0
while rs.sqrt() > 1e-3 and steps < 200:
    ap = a @ p
    alpha = rs / torch.dot(p, ap)
    x = x + alpha * p
    r = r - alpha * ap
    new = torch.dot(r, r)
    p = r + (new / rs) * p
    rs = new
    steps += 1
print(steps, rs.item())
