"""Holders of what is alive at the end: lines by device, apart from those of leaks."""

import pytest
from craft import CUDA, IN_NODE, NODE_STACK, Trace
from hand_made import Analyze
from leak_program import CREATOR, KEEP, Program

from tests.event_kinds import HOLDER, HOLDER_PATH

FIRST, ALIVE, BACKWARD, FORWARD = 2, 4, 16, 32


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


@pytest.mark.parametrize(
    ("flags", "outputs", "gradients"),
    [
        ({"outputs": FORWARD, "model.grad": BACKWARD}, ["outputs"], ["model.grad"]),
        ({"outputs": FORWARD}, ["outputs"], []),
        ({"model.grad": BACKWARD}, [], ["model.grad"]),
        ({"outputs": 0}, ["outputs"], ["outputs"]),  # of a recording from before the flags
    ],
)
def test_holders_of_what_backward_makes(
    analyze: Analyze, flags: dict[str, int], outputs: list[str], gradients: list[str]
) -> None:
    """Gradients have the stack of their forward line."""
    p = Program()
    for _ in range(40):
        p.work()
        p.new()
        node = p.node()
        p.t.run(node, CREATOR)
        p.t.alloc(p.top, 500, 0, flags=IN_NODE | NODE_STACK)
        p.top += 64
        p.t.done()
        p.end(node)
        p.tick()
    p.collect_at_the_end([])
    for path, flag in flags.items():
        p.t.add(HOLDER, 0, 0, p.t.line(KEEP), flags=FIRST | flag)
        p.t.add(HOLDER_PATH, 40, 40_000, p.t.name(path))
    found = {row["backward"]: [path for path, *_ in row["holders"]] for row in analyze(p.t)["leaks"]}
    assert found == {False: outputs, True: gradients}
