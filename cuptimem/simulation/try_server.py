"""The process whose forks are tries: it imports torch, and what the program imports of libraries, once.

python -P -m cuptimem.simulation.try_server: requests come on standard input, answers go to standard output, one line of
JSON each. CUDA is never in use here: a fork of it could not use it.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any


def main() -> None:
    requests, answers = os.fdopen(os.dup(0), "rb", buffering=0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    setup = json.loads(requests.readline())
    if setup["child"]:
        from cuptimem.simulation import child

        child.start(setup["child"])
    import torch  # noqa: F401  the forks have it

    if setup["child"]:
        skip_drawing()  # before libraries keep the functions for themselves
    from cuptimem.record import profiler  # noqa: F401  as tries on the CPU do
    from cuptimem.report import load  # noqa: F401
    from cuptimem.simulation import try_program

    count_devices_in_a_fork()
    # The first optimizer of a program imports torch._dynamo.
    _answer(answers, {"unfit": import_all(["torch._dynamo", *setup["modules"]])})
    while line := requests.readline():
        request = json.loads(line)
        if "modules" in request:
            _answer(answers, {"unfit": import_all(request["modules"])})
            continue
        pid = os.fork()
        if pid == 0:
            requests.close()
            os.close(answers)
            try_program.become(request)
        with contextlib.suppress(OSError):  # the child does it as well: whichever comes first, its group can be killed
            os.setpgid(pid, pid)
        _answer(answers, {"status": wait(pid, requests.fileno(), request["timeout"])})


def wait(pid: int, requests: int, timeout: float) -> int | str:
    """The exit code of a try, or "time"; all that it started is gone behind it."""
    descriptor = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(requests, 0)  # its end alone: who asked is gone
    events = poll.poll(timeout * 1000)
    if not any(number == descriptor for number, _ in events):
        kill_group(pid)
        os.waitpid(pid, 0)
        if events:
            os._exit(1)
        return "time"
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(descriptor)
    kill_group(pid)
    return code


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def import_all(names: list[str]) -> str:
    """Imports the modules where that works. The name of one that left this process unfit to fork, else ""."""
    for name in names:
        if name in sys.modules:
            continue
        with contextlib.suppress(BaseException):  # then the program imports it, or does not
            importlib.import_module(name)
        if len(os.listdir("/proc/self/task")) > 1 or not cuda_works_in_forks():
            return name
    return ""


def cuda_works_in_forks() -> bool:
    """Only a fork can say it: PyTorch marks a process as lost to its forks without starting CUDA, too."""
    import torch

    cuda: Any = torch.cuda
    return not cuda.is_initialized() and in_a_fork(cuda._is_in_bad_fork) == 0


def count_devices_in_a_fork() -> None:
    """A library that asks at its import whether there is a device would leave this process unfit to fork: it gets the
    number from here. The forks ask PyTorch again."""
    import torch

    lower: Any = torch._C
    count = getattr(lower, "_cuda_getDeviceCount", None)
    if count is None:
        return
    server, devices = os.getpid(), max(0, in_a_fork(count))
    lower._cuda_getDeviceCount = lambda: devices if os.getpid() == server else count()


def in_a_fork(function: Callable[[], int]) -> int:
    """What it returns there, a small number; -1 where it fails."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os._exit(int(function()))
        os._exit(255)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if 0 <= code < 255 else -1


def skip_drawing() -> None:
    """torch.nn.init does nothing: what weights contain does not matter on the simulated device, and drawing it would be
    most of a try's time."""
    import torch

    def same(tensor: Any, *_: object, **__: object) -> Any:
        return tensor

    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(torch.nn.init, name, same)
    for name in ("normal_", "uniform_"):
        setattr(torch.Tensor, name, _skipping(getattr(torch.Tensor, name), torch.nn.Parameter))


def _skipping(draw: Any, parameter: type) -> Any:
    def drawn(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self if isinstance(self, parameter) else draw(self, *arguments, **keywords)

    return drawn


def _answer(descriptor: int, answer: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
