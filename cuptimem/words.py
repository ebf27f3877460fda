"""How numbers and times are written."""

from cuptimem import sizes

size = sizes.text


def signed(value: int) -> str:
    """A change of bytes: +1.5 KiB, -3 B, 0."""
    return "0" if value == 0 else f"{'+' if value > 0 else ''}{size(value)}"


def count(value: int) -> str:
    """12,345"""
    return f"{value:,}"


def plural(number: int, what: str) -> str:
    """1 block, 12,345 blocks"""
    return f"{count(number)} {what}" if number == 1 else f"{count(number)} {what}s"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else ""


def duration(nanoseconds: int) -> str:
    """0.4 ms, 950 ms, 41.2 s, 12 min 3 s"""
    seconds = nanoseconds / 1e9
    if 0 < seconds < 0.00995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
