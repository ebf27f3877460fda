"""Limits that markers and ini settings put on tests: parsed at collection, so that a wrong one ends the run there."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cuptimem import sizes
from cuptimem.pytest_plugin.usage import usage_error
from cuptimem.report.process import HOST

MEMORY, LEAKS = "limit_tensor_memory", "limit_tensor_leaks"
OF = ("tensors", "reserved", "device")
_DEVICE = re.compile(r"cpu|pinned|cuda(:(0|[1-9][0-9]{0,2}))?")  # as devices are called: no cuda:01


@dataclass(frozen=True)
class Limit:
    """The most bytes that a test may use (`kind` MEMORY) or leave behind (LEAKS)."""

    kind: str
    bytes: int
    said: str  # the size as it was written
    device: str | None = None  # None: each device is held to it by itself
    of: str = "tensors"
    warmup: int = 0
    filter_fn: Callable[[Any], bool] | None = None  # contributor -> whether it counts

    def covers(self, device: str) -> bool:
        """Whether it is about this device: "cuda" covers "cuda:0"."""
        if self.of != "tensors" and device in HOST:
            return False
        return self.device is None or device == self.device or device.startswith(f"{self.device}:")


@dataclass(frozen=True)
class Limits:
    """Those of one test, the nearest first: function, class, module, ini."""

    limits: tuple[Limit, ...]

    def of(self, kind: str) -> tuple[Limit, ...]:
        return tuple(limit for limit in self.limits if limit.kind == kind)

    def holding(self, kind: str, of: str, device: str) -> Limit | None:
        """The limit that holds for a device: the nearest one that is about it."""
        return next((one for one in self.of(kind) if one.of == of and one.covers(device)), None)

    @property
    def devices(self) -> set[str]:
        """Those that limits are about."""
        devices = {limit.device for limit in self.limits if limit.device is not None}
        return devices | ({"cuda"} if self.of_device else set())

    @property
    def of_device(self) -> bool:
        """Whether a limit is about more than tensors."""
        return any(limit.of != "tensors" for limit in self.limits)

    @property
    def warmup(self) -> int:
        """Of the limits on leaks that hold, which all have the same."""
        return next((limit.warmup for limit in self.nearest_leaks()), 0)

    def nearest_leaks(self) -> Iterator[Limit]:
        """Limits on leaks that hold for some device: up to the first that is about all of them."""
        devices = set()
        for limit in self.of(LEAKS):
            if limit.device not in devices:
                yield limit
            devices.add(limit.device)
            if limit.device is None:
                return


def limits_of(item: pytest.Item) -> Limits:
    """The limits of a test. Raises pytest.UsageError, one line, for an invalid marker or setting."""
    found: list[Limit] = []
    for kind in (MEMORY, LEAKS):
        levels: dict[tuple[int, int], dict[tuple[str, str | None], Limit]] = {}
        nodes = item.listchain()
        for node, mark in item.iter_markers_with_node(kind):
            limit = _from_mark(item, kind, mark)
            level = -nodes.index(node), _distance(node, mark)
            same = levels.setdefault(level, {}).setdefault((limit.of, limit.device), limit)
            if same != limit:
                raise usage_error(
                    f"{node.nodeid}: two limits for {limit.device or 'each device'}, {same.said!r} and "
                    f"{limit.said!r}: keep one {kind}"
                )
        for _, near in sorted(levels.items()):  # in each, a limit that names its device goes before a wider one
            found += sorted(near.values(), key=lambda limit: -len(limit.device or ""))
        ini = str(item.config.getini(_ini(kind))).strip()
        if ini:
            found.append(_limit(_ini(kind), kind, ini, {}))
    limits = Limits(tuple(found))
    if len({limit.warmup for limit in limits.nearest_leaks()}) > 1:
        raise usage_error(f"{item.nodeid}: limits on leaks with several warmups: give each device the same")
    return limits


def _distance(node: Any, mark: pytest.Mark) -> int:
    """Of a marker from its node: of a parameter before of its function, of a class before of its base."""
    callspec = getattr(node, "callspec", None)
    if callspec is not None:
        return int(not any(mark is one for one in callspec.marks))
    for distance, one in enumerate(getattr(getattr(node, "obj", None), "__mro__", ())):
        marks = vars(one).get("pytestmark", [])
        for given in marks if isinstance(marks, list) else [marks]:
            if mark is getattr(given, "mark", given):
                return distance
    return 0


def check_ini(config: pytest.Config) -> None:
    """Raises pytest.UsageError for a setting that is no size, also where no test would be held to it."""
    for kind in (MEMORY, LEAKS):
        ini = str(config.getini(_ini(kind))).strip()
        if ini:
            _limit(_ini(kind), kind, ini, {})


def _ini(kind: str) -> str:
    return f"cuptimem_{kind}"


def _from_mark(item: pytest.Item, kind: str, mark: pytest.Mark) -> Limit:
    where = f"{item.nodeid}: {kind}"
    known = {"device", "of"} if kind == MEMORY else {"device", "warmup", "filter_fn"}
    unknown = sorted(set(mark.kwargs) - known - {"limit"})
    if unknown:
        raise usage_error(f"{where} takes {', '.join(sorted(known))}, not {', '.join(unknown)}")
    given = [*mark.args, *([mark.kwargs["limit"]] if "limit" in mark.kwargs else [])]
    if len(given) != 1:
        raise usage_error(f'{where} takes one size, as in {kind}("512 MiB")')
    options = {name: value for name, value in mark.kwargs.items() if name != "limit"}
    return _limit(where, kind, given[0], options)


def _limit(where: str, kind: str, size: object, options: dict[str, Any]) -> Limit:
    if not isinstance(size, bool | float) and hasattr(size, "__index__"):  # NumPy's numbers, too
        size = operator.index(size)
    if isinstance(size, bool) or not isinstance(size, str | int) or (isinstance(size, int) and size < 0):
        raise usage_error(f'{where}: a size is a text like "512 MiB", or a number of bytes, not {size!r}')
    try:
        number = size if isinstance(size, int) else sizes.parse(size)
    except ValueError:
        raise usage_error(f'{where}: {size!r} is no size; write it like "512 MiB"') from None
    device, of = options.get("device"), options.get("of", "tensors")
    if type(device).__module__ == "torch":
        device = str(device)
    warmup, chosen = options.get("warmup", 0), options.get("filter_fn")
    if device is not None and not (isinstance(device, str) and _DEVICE.fullmatch(device)):
        raise usage_error(f'{where}: unknown device {device!r}: it is "cpu", "pinned", "cuda" or "cuda:0"')
    if of not in OF:
        raise usage_error(f"{where}: of={of!r} is none of {', '.join(map(repr, OF))}")
    if of != "tensors" and device in HOST:
        raise usage_error(f"{where}: of={of!r} is about CUDA devices; {device!r} has tensors alone")
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise usage_error(f"{where}: warmup is a number of calls, not {warmup!r}")
    if chosen is not None and not callable(chosen):
        raise usage_error(f"{where}: filter_fn is a function of a contributor, not {chosen!r}")
    return Limit(kind, number, str(size), device, of, warmup, chosen)
