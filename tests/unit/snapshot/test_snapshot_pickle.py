"""Pickles as the core reads them: plain data of every protocol, nothing else, and never more than a line for what is
refused."""

import gzip
import os
import pickle
import pickletools
import random
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from cuptimem import Error, _core
from tests.unit.snapshot.made import event, frame, snapshot, training, whole_lists


def convert(data: bytes, target: Path, piece: int = 1 << 20) -> dict[str, Any]:
    """What the core says about a pickle that it converts."""
    told: dict[str, Any] = {}
    position = 0

    def read() -> bytes:
        nonlocal position
        position += piece
        return data[position - piece : position]

    def describe(said: dict[str, Any]) -> dict[str, str]:
        told.update(said)
        return {"nodes": "none"}

    _core.snapshot_convert(read, describe, str(target))
    return told


def events_of(trace: Path) -> list[tuple[Any, ...]]:
    return [row for row in _core.trace_dump(str(trace)) if row[0] != "end"]


@pytest.mark.parametrize("protocol", range(6))
def test_protocols_say_the_same(protocol: int, tmp_path: Path) -> None:
    convert(pickle.dumps(training(), 4), tmp_path / "four.cmem")
    convert(pickle.dumps(training(), protocol), tmp_path / "other.cmem", piece=7)
    assert events_of(tmp_path / "other.cmem") == events_of(tmp_path / "four.cmem")


def test_other_picklers_say_the_same(tmp_path: Path) -> None:
    data = training()
    convert(pickle.dumps(data, 4), tmp_path / "one.cmem")
    convert(pickletools.optimize(pickle.dumps(data, 4)), tmp_path / "two.cmem")
    convert(whole_lists(data), tmp_path / "three.cmem")
    assert events_of(tmp_path / "one.cmem") == events_of(tmp_path / "two.cmem") == events_of(tmp_path / "three.cmem")


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("false",)


class Persistent(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return "x" if obj == "persistent" else None


def with_metadata(value: Any) -> dict[str, Any]:
    return snapshot([], [[event("alloc", 4096, 512, 1, user_metadata=value)]])


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Evil(), "STACK_GLOBAL"),
        (OrderedDict(a=1), "STACK_GLOBAL"),
        ({1, 2}, "EMPTY_SET"),
        (bytearray(b"x"), "BYTEARRAY8"),
    ],
)
def test_refused_by_name(value: Any, name: str, tmp_path: Path) -> None:
    data = pickle.dumps(with_metadata(value), 5)
    with pytest.raises(Error, match=f"instruction {name} at byte \\d+ is not plain data") as caught:
        convert(data, tmp_path / "no.cmem")
    offset = int(str(caught.value).split("at byte ")[1].split(" ")[0])
    opcode, _, position = next(op for op in pickletools.genops(data) if op[0].name == name)
    assert (offset, opcode.name) == (position, name)
    assert not (tmp_path / "no.cmem").exists()


# fmt: off
REFUSED = {
    b"cos\nsystem\n.": "GLOBAL", b"R": "REDUCE", b"b": "BUILD", b"ios\nsystem\n": "INST", b"o": "OBJ",
    b"\x81": "NEWOBJ", b"\x92": "NEWOBJ_EX", b"Px\n": "PERSID", b"Q": "BINPERSID", b"\x82\x01": "EXT1",
    b"\x83\x01\x01": "EXT2",
    b"\x84\x01\x01\x01\x01": "EXT4", b"\x97": "NEXT_BUFFER", b"\x98": "READONLY_BUFFER", b"2": "DUP", b"0": "POP",
    b"1": "POP_MARK", b"\x8f": "EMPTY_SET", b"\x90": "ADDITEMS", b"\x91": "FROZENSET", b"\x93": "STACK_GLOBAL",
}
# fmt: on


@pytest.mark.parametrize("code", REFUSED, ids=REFUSED.values())
def test_every_instruction_that_is_no_data_is_refused(code: bytes, tmp_path: Path) -> None:
    with pytest.raises(Error, match=f"instruction {REFUSED[code]} at byte 5 is"):
        convert(b"\x80\x02]N)" + code + b".", tmp_path / "no.cmem")


def test_a_sample_of_every_byte_is_data_or_refused(tmp_path: Path) -> None:
    known = {op.code.encode("latin-1"): op.name for op in pickletools.opcodes}
    for byte in range(256):
        code = bytes((byte,))
        with pytest.raises(Error) as caught:
            convert(b"\x80\x02N" + code + b"\0" * 40, tmp_path / "no.cmem")
        assert ("is no instruction" in str(caught.value)) == (code not in known or byte == 0) or known[code] != "?"


HOSTILE = {
    "empty": b"",
    "cut off": pickle.dumps(training(), 4)[:-40],
    "no snapshot": pickle.dumps({"a": [1, 2, 3]}, 4),
    "a number": pickle.dumps(7, 4),
    "length of a text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"abc",
    "length of bytes": b"\x80\x04\x8e" + struct.pack("<Q", (1 << 64) - 1) + b"abc",
    "length of a number": b"\x80\x04\x8b" + struct.pack("<I", 0xFFFFFFFF) + b"abc",
    "memo": b"\x80\x02}r" + struct.pack("<I", 0xFFFFFFF0) + b".",
    "memo that is not there": b"\x80\x02j" + struct.pack("<I", 70000) + b".",
    "pop of nothing": b"\x80\x02u.",
    "append to nothing": b"\x80\x02a.",
    "append to a mark": b"\x80\x02(Na.",
    "set without a key": b"\x80\x02}(Nu.",
    "a mark in a tuple": b"\x80\x02](N\x86Ne.",
    "a mark in a pair": b"\x80\x02}((NsN.",
    "protocol 9": b"\x80\x09N.",
    "deep": b"\x80\x02" + b"]" * 300_000 + b".",
    "deep in itself": b"\x80\x02" + b"]q\x00" * 100_000 + b"h\x00a" * 100_000 + b".",
    "line without end": b"I" + b"1" * 200_000,
    "number that is none": b"Ione\n.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_one_line(name: str, tmp_path: Path) -> None:
    for piece in (1, 1 << 20):
        if piece == 1 and len(HOSTILE[name]) > 1000:
            continue
        with pytest.raises(Error) as caught:
            convert(HOSTILE[name], tmp_path / "no.cmem", piece)
        assert str(caught.value)
        assert "\n" not in str(caught.value)


def test_what_refers_to_itself_is_read(tmp_path: Path) -> None:
    data: dict[str, Any] = training()
    data["itself"] = [data]
    data["loop"] = loop = []
    loop.append(loop)
    assert convert(pickle.dumps(data, 4), tmp_path / "a.cmem")["unknown"] == ["loop"]


def test_pieces_of_mutated_pickles_come_to_the_same(tmp_path: Path) -> None:
    draw = random.Random(4)
    whole = pickle.dumps(training(2), 4)
    for number in range(150):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        said = []
        for piece in (1 << 20, 13):
            target = tmp_path / f"{number}-{piece}.cmem"
            try:
                convert(bytes(data), target, piece)
                said.append(str(events_of(target)))
            except Error as error:
                said.append(str(error))
        assert said[0] == said[1]


def test_memory_is_bounded_by_the_bytes(tmp_path: Path) -> None:
    """Many small events that share all they can: 40 bytes of pickle for each."""
    one = frame(1)
    trace = [event("alloc", 4096 + 512 * i, 512, i, [one]) for i in range(20_000)]
    data = pickle.dumps(snapshot([], [trace]), 4)
    said = convert(data, tmp_path / "many.cmem")
    assert said["events"] == 20_000
    assert (tmp_path / "many.cmem").stat().st_size < len(data) / 8


def test_gzip_in_members_and_its_bound(tmp_path: Path) -> None:
    from cuptimem.report import snapshots

    data = pickle.dumps(training(), 4)
    path = tmp_path / "two.pickle.gz"
    path.write_bytes(gzip.compress(data[:500]) + gzip.compress(data[500:]))
    snapshots.convert(str(path), str(tmp_path / "two.cmem"))
    convert(data, tmp_path / "one.cmem")
    assert events_of(tmp_path / "two.cmem") == events_of(tmp_path / "one.cmem")
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(b"\x80\x02](" + b"N" * (200 << 20), 1))
    with pytest.raises(Error, match="decompresses to more than|is cut off"):
        snapshots.convert(str(bomb), str(tmp_path / "bomb.cmem"))
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(path.read_bytes()[:60] + b"xxxx" + path.read_bytes()[64:])
    with pytest.raises(Error, match="does not decompress"):
        snapshots.convert(str(damaged), str(tmp_path / "damaged.cmem"))
