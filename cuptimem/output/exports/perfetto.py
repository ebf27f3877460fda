"""The ranks of a job in one file for Perfetto: a zip archive of their chrome exports, and Perfetto's manifest.

Clocks of several machines are not compared: each rank is moved in time so that its steps begin when those of the first
rank do, in the median of the steps that both have. The times in the exports are moved, so that a Perfetto from before
the manifest shows the same; the manifest says which file is which rank's, and that all of them have one clock.
"""

import io
import json
import os
import shutil
import statistics
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, cast

from cuptimem.errors import Error
from cuptimem.output.exports import Options, Written, chrome, events
from cuptimem.output.exports.events import Events
from cuptimem.output.exports.spool import spool_folder
from cuptimem.output.text import words
from cuptimem.report.load import analyze
from cuptimem.whole_files import is_stream

MANIFEST = "perfetto_manifest.json"
_LEVEL = 5  # of compression
_BLOCKS = 1 << 32  # numbers of tracks that each rank has for its own

Begins = Mapping[tuple[str, int], int]  # when a loop's step begins, in nanoseconds of its recording


@dataclass(frozen=True, slots=True)
class _Rank:
    trace: str
    number: int | None
    host: str
    pid: int
    begins: Begins

    @property
    def label(self) -> str:
        return f"rank {self.number}" if self.number is not None else events.text(os.path.basename(self.trace))


def write(trace: str, path: str, options: Options) -> Written:
    events.refuse(path, options)
    ranks = [_read(one, options) for one in dict.fromkeys([trace, *options.others])]
    ranks.sort(key=lambda one: (one.number is None, one.number or 0))
    later = aligned([one.begins for one in ranks])
    notes = [
        f"{one.label} has no step in common with {ranks[0].label}: both begin together"
        for one, offset in zip(ranks, later, strict=True)
        if offset is None
    ]
    moved = [offset if offset is not None else 0 for offset in later]
    first = min(moved)  # Perfetto drops what is before 0
    names = [f"{at:04}.json" for at in range(len(ranks))]
    count = drawn = 0
    with _seekable(path, options) as file, zipfile.ZipFile(file, "w", compresslevel=_LEVEL) as pack:
        pack.writestr(_member(MANIFEST), json.dumps(_manifest(ranks, names)))
        for at, (one, pid) in enumerate(zip(ranks, _pids(ranks), strict=True)):
            place = chrome.Place(one.label, pid, at * _BLOCKS, moved[at] - first)
            with _writing(pack, names[at], one) as member:
                more, blocks, missing = chrome.write_events(member, Events(one.trace, options), options, place)
            count, drawn = count + more, drawn + blocks
            notes += [f"{one.label}: {note}" for note in missing]
    return Written(
        path,
        events.size(path),
        f"{words.plural(len(ranks), 'rank')}, {words.plural(count, 'event')}, {words.plural(drawn, 'block')} drawn",
        "https://ui.perfetto.dev (open trace file)",
        tuple(notes),
    )


@contextmanager
def _seekable(path: str, options: Options) -> Iterator[IO[bytes]]:
    """In an archive that was written to a pipe the size of a member stands behind it; here it stands before it."""
    with events.target(path, options) as file:
        if not is_stream(path):
            yield file
            return
        with tempfile.TemporaryFile(dir=spool_folder(path)) as spool:
            yield spool
            spool.seek(0)
            shutil.copyfileobj(spool, file)


@contextmanager
def _writing(pack: zipfile.ZipFile, name: str, rank: _Rank) -> Iterator[IO[bytes]]:
    """Not of zip's 64 bits, which Perfetto v52 does not open."""
    try:
        with (
            pack.open(_member(name), "w") as member,
            io.BufferedWriter(cast(io.RawIOBase, member), 1 << 16) as buffered,
        ):
            yield cast(IO[bytes], buffered)
    except RuntimeError as error:
        if "force_zip64" not in str(error):
            raise
        raise Error(f"{rank.label} has more than 2 GiB of events, too many for an archive: --least SIZE") from None


def _read(trace: str, options: Options) -> _Rank:
    """Read once more when its events are written: reports of all ranks at once may be more than memory has."""
    report = analyze(trace, code=options.code, window=options.window, progress=options.progress)
    number = report.environment.get("rank", "")
    return _Rank(
        trace,
        int(number) if number.isascii() and number.isdigit() else None,
        events.text(report.environment.get("host", "")),
        chrome.pid_of(report),
        {(step.loop, step.index): step.begin_ns for step in report.steps},
    )


def aligned(begins: Sequence[Begins]) -> list[int | None]:
    """By how many nanoseconds each is later than in its own recording; the first by none. None: no step in common."""
    found: list[int | None] = []
    for one in begins:
        apart = [begins[0][step] - one[step] for step in one.keys() & begins[0].keys()]
        found.append(statistics.median_low(apart) if apart else None)
    return [0, *found[1:]]


def _pids(ranks: Sequence[_Rank]) -> list[int]:
    """The processes' own numbers; where two have one, as in containers, each rank's place."""
    known = Counter(one.pid for one in ranks)
    return [one.pid for one in ranks] if len(known) == len(ranks) else [at + 1 for at in range(len(ranks))]


def _manifest(ranks: Sequence[_Rank], names: Sequence[str]) -> dict[str, object]:
    """Version 1: perfetto.dev/docs/reference/perfetto-manifest. A machine is a rank: each has its own tracks."""

    def entry(at: int) -> dict[str, object]:
        machine = f"{ranks[at].label} on {ranks[at].host}" if ranks[at].host else ranks[at].label
        clocks = {"clocks": {"sync_to": {"file": names[0]}, "offset_ns": 0}} if at else {}
        return {"path": names[at], "machine": {"name": machine}, **clocks}

    return {"perfetto_manifest": {"version": 1, "files": [entry(at) for at in range(len(ranks))]}}


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)  # of 1980: the same ranks give the same file
    info.compress_type = zipfile.ZIP_DEFLATED
    return info
