"""How a loop's live bytes at step ends went.

A step ends at another moment of its iteration where another loop goes on behind it: what is freed before that loop
begins is freed in the step. So only those ends are compared that the same loop follows.
"""

import itertools
from collections.abc import Mapping, Sequence

from cuptimem.output.text.words import median, plural, signed, size
from cuptimem.report.leaks import STEPS_NEEDED
from cuptimem.report.model import Report, Step


def followers(report: Report, steps: Sequence[Step]) -> dict[int, str]:
    """By step, the loop that goes on behind it. One that ends by a tick ends alike, whatever follows the last."""
    clock = report.clock
    loops = {before.index: after.loop for before, after in itertools.pairwise(steps)}
    if (clock.changes[-1].kind if clock.changes else clock.kind) in ("step", "optimizer", "backward"):
        loops[steps[-1].index] = steps[-1].loop
    return loops


def growth(steps: Sequence[Step], follower: Mapping[int, str]) -> str:
    """The first steps of the loop (which build state and caches) apart."""
    later = steps[max(2, len(steps) // 6) :] if len(steps) > 6 else steps
    alike = _ends_alike(later, follower)
    first, last = alike[0], alike[-1]
    if len(later) < 2:
        return f"{size(last.end)} live at its end"
    if len(alike) < 2:
        first, last = later[0], later[-1]
    # What happens between two steps of the loop (an evaluation, another phase) is not theirs.
    changes = [after.end - before.end for before, after in itertools.pairwise(alike) if after.index - before.index == 1]
    change = sum(changes) if changes else last.end - first.end
    if change == 0 and first.end == last.end:
        return f"{size(last.end)} live at step ends, steady"
    pace = f", {_pace(change, changes, len(steps), len(alike))}" if len(alike) > 1 else ""
    if change > 0 and _goes_back(alike):
        pace += " while the loop runs, freed before it runs again"
    low, high = size(first.end), size(last.end)
    if low == high:
        return f"{high} live at step ends{pace}"
    return f"live at step ends {low} (step {first.index}) to {high} (step {last.index}){pace}"


def _ends_alike(steps: Sequence[Step], follower: Mapping[int, str]) -> list[Step]:
    """Those that the loop itself follows, if there are two, else those that most often the same one follows."""
    by_loop: dict[str | None, list[Step]] = {}
    for step in steps:
        by_loop.setdefault(follower.get(step.index), []).append(step)
    own = by_loop.get(steps[0].loop, [])
    return own if len(own) > 1 else max(by_loop.values(), key=len)


def _goes_back(ends: Sequence[Step]) -> bool:
    """Whether the loop ran again, and what grew in a run was gone by the next one, as in a metric that is reset."""
    lows = [ends[0].end]
    for before, after in itertools.pairwise(ends):
        if after.index - before.index == 1:
            lows[-1] = min(lows[-1], after.end)
        else:
            lows.append(after.end)
    return len(lows) > 1 and lows[-1] <= min(lows[:-1])


def _pace(change: int, changes: Sequence[int], steps: int, ends: int) -> str:
    rate = sum(changes) / len(changes) if steps >= STEPS_NEEDED and changes else 0
    if change == 0:
        return "steady while the loop runs"
    if rate and 0.5 <= median(changes) / rate <= 2:
        return f"{signed(round(rate))} a step"
    # Too few steps, now and then, up and down, or once: no rate that would go on.
    return f"{signed(change)} in {plural(len(changes) or ends - 1, 'step')}"
