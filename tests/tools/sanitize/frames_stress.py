"""Interning from many threads without the GIL, in tables so small that everything in them happens all the time: they
grow, fill, forget; codes come and go, epochs move on, modules fold, and the log has no room.

    frames_stress.py build                   compiles the extension
    frames_stress.py SEED THREADS ROUNDS     prints: captures, threads, rounds, stacks, epochs, lost

Run with the sanitizer's library preloaded and CUPTIMEM_TEST_CFLAGS saying which (sanitize.py)."""

import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "frames"))

import frames_support
from frames_support import STACK_LOST, Log

BRANCHES = 300
LIMITS = ["INTERN_MAX_STACKS=2000u", "INTERN_COLLAPSE_AFTER=300u", "FLAT_SETS_AT_START=32", "FLAT_SETS_MAX=64"]


class Module:
    """Stands for torch.nn.Module: its calls are part of a stack's identity."""

    def _wrapped_call_impl(self, f: Callable[[], Any]) -> Any:
        return f()


def make_branches() -> Callable[[Callable[[], int], int], int]:
    space: dict[str, Any] = {}
    lines = "\n".join(f"    if n == {i}: return f()" for i in range(BRANCHES))
    exec(compile(f"def branch(f, n):\n{lines}\n", "<branches>", "exec"), space)
    result: Callable[[Callable[[], int], int], int] = space["branch"]
    return result


class Round:
    def __init__(self, core: Any, seed: int, threads: int) -> None:
        self.core, self.seed, self.threads = core, seed, threads
        self.captures = self.lost = 0
        self.failures: list[str] = []
        self.lock = threading.Lock()
        self.lines: list[tuple[int, int]] = []  # stack, the line it was captured at
        self.made: list[tuple[int, str]] = []  # stack, its function
        self.names: list[tuple[int, str]] = []

    def in_branches(self, who: int) -> None:
        """The same stacks in every thread, each in an order of its own."""
        branch, core = make_branches_once(), self.core
        order = list(range(BRANCHES))
        random.Random(self.seed * 100 + who).shuffle(order)
        self._note(self.lines, [(branch(core.capture_without_gil, n), n + 2) for n in order])

    def in_modules(self, who: int) -> None:
        modules = [Module() for _ in range(40)]
        for module in modules:
            module._wrapped_call_impl(self.core.capture_without_gil)
        with self.lock:
            self.captures += len(modules)

    def with_new_codes(self, who: int) -> None:
        """Codes that are gone when the next one is made, perhaps in their place."""
        seen = []
        for n in range(60):
            space: dict[str, Any] = {"f": self.core.capture_without_gil}
            name = f"made_{who}_{n}"
            exec(compile(f"def {name}(): return f()\nresult = {name}()", f"<{name}>", "exec"), space)
            seen.append((space["result"], name))
        self._note(self.made, seen)

    def with_names(self, who: int) -> None:
        numbers = range(1000 + who % 2 * 50, 1100 + who % 2 * 50)
        self._note(self.names, [(self.core.name(n), f"n{n}") for n in numbers])

    def _note(self, kept: list[Any], seen: list[Any]) -> None:
        with self.lock:
            self.captures += len(seen)
            kept += seen

    def run(self) -> None:
        works = [self.in_branches, self.in_branches, self.with_new_codes, self.in_modules, self.with_names]
        start = threading.Barrier(self.threads)

        def go(who: int) -> None:
            start.wait()
            try:
                works[who % len(works)](who)
            except BaseException as error:  # shown by main
                self.failures.append(repr(error))

        threads = [threading.Thread(target=go, args=(who,)) for who in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.failures, self.failures[0]

    def check(self) -> None:
        """Every id stands for what it was given for."""
        log = Log(self.core.log_bytes())
        for stack, line in self.lines:
            if stack == STACK_LOST:
                self.lost += 1
            else:
                assert log.resolve(stack)[0].line == line, (stack, line)
        for stack, name in self.made:
            if stack == STACK_LOST:
                self.lost += 1
            else:
                assert log.resolve(stack)[0].name == name, (stack, name)
        for number, name in self.names:
            if number == 0:
                self.lost += 1
            else:
                assert log.names[number] == name, (number, name)


_branches: list[Callable[[Callable[[], int], int], int]] = []


def make_branches_once() -> Callable[[Callable[[], int], int], int]:
    return _branches[0]


def main() -> None:
    defines = [f"-DCM_{limit}" for limit in LIMITS]
    if sys.argv[1:] == ["build"]:
        frames_support.compile_extension("frames_testing_small", *defines)
        return
    seed, threads, rounds = map(int, sys.argv[1:])
    core: Any = frames_support.build("frames_testing_small", *defines)
    sys.setswitchinterval(1e-5)
    captures = stacks = epochs = lost = 0
    for number in range(rounds):
        _branches[:] = [make_branches()]
        core.begin()
        core.frames_module_call(Module._wrapped_call_impl.__code__ if number % 2 else None)
        core.log_room(-1 if number % 3 else 6000)  # every third round the log has no room for it all
        one = Round(core, seed + number, threads)
        one.run()
        one.check()
        if number % 3 == 0:
            assert one.lost > 0, "the log was to run full"
            core.log_room(-1)  # what was lost is found once there is room
            again = Round(core, seed + number, threads)
            again.run()
            again.check()
            assert again.lost == 0
            captures += again.captures
        counts = core.counts()
        captures, lost = captures + one.captures, lost + one.lost
        stacks, epochs = stacks + counts["stacks"], epochs + counts["epochs"]
    core.frames_module_call(None)
    print(captures, threads, rounds, stacks, epochs, lost)


if __name__ == "__main__":
    main()
