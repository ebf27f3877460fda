"""How large a recording's JSON may be: the handler writes no more, and the page's side reads no more.

Measured: a million events are 0.9 MiB with 2,830 lists and objects and 151,000 values. Eight devices, each with 500
lines of 24 frames and long paths, are 5 to 7 MiB. Past a limit the handler leaves out detail: see data.py.
"""

BYTES = 8 << 20  # of JSON, unpacked
CONTAINERS = 1 << 17  # lists and objects: 56 to 240 bytes each in memory
VALUES = 1 << 20  # 8 to 60 bytes each in memory
_DIGITS = 310  # in a row: Python's time for a number grows with their square, and a double has no more

_DIGIT = bytes(48 if chr(code).isdecimal() and code < 128 else 32 for code in range(256))
_LONG_NUMBER = b"0" * _DIGITS


def excess(text: bytes, share: int = 1) -> str:
    """What is too much of this JSON, in words; "" where it is within all limits. Counts before anything is parsed, so
    that memory after parsing is bounded. Brackets and commas inside of texts count, too. share: 2 for half of each."""
    if len(text) > BYTES // share:
        return f"more than {BYTES >> 20} MiB"
    if text.count(b"[") + text.count(b"{") > CONTAINERS // share:
        return f"more than {CONTAINERS:,} lists and objects"
    if text.count(b",") + text.count(b":") > VALUES // share:
        return f"more than {VALUES:,} values"
    if _LONG_NUMBER in text.translate(_DIGIT):
        return f"a number of more than {_DIGITS} digits"
    return ""
