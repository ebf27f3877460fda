"""Relocations of a shared object, read from its file: what the C code must find, found by other means."""

import mmap
import struct
from collections.abc import Iterator

_KINDS = {
    62: {6: "GLOB_DAT", 7: "JUMP_SLOT"},  # x86-64
    183: {1025: "GLOB_DAT", 1026: "JUMP_SLOT"},  # aarch64
}


def relocations(path: str) -> Iterator[tuple[int, str, str]]:
    """(address of the slot, GLOB_DAT or JUMP_SLOT or other, name) of every relocation that names a C++ symbol."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        (machine,) = struct.unpack_from("<H", data, 18)
        (table,) = struct.unpack_from("<Q", data, 0x28)
        size, count = struct.unpack_from("<HH", data, 0x3A)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
        for _, kind, _, _, offset, length, link, _, _, entry in sections:
            if kind != 4 or entry == 0:  # SHT_RELA
                continue
            symbols, strings = sections[link], sections[sections[link][6]]
            for at in range(offset, offset + length, entry):
                slot, info, _ = struct.unpack_from("<QQq", data, at)
                if info >> 32 == 0:
                    continue
                (name,) = struct.unpack_from("<I", data, symbols[4] + (info >> 32) * 24)
                start = strings[4] + name
                if data[start : start + 2] == b"_Z":
                    text = data[start : data.find(b"\0", start)].decode()
                    yield slot, _KINDS[machine].get(info & 0xFFFFFFFF, "other"), text
