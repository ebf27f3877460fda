"""A folder of logs cannot take TensorBoard down: what one file, many requests or the folder itself may cost."""

import gzip
import json
import os
import subprocess
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboard", reason="tensorboard is not installed here: pip install tensorboard")

from cuptimem.tensorboard import files, limits, packed, walk
from cuptimem.tensorboard.data import FOLDER, SUFFIX
from tests.tools.tensorboard.support import get, plugin, report, runs, write

LARGEST = 12 * limits.BYTES  # bytes of memory for one file, whatever is in it


def put(run: Path, name: str, packed: bytes) -> Path:
    place = run / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    path = place / (name + SUFFIX)
    path.write_bytes(packed)
    return path


def good(folder: Path, run: str = "good", **changes: Any) -> bytes:
    """Writes a recording; gives its JSON."""
    write(report(folder / "source", **changes), folder / "logs" / run)
    (path,) = (folder / "logs" / run / FOLDER).iterdir()
    return gzip.decompress(path.read_bytes())


@pytest.fixture
def unpacking(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Begins to count: how many bytes came out of each file that is unpacked from now on. The first waits a moment for
    another, which begins where requests do not share it."""

    def begin() -> list[int]:
        sizes: list[int] = []
        another = threading.Event()
        original = zlib.decompressobj

        class Stream:
            def __init__(self, *arguments: Any, **options: Any) -> None:
                self._stream = original(*arguments, **options)
                self._number = len(sizes)
                sizes.append(0)
                if self._number:
                    another.set()
                another.wait(0.3)

            def decompress(self, *arguments: Any) -> bytes:
                part: bytes = self._stream.decompress(*arguments)
                sizes[self._number] += len(part)
                return part

            def __getattr__(self, name: str) -> Any:
                return getattr(self._stream, name)

        monkeypatch.setattr(zlib, "decompressobj", Stream)
        return sizes

    return begin


# -- one file -------------------------------------------------------------------------------------------------------


def filled(unit: bytes, size: int) -> bytes:
    return b"[" + unit * (size // len(unit)) + b"0]"


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "numbers": (lambda: filled(b"0,", 60 << 20), "larger than 8 MiB"),
    "numbers below the size": (lambda: filled(b"0,", limits.BYTES - 8), "more than 1,048,576 values"),
    "as many numbers as may be": (lambda: filled(b"1.5,", 4 * limits.VALUES - 8), "not one of cuptimem's"),
    "lists": (lambda: filled(b"[],", limits.BYTES - 8), "more than 131,072 lists and objects"),
    "as many objects as may be": (lambda: filled(b'{"a":1},', 8 * limits.CONTAINERS - 16), "not one of cuptimem's"),
    "texts": (lambda: filled(b'"abcd",', limits.BYTES - 8), "more than 1,048,576 values"),
    "equal keys": (lambda: b"{" + b'"a":[1],' * 120_000 + b'"a":1}', "not one of cuptimem's"),
    "keys": (lambda: b"{%s}" % b",".join(b'"%d":1' % i for i in range(400_000)), "not one of cuptimem's"),
    "depth": (lambda: b"[" * 100_000 + b"]" * 100_000, "no JSON"),
    "a long number": (lambda: b"[" + b"9" * (4 << 20) + b"]", "more than 310 digits"),
    "a long fraction": (lambda: b"[0." + b"1" * (4 << 20) + b"]", "more than 310 digits"),
    "one wide text": (lambda: b'"' + b"a" * (limits.BYTES - 20) + b'\\ud83d\\ude00"', "not one of cuptimem's"),
    "spaces": (lambda: b" " * limits.BYTES, "no JSON"),
    "not a number": (lambda: b"[NaN]", "no JSON"),
    "another encoding": (lambda: "{}".encode("utf-16"), "no JSON"),
    "no text": (lambda: b'"\xc3\xa4"', "no JSON"),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_file_costs_a_multiple_of_what_the_handler_writes(
    tmp_path: Path, unpacking: Callable[[], list[int]], kind: str
) -> None:
    make, why = BOMBS[kind]
    good(tmp_path)
    put(tmp_path / "logs" / "bad", "bomb", gzip.compress(make(), 1))
    one = plugin(tmp_path / "logs")
    unpacked = unpacking()
    tracemalloc.start()
    try:
        found = runs(one)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LARGEST and max(unpacked) <= limits.BYTES + 1
    assert [entry["run"] for entry in found["recordings"]] == ["good"]
    (entry,) = found["broken"]
    assert (entry["run"], entry["name"]) == ("bad", "bomb") and why in entry["why"], entry["why"]


def streams(whole: bytes) -> dict[str, bytes]:
    made = gzip.compress(whole)
    return {
        "two members": gzip.compress(whole[:50]) + gzip.compress(whole[50:]),
        "empty members": gzip.compress(b"") * 10_000,
        "more behind it": made + b"more",
        "zeros behind it": made + bytes(100_000),
        "another checksum": made[:-8] + bytes(8),
        "another length": made[:-1] + b"\xff",
        "no header": zlib.compress(whole),
        "twice": gzip.compress(made),
        "a long name": b"\x1f\x8b\x08\x08" + bytes(6) + b"a" * (9 << 20) + b"\0" + made[10:],
        **{f"cut at {end}": made[:end] for end in (0, 1, 9, 10, 11, len(made) // 2, len(made) - 8, len(made) - 1)},
    }


def test_a_spoiled_stream_is_one_reason_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = packed.read
    monkeypatch.setattr(packed, "read", lambda found, state: read.append(found.name) or original(found, state))
    kinds = streams(good(tmp_path))
    for name, content in kinds.items():
        put(tmp_path / "logs" / "bad", name, content)
    one = plugin(tmp_path / "logs")
    for _ in range(2):
        found = runs(one)
        assert [entry["run"] for entry in found["recordings"]] == ["good"] and found["waiting"] == 0
        assert {entry["name"] for entry in found["broken"]} == set(kinds)
        assert all(entry["why"].startswith("it is ") for entry in found["broken"])
    assert sorted(read) == sorted([*kinds, "cycle-0"])


def test_what_just_fits_is_shown(tmp_path: Path) -> None:
    whole = good(tmp_path)[:-1] + b',"more":"'
    for name, size in (("fits", limits.BYTES), ("does not", limits.BYTES + 1)):
        put(tmp_path / "logs" / "edge", name, gzip.compress(whole + b"a" * (size - len(whole) - 2) + b'"}'))
    found = runs(plugin(tmp_path / "logs"))
    assert [entry["name"] for entry in found["recordings"] if entry["run"] == "edge"] == ["fits"]
    assert [entry["name"] for entry in found["broken"]] == ["does not"]


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good(tmp_path)
    (path,) = (tmp_path / "logs" / "good" / FOLDER).iterdir()
    original = packed._unpacked

    def changing(file: Any) -> bytes:
        text = original(file)
        os.utime(path, ns=(1, 1))
        return text

    monkeypatch.setattr(packed, "_unpacked", changing)
    one = plugin(tmp_path / "logs")
    (entry,) = runs(one)["broken"]
    assert entry["why"] == "it changed while it was read"
    monkeypatch.setattr(packed, "_unpacked", original)
    assert [entry["run"] for entry in runs(one)["recordings"]] == ["good"]


# -- many requests --------------------------------------------------------------------------------------------------


def at_once(number: int, ask: Callable[[], Any]) -> list[Any]:
    start = threading.Barrier(number)

    def one(_number: int) -> Any:
        start.wait()
        return ask()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(one, range(number)))


def test_requests_at_once_read_a_file_once(tmp_path: Path, unpacking: Callable[[], list[int]]) -> None:
    for run in ("one", "two", "three"):
        good(tmp_path, run)
    one = plugin(tmp_path / "logs")
    unpacked = unpacking()
    lists = at_once(6, lambda: runs(one))
    assert all(found == lists[0] for found in lists) and len(lists[0]["recordings"]) == 3
    assert len(unpacked) == 3


@pytest.mark.parametrize("path", ["/data", "/compare"])
def test_requests_at_once_for_one_recording(
    tmp_path: Path, unpacking: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    compared: list[int] = []
    original = files.compare
    monkeypatch.setattr(files, "compare", lambda before, after: compared.append(1) or original(before, after))
    good(tmp_path, "one")
    good(tmp_path, "two", scale=3)
    one = plugin(tmp_path / "logs")
    unpacked = unpacking()
    first, second = (found.id for found in walk.walk({"": str(tmp_path / "logs")}).found)
    query = {"id": first} if path == "/data" else {"before": first, "after": second}
    answers = at_once(6, lambda: get(one, path, **query))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.data for answer in answers}) == 1
    assert len(unpacked) == (1 if path == "/data" else 2)
    assert len(compared) == (0 if path == "/data" else 1)


def test_one_list_reads_so_much_and_says_what_is_waiting(
    tmp_path: Path, unpacking: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_AT_ONCE", 1)
    for run in ("a", "b", "c"):
        good(tmp_path, run)
    one = plugin(tmp_path / "logs")
    unpacked = unpacking()
    for number in (1, 2, 3, 3):
        found = runs(one)
        assert (len(found["recordings"]), found["waiting"], len(unpacked)) == (number, 3 - number, number)


def test_what_is_kept_is_bounded(
    tmp_path: Path, unpacking: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(good(tmp_path, "a"))
    monkeypatch.setattr(files, "_KEPT", 2 * size + size // 2)
    for run in ("b", "c", "d"):
        good(tmp_path, run)
    one = plugin(tmp_path / "logs")
    unpacked = unpacking()
    ids = [entry["id"] for entry in runs(one)["recordings"]]
    for id in (*ids, *ids[-2:]):  # the last two are still there
        assert get(one, "/data", id=id).status_code == 200
    assert len(unpacked) == 4 + 2 + 2  # the list's; a and b were dropped, and reading them dropped c and d
    assert len(runs(one)["recordings"]) == 4 and len(unpacked) == 8  # the list needs none of them


# -- the folder -----------------------------------------------------------------------------------------------------


def test_links_are_not_followed(tmp_path: Path) -> None:
    good(tmp_path)
    write(report(tmp_path / "source"), tmp_path / "elsewhere" / "run")
    logs = tmp_path / "logs"
    (outside,) = (tmp_path / "elsewhere" / "run" / FOLDER).iterdir()
    (logs / "folder").symlink_to(tmp_path / "elsewhere")
    (logs / "plugins").symlink_to(tmp_path / "elsewhere" / "run" / "plugins")
    (logs / "inner" / "plugins").mkdir(parents=True)
    (logs / "inner" / FOLDER).symlink_to(outside.parent)
    (logs / "good" / FOLDER / ("file" + SUFFIX)).symlink_to(outside)
    (logs / "good" / FOLDER / ("lost" + SUFFIX)).symlink_to("nowhere")
    (logs / "loop").symlink_to("loop")
    (logs / "good" / "above").symlink_to(logs)
    (logs / "same").symlink_to(logs / "good")
    (tmp_path / "given").symlink_to(logs)
    for top in (logs, tmp_path / "given"):
        found = runs(plugin(top))
        assert [(entry["run"], entry["name"]) for entry in found["recordings"]] == [("good", "cycle-0")]
        assert [entry["name"] for entry in found["broken"]] == ["file", "lost"]
        assert {entry["why"] for entry in found["broken"]} == {
            "it cannot be read: it is a link, and links are not followed"
        }
        (note,) = found["notes"]
        said, _, names = note.removesuffix(".").partition(": ")
        assert said == "Links that lead out of the folder are not followed"
        assert sorted(names.split(", ")) == ["folder", f"inner/{FOLDER}", "plugins"]


def test_a_folder_that_became_a_link_after_the_search_is_not_followed(tmp_path: Path) -> None:
    good(tmp_path)
    write(report(tmp_path / "source", scale=7), tmp_path / "elsewhere")
    one = plugin(tmp_path / "logs")
    (entry,) = runs(one)["recordings"]
    os.rename(tmp_path / "logs" / "good", tmp_path / "away")
    (tmp_path / "logs" / "good").symlink_to(tmp_path / "elsewhere")
    answer = get(one, "/data", id=entry["id"])
    assert answer.status_code == 404 and "cannot be read" in answer.json["error"]


def test_pipes_and_folders_hold_no_request_up(tmp_path: Path) -> None:
    good(tmp_path)
    place = tmp_path / "logs" / "good" / FOLDER
    os.mkfifo(place / ("pipe" + SUFFIX))
    (place / ("folder" + SUFFIX)).mkdir()
    one = plugin(tmp_path / "logs")
    found = runs(one)
    assert [entry["name"] for entry in found["recordings"]] == ["cycle-0"]
    assert [entry["name"] for entry in found["broken"]] == ["folder"]
    (path,) = place.glob("cycle*")
    path.unlink()
    os.mkfifo(path)  # after the search
    assert "no regular file" in get(one, "/data", id=found["recordings"][0]["id"]).json["error"]


def test_deep_folders_are_looked_into(tmp_path: Path) -> None:
    """Deeper than Python recurses, up to what a path may have."""
    good(tmp_path)
    before = os.getcwd()
    os.chdir(tmp_path / "logs")
    try:
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(before)
    try:
        found = runs(plugin(tmp_path / "logs"))
    finally:
        subprocess.run(["rm", "-r", tmp_path / "logs" / "d"], check=True)  # Python's would recurse
    assert [entry["run"] for entry in found["recordings"]] == ["good"]
    assert found["notes"][0].startswith("Folders that cannot be read: d/d/")
    assert len(found["notes"][0]) < 200


@pytest.mark.parametrize("what", ["FOLDERS", "NAMES", "RECORDINGS"])
def test_a_search_has_an_end_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    scanned: list[str] = []
    original = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scanned.append(path) or original(path))
    for number in range(8):
        good(tmp_path, f"run{number}")
    monkeypatch.setattr(walk, what, 6)
    found = runs(plugin(tmp_path / "logs"))
    assert found["notes"] == [
        f"Not everything was looked at: there are more than 6 {what.lower()}. "
        "Start TensorBoard with a folder that has fewer."
    ]
    assert len(found["recordings"]) < 8 and found["broken"] == []
    assert len(scanned) <= {"FOLDERS": 6}.get(what, 1 + 3 * 8)


def test_many_files_of_others_are_no_hindrance(tmp_path: Path) -> None:
    good(tmp_path)
    for number in range(3000):
        (tmp_path / "logs" / f"{number}.cuptimem.json.gz").touch()
        (tmp_path / "logs" / "good" / FOLDER / f"{number}.txt").touch()
    found = runs(plugin(tmp_path / "logs"))
    assert (len(found["recordings"]), found["broken"], found["notes"]) == (1, [], [])


def test_requests_share_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    original = files.walk
    monkeypatch.setattr(files, "walk", lambda folders: searches.append(1) or original(folders))
    monkeypatch.setattr(files, "_WALK_HOLDS", 3600.0)
    good(tmp_path)
    one = plugin(tmp_path / "logs")
    (entry,) = runs(one)["recordings"]
    answers = at_once(6, lambda: get(one, "/data", id=entry["id"]).status_code)
    assert one.is_active() and answers == [200] * 6 and len(searches) == 1


NAMES = [
    b"<img src=x onerror=alert(1)>",
    b"\"'&;",
    b"a\nb",
    b"\xff\xfe",
    "\u202e".encode(),
    b"..x",
    b"%2e%2e",
    b" ",
    b"-",
]


def test_names_are_text(tmp_path: Path) -> None:
    good(tmp_path)
    (path,) = (tmp_path / "logs" / "good" / FOLDER).iterdir()
    content = path.read_bytes()
    for name in NAMES:
        run = os.fsencode(tmp_path / "logs") + b"/" + name
        os.makedirs(run + b"/" + os.fsencode(FOLDER))
        for file, data in ((name, content), (b"bad" + name, b"")):
            with open(run + b"/" + os.fsencode(FOLDER) + b"/" + file + os.fsencode(SUFFIX), "wb") as opened:
                opened.write(data)
    found = runs(plugin(tmp_path / "logs"))
    assert (len(found["recordings"]), len(found["broken"])) == (len(NAMES) + 1 - 1, len(NAMES))  # ..x is hidden
    texts = [entry[key] for entry in (*found["recordings"], *found["broken"]) for key in ("run", "name")]
    assert all(text.isprintable() for text in texts) and "a\\nb" in texts and "\\udcff\\udcfe" in texts
    json.dumps(found).encode("ascii")
