"""How long a large memory snapshot of PyTorch's takes to open, beside what else reads one.

    python -m benchmarks.snapshots [MIB ...]             writes snapshots of so many MiB (1024) and reads them, one core
    python -m benchmarks.snapshots --browser [MIB ...]   drops them on memory_viz, in a headless Chromium

Each reader is a process of its own, so that its highest memory is its own, too. A browser has several: the largest one.
"""

import argparse
import contextlib
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.pages import viewer

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


def usage(of: int) -> dict[int, tuple[float, int]]:
    """Seconds of CPU and the highest MiB of the processes below one, by their numbers."""
    parents, found = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            highest = (folder / "status").read_text().split("VmHWM:")[1].split()[0]
            parents[int(folder.name)] = int(fields[1])
            cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            found[int(folder.name)] = cpu, int(highest) >> 10
    below = {of}
    while more := {number for number, parent in parents.items() if parent in below} - below:
        below |= more
    return {number: found[number] for number in below - {of}}


# What a page does with a file that is dropped on it.
DROP = """input => {
  const dropped = new DataTransfer();
  dropped.items.add(input.files[0]);
  document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: dropped, bubbles: true}));
}"""


def shown(path: Path, patience: float) -> str:
    """What dropping a snapshot on memory_viz costs, until its first picture is there, or how it ends without one."""
    from tests.browser import launched

    page_path = path.with_suffix(".html")
    page_path.write_text(viewer(), encoding="utf-8")
    faults: list[str] = []
    with launched() as browser:
        page = browser.new_page()
        page.on("crash", lambda _: faults.append("its process ends: out of memory"))
        page.on("pageerror", lambda error: faults.append(str(error).splitlines()[0]))
        page.goto(page_path.as_uri())
        page.evaluate("document.body.append(Object.assign(document.createElement('input'), {type: 'file'}))")
        chooser = page.query_selector("input[type=file]")
        chooser.set_input_files(str(path))
        before = usage(os.getpid())
        used: dict[int, tuple[float, int]] = {}
        began = time.monotonic()
        chooser.evaluate(DROP)
        while not faults and time.monotonic() - began < patience:
            used |= usage(os.getpid())
            with contextlib.suppress(Exception):  # the page is busy, or gone
                page.wait_for_selector("svg polygon", timeout=500)
                break
        else:
            faults = faults or [f"no picture after {patience:.0f} s"]
        seconds = time.monotonic() - began
        used |= usage(os.getpid())
    cpu = sum(spent - before.get(number, (0.0, 0))[0] for number, (spent, _) in used.items())
    highest = max(most for _, most in used.values())
    return ", ".join([f"{seconds:6.1f} s, {cpu:6.1f} s of CPU, {highest:6} MiB", *faults[:1]])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshots")
    parser.add_argument("mib", nargs="*", type=int, default=[1024])
    parser.add_argument("--browser", action="store_true", help="memory_viz in a Chromium instead")
    parser.add_argument("--patience", type=float, default=900, help="seconds that a picture may take (900)")
    options = parser.parse_args()
    for size in options.mib:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "large.pickle")
            with path.open("wb") as file:
                pickle.dump(made(size * 4700), file, 4)
            print(f"{path.stat().st_size / (1 << 20):.0f} MiB", flush=True)
            if options.browser:
                print(f"{'memory_viz in Chromium':35} {shown(path, options.patience)}", flush=True)
                continue
            for name, code in READERS.items():
                print(f"{name:35} {measured(code.format(path=str(path)))}", flush=True)


if __name__ == "__main__":
    main()
