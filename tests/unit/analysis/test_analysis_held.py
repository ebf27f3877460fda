"""Holders of what is alive at the end: lines by device, apart from those of leaks."""

from craft import CUDA, Trace
from hand_made import Analyze

from tests.event_kinds import HOLDER, HOLDER_PATH

FIRST, ALIVE = 2, 4


def test_lines_by_device_with_their_paths(analyze: Analyze) -> None:
    t = Trace()
    cuda = {"device": CUDA, "index": 0}
    line = t.line(3)
    t.alloc(0x1000, 64, line)
    t.alloc(0x7F0000000000, 512, line, **cuda)
    for flags, device, path, count, size in (
        (ALIVE | FIRST, cuda, "kept in f()", 3, 300),
        (ALIVE, cuda, "others", 1, 212),
        (ALIVE | FIRST, {}, "one in f()", 1, 64),
        (ALIVE | FIRST, {"device": CUDA, "index": 5}, "of no device", 1, 64),
        (FIRST, {}, "of a leak", 1, 64),
    ):
        t.add(HOLDER, 0, 0, line, flags=flags, **device)
        t.add(HOLDER_PATH, count, size, t.name(path))
    rows = analyze(t)["held"]
    assert [(row["device"], row["stack"]) for row in rows] == [("cuda:0", line), ("cpu", line)]
    assert [row["holders"] for row in rows] == [
        [("kept in f()", 3, 300, None), ("others", 1, 212, None)],
        [("one in f()", 1, 64, None)],
    ]


def test_no_more_than_the_bound(analyze: Analyze) -> None:
    t = Trace()
    line = t.line(3)
    t.alloc(0x1000, 64, line)
    for _ in range(2000):
        t.add(HOLDER, 0, 0, line, flags=ALIVE | FIRST)
        t.add(HOLDER_PATH, 1, 64, t.name("kept in f()"))
    assert len(analyze(t)["held"]) == 1024
