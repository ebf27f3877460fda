"""What of an answer may be called otherwise than when the golden traces were recorded.

tests/golden/renames.json has it: {"keys": [...], "values": [...]}. Each entry is {"old": ..., "new": ...} and, if it is
not so everywhere, "in": patterns of fnmatch, of which one must match the place. The place of a key is that of its
object: "peak --at end/peaks/contributors". That of a value is its key's: "summary/schema". Places are in old words and
have no indices. The first entry that applies is taken. A table with an entry that applies nowhere is not true.

In digests of exports the same holds for keys. Words in them lie under ".../words/word".
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("renames.json")


@dataclass(frozen=True)
class Rename:
    old: Any
    new: Any
    places: tuple[str, ...]

    def applies(self, old: Any, place: str) -> bool:
        # 1 is not True, and 2 not 2.0.
        same = type(old) is type(self.old) and old == self.old
        return same and (not self.places or any(fnmatchcase(place, pattern) for pattern in self.places))


class Renames:
    """The table, and which of its entries were ever used."""

    def __init__(self, table: dict[str, Any]) -> None:
        if table.keys() - {"keys", "values"}:
            raise ValueError(f"the table of renames has {sorted(table)}")
        self._keys = tuple(self._read(entry) for entry in table.get("keys", []))
        self._values = tuple(self._read(entry) for entry in table.get("values", []))
        self.used: set[Rename] = set()

    @staticmethod
    def _read(entry: dict[str, Any]) -> Rename:
        if entry.keys() - {"in"} != {"old", "new"} or isinstance(entry.get("in"), str):
            raise ValueError(f"a rename has old, new and a list in, not {entry}")
        return Rename(entry["old"], entry["new"], tuple(entry.get("in", ())))

    def translate(self, value: Any, place: str) -> Any:
        """An old answer in new words. ValueError where two keys of an object would become one."""
        if isinstance(value, list):
            return [self.translate(part, place) for part in value]
        if not isinstance(value, dict):
            return self._new(self._values, value, place)
        found = {}
        for key, part in value.items():
            new = self._new(self._keys, key, place)
            if new in found:
                raise ValueError(f"{place}: two keys become {new!r}")
            found[new] = self.translate(part, f"{place}/{key}")
        return found

    def _new(self, renames: tuple[Rename, ...], old: Any, place: str) -> Any:
        for one in renames:
            if one.applies(old, place):
                self.used.add(one)
                return one.new
        return old

    def unused(self) -> list[Rename]:
        return [one for one in (*self._keys, *self._values) if one not in self.used]


@cache
def read() -> Renames:
    """The one table of this process."""
    return Renames(json.loads(FILE.read_text()))


def differences(old: Any, new: Any, path: str = "$") -> Iterator[str]:
    """Each place in which two documents differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            below = f"{path}.{key}" if key.isidentifier() else f"{path}[{json.dumps(key)}]"
            if key not in new:
                yield f"{below}: is gone, it was {_short(old[key])}"
            elif key not in old:
                yield f"{below}: is new, {_short(new[key])}"
            else:
                yield from differences(old[key], new[key], below)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{path}: had {len(old)} items, has {len(new)}"
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from differences(before, after, f"{path}[{index}]")
    elif type(old) is not type(new) or old != new:
        yield f"{path}: was {_short(old)}, is {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def values(document: Any) -> int:
    """How many numbers, words and so on a document has."""
    if isinstance(document, dict):
        return sum(map(values, document.values()))
    return sum(map(values, document)) if isinstance(document, list) else 1
