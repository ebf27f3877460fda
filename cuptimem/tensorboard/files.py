"""All recordings below some folders, and what was read of them, for all requests together."""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cuptimem.errors import Error
from cuptimem.tensorboard import packed, ranks
from cuptimem.tensorboard.checks import Damaged
from cuptimem.tensorboard.comparison import compare
from cuptimem.tensorboard.packed import State
from cuptimem.tensorboard.walk import RECORDINGS, Found, Walked, walk

_WALK_HOLDS = 2.0  # seconds: requests of one page come together
_KEPT = 64 << 20  # bytes of texts
_AT_ONCE = 64 << 20  # bytes that one list unpacks; the others are in the next

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Listed:
    """What a request for all recordings gets."""

    good: tuple[tuple[Found, dict[str, Any]], ...]
    broken: tuple[tuple[Found, str], ...]  # with the reason
    waiting: int  # that were not read yet
    notes: tuple[str, ...]


class Files:
    """Threads of TensorBoard's server share it. One file is read at a time, so that what it needs in memory is needed
    once, and no file is read again before it changes."""

    def __init__(self, folders: dict[str, str]) -> None:
        """folders: by what stands before the names of their runs."""
        self._reading = threading.Lock()  # held while a file is read or decoded
        self._walks: _Shared[Walked] = _Shared(lambda: walk(folders), _WALK_HOLDS)
        self._lists: _Shared[Listed] = _Shared(self._list, 0.0)
        self._texts: _Latest[bytes] = _Latest(_KEPT, len)
        self._summaries: _Latest[dict[str, Any] | str] = _Latest(2 * RECORDINGS, lambda _one: 1)  # a text: why not

    def any(self) -> bool:
        return bool(self.find())

    def find(self) -> tuple[Found, ...]:
        """In the order of runs and names; those of the last search, if that was just now."""
        return self._walks.get().found

    def one(self, id: str) -> Found:
        """Raises Error where there is none."""
        found = next((found for found in self.find() if found.id == id), None)
        if found is None:
            raise Error("there is no such recording (any more)")
        return found

    def list(self) -> Listed:
        """Requests that come while another's list is made share the next one."""
        return self._lists.get()

    def text(self, found: Found) -> bytes:
        """The file's JSON, checked. Raises Error, one line, for a file that is broken or gone."""
        state = _state(found)
        text = self._texts.get(state)
        if text is None:
            text, _size = self._load(found, state, self._texts)
        if text is None:
            raise Error(str(self._summaries.get(state)))
        return text

    def comparison(self, before: Found, after: Found) -> bytes:
        """JSON of what the peaks of two recordings are made of. Raises Error."""
        texts = self.text(before), self.text(after)
        key = _state(before) + _state(after)
        with self._reading:
            made = self._texts.get(key)
            if made is None:
                made = json.dumps({"devices": compare(*map(packed.decoded, texts))}).encode()
                self._texts.put(key, made)
        return made

    def ranks(self, of: Found) -> bytes:
        """JSON of why the ranks differ of which a recording is one. Raises Error."""
        found = ranks.members(self.find(), of.run)
        texts = {rank: self.text(one) for rank, one in found.items()}
        with self._reading:
            decoded = {rank: packed.decoded(text) for rank, text in texts.items()}
            return json.dumps({"blocks": ranks.blocks(decoded)}).encode()

    def _list(self) -> Listed:
        good: list[tuple[Found, dict[str, Any]]] = []
        broken: list[tuple[Found, str]] = []
        waiting, left = 0, _AT_ONCE
        walked = self._walks.get()
        for found in walked.found:
            try:
                state = _state(found)
                known = self._summaries.get(state)
                if known is None and left > 0:
                    _text, size = self._load(found, state, self._summaries)
                    left -= size
                    known = self._summaries.get(state)
            except Gone:
                continue
            except Error as error:
                known = str(error)
            if known is None:
                waiting += 1
            elif isinstance(known, str):
                broken.append((found, known))
            else:
                good.append((found, known))
        return Listed(tuple(good), tuple(broken), waiting, walked.notes)

    def _load(self, found: Found, state: State, wanted: "_Latest[Any]") -> tuple[bytes | None, int]:
        """Reads a file, unless another request has put there what is wanted. Returns its text, if it can be shown, and
        how many bytes were read and unpacked. Raises Error for what may be otherwise the next time."""
        with self._reading:
            known = self._summaries.get(state)
            if isinstance(known, str) or wanted.get(state) is not None:
                return self._texts.get(state), 0
            try:
                text, data = packed.read(found, state)
            except Damaged as error:
                self._summaries.put(state, str(error))
                return None, state[2] + error.unpacked
            self._summaries.put(state, _summary(data))
            self._texts.put(state, text)
            return text, state[2] + len(text)


class Gone(Error):
    """The file is not there any more."""


def _state(found: Found) -> State:
    try:
        return packed.state(os.lstat(found.path))
    except (FileNotFoundError, NotADirectoryError):
        raise Gone("there is no such recording (any more)") from None
    except OSError as error:
        raise Error(f"it cannot be read: {error.strerror or error}") from None


def _summary(data: dict[str, Any]) -> dict[str, Any]:
    """What the list shows of a recording. Small, for there are many: of devices the first."""
    return {
        "title": data["title"],
        "start_realtime_ns": data["start_realtime_ns"],
        "duration_ns": data["duration_ns"],
        "first_step": data["first_step"],
        "steps": len({row[0] for row in data["steps"]}) if not data["steps_left_out"] else None,
        "leaks": sum(leak["verdict"] for leak in data["leaks"]),
        "caveats": len(data["caveats"]),
        "devices": [{key: device[key] for key in ("name", "peak", "end")} for device in data["devices"][:1]],
    }


class _Latest(Generic[_T]):
    """What was used last, up to a sum of weights."""

    def __init__(self, most: int, weight: Callable[[_T], int]) -> None:
        self._lock = threading.Lock()
        self._most, self._weight, self._sum = most, weight, 0
        self._kept: dict[State, _T] = {}  # the latest last

    def get(self, key: State) -> _T | None:
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._kept[key] = found
            return found

    def put(self, key: State, made: _T) -> None:
        with self._lock:
            before = self._kept.pop(key, None)
            self._sum += self._weight(made) - (self._weight(before) if before is not None else 0)
            self._kept[key] = made
            while self._sum > self._most:
                self._sum -= self._weight(self._kept.pop(next(iter(self._kept))))


class _Shared(Generic[_T]):
    """One result for all who ask within a time, and for all who wait while it is made."""

    def __init__(self, make: Callable[[], _T], holds: float) -> None:
        self._lock = threading.Lock()
        self._make, self._holds = make, holds
        self._made: tuple[float, _T] | None = None  # when it was begun

    def get(self) -> _T:
        asked = time.monotonic()
        with self._lock:
            if self._made is None or self._made[0] < asked - self._holds:
                begun = time.monotonic()
                self._made = (begun, self._make())
            return self._made[1]
