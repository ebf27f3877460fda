"""Variables that are not read again, against functions of which that is plain."""

import dis
from types import CodeType

from cuptimem.simulation.last_use import dead_at

SOURCE = """
def straight(a, b):
    c = a + b
    d = c * a
    return d + (
        b)

def loop(net, data):
    total = 0
    for a in data:
        key = net(a)
        out = net(key)
        total += out
    return total

def carried(net, state):
    for _ in range(3):
        out = net(state)
        state = out
    return 1

def handled(net, a):
    b = net(a)
    try:
        net(b)
    except ValueError:
        return a
    return 0

def inner(a):
    b = a + 1
    def later():
        return b
    return later

last = 3
seen = last + 1
kept = seen + 1
print(kept)
def reads():
    return kept
print(1)
"""


def codes() -> dict[str, CodeType]:
    module = compile(SOURCE, "program.py", "exec")
    return {"": module, **{one.co_name: one for one in module.co_consts if isinstance(one, CodeType)}}


CODES = codes()


def dead(function: str, text: str) -> dict[str, int]:
    """By name the line of the last use, at the last instruction of the line with the text."""
    code = CODES[function]
    lines = SOURCE.splitlines()
    line = next(i for i, one in enumerate(lines, 1) if one.strip() == text and i >= code.co_firstlineno)
    ends = [(begin, end) for begin, end, number in code.co_lines() if number == line]
    offsets = [one.offset for one in dis.get_instructions(code)]
    return dict(dead_at(code, max(one for one in offsets if any(begin <= one < end for begin, end in ends))))


def line_of(text: str) -> int:
    return SOURCE.splitlines().index(text) + 1


def test_behind_the_last_use_and_not_within_its_statement() -> None:
    assert "a" not in dead("straight", "d = c * a") and "c" not in dead("straight", "d = c * a")
    behind = dead("straight", "return d + (")
    assert behind["c"] == behind["a"] == line_of("    d = c * a")
    assert not {"b", "d"} & set(behind)


def test_in_a_loop() -> None:
    """What the next iteration binds again is dead from its last use on; a state that it reads is not."""
    assert dead("loop", "total += out")["key"] == line_of("        out = net(key)")
    assert dead("loop", "key = net(a)")["out"] == line_of("        total += out")
    assert "total" not in dead("loop", "key = net(a)")
    assert "state" not in dead("carried", "out = net(state)")


def test_what_others_may_read() -> None:
    """A handler, a function defined there, a function of the module."""
    assert "a" not in dead("handled", "net(b)")
    assert "b" not in dead("inner", "return later")
    behind = dead("", "print(1)")
    assert behind["seen"] == line_of("kept = seen + 1") and "kept" not in behind
