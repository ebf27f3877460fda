"""Captured stacks against CPython's public API: same files, functions, lines and instructions.

To run them with sanitizers (from the root; Python itself is not instrumented):

    export ASAN_OPTIONS=detect_leaks=0
    CUPTIMEM_TEST_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined" \
        LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        python -m pytest tests/unit/frames
    CUPTIMEM_TEST_CFLAGS=-fsanitize=thread LD_PRELOAD=$(gcc -print-file-name=libtsan.so) \
        python -m pytest tests/unit/frames/test_frames_threads.py
"""

import asyncio
import gc
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from frames_support import STACK_FIRST, STACK_NONE, Log

Snapshot = tuple[int, int, list[tuple[str, str, int, int]]]


class Recorder:
    """Takes snapshots and afterwards compares all of them with what the public API said then."""

    def __init__(self, core: ModuleType) -> None:
        self.core = core
        self.taken: list[Snapshot] = []

    def __call__(self, *_: object) -> int:
        self.taken.append(self.core.snapshot())
        return len(self.taken)

    def check(self, at_least: int) -> Log:
        log = Log(self.core.log_bytes())
        for predicted, afresh, expected in self.taken:
            got = [(f.file, f.name, f.line, f.lasti) for f in log.resolve(predicted)]
            assert got == [(file, name, -1 if line is None else line, at) for file, name, line, at in expected]
            assert predicted == afresh
            assert predicted >= STACK_FIRST
        assert len(self.taken) >= at_least
        assert self.core.counts()["lost"] == 0
        return log


def plain(snap: Recorder, n: int) -> None:
    if n > 0:
        plain(snap, n - 1)
    snap()
    if n == 2:
        snap()


def generators(snap: Recorder, n: int) -> None:
    def inner() -> Generator[int, int, int]:
        snap()
        try:
            got = yield 1
            snap()
            yield got
        except KeyError:
            snap()
            yield 3
        finally:
            snap()
        return 4

    def outer() -> Generator[int, int, None]:
        snap()
        result = yield from inner()
        snap(result)

    g = outer()
    next(g)
    g.send(n)
    list(g)
    g = outer()
    next(g)
    g.throw(KeyError("x"))
    g.close()
    alone = inner()
    next(alone)
    del alone  # closes it
    sum(snap() for _ in range(n))


def exceptions(snap: Recorder, n: int) -> None:
    class Context:
        def __enter__(self) -> None:
            snap()

        def __exit__(self, *_: object) -> bool:
            snap()
            return True

    with Context():
        try:
            try:
                raise ValueError(n)
            except ValueError:
                snap()
                [][n]
            finally:
                snap()
        except IndexError as e:
            snap(e)
            raise


def scopes(snap: Recorder, n: int) -> None:
    class Body:
        snap()
        values = [snap() for _ in range(2)]

        def method(self) -> None:
            snap()
            (lambda: snap())()

        @property
        def prop(self) -> int:
            return snap()

        def __del__(self) -> None:
            snap()

        def __eq__(self, other: object) -> bool:
            return snap() > 0

        __hash__ = None  # type: ignore[assignment]

    body = Body()
    body.method()
    _ = body.prop
    _ = body == n
    _ = {snap() for _ in range(2)}, {i: snap() for i in range(2)}, [[snap() for _ in range(2)] for _ in range(2)]
    sorted([3, 1, 2], key=lambda x: (snap(), x)[1])
    list(map(snap, range(2)))
    functools_reduce(snap)
    del body


def functools_reduce(snap: Recorder) -> None:
    import functools

    functools.reduce(lambda a, b: snap(a, b), range(4))
    functools.partial(lambda *_: snap(), 1)()


def executed(snap: Recorder, n: int) -> None:
    source = (
        "\n" * (n % 5)
        + f"def fn_{n}(s):\n    x = 1\n    s(\n        x,\n    )\n    return [s() for _ in (1, 2)]\nfn_{n}(s)\ns()\n"
    )
    exec(compile(source, f"<made {n}>", "exec"), {"s": snap})
    eval("s()", {"s": snap})


def coroutines(snap: Recorder, n: int) -> None:
    async def leaf(depth: int) -> int:
        snap()
        await asyncio.sleep(0)
        snap()
        return await leaf(depth - 1) if depth else 0

    async def stream() -> Any:
        for i in range(2):
            snap()
            yield i
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(leaf(i) for i in range(3)))
        async for _ in stream():
            snap()
        _ = [i async for i in stream()]

    asyncio.run(main())


PARTS: list[Callable[[Recorder, int], None]] = [plain, generators, exceptions, scopes, executed, coroutines]


def mixture(snap: Recorder, seed: int, rounds: int) -> None:
    rng = random.Random(seed)

    def descend(depth: int) -> None:
        if depth > 0:
            descend(depth - 1)
            return
        try:
            rng.choice(PARTS)(snap, rng.randrange(4))
        except IndexError:
            snap()

    for _ in range(rounds):
        descend(rng.randrange(25))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_each_kind_of_frame(core: ModuleType, part: Callable[[Recorder, int], None]) -> None:
    snap = Recorder(core)
    for n in range(4):
        try:
            part(snap, n)
        except IndexError:
            snap()
    snap.check(8)


def test_mixture(core: ModuleType) -> None:
    snap = Recorder(core)
    mixture(snap, 1, 120)
    snap.check(1000)


def test_mixture_during_collections(core: ModuleType) -> None:
    snap = Recorder(core)
    busy = False

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal busy
        if not busy:
            busy = True
            snap()
            busy = False

    threshold = gc.get_threshold()
    gc.freeze()  # what other tests left need not be looked through each time
    gc.callbacks.append(on_collection)
    gc.set_threshold(5, 5, 5)
    try:
        mixture(snap, 2, 40)
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()
        gc.callbacks.remove(on_collection)
    assert sum("on_collection" in s[2][1][1] for s in snap.taken if len(s[2]) > 1) > 50
    snap.check(500)


@pytest.mark.parametrize("install", ["settrace", "setprofile"])
def test_mixture_while_traced(core: ModuleType, install: str) -> None:
    snap = Recorder(core)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != threading.__file__:
            snap.taken.append(core.snapshot())
        return trace

    before = sys.gettrace()
    getattr(sys, install)(trace)
    try:
        mixture(snap, 3, 8)
    finally:
        getattr(sys, install)(None)
        sys.settrace(before)
    snap.check(500)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is 3.12+")
def test_mixture_while_monitored(core: ModuleType) -> None:
    snap = Recorder(core)
    monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    monitoring.use_tool_id(4, "cuptimem tests")
    try:
        monitoring.register_callback(4, monitoring.events.LINE, lambda *_: snap.taken.append(core.snapshot()))
        monitoring.set_events(4, monitoring.events.LINE)
        mixture(snap, 4, 20)
    finally:
        monitoring.set_events(4, 0)
        monitoring.free_tool_id(4)
    snap.check(500)


def test_mixture_in_threads(core: ModuleType) -> None:
    snaps = [Recorder(core) for _ in range(6)]
    failures: list[BaseException] = []

    def work(i: int) -> None:
        try:
            mixture(snaps[i], i, 20)
        except BaseException as e:  # shown below
            failures.append(e)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    for snap in snaps:
        snap.check(100)


def test_two_interleaved_tasks(core: ModuleType) -> None:
    ids: dict[str, list[int]] = {"a": [], "b": []}

    async def task(name: str) -> None:
        for _ in range(3):
            ids[name].append(core.capture())
            await asyncio.sleep(0)

    async def a() -> None:
        await task("a")

    async def b() -> None:
        await task("b")

    async def main() -> None:
        await asyncio.gather(a(), b())

    asyncio.run(main())
    log = Log(core.log_bytes())
    for name in "ab":
        assert len(set(ids[name])) == 1
        frames = log.resolve(ids[name][0])
        assert [f.name.rsplit(".")[-1] for f in frames[:2]] == ["task", name]


def test_equal_stacks_have_one_id_and_others_another(core: ModuleType) -> None:
    first = [core.capture() for _ in range(3)]
    other = core.capture()
    assert len(set(first)) == 1
    assert other != first[0]
    assert core.counts()["stacks"] == max(*first, other) - STACK_FIRST + 1


def test_deep_recursion_keeps_the_innermost_frames(core: ModuleType) -> None:
    def descend(n: int) -> int:
        return core.capture() if n == 0 else descend(n - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        deep, deeper, again = descend(900), descend(1500), descend(900)
        shallow = descend(20)
        twice = [descend(1000) for _ in range(2)]
    finally:
        sys.setrecursionlimit(limit)
    assert deep == deeper == again == twice[0] == twice[1]
    log = Log(core.log_bytes())
    frames = log.resolve(deep)
    assert len(frames) == 513
    assert frames[-1].flags == 1 and frames[-1].name == "" and frames[-1].lasti == 0
    assert all(f.name.endswith("descend") and f.flags == 0 for f in frames[:-1])
    assert all(f.flags == 0 for f in log.resolve(shallow))
    assert len(log.resolve(shallow)) < 200


@pytest.mark.parametrize("depth", [505, 508, 509, 510, 511, 512, 513, 514, 515, 520])
def test_depths_around_the_bound(core: ModuleType, depth: int) -> None:
    def descend(n: int) -> tuple[Snapshot, Snapshot]:
        return (core.snapshot(), core.snapshot()) if n == 0 else descend(n - 1)

    got: list[tuple[Snapshot, Snapshot]] = []
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        thread = threading.Thread(target=lambda: got.extend((descend(depth - 6), descend(depth - 6))))
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
    log = Log(core.log_bytes())
    for predicted, afresh, expected in [*got[0], *got[1]]:
        frames = log.resolve(predicted)
        assert predicted == afresh
        kept = frames[:-1] if frames[-1].flags else frames
        assert [(f.file, f.name, f.line, f.lasti) for f in kept] == expected[: len(kept)]
        # The interpreter's own frames (a call from C) take a level too, so a few less may be kept.
        assert len(kept) == len(expected) if not frames[-1].flags else 505 <= len(kept) <= 512


def test_without_python_frames(core: ModuleType) -> None:
    assert core.capture_in_foreign_thread() == STACK_NONE
    assert core.counts()["stacks"] == 0


def test_top_says_whether_python_moved(core: ModuleType) -> None:
    def inner() -> tuple[int, int]:
        return core.top()  # type: ignore[no-any-return]

    tops = [core.top() for _ in range(2)]
    assert tops[0] == tops[1] != core.top()
    assert inner()[0] not in (0, core.top()[0])


def test_names_of_every_alphabet(core: ModuleType) -> None:
    expected = []
    got = []
    for text in ["plain", "größe", "函数", "\U0001d4d5un", "mixed_é函\U0001d4d5"]:
        name = f"fn_{text}"
        file = f"/tmp/{text}.py"
        space: dict[str, Any] = {}
        exec(compile(f"def {name}(f): return f()", file, "exec"), space)
        function = next(v for k, v in space.items() if k.startswith("fn_"))
        expected.append((file, function.__qualname__))
        got.append(function(core.capture))
    log = Log(core.log_bytes())
    assert [(log.resolve(i)[0].file, log.resolve(i)[0].name) for i in got] == expected


def test_strange_strings(core: ModuleType) -> None:
    class Str(str):
        pass

    def function(f: Callable[[], int]) -> int:
        return f()

    code = function.__code__
    ids = []
    for file in ["\udc80bad", "x" * 10000, "é" * 4096, "with\0nul", Str("sub"), ""]:
        function.__code__ = code.replace(co_filename=file)
        ids.append(function(core.capture))
    log = Log(core.log_bytes())
    files = [log.resolve(i)[0].file for i in ids]
    assert files == ["\ufffdbad", "x" * 4096, "é" * 2048, "with\0nul", files[4], ""]
    assert files[4] in ("?", "sub")  # code.replace may make a plain str of it


def test_line_tables_too_big_for_a_record(core: ModuleType) -> None:
    lines = "".join(f"    x = ({i},\n  {i % 7})\n" for i in range(30000))
    space: dict[str, Any] = {}
    exec(compile(f"def big(f):\n    a = f()\n{lines}    return a, f()\n", "<big>", "exec"), space)
    first, last = space["big"](core.capture)
    log = Log(core.log_bytes())
    assert core.log_longest() <= 128 * 1024
    assert len(log.codes[log.stacks[first].code].lines) > 100000
    assert log.resolve(first)[0].line == 2
    assert log.resolve(last)[0].line == -1 and log.resolve(last)[0].name == "big"


def test_a_stack_survives_the_process_as_written(core: ModuleType, tmp_path: Path) -> None:
    """The columns in the copied line tables are CPython's: positions decode equal to co_positions."""
    core.capture()
    log = Log(core.log_bytes())
    code = test_a_stack_survives_the_process_as_written.__code__
    mine = next(c for c in log.codes if c.name == code.co_qualname)
    assert mine.lines == code.co_linetable and mine.first_line == code.co_firstlineno


def test_before_the_first_capture_and_at_exit() -> None:
    """Stacks are NONE until begin(); captures in atexit handlers and in module teardown do no harm."""
    program = f"""
import atexit, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import frames_support
core = frames_support.build()
assert core.capture() == 0 and core.name(0) == 0 and core.top() == (0, 0)
core.begin()
class Late:
    def __del__(self, capture=core.capture):
        capture()
late = Late()
sys.late = Late()
atexit.register(lambda: print(core.capture() >= 2))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
