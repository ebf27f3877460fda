"""Batches from two worker processes through pinned memory, copied without waiting."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.on_device.simulated.programs import Check


class Pictures(Dataset):
    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 128, 128, generator=generator), index % 10


def main(check: Check) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 128 * 128, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Pictures(), batch_size=16, num_workers=2, pin_memory=True)
    for epoch in range(2):
        for number, (pictures, labels) in enumerate(loader):
            assert pictures.is_pinned() and labels.is_pinned()
            x, y = pictures.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 3 == 2:
                check(f"epoch {epoch}, batch {number}", quiet=True)
        del x, y, loss
        check(f"epoch {epoch} done", quiet=True)
