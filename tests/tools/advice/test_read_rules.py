"""Rules that know what reads and holds each block, on a log made by hand, without PyTorch."""

import json
from pathlib import Path
from typing import Any

from cuptimem.advice import in_place, no_grad, release
from cuptimem.advice.program import Program
from cuptimem.advice.readers import Readers
from cuptimem.advice.technique import Change
from cuptimem.report.stacks import Frame
from tests.tools.advice import test_rules

LINE = Frame("train.py", "forward", 3)
DEAD = {"name": "x", "file": "train.py", "function": "forward", "line": 4, "from": 3, "number": "2:x"}
REPORT: Any = None  # the recording is not asked here
TRAINS, METRIC = ("train.py", "main", 7), ("train.py", "main", 8)


def program(tmp_path: Path, *blocks: dict[str, Any]) -> Program:
    """Of blocks of 100 bytes; a row has first and last moment, and what differs from a block that nothing reads."""
    row = test_rules.contributor("forward", "activation", LINE)
    log = []
    for number, block in enumerate(blocks):
        common = {"bytes": 100, "operator": "aten.mm.default", "number": number, "node": "", "dtype": "float32"}
        lists = {name: [] for name in ("shape", "inputs", "reads", "objects", "saved")}
        log.append({**common, **lists, "grad": True, **block, "begin": block["begin"] - 1, "end": block["begin"]})
    path = tmp_path / "readers.json"
    path.write_text(json.dumps({"begins": list(range(0, 90, 2)), "blocks": log, "places": [[TRAINS], [METRIC]]}))
    spans = [(block["begin"], block["last"], 100, 0, row) for block in blocks]
    return test_rules.program(*spans, device="cuda:0", readers=Readers(REPORT, path))


def held(gone: int, dead: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"made": 0, "gone": gone, "dead": dead}


def saved(number: int, used: int | None, gone: int, by: str | None = None, lines: int = 0) -> dict[str, Any]:
    return {"number": number, "used": used, "gone": gone, "by": by, "lines": lines}


def peak(one: Program, change: Change | str) -> int:
    assert isinstance(change, Change), change
    return one.replay(change.blocks)[0]


def test_a_variable_lets_go_of_a_block_and_of_a_graph(tmp_path: Path) -> None:
    later = {"begin": 10, "last": 20, "objects": [held(19)]}
    graph = {"begin": 2, "last": 16, "saved": [saved(1, None, 15, "2:x")]}
    one = program(tmp_path, {"begin": 1, "last": 16, "objects": [held(15, DEAD)]}, graph, later)
    assert one.peak == 300
    change = release.release(one, one.blocks, "")
    assert peak(one, change) == 200 and isinstance(change, Change)
    assert (change.frame, change.write) == (Frame("train.py", "forward", 4), "del x behind this line")


def test_what_is_read_later_or_held_by_something_unknown_stays(tmp_path: Path) -> None:
    later = {"begin": 10, "last": 20, "objects": [held(19)]}
    read = {"begin": 1, "last": 16, "objects": [held(15, DEAD)], "reads": [[14, "aten.mm.default", "", 7]]}
    unknown = {"begin": 2, "last": 19, "objects": [held(15, DEAD)]}
    one = program(tmp_path, read, unknown, later)
    assert isinstance(release.release(one, one.blocks, ""), str)


def test_a_graph_that_nothing_runs_beside_one_that_trains(tmp_path: Path) -> None:
    trained = {"begin": 1, "last": 30, "saved": [saved(1, 28, 29, "backward")]}
    unrun = {"begin": 3, "last": 40, "saved": [saved(2, None, 39, lines=1)], "reads": [[4, "aten.mm.default", "", 2]]}
    one = program(tmp_path, trained, unrun, {"begin": 20, "last": 25, "objects": [held(24)]})
    change = no_grad.no_grad(one, one.blocks, "")
    assert peak(one, change) == 200 and isinstance(change, Change) and change.frame == Frame(*METRIC)
    same_line = {**unrun, "saved": [saved(2, None, 39)]}
    one = program(tmp_path, trained, same_line, {"begin": 20, "last": 25, "objects": [held(24)]})
    assert isinstance(no_grad.no_grad(one, one.blocks, ""), str)


def test_in_place_where_nothing_else_needs_the_input(tmp_path: Path) -> None:
    """Not what autograd keeps, unless its operator would keep the output."""

    def changed(operator: str, **source: Any) -> Change | str:
        given = {"begin": 1, "last": 12, "objects": [held(11)], "reads": [[3, operator, "", 1]], **source}
        made = {"begin": 3, "last": 12, "operator": operator, "inputs": [0], "objects": [held(11)]}
        one = program(tmp_path, given, made)
        change = in_place.in_place(one, one.blocks, "")
        assert isinstance(change, str) or peak(one, change) == 100
        return change

    assert isinstance(changed("aten.mul.Tensor"), Change)
    assert isinstance(changed("aten.mm.default"), str)
    assert isinstance(changed("aten.mul.Tensor", saved=[saved(1, 8, 9, "backward")]), str)
    assert isinstance(changed("aten.mul.Tensor", reads=[[7, "aten.mm.default", "", 4]]), str)
    backward = [[3, "aten.leaky_relu.default", "", 1], [9, "aten.leaky_relu_backward.default", "LeakyReluBackward0", 5]]
    assert isinstance(changed("aten.leaky_relu.default", saved=[saved(1, 8, 9, "backward")], reads=backward), Change)
