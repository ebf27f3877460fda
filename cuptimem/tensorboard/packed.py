"""Reads one file of the handler: a regular file below the folder, unpacked up to a limit and checked."""

import errno
import json
import os
import stat
import zlib
from typing import IO, Any

from cuptimem.errors import Error
from cuptimem.tensorboard import limits
from cuptimem.tensorboard.checks import Damaged, check
from cuptimem.tensorboard.walk import Found

_CHUNK = 1 << 16
_PACKED = limits.BYTES + _CHUNK  # gzip adds a few bytes to what it cannot make smaller

State = tuple[int, ...]  # device, inode, size, time of the last change: what was read holds while these do


def state(status: os.stat_result) -> State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read(found: Found, expected: State) -> tuple[bytes, dict[str, Any]]:
    """The JSON of a file in that state, and the same decoded. Raises Error, one line, for a file that cannot be read
    now, and Damaged where that holds until the file changes."""
    text = b""
    try:
        with os.fdopen(_descriptor(found), "rb", buffering=0) as file:
            if state(os.fstat(file.fileno())) == expected:
                text = _unpacked(file)
            if state(os.fstat(file.fileno())) != expected:
                raise Error("it changed while it was read")
        return text, decoded(text)
    except OSError as error:
        raise Error(f"it cannot be read: {error.strerror or error}") from None
    except Damaged as error:
        error.unpacked = error.unpacked or len(text)
        raise
    except MemoryError:
        raise Error("it needs more memory than there is") from None


def decoded(text: bytes) -> dict[str, Any]:
    """Raises Damaged, one line, unless the page can show it. What would need much memory is refused unparsed."""
    excess = limits.excess(text)
    if excess:
        raise Damaged(f"it has {excess}, which no recording has")
    try:
        # The handler writes ASCII. Other text may be read differently here and in a browser.
        data = json.loads(text.decode("ascii"), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Damaged("it is damaged: what is in it is no JSON") from None
    check(data)
    found: dict[str, Any] = data
    return found


def _no_number(name: str) -> None:
    """A browser's JSON has no NaN and no Infinity."""
    raise ValueError(name)


def _unpacked(file: IO[bytes]) -> bytes:
    """Never more than a limit, in memory or out of the file, whatever the file says."""
    stream = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    packed = size = 0
    try:
        while chunk := file.read(_CHUNK):
            packed += len(chunk)
            if stream.eof:
                raise Damaged("it is damaged: something is behind its end")
            part, wanted = b"", 0
            while chunk or len(part) == wanted:  # what did not fit is in the stream, although no input is left
                wanted = min(_CHUNK, limits.BYTES + 1 - size)
                part = stream.decompress(chunk, wanted)
                parts.append(part)
                size += len(part)
                if size > limits.BYTES or packed > _PACKED:
                    raise _too_large(size)
                chunk = stream.unconsumed_tail
            if stream.unused_data:
                raise Damaged("it is damaged: something is behind its end")
    except zlib.error:
        raise Damaged("it is cut or damaged") from None
    if not stream.eof:
        raise Damaged("it is cut or damaged")
    return b"".join(parts)


def _too_large(unpacked: int) -> Damaged:
    error = Damaged(f"it is larger than {limits.BYTES >> 20} MiB, which no recording is")
    error.unpacked = unpacked
    return error


def _descriptor(found: Found) -> int:
    """Of a regular file that is reached through no link: what was a folder at the search may be a link by now. Opens
    nothing else, for opening a device or a pipe may have effects. Raises Error, OSError."""
    if os.open not in os.supports_dir_fd:  # Windows, where a link is for administrators
        return _regular(found.path, os.O_RDONLY | getattr(os, "O_BINARY", 0), None)
    folders = os.O_RDONLY | os.O_DIRECTORY
    above = os.open(found.top, folders)
    try:
        *parts, name = found.below.split(os.sep)
        for part in parts:
            inner = os.open(part, folders | os.O_NOFOLLOW, dir_fd=above)
            os.close(above)
            above = inner
        return _regular(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, above)
    finally:
        os.close(above)


def _regular(name: str, flags: int, folder: int | None) -> int:
    """folder: where the name is; None where it is a path."""
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        raise Error("it cannot be read: it is a link, and links are not followed")
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise Error("it cannot be read: it is no regular file")
    descriptor = os.open(name, flags, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was replaced just now
        os.close(descriptor)
        raise Error("it changed while it was read")
    return descriptor
