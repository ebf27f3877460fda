"""The stress program and what its verifier says."""

import os
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.build import WARNINGS, build, rooms

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Verified:
    """What the real reader found in a trace of the stress program (see verify.c)."""

    state: int
    events: int
    told: int
    producers: int
    names_lost: int
    early_frees: int


# Runs a Python program in a child process (conftest.py).
Program = Callable[..., "subprocess.CompletedProcess[str]"]

COMPLETE, RECORDING, RECOVERED, CUT = range(4)


@dataclass(frozen=True)
class Stress:
    program: Path
    folder: Path
    rings: Path

    def start(self, *words: object, stdin: bool = False, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.program), *map(str, words)],
            env={**os.environ, "STRESS_RING_DIR": str(self.rings), **environment},
            stdin=subprocess.PIPE if stdin else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def run(self, *words: object, **environment: str) -> list[int]:
        """The numbers that this mode prints."""
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, ""), f"{words}: {process.returncode} {out}{err}"
        return [int(word) for word in out.split()]

    def verify(self, path: Path) -> Verified:
        return Verified(*self.run("verify", path))


def begun_in(folder: Path) -> int:
    """Captures that the program in this folder has started, by its shared counters."""
    try:
        return int(struct.unpack_from("<Q", (folder / "counters").read_bytes())[0])
    except (FileNotFoundError, struct.error):
        return 0


# Where killpoints.c steps in.
_WRAPPED = [
    "cm_writer_create", "cm_writer_meta", "cm_writer_chunk", "cm_writer_end", "cm_writer_close", "cm_frames_begin",
    "cm_blockpool_give", "cm_producers_high", "cm_side_create", "cm_side_append", "cm_side_release", "cm_side_close",
    "pwrite", "open", "statfs", "statvfs", "posix_fallocate", "mremap",
]  # fmt: skip


WRAPPED = [f"-Wl,--wrap={name}" for name in _WRAPPED]
STRESS = [path for path in HERE.glob("*.c") if path.name not in ("frames_double.c", "connect.c")]

# What of the analysis compaction replays with.
REPLAYED = [
    ROOT / "csrc/heap" / f"{name}.c"
    for name in (
        *("blocks", "driver_join", "driver_map", "driver_map_events", "driver_totals", "group_totals", "nodes"),
        "step_clock_leads",
    )
]


def recorder() -> list[Path]:
    """All that records, with the frames doubled."""
    return [
        *rooms("base", "trace", "capture", "compact", "recover"),
        HERE / "frames_double.c",
        HERE / "connect.c",
        *REPLAYED,
    ]


def compile_stress() -> Path:
    flags = ["-std=gnu11", "-g", "-O2", "-fno-strict-aliasing", *WARNINGS]
    return build("stress", [*STRESS, *recorder()], *flags, link=["-lpthread", *WRAPPED])
