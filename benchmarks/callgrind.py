"""Instructions by thread and function, as valgrind counts them: the same on an idle and on a busy machine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path


def run(program: Sequence[str], counts: Path, options: Sequence[str] = (), **more: object) -> str:
    """The program's output. Its counts are files whose names begin with that of `counts`, one for each thread."""
    valgrind = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={counts}", *options]
    done = subprocess.run([*valgrind, *program], capture_output=True, text=True, **more)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"benchmarks: {done.stderr.strip()}")
    return str(done.stdout)


def by_thread(counts: Path) -> tuple[Counter[str], Counter[str]]:
    """Self counts by function: of the first thread, and of all others together."""
    first: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for thread in counts.parent.glob(f"{counts.name}-*"):
        found = first if thread.name.endswith("-01") else others
        names: dict[str, str] = {}
        function, called = "", False
        for line in thread.read_text().splitlines():
            if match := re.match(r"c?fn=(\(\d+\))(?: (.*))?", line):
                name = names.setdefault(match[1], match[2] or "")
                function = name if line.startswith("fn=") else function
            elif line.startswith("calls="):
                called = True  # the next line has what was spent in the function that is called
            elif re.match(r"[+\-*\d]", line):
                if not called:
                    found[function] += int(line.split()[1])
                called = False
    return first, others
