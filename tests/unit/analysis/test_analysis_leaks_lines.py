"""Which stacks and lines a verdict names."""

from collections.abc import Callable
from typing import Any

from craft import TORCH
from leak_program import KEEP, Program, only, quiet, reasons, train


class Forgetful(dict[Any, int]):
    """Has forgotten what was defined, but goes on counting."""

    def __init__(self, old: dict[Any, int], *keep: Any) -> None:
        super().__init__({key: old[key] for key in keep})
        self.forgotten = len(old) - len(keep)

    def __len__(self) -> int:
        return super().__len__() + self.forgotten


def test_the_same_stack_under_many_ids(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Other modules, other code objects, defined again: one stack, one row."""

    def body(p: Program, i: int) -> None:
        if i % 10 == 9:  # all code was loaded anew
            p.t.strings = Forgetful(p.t.strings)
            p.t.codes = Forgetful(p.t.codes)
            p.t.stacks = Forgetful(p.t.stacks, ())
        call = (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1775, 0x7000 + 64 * i, "Linear")
        p.new(stack=p.t.stack((TORCH + "nn/functional.py", "linear", 5), call, ("train.py", "main", KEEP)))

    row = only(verdicts(train(40, body)), 5)
    assert row["count"] == 40 and len(row["parts"]) == 1


def test_many_stacks_of_one_line_of_the_user(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Recursion to another depth in each step: only the line has survivors of all ages."""

    def body(p: Program, i: int) -> None:
        inside = (TORCH + "nn/functional.py", "linear", 5)
        p.new(stack=p.t.stack(inside, *[("tree.py", "walk", KEEP)] * (1 + i % 9), ("train.py", "main", 9)))

    report = verdicts(train(45, body))
    (row,) = report["leaks"]
    assert row["count"] == 45 and len(row["parts"]) == 9 and row["bytes_per_step"] == 1000.0
    assert row["stack"] == row["parts"][0][2] and quiet({**report, "leaks": []})


def test_all_stacks_of_a_line_are_one_entry(verdicts: Callable[..., dict[str, Any]]) -> None:
    """One that would be a leak by itself, and nine that only are one together."""

    def body(p: Program, i: int) -> None:
        p.new(1000, stack=p.t.stack(("util.py", "keep", KEEP), ("train.py", "main", 1)))
        deep = [("util.py", "keep", KEEP)] * (2 + i % 9)
        p.new(10, stack=p.t.stack(*deep, ("train.py", "main", 2)))

    report = verdicts(train(54, body))
    assert [(row["bytes_per_step"], len(row["parts"])) for row in report["leaks"]] == [(1010.0, 10)]


def test_lines_of_libraries_are_not_the_users(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Nine callers of one line in an installed package, few births each: nine lines, nothing to accuse."""

    def body(p: Program, i: int) -> None:
        inside = ("/venv/lib/python3.11/site-packages/tools/keep.py", "keep", KEEP)
        if i % 2 == 0:
            p.new(stack=p.t.stack(inside, ("train.py", "main", 200 + i // 2 % 9)))

    report = verdicts(train(60, body))
    assert not report["leaks"] and {reason for _, reason in reasons(report)} == {"few births"}


def test_blocks_without_a_stack(verdicts: Callable[..., dict[str, Any]]) -> None:
    (row,) = verdicts(train(40, lambda p, i: p.t.alloc(0x900000 + 64 * i, 77)))["leaks"]
    assert (row["stack"], row["bytes"]) == (0, 77 * 40)
