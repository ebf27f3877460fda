# needs: torch, torchvision
# after https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html and pytorch/examples' imagenet (DistributedDataParallel,
# batch 128): one process of one, on torch's "fake" process group
import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
model = torchvision.models.resnet50().to(0)
ddp_model = DDP(model, device_ids=[0])
loss_fn = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.001, momentum=0.9)
for step in range(2):
    optimizer.zero_grad()
    outputs = ddp_model(torch.randn(128, 3, 224, 224, device=0))
    labels = torch.randint(0, 1000, (128,), device=0)
    loss = loss_fn(outputs, labels)
    loss.backward()
    optimizer.step()
    print(step, loss.item())
dist.destroy_process_group()
