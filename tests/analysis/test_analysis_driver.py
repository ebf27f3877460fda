"""The driver level: ledgers against an independent model, and each rule by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import craft
import pytest
from craft import BEFORE_START, DIRECT, OOM, RESERVED, SEED, SEEDED, SEGMENT_FREE, SEGMENT_NEW, WINDOW_OPEN, Trace
from driver_model import ARRAY, ASYNC, CONTEXT, CUDA, DEV, HANDLE, HOST, LIBRARY, MAPPED, PHYSICAL, QUIET, USED, Driver
from driver_model import CORRELATION, FAILED, POOLED, RELEASE, TOTAL
from driver_model import RESERVED as ADDRESSES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuptimem import _core

Analyze = Callable[..., dict[str, Any]]
NEW, FREE, MORE, WITNESS, POOL, LAUNCH, WORK, DEVICE, HELD = range(22, 31)
MIB = 1 << 20


def moment(t: Trace, used: int, *, quiet: bool = True, index: int = 0, **told: int) -> None:
    where = {"device": craft.CUDA, "index": index}
    for what, value in told.items():
        t.add(DEVICE, ["total", "own", "others", "pooled", "reserved"].index(what) + 1, value, thread=9, **where)
    t.add(DEVICE, USED, used, flags=QUIET if quiet else 0, thread=9, **where)


def new(t: Trace, kind: int, address: int, size: int, line: int = 1, **more: int) -> None:
    t.add(NEW, address, size, t.line(line), flags=kind, **{**CUDA, **more})


def free(t: Trace, kind: int, address: int, size: int = 0, **more: int) -> None:
    t.add(FREE, address, size, flags=kind, **{**CUDA, **more})


def total(ledger: dict[str, Any]) -> int:
    parts = sum(ledger[key] for key in ("tensors", "rounding", "cached", "pool_slack", "residual"))
    driver = sum(line["bytes"] for line in ledger["driver"])
    return int(parts + driver + max(0, ledger["context"]) + max(0, ledger["others"]))


def only(report: dict[str, Any], what: str = "end") -> dict[str, Any]:
    (found,) = [row for row in report["ledger"] if row["what"] == what]
    assert total(found) == found["used"]
    return dict(found)


def bytes_of(report: dict[str, Any], device: int = 0) -> int:
    return next((int(row["bytes"]) for row in report["driver"]["devices"] if row["device"] == device), 0)


# --- against the model --------------------------------------------------------------------------------


def check(program: Driver, report: dict[str, Any]) -> None:
    driver = report["driver"]
    assert (driver["allocations"], driver["frees"]) == (program.allocations, program.frees)
    assert (driver["unknown_frees"], driver["failed_frees"]) == (program.unknown, program.failed)
    witness = driver["witness"]
    assert witness["matched"] == witness["records"] == program.matched
    assert witness["differ"] == witness["alone"] == 0
    assert witness["missing"] == (program.missing if program.matched else 0)

    kept = program.kept()
    assert [row["what"] for row in report["ledger"]] == list(kept)
    for row in report["ledger"]:
        expected = program.ledger(kept[row["what"]])
        lines = {(d["kind"], d["library"], d["stack"]): (d["bytes"], d["count"]) for d in row["driver"]}
        assert len(lines) == len(row["driver"]) and all(d["torch"] is False for d in row["driver"])
        assert {**{key: row[key] for key in expected if key != "driver"}, "driver": lines} == expected
        assert total(row) == row["used"] and row["context_measured"] == program.made

    for shown, host in [(driver["host"], True), *((d, False) for d in driver["devices"])]:
        lines = {(d["kind"], d["library"], d["stack"], d["torch"]): (d["bytes"], d["count"]) for d in shown["live"]}
        assert lines == program.lines_alive(host=host)
        assert shown["peak"] == (program.host_peak if host else program.peak)
        assert [d["bytes"] for d in shown["live"]] == sorted((d["bytes"] for d in shown["live"]), reverse=True)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9), length=st.integers(1, 250), per_batch=st.sampled_from([1, 50, 1000]))
def test_the_ledger_is_the_models(analyze: Analyze, seed: int, length: int, per_batch: int) -> None:
    program = Driver(seed, length)
    check(program, analyze(program.trace, per_batch=per_batch))


def test_programs_of_every_kind(analyze: Analyze) -> None:
    kinds = set()
    for seed in range(60):
        program = Driver(seed, 300)
        report = analyze(program.trace)
        check(program, report)
        kinds |= {line["kind"] for device in report["driver"]["devices"] for line in device["live"]}
    assert kinds >= {"device", "managed", "async", "physical", "imported", "reserved", "mapped", "array"}
