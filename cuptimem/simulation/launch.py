"""One run of a program on a simulated device, in a process of its own, recorded as `cuptimem run` records.

Each run has a folder for itself: the trace (unless another place is given), the device's report, what the process
noted, and what it printed if that is not passed through.
"""

import ast
import errno
import functools
import os
import pwd
import select
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cudasim
from cudasim import report as device_report
from cudasim import smi
from cuptimem import environ
from cuptimem.errors import Error, recording_core
from cuptimem.record import autostart, startup
from cuptimem.simulation import child, processes, settings
from cuptimem.simulation.cards import Card, Context
from cuptimem.simulation.world import World

# What an event may lag behind at the high end. A GPU's work queue holds about a thousand launches: the host cannot be
# further ahead, so memory that waits for an event of another stream comes back after so many at the latest.
EVENT_LAG = 1024

_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}

CONV_WORKSPACE = "CUPTIMEM_SIM_CONV_WORKSPACE"

_COMMANDS = "bin"  # in a run's folder
_GRACE_SECONDS = 5.0  # between asking a program to end and ending it
_TAIL = 64 << 10  # bytes of output that are kept
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # what a terminal, and whoever imitates one, sends to a whole group
_FROM_KERNEL = 0x80  # si_code: a terminal sent it, or lost its line
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # their sender wants no answer any more


@dataclass(frozen=True, slots=True)
class Setup:
    """What a program runs on."""

    card: Card
    memory: int  # bytes of each device
    devices: int = 1
    context: int | None = None  # None: what is published for the card, the middle of it in a run
    conv_workspace: int | None = None  # bytes for each convolution; None: 0, and the allowance at the high end
    assume: Mapping[str, float] | None = None  # fractions that the user gave
    alloc_conf: str | None = None  # None: as the environment has it
    high_end: bool = False  # every modelled part as large as its model allows
    other_branches: bool = False  # flags and floats that are read and unknown: the other way (host_reads.py)
    other_integers: int = 0  # what such integers read as
    collects: bool = False  # Python's collector runs whenever tensors have grown by a share of the device
    pinned: tuple[str, ...] = ()  # lines, as FILE:LINE, at which all that is read does so each time
    longest: int = 0  # batches of each loader that run; 0: all of them
    world: World | None = None  # the rank that runs, of several; None: the program is none of several

    @property
    def context_range(self) -> Context:
        """From the smallest to the largest that the context may be: one size where it is given."""
        return self.card.context if self.context is None else Context(self.context, self.context, self.context)


@dataclass(frozen=True, slots=True)
class Run:
    """How a run ended and what it left."""

    setup: Setup
    exit_code: int | None  # None: ended by a signal
    signal: int | None
    timed_out: bool
    seconds: float
    reports: tuple[device_report.DeviceReport, ...]
    notes: tuple[Mapping[str, Any], ...]  # of its processes (child.py), the program's own first
    trace: str
    crash: str  # Python's own report of a crash
    where: str  # and about where it was when the time was up
    output: str  # the end of what it printed, where that was kept
    # The signal that asked this process to end while the program ran, however that ended then; None: there was none.
    interrupted_by: int | None = None


def preload(folder: str) -> list[str]:
    """What LD_PRELOAD begins with. Raises Error where the simulated device was not built.

    The dynamic linker has no way to quote a space or colon in a path: then links in `folder` stand for the libraries.
    """
    paths = _libraries()
    if not any(_unquotable(str(path)) for path in paths):
        return [str(path) for path in paths]
    if _unquotable(folder):
        raise Error(
            f"LD_PRELOAD cannot hold a path with a space or colon, and both {cudasim.folder()} and {folder} have "
            "one; set TMPDIR to a folder without"
        )
    links = os.path.join(folder, "libraries")
    os.makedirs(links, exist_ok=True)
    linked = []
    for path in paths:
        link = os.path.join(links, path.name)
        if not os.path.lexists(link):
            os.symlink(path, link)
        linked.append(link)
    return linked


def _unquotable(path: str) -> bool:
    return any(character in path for character in " :")


@functools.cache
def started_by_file() -> bool:
    """Whether the file that starts recordings starts what a simulated program needs (else `startup.without_file`)."""
    return startup.is_read()


def environment(base: Mapping[str, str], setup: Setup, folder: str, trace: str, overwrite: bool) -> dict[str, str]:
    """The environment of a simulated program: its own variables, and ours."""
    own = {name: value for name, value in base.items() if name not in autostart.VARIABLES}
    # It names devices of this machine; --devices sets the number of simulated ones.
    own.pop("CUDA_VISIBLE_DEVICES", None)
    # What was tuned here by time must not reach real runs, nor one run here the next: it would skip what that took.
    own |= {name: os.path.join(folder, place) for name, place in _CACHES.items()}
    if setup.alloc_conf is not None:
        own = settings.with_setting(own, setup.alloc_conf)
    if not started_by_file():
        own |= startup.without_file(folder, own)
    own["PATH"] = os.pathsep.join([os.path.join(folder, _COMMANDS), own.get("PATH", os.defpath)])
    libraries = preload(folder)
    ours = _device(base, setup, libraries) | {
        "CUPTIMEM_SIM_REPORT": os.path.join(folder, "report"),
        child.VARIABLE: folder,
        "CUPTIMEM": "1",
        "CUPTIMEM_RUN": "1",
        "CUPTIMEM_OUTPUT": trace,
        "CUPTIMEM_QUIET": "1",
    }
    if overwrite:
        ours["CUPTIMEM_OVERWRITE"] = "1"
    own.pop(CONV_WORKSPACE, None)
    ranks = {} if setup.world is None else setup.world.variables()
    return {**own, **ours, **_modelled(base, setup), **ranks}


def _modelled(base: Mapping[str, str], setup: Setup) -> dict[str, str]:
    """Which end of what is modelled."""
    found = {}
    # Without this variable a convolution gets the allowance of cudasim/csrc/libraries/cudnn_backend.c.
    if setup.conv_workspace is not None or not setup.high_end:
        found[CONV_WORKSPACE] = str(setup.conv_workspace or 0)
    # And a communicator of NCCL that of cudasim/csrc/libraries/nccl.c.
    if not setup.high_end:
        found["CUPTIMEM_SIM_NCCL"] = base.get("CUPTIMEM_SIM_NCCL", "0")
    else:
        found["CUPTIMEM_SIM_EVENT_LAG"] = base.get("CUPTIMEM_SIM_EVENT_LAG", str(EVENT_LAG))
    return found


def write_commands(folder: str) -> None:
    """Those that the program finds before this machine's: nvidia-smi answers for the simulated device (cudasim.smi).

    It runs without site-packages, and without what it would take for a wish to be recorded or to report.
    """
    place = os.path.join(folder, _COMMANDS)
    os.makedirs(place, exist_ok=True)
    command = os.path.join(place, "nvidia-smi")
    python, program = shlex.quote(sys.executable), shlex.quote(smi.__file__)
    with open(command, "w", encoding="utf-8") as file:
        file.write(
            f'#!/bin/sh\nreport="$CUPTIMEM_SIM_REPORT"\nunset CUPTIMEM_SIM_REPORT CUPTIMEM_SIM_LOG\n'
            f'exec {python} -I -S -X "{smi.REPORT}=$report" {program} "$@"\n'
        )
    os.chmod(command, 0o755)


def _device(base: Mapping[str, str], setup: Setup, libraries: Sequence[str]) -> dict[str, str]:
    """The simulated device itself."""
    return {
        **cudasim.variables(base.get("LD_PRELOAD", ""), libraries),
        "CUPTIMEM_SIM_DEVICE": setup.card.key,
        "CUPTIMEM_SIM_DEVICES": str(setup.devices),
        "CUPTIMEM_SIM_MEMORY": str(setup.memory),
        "CUPTIMEM_SIM_CONTEXT": str(setup.context_range.middle),
    }


def variables(base: Mapping[str, str], setup: Setup) -> dict[str, str]:
    """The variables that put any program on the device, without a verdict: nothing is assumed, and nothing reported.

    Raises Error where that cannot be had.
    """
    libraries = [str(path) for path in _libraries()]
    if _unquotable(libraries[0]):
        raise Error(f"LD_PRELOAD cannot hold a path with a space or colon, and {cudasim.folder()} has one")
    home = base.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    caches = os.path.join(base.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "cuptimem", "simulated")
    found = _device(base, setup, libraries)
    found |= {name: os.path.join(caches, place) for name, place in _CACHES.items()}
    found |= _modelled(base, setup)
    if "CUDA_VISIBLE_DEVICES" in base:  # it names devices of this machine
        found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(setup.devices)))
    return found


def by_hand(base: Mapping[str, str], setup: Setup) -> dict[str, str]:
    """`variables` for a shell: none of them has white space in it. Raises Error where that cannot be had."""
    found = variables(base, setup)
    for name, value in found.items():
        if any(character.isspace() for character in value):
            raise Error(f"{name} would have a space in {value}: take cuptimem simulate -o FILE instead")
    return found


def _libraries() -> list[Path]:
    try:
        return cudasim.preload()
    except FileNotFoundError as error:
        raise Error(str(error)) from error


def run(
    command: Sequence[str],
    setup: Setup,
    folder: str,
    *,
    trace: str = "",
    overwrite: bool = False,
    output: str = "keep",
    timeout: float | None = None,
    forward: bool = False,
) -> Run:
    """Runs `command` (an interpreter and its arguments) and waits for it.

    trace: where it goes; in `folder` by default. output: "pass" leaves the program's standard streams as they are,
    "stderr" lets its standard output go to standard error, "keep" gives it no input and keeps the end of what it
    prints. timeout: seconds after which it is ended, with all that it started. forward: signals that this process gets
    go to the program (only in the main thread), SIGINT and SIGQUIT only where it has left our process group: they come
    from terminals, which send them to both. Raises Error where it cannot be started.
    """
    os.makedirs(folder, exist_ok=True)
    trace = trace or os.path.join(folder, "run.cmem")
    wishes = {
        "high_end": str(int(setup.high_end)),
        "collects": str(int(setup.collects)),
        "other_branches": str(int(setup.other_branches)),
        "other_integers": str(setup.other_integers),
        "timeout": str(timeout or 0),
        "parent": str(os.getpid()),
        **{f"pin.{line}": "1" for line in setup.pinned},
        **{f"assume.{operator}": repr(share) for operator, share in (setup.assume or {}).items()},
        **({"longest": str(setup.longest)} if setup.longest else {}),
        **({} if setup.world is None else setup.world.settings()),
    }
    with open(child.made(os.path.join(folder, child.SETTINGS)), "w", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in wishes.items())
    write_commands(folder)
    if not started_by_file():
        startup.write(folder)
    variables = environment(environ.inherited(), setup, folder, trace, overwrite)
    asked = {name: value for name, value in variables.items() if name.startswith("CUPTIMEM")}
    base = {name: value for name, value in variables.items() if name not in autostart.VARIABLES}
    words, variables = environ.given(command[1:], asked, base)
    command = [command[0], *words]
    kept = os.path.join(folder, "output")
    began = time.monotonic()
    actions = _file_actions(output, kept)
    code, got = -1, frozenset[int]()
    try:
        if forward:
            code, timed_out, got = _run_forwarding(command, variables, actions, timeout)
        else:
            code, timed_out = _run_quietly(command, variables, actions, timeout)
    finally:
        if code < 0:  # killed: its ring lies in shared memory, and no later recording would find a trace to this folder
            recording_core().capture_sweep(trace)
    seconds = time.monotonic() - began
    return Run(
        setup=setup,
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        timed_out=timed_out,
        seconds=seconds,
        reports=_reports(os.path.join(folder, "report")),
        notes=notes(folder),
        trace=trace,
        crash=_tail(os.path.join(folder, child.CRASH)),
        where=_tail(os.path.join(folder, child.WHERE)),
        output=_tail(kept),
        interrupted_by=next((int(number) for number in (*_ENDING, -code) if number in got), None),
    )


def _file_actions(output: str, kept: str) -> list[tuple[Any, ...]]:
    if output == "pass":
        return []
    if output == "stderr":
        return [(os.POSIX_SPAWN_DUP2, 2, 1)]
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]


def _spawn(
    command: Sequence[str], variables: Mapping[str, str], actions: list[tuple[Any, ...]], mask: set[Any] | None
) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores these two for itself.
    more: dict[str, Any] = {} if mask is None else {"setsigmask": mask}
    try:
        return os.posix_spawn(
            command[0],
            list(command),
            variables,
            file_actions=actions,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            **more,
        )
    except OSError as error:
        raise Error(f"{command[0]} does not start: {error.strerror}") from error


def _run_forwarding(
    command: Sequence[str], variables: Mapping[str, str], actions: list[tuple[Any, ...]], timeout: float | None
) -> tuple[int, bool, frozenset[int]]:
    """Receives signals one by one while the program runs, so that none gets lost between two polls."""
    # Under nohup and in a shell's background some are ignored, by the program too: blocked they would wait for us.
    watched = {signal.SIGCHLD, *(number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    received: set[int] = set()
    try:
        pid = _spawn(command, variables, actions, set(before))
        end = _Deadline(timeout)
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                # Both processes got it, and the program ended first: taken here, the signal does not end us as well.
                for number in watched & signal.sigpending():
                    signal.sigtimedwait({number}, 0)
                    received.add(number)
                end.finish()
                return os.waitstatus_to_exitcode(status), end.asked > 0, frozenset(received)
            end.act(pid)
            got = signal.sigtimedwait(watched, end.wait(1.0))
            if got is not None and got.si_signo != signal.SIGCHLD:
                received.add(got.si_signo)
                if not _has_it_too(pid, got):
                    os.kill(pid, got.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _has_it_too(pid: int, got: signal.struct_siginfo) -> bool:
    """Whether the program got this signal as we did.

    A signal to the group and one to us alone cannot be distinguished, so what a terminal sends counts as sent to
    all. One too few is better than a second Ctrl-C, at which programs drop what they save at the first.
    """
    if got.si_code == _FROM_KERNEL:
        return True
    return got.si_signo in _FROM_TERMINAL and os.getpgid(pid) == os.getpgrp()


def run_in_place(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Runs `command` with this process's streams, and forwards signals as `run` does (only in the main thread).

    Its exit code, or -N where signal N ended it. Raises Error where it cannot be started.
    """
    return _run_forwarding(command, variables, [], None)[0]


def _run_quietly(
    command: Sequence[str], variables: Mapping[str, str], actions: list[tuple[Any, ...]], timeout: float | None
) -> tuple[int, bool]:
    pid = _spawn(command, variables, actions, None)
    end = _Deadline(timeout)
    status: int | None = None
    try:
        with _ProcessEnd(pid) as ended:
            while status is None:
                end.act(pid)
                ended.wait(end.wait(60.0))
                done, found = os.waitpid(pid, os.WNOHANG)
                status = found if done else None
        end.finish()
        return os.waitstatus_to_exitcode(status), end.asked > 0
    finally:
        if status is None:  # interrupted: no other code would wait for it
            end.remember(pid)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            end.finish()


class _Deadline:
    """When to ask the program to end, and when to end it; what it started ends with it then."""

    def __init__(self, timeout: float | None) -> None:
        self._at = None if not timeout else time.monotonic() + timeout
        self._below: dict[int, int] = {}
        self.asked = 0

    def wait(self, longest: float) -> float:
        """Seconds until the next signal is due, at most `longest`."""
        if self._at is None:
            return longest
        return min(longest, max(0.0, self._at - time.monotonic()))

    def act(self, pid: int) -> None:
        """Sends the signal that is due now, if one is."""
        if self._at is None or time.monotonic() < self._at:
            return
        self._at = time.monotonic() + _GRACE_SECONDS
        self.asked += 1
        self.remember(pid)
        os.kill(pid, signal.SIGTERM if self.asked == 1 else signal.SIGKILL)

    def remember(self, pid: int) -> None:
        """Remembers what runs below the program, which is unknown once the program is gone."""
        self._below |= processes.below([pid])

    def finish(self) -> None:
        """After the program's end: kills what it started, if we ended it."""
        processes.kill(self._below)


class _ProcessEnd:
    """Waits for a process to end, in any thread, without taking its status."""

    def __init__(self, pid: int) -> None:
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError as error:  # a kernel or sandbox without it: poll
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.EMFILE):
                raise
            self._descriptor = -1

    def __enter__(self) -> "_ProcessEnd":
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def wait(self, seconds: float) -> None:
        if self._descriptor < 0:
            time.sleep(min(seconds, 0.05))
            return
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.poll(seconds * 1000 + 1)


def _reports(path: str) -> tuple[device_report.DeviceReport, ...]:
    try:
        return device_report.read(path)
    except device_report.Damaged as error:
        raise Error(str(error)) from error


def notes(folder: str) -> tuple[Mapping[str, Any], ...]:
    """What the processes noted, the program's own first."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name.startswith("child-") and name.endswith(".note"):
            try:
                note = child.own_file(os.path.join(folder, name))
            except OSError:  # a link, pipe or folder of that name is the program's, and no note
                continue
            with open(note, encoding="utf-8") as file:
                found.append(ast.literal_eval(file.read()))
    return tuple(sorted(found, key=lambda note: (not note["leader"], note["pid"])))


def _tail(path: str) -> str:
    try:
        with open(child.own_file(path), "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:  # there is none, or the program put something else there
        return ""
