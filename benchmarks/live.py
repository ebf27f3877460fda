"""What following a recording costs the one that watches; the program that is watched pays nothing.

    python -m benchmarks running       records 200 steps, and follows them

CPU seconds of this process, and instructions as valgrind counts them. Beside it, what standby adds to a start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cuptimem.live.following import Follower

PROGRAM = """\
import sys, torch
sizes = [256, 1024] * 4
model = torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])), torch.nn.GELU())
optimizer = torch.optim.AdamW(model.parameters())
for step in range(int(sys.argv[1])):
    loss = model(torch.randn(64, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
open("done", "w").close()
sys.stdin.readline()
"""
READ = """\
import sys
from cuptimem.errors import core
follower = core().Follower(sys.argv[1])
while sys.argv[2] == "read" and follower.read(200_000)[0] != "end":
    pass
"""
LOOKS = 2000


def instructions(*program: str, **variables: str) -> int:
    """Of a Python that runs this."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **variables}  # with what was compiled before
    done = subprocess.run(
        [*valgrind, sys.executable, "-c", *program], capture_output=True, text=True, check=True, env=environment
    )
    return int(done.stderr.rpartition("Collected : ")[2].split()[0])


def standby() -> list[float]:
    """Instructions that a start takes more, with modules compiled before."""
    program = "import time; time.sleep(0.1)"
    instructions(program, CUPTIMEM="standby")
    return [float(instructions(program, CUPTIMEM="standby") - instructions(program)) for _ in range(3)]


def measured(quick: bool) -> Iterator[tuple[str, str, list[float]]]:
    """What, its unit, and what was found."""
    steps = "50" if quick else "200"
    with tempfile.TemporaryDirectory() as folder:
        here, trace = Path(folder), Path(folder, "run.cmem")
        (here / "program.py").write_text(PROGRAM)
        command = [sys.executable, "-m", "cuptimem", "run", "-q", "-o", str(trace), "program.py", steps]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUPTIMEM_CUDA": "no"}
        with subprocess.Popen(command, cwd=here, stdin=subprocess.PIPE, env=environment) as program:
            while not (here / "done").exists():
                time.sleep(0.1)
            time.sleep(1)  # what is left in the rings is written within half a second
            program.send_signal(signal.SIGSTOP)
            follower = Follower(str(trace), judge=False)
            began = time.process_time()
            follower.poll()
            read = time.process_time() - began
            began = time.process_time()
            for _ in range(LOOKS):
                follower.poll()
            idle = (time.process_time() - began) / LOOKS
            began = time.process_time()
            for _ in range(100):
                follower.state()
            made = (time.process_time() - began) / 100
            counted = instructions(READ, str(trace), "read") - instructions(READ, str(trace), "open")
            program.kill()
    events = follower.events
    yield "live, 100,000 events followed", "s", [read / events * 1e5]
    yield "live, an event", "instructions", [counted / events]
    yield "live, a look that finds nothing new", "s", [idle]
    yield "live, a frame's figures", "s", [made]
    yield "standby, added to a start", "instructions", standby()
