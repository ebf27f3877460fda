"""What following a recording costs the one that watches; the program that is watched pays nothing.

    python -m benchmarks.live [STEPS]        records so many steps (200), and follows them

CPU seconds of this process, and instructions as valgrind counts them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
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


def instructions(trace: Path, what: str) -> int:
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*valgrind, sys.executable, "-c", READ, str(trace), what], capture_output=True, text=True, check=True
    )
    return int(done.stderr.rpartition("Collected : ")[2].split()[0])


def main() -> None:
    steps = sys.argv[1] if len(sys.argv) > 1 else "200"
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
            counted = instructions(trace, "read") - instructions(trace, "open")
            program.kill()
    events = follower.events
    print(f"{events:,} events followed: {read / events * 1e5 * 1e3:.1f} ms of CPU for 100,000 of them")
    print(f"{counted / events:,.0f} instructions an event")
    print(f"a look that finds nothing new: {idle * 1e6:.0f} µs of CPU")
    print(f"a state: {made * 1e3:.2f} ms of CPU")


if __name__ == "__main__":
    main()
