"""How long a large memory snapshot of PyTorch's takes to open, beside what else reads one.

    python -m benchmarks.snapshots [MIB]        writes a snapshot of so many MiB (1024) and reads it, one core

Each reader is a process of its own, so that its highest memory is its own, too.
"""

import pickle
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
READERS = {
    "cuptimem convert": "from cuptimem.report import snapshots; snapshots.convert({path!r}, {path!r} + '.cmem')",
    "cuptimem summary": "import cuptimem; cuptimem.open({path!r})",
    "pickle.load": "import pickle; pickle.load(open({path!r}, 'rb'))",
    "torch.cuda._memory_viz trace_plot": (
        "import pickle, torch.cuda._memory_viz as viz; viz.trace_plot(pickle.load(open({path!r}, 'rb')))"
    ),
}
FRAMES, STACKS = 30, 4000


def made(events: int) -> dict[str, Any]:
    """Blocks that come and go, eight alive at a time, each event with a list of its own of shared frames."""
    frames = [{"filename": f"/home/u/model_{i % 50}.py", "name": f"forward_{i}", "line": i} for i in range(2000)]
    trace = []
    for number in range(events // 3):
        address = 0x7F00_0000_0000 + (number % 4096) * (1 << 21)
        stack = [frames[(number % STACKS * 7 + depth) % len(frames)] for depth in range(FRAMES)]
        alive = number - 8
        for action, at in (("alloc", address), ("free_requested", alive), ("free_completed", alive)):
            if at < 0:
                continue
            where = address if action == "alloc" else 0x7F00_0000_0000 + (alive % 4096) * (1 << 21)
            trace.append(
                {
                    "action": action,
                    "addr": where,
                    "size": 1 << 20,
                    "stream": 0,
                    "time_us": 1_700_000_000_000_000 + number,
                    "compile_context": "N/A",
                    "user_metadata": "",
                    "pool_id": (0, 0),
                    "frames": list(stack),
                }
            )
    return {"segments": [], "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}


def measured(code: str) -> str:
    watched = f"{code}\nprint(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", watched], cwd=ROOT, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        return done.stderr.strip().rsplit("\n", 1)[-1]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{time.monotonic() - began:6.1f} s, {cpu:6.1f} s of CPU, {int(done.stdout.split()[-1]) >> 10:6} MiB"


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.pickle")
        with path.open("wb") as file:
            pickle.dump(made(size * 4700), file, 4)
        print(f"{path.stat().st_size / (1 << 20):.0f} MiB")
        for name, code in READERS.items():
            print(f"{name:35} {measured(code.format(path=str(path)))}", flush=True)


if __name__ == "__main__":
    main()
