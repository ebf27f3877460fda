"""Where traces and rings come to lie, and what killed processes left there."""

from __future__ import annotations

import fcntl
import glob
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from cuptimem import environ
from cuptimem.doctor.checks import PLACES, SMALL_DISK, Check
from cuptimem.output.text.words import size
from cuptimem.record import recorder, standby_socket

_SHARED = "/dev/shm"
_SHARE = 16  # rings take one part in so many (csrc/capture/shared_memory.h), ...
_ENOUGH = _SHARE * (4 << 20)  # ... and the smallest that works well has 4 MiB
_WHOLE = _SHARE * (16 << 20)
_LITTLE = 32 << 20  # free, for a data loader


def _space(folder: str) -> tuple[int, int]:
    """Bytes in all, 0 where there is no bound, and bytes free to us."""
    about = os.statvfs(folder)
    return about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize


def standby_folder() -> Check:
    """Where CUPTIMEM=standby listens."""
    name = "standby folder"
    try:
        folder = os.path.dirname(standby_socket.path_of(os.getpid()))
    except OSError as error:
        return Check(
            PLACES,
            name,
            "warning",
            f"{error}",
            "CUPTIMEM=standby cannot listen, so `cuptimem window PID` finds nothing",
            "set XDG_RUNTIME_DIR to a folder of this user's alone",
        )
    return Check(PLACES, name, "ok", f"{folder}, for `cuptimem window PID`")


def trace_folder() -> Check:
    name = "trace folder"
    try:
        folder = os.getcwd()
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".cuptimem-doctor-") as file:
            file.write(b"\0" * 4096)
            file.flush()
        free = _space(folder)[1]
    except OSError as error:
        return Check(
            PLACES,
            name,
            "failed",
            f"traces go into the working directory, which cannot be written to: {error.strerror}",
            "`cuptimem run` writes no trace here",
            "change to another directory, or name one: cuptimem run -o /path/to/run.cmem",
        )
    text = f"{folder}, {size(free)} free"
    if free < SMALL_DISK:
        return Check(
            PLACES,
            name,
            "warning",
            text,
            "a long recording ends when the disk is full",
            "name another: cuptimem run -o",
        )
    return Check(PLACES, name, "ok", text)


def ring_checks(answer: dict[str, Any] | None) -> Iterator[Check]:
    chosen = environ.get("CUPTIMEM_RING_DIR")
    meta = (answer or {}).get("meta")
    lost = "what a killed process had not written yet is lost, up to its last second"
    if meta is not None:
        place, path = meta["ring.place"], meta["ring.path"]
        where = {
            "shared": f"{os.path.dirname(path)} (shared memory)",
            "chosen": f"{os.path.dirname(path)} (CUPTIMEM_RING_DIR)",
            "beside": "beside the trace, on its disk",
            "private": "private memory, in no file",
        }.get(place, place)
        text = f"{size(int(meta['ring.bytes']))} in {where}"
        if chosen and place != "chosen":
            yield Check(
                PLACES,
                "rings",
                "warning",
                f"CUPTIMEM_RING_DIR={chosen} cannot be used; {text}",
                "a place that was chosen on purpose is not used",
                "make it a writable folder on a local disk with 32 MiB free, or unset it",
            )
        elif place == "private":
            yield Check(PLACES, "rings", "warning", text, lost, f"free {size(_ENOUGH)} in {_SHARED}")
        else:
            yield Check(PLACES, "rings", "ok", text)
    try:
        total, free = _space(_SHARED)
    except OSError as error:
        yield Check(PLACES, _SHARED, "note", f"{error.strerror}: rings go beside the trace")
        return
    text = f"{size(free)} free of {size(total)}"
    if total > 0 and free < _LITTLE and not chosen:
        yield Check(
            PLACES,
            _SHARED,
            "warning",
            text,
            "data loaders run out of shared memory; rings go beside the trace",
            "docker run --shm-size=1g, or CUPTIMEM_RING_DIR=/a/local/folder",
        )
    elif 0 < total < _WHOLE:
        most = f", or take at most {size(total // _SHARE)} of it together" if total >= _ENOUGH else ""
        yield Check(
            PLACES,
            _SHARED,
            "note",
            f"{text}, as containers have it; rings go beside the trace on a local disk{most}",
            fix="docker run --shm-size=1g",
        )
    else:
        yield Check(PLACES, _SHARED, "ok", text)


def _is_orphan(path: str) -> bool:
    """Whether no living process holds this ring."""
    try:
        # The folder may be everybody's: a link is not followed, a pipe neither opened nor waited for.
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return False
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # held, another user's, or gone meanwhile
    return True


def left_rings() -> list[str]:
    """Rings that killed processes left, where a recording from here would look for them."""
    if recorder.active():  # CUPTIMEM=1 cuptimem doctor: opening and closing our own ring would let go of its lock
        return []
    folders = dict.fromkeys(filter(None, (environ.get("CUPTIMEM_RING_DIR"), _SHARED)))
    rings = [ring for folder in folders for ring in glob.glob(os.path.join(glob.escape(folder), ".cuptimem-ring-*"))]
    return [ring for ring in rings if _is_orphan(ring)]


def orphans(before: Sequence[str]) -> Check:
    """What has become of them: the self-test is a recording, and every recording clears up."""
    left = [ring for ring in before if _is_orphan(ring)]
    done = len(before) - len(left)
    text = f"{done} of killed processes, brought home to their traces just now" if done else "none"
    if not left:
        return Check(PLACES, "left rings", "ok", text)
    total = sum(os.stat(ring).st_size for ring in left)
    text = f"{len(left)} of killed processes, {size(total)}, whose traces are missing or cannot be written"
    fix = f"nothing: a recording drops them after 7 days; or remove {' '.join(left)}"
    return Check(PLACES, "left rings", "note", text, fix=fix)
