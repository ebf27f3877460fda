"""The devices that can be asked for, and sizes as people write them."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cuptimem.errors import Error

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"(\d+)(?:\.(\d+))?\s*(?:([KMGT])(iB|B)?|B)?", re.IGNORECASE | re.ASCII)


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
    """A device profile of csrc/simulator/core/profiles.c."""

    key: str  # as people ask for it
    name: str  # as CUDA tells it
    memory: int  # bytes that CUDA calls total
    capability: tuple[int, int]
    sms: int  # multiprocessors
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
        """Bytes that PyTorch allocates for each cuBLAS handle and stream, unless CUBLAS_WORKSPACE_CONFIG says more."""
        return 32 << 20 if self.capability >= (9, 0) else 8320 << 10


def _mib(low: int, middle: int, high: int) -> Context:
    return Context(low << 20, middle << 20, high << 20)


# What out-of-memory messages of PyTorch leave for the context: "in use" less what PyTorch's allocator has. Linux, CUDA
# 11.8 or newer, one process, without NCCL (tests/oracle/evidence/published/context.md, section 1). The middle is the
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

# Equal to csrc/simulator/core/profiles.c (a test compares), where the sources are. Here too, because the library is
# never loaded into this process: it would answer for libcuda.so.1 from then on.
CARDS: tuple[Card, ...] = (
    Card("a100-40gb", "NVIDIA A100-SXM4-40GB", 42405855232, (8, 0), 108, _A100),
    Card("a100-80gb", "NVIDIA A100-SXM4-80GB", 85100068864, (8, 0), 108, _A100),
    Card("a10g", "NVIDIA A10G", 23684186112, (8, 6), 80, _A10G),
    Card("a40", "NVIDIA A40", 47608692736, (8, 6), 84, _GA102),
    Card("b200", "NVIDIA B200", 191502483456, (10, 0), 148, _B200),
    Card("gh200", "NVIDIA GH200 120GB", 101468602368, (9, 0), 132, _H200),
    Card("rtx3060", "NVIDIA GeForce RTX 3060", 12479102976, (8, 6), 28, _RTX3060),
    Card("rtx3090", "NVIDIA GeForce RTX 3090", 25438126080, (8, 6), 82, _GA102),
    Card("rtx4090", "NVIDIA GeForce RTX 4090", 25250627584, (8, 9), 128, _AD102),
    Card("rtx5090", "NVIDIA GeForce RTX 5090", 33660534784, (12, 0), 170, _RTX5090),
    Card("h100", "NVIDIA H100 80GB HBM3", 85017755648, (9, 0), 132, _H100),
    Card("h200", "NVIDIA H200", 150110011392, (9, 0), 132, _H200),
    Card("l4", "NVIDIA L4", 23612293120, (8, 9), 58, _A10G),
    Card("l40s", "NVIDIA L40S", 47576711168, (8, 9), 142, _AD102),
    Card("a6000", "NVIDIA RTX A6000", 50894733312, (8, 6), 84, _GA102),
    Card("t4", "Tesla T4", 15828320256, (7, 5), 40, _T4),
    Card("v100-16gb", "Tesla V100-SXM2-16GB", 16928342016, (7, 0), 80, _V100),
    Card("v100-32gb", "Tesla V100-SXM2-32GB", 34072559616, (7, 0), 80, _V100),
)

_AMD = re.compile(r"(amd)?(radeon.*|rx\d{4}.*|(instinct)?mi\d{2,3}[a-z]?)")  # of a name as _plain leaves it


def card(text: str) -> Card:
    """The card of that name, however it is written: H100, rtx-4090, "RTX 4090". Raises Error with the known ones."""
    wanted = _plain(text)
    for one in CARDS:
        if wanted in _names(one):
            return one
    if _AMD.fullmatch(wanted):
        raise Error(f"{text} is an AMD card, and only CUDA is simulated: ROCm builds of PyTorch are not")
    near = [one.key for one in CARDS if wanted and _plain(one.key).startswith(wanted)]
    if not near:
        close = difflib.get_close_matches(wanted, [_plain(one.key) for one in CARDS], n=1)
        near = [one.key for one in CARDS if _plain(one.key) in close]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise Error(
        f"no device {text!r} to simulate; {hint}There are {', '.join(one.key for one in CARDS)}; "
        "for any other take the nearest one with --memory"
    )


def _names(one: Card) -> set[str]:
    """All that a card goes by: with and without its maker, its family and the unit of its size."""
    key, name = _plain(one.key), _plain(one.name)
    short = re.sub("^(nvidia|tesla)?(geforce)?", "", name)
    return {key, key.removesuffix("gb"), name, short, short.replace("sxm4", "").replace("sxm2", "")}


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def larger(cards: Iterable[Card], memory: int) -> list[Card]:
    """Those with at least so many bytes, the smallest first."""
    return sorted((one for one in cards if one.memory >= memory), key=lambda one: one.memory)


def of_size(memory: int) -> list[Card]:
    """Those that a size may stand for, as "24GiB" stands for cards of 24 GB: up to a tenth smaller."""
    return [one for one in CARDS if memory * 9 // 10 <= one.memory <= memory]


def size(text: str) -> int:
    """Bytes of "24GiB", "24G", "1.5g", "512 MiB", "25769803776"; "24GB" is 24 * 10**9, as data sheets have it.

    Raises ValueError for anything else, and for less than a byte.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"a size is written like 24GiB or 512MiB, not {text!r}")
    whole, fraction, prefix, unit = match.groups()
    base = 1000 if unit is not None and unit.upper() == "B" else 1024
    scale: int = base ** _POWERS[(prefix or "").upper()]
    value = int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
    if value < 1:
        raise ValueError(f"a size is at least one byte, not {text!r}")
    return value


def text(value: int) -> str:
    """1536 is 1.5 KiB."""
    from cuptimem.output.text.words import size as written

    return written(value)
