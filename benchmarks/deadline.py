"""When a run of benchmarks ends: processes that have not ended by then are killed."""

from __future__ import annotations

import time

_end: list[float] = []  # of time.monotonic(), or empty


def end_by(seconds: float) -> None:
    _end[:] = [time.monotonic() + seconds]


def left() -> float | None:
    """Seconds until then; None: as long as it takes."""
    return max(0.0, _end[0] - time.monotonic()) if _end else None
