"""Sizes as people write them: 500M, 1.5 GiB, 512."""

_UNITS: dict[str, int] = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse(text: str) -> int:
    """Bytes: a number with K, M, G or T, each of them 1,024 of the one before, with or without B or iB behind it.

    Upper or lower case, a space between. Raises ValueError for anything else.
    """
    bare = text.strip().upper()
    number = bare.rstrip("BIKMGT ")
    unit = bare[len(number) :].strip()
    scale = unit.removesuffix("B").removesuffix("I")
    if scale not in _UNITS or not number.replace(".", "", 1).isdecimal() or unit in ("I", "IB"):
        raise ValueError(f"not a size: {text!r}")
    return round(float(number) * (1 << 10 * _UNITS[scale]))
