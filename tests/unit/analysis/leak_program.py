"""A training loop made by hand, event by event, and short ways to the verdicts on it."""

from collections.abc import Callable
from typing import Any

from craft import DATA, OPTIMIZER, TORCH, Trace

from tests.event_kinds import NODE_FREE, OBJECT_NEW, THREAD

ITERATOR = 3  # cm_object_kind
COLLECT_BEGIN, COLLECT_END, FINAL_BEGIN, FINAL_END = 5, 6, 7, 8  # cm_mark_kind
KEEP = 100  # the line that leaks, in every program below
CREATOR = 11  # autograd's number of the one thread
NODE_BYTES = 800  # without samples of what malloc has given out
Row = dict[str, Any]


class Program:
    """A training loop, event by event. Addresses are handed out anew or, like malloc's, the last freed first."""

    def __init__(self, *, reuse: bool = True) -> None:
        self.t = Trace()
        self.t.add(THREAD, 1, CREATOR)
        self.free: list[int] = []
        self.top = 0x10000
        self.reuse = reuse
        self.sequence = 0
        self.kept: list[Any] = []
        self.last: list[int] = []
        self.index = 0
        self.collected = False

    def new(self, size: int = 1000, line: int = KEEP, stack: int | None = None, device: int = 0) -> int:
        address = self.free.pop() if self.free and self.reuse else self.top
        if address == self.top:
            self.top += 64
        where = self.t.line(line) if stack is None else stack
        self.t.alloc(address, size, where, device=device, index=0 if device else -1)
        return address

    def drop(self, address: int, device: int = 0) -> None:
        self.t.free(address, device=device, index=0 if device else -1)
        self.free.append(address)

    def node(self, line: int = KEEP, stack: int | None = None) -> int:
        self.sequence += 1
        self.t.node(self.sequence, self.t.line(line) if stack is None else stack)
        return self.sequence

    def run(self, node: int) -> None:
        self.t.run(node, CREATOR)
        self.t.done()

    def end(self, node: int) -> None:
        self.t.add(NODE_FREE, node, CREATOR)

    def work(self, batch: int = 64) -> None:
        """What a step does: forward, a graph, backward, an optimizer; the last batch stays until the next step."""
        for address in self.last:
            self.drop(address)
        self.last = [self.new(batch * 16, 20)]
        blocks = [self.new(batch * 32, 21), self.new(batch * 8, 22)]
        nodes = [self.node(21), self.node(22)]
        for node in reversed(nodes):
            self.run(node)
            self.end(node)
        for address in blocks:
            self.drop(address)
        self.drop(self.new(5000, stack=self.t.stack((TORCH + "optim/adam.py", "step", 3), ("train.py", "main", 30))))

    def iterator(self, address: int = 0x77) -> None:
        self.t.add(OBJECT_NEW, address, ITERATOR, self.t.name("_SingleProcessDataLoaderIter"))

    def ask(self, address: int = 0x77, line: int = 10) -> None:
        self.t.tick(DATA, address, self.t.line(line))

    def tick(self) -> None:
        self.t.tick(OPTIMIZER, 0x99, self.t.line(30))
        self.index += 1

    def collect_at_the_end(
        self, garbage: list[int], *, enabled: bool = True, nodes: tuple[int, ...] = (), in_frame: bool = True
    ) -> None:
        """in_frame: while the loop's function still runs."""
        self.collected = True
        self.t.mark(FINAL_BEGIN, int(enabled), stack=self.t.line(99) if in_frame else 0)
        self.t.mark(COLLECT_BEGIN, 2)
        for address in garbage:
            self.drop(address)
        for node in nodes:
            self.end(node)
        self.t.mark(COLLECT_END, 2)
        self.t.mark(FINAL_END)


Body = Callable[[Program, int], object]


def train(steps: int, body: Body, **how: Any) -> Program:
    p = Program(**how)
    for i in range(steps):
        p.work()
        body(p, i)
        p.tick()
    return p


def line_of(report: dict[str, Any], row: Row, which: str = "stack") -> int:
    return int(report["stacks"][row[which]][0][2])


def only(report: dict[str, Any], line: int = KEEP) -> Row:
    """The one leak there is, at that line."""
    (row,) = report["leaks"]
    assert line_of(report, row) == line
    assert isinstance(row, dict)
    return row


def reasons(report: dict[str, Any]) -> list[tuple[int, str]]:
    return sorted((line_of(report, row), row["reason"]) for row in report["suspects"])


def quiet(report: dict[str, Any]) -> bool:
    return not report["leaks"] and not report["suspects"]


def cat(p: Program, size: int, line: int = KEEP) -> None:
    """x = torch.cat([x, new])"""
    fresh = p.new(size, line)
    for address in p.kept:
        p.drop(address)
    p.kept = [fresh]


def forward(p: Program, *, keep: bool, lines: tuple[int, ...] = (50, 51, 52)) -> list[int]:
    nodes = [p.node(line) for line in lines]
    for node in reversed(nodes):
        p.run(node)
    if not keep:
        for node in nodes:
            p.end(node)
    return nodes
