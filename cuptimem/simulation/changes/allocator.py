"""Settings of PyTorch's allocator."""

import torch

from cuptimem.simulation.changes.change import Change


class Expandable(Change):
    """expandable_segments:True. What tensors need stays the same; what is reserved for them may be less."""

    why_not = "PyTorch's allocator on the CPU has no such setting"

    def install(self) -> None:
        if self.device == "cuda":
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
            self.applied, self.write = 1, "in the environment, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
