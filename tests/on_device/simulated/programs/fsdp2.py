"""FSDP2 (fully_shard) over four ranks of which only this one exists, in bfloat16, fused AdamW."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.on_device.simulated.programs import Check
from tests.on_device.simulated.programs.models import GPT, tokens


def main(check: Check) -> None:
    torch.manual_seed(0)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    mesh = init_device_mesh("cuda", (4,))
    with torch.device("meta"):
        model = GPT(width=512, heads=8, layers=4)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cuda")
    check("sharded")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(3):
        x, y = tokens(2, 256)
        loss = model(x, y)
        check(f"step {step}, forward done")
        loss.backward()
        check(f"step {step}, backward done")
        optimizer.step()
        optimizer.zero_grad()
        del loss
        check(f"step {step} done")
    dist.destroy_process_group()
