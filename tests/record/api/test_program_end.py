"""Where a program is over: behind the threads that Python waits for, before its exit handlers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cuptimem import _core
from tests.conftest import Result

pytest.importorskip("torch", reason="the torch-free run leaves these out")
pytestmark = pytest.mark.torch

EXIT = 14  # cm_mark_kind

PROGRAM = """\
import atexit, threading, time
import torch
kept = []
atexit.register(kept.clear)
def serve():
    time.sleep(0.1)  # the script has ended
    kept.append(torch.empty(1111))
threading.Thread(target=serve).start()
"""


def test_the_mark_is_between_threads_and_handlers(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(PROGRAM)
    done = run("-m", "cuptimem", "run", "-q", "-o", "a.cmem", "s.py")
    assert (done.code, done.out, done.err) == (0, "", "")
    rows = _core.trace_dump(str(tmp_path / "a.cmem"))
    made = next(row for row in rows if row[0] == "alloc" and row[4] == 4444)
    ends = [row for row in rows if row[0] == "free" and row[3] == made[3]]
    exits = [row for row in rows if row[0] == "mark" and row[4] == EXIT]
    assert len(exits) == 1 and rows.index(made) < rows.index(exits[0]) < rows.index(ends[-1])
