"""What works in this environment, what a missing part costs, and how to fix it.

Nothing is guessed where it can be tried: torch is imported and a tiny program recorded (selftest.py), CUDA and CUPTI
are asked (selftest_cuda.py), and an autostart is made, each in a process of its own, so that a crash there is a finding
here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from cuptimem.doctor import child, installed, places, settings
from cuptimem.doctor.checks import GROUPS, INSTALLED, PLACES, SELFTEST, Check, Diagnosis, Slot
from cuptimem.doctor.shown import blocks
from cuptimem.doctor.slots import readable

__all__ = ["Check", "Diagnosis", "Slot", "blocks", "examine"]


def _guarded(name: str, group: str, checks: Iterator[Check]) -> Iterator[Check]:
    """A look that fails is a finding, and no end of the others."""
    try:
        yield from checks
    except OSError as error:
        yield Check(group, name, "warning", f"it could not be looked at: {error}")


def examine() -> Diagnosis:
    """Looks at everything; takes as long as two imports of torch, three where there is a GPU."""
    checks = list(_guarded("packages", INSTALLED, installed.checks()))
    slots: tuple[Slot, ...] = ()
    offsets: dict[str, int] = {}
    answer: dict[str, Any] | None = None
    nodes = ""
    left = places.left_rings()
    if not any(check.state == "failed" for check in checks):
        answer, why = child.ask()
        if answer is None:
            fix = f"try: {sys.executable} -c 'import torch'"
            checks.append(Check(SELFTEST, "process", "failed", why, "programs may end like this too", fix))
        else:
            slots = tuple(Slot(row[0], row[1], readable(row[1]), *row[2:]) for row in answer["rows"])
            offsets = {**answer.get("frame_offsets", {}), **answer.get("offsets", {})}
            nodes = answer.get("meta", {}).get("nodes", "")
            checks.extend(child.checks(answer, slots, child.ask_cuda()))
        checks.append(settings.autostart_check())
    checks.append(places.trace_folder())
    checks.append(places.standby_folder())
    checks.extend(_guarded("rings", PLACES, places.ring_checks(answer)))
    checks.extend(_guarded("left rings", PLACES, map(places.orphans, [left])))
    checks.extend(settings.variables())
    checks.extend(settings.limits())
    checks.sort(key=lambda check: GROUPS.index(check.group))
    works = not any(check.state == "failed" for check in checks)
    return Diagnosis(works, _verdict(checks), tuple(checks), slots, offsets, nodes)


def _verdict(checks: Sequence[Check]) -> str:
    failed = [check for check in checks if check.state == "failed"]
    if failed:
        first = failed[0]
        rest = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        return f"Recording does not work here: {first.name}: {first.text}{rest}"
    warnings = sum(check.state == "warning" for check in checks)
    if warnings:
        return f"Recording works; {warnings} {'thing lacks' if warnings == 1 else 'things lack'}, see above"
    return "Recording works"
