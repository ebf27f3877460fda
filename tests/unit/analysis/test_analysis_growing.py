"""A trace that is read on while its process writes: what each look says is what a first look says then."""

import os
import random
from pathlib import Path
from typing import Any

from craft import SEEDED, WINDOW_CLOSE, WINDOW_OPEN, Trace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_analysis_windows import eventful

from cuptimem import _core
from cuptimem.report.model import TABLES

# A recording of this process, which has not hooked anything yet: it has no ring file.
BIRTH = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
OWNER = f"{os.getpid()} {BIRTH} {os.stat('/proc/self/ns/pid').st_ino}"
RECORDING = {"ring.id": "0x1234", "ring.path": "", "ring.place": "private", "ring.owner": OWNER}


def said(trace: object, window: int) -> Any:
    try:
        return _core.analyze(trace, window=window, tables=TABLES)
    except _core.Error as error:
        return str(error)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30), ended=st.booleans())
def test_every_look_is_as_the_first_one(tmp_path: Path, seed: int, ended: bool) -> None:
    """It grows by any number of bytes, whole chunks or not; windows are open, closed, or not there yet."""
    chance = random.Random(seed)
    t, numbers = eventful(seed, 400, closed=False)
    (tmp_path / "whole.cmem").unlink(missing_ok=True)
    whole = Path(t.write(tmp_path / "whole.cmem", per_batch=17, meta=RECORDING, end="" if ended else None)).read_bytes()
    path = tmp_path / "a.cmem"
    there = 600  # its description
    path.write_bytes(whole[:there])
    trace = _core.trace(str(path))
    while there < len(whole):
        more = chance.choice([1, 7, 100, 1000, 5000])
        with path.open("ab") as file:
            file.write(whole[there : there + more])
        there += more
        for _ in range(chance.randrange(3)):
            window = chance.choice([0, *numbers])
            assert said(trace, window) == said(str(path), window), (there, window)
    state = said(trace, 0)["state"]
    assert state == ("complete" if ended else "recording")


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    """Also where each look comes to the file's end, inside of a chunk that is half written."""
    t = Trace()
    t.mark(SEEDED)
    ends: list[int] = []
    for number in range(1, 101):
        t.mark(WINDOW_OPEN, number)
        for i in range(50):
            t.alloc(64 + 6400 * number + 64 * i, 10, t.line(1))
        t.mark(WINDOW_CLOSE, number)
        ends.append(len(t.events))
    whole = Path(t.write(tmp_path / "whole.cmem", per_batch=13, meta=RECORDING)).read_bytes()
    path = tmp_path / "a.cmem"
    trace = _core.trace(str(path))
    asked = 1
    for there in range(1000, len(whole) + 200, 200):
        path.write_bytes(whole[:there]) if there == 1000 else path.open("ab").write(whole[there - 200 : there])
        while isinstance(report := said(trace, asked), dict) and report["state"] == "complete" and asked < 100:
            assert report["devices"][0]["kept"] == 500
            asked += 1
    assert asked == 100
    assert _core.trace_decoded(trace) <= 2 * len(t.events)
