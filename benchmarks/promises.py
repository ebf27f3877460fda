"""What is promised about costs (docs/architecture.md), one row each; a benchmark measures it, here it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Promise:
    key: str
    text: str
    limit: float
    unit: str


PROMISES = {
    p.key: p
    for p in (
        Promise("micro", "allocation and free, 30 frames deep, added", 100, "ns"),
        Promise("realistic", "realistic training step (10 ms or more), added", 1, "%"),
        Promise("logged", "realistic training step, logged every 10 steps, added", 1.5, "%"),
        Promise("worst", "4 ms step that is all Python, 1,300 events, added", 3, "%"),
        Promise("steady", "the same step in one recording of 40 s, added", 1.5, "%"),
        Promise("steady-cpu", "the same step in one recording of 40 s, CPU of the process", 1.05, "x"),
        Promise("steady-gpt", "a GPT step in one recording of 40 s, added", 1, "%"),
        Promise("steady-gpt-cpu", "a GPT step in one recording of 40 s, CPU of the process", 1.03, "x"),
        Promise("stopped", "after stop(): nothing measurable, added", 0, "ns"),
        Promise("size", "trace size, whole file, per allocation or free", 12, "bytes"),
        Promise("open-10m", "10 million events: open, replay, peak, steps", 3, "s"),
        Promise("windows", "1,000 windows of 10 million events, CPU time against one reading of all", 2, "x"),
        Promise("open-10m-driver", "10 million events with a driver level, every order: open", 3, "s"),
        Promise("page-size", "10 million events: timeline page", 20, "MB"),
        Promise("page-open", "10 million events: timeline page, from opening it to its first picture", 3, "s"),
        Promise("exports-10m", "10 million events: the slowest export, seconds of CPU", 60, "s"),
        Promise("linear", "100 million events, time against 10 million", 12, "x"),
        # Memory grows with steps, live blocks and stacks, not with events. A step costs its object with the ten largest
        # contributors (most of this) and some 0.6 KiB in the core.
        Promise("bounded", "100 million events, memory for each step more than 10 million have", 8, "KiB"),
        Promise("resident-1", "profiler memory beyond 32 bytes a live block, 1 thread", 64, "MiB"),
        Promise("resident-200", "profiler memory beyond 32 bytes a live block, 200 threads", 64, "MiB"),
        Promise("cuda-pair", "on CUDA: the same, beyond an empty CUPTI client, added", 100, "ns"),
        Promise("recorder-default", "on CUDA: of what PyTorch's recorder adds at its default (20 x less)", 5, "%"),
        Promise("recorder-cheapest", "on CUDA: of what its cheapest mode adds (9 x less)", 100 / 9, "%"),
        Promise("driver-callback", "memory callback, added beyond the callback", 100, "ns"),
        Promise("driver-step", "simulated GPT-2 step, driver level beyond an empty client, added", 1, "%"),
        Promise("entry-points", "simulator's entry points, of a GPT-2 step", 25, "%"),
        Promise("simulated-resident", "resident memory of a simulated GPT-2 training", 1024, "MiB"),
        Promise("tensorboard", "TensorBoard, a cycle of 1 million events: its handler, CPU time", 1, "s"),
        Promise("import", "import cuptimem without torch, added", 50, "ms"),
    )
}


@dataclass(frozen=True)
class Verdict:
    """measured is None where nothing was measured; then why says the reason."""

    promise: Promise
    measured: float | None
    spread: tuple[float, float] | None = None
    why: str = ""

    @property
    def word(self) -> str:
        if self.measured is None:
            return "not measured"
        if self.promise.key == "stopped":  # zero must lie inside what the measurement can tell
            assert self.spread is not None
            return "kept" if self.spread[0] <= 0 else "MISSED"
        return "kept" if self.measured <= self.promise.limit else "MISSED"

    def to_dict(self) -> dict[str, Any]:
        return {
            "promise": self.promise.key,
            "text": self.promise.text,
            "limit": self.promise.limit,
            "unit": self.promise.unit,
            "measured": None if self.measured is None else round(self.measured, 4),
            "spread": None if self.spread is None else [round(s, 4) for s in self.spread],
            "verdict": self.word,
            "why": self.why,
        }
