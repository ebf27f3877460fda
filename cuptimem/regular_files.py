"""Files of unknown origin, opened only where reading them comes to an end."""

import errno
import os
import stat
from typing import BinaryIO


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, or what a link to one leads to. Raises OSError for anything else: a device has no end, and a
    pipe waits for its writer."""
    _check(path, os.stat(path).st_mode)  # to open a device may have an effect
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb")  # noqa: SIM115  returned
    try:
        _check(path, os.fstat(file.fileno()).st_mode)  # it may be another one by now
    except OSError:
        file.close()
        raise
    return file


def content(path: str | os.PathLike[str], most: int) -> bytes:
    """All of such a file. Raises OSError also for one of more than so many bytes."""
    with opened(path) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", os.fspath(path))
    return found


def _check(path: str | os.PathLike[str], mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
