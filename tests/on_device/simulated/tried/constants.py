"""A module of a program: others read its variables."""

import torch

TABLE = torch.rand(8192, 4096, device="cuda")
MEAN = TABLE.mean()
