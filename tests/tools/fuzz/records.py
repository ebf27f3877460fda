"""Fuzzing of what reads CUPTI's activity records: tests/record/driver/activity/fuzz.c under libFuzzer.

`python -m tests.tools.fuzz.records [SECONDS]` (make fuzz-records) needs clang. It begins with the seeds below and what
earlier runs found (build/fuzz/records/), and writes what it counted to docs/fuzz/."""

import struct
import sys
import sysconfig
from pathlib import Path

from tests.build import SANITIZED, build
from tests.tools.fuzz import libfuzzer
from tests.tools.fuzz.libfuzzer import ROOT

LIMITS = ("-timeout=5", "-max_len=8192")
WAYS = 8  # fuzz.c: the first byte chooses one
# Bytes of records, by kind: the lengths that fuzz.c knows (memory2, pool, kernel, copy, copy2, set).
LENGTHS = (
    (112, 64, 144, 64, 64, 64),
    (120, 72, 200, 88, 96, 88),
    (128, 80, 216, 96, 96, 88),
    (128, 80, 248, 112, 96, 104),
)
MEMORY2, POOL, KERNEL, COPY, COPY2, SET, CALL = 49, 50, 10, 1, 22, 2, 4  # csrc/sources/cupti/activity_records.h


HARNESS = [ROOT / f"tests/record/driver/activity/{name}.c" for name in ("fuzz", "play", "doubles")]
READS = ("sources/cupti/activity_records.c", "sources/cupti/activity_clock.c", "base/clock.c")
SOURCES = [*HARNESS, *(ROOT / "csrc" / name for name in READS)]
FLAGS = [*SANITIZED, f"-I{sysconfig.get_paths()['include']}"]


def build_driver(*flags: str) -> Path:
    """The harness with standalone.c; gcc is enough."""
    here = Path(__file__).resolve().parent
    own = [here / f"{name}.c" for name in ("blind", "standalone")]
    return build("records", [*SOURCES, *own], *FLAGS, *flags, link=["-lpthread"])


def build_fuzzer() -> Path:
    return libfuzzer.build_fuzzer("fuzz-records", SOURCES, *FLAGS)


def record(kind: int, size: int, *words: tuple[int, str, int]) -> bytes:
    """A record with these fields: where, how wide, what. All other bytes are 0xaa."""
    data = bytearray(b"\xaa" * size)
    struct.pack_into("<I", data, 0, kind)
    for at, form, value in words:
        struct.pack_into(f"<{form}", data, at, value)
    return bytes(data)


def memory(size: int, operation: int, kind: int = 3, pool: int = 0) -> bytes:
    fields = struct.pack("<IIIIQQQQ", MEMORY2, operation, kind, 7, 0x7000, 4096, 1000, 0x5000).ljust(80, b"\0")
    return (fields + struct.pack("<QQQQ", pool, pool * 0xB000, 0, pool << 20)).ljust(size, b"\xaa")


def work(kind: int, size: int, correlation_at: int) -> bytes:
    return record(kind, size, (16, "Q", 2000), (24, "Q", 3000), (correlation_at, "I", 9))


def seeds() -> list[bytes]:
    """One of each record in every way to step over them, some cut off."""
    found = []
    for way in range(WAYS):
        memory2, pool, kernel, copy, copy2, set_ = LENGTHS[way % len(LENGTHS)]
        each = [
            memory(memory2, 1),
            memory(memory2, 2, kind=2),
            memory(memory2, 1, pool=1),
            record(POOL, pool, (4, "I", 3), (8, "I", 1), (20, "I", 2), (32, "Q", 0xB000), (40, "Q", 1 << 20)),
            work(KERNEL, kernel, 92),
            work(COPY, copy, 44),
            work(COPY2, copy2, 60),
            work(SET, set_, 44),
            record(CALL, 40),
        ]
        found += [bytes([way]) + one for one in each]
        found += [bytes([way]) + b"".join(each), bytes([way]) + b"".join(each)[:-5]]
    return found


if __name__ == "__main__":
    sys.exit(libfuzzer.long_run("record", "Fuzzing CUPTI's records", seeds(), build_fuzzer, LIMITS))
