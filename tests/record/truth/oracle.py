"""The oracle (oracle.c) from Python: preloaded into children (conftest.py), read by ctypes inside them."""

import ctypes
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path


def library() -> Path:
    """The preload library."""
    from tests.build import build  # not in the children, which read this file too

    flags = ["-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    return build("oracle.so", [Path(__file__).with_suffix(".c")], *flags, link=["-ldl", "-lpthread"])


def environment(library: Path, **more: str) -> dict[str, str]:
    """The environment of a child that runs under the oracle."""
    return {**os.environ, "LD_PRELOAD": str(library), "ORACLE": str(library), "OMP_NUM_THREADS": "1", **more}


class Oracle:
    """Reads the preloaded library of this very process. Sizes and sums are in bytes."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["ORACLE"])
        self._library.oracle_live.restype = ctypes.c_size_t
        self._library.oracle_marks.restype = ctypes.c_size_t
        self._library.oracle_heap.restype = ctypes.c_int64
        self._capacity = 1 << 16
        self._pairs = (ctypes.c_uint64 * (2 * self._capacity))()

    def live(self) -> dict[int, int]:
        """address -> size of every block that is alive."""
        count = self._library.oracle_live(self._pairs, ctypes.c_size_t(self._capacity))
        if count > self._capacity:
            self._capacity = 2 * count
            self._pairs = (ctypes.c_uint64 * (2 * self._capacity))()
            return self.live()
        return dict(zip(self._pairs[0 : 2 * count : 2], self._pairs[1 : 2 * count : 2], strict=True))

    def totals(self) -> dict[str, int]:
        out = (ctypes.c_int64 * 6)()
        self._library.oracle_totals(out)
        names = ("live_bytes", "live_blocks", "peak", "allocations", "frees", "overflow")
        return dict(zip(names, out, strict=True))

    def heap(self) -> int:
        """What malloc has given out and not got back: tensor blocks, graph nodes, everything."""
        return int(self._library.oracle_heap())

    def reset(self) -> None:
        """Peak and the first step start from what is live now."""
        self._library.oracle_reset()

    def mark(self) -> None:
        """A step ends here and the next begins."""
        self._library.oracle_mark()

    def marks(self) -> list[tuple[int, int, int]]:
        """(start, peak, end) of every marked step."""
        out = (ctypes.c_int64 * (3 * (1 << 16)))()
        count = self._library.oracle_marks(out, ctypes.c_size_t(1 << 16))
        return [(out[3 * i], out[3 * i + 1], out[3 * i + 2]) for i in range(count)]

    def hold(self, where: int, size: int) -> None:
        """The next thread with a block of this size waits inside its call: 1 an allocation, -1 a free."""
        self._library.oracle_hold(where, ctypes.c_uint64(size))

    def release(self) -> None:
        """Lets that thread go on."""
        self._library.oracle_release()

    def wait_for_hold(self) -> None:
        """Returns once a thread is held."""
        while not self._library.oracle_holds():
            time.sleep(0.001)

    def log_open(self, path: Path, kill_at: int = 0, room: int = 1 << 20) -> None:
        """Logs every call into a new file that outlives this process; SIGKILL after kill_at published entries."""
        arguments = (os.fsencode(path), ctypes.c_uint64(room), ctypes.c_uint64(kill_at))
        if self._library.oracle_log_open(*arguments) != 0:
            raise OSError(f"cannot create {path}")

    def log_phase(self, phase: int) -> None:
        """1 starting, 2 recording, 3 stopping, 4 stopped."""
        self._library.oracle_log_phase(ctypes.c_uint64(phase))


@dataclass(frozen=True)
class Log:
    """What a (killed) program's log holds; indices count entries, entries are (address, size or -1 for a free)."""

    published: int
    recording: int | None
    stopping: int | None
    phase: int
    entries: list[tuple[int, int]]
    threads: list[int]  # which thread made each entry


def read_log(path: Path) -> Log:
    data = path.read_bytes()
    published, _, recording, stopping, phase, written = struct.unpack_from("<6Q", data)
    never = (1 << 64) - 1
    calls = list(struct.iter_unpack("<Qqq", data[64 : 64 + 24 * written]))
    return Log(
        published,
        None if recording == never else recording,
        None if stopping == never else stopping,
        phase,
        [(address, size) for address, size, _ in calls],
        [thread for *_, thread in calls],
    )


def log_phase_now(path: Path) -> int:
    """The phase of a running program's log, 0 before there is one."""
    try:
        with path.open("rb") as file:
            return int(struct.unpack("<Q", file.read(40)[32:40].ljust(8, b"\0"))[0])
    except FileNotFoundError:
        return 0
