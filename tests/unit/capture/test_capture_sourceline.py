"""Lines of source files as the collector finds them, against what Python makes of the same bytes."""

import ctypes
import io
import tokenize
from typing import Any

import pytest
from capture_support import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import build

U8 = ctypes.POINTER(ctypes.c_uint8)


class Lines(ctypes.Structure):
    _fields_ = [("bytes", U8), ("length", ctypes.c_size_t), ("at", ctypes.c_size_t), ("line", ctypes.c_uint32)]


class Position(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("line", "end_line", "column", "end_column")]


@pytest.fixture(scope="module")
def lib() -> Any:
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    library = ctypes.CDLL(str(build("sourceline.so", [ROOT / "csrc/capture/source_line.c"], *flags)))
    library.cm_source_lines_of.restype = Lines
    library.cm_source_lines_of.argtypes = [U8, ctypes.c_size_t]
    library.cm_source_lines_find.restype = ctypes.c_void_p
    library.cm_source_lines_find.argtypes = [ctypes.POINTER(Lines), ctypes.c_uint32, ctypes.POINTER(ctypes.c_size_t)]
    library.cm_source_encoding.argtypes = [U8, ctypes.c_size_t, ctypes.c_char_p]
    library.cm_source_is_utf8.restype = ctypes.c_bool
    library.cm_source_copy.restype = ctypes.c_size_t
    library.cm_source_copy.argtypes = [U8, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    library.cm_source_fits.restype = ctypes.c_bool
    library.cm_source_fits.argtypes = [U8, ctypes.c_size_t, ctypes.POINTER(Position)]
    return library


def room(data: bytes) -> Any:
    """Exactly so much, so that a sanitizer would see a look beyond."""
    return (ctypes.c_uint8 * len(data)).from_buffer_copy(data) if data else (ctypes.c_uint8 * 1)()


def lines_of(lib: Any, data: bytes, count: int) -> list[bytes | None]:
    at = room(data)
    lines, length = lib.cm_source_lines_of(at, len(data)), ctypes.c_size_t()
    found: list[bytes | None] = []
    for line in range(1, count + 1):
        begin = lib.cm_source_lines_find(ctypes.byref(lines), line, ctypes.byref(length))
        found.append(None if begin is None else ctypes.string_at(begin, length.value))
    return found


@settings(max_examples=300, deadline=None)
@given(data=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\0", b"\xe4", b"\x0c"]), max_size=30))
def test_lines_are_pythons(lib: Any, data: list[bytes]) -> None:
    whole = b"".join(data)
    text = io.TextIOWrapper(io.BytesIO(whole), encoding="latin-1", newline=None).read()
    expected = [line.encode("latin-1") for line in text.split("\n")]
    if expected[-1] == b"":
        expected.pop()
    assert lines_of(lib, whole, len(expected) + 1) == [*expected, None]


def test_a_byte_order_mark_is_no_part_of_the_first_line(lib: Any) -> None:
    assert lines_of(lib, b"\xef\xbb\xbfa\nb", 3) == [b"a", b"b", None]


HEADS = [
    b"",
    b"# coding: latin-1\n",
    b"# -*- coding: UTF_8 -*-\n",
    b"#!/usr/bin/python\n# vim: set fileencoding=iso-8859-15 :\n",
    b"x = 1\n# coding: latin-1\n",
    b"\n  \t# coding=cp1252\n",
    b"\n\n# coding: latin-1\n",
    b"x = '# coding: latin-1'\n",
    b"# coding latin-1\n",
    b"# encoding:\tascii\r# coding: latin-1\n",
]


@pytest.mark.parametrize("head", HEADS)
def test_encodings_are_pythons(lib: Any, head: bytes) -> None:
    data = head + b"x = 1\n"
    expected, _ = tokenize.detect_encoding(io.BytesIO(data.replace(b"\r", b"\n")).readline)
    out = ctypes.create_string_buffer(32)
    lib.cm_source_encoding(room(data), len(data), out)
    found = {"latin-1": "iso-8859-1"}.get(out.value.decode(), out.value.decode())
    assert found == expected
    assert lib.cm_source_is_utf8(out) is (expected in ("utf-8", "utf-8-sig", "ascii"))


def copy(lib: Any, data: bytes, size: int) -> str:
    out = ctypes.create_string_buffer(size)
    length = lib.cm_source_copy(room(data), len(data), out, size)
    assert length <= size
    return out.raw[:length].decode()  # valid whatever it was


@settings(max_examples=300, deadline=None)
@given(data=st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda text: text.encode(errors="ignore"))))
def test_what_is_copied_is_utf8(lib: Any, data: bytes) -> None:
    text = copy(lib, data, 4 * 40)
    try:
        assert text == data.decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    except UnicodeDecodeError:
        assert "\N{REPLACEMENT CHARACTER}" in text


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="aä€😀", max_size=30), size=st.integers(3, 40))
def test_a_long_line_is_cut_at_a_character(lib: Any, text: str, size: int) -> None:
    got = copy(lib, text.encode(), size)
    if len(text.encode()) <= size:
        assert got == text
    else:
        kept = got.removesuffix("…")
        assert got.endswith("…") and text.startswith(kept)
        assert len((kept + text[len(kept)] + "…").encode()) > size  # no more would have found room


@pytest.mark.parametrize(
    ("span", "fits"),
    [
        ((4, 11), True),  # make(10)'s name and bracket end where no word goes on
        ((4, 12), True),
        ((0, 1), True),
        ((5, 12), False),  # within a word
        ((4, 6), False),
        ((3, 12), False),  # at a space
        ((4, 13), False),  # beyond the line
        ((12, 13), False),
        ((-1, -1), True),  # Python does not say
    ],
)
def test_columns_that_fit(lib: Any, span: tuple[int, int], fits: bool) -> None:
    line = b"x = make(10)"
    at = Position(1, 1, *span)
    assert lib.cm_source_fits(room(line), len(line), ctypes.byref(at)) is fits
    at.end_line = 2  # its end is on another line
    assert lib.cm_source_fits(room(line), len(line), ctypes.byref(at)) is (span[0] < 0 or span[0] in (0, 4))
