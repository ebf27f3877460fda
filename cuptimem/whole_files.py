"""Files that are written whole or not at all: who opens one never sees half of it, and a killed writer leaves none."""

import contextlib
import errno
import os
import re
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from cuptimem import tempfiles

_OPEN = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def descriptor(path: str | os.PathLike[str]) -> int | None:
    """The open descriptor that the name stands for (/dev/stdout, /dev/fd/63); None: it is another name."""
    name = os.fspath(path)
    found = re.fullmatch(r"/(?:dev|proc/self)/fd/([0-9]{1,9})", name)
    return int(found[1]) if found is not None else _OPEN.get(name)


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether replacing() writes to what is there: an open descriptor, a terminal, a pipe, /dev/null."""
    if descriptor(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write that takes the path's place when the block ends. Where the block raises, or the process is
    killed, what was there stays. A stream is written to and not replaced: root could. Raises OSError."""
    if is_stream(path):
        with _open_stream(path) as file:
            yield file
        return
    nameless = _open_nameless(os.path.dirname(path))
    if nameless is None:
        with beside(path) as part, open(part, "xb") as file:
            yield file
        return
    with nameless as file:
        yield file
        file.flush()  # what is buffered may be what the disk has no room for
        with beside(path) as part:
            os.link(_name_of(file.fileno()), part, src_dir_fd=file.fileno())  # without one, link() follows no link


@contextmanager
def beside(path: str | os.PathLike[str]) -> Iterator[str]:
    """A name for a file that the block makes; it takes the path's place when the block ends. Where the block raises it
    is removed. What a killed process left under such a name is removed by the next writer in that folder."""
    folder = os.path.dirname(path)
    tempfiles.sweep(folder or os.curdir)
    part = tempfiles.name(folder)
    try:
        with _removed_at_end(part):
            yield part
            os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise


def _name_of(number: int) -> str:
    return f"/proc/self/fd/{number}"


def _open_nameless(folder: str) -> IO[bytes] | None:
    """A file that has no name until it is linked, so that SIGKILL leaves nothing. None: not on this file system."""
    try:
        number = os.open(folder or os.curdir, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    except (AttributeError, OSError):  # not Linux; or opening a named file reports what is wrong
        return None
    if os.path.exists(_name_of(number)):
        return os.fdopen(number, "wb")
    os.close(number)  # without /proc it could get no name
    return None


def _open_stream(path: str | os.PathLike[str]) -> IO[bytes]:
    number = descriptor(path)
    if number is not None:
        return os.fdopen(os.dup(number), "wb")
    mode = os.stat(path).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode):
        what = "a socket" if stat.S_ISSOCK(mode) else "a block device"
        raise OSError(errno.EINVAL, f"it is {what}")
    try:
        # A blocking open of a pipe waits until another program reads it: it may never come.
        number = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(mode):
            raise OSError(errno.ENXIO, "it is a pipe that no program reads") from None
        raise
    os.set_blocking(number, True)
    return os.fdopen(number, "wb")


@contextmanager
def _removed_at_end(part: str) -> Iterator[None]:
    """Meanwhile, SIGTERM and SIGHUP remove the file and then end the process as they would have. A handler, or an
    ignored signal, of the program stays as it is."""
    owner = os.getpid()

    def end(number: int, frame: object) -> None:
        if os.getpid() == owner:
            with contextlib.suppress(OSError):
                os.unlink(part)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    changed = []
    try:
        for number in _ENDINGS:
            if signal.getsignal(number) is signal.SIG_DFL:
                # The main thread alone may set a handler; the next writer removes what another one leaves.
                with contextlib.suppress(ValueError):
                    signal.signal(number, end)
                    changed.append(number)
        yield
    finally:
        for number in changed:
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)
