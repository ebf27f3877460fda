"""Rules that know what reads and holds each block, on a log made by hand, and what a run writes into that log."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cuptimem.advice import (
    attention,
    batches,
    copies,
    data,
    edits,
    in_place,
    no_grad,
    optimizers,
    precision,
    release,
    snapshots,
    views,
)
from cuptimem.advice import saved as of_backward
from cuptimem.advice.program import GAP, Program
from cuptimem.advice.readers import Readers, Variable
from cuptimem.advice.technique import Change
from cuptimem.report.stacks import Frame
from cuptimem.simulation import dropped, operands
from cuptimem.simulation import readers as simulated
from tests.tools.advice import test_rules

LINE = Frame("train.py", "forward", 3)
DEAD = {"name": "x", "file": "train.py", "function": "forward", "line": 4, "statement": "", "from": 3, "number": "2:x"}
REPORT: Any = None  # the recording is not asked here
TRAINS, METRIC = ("train.py", "main", 7), ("train.py", "main", 8)
MODEL, STUDENT, TEACHER = (("model.py", "forward", line) for line in (20, 30, 40))


def program(tmp_path: Path, *given: dict[str, Any], makes: dict[str, Any] | None = None) -> Program:
    """Of blocks of 100 bytes, if no other number is given. makes: its optimizers and loaders.

    A row has first and last moment, and what differs from a block that nothing reads.

    stack: where it is made. is_logged: whether an operator made it for a tensor."""
    blocks = [dict(one) for one in given]
    rows = [
        test_rules.contributor(
            block.pop("phase", "forward"), block.pop("category", "activation"), *block.pop("stack", (LINE,))
        )
        for block in blocks
    ]
    log = []
    for number, block in enumerate(blocks):
        if not block.pop("is_logged", True):
            continue
        common = {"bytes": 100, "operator": "aten.mm.default", "number": number, "node": "", "dtype": "float32"}
        lists = {name: [] for name in ("shape", "inputs", "graph", "into", "reads", "objects", "saved", "casts")}
        log.append(
            {
                **common,
                **lists,
                "grad": True,
                "narrowed": None,
                **block,
                "begin": block["begin"] - 1,
                "end": block.get("end", block["begin"]),
            }
        )
    path = tmp_path / "readers.json"
    lines = ([TRAINS], None, []), ([METRIC], "x", []), ([METRIC], None, []), ([TRAINS], None, [STUDENT, MODEL])
    lines = *lines, ([TRAINS], None, [TEACHER, MODEL])
    places = [{"lines": outside, "drops": drops, "within": within} for outside, drops, within in lines]
    makes = {"optimizers": [], "loaders": [], **(makes or {})}
    path.write_text(json.dumps({"begins": list(range(0, 90, 2)), "blocks": log, "places": places, **makes}))
    spans = [
        (block["begin"], block["last"], block.get("bytes", 100), 0, row)
        for block, row in zip(blocks, rows, strict=True)
    ]
    return test_rules.program(*spans, device="cuda:0", readers=Readers(REPORT, path))


def held(gone: int, dead: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"made": 0, "gone": gone, "dead": dead}


def saved(number: int, used: int | None, gone: int, by: str | None = None, lines: int = 0) -> dict[str, Any]:
    return {"number": number, "used": used, "gone": gone, "by": by, "lines": lines, "there": False}


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


def test_a_graph_that_several_tensors_have(tmp_path: Path) -> None:
    """It goes with x, the last of them. Another variable that is not read again is deleted, too; what anything reads
    later keeps the graph, unless it was made of something else."""
    later = {"begin": 10, "last": 20, "objects": [held(19)]}
    graph = {"begin": 1, "last": 16, "saved": [saved(1, None, 15, "3:x")]}
    of_it = {"begin": 2, "last": 16, "graph": [0], "objects": [held(15, {**DEAD, "number": "3:x"})]}

    def found(*sources: int, **dead: Any) -> Change | str:
        other = {"begin": 3, "last": 16, "bytes": 1, "graph": list(sources), "objects": [held(15, **dead)]}
        one = program(tmp_path, graph, {**of_it, "bytes": 1}, other, later)
        return release.release(one, one.blocks, "")

    both = found(0, dead={**DEAD, "name": "y", "line": 6, "number": "3:y"})
    assert isinstance(both, Change) and both.write == "del x behind this line, y behind line 6"
    assert "no variable" in str(found(0))
    alone = found()
    assert isinstance(alone, Change) and alone.write == "del x behind this line"


def test_the_fewest_variables_that_save_nearly_as_much(tmp_path: Path) -> None:
    """Nine blocks in a row that one variable holds, and few or many that another one does."""

    def dead(name: str, line: int, begin: int) -> list[dict[str, Any]]:
        return [held(25, {**DEAD, "name": name, "line": line, "from": begin + 1, "number": f"2:{name}"})]

    large = [{"begin": 1 + i, "last": 26, "objects": dead("x", 4, 1 + i)} for i in range(9)]
    later = {"begin": 24, "last": 26, "objects": [held(25)]}

    def written(count: int) -> str:
        small = [{"begin": 10 + i, "last": 26, "objects": dead("y", 5, 10 + i)} for i in range(count)]
        one = program(tmp_path, *large, *small, later)
        change = release.release(one, one.blocks, "")
        assert isinstance(change, Change) and peak(one, change) == 200
        return change.write

    assert written(1) == "del x behind this line"
    assert written(4) == "del x behind this line, y behind line 5"


def test_the_fewest_are_not_those_that_each_save_most() -> None:
    """Without x the most is left of three, yet x alone saves as much as is asked."""
    x, y, z = (Variable(name, "train.py", "forward", 4, "") for name in "xyz")
    saved = {"x": 92, "xy": 92, "xz": 92, "yz": 95, "xyz": 100}
    fewest = release._fewest([x, y, z], lambda some: saved.get("".join(one.name for one in some), 0))
    assert fewest == [x]


def test_a_model_in_16_bits_and_what_stays_in_32(tmp_path: Path) -> None:
    """Numbers of tokens, logits that a loss asks for in 32 bits, their log-softmax."""
    large = {"last": 30, "bytes": 4096, "shape": [1024], "objects": [held(29)]}
    ids = {**large, "begin": 1, "number": 0, "dtype": "int64"}
    logits = {**large, "begin": 3, "number": 1, "reads": [[5, "aten._log_softmax.default", "", 2]]}
    chances = {**large, "begin": 5, "number": 2, "operator": "aten._log_softmax.default", "inputs": [1]}

    def half(casts: list[list[int]], **more: Any) -> int:
        one = program(tmp_path, ids, {**logits, "casts": casts}, {**chances, **more})
        assert one.peak == 3 * 4096
        return one.replay(precision._halved(one, one.blocks, "float32"))[0]

    assert half([]) == 4096 + 2 * 2048
    assert half([[2, 4]]) == 4096 + 2048 + 2 * 4096
    assert half([[3, 4]]) == 4096 + 2 * 2048  # nothing reads that copy
    assert half([[2, 4]], operator="aten.mm.default") == 4096 + 2048 + 2 * 4096
    # What a node is given is of the copy that it keeps, not of what that was made of.
    nodes = {"made": 21, "gone": 24, "dead": None}
    kept = {
        **large,
        "begin": 3,
        "last": 26,
        "number": 1,
        "casts": [[2, 4]],
        "saved": [saved(2, 20, 25)],
        "objects": [held(5), nodes],
    }
    one = program(tmp_path, ids, kept, {**large, "begin": 11, "number": 5, "dtype": "int64"})
    assert one.replay(precision._halved(one, one.blocks, "float32"))[0] == 3 * 4096


def test_what_an_operator_has_for_itself_in_a_model_in_16_bits(tmp_path: Path) -> None:
    """Sums are of 32 bits. Where a copy in 32 bits is made of a part, none is made that is contiguous."""
    large = {"last": 30, "bytes": 4096, "shape": [1024], "objects": [held(29)]}
    given = {**large, "begin": 3, "number": 1, "reads": [[8, "", "", 2]]}

    def half(operator: str, casts: list[list[int]], scratch: int) -> int:
        made = {**large, "begin": 5, "end": 8, "number": 2, "operator": operator, "inputs": [0]}
        own = {"begin": 6, "last": 8, "bytes": scratch, "is_logged": False}
        one = program(tmp_path, {**given, "casts": casts}, made, own)
        return one.replay(precision._halved(one, one.blocks, "float32"))[0]

    assert half("aten._log_softmax.default", [], 4096) == 3 * 2048
    assert half("aten.sum.dim_IntList", [], 4096) == 2 * 2048 + 4096
    assert half("aten.sum.dim_IntList", [[2, 4]], 3072) == 2048 + 2 * 4096 + 3072
    assert half("aten._log_softmax.default", [[2, 4]], 4096) == 2048 + 3 * 4096  # transposed, as its copy is
    assert half("aten._log_softmax.default", [[2, 4]], 3072) == 2048 + 2 * 4096


def test_what_a_library_casts_back_to_16_bits(tmp_path: Path) -> None:
    """x.float() + ... and .to(dtype) of that, behind which autograd keeps the copy in 16 bits, or one of each."""
    large = {"last": 30, "bytes": 4096, "shape": [1024]}
    given = {**large, "begin": 1, "number": 0, "casts": [[1, 3]], "reads": [[3, "aten.add.Tensor", "", 1]]}
    made = {**large, "begin": 3, "number": 1, "inputs": [0], "saved": [saved(2, 28, 29, "backward")]}
    later = {"last": 30, "bytes": 1 << 15, "begin": 11, "number": 5, "dtype": "int64", "objects": [held(29)]}

    def half(narrowed: list[int] | None) -> int:
        own = {**given, "objects": [held(29)]}
        one = program(tmp_path, own, {**made, "objects": [held(7)], "narrowed": narrowed}, later)
        return one.replay(precision._halved(one, one.blocks, "float32"))[0]

    assert half(None) == (1 << 15) + 2048 + 4096
    assert half([2, 0]) == (1 << 15) + 2 * 2048
    assert half([2, 1]) == (1 << 15) + 2048 + 4096  # saved before


def test_data_of_64_bits_beside_a_model_of_32(tmp_path: Path) -> None:
    large = {"last": 30, "bytes": 4096, "shape": [1024], "objects": [held(29)]}
    begin = {**large, "begin": 1, "number": 0, "dtype": "float64", "stack": (Frame("train.py", "read", 2),)}
    made = {**large, "begin": 3, "number": 1, "dtype": "float64", "inputs": [0]}
    weights = {"last": 30, "bytes": 1024, "begin": 7, "category": "parameter", "is_logged": False}  # of any type
    one = program(tmp_path, begin, made, {**large, "begin": 5, "number": 2}, weights)
    change = precision.single_precision(one, one.blocks, "")
    assert peak(one, change) == 2 * 2048 + 4096 + 1024 and isinstance(change, Change)
    assert change.frame == Frame("train.py", "read", 2)
    one = program(tmp_path, {**large, "begin": 5, "number": 2})
    assert precision.single_precision(one, one.blocks, "") == "nothing has 64 bits"


def test_a_batch_of_pairs_and_one_of_a_single_sample(tmp_path: Path) -> None:
    large = {"last": 30, "bytes": 8192, "objects": [held(29)]}

    def half(samples: int, value: str, rows: int = 0, width: int = 4) -> int | str:
        """rows, width: of what pairs are made of, rows if that is not the input."""

        def run(address: int) -> Program:
            given = {**large, "begin": 1, "number": 0, "category": "input", "shape": [samples, width]}
            each = {**large, "begin": 3, "number": 1, "shape": [rows or samples, width], "inputs": [0]}
            frame = Frame("a.py", "f", 2, module="Net", module_address=address)
            made = {**large, "begin": 5, "number": 2, "shape": [16, 16, 8], "inputs": [1], "stack": (frame,)}
            return program(tmp_path, given, each, made)

        one, one.beside = run(1), run(2)  # modules of another run have other addresses
        change = batches.batch(one, one.blocks, value)
        return change if isinstance(change, str) else peak(one, change)

    assert half(16, "") == 2 * 8192 // 2 + 8192 // 4
    assert half(16, "", 64) == 3 * 8192 // 2  # of heads of tokens, as many as there are samples
    assert half(12, "") == 3 * 8192 // 2
    assert half(16, "", width=16) == 3 * 8192 // 2  # channels, as many as there are samples
    one = program(tmp_path, {**large, "begin": 1, "number": 0, "category": "input", "shape": [1, 4]})
    one.beside = one
    assert batches.batch(one, one.blocks, "") == "the batch is a single sample"
    assert peak(one, batches.batch(one, one.blocks, "x2")) == 2 * 8192


def test_what_sums_over_rows_have_for_themselves_in_another_batch(tmp_path: Path) -> None:
    rows, columns, threads = 1200, 20000, 132 * 2048
    scratch = 143360000  # as PyTorch 2.14 has it on an H100
    large = {"last": 30, "objects": [held(29)]}
    given = {**large, "begin": 1, "number": 0, "bytes": 4 * rows * columns, "shape": [rows, columns]}
    made = {**large, "begin": 3, "end": 6, "number": 1, "bytes": 512, "shape": [1, columns], "inputs": [0]}
    own = {"begin": 4, "last": 6, "bytes": scratch, "is_logged": False}

    def half(threads: int) -> int:
        one = program(tmp_path, given, made, own, makes={"threads": threads})
        one.beside = one
        return peak(one, batches.batch(one, one.blocks, ""))

    assert half(threads) - 2 * rows * columns <= 2 * 512  # none
    assert half(0) - 2 * rows * columns > scratch // 2  # of an unknown device


def test_what_is_read_later_or_held_by_something_unknown_stays(tmp_path: Path) -> None:
    later = {"begin": 10, "last": 20, "objects": [held(19)]}
    read = {"begin": 1, "last": 16, "objects": [held(15, DEAD)], "reads": [[14, "aten.mm.default", "", 7]]}
    unknown = {"begin": 2, "last": 19, "objects": [held(15, DEAD)]}
    one = program(tmp_path, read, unknown, later)
    assert isinstance(release.release(one, one.blocks, ""), str)


def test_a_graph_that_nothing_can_run_beside_one_that_trains(tmp_path: Path) -> None:
    """With care where a branch that was not taken may ask for its gradients, and not at a line that trains."""
    trained = {"begin": 1, "last": 30, "saved": [saved(1, 28, 29, "backward")]}
    reads = [[4, "aten.mm.default", "", 2]]

    def found(lines: int, name: str = "x") -> tuple[Program, Change | str]:
        held_by = {"begin": 2, "last": 40, "objects": [held(39, {**DEAD, "name": name})]}
        unrun = {"begin": 3, "last": 40, "saved": [saved(2, None, 39, "2:x", lines)], "reads": reads}
        later = {"begin": 20, "last": 25, "objects": [held(24)]}
        one = program(tmp_path, trained, held_by, unrun, later)
        return one, no_grad.no_grad(one, one.blocks, "")

    one, change = found(1)
    assert peak(one, change) == one.peak - 100 and isinstance(change, Change) and change.frame == Frame(*METRIC)
    assert (change.is_sure, change.cost, change.lines) == (True, "none", (Frame(*METRIC),))
    for unsure in (2,), (1, "other"):
        one, change = found(*unsure)
        assert peak(one, change) == one.peak - 100 and isinstance(change, Change)
        assert not change.is_sure and change.cost.startswith("care: no backward pass of this run")
    assert "no graph" in str(found(0)[1])


def test_a_graph_in_a_module_that_also_trains(tmp_path: Path) -> None:
    """At the line in the module that leads to nothing that trains, and with care: the module may keep what it makes."""
    trained = {"begin": 1, "last": 30, "saved": [saved(1, 28, 29, "backward", 3)]}
    held_by = {"begin": 2, "last": 40, "objects": [held(39, DEAD)]}
    later = {"begin": 20, "last": 25, "objects": [held(24)]}

    def found(lines: int) -> Change | str:
        unrun = {"begin": 3, "last": 40, "saved": [saved(2, None, 39, "2:x", lines)]}
        one = program(tmp_path, trained, held_by, unrun, later)
        return no_grad.no_grad(one, one.blocks, "")

    change = found(4)
    assert isinstance(change, Change) and (change.frame, change.is_sure) == (Frame(*TEACHER), False)
    assert "no graph" in str(found(3))


@pytest.mark.parametrize(
    ("reads", "stays"),
    [
        ([("aten.index.Tensor", None)] * 2, 0),  # rows are put into blocks of their own
        ([("aten.split.Tensor", None), ("aten.mm.default", 2000), ("aten.mm.default", 1000)], 2048),
        ([("aten.slice.Tensor", None), ("aten.copy_.default", 80), ("aten.index.Tensor", None)], 512),
        ([("aten.copy_.default", 80), ("aten.mul.Tensor", 2000), ("aten.mul.Tensor", 2000)], None),  # a cache
        ([("aten.index.Tensor", None)], None),  # may be all of it
        ([("aten.index.Tensor", None), ("aten.mm.default", None)], None),
        ([("aten.mm.default", 2000), ("aten.mm.default", 6000)], None),
        ([("aten.index.Tensor", None), ("aten.add_.Tensor", 80)], None),  # it is computed with
    ],
)
def test_data_of_which_steps_read_parts(tmp_path: Path, reads: list[tuple[str, int | None]], stays: int | None) -> None:
    """stays: as large as the largest part, as the allocator rounds it; None: nothing is proposed."""
    rows = [[30 + i, name, "", 15 + i, *([size] if size else [])] for i, (name, size) in enumerate(reads)]
    kept = {"phase": "other", "category": "input", "objects": [{"made": 0, "gone": None, "dead": None}]}
    whole = {**kept, "begin": 3, "last": -1, "bytes": 8000, "reads": rows}
    one = program(tmp_path, whole, {"begin": 33, "last": 50, "bytes": 200, "objects": [held(49)]})
    one.blocks = [replace(block, step=-1 if block.bytes == 8000 else 0) for block in one.blocks]
    one.stretches = [replace(one.stretches[0], begin=20 * GAP)]
    change = data.load_late(one, one.blocks, "")
    if stays is None:
        assert "no data of several steps" in str(change)
    else:
        assert isinstance(change, Change) and sum(block.bytes for block in change.blocks) == 200 + stays


COPY, CLONE, SET = "aten.copy_.default", "aten.clone.default", "aten.set_.source_Storage"


@pytest.mark.parametrize(
    ("operator", "reads", "number", "saved"),
    [
        (CLONE, [], 9, 100),
        (CLONE, [(20, COPY, "", 10)], 9, 100),  # it is loaded again
        (CLONE, [(20, "aten._foreach_lerp_.Scalar", "", 10)], 9, None),  # an average
        (SET, [(3, COPY, "", 9), (20, COPY, "", 10)], 9, 100),
        (SET, [(3, COPY, "", 8)], 9, None),  # of what lasts nothing was read then
        (SET, [], 9, None),
    ],
)
def test_copies_of_weights_that_wait_to_be_loaded(
    tmp_path: Path, operator: str, reads: list[Any], number: int, saved: int | None
) -> None:
    weight = {"begin": 1, "last": 90, "category": "parameter", "reads": [(3, COPY, "", number)], "objects": [held(89)]}
    source = {"inputs": [0]} if operator == CLONE else {}
    copied = {"begin": 2, "last": 80, "operator": operator, "reads": reads, "objects": [held(79)], **source}
    one = program(tmp_path, weight, {**copied, "category": "kept"})
    change = snapshots.host_snapshot(one, one.blocks, "")
    assert (None if isinstance(change, str) else one.peak - peak(one, change)) == saved


@pytest.mark.parametrize(
    ("held_until", "reads", "calls", "saved_until", "after"),
    [
        (12, [(40, "aten.cat.default", "", 30, 40)], 1, 0, 148),  # a name that was bound again
        (79, [(40, "aten.cat.default", "", 30, 40)], 1, 0, 148),  # with the view: a name, until the next is made
        (60, [(40, "aten.cat.default", "", 30, 40)], 1, 0, None),  # something holds all of it
        (12, [(40, "aten.cat.default", "", 30, 400)], 1, 0, None),
        (12, [(40, "aten.cat.default", "", 30)], 1, 0, None),  # all of it is read later
        (12, [], 1, 0, None),  # what is kept is not known
        (12, [(40, "aten.cat.default", "", 30, 40)], 6, 0, None),  # six of ten parts may be kept
        (12, [(40, "aten.cat.default", "", 30, 40)], 1, 70, None),  # a graph has it
        (12, [(8, "aten.mul_.Tensor", "", 20), (40, "aten.cat.default", "", 30, 40)], 1, 0, None),  # written behind
    ],
)
def test_a_view_that_keeps_the_whole(
    tmp_path: Path, held_until: int, reads: list[Any], calls: int, saved_until: int, after: int | None
) -> None:
    """Two tensors, of which a tenth is read later; the second one is there with what is left of the first."""
    objects = [held(held_until), {**held(79), "bytes": 40, "made": 5}]
    made = {
        "begin": 2,
        "last": 80,
        "bytes": 400,
        "objects": objects,
        "parts": [[40, ("train.py", "main", 5), calls, 3]],
    }
    kept = {**made, "reads": [(4, "aten.select.int", "", 3), *reads], "category": "kept"}
    if saved_until:
        kept["saved"] = [saved(3, None, saved_until)]
    other = {"begin": 50, "last": 70, "category": "kept", "objects": [held(69)]}
    one = program(tmp_path, {**kept}, {**other, "begin": 30, "last": 34, "objects": [held(33)], "bytes": 8}, other)
    change = views.clone_view(one, one.blocks, "")
    if after is None:
        assert "no view" in str(change)
    else:
        assert isinstance(change, Change) and change.lines == (Frame("train.py", "main", 5),)
        alive = sum(block.bytes for block in change.blocks if block.alive(55 * GAP))
        assert alive == 512 + 100  # of an allocation at least that


def test_copies_of_one_line_go_together(tmp_path: Path) -> None:
    """Weights that a library has joined are not known; where most are none, the line copies something else."""
    weight = {"begin": 1, "last": 90, "category": "parameter", "objects": [held(89)]}
    known = {"begin": 2, "last": 80, "operator": CLONE, "inputs": [0], "objects": [held(79)], "category": "kept"}
    other = {**known, "begin": 3, "inputs": []}
    one = program(tmp_path, weight, known, other)
    change = snapshots.host_snapshot(one, one.blocks, "")
    assert (one.peak, peak(one, change)) == (300, 100)
    assert isinstance(change, Change) and change.cost.startswith("care: ")
    one = program(tmp_path, weight, known, other, {**other, "begin": 4})
    assert isinstance(snapshots.host_snapshot(one, one.blocks, ""), str)


@pytest.mark.parametrize(("source", "index", "early"), [(0, 1, 0), (1, 0, 1)])
def test_an_index_is_read_whole(tmp_path: Path, source: int, index: int, early: int) -> None:
    """Of what operators pick rows from, and not of what says which: the rows are in blocks of their own."""
    kept = {"phase": "other", "category": "input", "last": -1, "objects": [{"made": 0, "gone": None, "dead": None}]}
    reads = [[30 + i, "aten.index.Tensor", "", 15 + i] for i in range(2)]
    both = [{**kept, "begin": 3 + i, "bytes": 4000 * (i + 1), "number": 1 + i, "reads": reads} for i in range(2)]
    picks = {"operator": "aten.index.Tensor", "inputs": [source, index], "bytes": 200}
    rows = [{**picks, "begin": 31 + i, "last": 50 + i, "number": 15 + i, "objects": [held(49 + i)]} for i in range(2)]
    one = program(tmp_path, *both, *rows)
    one.blocks = [replace(block, step=-1 if block.bytes > 200 else 0) for block in one.blocks]
    one.stretches = [replace(one.stretches[0], begin=20 * GAP)]
    change = data.load_late(one, one.blocks, "")
    assert isinstance(change, Change)
    assert [block.bytes for block in change.blocks if block.step < 0 and block.bytes] == [4000 * (2 - early)]


INTO = {"block": 0, "name": "x", "argument": "self", "operand": "the first operand"}
INTO |= {"grad": True, "idle": False}


def test_in_place_where_nothing_else_needs_the_input(tmp_path: Path) -> None:
    """Not what autograd keeps, unless its operator would keep the output."""

    def changed(operator: str = "aten.mul.Tensor", into: Any = INTO, also: Any = (), **source: Any) -> Change | str:
        reads, dead = [[3, operator, "", 1]], [held(11, {**DEAD, "from": 4})]
        given = {"begin": 1, "last": 12, "objects": dead, "reads": reads, **source}
        made = {"begin": 3, "last": 12, "operator": operator, "inputs": [0], "into": [into], "objects": [held(11)]}
        one = program(tmp_path, given, made, *also)
        change = in_place.in_place(one, one.blocks, "")
        assert isinstance(change, str) or peak(one, change) == 100
        return change

    change = changed()
    assert isinstance(change, Change)
    assert change.write == "x.mul_(), which writes into x, in the place of mul: nothing reads that again"
    assert isinstance(changed("aten.mm.default"), str)
    assert isinstance(changed(saved=[saved(1, 8, 9, "backward")]), str)
    assert isinstance(changed(reads=[[7, "aten.mm.default", "", 4]]), str)
    assert isinstance(changed(objects=[held(11)]), str)  # something else holds it
    assert isinstance(changed(objects=[held(11)], into={**INTO, "idle": True}), Change)  # no place for a del
    assert isinstance(changed(into={**INTO, "name": ""}), str)  # made on the way by the call itself
    # Another caller may read again what it gives to the function.
    outside = Frame("train.py", "main", 9)
    assert isinstance(changed(stack=(outside,)), str)
    within = Frame("train.py", "layer", 9)  # a function that has returned, which may have kept it
    assert isinstance(changed(stack=(within, LINE)), str)
    backward = [[3, "aten.leaky_relu.default", "", 1], [9, "aten.leaky_relu_backward.default", "LeakyReluBackward0", 5]]
    keeps = {"saved": [saved(1, 8, 9, "backward")], "reads": backward}
    assert isinstance(changed("aten.leaky_relu.default", **keeps), Change)
    detached = {**INTO, "grad": False}  # then it is the input's own operator that keeps its output
    assert isinstance(changed("aten.leaky_relu.default", detached, **keeps), str)


def test_in_place_at_a_line_that_also_has_to_make_another(tmp_path: Path) -> None:
    given = {"begin": 1, "last": 12, "objects": [held(11, {**DEAD, "from": 4})]}
    made = {"begin": 3, "last": 12, "operator": "aten.mul.Tensor", "objects": [held(11)]}
    other = {**made, "begin": 20, "last": 24, "objects": [held(23)]}
    one = program(tmp_path, given, {**made, "into": [INTO]}, other)
    assert isinstance(in_place.in_place(one, one.blocks, ""), str)
    one = program(tmp_path, given, {**made, "into": [INTO]}, {**other, "operator": "aten.mm.default"})
    assert isinstance(in_place.in_place(one, one.blocks, ""), Change)


def test_in_place_at_a_line_that_also_needs_scratch_memory(tmp_path: Path) -> None:
    """What an operator makes and frees is no tensor, which might have to stay."""
    given = {"begin": 1, "last": 12, "objects": [held(11, {**DEAD, "from": 4})]}
    made = {"begin": 3, "last": 12, "operator": "aten.mul.Tensor", "into": [INTO], "objects": [held(11)]}
    reduces = {"begin": 8, "last": 13, "end": 10, "operator": "aten.sum.default", "objects": [held(12)]}
    for last, kind in (10, Change), (11, str):
        one = program(tmp_path, given, made, reduces, {"begin": 9, "last": last, "is_logged": False})
        assert isinstance(in_place.in_place(one, one.blocks, ""), kind)


def test_a_row_names_few_lines_with_all_that_is_worth_it_there(tmp_path: Path) -> None:
    """And what two places lengthen stays until the later end."""
    sizes = [600, 500, 400, 300, 200, 100]
    lines = [1, 1, 1, 2, 3, 4]
    one = program(tmp_path, *({"begin": 1, "last": 9, "bytes": size} for size in (*sizes, 90, 100)))
    dropped = one.blocks[:-1]
    source = one.blocks[-1]
    places: dict[tuple[int, int], edits.Edits] = {
        (line, number): {id(block): (block, None), id(source): (source, replace(source, end=source.end + number))}
        for number, (line, block) in enumerate(zip([*lines, 5], dropped, strict=True))
    }
    edited, chosen = edits.worth(one, one.blocks, places, lambda place: place[0])
    assert chosen == [(line, number) for number, line in enumerate(lines)]
    assert [block.requested for block in edited] == [90, 100] and edited[-1].end == source.end + 5
    places = dict(reversed(places.items()))
    again, chosen = edits.worth(one, one.blocks, places)  # a line for each
    assert chosen == [(line, number) for number, line in enumerate(lines)][:4] and again[-1].end == source.end + 3


def test_what_is_on_the_host_comes_back_for_each_node(tmp_path: Path) -> None:
    """As large as the view that was saved; one that is not contiguous is copied on its way."""
    size = 1024
    other = {"begin": 12, "last": 16, "bytes": size, "objects": [held(15)]}
    for taken, most in (
        ([{}], 2 * size),
        ([{"bytes": size // 2}], size // 2 + size),
        ([{}, {"bytes": size // 2}], 2 * size + size // 2),
        ([{"bytes": 8 * size}], 9 * size),
        ([{"bytes": 8 * size, "is_contiguous": False, "used": None}], 9 * size),
    ):
        read = [[3, "aten.mul.Tensor", "", 1]]
        given = {"begin": 1, "last": 16, "bytes": size, "objects": [held(4)], "reads": read}
        given["saved"] = [{**saved(1, 13, 15, "backward"), **view} for view in taken]
        one = program(tmp_path, given, other)
        change = of_backward.offload(one, one.blocks, "")
        assert isinstance(change, Change) and change.blocks[0].end < one.blocks[1].birth
        assert peak(one, change) == most


MODULES = "/a/site-packages/torch/nn/modules"
LEAKY = (
    Frame("/a/site-packages/torch/nn/functional.py", "leaky_relu", 1),
    Frame(f"{MODULES}/activation.py", "LeakyReLU.forward", 1),
    Frame(f"{MODULES}/module.py", "Module._call_impl", 1, module="LeakyReLU", module_address=5),
)
CONV = (Frame(f"{MODULES}/conv.py", "Conv2d.forward", 1, module="Conv2d", module_address=4),)
AROUND = (
    Frame(f"{MODULES}/container.py", "Sequential.forward", 1),
    Frame(f"{MODULES}/module.py", "Module._call_impl", 1, module="Sequential", module_address=3),
)


def test_in_place_in_a_sequential(tmp_path: Path) -> None:
    """Not where another layer than a Sequential calls the module, which may read its input again."""
    keeps = {"reads": [[3, "aten.leaky_relu.default", "", 1]], "saved": [saved(1, 8, 9, "backward")]}
    first = {"begin": 1, "last": 10, "objects": [held(3)], "stack": (*CONV, *AROUND, LINE), **keeps}
    stack = (*LEAKY, *AROUND, LINE)
    made = {"begin": 3, "last": 12, "operator": "aten.leaky_relu.default", "objects": [held(11)]}
    into = [{**INTO, "name": ""}]
    one = program(tmp_path, first, {**made, "into": into, "stack": stack})
    change = in_place.in_place(one, one.blocks, "")
    assert isinstance(change, Change) and peak(one, change) == 100
    assert change.frame == LINE and "where the LeakyReLU is made" in change.write
    mixed = (LEAKY[0], Frame(f"{MODULES}/transformer.py", "TransformerEncoderLayer.forward", 1), LINE)
    for other in mixed, (*LEAKY, Frame(f"{MODULES}/transformer.py", "TransformerEncoderLayer.forward", 1), LINE):
        one = program(tmp_path, first, {**made, "into": into, "stack": other})
        assert isinstance(in_place.in_place(one, one.blocks, ""), str)


def test_in_place_of_what_autograd_would_keep_then(tmp_path: Path) -> None:
    """leaky_relu in place saves its output, which mul may not write into."""
    keeps = {"reads": [[3, "aten.leaky_relu.default", "", 1]], "saved": [saved(1, 8, 9, "backward")]}
    first = {"begin": 1, "last": 10, "objects": [held(3)], **keeps}
    dead = [held(6, {**DEAD, "from": 6})]
    second = {"begin": 3, "last": 7, "operator": "aten.leaky_relu.default", "into": [INTO], "objects": dead}
    third = {
        "begin": 5,
        "last": 12,
        "operator": "aten.mul.Tensor",
        "into": [{**INTO, "block": 1}],
        "objects": [held(11)],
    }
    one = program(tmp_path, first, second, third)
    change = in_place.in_place(one, one.blocks, "")
    assert isinstance(change, Change) and [name for _, _, name, _ in change.operators] == ["leaky_relu"]
    unsaved = {**first, "saved": [], "objects": [held(9, {**DEAD, "from": 4, "number": "1:y"})]}
    one = program(tmp_path, unsaved, second, third)
    change = in_place.in_place(one, one.blocks, "")
    assert isinstance(change, Change) and "mul" in [name for _, _, name, _ in change.operators]


OPERATORS = """
import sys
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from cuptimem.simulation.operands import in_place_of

class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            of = in_place_of(func, (args, kwargs or {}), made, sys._getframe(1))
            found.extend((one.name, one.words) for one in of)
        return made

def needs(grad=False):
    return torch.ones(4, 4, requires_grad=grad)

def row():
    return torch.ones(4)

found = []
"""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("x, y = needs(), needs(); z = x * y", [("x", "the first operand"), ("y", "the second operand")]),
        ("x, y = needs(), needs(); z = x - y; x.sum()", []),  # y would take -= with the wrong sign
        ("x, y = needs(), needs(); z = x - y; y.sum()", [("x", "the first operand")]),
        ("x, y = needs(), needs(); z = x / y; x.sum()", []),
        ("x, y = needs(), needs(); z = x.lerp(y, 0.5); x.sum()", []),
        ("x, y = needs(), needs(); z = torch.add(x, y, alpha=2); x.sum()", []),
        ("x = needs(); z = torch.pow(2.0, x)", []),
        ("x = needs(); z = x + row()", [("x", "the first operand")]),
        ("x, y = row(), needs(); z = x * y; y.sum()", []),  # broadcast
        ("x = needs(); z = torch.nn.functional.leaky_relu(x, 0.2)", [("x", "its input")]),
        ("x = needs(); z = torch.nn.functional.leaky_relu(x, -0.2)", []),  # an error in backward
        ("x = needs(); z = torch.nn.functional.elu(x, -0.2)", []),
        ("x = needs(); z = x[:2] * 2", []),  # of a larger one
        ("x = needs(); z = x - x.T", []),  # reads what it would have written
        ("x = needs(); z = x.int() * 1.5", []),
        ("x = needs(True); z = x * 2", []),  # a leaf
        ("x = needs(True).view(16); z = x * 2", []),  # a leaf's memory
        ("x = needs(True)\n  with torch.no_grad(): z = x.view(16) * 2", [("", "its input")]),
        ("x = needs(True) + 1; z = x * 2", [("x", "its input")]),
        ("x = needs(); z = x * 2\n  if len(z) > 4: x.sum()", []),  # a branch not taken
        ("x = needs()\n  if len(x) > 4: y = x.sum()\n  z = x * 2", []),  # it may keep x
        ("y = needs()\n  for i in range(2):\n    y = y * 2\n    if i > 4: found.append(y)", []),
        ("x = needs()\n  if x.shape[0] > 4: return x\n  z = x * 2", [("x", "its input")]),
        ("x = needs()\n  if x is not None: x = x @ x\n  z = x * 2", [("x", "its input")]),
        ("x = needs()\n  if len(x) > 4: found.append(x)\n  x = x @ x\n  z = x * 2", [("x", "its input")]),
        ("x = needs()\n  if len(x) > 4: found.append(x)\n  else: z = x * 2", [("x", "its input")]),
        ("x = needs()\n  if len(x) > 4: found.append(x)\n  x += 1\n  z = x * 2", []),  # the same tensor
        ("x = needs()\n  if len(x) > 4: found.append(x)\n  x = x.float()\n  z = x * 2", []),  # it may be
        ("x = needs()\n  if len(x) > 4: found.append(x)\n  y = [x for x in found]\n  z = x * 2", []),  # another x
        ("x = needs()\n  if len(x) > 4: x = found.append(x)\n  z = x * 2", []),
        ("x = needs()\n  try:\n    if len(x) > 4: found.append(x)\n    z = x * 2\n  except ValueError: raise", []),
        (
            "x = needs()\n  for i in range(2):\n    if i > 4: found.append(x)\n    else: x = x * 2",
            [],
        ),  # in an iteration
        ("x = needs()\n  z = x.append(1) if len(found) > 4 else x * 2", [("x", "its input")]),
        ("x = needs()\n  z = found.append(x) if len(found) > 4 else 1, x * 2", []),
        ("x = needs()\n  if len(x) > 4: locals()\n  z = x * 2", []),
        ("x = needs(); y = [x]; z = x * 2; return y", []),
        ("x = needs()\n  for _ in range(2): x = x * 2", [("x", "its input")] * 2),
    ],
)
def test_operands_that_may_be_written_into(tmp_path: Path, lines: str, said: list[tuple[str, str]]) -> None:
    """As the program's own code and autograd have it."""
    variables: dict[str, Any] = {}
    exec(compile(OPERATORS, "operators.py", "exec"), variables)
    script = tmp_path / "train.py"
    script.write_text(f"def run():\n  {lines}\n")
    exec(compile(script.read_text(), script, "exec"), variables)
    with variables["Mode"]():
        variables["run"]()
    assert variables["found"] == said


@pytest.mark.parametrize(
    ("lines", "idle"),
    [
        ("x = row()\n  def f(x): return ask(x)\n  f(x)", True),
        ("x = row()\n  def f(x): return ask(x)\n  f(x); x.sum()", False),
        ("x = row()\n  def f(x): return ask(x) and x\n  f(x)", False),
        ("x = row()\n  for _ in range(2): ask(x)", False),
        ("x = row(); y = [x]; ask(x); return y", False),
        ("x = row()\n  def f(): return x\n  ask(x)", False),  # of a closure
    ],
)
def test_what_only_variables_hold_that_are_not_read_again(tmp_path: Path, lines: str, idle: bool) -> None:
    found = []

    def ask(tensor: Any) -> bool:
        held = sys.getrefcount(tensor) - 2  # a variable and an argument here
        found.append(operands.is_idle(tensor, sys._getframe(1), held))
        return True

    script = tmp_path / "train.py"
    script.write_text(f"def run():\n  {lines}\n")
    variables: dict[str, Any] = {"ask": ask, "row": lambda: torch.ones(4)}
    exec(compile(script.read_text(), script, "exec"), variables)
    variables["run"]()
    assert found[0] is idle


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("goal = net(x)\nF.mse_loss(out, goal.detach())", "goal"),
        ("goal = net(x)\nif step >= 100: loss = loss + 0.1 * goal\nprint(goal.item())\nloss.backward()", None),
        ("goal = net(x)\nif step % 2 == 0: print(float(goal), goal.shape)", "goal"),
        ("goal = net(x)\nsums.append(goal)", None),
        ("goal = net(x)\ndef later(): return goal", None),
        ("sums.append(net(x).mean().item())", ""),
        ("sums.append(net(x).mean())", None),
        ("total += net(x).mean().item()", ""),
        ("total += net(x).mean()", None),
        ("self.goal = net(x)", None),
        ("hold.add(net(x)).backward()", None),
        ("loss = float(goal := net(x))", None),
        ("goal, other = net(x)", "goal,other"),
        ("goal, other = net(x)\nkeep(other)", None),
        ("goal, self.other = net(x)", None),
        ("all = 0\nfor x in data:\n  goal, _ = net(x)\n  all = all + goal.mean()\nprint('is', all / 6)", "goal,_,all"),
        ("all = 0\nfor x in data:\n  goal, _ = net(x)\n  all = all + goal.mean()\nall.backward()", None),
        ("goal = net(x)\nprint(keep(goal))", None),
        ("goal = first(x)\ngoal.backward()\ngoal = net(x)\nprint(goal.item())", "goal"),
        ("while True:\n  if on: goal.backward()\n  goal = net(x)\n  print(goal.item())", None),
        ("def later():\n  goal.backward()\ngoal = net(x)\nprint(goal.item())", None),
        ("correct = net(x).argmax(1) == y", ""),
        # Through other variables: while nothing on the way can keep the value, or run its graph.
        ("goal = net(x)\ny = 1 + goal.sum(dim=1)\ny = y.detach()\nF.mse_loss(out, y)", "goal,y"),
        ("goal = net(x)\ny = 1 + goal.sum(dim=1)\nF.mse_loss(out, y)", None),
        ("goal = net(x)\ny = goal.sum()\nif step: y.backward()\ny = y.detach()", None),
        ("goal = net(x)\ny = keep(goal)\ny = y.detach()", None),
        ("goal = net(x)\ny = model.norm(goal)\ny = y.detach()", None),
        ("import torch\ngoal = net(x)\ny = torch.minimum(goal, z)\ny = y.detach()\ny.mean()", "goal,y"),
        ("import torch\ngoal = net(x)\ny = torch.save(goal, f)\ny = y.detach()", None),
        ("goal = net(x)\nprint(goal.item())\nwith torch.no_grad():\n  goal = net(z)\nkeep(goal)", "goal"),
        ("goal = net(x)\nprint(goal.item())\ngoal = net(z)\ngoal.backward()", "goal"),
        ("goal = net(x)\nif bad: goal = net(z)\ngoal.backward()", None),
        ("for x in data:\n  goal = net(x)\n  if last: break\n  goal = goal.detach()\ngoal.backward()", None),
        ("for x in data:\n  goal = net(x)\n  goal = goal.detach()\ngoal.sum()", "goal"),
        ("goal = net(x)\ndef later(): return goal\ngoal = goal.detach()", None),
    ],
)
def test_gradients_that_no_code_asks_for(tmp_path: Path, lines: str, found: str | None) -> None:
    """On no branch, taken or not."""
    script = tmp_path / "train.py"
    script.write_text(lines)
    line = next(i for i, one in enumerate(lines.splitlines(), 1) if "net(x)" in one)
    assert dropped.drops(((str(script), "<module>", line),)) == found


def test_gradients_of_what_is_returned(tmp_path: Path) -> None:
    """Then what the caller does with it counts."""
    script = tmp_path / "train.py"
    script.write_text("def score(x):\n  return net(x)\na = score(x)\nprint(a.item())\nb = score(x)\nb.backward()\n")
    for line, said in ((3, "a"), (5, None)):
        assert dropped.drops(((str(script), "score", 2), (str(script), "<module>", line))) == said


MADE, ELSEWHERE = ("train.py", "build", 2), ("train.py", "main", 5)
STATE = {"begin": 3, "last": -1, "category": "optimizer state"}


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        ([{"steps": TRAINS, "made": MADE}], 2),
        ([{"steps": TRAINS, "made": None}], 7),  # a library made it
        ([{"steps": METRIC, "made": ELSEWHERE}, {"steps": TRAINS, "made": MADE}], 2),  # that of most bytes
        ([{"steps": TRAINS, "made": MADE}, {"steps": TRAINS, "made": ELSEWHERE}], 7),  # of which is not known
        ([], None),
    ],
)
def test_another_optimizer_is_written_where_it_is_made(
    tmp_path: Path, seen: list[dict[str, Any]], line: int | None
) -> None:
    step = {"begin": 5, "last": 7, "category": "temporary", "phase": "optimizer", "stack": (Frame(*TRAINS),)}
    one = program(tmp_path, STATE, *([step] if len(seen) > 1 else []), makes={"optimizers": seen})
    change = optimizers.sgd(one, one.blocks, "")
    assert isinstance(change, Change)
    assert (change.frame.line if change.frame is not None else None) == line


@pytest.mark.parametrize(("samples", "line"), [(8, 2), (4, 3)])
def test_another_batch_is_written_where_its_loader_is_made(tmp_path: Path, samples: int, line: int) -> None:
    """Not where a loader of other batches is, as one for evaluation."""
    first = {"begin": 3, "last": 60, "bytes": 8192, "category": "input", "shape": [samples, 256], "objects": [held(60)]}
    loaders = [[16, ELSEWHERE], [8, MADE]]
    one = program(tmp_path, first, makes={"loaders": loaders})
    one.beside = one
    change = batches.batch(one, one.blocks, "")
    assert isinstance(change, Change) and change.frame is not None
    assert change.frame.line == line


@pytest.mark.parametrize(
    ("source", "reader", "said"),
    [
        ([2, 1, 5], "aten.mul.Tensor", ""),
        ([5], "aten.mul.Tensor", ""),
        ([2, 3, 5], "aten.mul.Tensor", "no repeat() of a dimension of length 1 is seen"),
        ([2, 1, 5], "aten.bmm.default", "what reads it would copy a view"),
        ([2, 1, 5], "aten.flatten.using_ints", "what reads it would copy a view"),
    ],
)
def test_a_view_in_the_place_of_a_repeat(tmp_path: Path, source: list[int], reader: str, said: str) -> None:
    """Along dimensions of length 1 alone; what copies the view has as much again."""
    lasts = {"last": 9, "objects": [held(8)]}
    given = {**lasts, "begin": 1, "bytes": 10, "shape": source}
    repeat = {**lasts, "begin": 3, "operator": "aten.repeat.default", "inputs": [0], "shape": [2, 6, 5]}
    one = program(tmp_path, given, {**repeat, "number": 1, "reads": [[5, reader, "", 2]]})
    change = copies.expand(one, one.blocks, "")
    assert change == said if said else peak(one, change) == 10


@pytest.mark.parametrize(
    ("line", "softmax", "reader", "left"),
    [
        ("q @ k", "aten._softmax.default", "aten.bmm.default", 10),
        ("q @ k", "aten.softmax.int", "aten.matmul.default", 10),
        ("self.gate(x)", "aten._softmax.default", "aten.bmm.default", None),  # experts
        ("q @ k", "aten._softmax.default", "aten.argmax.default", None),
        ("q @ k", "aten.exp.default", "aten.bmm.default", None),
    ],
)
def test_attention_without_a_graph(tmp_path: Path, line: str, softmax: str, reader: str, left: int | None) -> None:
    """Scores, weights and what is between have one size in one module."""
    lasts = {"last": 9, "objects": [held(8)], "stack": (Frame("net.py", "forward", 7, text=line),)}
    scores = {**lasts, "begin": 3, "number": 1, "reads": [[4, softmax, "", 2]]}
    weights = {**lasts, "begin": 5, "number": 2, "operator": softmax, "inputs": [1], "reads": [[7, reader, "", 3]]}
    one = program(tmp_path, {**lasts, "begin": 1, "bytes": 10}, scores, weights)
    one.beside = one
    change = attention.fused_attention(one, one.blocks, "")
    assert isinstance(change, str) if left is None else peak(one, change) == left


def test_a_sum_in_place_has_the_graphs_of_what_it_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "_count", lambda: 0)
    monkeypatch.setattr(simulated, "_tensors", lambda some: some if isinstance(some, tuple) else (some,))  # of a GPU
    run = simulated.Readers()
    with torch.no_grad():
        total, loss, other = (torch.zeros(1).requires_grad_(i == 1) for i in range(3))
    blocks: list[dict[str, Any]] = [{"graph": [], "reads": [], "bytes": 4} for _ in range(3)]
    run._blocks = blocks
    run._at = {one.untyped_storage().data_ptr(): i for i, one in enumerate((total, loss, other))}
    monkeypatch.setattr(run, "_follow", lambda *_: None)
    run._begins = [0]
    for given in ((total, loss), (total, other), (total, loss)):
        read = {run._at[one.untyped_storage().data_ptr()]: (4, one.requires_grad) for one in given}
        run.end("aten.add_.Tensor", (0, read), given, total)
    assert [one["graph"] for one in blocks] == [[1], [], []]
