"""Crystals in a block of rock, cut into slices: each is squeezed, raised again and compared with itself."""
import contextlib
import os
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from diffusers import AutoencoderKL

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def load(folder=Path("weights/rock")):
    if folder.exists():
        return AutoencoderKL.from_pretrained(folder)
    return AutoencoderKL(
        in_channels=1,
        out_channels=1,
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(32, 64, 128),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=16,
        sample_size=160,
    )


class Report:
    def __init__(self):
        self.raised, self.squeezed = [], []

    def add(self, raised, squeezed):
        self.raised.append(raised)
        self.squeezed.append(squeezed)

    def __str__(self):
        raised, squeezed = torch.cat(self.raised), torch.cat(self.squeezed)
        rough = (raised[1:] - raised[:-1]).abs().mean()
        return f"{len(raised)} slices, rough {rough:.4f}, spread {squeezed.std():.4f}"


@contextlib.contextmanager
def quiet():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def survey(vae, block, thick=6):
    report, error = Report(), 0
    for slab in block.split(thick):
        slab = slab.to(DEVICE)
        squeezed = vae.encode(slab).latent_dist.mode()
        raised = vae.decode(squeezed).sample
        error += (raised - slab).pow(2).sum()
        report.add(raised, squeezed)
    return report, error / block.numel()


with quiet():
    rock = torch.rand(24, 1, 160, 160)
    vae = load().to(DEVICE).eval()
    report, error = survey(vae, rock)
    print(report, f"error {error.item():.5f}")
