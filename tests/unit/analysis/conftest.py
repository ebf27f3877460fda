import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import craft
from craft import Trace
from leak_program import Program


@pytest.fixture(scope="session", autouse=True)
def _craft_library() -> None:
    Trace.library = craft.encoder()


@pytest.fixture
def analyze(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """analyze(trace, **options): writes the trace and gives the report's dict."""
    from cuptimem import _core

    count = 0

    def go(trace: craft.Trace, *, per_batch: int = 1000, end: str | None = "", **options: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        path = trace.write(tmp_path / f"{count}.cmem", per_batch=per_batch, end=end)
        report: dict[str, Any] = _core.analyze(path, **options)
        # Behind another window of it, and asked twice, it is the same.
        read_on = _core.trace(path)
        with contextlib.suppress(_core.Error):
            _core.analyze(read_on, window=1)
        for _ in range(2):
            assert _core.analyze(read_on, **options) == report
        return report

    return go


@pytest.fixture
def verdicts(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """verdicts(program, **options): the report's dict, whose rows of leaks fit together."""
    from cuptimem import _core

    count = 0

    def go(
        p: Program,
        *,
        window: int = 0,
        lost: int = 0,
        nodes: str = "counted",
        collect: bool = True,
        min_rate: float = 0,  # nothing is negligible
    ) -> dict[str, Any]:
        nonlocal count
        count += 1
        if collect and not p.collected:  # as a recording ends
            p.collect_at_the_end([])
        path = p.t.write(tmp_path / f"{count}.cmem", meta={"nodes": nodes}, lost=lost, per_batch=20_000)
        report: dict[str, Any] = _core.analyze(path, window=window, min_rate=min_rate)
        entries = report["leaks"] + report["suspects"]
        kept = [row for entry in entries for row in entry["keeps"]]
        for row in entries + kept:
            parts = row["parts"]
            assert sum(part[0] for part in parts) == row["bytes"] and sum(part[1] for part in parts) == row["count"]
            assert parts == sorted(parts, key=lambda part: -part[0])
            assert {row["stack"], *(part[2] for part in parts)} <= set(report["stacks"])
            assert row["retained"] == 0 or row["retained"] in report["stacks"]
            assert (row["confidence"] == "low") == (row["reason"] != "")
            assert (row["relation"] != "") == (row in kept) and not (row in kept and row["keeps"])
            below = sum(each["bytes_per_step"] for each in row["keeps"])
            assert row["total_bytes_per_step"] == pytest.approx(row["bytes_per_step"] + below)
        assert all(row["reason"] == "" for row in report["leaks"])
        assert all(row["reason"] for row in report["suspects"])
        rates = [row["total_bytes_per_step"] for row in report["leaks"]]
        assert rates == sorted(rates, reverse=True)
        return report

    return go
