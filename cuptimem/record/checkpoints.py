"""Checkpoints that stay mapped: files of which the program has pages, and whether a model still uses these.

Runs inside the training process, after the steps at which names are looked at and before a window closes. The file's
tensors are part of a module (a model that was assigned from it), or have the layouts of tensors that modules have
elsewhere (a model that was copied from it), or there are none. Runs none of the program's code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from cuptimem import _core
from cuptimem.errors import own
from cuptimem.objects import living, near
from cuptimem.record.filling import address_of

META = "host.mapped"  # in a trace: a list of [path, bytes of tensors in it, of modules, copied to modules, checkpoint]
_LEAST = 64 << 20  # bytes of a file
_NEAREST = 1 << 11  # objects that are looked at between steps
_PART = 1 << 9  # modules that are looked at in one slice
_MARK = b"PK\x03\x04"  # of PyTorch's files

_Range = tuple[int, int]
_Row = tuple[str, int, int, int, bool]


class Mapped:
    """What is known of the files that the program has mapped."""

    def __init__(self) -> None:
        self.rows: dict[str, _Row] = {}

    def look(self, torch: Any, found: list[tuple[int, Any]] | None = None) -> Iterator[None]:
        """A task of slices. found: what living.find has found among all that is alive, at the end. None: the nearest
        objects."""
        files = _mapped()
        before = dict(self.rows)
        # At the end a function's variables are gone: what was known before stays.
        rows = {} if found is None else dict(self.rows)
        if files:
            tensors = _Tensors(torch)
            made = _core.walks_made(_core.OBJECT_MODULE)
            for start in range(0, len(made), _PART):
                with living.undisturbed(torch):
                    tensors.read_modules([one() for one in made[start : start + _PART]])
                yield
            with living.undisturbed(torch):
                tensors.read(living.find(torch, near.objects(_NEAREST)) if found is None else found)
            mapped = _mapped()  # another file, or none, may have its addresses by now
            for path, ranges in files.items():
                if mapped.get(path) == ranges:
                    row = _row(path, tensors, ranges, is_all=found is not None)
                    rows |= {} if row is None else {path: row}
        self.rows = rows
        if self.rows != before:
            try:
                _core.capture_note({META: json.dumps(list(self.rows.values()))})
            except own(OSError):  # the trace's own end says so
                return


def _row(path: str, tensors: _Tensors, ranges: list[_Range], is_all: bool) -> _Row | None:
    inside, used, copied = tensors.within(ranges)
    return (path, inside + used, used, copied, _is_checkpoint(path)) if inside or used or is_all else None


class _Tensors:
    """address and bytes of a storage, and its layout, each storage once."""

    def __init__(self, torch: Any) -> None:
        self.binary, self.base = torch._C, torch._C.TensorBase
        self.of_modules: dict[int, tuple[int, Any]] = {}
        self.others: dict[int, tuple[int, Any]] = {}

    def read_modules(self, modules: Iterable[Any]) -> None:
        self.of_modules |= self._storages(_parts(modules))

    def read(self, objects: list[tuple[int, Any]]) -> None:
        self.read_modules(item for kind, item in objects if kind == living.MODULE)
        others = (item for kind, item in objects if kind == living.TENSOR)
        self.others = {key: one for key, one in self._storages(others).items() if key not in self.of_modules}

    def _storages(self, tensors: Iterable[Any]) -> dict[int, tuple[int, Any]]:
        found = {}
        for tensor in tensors:
            address = address_of(tensor, self.binary)
            if address:
                storage = self.base.untyped_storage(tensor)
                found[address] = (storage.nbytes(), (tuple(self.base.size(tensor)), self.base.dtype.__get__(tensor)))
        return found

    def within(self, ranges: list[_Range]) -> tuple[int, int, int]:
        """Bytes in these ranges that are in no module; in modules; of the first, those that modules have elsewhere."""
        inside = [one for at, one in self.others.items() if _is_in(at, ranges)]
        used = sum(size for at, (size, _) in self.of_modules.items() if _is_in(at, ranges))
        elsewhere = Counter(layout for at, (_, layout) in self.of_modules.items() if not _is_in(at, ranges))
        copied = 0
        for size, layout in inside:
            if elsewhere[layout] > 0:
                elsewhere[layout] -= 1
                copied += size
        return sum(size for size, _ in inside), used, copied


def _is_in(address: int, ranges: list[_Range]) -> bool:
    return any(begin <= address < end for begin, end in ranges)


def _parts(modules: Iterable[Any]) -> Iterator[Any]:
    for module in modules:
        space = {} if module is None else living.attributes(module)
        for name in ("_parameters", "_buffers"):
            tensors = space.get(name)
            if type(tensors) is dict:
                yield from [tensor for tensor in tensors.values() if tensor is not None]


def _mapped() -> dict[str, list[_Range]]:
    """Of files of so many bytes, without libraries and shared memory."""
    found: dict[str, list[_Range]] = {}
    code = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            place, rights, _, _, _, *path = line.split(maxsplit=5)
            if not path or not path[0].startswith("/") or path[0].startswith("/dev/"):
                continue
            begin, end = (int(word, 16) for word in place.split("-"))
            found.setdefault(path[0].rstrip("\n"), []).append((begin, end))
            if "x" in rights:
                code.add(path[0].rstrip("\n"))
    return {
        path: ranges
        for path, ranges in found.items()
        if path not in code and sum(end - begin for begin, end in ranges) >= _LEAST
    }


def _is_checkpoint(path: str) -> bool:
    """By its first bytes; a file of safetensors begins with the length of a header, which is JSON."""
    try:
        with open(path, "rb", buffering=0) as file:
            first = file.read(9)
    except own(OSError):  # removed
        return False
    return first.startswith(_MARK) or (first[8:] == b"{" and int.from_bytes(first[:8], "little") < _LEAST)
