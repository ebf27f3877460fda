"""Theatre masks: a MobileNet of torchvision, and a hook that looks into its middle each time."""

import torch
import torchvision

net = torchvision.models.mobilenet_v3_small(num_classes=5).cuda()


class Look:
    def __init__(self, module):
        self.seen = []
        self.handle = module.register_forward_hook(self.take)

    def take(self, module, inputs, output):
        self.seen.append((inputs[0].detach(), output.detach()))

    def __enter__(self):
        self.again = lambda: self
        return self

    def __exit__(self, *problem):
        self.handle.remove()


optimizer = torch.optim.Adam(net.parameters())
for round in range(16):
    picture = torch.rand(4, 3, 224, 224, device="cuda")
    with Look(net.features[1]) as look:
        loss = net(picture).logsumexp(1).mean()
    spread = look.seen[0][1].std()
    optimizer.zero_grad()
    (loss + 0.1 * spread).backward()
    optimizer.step()
