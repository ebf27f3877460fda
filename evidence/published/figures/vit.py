# rasbt/pytorch-memory-optim: torchvision's vit_l_16 on CIFAR-10 pictures of 224 x 224, training and validation;
# and PyTorch's tutorial on an optimizer step in the backward pass, with the same model.
# "then" as a second argument: Adam over lists of tensors makes one more copy of the second moments, as PyTorch did up
# to early 2.1.
import sys

import torch
import torch.nn.functional as F
from measure import figure, report
from torchvision.models import vit_l_16

name = figure()


if "then" in sys.argv[2:]:
    held = []
    sqrt, addcdiv = torch._foreach_sqrt, torch._foreach_addcdiv_

    def sqrt_of_then(tensors):
        roots = sqrt(tensors)
        held.extend(torch._foreach_add(roots, 1e-8))
        return roots

    def addcdiv_of_then(*arguments):
        addcdiv(*arguments)
        held.clear()

    torch._foreach_sqrt, torch._foreach_addcdiv_ = sqrt_of_then, addcdiv_of_then


def batch(size):
    return torch.randn(size, 3, 224, 224), torch.randint(0, 10, (size,))


def model_of():
    model = vit_l_16(weights=None)
    model.heads.head = torch.nn.Linear(in_features=1024, out_features=10)
    return model


def plain(size, steps=3):
    model = model_of().to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    for _ in range(steps):
        model.train()
        features, targets = batch(size)
        features, targets = features.to("cuda"), targets.to("cuda")
        logits = model(features)
        loss = F.cross_entropy(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.eval()
            torch.argmax(logits, 1)
    validate(model, size, features_to="cuda")


def validate(model, size, features_to):
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            features, targets = batch(size)
            torch.argmax(model(features.to(features_to)), 1)


def fabric(precision, size, accumulate=1, sgd=False, steps=3):
    from lightning import Fabric

    fabric = Fabric(accelerator="cuda", devices=1, precision=precision)
    fabric.launch()
    loader = torch.utils.data.DataLoader([tuple(part[0] for part in batch(1))] * (size * steps * accumulate), size)
    loader = fabric.setup_dataloaders(loader)
    model = model_of()
    if sgd:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    model, optimizer = fabric.setup(model, optimizer)
    for index, (features, targets) in enumerate(loader):
        model.train()
        logits = model(features)
        loss = F.cross_entropy(logits, targets)
        if accumulate > 1:
            loss = loss / accumulate
            fabric.backward(loss)
            if not (index + 1) % accumulate:
                optimizer.step()
                if sgd:
                    schedule.step()
                optimizer.zero_grad()
        else:
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
        with torch.no_grad():
            model.eval()
            torch.argmax(logits, 1)
    model.eval()
    with torch.no_grad():
        for features, _targets in loader:
            torch.argmax(model(features), 1)


def init_bf16():
    from lightning import Fabric

    fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-true")
    with fabric.init_module(empty_init=False):
        init_bf16.model = vit_l_16(weights=None)


def init_plain():
    init_plain.model = vit_l_16(weights=None).to("cuda")


def tutorial(in_backward):
    model = vit_l_16(weights=None).cuda()
    if in_backward:
        optimizers = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}

        def hook(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(hook)
    else:
        optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        image = torch.randn(1, 3, 224, 224, device="cuda")
        loss = model(image)
        loss.sum().backward()
        if not in_backward:
            optimizer.step()
            optimizer.zero_grad()


programs = {
    "rasbt-vitl-fp32": lambda: plain(64),
    "rasbt-vitl-fp32-fabric": lambda: fabric("32-true", 64),
    "rasbt-vitl-fp16mixed": lambda: fabric("16-mixed", 64),
    "rasbt-vitl-bf16true": lambda: fabric("bf16-true", 64),
    "rasbt-vitl-b16": lambda: fabric("bf16-true", 16),
    "rasbt-vitl-accum": lambda: fabric("bf16-true", 4, accumulate=4),
    "rasbt-vitl-sgd": lambda: fabric("bf16-true", 4, accumulate=4, sgd=True),
    "rasbt-init-plain": init_plain,
    "rasbt-init-bf16": init_bf16,
    "optim-bwd-adam": lambda: tutorial(False),
    "optim-bwd-hook": lambda: tutorial(True),
}
programs[name]()
report(torch.cuda.max_memory_allocated() if name.startswith("optim") else torch.cuda.max_memory_reserved())
