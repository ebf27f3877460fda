"""Where the socket of a process in standby lies, and what is said over it: for both of its ends.

Messages are fields `name=value` with a NUL behind each and a newline at the end. Part of every process in standby:
imports nothing but what Python has loaded by itself.
"""

import os
import stat

from cuptimem import environ

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER, PREFIX, SUFFIX = "cuptimem", "standby-", ".sock"
LONGEST_NAME = 107  # bytes of a socket's path, which the kernel bounds
LONGEST_MESSAGE = 8192
END = b"\0\n"
CREDENTIALS = 12  # bytes of struct ucred


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def birth(pid: int) -> str:
    """As tempfiles.birth, without the extension: in ticks; "" if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def name_of(pid: int) -> str:
    """Process numbers are used again, and are different ones in each namespace."""
    return f"{PREFIX}{_namespace()}.{pid}.{birth(pid)}{SUFFIX}"


def is_name(path: str) -> bool:
    """Whether this is where a process in standby listens."""
    folder, name = os.path.split(path)
    return (
        os.path.basename(folder).startswith(FOLDER)
        and name.startswith(PREFIX)
        and name.endswith(SUFFIX)
        and os.path.isabs(path)
    )


def _folders() -> "Iterator[str]":
    runtime = environ.get("XDG_RUNTIME_DIR")
    if os.path.isabs(runtime):
        yield os.path.join(runtime, FOLDER)
    own = f"{FOLDER}-{os.geteuid()}"
    temporary = environ.get("TMPDIR")
    if os.path.isabs(temporary):
        yield os.path.join(temporary, own)
    yield f"/tmp/{own}"


def path_of(pid: int) -> str:
    """Where this process is to listen: in $XDG_RUNTIME_DIR, else in a folder of this user's below the one for temporary
    files. The folder is made. Raises OSError where there is none that this user alone can write to."""
    name = name_of(pid)
    problem = OSError("there is no folder for a socket")
    for folder in _folders():
        path = os.path.join(folder, name)
        if len(os.fsencode(path)) > LONGEST_NAME:
            continue
        try:
            _make(folder)
            return path
        except OSError as error:
            problem = error
    raise problem


def _make(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        _check(folder)


def _check(folder: str) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user's alone")


def sweep(folder: str) -> int:
    """Removes sockets of processes of this namespace that are gone. How many."""
    removed, here = 0, f"{PREFIX}{_namespace()}."
    for name in os.listdir(folder):
        if not name.startswith(here) or not name.endswith(SUFFIX):
            continue
        pid, _, born = name[len(here) : -len(SUFFIX)].partition(".")
        try:
            if pid.isdigit() and birth(int(pid)) != born:
                os.unlink(os.path.join(folder, name))
                removed += 1
        except OSError:  # another process was faster
            continue
    return removed


def encoded(**fields: str) -> bytes:
    """A message. Values are paths, numbers and sentences: none has a NUL."""
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in fields.items() if value) + b"\n"


def decoded(message: bytes) -> dict[str, str]:
    """The fields of one message, without its end. Raises ValueError for what is none."""
    found = {}
    for field in message.split(b"\0"):
        name, equals, value = os.fsdecode(field).partition("=")
        if not equals or not name.isidentifier():
            raise ValueError("not a request")
        found[name] = value
    return found
