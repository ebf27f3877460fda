"""Etchings: a photograph of the old town is drawn again with the hand of someone who only ever drew water."""
import torch
import torch.nn.functional as F
from torch import optim
from torchvision.models import vgg19

SIDE = 448
CONTENT, STYLE = {22}, {1, 6, 11, 20, 29}

vgg = vgg19(weights=None).features.cuda().eval()
for i, layer in enumerate(vgg):
    if isinstance(layer, torch.nn.ReLU):
        vgg[i] = torch.nn.ReLU(inplace=False)
    elif isinstance(layer, torch.nn.MaxPool2d):
        vgg[i] = torch.nn.AvgPool2d(2, 2)


def gram(f):
    n, c, h, w = f.shape
    f = f.double().view(n, c, h * w)  # the sums are long
    return f @ f.transpose(1, 2) / (c * h * w)


def look(picture):
    shift = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1).cuda()
    scale = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1).cuda()
    x = (picture - shift) / scale
    content, style = [], []
    for i, layer in enumerate(vgg[:30]):
        x = layer(x)
        if i in CONTENT:
            content.append(x)
        if i in STYLE:
            style.append(gram(x))
    return content, style


photo = torch.rand(1, 3, SIDE, SIDE).cuda()
water = torch.rand(1, 3, SIDE, SIDE).cuda()
wanted, _ = look(photo)
_, hand = look(water)

drawing = photo.clone().requires_grad_(True)
optimizer = optim.Adam([drawing], lr=0.02)
proofs = []

for turn in range(8):
    optimizer.zero_grad()
    content, style = look(drawing)
    c = sum(F.mse_loss(a, b.detach()) for a, b in zip(content, wanted))
    s = sum(F.mse_loss(a, b.detach()) for a, b in zip(style, hand))
    flat = (drawing[..., 1:] - drawing[..., :-1]).abs().mean() + (drawing[:, :, 1:] - drawing[:, :, :-1]).abs().mean()
    loss = c + 1e5 * s + 0.1 * flat
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        drawing.clamp_(0, 1)
    if turn % 2:
        proofs.append(drawing.detach().clone())
        print(turn, loss.item())

torch.cat(proofs).cpu()
