"""Each step a hook is set that compares the classifier with its weights of before, and no hook is ever removed."""

import timm
import torch
from torch import nn

torch.manual_seed(0)
drift = {}


def watch(layer):
    before = layer.weight.detach().clone()  #: kept

    def compare(module, inputs, output):
        drift["classifier"] = (module.weight.detach() - before).norm()

    layer.register_forward_hook(compare)


net = timm.create_model("mobilenetv3_small_050", num_classes=400).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for step in range(40):
    x = torch.rand(16, 3, 32, 32, device="cuda")  #: input
    y = torch.randint(0, 400, (16,), device="cuda")  #: input
    watch(net.get_classifier())
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
