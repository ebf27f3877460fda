"""PyTorch's memory snapshots, opened as traces: torch.cuda.memory._dump_snapshot() writes them, other devices' too.

The file is read by the core (csrc/snapshot), as it is or through gzip, and never unpickled. What it says becomes a
trace of this process's own, which has no name: it is gone when the process is.
"""

import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import cuptimem
from cuptimem import naming, regular_files, tempfiles
from cuptimem.errors import Error, core

_PIECE = 1 << 20
_KEPT = 4  # converted traces, each with a descriptor
_HEAD = 16
_GZIP = b"\x1f\x8b"
_PROTOCOLS = tuple(bytes((0x80, number)) for number in range(2, 6))
_OLD_PROTOCOLS = (b"(dp", b"(lp", b"}q\x00", b"]q\x00")  # 0 and 1: they do not say which
# A compressed file may stand for so many times its bytes: snapshots are 20 to 60 times smaller.
_MOST_LARGER, _ALWAYS = 300, 64 << 20

_opened: "OrderedDict[tuple[int, int, int, int], int]" = OrderedDict()  # which file, and its trace's descriptor


def trace_of(path: str) -> str:
    """The path of a trace: of a snapshot, one that is made of it; of anything else, its own. Raises Error for a
    snapshot that cannot be read."""
    try:
        with regular_files.opened(path) as file:
            if not is_snapshot(file.read(_HEAD)):
                return path
            status = os.fstat(file.fileno())
            key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            descriptor = _opened.get(key)
            if descriptor is None:
                descriptor = _opened[key] = _converted(path, file)
    except OSError:  # the core says what is wrong with it
        return path
    _opened.move_to_end(key)
    while len(_opened) > _KEPT:
        os.close(_opened.popitem(last=False)[1])
    return f"/proc/self/fd/{descriptor}"


def is_snapshot(head: bytes) -> bool:
    """Whether a file that begins so is opened as a snapshot: it is a pickle, or compressed."""
    return head.startswith((_GZIP, *_PROTOCOLS, *_OLD_PROTOCOLS))


def convert(path: str, target: str) -> None:
    """Writes a snapshot as a trace, which must not exist. Raises Error."""
    with regular_files.opened(path) as file:
        _convert(path, file, target, private=False)


def _converted(path: str, file: BinaryIO) -> int:
    import tempfile  # for snapshots alone: it loads hashes, random and archives

    folder = tempfile.gettempdir()
    tempfiles.sweep(folder)
    target = tempfiles.name(folder)
    _convert(path, file, target, private=True)
    try:
        return os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.unlink(target)


def _convert(path: str, file: BinaryIO, target: str, *, private: bool) -> None:
    file.seek(0)
    head = file.read(_HEAD)
    file.seek(0)
    read = _inflated(file) if head.startswith(_GZIP) else lambda: file.read(_PIECE)
    try:
        core().snapshot_convert(read, _meta, target, private)
    except Error as error:
        raise Error(f"{naming.shown(path)}: {error}") from None


def _inflated(file: BinaryIO) -> Callable[[], bytes]:
    """Reads what was compressed, piece by piece, up to a bound."""
    machine = zlib.decompressobj(wbits=31)
    left = _ALWAYS + _MOST_LARGER * os.fstat(file.fileno()).st_size

    def read() -> bytes:
        nonlocal machine, left
        while True:
            data = machine.unconsumed_tail or file.read(_PIECE)
            if machine.eof:  # another member may follow
                data = machine.unused_data or data
                machine = zlib.decompressobj(wbits=31)
            if not data:
                return b""
            try:
                piece = machine.decompress(data, _PIECE)
            except zlib.error:
                raise Error("is damaged: it does not decompress") from None
            left -= len(piece)
            if left < 0:
                raise Error(f"is refused: it decompresses to more than {_MOST_LARGER} times its size")
            if piece:
                return piece

    return read


def _meta(said: Mapping[str, Any]) -> dict[str, str]:
    """What the trace says of itself."""
    meta = {
        "cuptimem": cuptimem.__version__,
        "snapshot": "events and blocks" if said["history"] else "blocks",
        "nodes": "a snapshot of PyTorch's does not record them",
        "driver": "none",
        "driver.reason": "a snapshot of PyTorch's has none",
    }
    if said["unknown"]:
        meta["snapshot.unknown"] = ", ".join(said["unknown"])
    if said["exporter"]:
        meta["snapshot.exporter"] = said["exporter"]
    if said["missing"]:
        meta["snapshot.missing"] = said["missing"]
    if said["settings"]:
        meta["allocator"] = said["settings"]
    return meta
