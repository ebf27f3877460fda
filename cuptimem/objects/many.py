"""Containers with many Python objects that an object refers to, and about how many bytes those have.

Each read of a Python object writes to its reference count, so a forked process that reads them copies their pages. What
they refer to beside Python objects (an array's numbers) does not count. No code of the program runs.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

from cuptimem.errors import own
from cuptimem.objects.living import attributes

MANY = 1000  # items
_SAMPLE = 256  # of a container's items are measured
_INNER = 16  # items of an item
_DEPTH = 3  # objects inside of objects: a Subset of a ConcatDataset
_OBJECTS = 64  # are looked into
_KNOWN = (str, bytes, int, float, complex, bool, tuple, list, dict, set, frozenset, deque, bytearray)
_ITEMS = (list, tuple, dict, set, frozenset, deque)

Found = tuple[str, str, int, int]  # path, kind, items, bytes


def inside(item: Any, path: str) -> list[Found]:
    """Of this object and of those that it refers to, the largest first."""
    found: list[Found] = []
    pending: list[tuple[Any, str, int]] = [(item, path, 0)]
    seen: set[int] = set()
    while pending and len(seen) < _OBJECTS:
        one, at, depth = pending.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        for name, value in list(attributes(one).items()):
            if type(name) is not str:
                continue
            place = f"{at}.{name}"
            if type(value) in _ITEMS:
                if len(value) >= MANY:
                    found.append((place, type(value).__name__, len(value), _bytes_of_items(value)))
                elif depth < _DEPTH and type(value) in (list, tuple):
                    pending += [(inner, f"{place}[{i}]", depth + 1) for i, inner in enumerate(value[:_INNER])]
            elif depth < _DEPTH and type(value) not in _KNOWN:
                pending.append((value, place, depth + 1))
    return sorted(found, key=lambda one: -one[3])


def _bytes_of_items(value: Any) -> int:
    sample = _sample(value)
    if not sample:
        return 0
    counted: dict[int, int] = {id(one): _with_items(one) for one in sample}
    distinct = len(counted) / len(sample)  # a list of one object has only that
    per_item = sum(counted.values()) / len(counted)
    each = 2 if type(value) is dict else 1
    return round(per_item * distinct * len(value) * each)


def _sample(value: Any) -> list[Any]:
    try:
        if type(value) in (list, tuple):
            return [value[len(value) * i // _SAMPLE] for i in range(_SAMPLE)]
        if type(value) is dict:
            return [part for pair in itertools.islice(value.items(), _SAMPLE // 2) for part in pair]
        return list(itertools.islice(value, _SAMPLE))
    except own(RuntimeError, IndexError):  # another thread changes it
        return []


def _with_items(one: Any) -> int:
    inner = list(_inner(one))
    size = _size(one)
    if inner:
        size += round(sum(map(_size, inner)) / len(inner) * len(one) * (2 if type(one) is dict else 1))
    return size


def _inner(one: Any) -> Iterator[Any]:
    if type(one) is dict:
        for pair in itertools.islice(one.items(), _INNER):
            yield from pair
    elif type(one) in _ITEMS:
        yield from itertools.islice(one, _INNER)


def _size(one: Any) -> int:
    if one is None or type(one) is bool or (type(one) is int and -6 < one < 257):  # of which there is one
        return 0
    return sys.getsizeof(one) if type(one) in _KNOWN else object.__sizeof__(one)
