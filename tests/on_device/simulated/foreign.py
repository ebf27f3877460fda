"""foreign.c, compiled and called: a library of somebody else's that allocates."""

import ctypes
import shutil
from pathlib import Path
from typing import Any

from tests import build as builds

SOURCE = Path(__file__).with_name("foreign.c")
NAME = "libforeign.so"


def build(folder: Path, *options: str) -> Path:
    """Compiles it into that folder. Its name is NAME, whatever loads it."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-O1", "-fno-optimize-sibling-calls", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    words = ["-Wl,-soname," + NAME, "-lpthread", "-ldl", *options]
    return Path(shutil.copy(builds.build(NAME, [SOURCE], *flags, link=words), folder))


def load(library: Path, *, hold_the_gil: bool = False) -> Any:
    """The library by ctypes."""
    found = (ctypes.PyDLL if hold_the_gil else ctypes.CDLL)(str(library))
    word, pointer, size, number = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for name, (result, *arguments) in {
        **dict.fromkeys(("malloc", "managed", "host", "old_host", "async", "pitch"), (pointer, size)),
        **dict.fromkeys(("free", "host_free", "unregister", "async_free"), (number, pointer)),
        "free_nothing": (number,),
        "register": (number, pointer, size),
        "array": (word, size, size),
        "array_free": (number, word),
        "map": (word, size, number, ctypes.POINTER(word)),
        "unmap": (number, word, size, word),
        "retain": (word, word),
        "release": (number, word),
        "driver_malloc": (word, size),
        "driver_free": (number, word),
        "thread": (pointer, size, number),
        "begin": (number, size, number),
        "join": (pointer,),
        "ended": (number, number),
    }.items():
        function = getattr(found, f"foreign_{name}")
        function.argtypes, function.restype = arguments, result
    return found
