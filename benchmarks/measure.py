"""Medians with their spread. Nothing here knows what is measured."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Spread:
    """A median, its quartiles, and where it lies with 95 % confidence (bootstrap); n values."""

    median: float
    q1: float
    q3: float
    low: float
    high: float
    n: int

    def to_dict(self) -> dict[str, Any]:
        return {key: value if key == "n" else float(f"{value:.6g}") for key, value in asdict(self).items()}


def spread(values: Sequence[float]) -> Spread:
    """Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    q1, _, q3 = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    choose = random.Random(len(ordered))
    medians = sorted(statistics.median(choose.choices(ordered, k=len(ordered))) for _ in range(500))
    return Spread(statistics.median(ordered), q1, q3, medians[12], medians[487], len(ordered))


def paired(values: Sequence[float], base: Sequence[float], *, ratio: bool) -> Spread:
    """Of values[i] against base[i], which were measured one after the other: the quotient, or the difference."""
    pairs = zip(values, base, strict=True)
    return spread([v / b if ratio else v - b for v, b in pairs])
