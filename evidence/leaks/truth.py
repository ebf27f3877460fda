"""Leak or clean, and how fast: decided by the oracle from a run of N and a run of 3N steps, without cuptimem.

The rule. Both runs are series of samples (sampler.py). Of each series we take the lower envelope: at a sample, the
least that is alive from there on, which is what never goes away again. The level of a run is its envelope at AT of
its samples; what is there once (set-up, optimizer state, buffers and caches that fill, one-off allocations, lengths
that follow the share of training done) is in both levels alike and cancels:

    growth per step = (level of 3N - level of N) / (steps between the two samples)

(the mean of such pairs, over the samples before AT). It is growth if it exceeds the noise AND the longer run's
envelope rises steadily from where it starts to rise: a rise that covers at least a quarter of the run, and in each
third of it at least an eighth of the whole rise. Where the rise starts in the last three quarters of the run, the
rate is the slope of the part in which it rises. Less than a fifth of the slope inside the run is no growth: that is
how lengths look that follow the share of training done, seen a step early or late. Without a steady rise it is no
growth if the last third does not rise (data as long as the run, caches that fill slowly), nor if the levels differ
by less than samples jitter. Anything else is undecided, and a program of which that is said does not belong in the
suite.

Where data decide what leaks, N steps may have another rate than 3N. So the slope inside the short run is given too.

Tensor bytes and blocks are exact. Graph nodes are seen twice: as bytes that malloc has given out besides tensors,
which is the verdict, and by the sampler's walk, which gives their number.
"""

from __future__ import annotations

import array
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from evidence.leaks.sampler import KINDS, SAMPLE

ROOT = Path(__file__).resolve().parents[2]
AT = 0.8
# Smallest growth per step that counts. Other bytes: what Python itself and the C library's caches may add; a node is
# 400 bytes at least.
NOISE = {"bytes": 0.5, "blocks": 0.05, "other": 350.0, "nodes": 0.1}
FEW_BYTES = 64  # a step: some losses


class Undecided(Exception):
    """The oracle cannot tell; the text says why."""


class NoSteps(Undecided):
    """Nothing that is sampled happens once a step."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What the oracle says of a program. Rates are per step, 0 where nothing grows."""

    leaks: bool
    bytes: float  # of tensors
    blocks: float
    other: float  # bytes that malloc gave out, tensors apart; of a leak of tensors their Python and C++ objects
    nodes: float
    short_bytes: float = 0.0  # the slopes inside the short run
    short_nodes: float = 0.0

    @property
    def nodes_only(self) -> bool:
        """It is the graph that grows, beside the kept losses themselves."""
        return self.leaks and self.nodes > 0 and self.bytes <= FEW_BYTES

    @property
    def negligible(self) -> bool:
        return self.leaks and self.nodes == 0 and self.bytes <= FEW_BYTES


@dataclass(frozen=True, slots=True)
class Samples:
    """One quantity of one run, at the samples of one kind."""

    steps: int
    values: Sequence[int]

    @property
    def at(self) -> int:
        return int(len(self.values) * AT)

    def envelope(self) -> list[int]:
        least = list(self.values)
        for i in range(len(least) - 2, -1, -1):
            least[i] = min(least[i], least[i + 1])
        return least


def growth(short: Samples, long: Samples, noise: float) -> tuple[float, float]:
    """Per step of the program, over both runs and inside the short one; 0 if it does not grow. Raises Undecided."""
    low, high = short.envelope(), long.envelope()
    per_step = len(long.values) / long.steps
    risen = high[long.at] - low[short.at]
    # The mean over a stretch: what leaks every few steps makes stairs, and a single pair may stand on any of them.
    pairs = [(i, i * len(high) // len(low)) for i in range(short.at * 3 // 4, short.at + 1)]
    rate = sum((high[j] - low[i]) / ((j - i) / per_step) for i, j in pairs) / len(pairs)
    begin, end = int(0.15 * len(high)), long.at
    rise = high[end] - high[begin]
    onset = _onset(high, begin, end)
    third = (end - onset) // 3
    cuts = [high[onset], high[onset + third], high[onset + 2 * third], high[end]]
    steady = (
        rise > 0
        and end - onset >= len(high) / 4
        and all(b - a >= rise / 8 for a, b in zip(cuts, cuts[1:], strict=False))
    )
    if steady:
        inside = _slope(high[onset : end + 1]) * per_step
        if rate < 0.2 * inside:  # what rises in a run is the same in both, up to the ends' own step
            return 0.0, 0.0
        if onset > 0.25 * len(high):
            rate = inside
    if rate < noise:
        return 0.0, 0.0
    if steady:
        first = _onset(low, int(0.15 * len(low)), len(low) - 1)
        return rate, _slope(low[first:]) * len(low) / short.steps
    last = begin + 2 * (end - begin) // 3
    stopped = high[end] - high[last] < 0.05 * rate * (end - last) / per_step
    jitter = max(value - least for value, least in zip(long.values, high, strict=True))
    if stopped or risen <= jitter:
        return 0.0, 0.0
    raise Undecided(f"{rate:.1f} per step between N and 3N steps, but no steady rise: {cuts}, from sample {onset}")


def _onset(envelope: Sequence[int], begin: int, end: int) -> int:
    """Where it starts to rise, between the two."""
    threshold = envelope[begin] + 0.04 * (envelope[end] - envelope[begin])
    return next((i for i in range(begin, end) if envelope[i] > threshold), end)


def _slope(values: Sequence[int]) -> float:
    """Of the straight line with the least squares, per value."""
    if len(values) < 2:
        return 0.0
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    over = sum((i - middle) * (value - mean) for i, value in enumerate(values))
    return over / sum((i - middle) ** 2 for i in range(len(values)))


def decide(short: array.array[int], long: array.array[int], steps: int) -> Truth:
    """The truth of a program from its samples after `steps` and three times as many steps. Raises Undecided."""
    series: list[tuple[array.array[int], array.array[int]]] = []
    for kind in range(len(KINDS)):
        runs = tuple(_of_kind(run, kind) for run in (short, long))
        counts = [len(run) // SAMPLE for run in runs]
        if counts[0] >= steps / 4 and 2.4 <= counts[1] / counts[0] <= 3.6:
            series.append((runs[0], runs[1]))
    if not series:
        raise NoSteps("nothing in it happens three times as often in three times as many steps")

    def best(quantity: int, noise: float) -> tuple[float, float]:
        """Of the first kind that sees it: a phase without optimizer steps is seen by the others only."""
        found = [
            growth(Samples(steps, a[quantity::SAMPLE]), Samples(3 * steps, b[quantity::SAMPLE]), noise)
            for a, b in series
        ]
        return next(rates for rates in found if rates[0] >= 0.8 * max(found)[0])

    tensor_bytes, short_bytes = best(1, NOISE["bytes"])
    blocks, _ = best(2, NOISE["blocks"])
    other, _ = best(3, NOISE["other"])
    nodes, short_nodes = best(4, NOISE["nodes"])
    if other and not tensor_bytes and not nodes:
        raise Undecided(f"{other:.0f} bytes a step that are neither tensors nor graph nodes")
    if nodes and not other:
        raise Undecided(f"{nodes:.1f} nodes a step of which the C library knows nothing")
    leaks = bool(tensor_bytes or blocks or nodes)
    return Truth(leaks, tensor_bytes, blocks, other, nodes, short_bytes, short_nodes)


def _of_kind(run: array.array[int], kind: int) -> array.array[int]:
    kept = array.array("q")
    for i in range(0, len(run), SAMPLE):
        if run[i] == kind:
            kept.extend(run[i : i + SAMPLE])
    return kept


class Oracle:
    """The sampler's process. Use as a context manager; one request at a time."""

    def __init__(self, library: Path, environment: Callable[..., dict[str, str]], folder: Path) -> None:
        """library and environment are those of tests/record/truth/oracle.py; folder holds the samples."""
        self._folder = folder
        self._runs = 0
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "evidence.leaks.sampler"],
            env=environment(library, PYTHONPATH=str(ROOT), GLIBC_TUNABLES="glibc.malloc.tcache_count=0"),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=300)
        self._process.stdout.close()

    def samples(self, program: Path, steps: int, paths: Sequence[str], functions: bool) -> array.array[int]:
        """Runs the program; paths and functions: see sampler. Raises Undecided if it fails."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._runs += 1
        target = self._folder / f"{self._runs}.samples"
        request = {
            "program": str(program),
            "steps": steps,
            "samples": str(target),
            "functions": functions,
            "paths": list(paths),
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the oracle's process ended with status {self._process.wait(timeout=300)}")
        answer: dict[str, Any] = json.loads(line)
        if answer["code"] != 0:
            raise Undecided(f"with {steps} steps it ended with status {answer['code']}: {answer['error'].strip()}")
        values = array.array("q")
        values.frombytes(target.read_bytes())
        target.unlink()
        return values

    def truth(self, program: Path, steps: int, paths: Sequence[str] = ()) -> Truth:
        """Raises Undecided."""

        def runs(functions: bool) -> Truth:
            short, long = (self.samples(program, count, paths, functions) for count in (steps, 3 * steps))
            return decide(short, long, steps)

        try:
            return runs(functions=False)
        except NoSteps:
            return runs(functions=True)
