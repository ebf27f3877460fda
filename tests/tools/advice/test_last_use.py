"""Variables that a `del` lets go of early: with it at every place that is found, a program does what it did without."""

import ast
import dis
import re
from types import CodeType
from typing import Any

import pytest

from cuptimem.simulation.deletions import Deletions, delete

FILE = "program.py"
# f notes what it is given and returns a number; it raises for odd sums where `bad` is true. g makes lists of it.
FUNCTIONS = """
import contextlib

log = []
bad = False

def f(*values):
    log.append(values)
    if bad and sum(one for one in values if isinstance(one, int)) % 2:
        raise ValueError(values)
    return len(log) + 1

def g(n):
    return [f(n, i) for i in range(n)]

def straight(n):
    a = f(n)
    b = f(
        a)
    return f(b)

def loop(n):
    total = state = f()
    for i in g(n):
        key = f(i)
        out = f(key)
        total += out
        state = f(state)
    return total

def read_in_a_loop(n):
    for i in range(n):
        mask = f(i)
        total = 0
        for j in range(3):
            total += f(mask)
        y = f(total)
        f(y)

def read_in_one_branch(n):
    for i in range(n):
        loss = f(i)
        other = f(loss)
        if i >= 2:
            loss = f(loss, other)
        f(loss)
        if i % 2 == 0:
            f(other)
    return n

def bound_in_one_branch(n):
    if n > 2:
        a = f(n)
        b = f(a)
    elif n > 1:
        b = a = f(1)
        f(a)
    else:
        b = 3
    f(b)
    if n > 2:
        return f(a)
    return f()

def one_line(n):
    a = f(n); b = f(a)
    for i in range(n): c = f(b)
    if n: d = f(b); e = f(d)
    return f()

def while_else(n):
    a = f(n)
    while n > 0:
        b = f(a)
        n -= 1
        if f(b) > 9:
            break
        c = f(n)
    else:
        f(a)
    return f()

def forever(n):
    last = f(n)
    while True:
        new = f(last)
        if new > 6 + n:
            break
        if new % 2:
            continue
        last = new
        f()
    return f()

def passed(n):
    features = f(0)
    for i in range(n):
        try:
            h = f(i)
            features = f(h)
        except ValueError:
            pass
        f(0)
        f(features, features)
    return n

def handled(n):
    a = b = f(0)
    try:
        a = f(n)
        b = f(a)
    except ValueError as error:
        f(str(error), b)
        c = a
    except TypeError:
        return f()
    else:
        c = f(b, b)
        f(a, a)
    finally:
        f(0)
    d = f(c, c)
    return f()

def at_last(n):
    a = f(0)
    try:
        b = f(n)
        if n > 2:
            return f(b, b)
        for i in range(n):
            try:
                c = f(i)
                if c > 5:
                    continue
                f(c, c)
            finally:
                f(a, a)
                d = f(0)
                f(d, d)
    finally:
        f(a, a)
        a = f(0)
    return f()

def ended_by_with(n):
    for i in range(n):
        with contextlib.suppress(ValueError):
            goal = f(0)
            goal = f(i)
            f()
        with contextlib.nullcontext(f(0)) as one, contextlib.suppress(ValueError):
            two = f(one, one)
            f(i)
        try:
            f(goal, two)
        except NameError:
            f("none")
    return f()

def raised_by_with(n):
    for i in range(n):
        with contextlib.nullcontext():
            goal = f(i)
        f(goal, goal)
        f(0)
    return f()

def matched(n):
    for one in [n, [n, 2], {"k": n}, "x"]:
        match one:
            case [a, *rest]:
                f(a, a)
                f(tuple(rest))
            case {"k": b, **others}:
                f(b, b)
            case int() as a:
                f(a, a)
            case _:
                a = 2
        f(0)
    return f()

def generated(n):
    def values(n):
        a = f(n)
        try:
            b = f(a, a)
            c = yield b
            f(a, b)
            d = yield c
        except RuntimeError:
            yield f(n, a)
        finally:
            f(a, n)
    found = values(n)
    f(next(found))
    f(found.send(n), 0) if n > 1 else f(found.throw(RuntimeError()), 0)
    found.close()
    return f()

def waited(n):
    async def one(n):
        a = f(n)
        return a
    async def all(n):
        a = f(0)
        for i in range(n):
            try:
                b = await one(i)
                c = f(b, b)
            except ValueError:
                f(a, a)
        f(0)
        return f()
    running = all(n)
    try:
        running.send(None)
    except StopIteration as end:
        return f(end.value, end.value)

def early(n):
    a = f(n)
    if n > 2:
        b = f(a)
        return f(b)
    for i in range(n):
        if i > 1:
            return f(a)
        c = f(i)
        f(c)
    return f()

def walrus(n):
    while (m := f(n)) < 6:
        k = f(m)
        n += k
    return f() if (z := f(n)) else z

def augmented(n):
    a = b = f(n)
    a += f(b)
    b -= 1
    a *= 2
    f(a)
    return f()

def comprehended(n):
    a, b, x = f(n), f(n), f(n)
    found = [f(a, x) for x in range(n)]
    f(x)
    late = lambda: f(b)
    f(tuple(found))
    x = [y for y in range(f(n) % 3) if y]
    f(len(x))
    late()
    return f()

def deleted_by_itself(n):
    a, b, c = f(n), f(n), f(n)
    f(a)
    if n > 1:
        del a
    else:
        del b
    f(c)
    del c
    c = f(0)
    for a in range(n):
        f(c)
        del a
    return f()

def by_name(n):
    a = f(n)
    f(a)
    f(0)
    return sorted(locals())

class Base:
    def __init__(self, n):
        f(n)

class Derived(Base):
    a = f(0)
    f(a)
    def __init__(self, n):
        self.__b = f(0)
        __c = f(n)
        f(__c, self.__b)
        super().__init__(n)

def derived(n):
    return f(Derived(n).a)

def declared(n):
    global seen
    def inner():
        nonlocal a
        a = f(0)
    a = f(n)
    seen = f(a)
    inner()
    return seen
"""
# Of functions all places, as the program has them: "name < statement".
EXPECTED: dict[str, set[str]] = {
    "straight": {"n < a = f(n)", "a < b = f("},
    "read_in_a_loop": {
        "n < for i in range(n):",
        "i < mask = f(i)",
        "mask < for j in range(3):",
        "total < y = f(total)",
        "y < f(y)",
    },
    "read_in_one_branch": {"loss < f(loss)", "other < if i % 2 == 0:", "i < if i % 2 == 0:"},
    "raised_by_with": {"n < for i in range(n):", "i < goal = f(i)", "goal < f(goal, goal)"},
    "by_name": set(),
}


@pytest.fixture(scope="module")
def found() -> list[tuple[str, int]]:
    return list(Deletions(FUNCTIONS, FILE, is_main=False).all())


def ran(tree: ast.Module | str) -> dict[str, Any]:
    """What each function does, with each input: what it calls, and what it returns or raises."""
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(tree, FILE, "exec"), program)
    done: dict[str, Any] = {}
    for name in re.findall(r"^def (\w{2,})", FUNCTIONS, re.MULTILINE):
        for n, program["bad"] in [(n, bad) for n in range(5) for bad in (False, True)]:
            program["log"].clear()
            try:
                result = program[name](n)
            except (ValueError, NameError) as error:
                result = f"{type(error).__name__}: {error}"
            done[f"{name}({n}), {program['bad']}"] = result, list(program["log"])
    return done


def test_a_del_changes_nothing(found: list[tuple[str, int]]) -> None:
    """Each alone, and all together."""
    plain = ran(FUNCTIONS)
    assert any(isinstance(result, str) for result, _ in plain.values())
    for places in (*([one] for one in found), found):
        tree = ast.parse(FUNCTIONS)
        assert delete(tree, FUNCTIONS, places) == len(places)
        now = ran(tree)
        assert now == plain, (places, [key for key in plain if now[key] != plain[key]])


def test_each_place_where_that_is_plain(found: list[tuple[str, int]]) -> None:
    lines = FUNCTIONS.splitlines()
    for function in ast.parse(FUNCTIONS).body:
        if isinstance(function, ast.FunctionDef) and function.name in EXPECTED:
            last = function.end_lineno or 0
            mine = {f"{name} < {lines[line - 1].strip()}" for name, line in found if function.lineno < line <= last}
            assert mine == EXPECTED[function.name]
    assert len(found) > 60


def places(source: str, is_main: bool = True) -> set[str]:
    lines = source.splitlines()
    return {f"{name} < {lines[line - 1].strip()}" for name, line in Deletions(source, FILE, is_main).all()}


def test_lines_with_more_than_one_statement() -> None:
    """There a line does not say where the `del` goes."""
    source = "def f(a):\n    b = a; c = b + 1\n    if c: d = c\n    else: d = len(a)\n"
    source += "    try: print(d)\n    finally: e = 2\n"
    assert places(source) == {"a < if c: d = c", "c < if c: d = c", "d < try: print(d)", "e < try: print(d)"}


SCRIPT = """
a = 1
b = a + 1
c = b + 1
d = c
def reads():
    return b
class Made:
    e = 3
    f = e
print(d)
"""


def test_variables_of_a_module() -> None:
    """Those of the script alone, and what its functions do not read; a class never lets go of its own."""
    assert places(SCRIPT) == {"a < b = a + 1", "c < d = c", "d < print(d)"}
    assert not places(SCRIPT, is_main=False)


@pytest.mark.parametrize(
    "line",
    ["globals()", "def g(): return eval('a')", "import __main__", "print(vars())", "import sys; sys.modules[__name__]"],
)
def test_variables_that_are_read_by_name(line: str) -> None:
    assert not places(SCRIPT + line + "\n")


def code_of(module: CodeType, name: str) -> CodeType:
    return next(one for one in module.co_consts if isinstance(one, CodeType) and one.co_name == name)


def at(source: str, name: str, text: str) -> dict[str, str]:
    """In the last call of the line with the text, the deleted names with the statements that are before it."""
    code, lines = code_of(compile(source, FILE, "exec"), name), source.splitlines()
    line = next(i for i, one in enumerate(lines, 1) if i > code.co_firstlineno and one.strip() == text)
    calls = [one for one in dis.get_instructions(code) if one.opname.startswith("CALL") and one.positions]
    offset = max(one.offset for one in calls if one.positions is not None and one.positions.lineno == line)
    found = Deletions(source, FILE, is_main=False).deleted(code, offset)
    return {one: lines[number - 1].strip() for one, number in found}


@pytest.mark.parametrize(
    ("function", "text", "expected"),
    [
        ("loop", "state = f(state)", {"i": "key = f(i)", "key": "out = f(key)", "out": "total += out"}),
        ("read_in_a_loop", "total += f(mask)", {"y": "f(y)"}),
        ("read_in_a_loop", "y = f(total)", {"mask": "for j in range(3):", "y": "f(y)"}),
        ("read_in_one_branch", "loss = f(loss, other)", {}),
        ("read_in_one_branch", "loss = f(i)", {"loss": "f(loss)", "other": "if i % 2 == 0:"}),
        ("passed", "f(features, features)", {"i": "try:", "h": "features = f(h)"}),
    ],
)
def test_what_a_running_function_holds_in_vain(function: str, text: str, expected: dict[str, str]) -> None:
    """Deleted on every way to an instruction; not bound yet is as good."""
    mine = at(FUNCTIONS, function, text)
    assert {name: mine[name] for name in expected} == expected
    assert not mine.keys() & {"mask", "other", "features", "h"} - expected.keys()


def test_other_source_than_the_code_was_made_of() -> None:
    code = code_of(compile("def a(n):\n    b = n\n    print(b)\n    print()\n", FILE, "exec"), "a")
    found = Deletions("def a(n):\n    b = n\n    print(2)\n    print()\n", FILE, is_main=False)
    assert all(found.deleted(code, offset) == () for offset in range(0, len(code.co_code), 2))
