"""The dynamic symbols of a shared object and what it is linked with, as much of ELF as that takes.

64-bit, little-endian.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

_DYNAMIC, _DYNSYM, _VERNEED, _VERSYM = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF
_NEEDED = 1


@dataclass(frozen=True)
class Import:
    """A symbol that a shared object wants, and the library it says it is in ("" if it does not say)."""

    name: str
    library: str


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int
    count: int  # sh_info


def imports(file: Path) -> set[Import]:
    """ValueError if it is no such object."""
    data, sections = _read(file)
    symbols = next((s for s in sections if s.kind == _DYNSYM), None)
    if symbols is None:
        raise ValueError(f"{file} has no dynamic symbols")
    strings = sections[symbols.link]
    versions = next((s for s in sections if s.kind == _VERSYM), None)
    libraries = _libraries(data, sections)
    found = set()
    for i in range(symbols.size // 24):
        name, _, _, section = struct.unpack_from("<IBBH", data, symbols.offset + 24 * i)
        if section != 0 or name == 0:
            continue
        number = struct.unpack_from("<H", data, versions.offset + 2 * i)[0] & 0x7FFF if versions else 0
        found.add(Import(_text(data, strings.offset + name), libraries.get(number, "")))
    return found


def needed(file: Path) -> set[str]:
    """The libraries that it is linked with (DT_NEEDED). ValueError as above."""
    data, sections = _read(file)
    section = next((s for s in sections if s.kind == _DYNAMIC), None)
    if section is None:
        raise ValueError(f"{file} has no dynamic section")
    entries = (struct.unpack_from("<qQ", data, section.offset + 16 * i) for i in range(section.size // 16))
    strings = sections[section.link].offset
    return {_text(data, strings + value) for tag, value in entries if tag == _NEEDED}


def _read(file: Path) -> tuple[bytes, list[_Section]]:
    data = file.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{file} is no 64-bit little-endian ELF object")
    return data, _sections(data)


def _sections(data: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    read = (struct.unpack_from("<IIQQQQIIQQ", data, start + size * i) for i in range(count))
    return [_Section(s[1], s[4], s[5], s[6], s[7]) for s in read]


def _libraries(data: bytes, sections: list[_Section]) -> dict[int, str]:
    """Which library each version number stands for."""
    found = {}
    for section in sections:
        if section.kind != _VERNEED:
            continue
        strings, at = sections[section.link].offset, section.offset
        for _ in range(section.count):
            _, count, file, auxiliary, following = struct.unpack_from("<HHIII", data, at)
            each = at + auxiliary
            for _ in range(count):
                _, _, number, _, step = struct.unpack_from("<IHHII", data, each)
                found[number] = _text(data, strings + file)
                each += step
            at += following
    return found


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
