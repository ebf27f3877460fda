"""Text of unknown origin, as a terminal may show it. Part of every recording: imports nothing."""


def printable(text: str) -> str:
    """The text on one line and without effect: what commands a terminal, changes the direction of text or cannot be
    seen is an escape (\\x1b, \\n, \\u202e), a tab is a space. Letters, symbols and emoji of all scripts stay."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable():  # no control, format, surrogate or private use, and of separators only the space
        return character
    return " " if character == "\t" else character.encode("unicode_escape").decode()


_PLAIN = {"…": "...", "·": "-", "≥": ">=", "→": "->", "µ": "u", "├": "|", "└": "`", "│": "|"}


def plain(character: str) -> str:
    """In ASCII, for an encoding that has it not."""
    return _PLAIN.get(character) or character.encode("ascii", "backslashreplace").decode()


def encoded(text: str, encoding: str) -> bytes:
    """The text in an encoding that may lack some of its characters."""
    for character in set(text):
        try:
            character.encode(encoding)
        except UnicodeEncodeError:
            text = text.replace(character, plain(character))
    return text.encode(encoding)
