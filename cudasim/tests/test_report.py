"""The reader of reports, over files that a program writes as the header lays them out."""

import subprocess
from pathlib import Path

import pytest

from cudasim import report
from cudasim.tests.objects import SOURCES

WRITER = r"""
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "core/report.h"
static cm_sim_report r;
int main(int argc, char **argv)
{
    r.version = CM_SIM_REPORT_VERSION;
    r.header_bytes = CM_SIM_REPORT_HEADER;
    r.device_bytes = CM_SIM_REPORT_DEVICE;
    r.device_room = CM_SIM_DEVICES;
    r.note_bytes = CM_SIM_REPORT_NOTE;
    r.note_room = CM_SIM_REPORT_NOTES;
    r.pid = 4711;
    r.devices = 2;
    r.notes = 3;
    r.notes_dropped = 5;
    r.entry_ns = 6;
    r.entries = 7;
    r.host_peak = 8;
    cm_sim_report_device *d = &r.device[1];
    strcpy(d->name, "NVIDIA L4");
    d->total = 10; d->context = 11; d->used = 12; d->peak = 13; d->peak_library = 14; d->library = 15;
    d->allocs = 16; d->frees = 17; d->refused = 18; d->refused_least = 19; d->refused_used = 20; d->limited = 21;
    d->ordinal = 5;
    d->reads = 22; d->read_bytes = 23; d->known_reads = 24; d->known_bytes = 25;
    strcpy(r.note[0].name, "cublasNew"); r.note[0].kind = CM_SIM_NOTE_UNDESCRIBED; r.note[0].count = 2;
    strcpy(r.note[1].name, "workspace"); r.note[1].kind = CM_SIM_NOTE_MODELLED; r.note[1].count = 3;
    r.note[1].bytes = 99;
    strcpy(r.note[2].name, "half written"); r.note[2].count = 1;
    if (argc > 2)
        r.version = 2;
    memcpy((void *)&r.magic, CM_SIM_REPORT_MAGIC, sizeof r.magic);
    FILE *f = fopen(argv[1], "wb");
    return fwrite(&r, sizeof r, 1, f) != 1 || fclose(f) != 0;
}
"""


@pytest.fixture(scope="module")
def writer(tmp_path_factory) -> Path:
    """A program that writes a report as the simulator's own header lays it out."""
    place = tmp_path_factory.mktemp("writer")
    (place / "writer.c").write_text(WRITER)
    subprocess.run(["gcc", "-std=gnu11", f"-I{SOURCES}", "writer.c", "-o", "writer"], cwd=place, check=True)
    return place / "writer"


def test_a_report_is_read_as_the_header_lays_it_out(writer, tmp_path):
    path = tmp_path / "report"
    subprocess.run([writer, path], check=True)
    subprocess.run([writer, f"{path}.99"], check=True)
    (tmp_path / "report.100").write_bytes(bytes(4096))  # a process that is about to fill it
    first, second = report.read(str(path))
    assert first == second and first.pid == 4711 and len(first.devices) == 2
    assert not first.devices[0].touched and first.used == (first.devices[1],)
    assert first.devices[1] == report.Counts(
        index=1,
        ordinal=5,
        name="NVIDIA L4",
        total=10,
        context=11,
        now=12,
        peak=13,
        peak_library=14,
        allocs=16,
        refused=18,
        limited=21,
        reads=22,
        read_bytes=23,
        known_reads=24,
    )
    assert (first.notes_dropped, first.entry_ns, first.entries, first.host_peak) == (5, 6, 7, 8)
    assert [(note.kind, note.name, note.count, note.bytes) for note in first.notes] == [
        (report.UNDESCRIBED, "cublasNew", 2, 0),
        (report.MODELLED, "workspace", 3, 99),
    ]
    (merged,) = report.merged_notes((first, second), report.MODELLED)
    assert (merged.count, merged.bytes) == (6, 99)
    assert report.read(str(tmp_path / "none")) == ()


def test_a_damaged_report_is_named(writer, tmp_path):
    path = tmp_path / "report"
    subprocess.run([writer, path], check=True)
    whole = path.read_bytes()
    for data, said in (
        (b"GARBAGE!" + whole[8:], "is no report"),
        (whole[:5000], "cut off: 5000 bytes"),
        (whole[:36] + b"\xff\xff\0\0" + whole[40:], "contradicts itself"),
        (whole[:100], "is no report"),
    ):
        with pytest.raises(report.Damaged, match=said):
            report.parse(data, "report")
    subprocess.run([writer, path, "other version"], check=True)
    with pytest.raises(report.Damaged, match="has version 2, this cudasim reads 1"):
        report.read(str(path))
