"""Values that the program reads from the simulated device and that no kernel has computed.

They read as zero and False. Each line that reads one is noted. Further runs take *other outcomes*, so that the answer
need not rest on the zeros:

- branches: a flag reads as True. A float that `Tensor.item` and `tolist` return remembers where it comes from, and so
  does what Python's arithmetic makes of it: comparisons of it come out the other way. Where a float is read otherwise
  (`float()`, `.cpu()`, `.numpy()`) it is another float.
- integers: an integer reads as another number.

A loop may wait for such a value. So a line takes the other way for FEWEST rounds, then for as long as the program's
memory goes on to grow from one power of two of rounds to the next, at most for MOST. What is missed: a comparison of a
float that passed through C (`float()`, math, numpy) or through a tensor of the CPU is not noted as one.

Runs inside the simulated process, imports nothing that torch has not loaded.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cuptimem.simulation.places import Places, library_place, user_place

FEWEST, MOST = 16, 4096  # rounds in which a line takes the other way
OTHER_FLOAT = 1000.0
_ROWS = 256


class _Thread(threading.local):
    """The state of a thread."""

    unknown = False  # its read met something unknown
    remembered = False  # it is in `item` or `tolist`: their floats remember


class HostReads:
    """What this process has read, by line."""

    def __init__(
        self,
        branches: bool,
        integers: int,
        pinned: frozenset[str],
        changed: Callable[[], None],
        memory: Callable[[], int],
    ) -> None:
        """integers: what they read as; 0: as they are. pinned: lines as FILE:LINE that take the other way each time.
        changed: called after each change. memory: bytes that the program has on its device now."""
        self._pinned = pinned
        self._branches = branches
        self.other_integer = integers or 1
        self._integers = integers != 0
        self._changed = changed
        self._memory = memory
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._heights: dict[tuple[Any, ...], list[int]] = {}  # most memory seen: now, and at the last power of two
        self._ended: set[tuple[Any, ...]] = set()  # lines that take the other way no more
        self._places = Places()
        self.dropped = 0  # lines for which there was no room
        self.thread = _Thread()

    def clear(self) -> None:
        """In a child of fork()."""
        self._rows.clear()
        self._heights.clear()
        self._ended.clear()
        self.dropped = 0

    def rows(self) -> list[dict[str, Any]]:
        """As the process's note has them."""
        return list(self._rows.values())

    def note(self, kind: str, dtype: str, elements: int) -> bool:
        """Counts a read. kind: as in result.UnknownRead.

        Whether this one comes out the other way.
        """
        frame = sys._getframe(1)
        user, library = user_place(frame), library_place(frame)
        key = (kind, dtype, user, library)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= _ROWS:
                self.dropped += 1
                return False
            row = self._rows[key] = {
                "kind": kind,
                "dtype": dtype,
                "count": 0,
                "elements": 0,
                "user": [*user, self._places.text(user)],
                "library": [*library, self._places.text(library)],
            }
        row["count"] += 1
        row["elements"] = max(row["elements"], elements)
        if row["count"] & (row["count"] - 1) == 0:  # of a program that is killed, the note is all there is
            self._changed()
        if self._pinned and f"{library[0]}:{library[1]}" in self._pinned:
            return True
        wanted = self._integers if kind == "integer" else self._branches
        return wanted and key not in self._ended and self._goes_on(key, row["count"])

    def _goes_on(self, key: tuple[Any, ...], rounds: int) -> bool:
        heights = self._heights.setdefault(key, [0, 0])
        heights[0] = max(heights[0], self._memory())
        if rounds >= FEWEST and rounds & (rounds - 1) == 0:
            if heights[0] <= heights[1] or rounds >= MOST:
                self._ended.add(key)
                return False
            heights[1] = heights[0]
        return True

    def from_storage(self) -> bool:
        """Whether torch.save or a copy of a storage reads bytes, whatever they stand for."""
        return library_place(sys._getframe(1))[0].endswith("/torch/storage.py")

    def other_float(self, dtype: str, elements: int) -> float | None:
        """What a float reads as that does not remember; None: as it is."""
        if self.thread.remembered:
            self.note("float", dtype, elements)
            return None
        return OTHER_FLOAT if self.note("unfollowed float", dtype, elements) else None

    def lost(self, value: float) -> float:
        """The plain number that an unknown float becomes."""
        return OTHER_FLOAT if self.note("unfollowed float", "float", 1) else value

    def decide(self, outcome: bool) -> bool:
        """The outcome of a comparison with an unknown float."""
        return outcome != self.note("branch", "float", 1)

    def install(self, torch: ModuleType) -> None:
        """Floats that `item` and `tolist` return remember where they come from."""
        kind = _remembering(self.decide, self.lost)
        item, tolist = torch._C.TensorBase.item, torch._C.TensorBase.tolist
        reads = self

        def wrapped(value: Any) -> Any:
            if type(value) is float:
                return kind(value)
            return [wrapped(one) for one in value] if type(value) is list else value

        def read_item(self: Any) -> Any:
            reads.thread.unknown, reads.thread.remembered = False, True
            try:
                value = item(self)
            finally:
                reads.thread.remembered = False
            return wrapped(value) if reads.thread.unknown else value

        def read_list(self: Any) -> Any:
            reads.thread.unknown, reads.thread.remembered = False, True
            try:
                value = tolist(self)
            finally:
                reads.thread.remembered = False
            return wrapped(value) if reads.thread.unknown else value

        for name, function, original in (("item", read_item, item), ("tolist", read_list, tolist)):
            function.__name__, function.__qualname__ = name, f"Tensor.{name}"
            function.__doc__ = original.__doc__
            setattr(torch.Tensor, name, function)
        save = torch.save

        def plain(value: Any) -> Any:
            if type(value) is kind:
                return float.__pos__(value)
            if type(value) is dict:
                return {key: plain(one) for key, one in value.items()}
            return type(value)(map(plain, value)) if type(value) in (list, tuple) else value

        def save_plain(obj: Any, *arguments: Any, **keywords: Any) -> Any:
            return save(plain(obj), *arguments, **keywords)  # files must not refer to our types

        save_plain.__name__, save_plain.__qualname__, save_plain.__doc__ = "save", "save", save.__doc__
        torch.save = save_plain  # type: ignore[attr-defined]  # mypy takes torch for a plain module


def _remembering(decide: Callable[[bool], bool], lost: Callable[[float], float]) -> type[float]:
    """The type of a float that stands for a value that no kernel has computed."""

    class UnknownFloat(float):
        __slots__ = ()

        def __lt__(self, other: Any) -> Any:
            return _decided(float.__lt__(self, other))

        def __le__(self, other: Any) -> Any:
            return _decided(float.__le__(self, other))

        def __gt__(self, other: Any) -> Any:
            return _decided(float.__gt__(self, other))

        def __ge__(self, other: Any) -> Any:
            return _decided(float.__ge__(self, other))

        def __eq__(self, other: Any) -> Any:
            return _decided(float.__eq__(self, other))

        def __ne__(self, other: Any) -> Any:
            return _decided(float.__ne__(self, other))

        def __bool__(self) -> bool:
            return decide(float.__bool__(self))

        __hash__ = float.__hash__

        def __float__(self) -> float:
            return lost(float.__pos__(self))

        def __int__(self) -> int:
            return int(lost(float.__pos__(self)))

        __trunc__ = __floor__ = __ceil__ = __int__

        def __round__(self, digits: Any = None) -> Any:
            if digits is None:
                return int(self)
            return UnknownFloat(round(float.__pos__(self), digits))

        def __copy__(self) -> Any:
            return self

        def __deepcopy__(self, memo: Any) -> Any:
            return self

        def __reduce__(self) -> Any:  # a file has the plain number
            return float, (float.__pos__(self),)

    def _decided(outcome: Any) -> Any:
        return outcome if outcome is NotImplemented else decide(outcome)

    def passing_on(name: str) -> Callable[..., Any]:
        plain = getattr(float, name)

        def method(self: Any, *arguments: Any) -> Any:
            try:
                result = plain(self, *arguments)
            except ZeroDivisionError:  # a zero that stands for an unknown value is no reason to fail
                operands = (
                    1.0 if type(one) is UnknownFloat and float.__eq__(one, 0) else one for one in (self, *arguments)
                )
                result = plain(*operands)
            if type(result) is tuple:  # of divmod
                return tuple(map(UnknownFloat, result))
            return UnknownFloat(result) if type(result) is float else result

        method.__name__ = name
        return method

    for name in (
        *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__"),
        *("__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__", "__neg__", "__pos__"),
        *("__abs__", "__divmod__", "__rdivmod__"),
    ):
        setattr(UnknownFloat, name, passing_on(name))
    UnknownFloat.__name__ = UnknownFloat.__qualname__ = "float"
    UnknownFloat.__module__ = "builtins"
    return UnknownFloat
