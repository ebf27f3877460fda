"""Embeddings of a whole data set by a timm transformer: they are meant to be kept, and nothing is trained."""

import timm
import torch

torch.manual_seed(0)
model = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=0).eval()
vectors = []
with torch.no_grad():
    for _ in range(30):
        x = torch.rand(8, 3, 64, 64)  #: input
        vectors.append(model(x))
table = torch.cat(vectors)
print(table.shape)
