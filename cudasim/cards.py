"""The cards that can be simulated, with the sources of their figures.

setup.py reads this file too (by its path), for the library's own profiles.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Context:
    """What a CUDA context, with the kernels that PyTorch has loaded, takes of a device: bytes."""

    low: int  # the lowest that is published
    middle: int  # what a run takes
    high: int  # the highest that is published

    @property
    def exact(self) -> bool:
        """Whether the user gave it, as one size."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class Card:
    """A card as CUDA describes it. Its compute capability decides the rest: csrc/core/profiles.c."""

    key: str  # as people ask for it
    name: str  # as CUDA names it
    memory: int  # bytes that CUDA calls total
    capability: tuple[int, int]
    sms: int  # multiprocessors
    l2: int  # bytes of the level-2 cache
    clock: int  # kHz
    memory_clock: int  # kHz
    bus_width: int  # bits
    context: Context

    @property
    def architecture(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def has_kernels(self) -> bool:
        """Whether builds of PyTorch for CUDA 13, the only ones that are simulated, have kernels for it."""
        return self.capability >= (7, 5)

    @property
    def cublas_workspace(self) -> int:
        """Bytes that PyTorch allocates for each cuBLAS handle and stream, unless CUBLAS_WORKSPACE_CONFIG is larger."""
        return 32 << 20 if self.capability >= (9, 0) else 8320 << 10


def _mib(low: int, middle: int, high: int) -> Context:
    return Context(low << 20, middle << 20, high << 20)


# What out-of-memory messages of PyTorch leave for the context: "in use" less what PyTorch's allocator has. Linux, CUDA
# 11.8 or newer, one process, without NCCL (section 1 of evidence/published/context.md). The middle is the
# published one, but 512 MiB, the simulator's own constant, where that is within 10 % of it (A100, H100, H200, GH200,
# 4090, L40S).
_T4 = _mib(100, 130, 160)
_V100 = _mib(280, 350, 500)
_A10G = _mib(200, 255, 470)  # and L4
_RTX3060 = _mib(120, 200, 275)
_GA102 = _mib(255, 310, 520)  # RTX 3090, A6000, A40
_AD102 = _mib(400, 512, 550)  # RTX 4090, L40S
_A100 = _mib(415, 512, 1100)
_H100 = _mib(450, 512, 700)
_H200 = _mib(500, 512, 700)  # and GH200
_RTX5090 = _mib(590, 615, 700)
_B200 = _mib(700, 715, 760)
_GB10 = _mib(400, 512, 700)  # not published: the driver's memory is the machine's, where it does not stand apart

# Memory is totalGlobalMem of cudaGetDeviceProperties, which is less than the data sheet's and nvidia-smi's figure: the
# driver and ECC keep a part. It differs by some MiB between drivers, and newer ones mostly report less. The figures are
# published outputs of CUDA 12.4 to 13.0 drivers, named above each card, with what others report in parentheses.
# Multiprocessors, clocks, bus widths and level-2 caches are from the same outputs where these have them, else from
# NVIDIA's tables (B200: bus width from its bandwidth of 7.7 TB/s). Sorted by name.
CARDS: tuple[Card, ...] = (
    # deviceQuery, driver 13.0: 42405855232 (12.2: 42298834944)
    Card("a100-40gb", "NVIDIA A100-SXM4-40GB", 42405855232, (8, 0), 108, 41943040, 1410000, 1215000, 5120, _A100),
    # deviceQuery, driver 12.5: 85100068864 (12.2: 84987740160)
    Card("a100-80gb", "NVIDIA A100-SXM4-80GB", 85100068864, (8, 0), 108, 41943040, 1410000, 1593000, 5120, _A100),
    # torch 2.15 (CUDA 13.0), get_device_properties: 22587 MB, so to a MiB
    Card("a10g", "NVIDIA A10G", 23684186112, (8, 6), 80, 6291456, 1710000, 6251000, 384, _A10G),
    # deviceQuery, driver 12.4: 47608692736
    Card("a40", "NVIDIA A40", 47608692736, (8, 6), 84, 6291456, 1740000, 7251000, 384, _GA102),
    # torch 2.8, get_device_properties: 182631 MB, so to a MiB (another one: 182642 MB)
    Card("b200", "NVIDIA B200", 191502483456, (10, 0), 148, 132644864, 1965000, 3996000, 7680, _B200),
    # A GPU list of CUDA 13.0: 124610 MB, which is the machine's MemTotal. Its memory is the host's (csrc/core/sim.h)
    Card("gb10", "NVIDIA GB10", 130663055360, (12, 1), 48, 25165824, 2418000, 8533000, 256, _GB10),
    # deviceQuery, driver 12.9: 101468602368 (12.2: 102005473280)
    Card("gh200", "NVIDIA GH200 120GB", 101468602368, (9, 0), 132, 62914560, 1980000, 2619000, 6144, _H200),
    # deviceQuery, driver 13.0: 11901 MBytes, so to a MiB (12.4: 12587106304). 12 GB
    Card("rtx3060", "NVIDIA GeForce RTX 3060", 12479102976, (8, 6), 28, 2359296, 1777000, 7501000, 192, _RTX3060),
    # torch total_memory: 25438126080 (deviceQuery, driver 11.8: 25443893248)
    Card("rtx3090", "NVIDIA GeForce RTX 3090", 25438126080, (8, 6), 82, 6291456, 1695000, 9751000, 384, _GA102),
    # deviceQuery, driver 13.0: 25250627584
    Card("rtx4090", "NVIDIA GeForce RTX 4090", 25250627584, (8, 9), 128, 75497472, 2520000, 10501000, 384, _AD102),
    # deviceQuery, driver 13.0: 33660534784 (another one: 33668857856)
    Card("rtx5090", "NVIDIA GeForce RTX 5090", 33660534784, (12, 0), 170, 100663296, 2407000, 14001000, 512, _RTX5090),
    # deviceQuery, driver 13.0: 85017755648 (12.7: 85045477376, 12.8: 85028896768)
    Card("h100", "NVIDIA H100 80GB HBM3", 85017755648, (9, 0), 132, 52428800, 1980000, 2619000, 5120, _H100),
    # torch.cuda.get_device_properties: 150110011392 (shown as 143156MB, 139.80 GiB)
    Card("h200", "NVIDIA H200", 150110011392, (9, 0), 132, 62914560, 1980000, 3201000, 6144, _H200),
    # deviceQuery, driver 12.0: 23612293120
    Card("l4", "NVIDIA L4", 23612293120, (8, 9), 58, 50331648, 2040000, 6251000, 192, _A10G),
    # deviceQuery, driver 12.4: 47576711168 (messages of PyTorch: 44.39 and 44.52 GiB)
    Card("l40s", "NVIDIA L40S", 47576711168, (8, 9), 142, 100663296, 2520000, 9001000, 384, _AD102),
    # messages of PyTorch: 47.40 to 47.54 GiB, the lowest rounded down to a MiB (deviceQuery, driver 12.7: 51160023040)
    Card("a6000", "NVIDIA RTX A6000", 50894733312, (8, 6), 84, 6291456, 1800000, 8001000, 384, _GA102),
    # cudaGetDeviceProperties, CUDA 12.4: 15828320256 (11.2: 15843721216)
    Card("t4", "Tesla T4", 15828320256, (7, 5), 40, 4194304, 1590000, 5001000, 256, _T4),
    # deviceQuery, driver 12.4: 16928342016 (11.0: 16911433728)
    Card("v100-16gb", "Tesla V100-SXM2-16GB", 16928342016, (7, 0), 80, 6291456, 1530000, 877000, 4096, _V100),
    # deviceQuery, driver 12.9: 34072559616
    Card("v100-32gb", "Tesla V100-SXM2-32GB", 34072559616, (7, 0), 80, 6291456, 1530000, 877000, 4096, _V100),
)
