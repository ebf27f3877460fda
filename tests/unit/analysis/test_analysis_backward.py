"""Hand-made traces with known answers: what backward allocates is charged to the forward line."""

import pytest
from craft import IN_NODE, NO_SEQUENCE, NODE_STACK, TORCH, Frame, Trace
from hand_made import Analyze, only_device, origins, shares

from cuptimem.report.load import from_dict
from tests.event_kinds import LOST, NODE_FREE, THREAD

ACCUMULATE = "N5torch8autograd14AccumulateGradE"


def threads(t: Trace, *numbers: int) -> None:
    for number in numbers:
        t.add(THREAD, 1000 + number, 10 + number, thread=number)


def backward_alloc(t: Trace, address: int, size: int, **more: int) -> None:
    t.alloc(address, size, t.line(99), flags=IN_NODE | NODE_STACK, **more)


def test_backward_is_charged_to_the_forward_line(analyze: Analyze) -> None:
    """Made by thread 1, run by thread 2, which has no Python frames of its own."""
    t = Trace()
    threads(t, 1, 2)
    t.node(5, t.line(1))
    t.node(6, t.line(2))
    t.run(6, 11, thread=2)
    t.alloc(0x1000, 100, 0, flags=IN_NODE | NODE_STACK, thread=2)
    t.done(thread=2)
    t.run(5, 11, "N5torch8autograd9generated14AddmmBackward0E", thread=2)
    t.alloc(0x2000, 50, 0, flags=IN_NODE | NODE_STACK, thread=2)
    t.done(thread=2)
    report = analyze(t)
    assert origins(only_device(report)["contributors"]) == [
        (100, 1, t.line(2), 0, "backward", "MulBackward0"),
        (50, 1, t.line(1), 0, "backward", "AddmmBackward0"),
    ]
    assert report["backward"] == {"bytes": 150, "resolved": 150, "accumulation": 0, "unresolved": 0}


def test_numbers_are_per_thread(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1, 2)
    t.node(5, t.line(1), thread=1)
    t.node(5, t.line(2), thread=2)
    t.run(5, 12)
    backward_alloc(t, 0x1000, 8)
    assert shares(only_device(analyze(t))["contributors"]) == [(8, 1, t.line(2))]


def test_the_autograd_id_may_come_late(analyze: Analyze) -> None:
    t = Trace()
    t.add(THREAD, 1001, 0)
    t.node(5, t.line(1))
    t.add(THREAD, 1001, 11)
    t.run(5, 11)
    backward_alloc(t, 0x1000, 8)
    assert shares(only_device(analyze(t))["contributors"]) == [(8, 1, t.line(1))]


def test_newer_python_frames_are_the_line(analyze: Analyze) -> None:
    """A hook, a backward written in Python, a recomputation."""
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.alloc(0x1000, 8, t.line(44), flags=IN_NODE)
    report = analyze(t)
    assert origins(only_device(report)["contributors"]) == [(8, 1, t.line(44), t.line(44), "backward", "MulBackward0")]
    assert report["backward"]["resolved"] == 8


ROUTER: Frame = (TORCH + "_native/registry.py", "_register_overrides_from_graph.<locals>.eager_router", 560)
ENGINE: tuple[Frame, ...] = (
    (TORCH + "autograd/graph.py", "_engine_run_backward", 1072),
    (TORCH + "autograd/__init__.py", "backward", 395),
)
CALLER: tuple[Frame, ...] = (*ENGINE, (TORCH + "_tensor.py", "Tensor.backward", 680), ("train.py", "main", 99))
CHECKPOINT: Frame = (TORCH + "utils/checkpoint.py", "CheckpointFunction.backward", 320)
LAYER: Frame = ("/venv/lib/python3.11/site-packages/transformers/model.py", "Block.forward", 12)
GENERATED: Frame = ("/tmp/me/qm/cqmfiq5ls4nbxndu5wbahle4a4h2dik6pvvrv4oaoyudugoysikg.py", "call", 77)


@pytest.mark.parametrize("below", [(), CALLER], ids=["device's thread", "caller's thread"])
@pytest.mark.parametrize(
    ("frames", "users"),
    [
        ([ROUTER], False),
        ([ROUTER, ("<frozen x>", "f", 1), LAYER], False),  # a custom function of a package
        ([GENERATED, (TORCH + "_inductor/output_code.py", "__call__", 5)], False),  # torch.compile's
        ([LAYER, CHECKPOINT], False),  # recomputes a package's model
        ([("train.py", "Mine.backward", 44)], True),
        ([ROUTER, ("train.py", "Mine.backward", 44)], True),
        ([ROUTER, LAYER, ("train.py", "hook", 44), LAYER], True),
        ([("train.py", "Net.forward", 44), CHECKPOINT], True),  # recomputes the user's model
    ],
)
def test_newer_frames_of_libraries_alone_fall_back(
    analyze: Analyze, frames: list[Frame], users: bool, below: tuple[Frame, ...]
) -> None:
    t = Trace()
    threads(t, 1)
    stack = t.stack(*frames, *below)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.alloc(0x1000, 8, stack, flags=IN_NODE)
    t.node(6, stack, flags=IN_NODE)  # create_graph, a recomputation: it stands where its maker stands
    t.done()
    t.run(6, 11)
    backward_alloc(t, 0x2000, 8)
    report = analyze(t)
    line = stack if users else t.line(1)
    rows = only_device(report)["contributors"]
    assert {(row[0], row[2], row[4]) for row in rows} == {(8, line, "backward")}
    assert {row[3] for row in rows} == {stack, t.line(99)}  # their own
    assert report["backward"] == {"bytes": 16, "resolved": 16, "accumulation": 0, "unresolved": 0}


def test_a_backward_within_a_users_hook_has_its_own_nodes(analyze: Analyze) -> None:
    """The hook is the user's, but not newer than what the inner engine runs."""
    t = Trace()
    threads(t, 1)
    hook: tuple[Frame, ...] = (("train.py", "hook", 44), *CALLER)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.node(6, t.stack(*hook), flags=IN_NODE)
    t.run(6, 11)
    t.alloc(0x1000, 8, t.stack(ROUTER, *ENGINE, *hook), flags=IN_NODE)
    t.done()
    t.alloc(0x2000, 4, t.stack(ROUTER, *hook), flags=IN_NODE)
    rows = shares(only_device(analyze(t))["contributors"])
    assert rows == [(8, 1, t.stack(*hook)), (4, 1, t.stack(ROUTER, *hook))]


def test_libraries_alone_in_a_node_of_unknown_origin(analyze: Analyze) -> None:
    """There is no line to fall back to: its own stack, and so counted. AccumulateGrad by itself has its name."""
    t = Trace()
    threads(t, 1)
    t.run(5, 11)
    t.alloc(0x1000, 8, t.stack(ROUTER), flags=IN_NODE)
    t.node(6, t.stack(LAYER), flags=IN_NODE)
    t.done()
    t.alloc(0x3000, 1, t.line(3))
    t.run(NO_SEQUENCE, 11, ACCUMULATE)
    t.alloc(0x2000, 4, t.stack(ROUTER), flags=IN_NODE)
    t.done()
    t.run(6, 11)
    backward_alloc(t, 0x4000, 2)
    report = analyze(t)
    rows = only_device(report)["contributors"]
    assert [(row[0], row[2], row[5]) for row in rows] == [
        (8, t.stack(ROUTER), "MulBackward0"),
        (4, t.stack(ROUTER), "AccumulateGrad"),
        (2, t.stack(LAYER), "MulBackward0"),
        (1, t.line(3), None),
    ]
    assert report["backward"] == {"bytes": 14, "resolved": 2, "accumulation": 4, "unresolved": 8}


def test_a_stack_that_was_lost_may_be_the_users(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.alloc(0x1000, 8, 1, flags=IN_NODE)  # CM_STACK_LOST
    assert analyze(t)["backward"]["unresolved"] == 8


def test_double_backward_follows_one_link(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.node(8, t.line(99), flags=IN_NODE | NODE_STACK)  # create_graph
    t.done()
    t.run(8, 11)
    t.node(9, t.line(99), flags=IN_NODE | NODE_STACK)  # and once more
    backward_alloc(t, 0x1000, 100)
    t.done()
    t.run(9, 11)
    backward_alloc(t, 0x2000, 8)
    assert shares(only_device(analyze(t))["contributors"]) == [(108, 2, t.line(1))]


def test_a_node_made_by_a_recomputation_has_its_own_line(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.node(8, t.line(44), flags=IN_NODE)
    t.run(8, 11)  # a backward inside the node
    backward_alloc(t, 0x1000, 8)
    t.done()
    backward_alloc(t, 0x2000, 4)
    assert shares(only_device(analyze(t))["contributors"]) == [(8, 1, t.line(44)), (4, 1, t.line(1))]


def test_accumulation_belongs_to_the_node_before_it(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.done()
    for address in (0x1000, 0x2000):  # weight and bias
        t.run(NO_SEQUENCE, 11, ACCUMULATE)
        backward_alloc(t, address, 8)
        t.done()
    report = analyze(t)
    assert origins(only_device(report)["contributors"]) == [
        (16, 2, t.line(1), t.line(99), "backward", "AccumulateGrad")
    ]
    assert report["backward"] == {"bytes": 16, "resolved": 16, "accumulation": 0, "unresolved": 0}


def test_accumulation_without_a_node_before_it_has_a_name(analyze: Analyze) -> None:
    """After a forward another backward has begun: the last one's nodes did not run before this."""
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.done()
    t.alloc(0x3000, 1, t.line(3))
    t.run(NO_SEQUENCE, 11, ACCUMULATE)
    backward_alloc(t, 0x1000, 8)
    report = analyze(t)
    assert only_device(report)["contributors"][0][:6] == (8, 1, t.line(99), t.line(99), "backward", "AccumulateGrad")
    assert report["backward"] == {"bytes": 8, "resolved": 0, "accumulation": 8, "unresolved": 0}


def test_accumulation_without_any_line_is_named_in_the_report(analyze: Analyze) -> None:
    """As on a thread of autograd's own that has no Python frames."""
    t = Trace()
    threads(t, 1)
    t.run(NO_SEQUENCE, 11, ACCUMULATE)
    t.alloc(0x1000, 8, 0, flags=IN_NODE | NODE_STACK)
    (contributor,) = from_dict(None, analyze(t)).peak.contributors
    assert (contributor.operator, contributor.where) == ("AccumulateGrad", "(gradient accumulation)")


def test_a_nested_backward_has_its_own_nodes_before(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.run(NO_SEQUENCE, 11, ACCUMULATE)  # inside: nothing ran before it there
    backward_alloc(t, 0x1000, 8)
    t.done()
    t.done()
    t.run(NO_SEQUENCE, 11, ACCUMULATE)
    backward_alloc(t, 0x2000, 4)
    rows = only_device(analyze(t))["contributors"]
    assert [(row[0], row[2], row[5]) for row in rows] == [
        (8, t.line(99), "AccumulateGrad"),
        (4, t.line(1), "AccumulateGrad"),
    ]


@pytest.mark.parametrize("why", ["older than the recording", "freed", "unknown thread", "no frames", "events lost"])
def test_what_cannot_be_resolved_is_said(analyze: Analyze, why: str) -> None:
    t = Trace()
    threads(t, 1)
    if why != "older than the recording":
        t.node(5, t.line(1) if why != "no frames" else 0)
    if why == "freed":
        t.add(NODE_FREE, 5, 11)
    t.run(5, 77 if why == "unknown thread" else 11)
    if why == "events lost":
        t.add(LOST, 0, 3)
    backward_alloc(t, 0x1000, 8)
    report = analyze(t)
    assert shares(only_device(report)["contributors"]) == [(8, 1, t.line(99))]
    assert report["backward"] == {"bytes": 8, "resolved": 0, "accumulation": 0, "unresolved": 8}


def test_old_nodes_are_found_behind_many_new_ones(analyze: Analyze) -> None:
    """Nodes outlive their place at hand, are freed, and are made anew."""
    t = Trace()
    threads(t, 1)
    t.node(1, t.line(1))
    for sequence in range(2, 6000):
        t.node(sequence, t.line(2))
        t.add(NODE_FREE, sequence, 11)
    t.node(6000, t.line(3))
    for address, sequence in ((0x1000, 1), (0x2000, 6000), (0x3000, 4000)):
        t.run(sequence, 11)
        backward_alloc(t, address, 8)
        t.done()
    report = analyze(t)
    assert sorted(row[2] for row in only_device(report)["contributors"]) == sorted([t.line(1), t.line(3), t.line(99)])
    assert report["backward"]["unresolved"] == 8


def test_a_large_graph_without_frees_stays_known(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    for sequence in range(20_000):
        t.node(sequence, t.line(1 + sequence % 3))
    for i, sequence in enumerate((0, 1, 777, 19_999)):
        t.run(sequence, 11)
        backward_alloc(t, 0x1000 * (i + 1), 8)
        t.done()
    assert analyze(t)["backward"] == {"bytes": 32, "resolved": 32, "accumulation": 0, "unresolved": 0}


@pytest.mark.parametrize(
    ("rtti", "shown"),
    [
        ("N5torch8autograd9generated14AddmmBackward0E", "AddmmBackward0"),
        (ACCUMULATE, "AccumulateGrad"),
        ("N5torch8autograd6PyNodeE", "PyNode"),
        ("N5torch8autograd7CppNodeI4MyFnEE", "CppNode"),
        ("*N4mine4NodeE", "Node"),
        ("8FreeNode", "FreeNode"),
        ("MyFunctionBackward", "MyFunctionBackward"),
        ("N99999999999999999999x", "N99999999999999999999x"),
    ],
)
def test_node_names(analyze: Analyze, rtti: str, shown: str) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11, rtti)
    backward_alloc(t, 0x1000, 8)
    assert only_device(analyze(t))["contributors"][0][5] == shown
