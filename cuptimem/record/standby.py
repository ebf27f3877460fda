"""CUPTIMEM=standby: a process that records nothing, and waits for a request of its own user to open a window.

Until a request comes it is one socket and one thread that sleeps in the kernel. The extension, torch's hooks and the
modules that windows need are loaded by the first request. Imports nothing but what Python has loaded by itself, two
built-in modules for the socket, and threading.
"""

import _signal  # type: ignore[import-not-found]  # built in, while signal would load enum
import _socket
import _thread
import os
import select
import sys
import threading  # noqa: F401  its first import, by the first request, would take that thread for the main one
import time

from cuptimem.record import standby_socket

TYPE_CHECKING = False  # typing would be loaded into every process in standby

if TYPE_CHECKING:
    from cuptimem.record.on_demand import Window

_PEERS = 8  # that have asked nothing yet; the one that waits longest goes when another comes
_PATIENCE = 5.0  # seconds for a request to be complete
_HIGHEST = 1000  # descriptors are below: the program's own begin with the number that they would have
_FAULTS = (_signal.SIGBUS, _signal.SIGSEGV, _signal.SIGFPE, _signal.SIGILL)  # of the thread itself

_server: "_Server | None" = None
_settings: "dict[str, str]" = {}  # variables of autostart.py
_registered = False


class _Peer:
    def __init__(self, end: _socket.socket) -> None:
        self.end = end
        self.asked = b""
        self.until: float | None = time.monotonic() + _PATIENCE  # None: it waits for an answer
        self.window: Window | None = None  # ends when this peer goes

    def answer(self, **fields: str) -> None:
        """Never waits: who does not read gets nothing."""
        try:
            self.end.send(standby_socket.encoded(**fields), _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
        except OSError:
            return

    def finish(self, **fields: str) -> None:
        """The last answer. The server's thread wakes up, and closes."""
        self.answer(**fields)
        try:
            self.end.shutdown(_socket.SHUT_RDWR)
        except OSError:
            return

    def refuse(self, why: object) -> None:
        self.finish(state="error", message=" ".join(str(why).split())[:2000] or type(why).__name__)


class _Server:
    """All methods run in its thread, but those of peers."""

    def __init__(self) -> None:
        self.path = standby_socket.path_of(os.getpid())
        _remove_left(self.path)
        self.uid = os.geteuid()
        self.listener = _high(_socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM))
        self.listener.setblocking(False)
        self.peers: dict[int, _Peer] = {}
        self.window: Window | None = None  # that was asked for here
        # The folder lets nobody else in, whatever the socket's mode is meanwhile.
        self.listener.bind(self.path)
        os.chmod(self.path, 0o600)
        self.inode = os.fstat(self.listener.fileno()).st_ino
        self.listener.listen(_PEERS)

    def close(self) -> None:
        """At the end. In a forked child, too, which has not the thread: the parent's own descriptors stay open."""
        for peer in list(self.peers.values()):
            peer.end.close()
        if self._is_own():
            self.listener.close()
        else:
            self.listener.detach()  # the number is another file's by now

    def run(self) -> None:
        try:
            while self._is_own():
                self._serve()
        except BaseException as error:  # of Python's end, or no memory: the program goes on without standby
            if not sys.is_finalizing():
                _say(f"no more windows on demand: {type(error).__name__}: {error}")

    def _is_own(self) -> bool:
        """Whether the descriptor is still this socket: a daemon closes all that it has, and uses the numbers again."""
        try:
            return os.fstat(self.listener.fileno()).st_ino == self.inode
        except OSError:
            return False

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self.listener.fileno(), select.POLLIN)
        for descriptor in self.peers:
            poll.register(descriptor, select.POLLIN)
        ends = [peer.until for peer in self.peers.values() if peer.until is not None]
        wait = max(0.0, min(ends) - time.monotonic()) * 1000 + 1 if ends else None
        ready = [descriptor for descriptor, _ in poll.poll(wait)]
        if not self._is_own():
            return
        for descriptor in ready:
            if descriptor == self.listener.fileno():
                self._accept()
            elif descriptor in self.peers:
                self._hear(descriptor, self.peers[descriptor])
        now = time.monotonic()
        for descriptor, peer in list(self.peers.items()):
            if peer.until is not None and peer.until <= now:
                self._drop(descriptor)

    def _accept(self) -> None:
        try:
            descriptor, _ = self.listener._accept()  # type: ignore[attr-defined]  # typeshed lacks it
        except OSError:  # it has gone again, or there is no descriptor
            time.sleep(0.01)  # not a loop of failures
            return
        end = _high(_socket.socket(fileno=descriptor))
        end.setblocking(False)
        if _uid(end) != self.uid:
            end.close()
            return
        silent = [number for number, peer in self.peers.items() if peer.until is not None]
        if len(silent) >= _PEERS:
            self._drop(silent[0])
        self.peers[end.fileno()] = _Peer(end)

    def _drop(self, descriptor: int) -> None:
        peer = self.peers.pop(descriptor)
        peer.end.close()
        if peer.window is not None:
            peer.window.stop()

    def _hear(self, descriptor: int, peer: _Peer) -> None:
        try:
            heard = peer.end.recv(standby_socket.LONGEST_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if peer.until is None:  # it has asked: more is nothing to us, but its end is
            if not heard:
                self._goes(descriptor, peer)
            return
        peer.asked += heard
        if not heard or len(peer.asked) > standby_socket.LONGEST_MESSAGE:
            self._drop(descriptor)
        elif peer.asked.endswith(standby_socket.END):
            if _has_gone(peer.end):  # it did not wait so long: nothing is opened for nobody
                self._drop(descriptor)
                return
            peer.until = None
            self._ask(peer)

    def _goes(self, descriptor: int, peer: _Peer) -> None:
        """It has closed, or wants its window to end: then it still reads the answer."""
        if peer.window is not None and not peer.window.done():
            peer.window.stop()
            peer.window.add_done_callback(lambda window: peer.end.close())
            del self.peers[descriptor]
        else:
            self._drop(descriptor)

    def _ask(self, peer: _Peer) -> None:
        try:
            asked = standby_socket.decoded(peer.asked[: -len(standby_socket.END)])
            if asked.get("verb") == "stop":
                self._stop(peer)
            elif asked.get("verb") in ("window", "start"):
                self._open(peer, asked)
            else:
                peer.refuse("no such request; the other side has another version of cuptimem")
        except Exception as error:  # whatever it is, the program goes on
            peer.refuse(error)

    def _open(self, peer: _Peer, asked: dict[str, str]) -> None:
        from cuptimem import environ, interpreter, naming
        from cuptimem.record import autostart, on_demand

        path = asked.get("path", "")
        if not path:
            rank = naming.rank_of(environ.obeyed())
            name = naming.default_name(interpreter.script_of(sys.orig_argv), os.getpid(), rank)
            path = naming.free_name(os.path.join(asked.get("folder") or os.getcwd(), name))
        # A profile would replace what this process wrote.
        naming.check_target(path, asked.get("force") == "1", "--force")
        bounded = asked["verb"] == "window"

        def opened(window: "Window") -> None:
            if bounded:
                peer.answer(state="open", path=window.path or "")
            else:
                peer.finish(state="open", path=window.path or "")

        self.window = window = on_demand.OnDemand(**autostart.options(_settings))._window(
            opened,
            path,
            float(asked["seconds"]) if bounded and "seconds" in asked else None,
            int(asked["steps"]) if bounded and "steps" in asked else None,
            overwrite=asked.get("force") == "1",
        )
        window.add_done_callback(lambda done: self._forget(window))
        if bounded:
            peer.window = window
            window.add_done_callback(lambda done: _tell(peer, window))
        else:
            window.add_done_callback(lambda done: _refuse(peer, window))

    def _forget(self, window: "Window") -> None:
        """Its profile goes with it."""
        if self.window is window:
            self.window = None

    def _stop(self, peer: _Peer) -> None:
        from cuptimem.record import on_demand

        window = on_demand.OnDemand().current
        if window is None:
            peer.refuse("no window is open")
        elif window is not self.window:
            peer.refuse(f"{window} is open that the program itself has asked for; it ends there")
        else:
            window.add_done_callback(lambda done: _tell(peer, window))
            window.stop()


def _refuse(peer: _Peer, window: "Window") -> bool:
    """Whether there is a reason to."""
    error = None if window.cancelled() else window.exception()
    if error is not None:
        peer.refuse(error)
    return error is not None


def _tell(peer: _Peer, window: "Window") -> None:
    if not _refuse(peer, window):
        peer.finish(state="ended", path=window.path or "")


def _has_gone(end: _socket.socket) -> bool:
    try:
        return not end.recv(1, _socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _uid(end: _socket.socket) -> int:
    found = end.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, standby_socket.CREDENTIALS)
    return int.from_bytes(found[4:8], sys.byteorder)


def _remove_left(path: str) -> None:
    """Removes what the program left that this process was before an exec. Raises FileExistsError if somebody listens
    there: another interpreter of this process."""
    end = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        end.connect(path)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        os.unlink(path)
        return
    finally:
        end.close()
    raise FileExistsError("another interpreter of this process is")


def _high(end: _socket.socket) -> _socket.socket:
    """The same with the highest free descriptor below a bound, closed by exec."""
    for number in range(_HIGHEST - 1, 2, -1):
        try:
            os.fstat(number)
        except OSError:
            try:
                os.dup2(end.fileno(), number, inheritable=False)
            except OSError:  # beyond what this process may have
                continue
            end.close()
            return _socket.socket(fileno=number)
    return end


def _say(line: str) -> None:
    from cuptimem.record import autostart

    autostart.say(line)


def is_on() -> bool:
    return _server is not None


def start(settings: "dict[str, str]") -> None:
    """Opens this process's socket; forked children will open their own. settings: variables of autostart.py, for all
    windows.

    Raises OSError where no socket can be made.
    """
    global _settings, _registered
    if _server is not None:
        return
    _settings = settings
    _begin()
    standby_socket.sweep(os.path.dirname(standby_socket.path_of(os.getpid())))  # not in each forked child
    if not _registered:
        _registered = True
        import atexit

        os.register_at_fork(after_in_child=_after_fork_in_child)
        atexit.register(_at_exit)


def _begin() -> None:
    global _server
    server = _Server()
    # A signal that the program's threads block must not be taken by this one.
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals() - set(_FAULTS))
    try:
        _thread.start_new_thread(server.run, ())
    except RuntimeError as error:
        server.close()
        os.unlink(server.path)
        raise OSError(f"no thread: {error}") from None
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
    _server = server


def _after_fork_in_child() -> None:
    global _server
    parents, _server = _server, None
    if parents is not None:
        parents.close()
    subprocess, caller = sys.modules.get("subprocess"), sys._getframe().f_back
    execute = getattr(getattr(subprocess, "Popen", None), "_execute_child", None)
    if caller is not None and caller.f_code is getattr(execute, "__code__", None):
        return  # with preexec_fn: it is about to become another program, which would leave its socket's file
    try:
        _begin()
    except OSError:  # no folder, or no descriptor: this child is not in standby, which who asks is told
        return


def _at_exit() -> None:
    server = _server
    if server is not None:
        server.close()
        try:
            os.unlink(server.path)
        except OSError:  # a clean-up of temporary files was faster
            return
