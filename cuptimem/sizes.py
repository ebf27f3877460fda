"""Sizes as people write them: 500M, 1.5 GiB, 512."""

_UNITS: dict[str, int] = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_DIGITS = 30


def text(value: int) -> str:
    """1536 is 1.5 KiB; whole bytes below 1024."""
    number, sign = abs(value), "-" if value < 0 else ""
    if number < 1024:
        return f"{sign}{number} B"
    scaled, units = number / 1024, "KMGTPE"
    while scaled >= 1023.95 and len(units) > 1:
        scaled, units = scaled / 1024, units[1:]
    return f"{sign}{scaled:.1f} {units[0]}iB"


def parse(text: str, *, needs_unit: bool = False) -> int:
    """Bytes: a number with K, M, G, T or P, each of them 1,024 of the one before, with or without B or iB behind it.

    Upper or lower case, a space between. needs_unit: a number alone is none. Raises ValueError for anything else.
    A size written for pytest-memray means the same here.
    """
    bare = text.strip().upper().removeprefix("+")
    number = bare.rstrip("BIKMGTP ")
    unit = bare[len(number) :].strip()
    scale = unit.removesuffix("B").removesuffix("I")
    is_number = number.replace(".", "", 1).isdecimal() and len(number) <= _DIGITS
    if scale not in _UNITS or not is_number or unit in ("I", "IB") or (needs_unit and not unit):
        forms = '"512 MiB", "1.5G"' if needs_unit else 'a number of bytes, or text such as "512 MiB" or "1.5G"'
        raise ValueError(f"not a size: {text!r} (it is {forms})")
    return round(float(number) * (1 << 10 * _UNITS[scale]))


def of(value: int | str, what: str) -> int:
    """An argument in bytes: a number, or text as above. Raises ValueError, with what it takes."""
    try:
        size = parse(value) if isinstance(value, str) else value
    except ValueError:
        size = -1
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f'{what} is a number of bytes, or text such as "512 MiB" or "1.5G", not {value!r}')
    return size
