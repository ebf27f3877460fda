"""How numbers, times and lines of code are written."""

from cuptimem.stacks import Frame

_SOURCE_WIDTH = 60


def size(value: int) -> str:
    """1536 is 1.5 KiB; whole bytes below 1024."""
    number, sign = abs(value), "-" if value < 0 else ""
    if number < 1024:
        return f"{sign}{number} B"
    scaled = float(number)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        scaled /= 1024
        if scaled < 1023.95 or unit == "TiB":
            break
    return f"{sign}{scaled:.1f} {unit}"


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


def code(frame: Frame | None) -> str:
    """The source of a line, short, and harmless: a trace may have anything in it."""
    text = printable(frame.source) if frame is not None else ""
    return text if len(text) <= _SOURCE_WIDTH else text[: _SOURCE_WIDTH - 1] + "…"


def printable(text: str) -> str:
    """Text of unknown origin, on one line and without effect on a terminal."""
    return "".join(map(_shown, text))


def shortened(text: str, most: int) -> str:
    """Text of unknown origin and length: printable, of at most so many characters before escapes."""
    shown = text if len(text) <= most else text[: most - 1] + "…"
    return shown if shown.isprintable() else printable(shown)


def _shown(character: str) -> str:
    """Tabs as a space, what does not print (a terminal's commands, a change of direction) as an escape."""
    if character.isprintable():
        return character
    return " " if character == "\t" else character.encode("unicode_escape").decode()


def function(frame: Frame | None) -> str:
    return frame.function.replace(".<locals>", "") if frame is not None else ""


def more(number: int) -> str:
    """Behind the one of several that is named: " +3"; nothing where there are no others."""
    return f" +{count(number)}" if number > 0 else ""
