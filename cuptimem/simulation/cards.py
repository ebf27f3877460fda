"""The devices that can be asked for, and sizes as people write them."""

import difflib
import re
from collections.abc import Iterable

from cudasim.cards import CARDS, Card, Context
from cuptimem.errors import Error

__all__ = ["CARDS", "Card", "Context", "card", "larger", "of_size", "size", "text"]

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"(\d+)(?:\.(\d+))?\s*(?:([KMGT])(iB|B)?|B)?", re.IGNORECASE | re.ASCII)


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
