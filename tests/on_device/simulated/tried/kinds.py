"""Programs of many kinds: --case NAME. --hand CHANGE makes that change in the code."""

import argparse
import contextlib
import copy
import gc

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


class Blocks(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.blocks = nn.ModuleList(copy.deepcopy(block) for _ in range(4))

    def forward(self, x, hand=""):
        for block in self.blocks:
            checkpointed = hand.startswith("checkpoint") and torch.is_grad_enabled()
            x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        return x


class Images(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.zeros(3, 32, 32), index % 10


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.LeakyReLU(), nn.Conv2d(32, 3, 3, padding=1)).cuda()


def closures(hand):
    """LBFGS calls what the program hands to its step."""
    model = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = sgd if hand == "sgd" else torch.optim.LBFGS(model.parameters(), history_size=4, max_iter=3)
    x = torch.randn(64, 256, device="cuda")

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)


def copies(hand):
    """Modules that were copied, of which none was made by its class; a mean of weights beside."""
    model = copy.deepcopy(Blocks(Block())).cuda()
    mean = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        loss = model(torch.randn(1024, 256, device="cuda"), hand).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for one, other in zip(mean.parameters(), model.parameters(), strict=True):
                one.lerp_(other, 0.1)


def pieces(hand):
    """The model is never called as one, and has two losses with a backward each."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0), 4)
    model = nn.ModuleDict({"encoder": encoder, "head": nn.Linear(128, 500)}).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        x = torch.randn(16, 64, 128, device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=hand == "autocast"):
            for layer in encoder.layers:
                x = checkpoint(layer, x, use_reentrant=False) if hand.startswith("checkpoint") else layer(x)
            first, second = model["head"](x).logsumexp(-1).mean(), x.square().mean()
        optimizer.zero_grad()
        first.backward(retain_graph=True)
        second.backward()
        optimizer.step()


def evaluates(hand):
    """Training in half precision leaves an evaluation as it is, which has the peak."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(3):
        with torch.autocast("cuda", torch.bfloat16, enabled=hand == "autocast"):
            loss = model(torch.randn(4096, 256, device="cuda")).square().mean()
        optimizer.zero_grad()
        if number == 1:
            with torch.no_grad():
                assert model(torch.randn(64, 256, device="cuda")).dtype is torch.float32
            model.eval()  # also one that has a graph
            model(torch.randn(4096, 256, device="cuda"))
            model.train()
        loss.backward()
        optimizer.step()


def probes(hand):
    """What has no gradients and what is in evaluation mode is a part of training in each of its steps."""
    body = nn.Sequential(nn.Linear(256, 4096), nn.GELU(), nn.Linear(4096, 256)).cuda().eval()
    middle = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda().eval()
    head = nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD([*middle.parameters(), *head.parameters()], lr=0.1)
    for _ in range(3):
        with torch.autocast("cuda", torch.bfloat16, enabled=hand == "autocast"):
            with torch.no_grad():
                given = body(torch.randn(4096, 256, device="cuda"))
            loss = head(middle(given)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def workers(hand):
    """Batches come from other processes, and a schedule follows the optimizer."""
    parts = 2 if hand == "accumulate" else 1
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 30 * 30, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = DataLoader(Images(), 32 // parts, shuffle=True, num_workers=1, pin_memory=True)
    for number, (images, labels) in enumerate(loader):
        loss = F.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda()) / parts
        loss.backward()
        if number % parts == parts - 1:
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


def validates(hand):
    """An evaluation has the batch size of training, another loader, and slopes of its own: it keeps its batches."""
    parts = 2 if hand else 1
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 30 * 30, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    learned, others = DataLoader(Images(), 32 // parts), DataLoader(Images(), 32)
    for _ in range(2):
        for number, (images, labels) in zip(range(2 * parts), learned, strict=False):
            loss = F.cross_entropy(model(images.cuda()), labels.cuda()) / parts
            loss.backward()
            if hand != "accumulate" or number % parts == parts - 1:
                optimizer.step()
                optimizer.zero_grad()
        for images, _ in others:
            images = images.cuda().requires_grad_()
            torch.autograd.grad(model(images).square().sum(), images)


def tested(hand):
    """The evaluation has batches of another size, and the peak."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 30 * 30, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in DataLoader(Images(), 16):
        F.cross_entropy(model(images.cuda()), labels.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        for images, _ in DataLoader(Images(), 32 if hand else 128):
            model(images.cuda())


def epochs(hand, sampler=None):
    """Loaders are made again in each epoch, of one step."""
    parts = 2 if hand else 1
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 30 * 30, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        for number, (images, labels) in enumerate(DataLoader(Images(), 256 // parts, sampler=sampler)):
            loss = F.cross_entropy(model(images.cuda()), labels.cuda()) / parts
            loss.backward()
            if hand != "accumulate" or number % parts == parts - 1:
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            for images, _ in DataLoader(Images(), 192):
                model(images.cuda())


def sampled(hand):
    """As epochs, with the sampler of the program for all of them."""
    epochs(hand, RandomSampler(Images()))


def turns(hand):
    """One of two optimizers leaves zeros; the gradients of the other one are None, late."""
    small, large = nn.Linear(1024, 1024).cuda(), nn.Linear(2048, 2048).cuda()
    zeroes, drops = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (small, large))
    for _ in range(4):
        x = torch.rand(16, 2048, device="cuda")
        torch.empty(1 << 25, dtype=torch.uint8, device="cuda")
        loss = large(x).mean() + small(x[:, :1024]).mean()
        if not hand:
            zeroes.zero_grad(set_to_none=False)
        drops.zero_grad()
        loss.backward()
        drops.step()
        zeroes.step()
        if hand:
            zeroes.zero_grad()


def perceptual(hand):
    """Two models in evaluation mode within training: a gradient goes through one of them."""
    model, critic, teacher = convolutions(), convolutions().eval(), convolutions().eval()
    for parameter in critic.parameters():
        parameter.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        x = torch.zeros(8, 3, 64, 64, device="cuda")
        with torch.no_grad() if hand == "no_grad" else contextlib.nullcontext():
            wanted = teacher(x)
        loss = (critic(model(x)) - wanted.detach()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def trunk(hand):
    """The optimizer has the head alone; a target goes through the trunk, too, before there is an optimizer."""
    trunk = nn.Sequential(convolutions(), nn.MaxPool2d(2), convolutions())
    model = nn.ModuleDict({"trunk": trunk, "head": nn.Linear(3, 8), "inner": nn.Conv2d(3, 3, 1)}).cuda()
    if hand == "freeze":
        model["trunk"].requires_grad_(False)
    x = torch.zeros(8, 3, 64, 64, device="cuda")
    wanted = model["trunk"](x)
    optimizer = torch.optim.AdamW([*model["head"].parameters(), *model["inner"].parameters()])
    for _ in range(4):
        made = model["trunk"](model["inner"](x))
        loss = (made - wanted.detach()).square().mean() + model["head"](made.mean((2, 3))).square().mean()
        for parameter in model.parameters():
            parameter.grad = None
        loss.backward()
        optimizer.step()


def cycles(hand):
    """Each step's output is in a cycle of references."""
    model = nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        kept = {"out": model(torch.randn(2048, 512, device="cuda"))}
        kept["self"] = kept
        loss = kept["out"].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if hand == "collect":
            gc.collect()


def gan(hand):
    """Two optimizers; the generator's backward goes through the discriminator as well."""
    generator, discriminator = nn.Linear(64, 784).cuda(), nn.Linear(784, 1).cuda()
    make = torch.optim.SGD if hand == "sgd" else torch.optim.Adam
    of_generator, of_discriminator = make(generator.parameters(), 0.01), make(discriminator.parameters(), 0.01)
    for _ in range(4):
        fake = generator(torch.randn(256, 64, device="cuda"))
        loss = F.softplus(discriminator(fake.detach())).mean()
        of_discriminator.zero_grad()
        loss.backward()
        of_discriminator.step()
        loss = F.softplus(-discriminator(fake)).mean()
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()


def names(hand):
    """Results of a step stay in variables while the next one is computed; one of them is read behind the step."""
    blocks, head = Blocks(Block()).cuda(), nn.Linear(256, 8192).cuda()
    optimizer = torch.optim.SGD([*blocks.parameters(), *head.parameters()], lr=0.1)
    state = torch.zeros(1, 256, device="cuda")

    def model(x):
        hidden = blocks(x)
        logits = head(hidden)
        return hidden, (logits, logits.softmax(-1), logits.log_softmax(-1).mean())

    for step in range(4):
        x = torch.randn(1024, 256, device="cuda") + state
        if hand == "release":
            state = None
        hidden, all_three = model(x)
        loss = all_three[2]
        if hand == "release":
            x = all_three = None
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = hidden[:1].detach().clone()
        print(step, loss.item())
        if hand == "release":
            hidden = loss = None


def stack(hand):
    """Layers in one Sequential, of which none repeats as a block."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.GELU())]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        x = torch.randn(4096, 256, device="cuda")
        in_segments = hand == "checkpoint"
        found = checkpoint_sequential(model, 4, x, use_reentrant=False) if in_segments else model(x)
        loss = found.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Messages(nn.Module):
    """From node to node of a graph: indices are as wide as what they choose, and of stride 0."""

    def __init__(self):
        super().__init__()
        self.own = nn.Linear(64, 64)

    def forward(self, x, edges):
        first, second = edges[:, :, None].expand(-1, -1, 64)
        return x + torch.zeros_like(x).scatter_add(0, second, torch.tanh(self.own(x)).gather(0, first))


def relations(hand):
    """What is saved for backward is a view that is larger than its memory; at the peak it is on its way to the host."""
    model = nn.ModuleList(Messages() for _ in range(4)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    edges = torch.randint(1000, (2, 20000), device="cuda")
    for _ in range(4):
        saved = torch.autograd.graph.save_on_cpu(pin_memory=True)
        with saved if hand == "offload" else contextlib.nullcontext():
            x = torch.rand(1000, 64, device="cuda")
            for one in model:
                x = one(x, edges)
            loss = x.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 + ctx.saved_tensors[0]


class Wide(nn.Module):
    """A hidden layer as wide as a head; one that is called in a script."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(128, 2048), nn.Linear(2048, 128)

        def scripted(x, weight):
            return F.linear(x, weight)

        self.third, self.scripted = nn.Linear(128, 128), torch.jit.script(scripted)

    def forward(self, x):
        return x + self.scripted(self.second(Doubled.apply(self.first(x))), self.third.weight)


def in_parts(targets, of, *given):
    pairs = zip(of.chunk(8), targets.chunk(8), strict=True)

    def part(rows, some):
        return F.cross_entropy(F.linear(rows, *given) if given else rows, some, reduction="sum")

    return sum(checkpoint(part, *pair, use_reentrant=False) for pair in pairs) / targets.numel()


def predicts(hand, is_read=False):
    """Logits of a head; beside the loss something else reads them, or not."""
    body, head = Wide().cuda(), nn.Linear(128, 8192).cuda()
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    for _ in range(4):
        states, targets = body(torch.randn(1024, 128, device="cuda")), torch.randint(8192, (1024,), device="cuda")
        if hand and not is_read:
            loss = in_parts(targets, states, head.weight, head.bias)
        else:
            logits = head(states)
            loss = in_parts(targets, logits) if hand else F.cross_entropy(logits, targets)
            loss = loss + 1e-4 * logits.logsumexp(-1).square().mean() if is_read else loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def scored(hand):
    predicts(hand, True)


def distributed(_):
    """A process of two."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    model = nn.parallel.DistributedDataParallel(Block().cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(16, 256, device="cuda")).mean().backward()
    optimizer.step()


def adagrad(hand):
    """Its states are there before the first step."""
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))).cuda()
    if hand == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    else:
        optimizer = torch.optim.Adagrad(model.parameters(), fused=hand == "fused" or None)
    for _ in range(3):
        loss = model(torch.zeros(8, 512, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def scaler(hand):
    """A GradScaler, and gradients that are clipped."""
    model = nn.Sequential(*[Block() for _ in range(3)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False if hand == "no_foreach" else None)
    scales = torch.amp.GradScaler("cuda")
    for _ in range(4):
        with torch.autocast("cuda", torch.float16):
            loss = model(torch.randn(16, 256, device="cuda")).square().mean()
        optimizer.zero_grad()
        scales.scale(loss).backward()
        scales.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scales.step(optimizer)
        scales.update()


def masked(hand):
    """What a saved mask selects has as many elements in backward as it had in forward."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kinds = torch.arange(512, device="cuda") % 3
    for _ in range(3):
        hooks = torch.autograd.graph.save_on_cpu() if hand == "offload" else contextlib.nullcontext()
        with hooks:
            y = model(torch.randn(512, 256, device="cuda"))
            loss = y[kinds == 1].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case")
    parser.add_argument("--hand", default="")
    options = parser.parse_args()
    globals()[options.case](options.hand)
