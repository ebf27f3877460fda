# needs: torch
# boolean indexing as https://docs.pytorch.org/docs/stable/tensor_view.html and numpy's guide write it: a mask that the host made
# selects a quarter of the rows
import torch

data = torch.randn(65536, 16384, device="cuda")  # 4 GiB
keep = torch.zeros(65536, dtype=torch.bool)
keep[::4] = True
keep = keep.to("cuda")
selected = data[keep]  # 16,384 rows: 1 GiB
mean = selected.mean(dim=0)
print(int(keep.sum()), tuple(selected.shape), mean.shape)
