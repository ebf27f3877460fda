# needs: torch
# class prototypes after https://github.com/orobix/Prototypical-Networks-for-Few-shot-Learning-in-PyTorch (prototypical_loss.py:
# torch.unique of the targets, rows of each class): 512 classes that the host drew
import torch

features = torch.randn(8192, 65536, device="cuda")  # 2 GiB
target = torch.arange(8192) % 512
target = target[torch.randperm(8192)].to("cuda")
classes, inverse, counts = torch.unique(target, return_inverse=True, return_counts=True)
prototypes = torch.zeros(len(classes), features.shape[1], device="cuda")  # 512 rows: 128 MiB
prototypes.index_add_(0, inverse, features)
prototypes /= counts[:, None]
support = features[target == classes[3]]
print(len(classes), counts.max().item(), support.shape)
