"""How wide text is on a terminal: letters of East Asia and emoji take two columns, combining marks none."""

import re

_NARROW = re.compile("[ -~\u00a0-\u02ff\u2010-\u2027\u2030-\u205e\u2260-\u2265\u2500-\u257f]*").fullmatch


def cell_len(text: str) -> int:
    """Columns of printable text."""
    if text.isascii() or _NARROW(text):
        return len(text)
    from rich import cells  # rarely needed, and this is part of a recording, too

    return cells.cell_len(text)


def cut(text: str, size: int, keep_end: bool = False, mark: str = "…") -> str:
    """At most size columns, the last (or first) an ellipsis where some are missing; with another mark, at least one
    character."""
    if cell_len(text) <= size:
        return text
    room = max(0, size - len(mark))
    kept = text[max(0, len(text) - room) :] if keep_end else text[:room]
    while kept and cell_len(kept) > room:
        kept = kept[1:] if keep_end else kept[:-1]
    if not mark:
        return kept or text[:1]
    if size < 1:
        return ""
    return mark + kept if keep_end else kept + mark
