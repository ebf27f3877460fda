"""Forks one program per case, each with its own profile, and lets it be killed. Prints one JSON line with all findings.

python kill_zygote.py FOLDER CASES      CASES: JSON list of {"program", "kill_at"} or {"program", "phase", "delay"}
"""

import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "programs"), str(HERE.parents[2])]

import oracle as witness  # noqa: E402


def churn(check: Any = None) -> None:
    """Fills ring block after ring block from a handful of lines."""
    import torch

    window: list[Any] = []
    for i in range(30_000):
        window.append(torch.empty(1 + i % 1000))
        if len(window) > 40:
            window.pop(i % 40)


def growth(check: Any = None) -> None:
    """Every allocation comes from a stack that was never seen before, half of them from new code."""
    import torch

    keep: list[Any] = []
    for i in range(20_000):
        scope: dict[str, Any] = {"torch": torch}
        source = f"def made_{i}(n):\n" + "\n" * (i % 50) + f"    return torch.empty(n) if n < 2 else made_{i}(n - 1)"
        exec(compile(source, f"<made {i}>", "exec"), scope)
        keep.append(scope[f"made_{i}"](1 + i % 20))
        if len(keep) > 100:
            keep.pop(0)


def program(name: str) -> Any:
    here = {"churn": churn, "growth": growth}
    return here[name] if name in here else importlib.import_module(name).main


def child(case: dict[str, Any], trace: Path, log: Path) -> None:
    import cuptimem

    witness_of = witness.Oracle()
    main = program(case["program"])
    witness_of.log_open(log, case.get("kill_at", 0))
    witness_of.log_phase(1)
    profile = cuptimem.profile(str(trace))
    profile.__enter__()
    witness_of.log_phase(2)
    try:
        main()
    finally:
        witness_of.log_phase(3)
        profile.__exit__(None, None, None)
        witness_of.log_phase(4)


def run(case: dict[str, Any], trace: Path, log: Path) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child(case, trace, log)
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    if "phase" in case:
        deadline = time.monotonic() + 60
        while witness.log_phase_now(log) < case["phase"] and time.monotonic() < deadline:
            time.sleep(0.0002)
        time.sleep(case["delay"])
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def verify(trace: Path, log: witness.Log) -> dict[str, Any]:
    """Compares the trace's allocations and frees with the log, entry by entry; empty "wrong" means right."""
    import replay

    found: dict[str, Any] = {"wrong": [], "events": 0, "needed": 0, "stacks": 0}
    first = log.recording
    last = log.published if log.stopping is None else min(log.published, log.stopping)
    found["needed"] = max(0, last - first) if first is not None else 0
    if not trace.exists():
        if log.phase >= 2:
            found["wrong"].append("no trace although recording was on")
        return found
    try:
        rows = replay.rows(trace)
    except Exception as error:
        found["wrong"].append(f"not readable: {type(error).__name__}: {error}")
        return found
    events = [
        (r.address, r.size if r.kind == replay.ALLOC else -1) for r in rows if r.kind in (replay.ALLOC, replay.FREE)
    ]
    stacks = [r.origin for r in rows if r.kind == replay.ALLOC]
    found["events"] = len(events)
    lost = sum(r.size for r in rows if r.kind == replay.LOST)
    if lost:
        found["wrong"].append(f"{lost} events lost")
    start = None
    if events:  # the trace is one whole stretch of the log
        for candidate in range(first if first is not None else len(log.entries), -1, -1):
            if log.entries[candidate : candidate + 3] == events[:3]:
                start = candidate
                break
        if start is None:
            found["wrong"].append(f"the first events are not in the log: {events[:3]}")
            return found
        expected = log.entries[start : start + len(events)]
        if expected != events:
            at = next(i for i, (a, b) in enumerate(zip(expected, events, strict=False)) if a != b)
            found["wrong"].append(
                f"event {at} of {len(events)}: log {expected[at : at + 3]}, trace {events[at : at + 3]}"
            )
        if start + len(events) < last:
            found["wrong"].append(f"the trace ends at {start + len(events)}, {last} were published")
    elif found["needed"]:
        found["wrong"].append(f"no events, {found['needed']} needed")
    for stack in set(stacks):
        if not stack or any(not frame[0] or frame[1] < 1 or not frame[2] for frame in stack):
            found["wrong"].append(f"a stack does not resolve: {stack[:2] if stack else stack}")
            break
    found["stacks"] = len(set(stacks))
    return found


def main() -> None:
    folder, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
    import replay  # noqa: F401 (loads the extension once, before the forks)
    import torch

    import cuptimem  # noqa: F401

    torch.ones(3).sum()
    results = []
    for number, case in enumerate(cases):
        for attempt in range(100):  # on a busy machine a kill may come too late
            trace, log = folder / f"{number}-{attempt}.cmem", folder / f"{number}-{attempt}.log"
            status = run(case, trace, log)
            record = witness.read_log(log) if log.exists() else witness.Log(0, None, None, 0, [], [])
            killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            if killed and record.phase <= case.get("phase", record.phase):
                break
        results.append(
            {
                "case": case,
                "killed": killed,
                "status": status,
                "phase": record.phase,
                "files": [str(trace), str(log)],
                "fresh": verify(trace, record),
            }
        )
    ring_dir = Path(os.environ["CUPTIMEM_RING_DIR"])
    for ring in ring_dir.iterdir():  # one whose maker died before its header stays for a minute: let that pass
        os.utime(ring, (time.time() - 120,) * 2)
    status = run({"program": "gpt"}, folder / "last.cmem", folder / "last.log")  # sweeps what the dead left behind
    swept = verify(folder / "last.cmem", witness.read_log(folder / "last.log"))
    for result in results:
        trace, log = map(Path, result["files"])
        if log.exists():
            result["swept"] = verify(trace, witness.read_log(log))
    left = sorted(str(p) for p in ring_dir.iterdir())
    print(json.dumps({"results": results, "last": status, "last_found": swept, "rings_left": left}))


if __name__ == "__main__":
    main()
