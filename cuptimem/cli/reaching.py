"""How a running process comes to listen: it is in standby, or is brought there by its Python or by gdb.

The code that is put into the process imports cuptimem and opens the socket; all else is asked over it.
"""

import os
import platform
import shutil
import subprocess
import tempfile
import time

from cuptimem.cli import asking, streams
from cuptimem.errors import Error

_PATIENCE = 20.0  # seconds for the main thread to come between two instructions
_PREPARE = "start it with CUPTIMEM=standby in its environment"
_CAN_TRACE = 19  # CAP_SYS_PTRACE
_REMOTE = """\
import sys
try:
    sys.remote_exec(int(sys.argv[1]), sys.argv[2])
except BaseException as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
# No name stays in the program. PyRun_SimpleString must see no exception, and Ctrl-C is the program's.
_TEXT = """\
try:
    FIRST
    from cuptimem.record import standby
    standby.start({})
except KeyboardInterrupt:
    import _thread
    _thread.interrupt_main()
except BaseException as error:
    try:
        with open(REASON, "w") as file:
            file.write(type(error).__name__ + ": " + str(error))
    except BaseException:
        pass
"""


def socket_of(pid: int) -> str:
    """Where the process listens, as it sees it. Raises Error, with what to do, where it cannot be made to."""
    asking.check(pid)
    path = asking.listening(pid)
    return path if path is not None else _bring(pid)


def _bring(pid: int) -> str:
    if asking.root(pid):  # first: a container chooses the name of its executable, and here that is another file
        raise Error(f"process {pid} is not in standby, and in a container it cannot be brought there; {_PREPARE}")
    executable = _executable(pid)
    version = _version(executable)
    if version is None:
        raise Error(f"process {pid} runs {executable}, which is no Python that cuptimem knows; {_PREPARE}")
    if asking.state(pid) in ("T", "t"):
        raise Error(f"process {pid} is not in standby, and cannot be brought there: it is stopped (kill -CONT {pid})")
    with tempfile.TemporaryDirectory(prefix="cuptimem-") as folder:
        reason = os.path.join(folder, "reason")
        text = _TEXT.replace("REASON", repr(reason))
        streams.complain(f"process {pid} is not in standby: bringing it there")
        why = _by_python(pid, executable, text) if version >= (3, 14) else _by_gdb(pid, text)
        if why:
            raise Error(f"process {pid} is not in standby, and cannot be brought there: {why}; {_PREPARE}")
        return _wait(pid, reason)


def _wait(pid: int, reason: str) -> str:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        path = asking.listening(pid)
        if path is not None:
            return path
        if os.path.exists(reason):
            time.sleep(0.1)  # it is written at once
            with open(reason, encoding="utf-8", errors="replace") as file:
                said = file.read()
            if said.startswith("ModuleNotFoundError"):
                raise Error(f"the environment of process {pid} has no cuptimem: install it there, for the next time")
            raise Error(f"process {pid} cannot be brought into standby: {said}")
        time.sleep(0.05)
    raise Error(
        f"the main thread of process {pid} came to no instruction of Python in {_PATIENCE:.0f} s: "
        f"{asking.why_silent(pid)}, or waits; it will be in standby when it does"
    )


def _executable(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError as error:
        raise Error(f"process {pid} may not be looked at: {error.strerror}") from None


def _version(executable: str) -> tuple[int, int] | None:
    """Of the Python that this file is; None: it is none."""
    if "python" not in os.path.basename(executable):
        return None
    ask = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([executable, "-I", "-S", "-c", ask], capture_output=True, text=True, timeout=30)
        major, minor = map(int, done.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return major, minor


def _by_python(pid: int, executable: str, text: str) -> str:
    """sys.remote_exec. "" or why not."""
    # Once asked, the process reads this file whenever it comes to it, even after the command has given up: one that was
    # gone would be a traceback on its standard error. So it is the process that removes it.
    handle, script = tempfile.mkstemp(prefix="cuptimem-", suffix=".py")
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text.replace("FIRST", f"import os; os.unlink({script!r})"))
    done = subprocess.run(
        [executable, "-I", "-S", "-c", _REMOTE, str(pid), script], capture_output=True, text=True, errors="replace"
    )
    if done.returncode == 0:
        return ""
    os.unlink(script)
    said = (done.stderr.strip().splitlines() or ["it does not say why"])[-1]
    return f"{_hindrance(pid) or said} (a Python with -X disable-remote-debug refuses, too)"


def _by_gdb(pid: int, text: str) -> str:
    """Before CPython 3.14. "" or why not."""
    gdb = shutil.which("gdb")
    if gdb is None:
        return "before Python 3.14 that needs gdb, which is not installed (apt-get install gdb)"
    if platform.machine() != "x86_64":
        return "before Python 3.14 that is done on x86-64 alone"
    hindrance = _hindrance(pid)
    if hindrance:
        return hindrance
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "in_gdb.py")
    options = ["-nx", "-batch", "-iex", "set auto-solib-add off", "-iex", "set auto-load no"]
    # Symbols of PyTorch's libraries would take seconds, in which the process stands still.
    libraries = ["-ex", "sharedlibrary libpython", "-ex", "sharedlibrary libc.so"]
    # A signal of the program's must not end a call half-way.
    quiet = ["-ex", "handle all nostop noprint pass", "-ex", "set scheduler-locking off"]
    # In a session of its own: Ctrl-C must not end gdb while the process runs a call of its.
    process = subprocess.Popen(
        [gdb, *options, "-p", str(pid), *libraries, *quiet, "-x", inside, "-ex", "detach"],
        env=dict(os.environ, CUPTIMEM_TEXT=f"exec({text.replace('FIRST', 'pass')!r}, {{}})"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    said, _ = process.communicate()
    lines = said.strip().splitlines()
    if "cuptimem-done" in lines:
        return ""
    refused = [line.partition(": ")[2] for line in lines if line.startswith("cuptimem-refused: ")]
    denied = [line for line in lines if "Operation not permitted" in line]
    if denied:
        return (
            "gdb may not trace it: in a container it takes the capability SYS_PTRACE (docker run --cap-add SYS_PTRACE)"
        )
    return refused[0] if refused else f"gdb says: {lines[-1] if lines else 'nothing'}"


def _hindrance(pid: int) -> str:
    """Why the kernel would not let this process trace that one, as far as it can be known."""
    tracer = _field(f"/proc/{pid}/status", "TracerPid")
    if tracer not in ("", "0"):
        return f"process {tracer} traces it already (a debugger, strace)"
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        scope = "0"
    may = int(_field("/proc/self/status", "CapEff") or "0", 16) >> _CAN_TRACE & 1
    if scope == "3" or (scope in ("1", "2") and not may):
        return f"kernel.yama.ptrace_scope is {scope} (sysctl kernel.yama.ptrace_scope=0, or ask as root for this user)"
    return ""


def _field(path: str, name: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return next((line.split()[1] for line in file if line.startswith(f"{name}:")), "")
    except OSError:
        return ""
