"""A pickle written piece by piece, with the few instructions that MemoryViz.js reads (protocol 4 at most).

Only what pickle's own machine calls: the file is data, and loading it calls nothing.
"""

import struct

PROTOCOL = b"\x80\x04"
DICT, LIST, MARK, STOP, NONE = b"}", b"]", b"(", b".", b"N"
SETITEM, SETITEMS, APPENDS = b"s", b"u", b"e"


def integer(value: int) -> bytes:
    if 0x7FFF_FFFF < value < 0x7FFF_FFFF_FFFF:
        return b"\x8a\x06" + value.to_bytes(6, "little")  # an address, a time: the most frequent
    if 0 <= value < 256:
        return b"K" + bytes((value,))
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    length = (value.bit_length() >> 3) + 1
    return b"\x8a" + bytes((length,)) + value.to_bytes(length, "little", signed=True)


def string(value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    if len(data) < 256:
        return b"\x8c" + bytes((len(data),)) + data
    return b"X" + struct.pack("<I", len(data)) + data


class Memo:
    """Numbers under which a pickle's reader keeps what comes more than once."""

    def __init__(self) -> None:
        self._next = 0

    def put(self) -> tuple[bytes, bytes]:
        """What stores the thing on top under a new number, and what gives it back."""
        number = self._next
        self._next += 1
        if number < 256:
            return b"q" + bytes((number,)), b"h" + bytes((number,))
        return b"r" + struct.pack("<I", number), b"j" + struct.pack("<I", number)


class Strings:
    """Strings that come often: whole the first time, then by number."""

    def __init__(self, memo: Memo) -> None:
        self._memo, self._known = memo, dict[str, bytes]()

    def __call__(self, value: str) -> bytes:
        known = self._known.get(value)
        if known is not None:
            return known
        store, self._known[value] = self._memo.put()
        return string(value) + store
