"""Runs lines_program under cuptimem and compares the stack of every expected tensor. Prints JSON.

python lines_child.py TRACE
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

PROGRAM = str(HERE / "lines_program.py")


def markers() -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(Path(PROGRAM).read_text().splitlines(), 1):
        for name in re.findall(r"# L:([\w-]+)", line):
            assert name not in found, f"marker {name} twice"
            found[name] = number
    return found


def place(call: str, lines: dict[str, int]) -> tuple[str, int, str]:
    """(file, line, function) of a call."""
    marker, function = call.split(" ", 1)
    if marker.startswith("<"):
        file, line = marker.rsplit(":", 1)
        return file, int(line), function
    return PROGRAM, lines[marker], function


def main() -> None:
    path = sys.argv[1]
    import replay
    import torch  # noqa: F401 (before the profile: its own start-up is not what is tested)
    from definitions import Definitions

    import cuptimem

    with cuptimem.profile(path):
        import lines_program

        lines_program.main()
        expected = [(name, t.untyped_storage().data_ptr(), calls) for name, t, calls in lines_program.EXPECTED]
    events = replay.rows(path)
    trace = replay.replay(events, snapshot_peak=False)
    lines = markers()
    wrong: list[Any] = []
    for name, address, calls in expected:
        block = trace.live.get(address)
        if block is None:
            wrong.append([name, "not alive in the trace"])
            continue
        stack = [
            f[:3] for f in block.charged if f[0] == PROGRAM or f[0].startswith("<") and not f[0].startswith("<frozen")
        ]
        wanted = [place(call, lines) for call in calls if call]
        good = stack[: len(wanted)] == wanted
        if calls[-1] == "":  # nothing of this file further out
            here = [s for s in stack if s[0] == PROGRAM and s[2] != "<module>"]
            good = good and len(here) == len(wanted)
        if not good:
            shown = [f"{Path(f[0]).name}:{f[1]} {f[2]}" for f in block.charged]
            wrong.append([name, [f"{line} {function}" for _, line, function in wanted], shown[:8]])
    defined = Definitions(Path(path))
    second = {tuple((f.file, f.line, f.function) for f in defined.stack(n)) for n in range(2, len(defined.stacks))}
    first = {tuple(frame[:3] for frame in row.origin) for row in events if row.kind == replay.ALLOC and row.origin}
    print(
        json.dumps(
            {
                "expected": len(expected),
                "wrong": wrong,
                "lost": trace.lost,
                "backward": [trace.backward_bytes, trace.resolved_bytes],
                "unresolved": [
                    [b.size, [f"{Path(f[0]).name}:{f[1]} {f[2]}" for f in b.stack][:4]] for b in trace.unresolved
                ][:5],
                "without_user_line": [
                    [b.size, [f"{Path(f[0]).name}:{f[1]} {f[2]}" for f in b.charged][:4]]
                    for b in trace.born
                    if b.in_node and not any(f[0] == PROGRAM for f in b.charged)
                ][:5],
                "readers_differ": [list(s)[:3] for s in first - second][:3],
                "stacks": len(first),
                "threads_without_python": sum(1 for b in trace.born if not b.stack),
            }
        )
    )


if __name__ == "__main__":
    main()
