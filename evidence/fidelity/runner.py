"""Runs a case bare and recorded, and says where the two differ."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from evidence.fidelity import needs
from evidence.fidelity.case import Case
from tests.conftest import clean_environment

OWN = "cuptimem: "  # our own lines begin with this
READY = b"ready"
KEYS = {signal.SIGINT: b"\x03", signal.SIGQUIT: b"\x1c"}  # how these are sent on a terminal

# What two runs of bare Python do not have in common either.
EVERYWHERE = (
    (r"\b0x[0-9a-f]{6,}\b", "ADDRESS"),
    (r"\bpid=\d+", "pid=PID"),
    (r"\b([EIW])\d{4} \d\d:\d\d:\d\d\.\d+ \d+ ", r"\g<1>0000 TIME PID "),  # torch's log
    (r"(?<=started )(daemon )?\d+(?=\)>)", r"\1THREAD"),  # the ident in a thread's repr
    (r"\b(pymp-|listener-|tmp|torchelastic_|pytorch-errorfile-)[a-z0-9_]{8}\b", r"\1NAME"),  # tempfile's random names
)


@dataclass(frozen=True)
class Outcome:
    """What can be seen of one run from outside."""

    out: str
    err: str
    end: str  # "exit 3", "SIGTERM", "hung"
    files: str  # those it leaves, and the content of those that are compared
    own: str = ""  # our own lines
    traces: tuple[int, ...] = ()  # their sizes


def run(case: Case, python: str, folder: Path, recorded: bool) -> Outcome:
    """Runs in folder/work, which is the same path for both runs, for tracebacks name it."""
    work, temporary, traces = folder / "work", folder / "tmp", folder / "traces"
    shutil.rmtree(folder, ignore_errors=True)  # and what a tool wrote beside these
    for place in (folder, work, temporary, traces):
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o777)  # a program may become another user
    for path, text in case.files.items():
        target = work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    clean = clean_environment()
    clean.pop("CUPTIMEM_RING_DIR", None)  # rings lie where a user's do
    environment = {name: value for name, value in clean.items() if not name.startswith("PYTHON")}
    environment.update(TMPDIR=str(temporary), XDG_STATE_HOME=str(folder / "state"))
    environment.update({name: _filled(value, work) for name, value in case.environment.items()})
    before = ""
    if recorded and case.by_environment:
        environment.update(CUPTIMEM="1", CUPTIMEM_OUTPUT=str(traces / "out.cmem"))
    elif recorded:
        before = f"-m cuptimem run -o {shlex.quote(str(traces / 'out.cmem'))} {_filled(case.options, work)}".rstrip()
    words = {"python": python, "@": before}
    text = re.sub(r"(?<!\S)(?:python|@)(?!\S)", lambda found: words[found[0]], _filled(case.command, work))
    command = ["sh", "-c", text] if case.shell else shlex.split(text)
    end, out, err = _ended(case, command, work, environment)
    shown = Normal((*EVERYWHERE, *case.normal))
    own, err = _own_lines(err) if not case.terminal else ("", err)
    if case.terminal:
        own, out = _own_lines(out.replace("\r\n", "\n"))
    return Outcome(
        shown(out),
        shown(err),
        end,
        shown(_listing(case, work) + _listing(case, temporary)),
        own,
        tuple(path.stat().st_size for path in sorted(traces.glob("*.cmem"))),
    )


def remove_rings(folder: Path, place: Path = Path("/dev/shm")) -> None:
    """Those that killed runs in this folder left: each would be read at every start of a recording from now on."""
    for ring in place.glob(".cuptimem-ring-*"):
        with contextlib.suppress(OSError):  # another process removed it
            with ring.open("rb") as file:
                mine = bytes(folder) + b"/" in file.read(4096)
            if mine:
                ring.unlink()


def differences(case: Case, bare: Outcome, recorded: Outcome) -> list[str]:
    """A line for each channel that is not the same; empty if recording changed nothing."""
    found = [
        f"{channel}: {_first_difference(getattr(bare, channel), getattr(recorded, channel))}"
        for channel in ("end", "out", "err", "files")
        if getattr(bare, channel) != getattr(recorded, channel)
    ]
    for run_name, outcome in (("bare", bare), ("recorded", recorded)):
        if case.hides and case.hides in outcome.out + outcome.err:
            found.append(f"{run_name}: shows {case.hides!r}")
    there = len(recorded.traces)
    if recorded.end != "hung" and case.traces is not None and (there != case.traces or not all(recorded.traces)):
        sizes = f" of {', '.join(map(str, recorded.traces))} bytes" if there else ""
        found.append(f"traces: {case.traces} expected, {there} there{sizes}; {recorded.own.strip() or 'nothing said'}")
    return found


def faults(case: Case, bare: Outcome) -> list[str]:
    """Why the case is not what it says it is, whatever cuptimem does."""
    expected = _end(case.code)
    found = [] if bare.end == expected else [f"bare Python ended with {bare.end}, not {expected}"]
    if case.shows not in bare.out + bare.err:
        found.append(f"bare Python did not show {case.shows!r}")
    return found


def _filled(text: str, work: Path) -> str:
    text = text.replace("{work}", str(work))
    return re.sub(r"\{(lib[^}]+)\}", lambda found: needs.library(found[1]) or found[0], text)


def _ended(case: Case, command: list[str], work: Path, environment: dict[str, str]) -> tuple[str, str, str]:
    """How it ended, standard output, standard error. A run that hangs is killed with its whole group."""
    leader = follower = None
    streams: dict[str, int] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if case.terminal:
        leader, follower = pty.openpty()
        streams = dict.fromkeys(streams, follower)
    process = subprocess.Popen(
        command,
        cwd=work,
        env=environment,
        start_new_session=True,
        preexec_fn=_take_terminal if case.terminal else _take_signals,
        **streams,  # type: ignore[arg-type]
    )
    chunks: dict[str, list[bytes]] = {"out": [], "err": []}
    waiting = list(case.signals)

    def send(number: signal.Signals) -> None:
        _wait_until_it_waits(process.pid)
        if leader is not None:
            os.write(leader, KEYS[number])
        else:
            os.kill(process.pid, number)

    def read(name: str, descriptor: int) -> None:
        line = b""
        while True:
            try:
                data = os.read(descriptor, 65536)
            except OSError:  # a terminal without a follower
                return
            if not data:
                return
            chunks[name].append(data)
            if name == "out":
                *lines, line = (line + data).split(b"\n")
                for whole in lines:
                    if whole.strip() == READY and waiting:
                        send(waiting.pop(0))

    readers = []
    if follower is not None and leader is not None:
        os.close(follower)
        readers = [threading.Thread(target=read, args=("out", leader), daemon=True)]
    else:
        assert process.stdout is not None and process.stderr is not None
        readers = [
            threading.Thread(target=read, args=("out", process.stdout.fileno()), daemon=True),
            threading.Thread(target=read, args=("err", process.stderr.fileno()), daemon=True),
        ]
    for reader in readers:
        reader.start()
    try:
        _feed(process, leader, case.stdin.encode())
        code: int | None = process.wait(case.timeout)
        for reader in readers:  # its children may have the pipes still
            reader.join(case.timeout)
        hung = any(reader.is_alive() for reader in readers)
    except subprocess.TimeoutExpired:
        hung, code = True, None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for reader in readers:
        reader.join(5)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    if leader is not None:
        os.close(leader)
    end = "hung" if hung or code is None else _end(code)
    out, err = (b"".join(chunks[name]).decode(errors="backslashreplace") for name in ("out", "err"))
    return end, out, err


def _take_signals() -> None:
    """In the child: what a shell's background jobs have ignored has its default."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _take_terminal() -> None:
    """In the child: its terminal is the one that sends it Ctrl-C."""
    _take_signals()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _wait_until_it_waits(pid: int) -> None:
    """A program says that it is ready just before the call that it waits in, and a traceback names that line. One that
    computes instead never waits: then half a second is enough."""
    seen = 0
    for _ in range(50):
        with contextlib.suppress(OSError):  # it has ended
            state = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            seen = seen + 1 if state == "S" else 0
        if seen == 3:
            return
        time.sleep(0.01)


def _feed(process: subprocess.Popen[bytes], leader: int | None, text: bytes) -> None:
    if leader is not None:
        os.write(leader, text)
        return
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it need not read
        process.stdin.write(text)
        process.stdin.close()


def _end(code: int) -> str:
    return f"exit {code}" if code >= 0 else signal.Signals(-code).name


def _own_lines(text: str) -> tuple[str, str]:
    """Our own lines, and the rest."""
    own: list[str] = []
    rest: list[str] = []
    for line in text.splitlines(keepends=True):
        (own if line.startswith(OWN) else rest).append(line)
    return "".join(own), "".join(rest)


@dataclass(frozen=True)
class Normal:
    """Replaces what two runs of bare Python do not have in common."""

    rules: tuple[tuple[str, str], ...]

    def __call__(self, text: str) -> str:
        for pattern, replacement in self.rules:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        return text


def _listing(case: Case, folder: Path) -> str:
    lines = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder.parent))
        lines.append(name + "/" if path.is_dir() else name)
        if path.name in case.outputs:
            lines += ["    " + line for line in path.read_text(errors="backslashreplace").splitlines()]
    return "\n".join(sorted(lines) if not case.outputs else lines) + "\n"


def _first_difference(bare: str, recorded: str) -> str:
    """The first lines that are not the same, short enough for a table."""
    ours, theirs = bare.splitlines(), recorded.splitlines()
    for number in range(max(len(ours), len(theirs))):
        left = ours[number] if number < len(ours) else "(nothing)"
        right = theirs[number] if number < len(theirs) else "(nothing)"
        if left != right:
            where = "" if len(ours) <= 1 >= len(theirs) else f"line {number + 1}: "
            return f"{where}bare {_short(left)}, recorded {_short(right)}"
    return "line ends"


def _short(text: str) -> str:
    return text if len(text) <= 160 else text[:120] + " ... " + text[-35:]
