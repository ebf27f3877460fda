"""The devices that can be asked for, and sizes as people write them."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cuptimem.errors import Error

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"(\d+)(?:\.(\d+))?\s*(?:([KMGT])(iB|B)?|B)?", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Card:
    """A device profile of csrc/simulator/core/profiles.c."""

    key: str  # as people ask for it
    name: str  # as CUDA tells it
    memory: int  # bytes that CUDA calls total


# Equal to csrc/simulator/core/profiles.c (a test compares). Here too, because the library is never loaded into this
# process: it would answer for libcuda.so.1 from then on.
CARDS: tuple[Card, ...] = (
    Card("a100-40gb", "NVIDIA A100-SXM4-40GB", 42405855232),
    Card("a100-80gb", "NVIDIA A100-SXM4-80GB", 85100068864),
    Card("rtx3090", "NVIDIA GeForce RTX 3090", 25438126080),
    Card("rtx4090", "NVIDIA GeForce RTX 4090", 25250627584),
    Card("h100", "NVIDIA H100 80GB HBM3", 85017755648),
    Card("h200", "NVIDIA H200", 150110011392),
    Card("l4", "NVIDIA L4", 23612293120),
    Card("t4", "Tesla T4", 15828320256),
)


def card(text: str) -> Card:
    """The card of that name, however it is written: H100, rtx-4090, "RTX 4090". Raises Error with the known ones."""
    wanted = _plain(text)
    for one in CARDS:
        if wanted in (_plain(one.key), _plain(one.key).removesuffix("gb"), _plain(one.name)):
            return one
    near = [one.key for one in CARDS if wanted and _plain(one.key).startswith(wanted)]
    if not near:
        close = difflib.get_close_matches(wanted, [_plain(one.key) for one in CARDS], n=1)
        near = [one.key for one in CARDS if _plain(one.key) in close]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise Error(
        f"no device {text!r} to simulate; {hint}There are {', '.join(one.key for one in CARDS)}; "
        "for any other take the nearest one with --memory"
    )


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def larger(cards: Iterable[Card], memory: int) -> list[Card]:
    """Those with at least so many bytes, the smallest first."""
    return sorted((one for one in cards if one.memory >= memory), key=lambda one: one.memory)


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
    from cuptimem.reporters.words import size as written

    return written(value)
