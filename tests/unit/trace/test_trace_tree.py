"""Tree samples in a trace: what is written is read, in bounds, and damage is an error."""

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from cuptimem import _core
from tests.unit.trace.tracelib import TREE, chunk, end_chunk, meta_chunk, text, tree_chunk, varint, write_file

WORKER, STATUS, ROLLUP = 2, 1, 2
PROCESS = (7, 1, 99, WORKER, "pt_data_worker", (40, 20, 8, 0), (1, 2, 3, 4, 5, 6, 7, 8))


def file_with(path: Path, *payloads: bytes) -> str:
    chunks = [chunk(TREE, payload) for payload in payloads]
    return str(write_file(path / "a.cmem", [meta_chunk(("pid", "1")), *chunks, end_chunk()]))


def kib(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(size << 10 for size in sizes)


def test_a_sample_is_read(tmp_path: Path) -> None:
    sample = tree_chunk(5 * 10**9, [PROCESS, (*PROCESS[:5], PROCESS[5], None)], [(7, 4096, "/dev/shm/x"), (0, 9, "")])
    ((realtime, cpu, shm, used, left, processes, files, opened, unseen),) = _core.tree_samples(
        file_with(tmp_path, sample)
    )
    assert (opened, unseen) == ([], 0)  # of an older version
    assert (realtime, cpu, shm, used, left) == (5 * 10**9, 1000, 1 << 30, 1 << 20, 0)
    assert processes == [
        (*PROCESS[:5], kib(PROCESS[5]), kib(PROCESS[6]), 0),
        (*PROCESS[:5], kib(PROCESS[5]), None, 0),
    ]
    assert files == [(7, 4096, "/dev/shm/x", 0, False), (0, 9, "", 0, False)]


def test_files_that_were_not_looked_at(tmp_path: Path) -> None:
    assert _core.tree_samples(file_with(tmp_path, tree_chunk(1, [PROCESS], None)))[0][6] is None


def test_fields_of_a_newer_version_are_passed_over(tmp_path: Path) -> None:
    more = varint(12) + varint(1) + text("new")
    sample = tree_chunk(1, [PROCESS, PROCESS], [(7, 1, "/x")], more=more, open_files=[(8, 2, "/y")])
    ((*_, processes, files, opened, unseen),) = _core.tree_samples(file_with(tmp_path, sample + varint(5) + b"more"))
    assert [(one[0], one[7]) for one in processes] == [(7, 12 << 10)] * 2
    assert files == [(7, 1, "/x", 12, True)] and opened == [(8, 2, "/y", 12, True)] and unseen == 5


def test_more_processes_and_files_than_are_kept(tmp_path: Path) -> None:
    sample = tree_chunk(1, [PROCESS] * 300, [(7, 1, f"/{i}") for i in range(100)], open_files=[(7, 1, "/x")] * 30)
    ((*_, left, processes, files, opened, _),) = _core.tree_samples(file_with(tmp_path, sample))
    assert left == 44 and len(processes) == 256 and files is not None and len(files) == 65 and len(opened) == 16


def test_long_names_are_cut(tmp_path: Path) -> None:
    sample = tree_chunk(1, [(7, 1, 99, WORKER, "n" * 99, PROCESS[5], None)], [(7, 1, "/" + "p" * 999)])
    ((*_, processes, files, _, _),) = _core.tree_samples(file_with(tmp_path, sample))
    assert processes[0][4] == "n" * 15 and files is not None and files[0][2] == "/" + "p" * 254


@pytest.mark.parametrize("cut", [1, 9, 20, 30, 45])
def test_a_sample_that_ends_too_early(tmp_path: Path, cut: int) -> None:
    sample = tree_chunk(1, [PROCESS], [(7, 1, "/x")])
    with pytest.raises(_core.Error, match="a tree sample is damaged"):
        _core.tree_samples(file_with(tmp_path, sample[:-cut]))


@pytest.mark.parametrize(
    "payload",
    [
        struct.pack("<Q", 1 << 63) + bytes(6),
        struct.pack("<Q", 1) + varint(1 << 63) + bytes(5),
        struct.pack("<Q", 1) + bytes(4) + varint(1 << 60),
        struct.pack("<Q", 1) + bytes(5) + varint(1 << 60),
    ],
)
def test_numbers_that_are_too_large(tmp_path: Path, payload: bytes) -> None:
    with pytest.raises(_core.Error, match="a tree sample is damaged"):
        _core.tree_samples(file_with(tmp_path, payload))


def test_what_follows_a_damaged_chunk_is_not_read(tmp_path: Path) -> None:
    path = file_with(tmp_path, tree_chunk(1, [PROCESS], None), tree_chunk(2, [PROCESS], None))
    data = bytearray(Path(path).read_bytes())
    at = data.rindex(b"pt_data_worker")
    data[at] ^= 1
    Path(path).write_bytes(data)
    assert [one[0] for one in _core.tree_samples(path)] == [1]


def test_a_copy_has_other_texts_and_the_same_numbers(tmp_path: Path) -> None:
    path = file_with(
        tmp_path,
        tree_chunk(3, [PROCESS], [(7, 4096, "/home/alice/model.pt")], open_files=[(7, 9, "/home/alice/model.pt")]),
    )
    seen = []

    def replace(kind: str, key: str, given: str) -> str:
        seen.append((kind, given))
        return {"/home/alice/model.pt": "~/model.pt", "pt_data_worker": "w" * 40}.get(given, given)

    _core.trace_rewrite(path, str(tmp_path / "b.cmem"), replace)
    ((*numbers, processes, files, opened, _),) = _core.tree_samples(str(tmp_path / "b.cmem"))
    assert ("name", "pt_data_worker") in seen and ("string", "/home/alice/model.pt") in seen
    assert numbers == list(_core.tree_samples(path)[0][:5])
    assert processes[0][4] == "w" * 15 and processes[0][5:7] == (kib(PROCESS[5]), kib(PROCESS[6]))
    assert files == [(7, 4096, "~/model.pt", 0, False)] and opened == [(7, 9, "~/model.pt", 0, False)]
