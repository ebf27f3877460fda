"""What traces of the driver level are made of by hand, and what their ledgers are asked."""

from collections.abc import Callable
from typing import Any

import craft
from craft import Trace
from driver_model import CUDA, QUIET, USED

from tests import event_kinds
from tests.event_kinds import DEVICE, WORK

Analyze = Callable[..., dict[str, Any]]
OF_NODE = 0x80
NEW, FREE, MORE = event_kinds.DRIVER_NEW, event_kinds.DRIVER_FREE, event_kinds.DRIVER_MORE
MIB = 1 << 20


def moment(t: Trace, used: int, *, quiet: bool = True, index: int = 0, **told: int) -> None:
    where = {"device": craft.CUDA, "index": index}
    for what, value in told.items():
        number = ["total", "own", "others", "pooled", "reserved", "", "host", "page_cache"].index(what) + 1
        t.add(DEVICE, number, value, thread=9, **where)
    t.add(DEVICE, USED, used, flags=QUIET if quiet else 0, thread=9, **where)


def new(t: Trace, kind: int, address: int, size: int, line: int = 1, **more: int) -> None:
    t.add(NEW, address, size, t.line(line), flags=kind, **{**CUDA, **more})


def free(t: Trace, kind: int, address: int, size: int = 0, **more: int) -> None:
    t.add(FREE, address, size, flags=kind, **{**CUDA, **more})


def total(ledger: dict[str, Any]) -> int:
    parts = sum(ledger[key] for key in ("tensors", "rounding", "cached", "driver_rounding", "pool_slack", "residual"))
    driver = sum(line["bytes"] for line in ledger["driver"])
    return int(parts + driver + sum(ledger[key] or 0 for key in ("context", "others", "host", "page_cache")))


def only(report: dict[str, Any], what: str = "end") -> dict[str, Any]:
    (found,) = [row for row in report["ledger"] if row["what"] == what]
    assert total(found) == found["used"]
    return dict(found)


def bytes_of(report: dict[str, Any], device: int = 0) -> int:
    return next((int(row["bytes"]) for row in report["driver"]["devices"] if row["device"] == f"cuda:{device}"), 0)


def work(t: Trace, correlation: int, at: int, ns: int, name: str = "kernel") -> None:
    t.events.append(craft.Event(9, 0, at, correlation, ns, t.name(name), WORK, 1, craft.CUDA, 0))
