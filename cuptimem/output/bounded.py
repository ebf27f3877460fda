"""An answer of --json within bounds: lists are cut at their ends, and what was left out is counted in the answer.

`left_out` of the answer has, by the place of the lists (their keys from the top, with slashes), how many items were
left out, and the sum of their bytes where they have any.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cuptimem.errors import Error

_STACKS = ("stack", "origin", "frames")  # keys of lists that belong together: --most leaves them whole


@dataclass(frozen=True, slots=True)
class Bounds:
    """most: items of each list, stacks apart. bytes: of the whole text, its line end among them. None: no bound."""

    most: int | None = None
    bytes: int | None = None


NONE = Bounds()


class _Cut:
    """A copy of a document with at most so many items in each list of objects or lists."""

    def __init__(self, most: int, stacks: bool, scalars: bool) -> None:
        self._most, self._stacks, self._scalars = most, stacks, scalars
        self.left: dict[str, dict[str, int]] = {}

    def copy(self, value: Any, place: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            copied = {key: self.copy(one, (*place, key)) for key, one in value.items()}
            # Objects that a document shares are written once (json.show), so an equal one stays the same.
            return value if all(copied[key] is value[key] for key in value) else copied
        if not isinstance(value, list | tuple):
            return value
        kept = value[: self._most] if self._is_cut(value, place) else value
        if len(kept) < len(value):
            self._count(value[len(kept) :], "/".join(place))
        copied_list = [self.copy(one, place) for one in kept]
        same = len(kept) == len(value) and all(a is b for a, b in zip(copied_list, value, strict=True))
        return value if same else copied_list

    def _is_cut(self, value: Any, place: tuple[str, ...]) -> bool:
        if place[-1:] and place[-1] in _STACKS:
            return self._stacks
        return self._scalars or any(isinstance(one, dict | list | tuple) for one in value)

    def _count(self, left: Iterable[Any], place: str) -> None:
        row = self.left.setdefault(place, {"items": 0, "bytes": 0})
        for one in left:
            row["items"] += 1
            size = one.get("bytes") if isinstance(one, dict) else None
            row["bytes"] += size if isinstance(size, int) else 0


def _cut(document: dict[str, Any], most: int, *, stacks: bool, scalars: bool) -> dict[str, Any]:
    cut = _Cut(most, stacks, scalars)
    return {**cut.copy(document, ()), "left_out": cut.left}


def bounded(document: dict[str, Any], bounds: Bounds, pieces: Callable[[dict[str, Any]], Iterable[str]]) -> Any:
    """The document within its bounds; without any, the document itself. Raises Error where it cannot be so small."""
    if bounds.most is None and bounds.bytes is None:
        return document
    if bounds.most is not None:
        document = _cut(document, bounds.most, stacks=False, scalars=False)
    else:
        document = {**document, "left_out": {}}
    if bounds.bytes is None or _fits(pieces(document), bounds.bytes):
        return document
    already = document.pop("left_out")
    found = _largest(document, already, bounds.bytes, pieces)
    if found is None:
        least = sum(map(len, pieces(_joined(_cut(document, 0, stacks=True, scalars=True), already)))) + 1
        raise Error(f"--max-bytes {bounds.bytes}: this answer has at least {least} bytes with all of its lists empty")
    return found


def _largest(document: dict[str, Any], already: dict[str, Any], most_bytes: int, pieces: Any) -> dict[str, Any] | None:
    """With the most items in each list, stacks among them, that fit; where none does, with lists of words cut, too."""
    for scalars in (False, True):
        low, high, found = 0, _longest(document), None
        while low <= high:
            middle = (low + high) // 2
            tried = _joined(_cut(document, middle, stacks=True, scalars=scalars), already)
            if _fits(pieces(tried), most_bytes):
                found, low = tried, middle + 1
            else:
                high = middle - 1
        if found is not None:
            return found
    return None


def _joined(document: dict[str, Any], already: dict[str, Any]) -> dict[str, Any]:
    """With what an earlier cut left out: --most and --max-bytes together."""
    left = {place: dict(row) for place, row in already.items()}
    for place, row in document["left_out"].items():
        for key, value in row.items():
            of = left.setdefault(place, {"items": 0, "bytes": 0})
            of[key] += value
    return {**document, "left_out": left}


def _longest(value: Any) -> int:
    if isinstance(value, dict):
        return max(map(_longest, value.values()), default=0)
    return max([len(value), *map(_longest, value)]) if isinstance(value, list | tuple) else 0


def _fits(pieces: Iterable[str], most: int) -> bool:
    size = 1  # the line end
    for piece in pieces:
        size += len(piece)
        if size > most:
            return False
    return True
