"""One program under the oracle, which marks every tick, and cuptimem. Prints both witnesses' peaks and steps as JSON.

python peak_child.py PROGRAM TRACE [START]      START: begin to record at this check point (mid-run)
"""

import importlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "programs"), str(HERE.parents[2])]


def grouped(stacks: list[tuple[Any, int]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for stack, size in stacks:
        found[stack] += size
    return found


def main() -> None:
    name, path = sys.argv[1], sys.argv[2]
    start = int(sys.argv[3]) if len(sys.argv) > 3 else None
    import replay
    import torch
    from oracle import Oracle
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    import cuptimem

    oracle = Oracle()
    program = importlib.import_module(name)
    torch.zeros(3).sum()
    profile = cuptimem.profile(path)
    marking = False

    def mark(*unused: Any) -> None:
        if marking:
            oracle.mark()

    register_optimizer_step_post_hook(mark)
    following = _BaseDataLoaderIter.__next__

    def marked(self: Any) -> Any:
        mark()
        return following(self)

    _BaseDataLoaderIter.__next__ = marked
    if make := getattr(program, "batch", None):  # where evaluation begins

        def batch(*arguments: Any) -> Any:
            mark()
            return make(*arguments)

        program.batch = batch  # type: ignore[attr-defined]
    count = 0

    def begin() -> None:
        nonlocal marking
        profile.__enter__()
        oracle.reset()
        marking = True

    def check(point: str) -> None:
        nonlocal count
        if count == start:
            begin()
        count += 1

    if start is None:
        begin()
    program.main(check)
    marking = False
    totals = oracle.totals()
    profile.__exit__(None, None, None)

    report = profile.report
    trace = replay.replay(replay.rows(path))
    device = next(d for d in report.devices if d.name == "cpu")
    ours = grouped([(tuple((f.file, f.line, f.function) for f in c.stack), c.bytes) for c in device.peak.contributors])
    plain = grouped([(tuple(frame[:3] for frame in b.charged), b.size) for b in trace.at_peak.values()])
    differing = [(list(k)[:3], ours[k], plain[k]) for k in ours.keys() | plain.keys() if ours[k] != plain[k]]
    temporary = replay.died_in_step(replay.rows(path), trace, [(s.begin_ns, s.end_ns) for s in report.steps])
    plain_tables = {
        "end": list(trace.live.values()),
        "allocated": [b for b in trace.born if not b.seeded],
        "temporary": temporary,
    }
    tables = {}
    for what, blocks in plain_tables.items():
        expected = grouped([(tuple(frame[:3] for frame in b.charged), b.size) for b in blocks])
        found = report.contents(what, "cpu")
        rows = grouped([(tuple((f.file, f.line, f.function) for f in c.stack), c.bytes) for c in found.contributors])
        wrong = [(list(k)[:3], rows[k], expected[k]) for k in rows.keys() | expected.keys() if rows[k] != expected[k]]
        tables[what] = [found.bytes, sum(b.size for b in blocks), found.count, len(blocks), wrong[:5]]
    chosen = sorted({0, len(report.steps) // 2, len(report.steps) - 1} & set(range(len(report.steps))))
    whole = []
    for index in chosen:
        peak = next(d for d in cuptimem.open(path, step=report.steps[index].index).devices if d.name == "cpu").peak
        whole.append([peak.bytes, sum(c.bytes for c in peak.contributors), report.steps[index].peak])
    print(
        json.dumps(
            {
                "oracle": {**totals, "marks": oracle.marks()},
                "replay": {"peak": trace.peak, "end": trace.bytes, "count": len(trace.at_peak)},
                "peak": device.peak.bytes,
                "contributors": [sum(c.bytes for c in device.peak.contributors), device.peak.count],
                "differing": differing[:5],
                "tables": tables,
                "end": device.end,
                "start": device.start,
                "allocations": device.allocations,
                "largest": max(b.size for b in trace.born),
                "steps": [[s.start, s.peak, s.end, s.loop] for s in report.steps],
                "step_sums": [[s.peak, sum(c.bytes for c in s.contributors) + s.rest_bytes] for s in report.steps],
                "whole_steps": whole,
                "lost": [report.lost.events, report.lost.unknown_frees, report.lost.replaced],
                "backward": [report.backward.bytes, report.backward.resolved, report.backward.unresolved],
                "plain_backward": [trace.backward_bytes, trace.resolved_bytes],
                "complete": report.complete,
            }
        )
    )


if __name__ == "__main__":
    main()
