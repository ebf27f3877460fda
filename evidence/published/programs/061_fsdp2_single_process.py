# needs: torch
# after https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (fully_shard on each layer and the root, mixed precision policy);
# one process of one, on torch's "fake" process group as torchtitan's dry runs use it
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
mesh = init_device_mesh("cuda", (1,))


class Model(nn.Module):
    def __init__(self, vocabulary=32000, width=2048, layers=16, heads=16):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            [
                nn.TransformerEncoderLayer(
                    width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
                )
                for _ in range(layers)
            ]
        )
        self.output = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        h = self.tokens(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(h)


with torch.device("cuda"):
    model = Model()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optim = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(2):
    x = torch.randint(0, 32000, (2, 1024), device="cuda")
    loss = model(x).float().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optim.step()
    optim.zero_grad()
dist.destroy_process_group()
print("done")
