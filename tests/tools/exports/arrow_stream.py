"""A reader of the Arrow C stream interface in ctypes, of the types that cuptimem writes."""

import ctypes
from collections.abc import Iterator
from typing import Any

_FORMATS = {b"l": ctypes.c_int64, b"L": ctypes.c_uint64, b"i": ctypes.c_int32, b"I": ctypes.c_uint32}
_P = ctypes.c_void_p


class Schema(ctypes.Structure):
    pass


class Array(ctypes.Structure):
    pass


class Stream(ctypes.Structure):
    pass


Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))),
    ("private_data", _P),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(_P)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))),
    ("private_data", _P),
]
Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))),
    ("private_data", _P),
]


def stream_of(source: Any) -> tuple[Any, Stream]:
    """The capsule, which must be kept, and its stream."""
    capsule = source.__arrow_c_stream__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = _P, [ctypes.py_object, ctypes.c_char_p]
    return capsule, Stream.from_address(get(capsule, b"arrow_array_stream"))


def _texts(array: Array) -> list[str]:
    offsets = ctypes.cast(array.buffers[1], ctypes.POINTER(ctypes.c_int64))
    return [
        ctypes.string_at(array.buffers[2] + offsets[i], offsets[i + 1] - offsets[i]).decode()
        for i in range(array.length)
    ]


def _column(schema: Schema, array: Array) -> list[Any]:
    assert array.offset == 0 and array.n_buffers == 2
    values = ctypes.cast(array.buffers[1], ctypes.POINTER(_FORMATS[schema.format]))
    bits = ctypes.cast(array.buffers[0], ctypes.POINTER(ctypes.c_uint8))
    cells: list[Any] = [values[i] if bits[i >> 3] >> (i & 7) & 1 else None for i in range(array.length)]
    assert cells.count(None) == array.null_count
    if schema.dictionary:
        texts = _texts(array.dictionary.contents)
        assert len(set(texts)) == len(texts)
        used = {cell for cell in cells if cell is not None}
        assert used == set(range(len(texts)))  # nothing but what the batch needs
        cells = [None if cell is None else texts[cell] for cell in cells]
    return cells


def batches(source: Any) -> Iterator[dict[str, list[Any]]]:
    """Every batch by its columns; everything is released."""
    _capsule, stream = stream_of(source)
    schema, array = Schema(), Array()
    assert stream.get_schema(ctypes.byref(stream), ctypes.byref(schema)) == 0 and schema.format == b"+s"
    while True:
        assert stream.get_next(ctypes.byref(stream), ctypes.byref(array)) == 0, stream.get_last_error(stream)
        if not array.release:
            break
        yield {
            schema.children[i].contents.name.decode(): _column(schema.children[i].contents, array.children[i].contents)
            for i in range(schema.n_children)
        }
        array.release(ctypes.byref(array))
        assert not array.release
    schema.release(ctypes.byref(schema))
    stream.release(ctypes.byref(stream))
    assert not schema.release and not stream.release
