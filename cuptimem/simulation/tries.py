"""Tries changes of a program: the unchanged script runs for a few steps with one change put in from outside.

    tries.run("train.py", ["--batch", "8"], ["autocast", "checkpoint=blocks.*", "fused+zero_grad_late"])

Each try is a fork of one process that has imported torch (try_server.py), on the simulated device or on the CPU. What
the allocator counts is the answer. A change that found nothing to change is "not applied"; an exception says that it
does not work with this program. Weights have no initial values on the simulated device: nothing there depends on them.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cuptimem import environ, interpreter
from cuptimem.errors import Error
from cuptimem.output.text.words import size
from cuptimem.record import autostart
from cuptimem.report.stacks import Frame
from cuptimem.simulation import api, changes, launch, try_imports
from cuptimem.simulation.child import SETTINGS
from cuptimem.simulation.questions import NO_LIMIT

STEPS = 3  # the first makes the optimizer's states, the second has them in forward and backward, the third is a spare
TIMEOUT = 120.0  # seconds for a try
NOTHING = "it allocated nothing on the simulated device"
CPU = "cpu"

_SERVER = ("-P", "-W", "ignore", "-m", "cuptimem.simulation.try_server")
_ERRORS = "server.txt"
_SAME = 0.01  # of the peak: what a run with readers may differ by
_TAIL = 4096  # bytes of what the program printed


@dataclass(frozen=True, slots=True)
class Tried:
    """What a try found. Neither error nor why_not: the peak is that of the program with the change."""

    change: str  # "" for the program as it is
    peak_bytes: int | None  # in tensors; None where it is not known, as of a change that was not applied
    reserved_bytes: int | None  # None on the CPU as well
    applied: int  # how often the change did something
    error: str | None = None  # it does not work with this program, and why
    why_not: str = ""  # it was not applied, and why
    steps: int = 0  # of the first optimizer that got so far
    cpu_seconds: float = 0.0
    output: str = ""  # the end of what the program printed, where it failed
    ooms: int = 0  # requests that PyTorch's allocator refused, whether the program caught that or not
    beside_bytes: int = 0  # what the device had in use in the end that is not PyTorch's: its context and libraries
    timed_out: bool = False
    write: str = ""  # what was put in, where that is not what advice of a recording says to write
    cost: str = ""  # of that
    frame: Frame | None = None
    unread: str = ""  # of the program as it is: why it is not known what reads its blocks

    @property
    def is_answer(self) -> bool:
        return self.error is None and not self.why_not


def run(
    program: str,
    args: Sequence[str] = (),
    tried: Sequence[str] | None = None,
    *,
    steps: int | None = STEPS,
    device: str | launch.Setup = "h100",
    timeout: float = TIMEOUT,
    trace: str = "",
    readers: str = "",
    operators: Callable[[], Sequence[changes.Operator]] = tuple,
    places: Callable[[], Mapping[str, str]] = dict,
    progress: Callable[[int, int, str], None] = lambda number, total, change: None,
) -> list[Tried]:
    """The program as it is, and with each of the changes; changes that go together are written A+B=VALUE.

    program: a script, "-m" or "-c"; args: what follows. tried: None for the usual ones. steps: of its optimizer, behind
    which a try ends; None: it runs to its end, as one without an optimizer does, and as all tries do where a change
    acts in evaluation. device: as Server has it. trace: the program as it is is recorded there, "" for
    nowhere. readers: on the simulated device it runs once more with readers, which are written there, and recorded
    beside them (.cmem). operators: asked behind that, for what in_place is about in the place of modules; places: for
    the values of changes by lines of the program (changes/release.py, evaluation.py). progress is called with the
    number of each try, their total and the change. If the program as it is fails, nothing else is tried.

    Raises Error where nothing can be tried at all: no such change, no torch for that device.
    """
    if changes.need_evaluation(tried or ()):  # raises Error where there is no such change, too
        steps = None
    words = [program, *args]
    with Server(device, try_imports.of_program(words)) as server:
        progress(0, len(tried or changes.KINDS) + 1, "")
        found = [server.run(words, "", steps, timeout, trace=trace)]
        if not found[0].is_answer:
            return found
        server.import_what_was_used()
        in_place: Sequence[changes.Operator] = ()
        if readers and device != CPU:
            read = server.run(words, "", steps, timeout, trace=f"{readers}.cmem", readers=readers)
            found[0] = replace(found[0], unread=_unread(found[0], read))
            in_place = () if found[0].unread else operators()
        chosen = changes.usual(found[0].steps > 0) if tried is None else tried
        if tried is None and readers and "no_grad" not in chosen:  # which a training may lack within its steps, too
            chosen = [*chosen, "no_grad"]
        values: Mapping[str, str] = {}
        if readers and device != CPU and not found[0].unread:
            values = places()
        for number, change in enumerate(chosen, 1):
            progress(number, len(chosen) + 1, change)
            given = dict(changes.parse(change))  # what the user has named stays
            mine = {name: value for name, value in values.items() if not given.get(name)}
            found.append(server.run(words, change, steps, timeout, operators=in_place, values=mine))
        return found


def _unread(as_it_is: Tried, read: Tried) -> str:
    """Why what read says of the blocks is not of those of the program as it is; "" if it is."""
    if read.peak_bytes is None or as_it_is.peak_bytes is None:
        return f"the program does not run with what asks for it: {read.error}"
    differs = abs(read.peak_bytes - as_it_is.peak_bytes) > _SAME * as_it_is.peak_bytes
    if not differs:
        return ""
    # Mostly what waits for Python's collector, which comes at other moments in each run.
    peaks = f"{size(read.peak_bytes)}, not {size(as_it_is.peak_bytes)}"
    return f"with what asks for it the program has another peak ({peaks}), and so may each try"


class Server:
    """The process whose forks are tries. device: a card to simulate, or "cpu", or what a program is to run on; modules:
    what it imports beside torch.

    Raises Error where there is no torch for that device.
    """

    def __init__(self, device: str | launch.Setup, modules: Sequence[str] = ()) -> None:
        self._cpu = device == CPU
        self._setup: launch.Setup | None = None
        if isinstance(device, launch.Setup):
            self._setup = device
        elif not self._cpu:
            self._setup = api.make_setup(device, NO_LIMIT, 1, None, None, None)
        self._process: subprocess.Popen[bytes] | None = None
        self._modules = list(modules)
        self._unfit: set[str] = set()  # modules
        self._number = 0
        self._temporary = tempfile.TemporaryDirectory(prefix="cuptimem-try-")
        self._folder = self._temporary.name

    def __enter__(self) -> "Server":
        if not self._cpu:
            api.ready()
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._temporary.cleanup()

    def run(
        self,
        words: Sequence[str],
        change: str = "",
        steps: int | None = STEPS,
        timeout: float = TIMEOUT,
        folder: str = "",
        trace: str = "",
        environment: Mapping[str, str] | None = None,
        readers: str = "",
        operators: Sequence[changes.Operator] = (),
        values: Mapping[str, str] | None = None,
    ) -> Tried:
        """A program (its script, -m or -c first) with one change or combination; "" for the program as it is.

        folder: where it runs, the present one by default. trace: where it is recorded, "" for nowhere. environment:
        variables that it gets besides. readers: where what reads its blocks is written (readers.py), "" for
        nowhere. operators: what in_place is about, in the place of modules. values: by name of a change, what it gets
        beside its text (of release: the variables).
        """
        place = os.path.join(self._folder, str(self._number))
        self._number += 1
        request = {
            "words": list(words),
            "change": change,
            "steps": steps or 0,
            "device": "cpu" if self._cpu else "cuda",
            "folder": folder or os.getcwd(),
            "trace": trace,
            "readers": readers,
            "operators": list(operators),
            "values": dict(values or {}),
            "environment": dict(environment or {}),
            "result": f"{place}.json",
            "output": f"{place}.txt",
            "timeout": timeout,
        }
        status = self._ask(request).get("status")
        result: Mapping[str, Any] = {}
        if os.path.exists(f"{place}.json"):
            with open(f"{place}.json", encoding="utf-8") as file:
                result = json.load(file)
            self._modules = list(dict.fromkeys([*self._modules, *result["modules"]]))
            if result["again"]:
                known = {**(values or {}), **result["again"]}
                return self.run(words, change, steps, timeout, folder, trace, environment, readers, operators, known)
        return self._read(change, result, status, timeout, _tail(f"{place}.txt"))

    def notes(self) -> tuple[Mapping[str, Any], ...]:
        """What the tries noted about values so far (child.py)."""
        return launch.notes(self._folder)

    def import_what_was_used(self) -> None:
        """Has the server import what the program as it is imported of libraries, so that no other try does it again."""
        self._check(self._ask({"modules": self._modules}))

    def _read(self, change: str, result: Mapping[str, Any], status: Any, timeout: float, output: str) -> Tried:
        if not result:
            ended = f"it still ran after {timeout:g} s" if status == "time" else _ended(status)
            return Tried(change, None, None, 0, ended, output=output, timed_out=status == "time")
        nothing = None if result["peak"] else "it allocated nothing" if self._cpu else NOTHING
        error: str | None = result["error"] or nothing
        why_not = result["refused"] or _why_not(result["applied"])
        known = error is None and not why_not
        write, place = result["says"][0] if len(result["says"]) == len(result["applied"]) == 1 else ("", None)
        return Tried(
            change,
            result["peak"] if known else None,
            (result["reserved"] or None) if known else None,
            min((applied for _, applied, _ in result["applied"]), default=0),
            None if result["refused"] else error,
            why_not if error is None or result["refused"] else "",
            result["steps"],
            result["cpu"],
            "" if known else output,
            result["ooms"],
            result["beside"],
            write=write if known else "",
            frame=Frame(place[0], place[2], place[1]) if place and known else None,
        )

    def _start(self) -> None:
        """Again without a module that left the process unfit to fork."""
        while True:
            with open(os.path.join(self._folder, _ERRORS), "wb") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, *interpreter.flags(), *_SERVER],
                    env=self._environment(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
            modules = [name for name in self._modules if name not in self._unfit]
            if self._check(self._ask({"child": self._child(), "modules": modules})):
                return

    def _check(self, answer: Mapping[str, Any]) -> bool:
        """Whether the server is fit to fork; otherwise it ends, and starts again with the next try."""
        if not answer["unfit"]:
            return True
        self._unfit.add(answer["unfit"])
        self._end()
        return False

    def _child(self) -> str:
        """The folder of what follows values on the simulated device (child.py)."""
        if self._cpu:
            return ""
        high_end = int(self._setup is not None and self._setup.high_end)
        wishes = {"high_end": high_end, "collects": 0, "other_branches": 0, "other_integers": 0, "timeout": 0}
        with open(os.path.join(self._folder, SETTINGS), "w", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in {**wishes, "parent": os.getpid()}.items())
        return self._folder

    def _environment(self) -> dict[str, str]:
        ours = (*autostart.VARIABLES, launch.CONV_WORKSPACE)
        base = {name: value for name, value in environ.inherited().items() if name not in ours}
        return base if self._setup is None else {**base, **launch.variables(base, self._setup)}

    def _ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise Error(f"the process that tries changes ended{self._last_words()}")
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        """The last line that it wrote on its standard error."""
        lines = _tail(os.path.join(self._folder, _ERRORS)).split("\n")
        return next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _why_not(applied: Sequence[tuple[str, int, str]]) -> str:
    """The reasons of the changes that did nothing, each with its name where there were several."""
    return "; ".join(f"{name}: {why}" if len(applied) > 1 else why for name, count, why in applied if not count)


def _ended(status: Any) -> str:
    return f"it was ended by signal {-status}" if isinstance(status, int) and status < 0 else "it ended without a word"


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
