"""Containers below their bound: their contents grow, and will stop.

A replay buffer resembles a leak until it is full. So before a window closes the trace gets the addresses of the blocks
in each deque that has room below its maxlen, and in each list that ends in eight places or more for what is to come
(`[None] * capacity`). The same is done 1, 2, 4, 8, ... seconds after the start, because a buffer may be gone when its
function has returned. Runs inside the profiled process, and runs none of the program's code.
"""

import gc
import sys
from collections import deque
from types import GetSetDescriptorType

from cuptimem.errors import own

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType
    from typing import Any

    _Container = deque[object] | list[object]

_FEWEST = 3  # entries: fewer are no growth
_PLACES = 8  # empty ones at the end of a list that is a buffer
_DEPTH = 3  # of transitions that hold tensors: deque, tuple, dict
_MOST = 1 << 16  # entries read in all, and tensors
_WIDEST = 64  # parts of an entry
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that a program has made

# The real ones, whatever a metaclass shows.
_mro = type.__dict__["__mro__"].__get__
_flags = type.__dict__["__flags__"].__get__
_namespace = type.__dict__["__dict__"].__get__


def note(core: "ModuleType") -> None:
    """Marks the blocks in containers that are still filling. While torch is being imported there are none."""
    binary = sys.modules.get("torch._C")
    base = getattr(binary, "TensorBase", None)
    plain = getattr(binary, "_DisableTorchDispatch", None)
    if binary is None or base is None or plain is None:
        return
    is_lazy_copy = getattr(binary, "_is_cow_tensor", lambda tensor: False)
    noted: set[int] = set()
    core.mark(core.MARK_FILLING, 0)
    candidates = [one for one in core.tracked(gc.get_objects, False) if type(one) is deque or type(one) is list]
    with binary.DisableTorchFunction(), plain():
        for tensor in _held(filter(_has_room, candidates), base):
            # The address of a lazy copy is that of a real one, which asking for it would make.
            address = 0 if is_lazy_copy(tensor) else _address(tensor, base)
            if address and address not in noted and len(noted) < _MOST:
                noted.add(address)
                core.mark(core.MARK_FILLING, address)


def _has_room(container: "_Container") -> bool:
    if type(container) is list:
        places = container[-_PLACES:]
        return len(container) > _PLACES and container[0] is not None and all(place is None for place in places)
    assert not isinstance(container, list)
    return container.maxlen is not None and _FEWEST <= len(container) < container.maxlen


def _held(containers: "Iterable[_Container]", base: type) -> "Iterator[object]":
    """The tensors in them. If another thread changes a container, its walk ends there."""
    left = _MOST
    for container in containers:
        try:
            for entry in container:
                left -= 1
                if left < 0:
                    return
                if entry is None and type(container) is list:
                    break  # behind it are only places
                yield from _tensors(entry, base, _DEPTH)
        except own(RuntimeError):
            continue


def _tensors(item: "Any", base: type, depth: int) -> "Iterator[object]":
    cls = type(item)
    mro = _mro(cls)
    if any(one is base for one in mro):
        yield item
        return
    if depth == 0:
        return
    parts: list[object] = []
    if any(one is tuple for one in mro):
        parts = list(tuple.__iter__(item))
    elif cls is list:
        parts = item[:_WIDEST]
    elif cls is dict:
        parts = list(item.values())
    elif _flags(cls) & _HEAP_TYPE:
        parts = _attributes(item, mro)
    for part in parts[:_WIDEST]:
        yield from _tensors(part, base, depth - 1)


def _attributes(item: object, mro: tuple[type, ...]) -> list[object]:
    """The attributes of an object, where no code of the program computes its namespace."""
    for cls in mro:
        slot = _namespace(cls).get("__dict__")
        if slot is not None:
            return list(slot.__get__(item).values()) if type(slot) is GetSetDescriptorType else []
    return []


def _address(tensor: object, base: "Any") -> int:
    try:
        return int(base.untyped_storage(tensor).data_ptr())
    except own(RuntimeError, AttributeError):  # fake, functional, sparse
        return 0
