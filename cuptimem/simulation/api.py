"""cuptimem.simulate(), and what the command line shares with it."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuptimem import environ, interpreter
from cuptimem.errors import Error, recording_core
from cuptimem.record import recorder, startup
from cuptimem.simulation import assemble, call, cards, data_sizes, environment, facts, launch
from cuptimem.simulation.questions import NO_LIMIT, Inquiry, Interrupted, Wishes
from cuptimem.simulation.result import Simulation

TIMEOUT = 600.0  # seconds for each run: kernels take no time, so what runs longer runs more steps than a peak needs


def simulate(
    what: Callable[..., object] | str | os.PathLike[str] | Sequence[str],
    /,
    *arguments: Any,
    device: str = "h100",
    memory: int | str | None = None,
    devices: int = 1,
    context: int | str | None = None,
    conv_workspace: int | str | None = None,
    assume: Mapping[str, float] | None = None,
    timeout: float | None = TIMEOUT,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    retry: bool = True,
    allow_oom: bool = False,
    trust_reads: bool = False,
) -> Simulation:
    """Runs a function or a script on a simulated GPU and says whether it fits.

        found = cuptimem.simulate(train_step, batch_size, device="l4")
        found.verdict, found.devices[0].used, found.report.leaks

    what: a function, which is called with `arguments` in a process of its own (it and they travel by cloudpickle, so
    cells of a notebook work; what it returns stays there); the path of a script, whose arguments are strings; or a
    sequence such as ["-m", "package.train"], which python gets. What it prints is kept in `.output`.

    memory, context, conv_workspace: bytes, or text like "24GiB". context: None for the interval that is published for
    the card. assume: shares for operators whose sizes depend on
    values (docs/simulate.md). timeout: seconds for each run, None for no end. output: where the trace goes; without it
    there is no file. retry=False: run once, whatever stays open. allow_oom: the program means to catch
    OutOfMemoryErrors. trust_reads: no size and no branch hangs on integers or flags that the program reads from the
    device, where they are zeros. CUDA_VISIBLE_DEVICES of the environment is left out; a program may set it itself.

    Files that the program saves hold zeros: give it another output folder, or your checkpoints are lost.

    Raises Error, one line, where nothing can be simulated or started; a program that fails is an answer, not an error.
    ValueError for arguments that make no sense.
    """
    build = ready()
    setup = make_setup(device, memory, devices, context, conv_workspace, assume)
    if timeout is not None and timeout <= 0:
        raise ValueError("timeout is a positive number of seconds, or None")
    trace = "" if output is None else os.path.abspath(os.fspath(output))
    overwrite = overwrite or recorder.is_own(trace)
    if trace and os.path.lexists(trace) and not overwrite:
        raise Error(f"{trace} exists; choose another name, or pass overwrite=True")
    with tempfile.TemporaryDirectory(prefix="cuptimem-sim-") as folder:
        command = [sys.executable, *_program(what, arguments, folder)]
        wishes = Wishes(retry=retry, allow_oom=allow_oom, trust_reads=trust_reads, timeout=timeout)
        try:
            return inquire(command, setup, wishes, build, folder, trace=trace, overwrite=overwrite)
        except Interrupted:
            raise KeyboardInterrupt from None
        finally:
            if trace:
                recorder.TraceFile(trace).finish()


def ready() -> environment.TorchBuild:
    """The torch that is simulated. Raises Error where it cannot be."""
    recording_core()
    build = environment.check()
    with tempfile.TemporaryDirectory(prefix="cuptimem-sim-") as folder:
        if not launch.started_by_file():
            startup.write(folder)
            if not startup.starts(startup.without_file(folder, os.environ)):
                startup.check()
        launch.preload(folder)  # raises Error where the library was not built
    return build


def make_setup(
    device: str,
    memory: int | str | None,
    devices: int,
    context: int | str | None,
    conv_workspace: int | str | None,
    assume: Mapping[str, float] | None,
) -> launch.Setup:
    """Raises Error for an unknown device, ValueError for numbers that make no sense."""
    card = cards.card(device)
    if not 1 <= devices <= 16:
        raise ValueError(f"between 1 and 16 devices can be simulated, not {devices}")
    total = card.memory if memory is None else _size(memory)
    taken = None if context is None else _size(context, least=0)
    if total < 64 << 20:
        raise ValueError(f"a device has at least 64 MiB, not {cards.text(total)}")
    if taken is not None and taken >= total:
        raise ValueError("the context takes all of the device's memory")
    if assume is not None and not isinstance(assume, Mapping):
        raise ValueError(f"assume is a dictionary such as {{'nonzero': 0.1}}, not {assume!r}")
    for name, fraction in (assume or {}).items():
        check_assumption(name, fraction)
    return launch.Setup(
        card=card,
        memory=total,
        devices=devices,
        context=taken,
        conv_workspace=None if conv_workspace is None else _size(conv_workspace, least=0),
        assume=dict(assume or {}),
    )


def check_assumption(name: str, fraction: float) -> None:
    """name: an operator, or "FILE:LINE operator". Raises ValueError for others, or for a share that is none."""
    place, _, operator = name.rpartition(" ")
    file, _, line = place.rpartition(":")
    if place and not (file and line.isdecimal()):
        raise ValueError(f'{name!r} is no "FILE:LINE OPERATOR", such as "train.py:120 nonzero"')
    if operator not in data_sizes.OPERATORS:
        raise ValueError(f"no size is assumed for {operator!r}; there are {', '.join(data_sizes.OPERATORS)}")
    if not isinstance(fraction, (int, float)):
        raise ValueError(f"{operator} takes a number, not {fraction!r}")
    if not fraction >= 0 or fraction == float("inf") or (fraction > 1 and operator not in data_sizes.WITHOUT_BOUND):
        what = data_sizes.OPERATORS[operator]
        raise ValueError(f"{operator}={fraction:g} makes no sense: it is the {what}")


def _size(value: int | str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f'a size is a number of bytes, or text such as "24GiB", not {value!r}')
    number = value if isinstance(value, int) else cards.size(value) if value.strip() != "0" else 0
    if number < least:
        raise ValueError(f"a size is at least {least} bytes, not {value}")
    return number


def _program(what: object, arguments: tuple[Any, ...], folder: str) -> list[str]:
    """The interpreter's arguments."""
    if callable(what):
        _pickle(what, arguments, folder)
        return ["-m", interpreter.CALL, folder, _name(what)]
    if isinstance(what, (str, os.PathLike)):
        words = [os.fspath(what), *map(str, arguments)]
        if not os.path.exists(words[0]):
            raise Error(f"there is no script {words[0]!r}")
        return words
    if isinstance(what, Sequence) and what and all(isinstance(word, str) for word in what):
        return [*what, *map(str, arguments)]
    raise TypeError("simulate takes a function, the path of a script, or a list of python's arguments")


def _name(function: object) -> str:
    """The name of a function, of a partial's function, or else of the callable's class."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__)).replace(".<locals>", "")


def _pickle(function: Callable[..., object], arguments: tuple[Any, ...], folder: str) -> None:
    try:
        from cuptimem.simulation import pickling
    except ImportError:  # of cloudpickle
        raise Error(
            "functions travel to the simulated process by cloudpickle, which is not installed: "
            f"{sys.executable} -m pip install cloudpickle"
        ) from None
    try:
        data = pickling.dumps((function, arguments))
    except Exception as error:  # whatever an object's own pickling raises
        raise Error(
            f"{getattr(function, '__name__', 'the function')} or its arguments cannot be pickled "
            f"({type(error).__name__}: {error}); make in it what it needs"
        ) from error
    with open(os.path.join(folder, call.PICKLE), "wb") as file:
        file.write(data)
    with open(os.path.join(folder, call.PATH), "w", encoding="utf-8") as file:
        json.dump([path for path in sys.path if isinstance(path, str)], file)


def inquire(
    command: Sequence[str],
    setup: launch.Setup,
    wishes: Wishes,
    build: environment.TorchBuild,
    folder: str,
    *,
    trace: str = "",
    overwrite: bool = False,
    output: str = "keep",
    forward: bool = False,
    progress: Callable[[str], None] = lambda name: None,
) -> Simulation:
    """Runs the program as often as the answer needs; only the first run has its streams, its trace and its signals.

    progress is called with the name of each further run. Raises Interrupted where the user ended the program.
    """
    runs = 0

    def ask(wanted: launch.Setup, name: str) -> facts.Facts:
        nonlocal runs
        first, place = runs == 0, os.path.join(folder, str(runs))
        runs += 1
        if not first:
            progress(name)
        run = launch.run(
            command,
            wanted,
            place,
            trace=trace if first else "",
            overwrite=overwrite,
            output=output if first else "keep",
            timeout=wishes.timeout,
            forward=forward,
        )
        return facts.collect(run, trace if first and trace else None, wanted.memory == NO_LIMIT)

    answer = Inquiry(ask, setup, wishes, os.environ).answer()
    said = []
    if "CUDA_VISIBLE_DEVICES" in environ.obeyed():
        said.append("CUDA_VISIBLE_DEVICES was left out: it names devices of this machine")
    result = assemble.simulation(answer, setup, build, tuple(said))
    if result.report is None:
        raise Error(f"the program left no recording ({answer.main.report_problem}); {result.verdict}: {result.reason}")
    return result
