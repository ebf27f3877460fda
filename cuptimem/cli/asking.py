"""The client's end of a process in standby: finds its socket, asks for windows, waits for their end."""

import contextlib
import os
import pwd
import socket
import sys
import time
from collections.abc import Iterator

from cuptimem import naming
from cuptimem.cli import streams
from cuptimem.errors import Error
from cuptimem.record import standby_socket

PATIENCE = 30.0  # seconds until a process that runs Python has answered: it visits its objects first
_LISTENS, _CONNECTING = "01", 2.0


def check(pid: int) -> None:
    """Raises Error unless there is such a process, of this user."""
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        raise Error(f"there is no process {pid}") from None
    if state(pid) == "Z":
        raise Error(f"process {pid} has ended")
    if owner != os.geteuid():
        raise Error(f"process {pid} is {_user(owner)}'s, and only its user may ask it: sudo -u {_user(owner)} cuptimem")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def state(pid: int) -> str:
    """As ps shows it: R, S, D, T, Z; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def root(pid: int) -> str:
    """What stands before a path that the process sees: nothing, unless it sees other files (a container)."""
    try:
        same = os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
        there = os.stat(f"/proc/{pid}/root")
    except OSError as error:
        raise Error(f"process {pid} may not be looked at: {error.strerror}") from None
    here = os.stat("/")
    return "" if same and (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) else f"/proc/{pid}/root"


def listening(pid: int) -> str | None:
    """Where the process listens in standby, as it sees it; None if it does not."""
    try:
        sockets = set(_sockets(pid))
        with open(f"/proc/{pid}/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.rstrip("\n").split(None, 7) for line in file]
    except FileNotFoundError:
        raise Error(f"process {pid} has ended") from None
    except OSError as error:
        raise Error(f"process {pid} may not be looked at: {error.strerror}") from None
    for row in rows:
        if len(row) == 8 and row[5] == _LISTENS and standby_socket.is_name(row[7]) and row[6] in sockets:
            return row[7]  # no abstract name: those begin with @
    return None


def _sockets(pid: int) -> Iterator[str]:
    """Inodes of those that the process has open. Raises OSError."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            link = os.readlink(f"/proc/{pid}/fd/{name}")
            if link.startswith("socket:["):
                yield link[len("socket:[") : -1]


class Asked:
    """One request, and what the process answers."""

    def __init__(self, pid: int, path: str, fields: dict[str, str]) -> None:
        self._pid = pid
        self._end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._heard = b""
        try:
            self._end.settimeout(_CONNECTING)
            with _short(root(pid) + path) as short:
                _connect(self._end, short)
            credentials = self._end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, standby_socket.CREDENTIALS)
            numbers = [int.from_bytes(credentials[at : at + 4], sys.byteorder) for at in (0, 4)]
            if numbers != [pid, os.geteuid()]:
                raise Error(f"the socket of process {pid} is another process's, or another user's: nothing was asked")
            self._end.sendall(standby_socket.encoded(**fields))
        except Error:
            self._end.close()
            raise
        except OSError as error:
            self._end.close()
            raise Error(f"process {pid} does not take a request: {error.strerror or error}") from None

    def end_window(self) -> None:
        """The answer still comes."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._end.close()

    def answer(self, patience: float | None) -> dict[str, str]:
        """The next one. {}: the process has ended. Raises TimeoutError after so many seconds, Error for what it
        refuses."""
        self._end.settimeout(patience)
        end = None if patience is None else time.monotonic() + patience
        while standby_socket.END not in self._heard:
            if end is not None:
                self._end.settimeout(max(0.001, end - time.monotonic()))
            try:
                heard = self._end.recv(standby_socket.LONGEST_MESSAGE)
            except ConnectionError:
                heard = b""
            if not heard:
                return {}
            self._heard += heard
        message, _, self._heard = self._heard.partition(standby_socket.END)
        found = standby_socket.decoded(message)
        if found.get("state") == "error":
            raise Error(f"process {self._pid}: {found.get('message', '')}")
        return found


def _connect(end: socket.socket, path: str) -> None:
    until = time.monotonic() + _CONNECTING
    while True:
        try:
            return end.connect(path)
        except BlockingIOError:  # many ask
            if time.monotonic() > until:
                raise OSError("too many ask it") from None
            time.sleep(0.01)


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """A name of the socket that the kernel takes, however long its path is."""
    if len(os.fsencode(path)) <= standby_socket.LONGEST_NAME:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_PATH)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


def target(pid: int, output: str | None) -> dict[str, str]:
    """The fields of a request that say where the trace goes: -o as this command's folder has it. Without it a standard
    name here. A process that sees other files is given no path of here."""
    if not root(pid):
        return {"path": os.path.abspath(output)} if output else {"folder": os.getcwd()}
    if output and not os.path.isabs(output):
        raise Error(f"process {pid} sees other files than this command (a container): give -o a whole path of there")
    return {"path": output} if output else {}


def opened(pid: int, asked: Asked) -> str:
    """Waits until the window is open. The trace, as the process sees it."""
    try:
        found = asked.answer(PATIENCE)
    except TimeoutError:
        asked.close()  # then it opens none later
        raise Error(f"process {pid} does not answer: {why_silent(pid)}; no window was opened") from None
    if not found:
        raise Error(f"process {pid} has ended before a window was open")
    return found["path"]


def why_silent(pid: int) -> str:
    found = state(pid)
    if found in ("T", "t"):
        return f"it is stopped (kill -CONT {pid})"
    if found == "D":
        return "it waits in the kernel"
    return "it runs code that keeps Python's lock" if found else "it is gone"


def ended(pid: int, asked: Asked, trace: str, patience: float | None) -> None:
    """Waits for the window's end. One line where the process does not come to it: what was recorded can be read."""
    try:
        found = asked.answer(patience)
    except TimeoutError:
        streams.complain(
            f"process {pid} does not answer: {why_silent(pid)}; the window is still open, and what follows is what "
            "it recorded until now"
        )
        return
    if not found:
        streams.complain(f"process {pid} ended during the window; the trace has everything up to then")


def shown(pid: int, trace: str) -> str:
    """The trace's name, from here."""
    return naming.shown(root(pid) + trace) if state(pid) else naming.shown(trace)
