"""Trains, then asks for more than the device has; prints what PyTorch says at that moment.

Arguments: bytes of the last request.
"""

import json
import sys

import torch

MIB = 1 << 20


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())


for _ in range(8):
    out = model(torch.ones(256, 1024, device="cuda"))
    optimizer.zero_grad()
    out.sum().backward()
    optimizer.step()
pieces = [block(5 * MIB) for _ in range(8)]
kept = pieces[::4]  # of two segments of 20 MiB, 15 each are free and cannot go back
del pieces
try:
    out = model(torch.ones(256, 1024, device="cuda"))
    block(int(sys.argv[1]))
except torch.OutOfMemoryError:
    free, total = torch.cuda.mem_get_info()
    state = [tensor for one in optimizer.state.values() for tensor in one.values() if tensor.is_cuda]
    print(
        json.dumps(
            {
                "allocated": torch.cuda.memory_allocated(),
                "reserved": torch.cuda.memory_reserved(),
                "free": free,
                "optimizer state": sum(tensor.nbytes for tensor in state),
                "gradient": sum(p.grad.nbytes for p in model.parameters() if p.grad is not None),
                "parameter": sum(p.nbytes for p in model.parameters()),
            }
        )
    )
    raise
