"""A command of ours at the end of the program, which the program interrupts."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from cuptimem.record import own_process


class Interrupt(Exception):
    """What the program's handler raises."""


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[int], None]], None]]:
    """waitpid runs a function with the child's number, and then is interrupted once."""
    waitpid = os.waitpid

    def arrange(first: Callable[[int], None]) -> None:
        def wait(child: int, options: int) -> tuple[int, int]:
            monkeypatch.setattr(os, "waitpid", waitpid)
            first(child)
            raise Interrupt

        monkeypatch.setattr(os, "waitpid", wait)

    yield arrange


def run() -> int | None:
    return own_process.run(["code", "-c", "import time; time.sleep(600)"], os.getcwd(), [], [])


@pytest.mark.parametrize("was_waited_for", [False, True])
def test_an_interrupted_command_is_ended_once(
    interrupted: Callable[[Callable[[int], None]], None], monkeypatch: pytest.MonkeyPatch, was_waited_for: bool
) -> None:
    """Its number may be another process's once it was waited for."""
    children: list[int] = []
    signals: list[int] = []
    kill, waitpid = os.kill, os.waitpid

    def first(child: int) -> None:
        children.append(child)
        if was_waited_for:
            kill(child, signal.SIGKILL)
            waitpid(child, 0)

    def count(child: int, number: int) -> None:
        signals.append(child)
        kill(child, number)

    interrupted(first)
    monkeypatch.setattr(os, "kill", count)
    with pytest.raises(Interrupt):
        run()
    assert signals == ([] if was_waited_for else children)
    with pytest.raises(ChildProcessError):  # no zombie is left
        waitpid(children[0], 0)
