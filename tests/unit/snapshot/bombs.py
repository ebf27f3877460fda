"""Crafted pickles that make the most of their bytes: `python bombs.py NAME` converts one, and prints the memory that it
took beyond what the process had."""

import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from cuptimem import Error, _core

BYTES = 4 << 20


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def words(*names: str) -> bytes:
    """These texts, in the memo from 0 on."""
    return b"".join(text(name) + b"q" + bytes((number,)) for number, name in enumerate(names))


def whole(*items: bytes) -> bytes:
    """A snapshot whose only trace, a list, has these after the words that they need."""
    head = b"\x80\x02}(" + text("segments") + b"]" + text("device_traces") + b"](]("
    keys = words("action", "alloc", "addr", "frames", "filename", "line", "name", "segment_map", "size")
    frames = b"}(h\x04h\x04h\x05K\x01h\x06h\x04uq\x10}(h\x04h\x04h\x05K\x02h\x06h\x04uq\x11"
    return head + keys + frames + b"".join(items) + b"eeu."


def integer(value: int) -> bytes:
    return b"J" + struct.pack("<I", value)


def stack(number: int, depth: int) -> bytes:
    return b"](" + b"".join(b"h\x11" if number >> bit & 1 else b"h\x10" for bit in range(depth)) + b"e"


BOMBS: dict[str, Callable[[int], bytes]] = {
    "lists": lambda size: b"\x80\x02" + b"]" * size + b".",
    "marks": lambda size: b"\x80\x02" + b"(" * size + b".",
    "empty lists": lambda size: whole(b"]" * size),
    "memoized": lambda size: b"\x80\x04N" + b"\x94" * size + b".",
    "dicts with one pair each": lambda size: b"\x80\x02" + b"}NN" * (size // 3) + b"s" * (size // 30) + b".",
    "events": lambda size: whole(b"}(h\0h\1h\2K\1u" * (size // 10)),
    "addresses": lambda size: whole(*(b"}(h\0h\1h\2" + integer(i) + b"u" for i in range(1, size // 14))),
    "mappings": lambda size: whole(
        *(b"}(h\0h\7h\2" + integer(i * 2) + b"h\x08K\1u" for i in range(1, size // 18)),
    ),
    "frames": lambda size: whole(*(b"}(h\4h\4h\5" + integer(i) + b"h\6h\4u" for i in range(size // 18))),
    "texts": lambda size: whole(*(b"U\4" + struct.pack("<I", i * 2654435761 & 0xFFFFFFFF) for i in range(size // 6))),
    "stacks": lambda size: whole(*(stack(i, 18) for i in range(min(size // 39, 1 << 18)))),
    "events with stacks": lambda size: whole(
        *(b"}(h\0h\1h\2" + integer(i + 1) + b"h\3" + stack(i, 18) + b"u" for i in range(size // 53)),
    ),
}


def resident(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def main() -> None:
    data = BOMBS[sys.argv[1]](BYTES)
    position = 0

    def read() -> bytes:
        nonlocal position
        position += 1 << 20
        return data[position - (1 << 20) : position]

    with tempfile.TemporaryDirectory() as folder:
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far is what there is now
        before, said = resident("VmRSS"), "converted"
        try:
            _core.snapshot_convert(read, lambda _: {}, str(Path(folder, "bomb.cmem")))
        except Error as error:
            said = str(error)
        print(len(data), resident("VmHWM") - before, said)


if __name__ == "__main__":
    main()
