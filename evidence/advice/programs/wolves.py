"""Wolves by pack: a vision transformer of timm, set up by somebody who knew how: nothing is kept that can be made again."""

import timm
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Tracks(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.rand(3, 224, 224), i % 9


@torch.inference_mode()
def check(net, pack):
    net.eval()
    right = torch.zeros((), device="cuda")
    for pictures, packs in pack:
        with torch.autocast("cuda", torch.bfloat16):
            right += (net(pictures.cuda()).argmax(1) == packs.cuda()).sum()
    net.train()
    return right.item()


def main():
    net = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=9).cuda()
    net.set_grad_checkpointing()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    learn = DataLoader(Tracks(), batch_size=16, shuffle=True, drop_last=True)
    test = DataLoader(Tracks(), batch_size=16)
    for epoch in range(2):
        for pictures, packs in learn:
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(net(pictures.cuda()), packs.cuda())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        print(epoch, loss.item(), check(net, test))


main()
