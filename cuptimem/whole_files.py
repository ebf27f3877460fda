"""Files that are written whole or not at all: who opens one never sees half of it."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write, beside path; it takes the path's place when the block ends. Where the block raises, what was
    there stays. A device or a pipe is written to and not replaced: root could. Raises OSError."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as stream:
            yield stream
        return
    folder, name = os.path.split(os.fspath(path))
    part = os.path.join(folder, f".{name[:40]}.{secrets.token_hex(8)}.part")
    with open(part, "xb") as file:
        try:
            yield file
            file.close()  # what is buffered may be what the disk has no room for
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise
