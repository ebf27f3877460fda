"""All cases, by name."""

from __future__ import annotations

from evidence.fidelity import (
    cases_compiled,
    cases_ends,
    cases_exceptions,
    cases_exec,
    cases_hostile,
    cases_interpreter,
    cases_limits,
    cases_loaders,
    cases_processes,
    cases_signals,
    cases_starts,
    cases_threads,
    cases_tools,
    cases_torch,
    cases_tracers,
)
from evidence.fidelity.case import Case

KINDS: dict[str, list[Case]] = {
    "ends": cases_ends.CASES,
    "exceptions": cases_exceptions.CASES,
    "signals": cases_signals.CASES,
    "starts": cases_starts.CASES,
    "processes": cases_processes.CASES,
    "exec": cases_exec.CASES,
    "threads": cases_threads.CASES,
    "hostile": cases_hostile.CASES,
    "limits": cases_limits.CASES,
    "interpreter": cases_interpreter.CASES,
    "torch": cases_torch.CASES,
    "loaders": cases_loaders.CASES,
    "compiled": cases_compiled.CASES,
    "tools": cases_tools.CASES,
    "tracers": cases_tracers.CASES,
}
CASES: dict[str, Case] = {case.name: case for cases in KINDS.values() for case in cases}
if len(CASES) != sum(map(len, KINDS.values())):
    names = [case.name for cases in KINDS.values() for case in cases]
    raise ValueError(f"cases of the same name: {sorted({name for name in names if names.count(name) > 1})}")
