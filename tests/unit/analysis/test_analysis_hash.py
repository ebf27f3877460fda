"""Addresses that a trace's author chose so that a table's hash puts all of them into one slot."""

import ctypes
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "analysis"))

import craft  # noqa: E402

from tests.record.faults import bombs  # noqa: E402

LONG = 1024  # CM_HASH_LONG


class Block(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("size", ctypes.c_int64), ("rest", ctypes.c_uint8 * 16)]


class Pool(ctypes.Structure):
    _fields_ = [
        ("object", ctypes.c_void_p),
        ("mapped", ctypes.c_size_t),
        ("highest", ctypes.c_uint32),
        ("free", ctypes.c_uint32),
    ]


class Blocks(ctypes.Structure):
    _fields_ = [
        ("block", Pool),
        ("slot", ctypes.POINTER(ctypes.c_uint32)),
        ("slots", ctypes.c_size_t),
        ("count", ctypes.c_size_t),
        ("keyed", ctypes.c_bool),
        ("noted", ctypes.c_bool),
        ("note", ctypes.POINTER(ctypes.c_uint32)),
        ("note_capacity", ctypes.c_size_t),
    ]


class Map(ctypes.Structure):
    class Slot(ctypes.Structure):
        _fields_ = [("key", ctypes.c_uint64), ("value", ctypes.c_uint32)]

    _fields_ = [("slot", ctypes.POINTER(Slot)), ("slots", ctypes.c_size_t), ("count", ctypes.c_size_t)]


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    parts = [ROOT / "csrc" / f"{name}.c" for name in ("heap/blocks", "base/idmap", "base/hash", "base/pool")]
    found = craft.library("hash.so", parts)
    found.cm_blocks_find.restype = ctypes.c_void_p
    found.cm_blocks_find.argtypes = [ctypes.POINTER(Blocks), ctypes.c_uint16, ctypes.c_uint64]
    found.cm_idmap_put.argtypes = [ctypes.POINTER(Map), ctypes.c_uint64, ctypes.c_uint32]
    return found


def longest_run(taken: list[bool]) -> int:
    """Slots in a row that a search may have to look at."""
    longest = run = 0
    for one in taken + taken:
        run = run + 1 if one else 0
        longest = max(longest, run)
    return longest


def fill(library: ctypes.CDLL, addresses: list[int]) -> Blocks:
    blocks = Blocks()
    for address in addresses:
        assert library.cm_blocks_put(ctypes.byref(blocks), ctypes.byref(Block(address, 64)))
    return blocks


def test_the_addresses_are_of_one_slot(library: ctypes.CDLL) -> None:
    """Else the others here could not fail: a few of them lie side by side."""
    blocks = fill(library, bombs.of_one_slot(500))
    taken = [bool(blocks.slot[i]) for i in range(blocks.slots)]
    assert longest_run(taken) == 500 and not blocks.keyed


def test_blocks_of_one_slot(library: ctypes.CDLL) -> None:
    *addresses, missing = bombs.of_one_slot(5001)
    blocks = fill(library, addresses)
    assert blocks.keyed and blocks.count == 5000
    taken = [bool(blocks.slot[i]) for i in range(blocks.slots)]
    assert sum(taken) == 5000 and longest_run(taken) < LONG
    assert all(library.cm_blocks_find(ctypes.byref(blocks), 0, address) for address in addresses)
    assert not library.cm_blocks_find(ctypes.byref(blocks), 0, missing)
    library.cm_blocks_clear(ctypes.byref(blocks))


def test_regular_addresses_keep_the_order_that_they_always_had(library: ctypes.CDLL) -> None:
    for step in (16, 64, 512, 4096, 2 << 20):
        blocks = fill(library, [0x7F0000000000 + step * i for i in range(50_000)])
        assert not blocks.keyed
        library.cm_blocks_clear(ctypes.byref(blocks))


def test_a_map_of_one_slot(library: ctypes.CDLL) -> None:
    found = Map()
    for address in bombs.of_one_slot(5000):
        assert library.cm_idmap_put(ctypes.byref(found), address - 1, 1)  # the map hashes one more
    taken = [found.slot[i].key != 0 for i in range(found.slots)]
    assert sum(taken) == 5000 and longest_run(taken) < LONG
    library.cm_idmap_clear(ctypes.byref(found))
