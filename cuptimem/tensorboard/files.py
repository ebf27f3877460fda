"""Finds and reads what the handler and the export wrote below a folder. Trusts nothing in a file."""

import hashlib
import json
import os
import stat
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cuptimem import regular_files
from cuptimem.errors import Error
from cuptimem.tensorboard.data import FORMAT, STEP_COLUMNS, SUFFIX

_LARGEST = 256 << 20  # bytes of JSON in a file
_FOLDERS = 50_000  # that one search looks into
_KEPT = 16  # whole recordings in memory

# What the page relies on, and of which type.
_PARTS = {
    "title": str,
    "environment": dict,
    "caveats": list,
    "start_realtime_ns": int,
    "duration_ns": int,
    "first_step": int,
    "clock": str,
    "devices": list,
    "resident": list,
    "steps": list,
    "steps_left_out": int,
    "leaks": list,
    "leaks_left_out": int,
    "leak_headline": str,
    "ooms": list,
}
_DEVICE = {
    "name": str,
    "start": int,
    "end": int,
    "peak": int,
    "peak_ns": int,
    "peak_blocks": int,
    "allocated": int,
    "allocations": int,
    "lines": list,
    "notes": list,
    "rest": dict,
    "timeline": list,
}
_FRAME = {"where": str, "file": str, "line": int, "function": str, "code": str}
_LINE = {**_FRAME, "bytes": int, "count": int, "phase": str, "module": str, "below": str, "stack": list}
_LEAK = {**_FRAME, "verdict": bool, "bytes": int, "count": int, "device": str, "kind": str, "loop": str, "keeps": list}


@dataclass(frozen=True)
class Found:
    """A file of ours below the folder."""

    id: str  # what a request names it by: never a path
    run: str
    name: str
    path: str
    state: tuple[int, int]  # time of the last change, size: what was read of it holds while these do


class Files:
    """All files below some folders, and what was read of them. Threads of TensorBoard's server share it."""

    def __init__(self, folders: dict[str, str]) -> None:
        """folders: by what stands before the names of their runs."""
        self._folders = folders
        self._lock = threading.Lock()
        self._read: dict[str, tuple[tuple[int, int], bytes]] = {}  # by path, the latest last
        self._summaries: dict[str, tuple[tuple[int, int], dict[str, Any] | str]] = {}

    def any(self) -> bool:
        return next(self.find(), None) is not None

    def find(self) -> Iterator[Found]:
        """In the order of runs and names."""
        left = _FOLDERS
        for prefix, top in self._folders.items():
            seen: set[tuple[int, int]] = set()
            for folder, below, _files in os.walk(top, followlinks=True):
                left -= 1
                try:
                    status = os.stat(folder)
                except OSError:
                    below.clear()
                    continue
                if left < 0 or (status.st_dev, status.st_ino) in seen:  # a link to a folder above
                    below.clear()
                    continue
                seen.add((status.st_dev, status.st_ino))
                below.sort()
                if "plugins" in below:
                    below.remove("plugins")
                    yield from _files_of(prefix, top, folder)

    def one(self, id: str) -> Found | None:
        return next((found for found in self.find() if found.id == id), None)

    def text(self, found: Found) -> bytes:
        """The file's JSON, checked. Raises Error, one line, for a file that is broken or gone."""
        with self._lock:
            known = self._read.pop(found.path, None)
            if known is not None and known[0] == found.state:
                self._read[found.path] = known
                return known[1]
        text = _read(found.path)
        with self._lock:
            self._read[found.path] = (found.state, text)
            while len(self._read) > _KEPT:
                del self._read[next(iter(self._read))]
        return text

    def data(self, found: Found) -> dict[str, Any]:
        """The same, decoded."""
        loaded: dict[str, Any] = json.loads(self.text(found))
        return loaded

    def summary(self, found: Found) -> dict[str, Any]:
        """What a list of runs shows of it. Raises Error."""
        with self._lock:
            known = self._summaries.get(found.path)
        if known is None or known[0] != found.state:
            made: dict[str, Any] | str
            try:
                made = _summary(self.data(found))
            except Error as error:
                made = str(error)
            known = (found.state, made)
            with self._lock:
                self._summaries[found.path] = known
        if isinstance(known[1], str):
            raise Error(known[1])
        return known[1]


def _files_of(prefix: str, top: str, folder: str) -> Iterator[Found]:
    place = os.path.join(folder, "plugins", "cuptimem")
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return
    run = os.path.relpath(folder, top)
    if prefix:
        run = prefix if run == "." else f"{prefix}/{run}"
    for name in names:
        path = os.path.join(place, name)
        try:
            status = os.stat(path)
        except OSError:
            continue
        # A pipe or a device would be read for ever. A folder is named as one that cannot be read.
        is_file = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        if name.endswith(SUFFIX) and not name.startswith(".") and is_file:
            id = hashlib.sha256(os.fsencode(path)).hexdigest()[:20]
            yield Found(id, run, name.removesuffix(SUFFIX), path, (status.st_mtime_ns, status.st_size))


def _read(path: str) -> bytes:
    try:
        text = _unpacked(regular_files.content(path, _LARGEST))
        check(json.loads(text, parse_constant=_no_number))
    except OSError as error:
        raise Error(f"it cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise Error("it is cut or damaged") from None
    except MemoryError:
        raise Error("it needs more memory than there is") from None
    except (ValueError, RecursionError):
        raise Error("it is damaged: what is in it is no JSON") from None
    return text


def _no_number(name: str) -> None:
    """A browser's JSON has no NaN and no Infinity."""
    raise ValueError(name)


def _unpacked(packed: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    text = stream.decompress(packed, _LARGEST)
    if stream.unconsumed_tail:
        raise Error(f"it is larger than {_LARGEST >> 20} MiB")
    if not stream.eof:
        raise EOFError
    return text


def check(data: Any) -> None:
    """Raises Error, one line, unless the page can show it."""
    if not isinstance(data, dict) or type(data.get("format")) is not int:
        raise Error("it is not one of cuptimem's files")
    if data["format"] != FORMAT:
        raise Error(f"it has format {data['format']}, this cuptimem reads {FORMAT}: update cuptimem")
    _has(data, _PARTS, "the file")
    for device in data["devices"]:
        _has(device, _DEVICE, "a device")
        _has(device["rest"], {"lines": int, "bytes": int, "count": int}, "the rest")
        for line in device["lines"]:
            _has(line, _LINE, "a line")
            _has({"category": "", **line}, {"category": str}, "a line")  # older ones have none
        _rows(device["timeline"], 4, "the timeline")
    _rows(data["steps"], len(STEP_COLUMNS), "the steps")
    _rows(data["resident"], 2, "resident memory")
    for leak in data["leaks"]:
        _has(leak, _LEAK, "a leak")


def _has(part: Any, types: dict[str, type], what: str) -> None:
    if not isinstance(part, dict):
        raise Error(f"it is damaged: {what} is not an object")
    for name, kind in types.items():
        if type(part.get(name)) is not kind:  # True is an int, too
            raise Error(f"it is damaged: {what} lacks {name!r}")


def _rows(rows: list[Any], length: int, what: str) -> None:
    for row in rows:
        if not isinstance(row, list) or len(row) != length:
            raise Error(f"it is damaged: a row of {what} has another length")
        if not all(cell is None or isinstance(cell, (int, float, str)) for cell in row):
            raise Error(f"it is damaged: a row of {what} has more than numbers and texts")


def _summary(data: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": data["title"],
        "start_realtime_ns": data["start_realtime_ns"],
        "duration_ns": data["duration_ns"],
        "first_step": data["first_step"],
        "steps": len({row[0] for row in data["steps"]}) if not data["steps_left_out"] else None,
        "leaks": sum(leak["verdict"] for leak in data["leaks"]),
        "caveats": len(data["caveats"]),
        "devices": [{key: device[key] for key in ("name", "peak", "end")} for device in data["devices"]],
    }
