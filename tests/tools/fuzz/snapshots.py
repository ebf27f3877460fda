"""Fuzzing of what reads PyTorch's memory snapshots: snapshot_harness.c under libFuzzer.

`python -m tests.tools.fuzz.snapshots [SECONDS]` (make fuzz-snapshots) needs clang. It begins with the seeds below and
what earlier runs found (build/fuzz/snapshots/), and writes what it counted to docs/fuzz/."""

import pickle
import sys
from pathlib import Path

from tests.build import SANITIZED, build, rooms
from tests.tools.fuzz import libfuzzer
from tests.unit.snapshot.made import MiB, block, event, frame, freed, segment, snapshot, training, whole_lists

HERE = Path(__file__).resolve().parent
LIMITS = ("-timeout=20", "-rss_limit_mb=1024", "-malloc_limit_mb=256", "-max_len=8192")
AT = 0x7F00_0000_0000


def sources(*own: str) -> list[Path]:
    found = rooms("base", "trace", "snapshot")
    return [*found, HERE / "snapshot_harness.c", *(HERE / f"{name}.c" for name in own)]


def build_driver(*flags: str) -> Path:
    """The harness with standalone.c; gcc is enough."""
    return build("snapshots", sources("blind", "standalone"), *SANITIZED, *flags, link=["-lpthread"])


def build_fuzzer() -> Path:
    return libfuzzer.build_fuzzer("fuzz-snapshots", sources(), *SANITIZED)


def seeds() -> list[bytes]:
    """One of everything, in each protocol; the settings are long, so that most have none."""
    expandable = [
        event("segment_map", AT, 20 * MiB, 1),
        event("segment_map", AT + 40 * MiB, 20 * MiB, 2),
        event("segment_map", AT + 20 * MiB, 20 * MiB, 3),
        event("alloc", AT, 30 * MiB, 4, [frame(1)]),
        event("segment_unmap", AT + 40 * MiB, 10 * MiB, 5),
        event("oom", 1 << 30, 1 << 34, 6, [frame(2)]),
        event("snapshot", 0, 0, 7),
        event("later", 0, 0, 8),
    ]
    lost = [*freed(AT, 600, 5), event("segment_free", AT + 2 * MiB, 2 * MiB, 6)]
    notes = [
        {"stage": stage, "name": "Optimizer.step#SGD.step", "device": 0, "time_us": 4} for stage in ("START", "END")
    ]
    native = [frame(0, "torch::autograd::generated::MulBackward0::apply(int)", "??"), frame(1)]
    about = {"exporter": "cuptimem 1", "devices": "0 is cuda:0, 1 is cpu", "unreported": "0 is cuda:0"}
    backward = [frame(0, "MulBackward0", "backward"), frame(1)]
    exported = snapshot(
        [segment(AT, [block(AT, 512, 4)])], [[event("alloc", AT, 512, 3, backward, before_start=1)]], cuptimem=about
    )
    small = [
        training(1),
        snapshot([], [expandable]),
        snapshot([segment(AT, [block(AT, 512, 4, "active_pending_free"), block(AT + 512, 512, 9)])], [[], lost]),
        snapshot([], [[event("alloc", AT, 4, 3, native, user_metadata="pass")]], external_annotations=notes),
        {
            "segments": [segment(AT, [block(AT, 512, 4)])],
            "host_traces": [event("alloc", AT, 4, 1)],
            "host_segments": [],
        },
        [segment(AT, [block(AT, 512, 4)])],
        exported,
    ]
    for one in small:
        if isinstance(one, dict) and one is not small[0]:
            one.pop("allocator_settings", None)
    return [pickle.dumps(one, protocol) for one in small for protocol in (0, 2, 4)] + [whole_lists(small[3])]


if __name__ == "__main__":
    sys.exit(libfuzzer.long_run("snapshot", "Fuzzing memory snapshots", seeds(), build_fuzzer, LIMITS))
