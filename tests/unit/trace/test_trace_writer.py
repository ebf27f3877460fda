"""Writing: whole chunks or nothing, whatever the file system says."""

import ctypes
import errno
import os
import resource
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tracelib import (
    COMPLETE,
    CUT,
    RECOVERED,
    Event,
    Reader,
    chunk,
    chunks_of,
    end_chunk,
    header,
    meta_chunk,
    one_batch,
    write_file,
)

from tests.event_kinds import ALLOC


class Writer:
    def __init__(self, lib: Any, path: Path, overwrite: bool = False, append: bool = False) -> None:
        self.lib = lib
        self.handle = ctypes.c_void_p()
        encoded = str(path).encode()
        if append:
            status = lib.cm_writer_append_to(encoded, ctypes.byref(self.handle))
        else:
            status = lib.cm_writer_create(encoded, overwrite, 0o666, ctypes.byref(self.handle))
        if status < 0:
            assert not self.handle
            raise OSError(-status, os.strerror(-status))

    def meta(self, *pairs: str) -> int:
        strings = (ctypes.c_char_p * (len(pairs) + 1))(*(p.encode() for p in pairs), None)
        return int(self.lib.cm_writer_meta(self.handle, strings))

    def chunk(self, data: bytes) -> int:
        return int(self.lib.cm_writer_chunk(self.handle, data, len(data)))

    def end(self, numbers: Sequence[int] = (0, 0, 0), reason: str = "") -> int:
        return int(self.lib.cm_writer_end(self.handle, *numbers, reason.encode()))

    def size(self) -> int:
        return int(self.lib.cm_writer_size(self.handle))

    def close(self) -> int:
        return int(self.lib.cm_writer_close(self.handle))


EVENTS = [Event(0, 64 * i, ALLOC, 64 * i, 64) for i in range(20)]


def test_the_bytes(lib: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.cmem"
    writer = Writer(lib, path)
    assert path.read_bytes() == header()
    assert writer.meta("key", "value", "é", "") == 0
    assert writer.meta() == 0
    assert writer.meta("odd") == -errno.EINVAL
    batch = one_batch(lib, EVENTS)
    assert writer.chunk(batch) == 0
    assert writer.end((300, 2, 1), "why") == 0
    expected = header() + meta_chunk(("key", "value"), ("é", "")) + meta_chunk() + batch + end_chunk(300, 2, 1, "why")
    assert writer.size() == len(expected)
    assert writer.close() == 0
    assert path.read_bytes() == expected
    assert lib.cm_writer_close(None) == 0


def test_a_long_reason_is_cut_between_characters(lib: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.cmem"
    writer = Writer(lib, path)
    assert writer.meta() == 0
    assert writer.end(reason="x" + "é" * 1000) == 0
    writer.close()
    with Reader(lib, path) as reader:
        reader.read()
        assert reader.reason == "x" + "é" * 511
        assert reader.state == COMPLETE


def test_create(lib: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.cmem"
    path.write_bytes(b"precious" * 100)
    with pytest.raises(FileExistsError):
        Writer(lib, path)
    assert path.read_bytes() == b"precious" * 100
    writer = Writer(lib, path, overwrite=True)
    assert path.read_bytes() == header()
    writer.close()
    with pytest.raises(FileNotFoundError):
        Writer(lib, tmp_path / "no" / "t.cmem")
    with pytest.raises(IsADirectoryError):
        Writer(lib, tmp_path, overwrite=True)
    os.mkfifo(tmp_path / "fifo")
    for overwrite in (True, False):
        with pytest.raises(OSError):
            Writer(lib, tmp_path / "fifo", overwrite=overwrite)
    with pytest.raises(OSError, match="Invalid argument"):
        Writer(lib, Path("/dev/null"), overwrite=True)


def test_who_writes_a_file_that_is_replaced_keeps_it(lib: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    old = Writer(lib, path)
    before = path.stat().st_ino
    new = Writer(lib, path, overwrite=True)
    assert path.stat().st_ino != before
    new.close()
    whole = path.read_bytes()
    old.close()
    assert path.read_bytes() == whole


def test_full_disk(lib: Any, tmp_path: Path) -> None:
    """A chunk that does not fit leaves no trace, and shorter ones still go."""
    path = tmp_path / "t.cmem"
    writer = Writer(lib, path)
    assert writer.meta("a", "b") == 0
    batch = one_batch(lib, EVENTS)
    assert writer.chunk(batch) == 0
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
        assert writer.chunk(chunk(2, bytes(5000))) == -errno.EFBIG
        assert path.read_bytes() == before
        assert writer.size() == len(before)
        assert writer.end(reason="full") == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert writer.close() == 0
    with Reader(lib, path) as reader:
        assert reader.events() == EVENTS
        assert (reader.state, reader.reason) == (COMPLETE, "full")


def test_a_header_that_does_not_fit(lib: Any, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        with pytest.raises(OSError, match="large"):
            Writer(lib, tmp_path / "t.cmem")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not (tmp_path / "t.cmem").exists()


def test_append_to_what_a_killed_process_left(lib: Any, tmp_path: Path) -> None:
    batch = one_batch(lib, EVENTS)
    whole = header() + meta_chunk(("a", "b")) + batch
    path = tmp_path / "t.cmem"
    for cut in range(len(batch) + 1):
        path.write_bytes(whole + batch[:cut])
        writer = Writer(lib, path, append=True)
        assert writer.chunk(batch) == 0
        assert writer.end(reason="recovered") == 0
        assert writer.close() == 0
        with Reader(lib, path) as reader:
            assert reader.events() == EVENTS * (3 if cut == len(batch) else 2)
            assert reader.state == RECOVERED


def test_append_refuses(lib: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.cmem"
    batch = one_batch(lib, EVENTS)
    for content, code in [
        (header() + meta_chunk() + batch + end_chunk(), errno.EALREADY),
        (header() + meta_chunk() + b"?" * 16 + batch, errno.EBADMSG),
        (header() + meta_chunk() + chunk(2, b"", 1 << 27), errno.EBADMSG),
        (b"", errno.EBADMSG),
        (b"CUPTIMEM", errno.EBADMSG),
        (b"#!/bin/sh\nexit 0\n", errno.EBADMSG),
        (header(2, 0) + meta_chunk(), errno.ENOTSUP),
        (header(1, 6) + meta_chunk(), errno.ENOTSUP),
    ]:
        path.write_bytes(content)
        with pytest.raises(OSError) as caught:
            Writer(lib, path, append=True)
        assert caught.value.errno == code
        assert path.read_bytes() == content
    with pytest.raises(FileNotFoundError):
        Writer(lib, tmp_path / "absent", append=True)


def test_a_chunk_that_is_full(lib: Any, tmp_path: Path) -> None:
    """CM_CHUNK_MAX is a bound for the batch; what was added before stays whole."""
    handle = ctypes.c_void_p(lib.cm_batch_new())
    lib.double_begin(handle, 0, 0, 0)
    text = b"\x01" + b"\xfe\xff\x7f" + bytes(2**21 - 2)  # a string of 2 MiB - 2
    added = 0
    while lib.cm_batch_add_definitions(handle, text, len(text)):
        added += 1
    assert added == 31
    assert not lib.cm_batch_add_definitions(handle, text, 2**40)
    data, length = ctypes.c_void_p(), ctypes.c_size_t()
    assert lib.cm_batch_finish(handle, ctypes.byref(data), ctypes.byref(length))
    assert length.value <= (1 << 26)
    assert data.value is not None
    path = tmp_path / "t.cmem"
    path.write_bytes(header() + meta_chunk() + ctypes.string_at(data.value, length.value))
    lib.cm_batch_free(handle)
    with Reader(lib, path) as reader:
        assert reader.read() == []
        assert (reader.last, reader.state) == (0, CUT)


def test_crc32c(lib: Any) -> None:
    for crc in (lib.cm_crc32c, lib.cm_crc32c_portable):
        assert crc(0, b"123456789", 9) == 0xE3069283
        assert crc(0, bytes(32), 32) == 0x8A9136AA
        assert crc(0, b"\xff" * 32, 32) == 0x62A8AB43
        assert crc(0, b"", 0) == 0
        assert crc(crc(0, b"12345", 5), b"6789", 4) == 0xE3069283
    data = bytes(i * 7 & 0xFF for i in range(300))
    for start in range(9):
        for end in range(start, 300, 7):
            part = data[start:end]
            assert lib.cm_crc32c(5, part, len(part)) == lib.cm_crc32c_portable(5, part, len(part))


def test_chunks_are_sealed_as_documented(lib: Any, tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.cmem", [meta_chunk(), one_batch(lib, EVENTS), end_chunk()])
    assert [kind for _, kind, _ in chunks_of(path.read_bytes())] == [1, 2, 3]
