"""Seeds by sieve: a ConvNeXt of timm, an embedding of places beside it; zeroed gradients between rounds."""

import timm
import torch

net = timm.create_model("convnext_atto", num_classes=500).cuda()
place = torch.nn.Embedding(200_000, 64).cuda()
both = [*net.parameters(), *place.parameters()]
optimizer = torch.optim.SGD(both, lr=0.05)
join = torch.nn.Linear(64, 500).cuda()
for number in range(5):
    seed = torch.rand(16, 3, 160, 160, device="cuda")
    where = torch.randint(0, 200_000, (16,), device="cuda")
    optimizer.zero_grad(set_to_none=False)
    score = net(seed) + join(place(where))
    score.logsumexp(1).mean().backward()
    optimizer.step()
