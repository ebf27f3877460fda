"""What the program raises while code of ours runs is the program's, whatever its class and wherever it comes."""

import contextlib
import ctypes
import functools
import gc
import os
import queue
import signal
import sysconfig
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem import _core, environ
from cuptimem.errors import own
from cuptimem.objects import living, walks
from cuptimem.record import filling, instruments, late_import, recorder
from tests.build import build

torch = pytest.importorskip("torch", reason="the torch-free run leaves these out")
pytestmark = pytest.mark.torch

FOLDER = os.path.dirname(cuptimem.__file__) + os.sep
BYTES = FOLDER.encode()  # as long as C has its address
MOST = 12  # places at which one scenario is interrupted; all of them with --long


class Alarm(Exception):
    pass


@pytest.fixture(scope="session")
def interrupt() -> ctypes.PyDLL:
    source = Path(__file__).with_name("interrupt_at.c")
    library = build("interrupt_at.so", [source], f"-I{sysconfig.get_paths()['include']}", "-O1", "-fPIC", "-shared")
    loaded = ctypes.PyDLL(str(library))
    loaded.begin.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_int)
    loaded.begin.restype = None
    loaded.end.restype = ctypes.c_long
    return loaded


@pytest.fixture
def set_handler() -> Iterator[Callable[[Any], None]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler) and None
    signal.signal(signal.SIGUSR1, before)


class Job:
    """As programs have them: a handler that raises what our code catches in its own affairs."""

    kind: type[BaseException] = TimeoutError

    def method(self, number: int, frame: object) -> None:
        raise self.kind("of the program")

    def __call__(self, number: int, frame: object) -> None:
        self.method(number, frame)


def raises(kind: type[BaseException], number: int, frame: object) -> None:
    raise kind("of the program")


def gives_up_its_place(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise TimeoutError("of the program")


def takes_anything(*arguments: object) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    raise Alarm


HANDLERS = {
    "method": Job().method,
    "object": Job(),
    "partial": functools.partial(raises, RuntimeError),
    "OSError": functools.partial(raises, OSError),
    "AttributeError": functools.partial(raises, AttributeError),
    "MemoryError": functools.partial(raises, MemoryError),
    "cuptimem.Error": functools.partial(raises, cuptimem.Error),
    "KeyboardInterrupt": functools.partial(raises, KeyboardInterrupt),
    "SystemExit": functools.partial(raises, SystemExit),
    "gives up its place": gives_up_its_place,
    "takes anything": takes_anything,
}


def attempt(error: BaseException | None) -> BaseException | None:
    """Our code, interrupted or failing: what leaves it."""
    try:
        namespace: dict[str, Any] = {"own": own, "signal": signal, "error": error}
        exec(compile(OURS, FOLDER + "record/made_up.py", "exec"), namespace)
        namespace["work"]()
    except BaseException as left:
        return left
    return None


OURS = """
def work():
    try:
        if error is None:
            signal.raise_signal(signal.SIGUSR1)
        else:
            raise error
    except own(Exception, KeyboardInterrupt, SystemExit):
        pass
"""


@pytest.mark.parametrize("name", HANDLERS)
def test_what_a_handler_raises_passes(set_handler: Callable[[Any], None], name: str) -> None:
    set_handler(HANDLERS[name])
    assert attempt(None) is not None


OURS_FAIL = [kind("ours") for kind in (RuntimeError, OSError, ValueError, MemoryError, cuptimem.Error, AttributeError)]


@pytest.mark.parametrize(
    "error", [*OURS_FAIL, Alarm("of a library in C"), queue.Empty(), MemoryError(), StopIteration(), AssertionError()]
)
def test_our_own_failures_stay(set_handler: Callable[[Any], None], error: Exception) -> None:
    set_handler(Job())
    assert attempt(error) is None


@pytest.mark.parametrize("error", [Alarm(), TimeoutError(), ValueError()])
def test_what_another_thread_raises_passes(error: Exception) -> None:
    """PyThreadState_SetAsyncExc makes an instance of a class, without arguments."""
    assert attempt(error) is error


def test_a_class_sent_to_a_thread_reaches_its_program() -> None:
    reached: list[BaseException] = []
    ready, sent = threading.Event(), threading.Event()
    namespace: dict[str, Any] = {"own": own, "ready": ready, "sent": sent}
    body = (
        "def work():\n    try:\n        ready.set()\n        while True:\n            len(())\n"
        "    except own(Exception):\n        pass\n"
    )
    exec(compile(body, FOLDER + "record/made_up.py", "exec"), namespace)

    def program() -> None:
        try:
            namespace["work"]()
        except TimeoutError as error:
            reached.append(error)

    thread = threading.Thread(target=program)
    thread.start()
    ready.wait()
    sends = ctypes.pythonapi.PyThreadState_SetAsyncExc
    assert sends(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeoutError)) == 1
    thread.join()
    assert len(reached) == 1


# --- everywhere ---------------------------------------------------------------------------------------------


def note() -> None:
    filling.note(_core, living.all_objects())


def at_the_end() -> None:
    instruments.look_at_the_end(_core)


def walk() -> None:
    walks.record(living.find(torch, living.all_objects()))


def window() -> None:
    with cuptimem.profile():
        torch.empty(10)


def environment() -> None:
    environ.get("RANK")


def watch_imports() -> None:
    watch = late_import.ImportWatch({"torch": lambda module: None}, lambda what, error: None)
    watch.start()
    watch.stop()


@pytest.mark.scaled
@pytest.mark.parametrize("within", [note, at_the_end, walk, window, environment, watch_imports, None])
def test_a_handler_is_heard_wherever_it_comes(
    interrupt: ctypes.PyDLL,
    set_handler: Callable[[Any], None],
    long: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    within: Callable[[], None] | None,
) -> None:
    """The signal comes before each line of ours in turn. A recording around it goes on, and is complete."""
    kept = [torch.empty(16) for _ in range(8)], deque([torch.empty(16)] * 8, maxlen=99)
    scenario = within or window
    set_handler(Job())
    gc.collect()
    gc.freeze()  # what was alive before is no candidate: the scenario is short
    monkeypatch.setattr(living, "with_frozen", lambda found: found)  # a loop over millions, else nearly every place
    try:
        with cuptimem.profile(tmp_path / "run.cmem") if within else contextlib.nullcontext() as prof:
            scenario()
            interrupt.begin(BYTES, 0, signal.SIGUSR1)
            scenario()
            lines = interrupt.end()
            assert lines > 3
            places = 0
            for line in range(1, lines + 1, 1 if long else lines // MOST + 1):
                heard = False
                interrupt.begin(BYTES, line, signal.SIGUSR1)
                try:
                    scenario()
                    signal.getsignal(signal.SIGUSR1)  # a check, where the last line's was the last
                except TimeoutError:  # not kept: it would hold generators, which end in the next round
                    heard = True
                finally:
                    passed = interrupt.end()
                assert heard == (passed >= line), line  # now and then there are fewer lines than at first
                places += heard
                assert recorder.active() is (within is not None)
            assert places > 3
            scenario()
    finally:
        gc.unfreeze()
    assert not recorder.active() and gc.isenabled() and not recorder._lock._is_owned()  # type: ignore[attr-defined]
    if prof is not None:
        assert prof.report.complete and not any(astuple(prof.report.lost))
    assert kept
