"""Programs in which nothing ticks: the calls of their outermost modules, told by what they allocate."""

from collections.abc import Callable
from typing import Any

import pytest
from craft import IN_NODE, NODE_STACK, OPTIMIZER, TORCH, Frame, Trace

Analyze = Callable[..., dict[str, Any]]

NET, INNER = 0x5000, 0x6000
CALL: Frame = (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1773, NET, "Net")
INNER_CALL: Frame = (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1773, INNER, "Linear")
OTHER_CALL: Frame = (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1773, 0x7000, "Decoder")


def serve(t: Trace, calls: int, *, first_only: bool = False, twice: bool = False, keep: bool = False) -> None:
    """A loop that makes an input, calls a model of two layers, and drops what it made."""
    outside = t.line(10)
    main: Frame = ("serve.py", "main", 11)
    first = t.stack((TORCH + "nn/linear.py", "forward", 5), INNER_CALL, ("net.py", "forward", 3), CALL, main)
    second = t.stack(("net.py", "forward", 4), CALL, main)
    once = t.stack(("net.py", "prepare", 2), CALL, main)
    for i in range(calls):
        base = 0x10000 + i * 0x1000
        t.alloc(base, 100, outside)
        if first_only and i == 0:
            t.alloc(base + 64, 100, once)
        t.alloc(base + 128, 200, first)
        if twice:
            t.alloc(base + 192, 200, first)  # the same expression makes two blocks
        t.alloc(base + 256, 300, second)
        t.free(base)
        if not keep:
            t.free(base + 128)
        if twice:
            t.free(base + 192)
        t.free(base + 256)


@pytest.mark.parametrize("how", [{}, {"first_only": True}, {"twice": True}])
def test_calls_are_steps(analyze: Analyze, how: dict[str, bool]) -> None:
    t = Trace()
    serve(t, 20, **how)
    report = analyze(t)
    assert report["clock"]["kind"] == "module"
    assert report["clock"]["where"][:2] == ("serve.py", 11)
    assert len(report["steps"]) == 19  # a call begins a step; the last one opens the tail
    assert {step["allocated"] for step in report["steps"][1:]} == {800 if how.get("twice") else 600}


def test_a_leak_in_them_is_found(analyze: Analyze) -> None:
    t = Trace()
    serve(t, 24, keep=True)
    (leak,) = analyze(t)["leaks"]
    assert (leak["bytes_per_step"], leak["count_per_step"]) == (200, 1)


def test_two_outermost_modules_are_one_step(analyze: Analyze) -> None:
    t = Trace()
    encoder, decoder = (
        t.stack((f, "forward", 1), call, ("m.py", "main", 9)) for f, call in (("e", CALL), ("d", OTHER_CALL))
    )
    for i in range(12):
        for k, stack in enumerate((encoder, decoder)):
            t.alloc(0x1000 * (i + 1) + 64 * k, 10, stack)
            t.free(0x1000 * (i + 1) + 64 * k)
    assert len(analyze(t)["steps"]) == 11


def test_a_real_tick_is_better(analyze: Analyze) -> None:
    t = Trace()
    serve(t, 10)
    for _ in range(4):
        t.tick(OPTIMIZER, 0x9000, t.line(30))
        serve(t, 5)
    report = analyze(t)
    assert report["clock"]["kind"] == "optimizer"
    assert len(report["steps"]) == 4


def test_nothing_is_made_of_little(analyze: Analyze) -> None:
    t = Trace()
    serve(t, 3)
    assert analyze(t)["clock"]["kind"] is None


def test_without_a_module_there_are_no_steps(analyze: Analyze) -> None:
    t = Trace()
    for i in range(50):
        t.alloc(0x1000 + 64 * i, 8, t.line(5))
    assert analyze(t)["clock"]["kind"] is None


def test_what_backward_allocates_is_no_call(analyze: Analyze) -> None:
    t = Trace()
    stack = t.stack(("net.py", "forward", 3), CALL, ("train.py", "main", 20))
    for i in range(30):
        t.alloc(0x1000 + 64 * i, 8, stack, flags=IN_NODE | NODE_STACK)
    assert analyze(t)["clock"]["kind"] is None
