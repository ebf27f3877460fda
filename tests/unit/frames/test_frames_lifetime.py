"""Code objects that go away, tables that fill up, logs without room, new captures."""

import gc
from types import ModuleType
from typing import Any

from frames_support import STACK_FIRST, STACK_LOST, STACK_NONE, Log


def run_made(core: ModuleType, file: str, name: str, line: int) -> int:
    space: dict[str, Any] = {"capture": core.capture}
    exec(compile("\n" * line + f"def {name}():\n  x = 1\n  return capture()\n", file, "exec"), space)
    stack: int = space[name]()
    return stack


def test_reused_code_addresses(core: ModuleType) -> None:
    """1,000 functions made, called and freed one after the other: most land on an earlier one's address."""
    made = [(f"<made {i}>", f"fn_{i}", i % 7) for i in range(1000)]
    stacks = [run_made(core, *m) for m in made]
    log = Log(core.log_bytes())
    wrong = [
        (m, frame)
        for m, frame in zip(made, (log.resolve(s)[0] for s in stacks), strict=True)
        if (frame.file, frame.name, frame.line) != (m[0], m[1], m[2] + 3)
    ]
    assert wrong == []
    assert core.counts()["epochs"] >= 900


def test_the_same_source_again_is_the_same_stack(core: ModuleType) -> None:
    stacks = {run_made(core, "<same>", "same", 3) for _ in range(300)}
    counts = core.counts()
    assert len(stacks) == 1
    assert counts["stacks"] < 200 and counts["codes"] < 200
    length = len(core.log_bytes())
    assert run_made(core, "<same>", "same", 3) not in stacks  # another calling line
    assert len(core.log_bytes()) - length < 32, "one stack record"


def test_codes_never_captured_cost_no_epoch(core: ModuleType) -> None:
    core.capture()
    before = core.counts()["epochs"]
    for i in range(50):
        exec(compile(f"x = {i}", "<unseen>", "exec"), {})
    gc.collect()
    assert core.counts()["epochs"] == before


def test_ids_survive_an_epoch(core: ModuleType) -> None:
    stacks = []
    for i in range(5):
        stacks.append(core.capture())
        run_made(core, f"<e{i}>", "e", 0)
    assert len(set(stacks)) == 1


def test_endless_new_code_keeps_memory_bounded(small: ModuleType) -> None:
    """10 times what the tables remember, all different: right every time, and no growth."""
    peak = 0
    sample = []
    for i in range(20000):
        stack = run_made(small, f"<f{i}>", f"g{i}", i % 5)
        if i == 4000:
            peak = small.counts()["mapped_bytes"]
        if i % 199 == 0:
            sample.append((i, stack))
    counts = small.counts()
    assert counts["codes"] >= 20000 and counts["lost"] == 0
    assert counts["mapped_bytes"] <= peak + (1 << 20)
    log = Log(small.log_bytes())
    for i, stack in sample:
        frames = log.resolve(stack)
        assert (frames[0].file, frames[0].name, frames[0].line) == (f"<f{i}>", f"g{i}", i % 5 + 3)
        assert [f.name for f in frames[1:3]] == ["run_made", "test_endless_new_code_keeps_memory_bounded"]


def branching() -> Any:
    """d(f, m, n): f() at the end of a chain of m + 1 calls, whose lines are those of chain(m, n)."""
    branches = "\n".join(f"    if n == {i}: return d(f, m - 1, m * 7 + n) if m else f()" for i in range(64))
    space: dict[str, Any] = {}
    exec(f"def d(f, m, n):\n    n %= 64\n{branches}\n", space)
    return space["d"]


def chain(m: int, n: int) -> list[int]:
    lines = []
    for depth in range(m, -1, -1):
        lines.append(n % 64 + 3)
        n = depth * 7 + n % 64
    return lines[::-1]


def test_many_stacks(core: ModuleType) -> None:
    """More than the first tables hold: they grow, and each stack keeps its one id."""
    d = branching()
    calls = [(m, n) for m in range(40) for n in range(64)] * 3
    before = core.counts()["mapped_bytes"]
    ids = [d(core.capture, m, n) for m, n in calls]
    third = len(calls) // 3
    assert ids[:third] == ids[third : 2 * third] == ids[2 * third :]
    assert len(set(ids)) == third == 2560
    assert core.counts()["mapped_bytes"] > before
    log = Log(core.log_bytes())
    for stack, (m, n) in list(zip(ids, calls, strict=True))[::37]:
        assert [f.line for f in log.resolve(stack)[: m + 1]] == chain(m, n)


def test_more_stacks_than_tables_can_hold(small: ModuleType) -> None:
    """Answers are evicted, definitions forgotten and made again: the lines stay right."""
    d = branching()
    calls = [(m, n) for m in range(10) for n in range(64)] * 4
    ids = [d(small.capture, m, n) for m, n in calls]
    assert small.counts()["stacks"] > 2000 and small.counts()["lost"] == 0
    log = Log(small.log_bytes())
    for stack, (m, n) in zip(ids, calls, strict=True):
        assert [f.line for f in log.resolve(stack)[: m + 1]] == chain(m, n)


def test_tables_at_start_are_small(core: ModuleType) -> None:
    core.capture()
    assert core.counts()["mapped_bytes"] <= 1 << 20


def test_a_full_log_loses_stacks_until_there_is_room(core: ModuleType) -> None:
    def inner() -> int:
        stack: int = core.capture()
        return stack

    known = [core.capture() for _ in range(2)]
    for room in (0, 1, 10, 40):
        core.log_room(room)
        assert [inner() for _ in range(3)] == [STACK_LOST] * 3
    assert core.counts()["lost"] == 12
    core.log_room(-1)
    stacks = [inner() for _ in range(2)]
    assert stacks[0] == stacks[1] >= STACK_FIRST
    log = Log(core.log_bytes())
    assert [f.name.rsplit(".")[-1] for f in log.resolve(stacks[0])[:1]] == ["inner"]
    assert known[0] == known[1] and log.resolve(known[0])[-10:] == log.resolve(stacks[0])[-10:]


def test_what_is_known_needs_no_room(core: ModuleType) -> None:
    stacks = []
    for room in (-1, 0):
        stacks.append(core.capture())
        core.log_room(room)
    assert stacks[0] == stacks[1] >= STACK_FIRST


def test_every_partial_room(core: ModuleType) -> None:
    """Whatever number of bytes is free: all or nothing, and what follows resolves."""
    for room in range(0, 400, 7):
        core.begin()
        core.log_room(room)
        stack = run_made(core, "<partial>", "fn", 1)
        core.log_room(-1)
        again = run_made(core, "<partial>", "fn", 1)
        log = Log(core.log_bytes())
        assert stack == STACK_LOST or log.resolve(stack)[0].name == "fn"
        assert log.resolve(again)[0].name == "fn"


def test_a_new_capture_starts_at_the_first_id(core: ModuleType) -> None:
    def inner() -> int:
        stack: int = core.capture()
        return stack

    seen = []
    for _ in range(3):
        core.begin()
        assert core.counts()["stacks"] == 0 and core.log_bytes() == b""
        seen.append([inner(), inner(), core.name(0), core.name(2)])
        log = Log(core.log_bytes())
        assert log.resolve(seen[-1][0])[0].name.endswith("inner")
        assert log.names[1:] == ["N5torch8autograd9AddBackwardE", "same"]
    assert seen[0] == seen[1] == seen[2]


def test_names(core: ModuleType) -> None:
    first = core.name(0)
    assert first == core.name(0) == core.name(1) == 1, "equal texts at two addresses are one name"
    assert core.name(2) == core.name_text("same") == 2
    assert core.name_text("unique") == core.name_text("uni" + "que") == 3
    core.log_room(0)
    assert core.name(3) == 0 and core.name_text("no room") == 0 and core.name(0) == 1
    core.log_room(-1)
    assert core.name(3) == 4
    assert Log(core.log_bytes()).names[1:] == ["N5torch8autograd9AddBackwardE", "same", "unique", "other"]
    assert core.counts()["names"] == 4


def test_more_names_than_the_lock_free_table_holds(core: ModuleType) -> None:
    ids = [core.name(i) for i in range(100, 12100)]
    assert ids == list(range(1, 12001))
    assert ids == [core.name(i) for i in range(100, 12100)]
    assert Log(core.log_bytes()).names[1:3] == ["n100", "n101"]


def test_none_is_an_answer_too(core: ModuleType) -> None:
    assert core.capture_in_foreign_thread() == STACK_NONE
