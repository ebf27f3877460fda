"""Recordings that every view must survive: real ones, and traces by hand."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import cuptimem
from tests.conftest import clean_environment
from tests.tools.exports.conftest import COMPACTED, COMPACTED_BLOCKS
from tests.tools.pages import timeline_traces as crafted

# 40 steps, and a list that grows by 4 KiB in each.
PROGRAM = """
import sys, torch
model, kept = torch.nn.Linear(64, 64), []
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    model(torch.ones(32, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(torch.ones(1024))
print("ready", flush=True)
sys.stdin.readline()
"""


@contextmanager
def waiting(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The program under `cuptimem run`, when all its steps are behind it; its trace is folder / "run.cmem"."""
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "cuptimem", "run", "-o", "run.cmem", "train.py"]
    process = subprocess.Popen(
        command, cwd=folder, env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def compacted() -> crafted.Trace:
    """Past its bound: steps of which only sums are there."""
    trace = crafted.training(12)
    trace.add(COMPACTED_BLOCKS, 5, 5000)
    trace.add(COMPACTED, 10)
    trace.tick(crafted.STEP, 1, trace.line(31, "train.py"))
    return trace


def killed(folder: Path) -> Path:
    with waiting(folder):
        pass
    return folder / "run.cmem"


def unfinished(folder: Path, running: ExitStack) -> Path:
    """The program runs until `running` ends; all its steps are in the file."""
    running.enter_context(waiting(folder))
    path = folder / "run.cmem"
    for _ in range(600):
        if path.exists() and len(cuptimem.open(path).steps) >= 39:
            break
        time.sleep(0.1)
    return path


def _by_hand(make: Callable[[], crafted.Trace], **options: object) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        folder.mkdir()
        make().write(folder / "run.cmem", **options)  # type: ignore[arg-type]
        return folder / "run.cmem"

    return write


BY_HAND = {
    "training": _by_hand(lambda: crafted.training(30, leak=True)),
    "no steps": _by_hand(lambda: crafted.training(ticks=False)),
    "one event": _by_hand(crafted.one_event),
    "no event": _by_hand(crafted.no_event),
    "two devices": _by_hand(crafted.device),
    "losses": _by_hand(lambda: crafted.training(12), lost=77),
    "compacted": _by_hand(compacted),
    "cut": _by_hand(lambda: crafted.training(12), end=None),
    "hostile": _by_hand(crafted.hostile, meta=dict.fromkeys(("script", "problems", "torch"), crafted.HOSTILE)),
    "10,000 lines": _by_hand(lambda: crafted.many_lines(10_000)),
    "100,000 lines": _by_hand(lambda: crafted.many_lines(100_000)),
}
REAL = ("killed", "unfinished")
# A part of what every view says of each.
SAID = {
    "losses": "77 events found no room and are lost",
    "cut": "the end of the recording is missing",
    "hostile": "onerror=alert(1)",
    "compacted": "are compacted",
    "killed": "the program was killed",
    "unfinished": "still recording",
}
