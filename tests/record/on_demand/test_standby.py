"""CUPTIMEM=standby: one socket, one thread, and nothing that a peer can cost the program."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem.cli import asking
from cuptimem.errors import Error
from cuptimem.record import standby_socket
from tests.conftest import Result
from tests.record.on_demand.conftest import PATIENCE, Program, connected, wait_for

Start = Callable[..., Program]
Run = Callable[..., Result]

IDLE = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"

SEEN = """\
import json, os, signal, sys, time
task = os.listdir("/proc/self/task")
def masks():
    return [line for t in task for line in open(f"/proc/self/task/{t}/status") if line.startswith("SigBlk")]
looks = 0  # the C library starts a thread with all signals blocked
while looks < 1000 and any(int(line.split()[1], 16) >> (signal.SIGSEGV - 1) & 1 for line in masks()):
    looks += 1
    time.sleep(0.01)
print(json.dumps({
    "modules": sorted(sys.modules), "threads": len(task), "first": os.open("/dev/null", os.O_RDONLY),
    "descriptors": len(os.listdir("/proc/self/fd")), "asked": os.environ.get("CUPTIMEM"),
    "masks": masks(),
}), flush=True)
sys.stdin.read()
"""


def test_what_a_program_in_standby_can_notice(start: Start) -> None:
    found = json.loads(start(SEEN).line())
    bare = json.loads(start("import _socket, select, atexit, threading\n" + SEEN, env={"CUPTIMEM": ""}).line())
    more = set(found["modules"]) - set(bare["modules"])
    ours = {name for name in more if name.split(".")[0] == "cuptimem"}
    assert ours == {"cuptimem", *(f"cuptimem.{name}" for name in ("environ", "interpreter", "record"))} | {
        f"cuptimem.record.{name}" for name in ("autostart", "standby", "standby_socket")
    }
    assert more == ours, "no extension, no torch"
    assert (found["threads"], found["descriptors"]) == (bare["threads"] + 1, bare["descriptors"] + 1)
    assert found["first"] == bare["first"], "the program's descriptors have the numbers that they would have"
    assert found["asked"] == "standby", "children are in standby, too"
    blocked = sorted(int(line.split()[1], 16) for line in found["masks"])
    kept = {signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE, signal.SIGILL, signal.SIGKILL, signal.SIGSTOP}
    assert blocked[0] == 0 and all((blocked[1] >> (s - 1) & 1) != (s in kept) for s in signal.valid_signals() if s < 32)


def test_the_socket_is_its_users_alone_and_goes_with_the_program(start: Start, runtime: Path) -> None:
    program = start(IDLE)
    assert program.line() == "ready"
    path = Path(asking.listening(program.pid) or "")
    assert path.parent == runtime / "cuptimem"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700 and stat.S_IMODE(path.stat().st_mode) == 0o600
    program.end()
    assert list(path.parent.iterdir()) == []


def test_a_killed_programs_socket_is_swept_by_the_next(start: Start, runtime: Path) -> None:
    program = start(IDLE)
    program.line()
    os.kill(program.pid, signal.SIGKILL)
    program.process.wait()
    left = list((runtime / "cuptimem").iterdir())
    assert len(left) == 1
    other = start(IDLE)
    other.line()
    assert list((runtime / "cuptimem").iterdir()) == [Path(asking.listening(other.pid) or "")] != left


@pytest.mark.parametrize("fault", ["open to others", "a link", "too long", "missing"])
def test_a_folder_that_will_not_do_gives_way_to_the_next(start: Start, runtime: Path, fault: str) -> None:
    place, elsewhere = runtime / "run", runtime / "tmp"
    elsewhere.mkdir()
    if fault == "open to others":
        (place / "cuptimem").mkdir(parents=True)
        (place / "cuptimem").chmod(0o755)
    elif fault == "a link":
        place.mkdir()
        (runtime / "theirs").mkdir(mode=0o700)
        (place / "cuptimem").symlink_to(runtime / "theirs")
    elif fault == "too long":
        place = runtime / ("x" * 100)
        place.mkdir()
    program = start(IDLE, env={"XDG_RUNTIME_DIR": str(place), "TMPDIR": str(elsewhere)})
    assert program.line() == "ready"
    assert Path(asking.listening(program.pid) or "").parent == elsewhere / f"cuptimem-{os.geteuid()}"


FORKS = """\
import multiprocessing, os, subprocess, sys, time

def work(queue, done):
    queue.put(os.getpid())
    done.wait()

if __name__ == "__main__":
    pids = []
    for way in ("fork", "spawn"):
        context = multiprocessing.get_context(way)
        queue, done = context.Queue(), context.Event()
        child = context.Process(target=work, args=(queue, done))
        child.start()
        pids.append(queue.get())
    plain = subprocess.Popen(["sleep", "100"])
    after = subprocess.Popen(["sleep", "100"], preexec_fn=lambda: None)
    executed = subprocess.Popen([sys.executable, "-c", "import os, sys, time; os.execv(sys.executable, "
        "[sys.executable, '-c', 'import sys; print(1, flush=True); sys.stdin.read()'])"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    executed.stdout.readline()
    print(*pids, executed.pid, plain.pid, after.pid, flush=True)
    sys.stdin.read()
    for child in (plain, after, executed, *multiprocessing.active_children()):
        child.kill()
    os._exit(0)
"""


def test_each_python_of_the_tree_has_its_own_socket_and_no_other_process_has_one(start: Start) -> None:
    program = start(FORKS)
    fork, spawn, executed, plain, after = map(int, program.line().split())
    places = [asking.listening(pid) for pid in (program.pid, fork, spawn, executed)]
    assert None not in places and len(set(places)) == 4
    for pid, place in zip((program.pid, fork, spawn, executed), places, strict=True):
        assert f".{pid}." in str(place)
        asked = asking.Asked(pid, str(place), {"verb": "stop"})
        with pytest.raises(Error, match="no window is open"):
            asked.answer(PATIENCE)
    assert asking.listening(plain) is None and asking.listening(after) is None
    assert not any(f".{after}." in name for name in os.listdir(Path(str(places[0])).parent))
    sockets = {os.readlink(f"/proc/{program.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{program.pid}/fd")}
    theirs = {os.readlink(f"/proc/{fork}/fd/{fd}") for fd in os.listdir(f"/proc/{fork}/fd")}
    assert not {name for name in sockets & theirs if name.startswith("socket:")}
    program.end()


def test_a_window_of_a_program_without_torch(start: Start, run: Run, tmp_path: Path) -> None:
    program = start(IDLE)
    program.line()
    done = run("-m", "cuptimem", "window", str(program.pid), "--seconds", "0.1")
    assert (done.code, done.err) == (
        0,
        f"cuptimem: recording process {program.pid} into cuptimem-program.{program.pid}.cmem; Ctrl-C ends it\n",
    )
    assert cuptimem.open(tmp_path / f"cuptimem-program.{program.pid}.cmem").complete
    assert program.process.poll() is None


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0\n", b"verb=burn\0\n", b"verb=window\0seconds=-1\0\n", b"=\0\n", b"\xff\0\n"],
)
def test_garbage_gets_one_bounded_answer(start: Start, said: bytes) -> None:
    program = start(IDLE)
    program.line()
    with program.connect() as end:
        end.sendall(said)
        if not said.endswith(b"\0\n"):
            end.shutdown(socket.SHUT_WR)
        heard = b""
        while more := end.recv(65536):
            heard += more
    assert len(heard) < 4096 and (heard == b"" or heard.startswith(b"state=error\0"))
    _works(program)


def test_threading_knows_the_main_thread_whoever_loads_it(start: Start) -> None:
    program = start(
        "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\nimport threading\n"
        "print(threading.main_thread().ident == threading.get_ident())\n"
    )
    program.line()
    with program.connect() as end:
        end.sendall(b"verb=window\0seconds=0.1\0\n")
        while end.recv(4096):
            pass
    assert program.process.stdin is not None
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    assert program.line() == "True"
    assert program.process.wait(PATIENCE) == 0


def _works(program: Program) -> None:
    with program.connect() as end:
        end.sendall(b"verb=stop\0\n")
        assert end.recv(4096).endswith(b"message=no window is open\0\n")


def test_peers_that_say_half_a_line_or_never_read_keep_nobody_waiting(start: Start) -> None:
    program = start(IDLE)
    program.line()
    before = _cpu(program.pid)
    ends, path = [], asking.listening(program.pid)
    assert path is not None
    for number in range(1000):
        end = connected(path)
        if number % 2:
            end.send(b"verb=wind")
        ends.append(end)
        if number % 100 == 0:
            _works(program)
    descriptors = len(os.listdir(f"/proc/{program.pid}/fd"))
    _works(program)
    for end in ends:
        end.close()
    assert descriptors < 30, "the ones that waited longest were dropped"
    wait_for(lambda: len(os.listdir(f"/proc/{program.pid}/fd")) <= 5)
    with program.connect() as end:
        for _ in range(64):
            try:
                end.send(b"x" * 4096)
            except OSError:
                break
    _works(program)
    assert _cpu(program.pid) - before < 1000, "ticks"


def _cpu(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_told_so_and_cannot_connect(start: Start, python: str) -> None:
    program = start(IDLE)
    program.line()
    path = asking.listening(program.pid)
    code = f"""
import os, socket, sys
os.setuid(65534)
try: socket.socket(socket.AF_UNIX).connect({path!r})
except PermissionError: print('refused')
from cuptimem.cli import asking
try: asking.check({program.pid})
except Exception as error: print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "refused",
        f"process {program.pid} is root's, and only its user may ask it: sudo -u root cuptimem",
    ]
    _works(program)


def test_a_daemon_that_closes_all_descriptors_is_not_in_standby_and_nothing_of_its_own_is_taken(start: Start) -> None:
    program = start(
        "import os, socket, sys, tempfile\n"
        "os.closerange(3, 4096)\n"
        "mine = socket.socket(socket.AF_UNIX)\n"
        "path = tempfile.mktemp(dir='.')\n"
        "mine.bind(path); mine.listen()\n"
        "taken = socket.socket(fileno=os.dup2(mine.fileno(), 999))\n"
        "print(path, flush=True)\n"
        "mine.accept()[0].sendall(b'mine')\n"
        "sys.stdin.read()\n"
    )
    path = program.folder / program.line()
    assert asking.listening(program.pid) is None
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(str(path))
        assert end.recv(10) == b"mine"


def test_a_name_that_no_standby_has_is_none() -> None:
    assert standby_socket.is_name("/run/user/1/cuptimem/standby-1.2.3.sock")
    assert not standby_socket.is_name("@/run/user/1/cuptimem/standby-1.2.3.sock")
    assert not standby_socket.is_name("/run/user/1/other/standby-1.2.3.sock")


def test_ignored_environment_takes_the_option(start: Start) -> None:
    program = start(IDLE, "-I", "-X", "CUPTIMEM=standby")
    program.line()
    assert asking.listening(program.pid) is not None
    other = start(IDLE, "-I")
    other.line()
    assert asking.listening(other.pid) is None
