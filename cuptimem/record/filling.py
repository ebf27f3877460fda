"""Containers below their bound: their contents grow, and will stop.

A replay buffer resembles a leak until it is full. So before a window closes the trace gets the addresses of the blocks
in each deque and `functools.lru_cache` that has room below its bound, and in each list, or numpy array of objects, that
ends in eight places or more for what is to come (`[None] * capacity`). The same is done 1, 2, 4, 8, ... seconds after
the start, because a buffer may be gone when its function has returned: then in slices, for those near to names of the
program's own. Runs inside the profiled process, and runs none of the program's code.
"""

import gc
import itertools
import sys
from collections import deque
from types import GetSetDescriptorType

from cuptimem.errors import own
from cuptimem.objects import living, near

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

_FEWEST = 3  # entries: fewer are no growth
_PLACES = 8  # empty ones at the end of a list that is a buffer
_DEPTH = 3  # of transitions that hold tensors: deque, tuple, dict
_MOST = 1 << 16  # entries read in all, and tensors
_NEAREST = 1 << 11  # objects among which containers are looked for while the program runs
_PART = 1 << 8  # entries read at once then, and tensors
_WIDEST = 64  # parts of an entry
_OWN = 5  # referents of a cache that are none of its entries: the dict, the function, a mark, a type, attributes
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that a program has made

# The real ones, whatever a metaclass shows.
_mro = type.__dict__["__mro__"].__get__
_flags = type.__dict__["__flags__"].__get__
_namespace = type.__dict__["__dict__"].__get__


def note(core: "ModuleType", objects: "list[Any]") -> None:
    """Marks the blocks in those of the objects that are containers and still filling. While torch is being imported
    there are none."""
    array = core.array_type()  # which no collector tracks
    arrays = [one for one in near.objects(_NEAREST) if type(one) is array] if array is not None else []
    _Look(core).read([*objects, *arrays], _MOST)


def note_in_slices(core: "ModuleType") -> "Iterator[None]":
    """The same while the program runs. Between two slices it knows containers by their addresses alone, and finds them
    again from the program's names."""
    look = _Look(core)
    while look.read(near.objects(_NEAREST), _PART):
        yield


class _Look:
    def __init__(self, core: "ModuleType") -> None:
        self.core = core
        self.binary = sys.modules.get("torch._C")
        self.base: Any = getattr(self.binary, "TensorBase", None)
        self.noted: set[int] = set()  # addresses of blocks
        self.places: dict[int, int] = {}  # by the address of a container: the first entry that is not read yet
        self.left = _MOST
        self.array = core.array_type()
        if self.base is not None:
            core.mark(core.MARK_FILLING, 0)

    def read(self, objects: "list[object]", most: int) -> bool:
        """Reads so many entries of containers among them; whether there are more."""
        plain = getattr(self.binary, "_DisableTorchDispatch", None)
        if self.base is None or plain is None or self.binary is None:
            return False
        until = len(self.noted) + most
        with self.binary.DisableTorchFunction(), plain():
            for container in objects:
                if self._is_one(type(container)) and _has_room(container):
                    most -= self._read(container, most)
                    if most <= 0 or len(self.noted) >= until:
                        return self.left > 0
        return False

    def _is_one(self, cls: type) -> bool:
        return cls is deque or cls is list or cls is living.Cache or cls is self.array

    def _read(self, container: "Any", most: int) -> int:
        """How many entries it has read. If another thread changes the container, that was all."""
        place = self.places.get(id(container), 0)
        count = 0
        entries = _cached(container) if type(container) is living.Cache else container
        try:
            for entry in itertools.islice(entries, place, place + min(most, self.left)):
                if entry is None and type(container) in (list, self.array):
                    break  # behind it are only places
                count += 1
                for tensor in _tensors(entry, self.base, _DEPTH):
                    self._note(tensor)
                if len(self.noted) >= _MOST:
                    break
        except own(RuntimeError):
            pass
        self.places[id(container)] = place + count
        self.left -= count
        return count

    def _note(self, tensor: object) -> None:
        address = address_of(tensor, self.binary)
        if address and address not in self.noted:
            self.noted.add(address)
            self.core.mark(self.core.MARK_FILLING, address)


def _cached(cache: "Any") -> "list[Any]":
    """Keys and results of a functools.lru_cache. Behind them its referents are its dict, the function and what else it
    needs, whose own contents have no bound."""
    found = gc.get_referents(cache)
    end = next((i for i in range(max(0, len(found) - _OWN), len(found)) if type(found[i]) is dict), len(found))
    return found[:end]


def _has_room(container: "Any") -> bool:
    if type(container) is living.Cache:
        bound, count = living.cache_bound(container)
        return bound is not None and _FEWEST <= count < bound
    if type(container) is deque:
        return container.maxlen is not None and _FEWEST <= len(container) < container.maxlen
    if type(container) is not list and container.ndim != 1:
        return False
    if len(container) <= _PLACES or container[-1] is not None:  # of nearly all
        return False
    return container[0] is not None and all(place is None for place in container[-_PLACES:])


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


def address_of(tensor: object, binary: "Any") -> int:
    """Of its storage; 0: it has none. binary: torch._C."""
    if getattr(binary, "_is_cow_tensor", lambda tensor: False)(tensor):
        return 0  # that of a lazy copy is that of a real one, which asking for it would make
    try:
        return int(binary.TensorBase.untyped_storage(tensor).data_ptr())
    except own(RuntimeError, AttributeError):  # fake, functional, sparse
        return 0
