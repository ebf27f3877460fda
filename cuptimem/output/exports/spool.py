"""Where an export keeps what it cannot write yet."""

import os
import tempfile

from cuptimem.whole_files import is_stream


def spool_folder(path: str) -> str:
    """Where there is as much room as for the file; a stream lies where nothing can be made."""
    return tempfile.gettempdir() if is_stream(path) else os.path.dirname(os.path.abspath(path))
