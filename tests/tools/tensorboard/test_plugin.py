"""What the plugin answers, without a browser: through werkzeug's client, and in a TensorBoard without it."""

import argparse
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboard", reason="tensorboard is not installed here: pip install tensorboard")

from tensorboard.plugins import base_plugin
from werkzeug.test import Client

from cuptimem.tensorboard import data, packed, writing
from cuptimem.tensorboard.data import FOLDER, SUFFIX
from cuptimem.tensorboard.plugin import Plugin
from tests.conftest import Result
from tests.tools.tensorboard.support import HOSTILE, get, plugin, report, runs, write

Run = Callable[..., Result]


def spoil(path: Path, kind: str) -> None:
    good = json.loads(gzip.decompress(path.read_bytes()))
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "no gzip":
        path.write_bytes(b"GIF89a" * 100)
    elif kind == "unreadable":
        path.unlink()
        path.mkdir()
    else:
        changed: Any = {
            "no json": "{",
            "not ours": [1, 2],
            "later format": {**good, "format": data.FORMAT + 1},
            "true for a number": {**good, "duration_ns": True},
            "true for a format": {**good, "format": True},
            "no devices": {key: value for key, value in good.items() if key != "devices"},
            "a device is text": {**good, "devices": ["cpu"]},
            "short rows": {**good, "steps": [[1, 2]]},
            "nested rows": {**good, "steps": [[[]] * 12]},
            "not a number": {**good, "duration_ns": float("nan")},
            "deep": None,
        }[kind]
        text = "[" * 100_000 if kind == "deep" else changed if isinstance(changed, str) else json.dumps(changed)
        path.write_bytes(gzip.compress(text.encode()))


KINDS = {
    "cut": "cut or damaged",
    "empty": "cut or damaged",
    "no gzip": "cut or damaged",
    "unreadable": "cannot be read: Is a directory",
    "no json": "no JSON",
    "not ours": "not one of cuptimem's",
    "later format": "update cuptimem",
    "true for a number": "duration_ns is no whole number",
    "true for a format": "not one of cuptimem's",
    "no devices": "lacks 'devices'",
    "a device is text": "devices[0] is not an object",
    "short rows": "another length",
    "nested rows": "more than whole numbers",
    "not a number": "no JSON",
    "deep": "no JSON",
}


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the recordings whose files are read from now on."""
    read: list[str] = []
    original = packed.read
    monkeypatch.setattr(packed, "read", lambda found, state: read.append(found.name) or original(found, state))
    return read


def test_broken_files_are_named_and_the_good_ones_are_there(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for number, kind in enumerate(KINDS):
        write(report(tmp_path / "source"), logs / "bad", number, kind.replace(" ", "_"))
        spoil(next((logs / "bad" / FOLDER).glob(f"{kind.replace(' ', '_')}*")), kind)
    write(report(tmp_path / "source"), logs / "good")
    one = plugin(logs)
    found = runs(one)
    assert [(entry["run"], entry["devices"][0]["peak"]) for entry in found["recordings"]] == [("good", 4096)]
    reasons = {entry["name"].rsplit("-", 1)[0].replace("_", " "): entry["why"] for entry in found["broken"]}
    assert set(reasons) == set(KINDS)
    assert {kind: reason for kind, reason in reasons.items() if KINDS[kind] not in reason} == {}
    for entry in found["broken"]:
        answer = get(one, "/data", id=entry["id"])
        assert answer.status_code == 404 and answer.json["error"] == entry["why"]


def test_the_page_gets_the_reports_bytes(tmp_path: Path) -> None:
    made = report(tmp_path / "source", scale=123_457)
    write(made, tmp_path / "logs" / "one", 40)
    one = plugin(tmp_path / "logs")
    answer = get(one, "/data", id=runs(one)["recordings"][0]["id"])
    assert answer.content_type == "application/json" and answer.headers["X-Content-Type-Options"] == "nosniff"
    (device,) = answer.json["devices"]
    assert device["peak"] == made.peak.bytes == 4096 * 123_457
    assert sum(line["bytes"] for line in device["lines"]) + device["rest"]["bytes"] == made.peak.bytes
    assert sum(line["count"] for line in device["lines"]) + device["rest"]["count"] == made.peak.count
    assert device["peak_step"] == 41 and [row[0] for row in answer.json["steps"]] == [40, 41, 42]
    assert [row[6] for row in answer.json["steps"]] == [step.peak for step in made.steps]


@pytest.mark.scaled
def test_many_lines_are_bounded_and_still_sum_to_the_peak(tmp_path: Path, many_lines: int) -> None:
    made = of_lines(tmp_path, many_lines)
    write(made, tmp_path / "logs")
    (file,) = (tmp_path / "logs" / FOLDER).iterdir()
    assert file.stat().st_size < 1 << 20
    (device,) = json.loads(gzip.decompress(file.read_bytes()))["devices"]
    assert len(device["lines"]) + device["rest"]["lines"] == many_lines
    assert sum(line["bytes"] for line in device["lines"]) + device["rest"]["bytes"] == made.peak.bytes


def test_a_line_of_an_older_version_has_no_category(tmp_path: Path) -> None:
    from cuptimem.errors import Error
    from cuptimem.tensorboard import checks

    whole = data.prepare(report(tmp_path))
    line = whole["devices"][0]["lines"][0]
    del line["category"]
    checks.check(whole)
    line["category"] = ["parameter"]
    with pytest.raises(Error, match=r"lines\[0\].category is no text"):
        checks.check(whole)


def of_lines(folder: Path, number: int) -> Any:
    from cuptimem.report.load import from_dict
    from tests.tools.cli.sample import UNKNOWN, analysis

    raw = analysis(folder)
    raw["stacks"] = {i + 2: [("/home/user/train.py", "f", i, i, -1, -1, None, 0, "x")] for i in range(number)}
    raw["devices"][0]["contributors"] = [(i + 1, 1, i + 2, i + 2, "forward", None, *UNKNOWN) for i in range(number)]
    raw["devices"][0]["peak"] = sum(range(number + 1))
    return from_dict(None, raw)


def test_hostile_names_are_short_and_printable(tmp_path: Path) -> None:
    from dataclasses import replace

    made = report(tmp_path / "source", environment={"script": HOSTILE, "pid": HOSTILE, "host": HOSTILE})
    frame = replace(made.peak.contributors[0].stack[0], function=HOSTILE, text=HOSTILE, file=HOSTILE)
    contributor = replace(made.peak.contributors[0], stack=(frame,))
    peak = replace(made.peak, contributors=(contributor, *made.peak.contributors[1:]))
    made = replace(made, devices=(replace(made.devices[0], peak=peak),))
    write(made, tmp_path / "logs")
    (file,) = (tmp_path / "logs" / FOLDER).iterdir()
    text = json.loads(gzip.decompress(file.read_bytes()))

    def texts(part: Any) -> list[str]:
        if isinstance(part, str):
            return [part]
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return [one for inner in parts for one in texts(inner)]

    assert all(one.isprintable() and len(one) <= 4000 for one in texts(text))
    assert any("</script>" in one for one in texts(text))  # as text: the page never makes markup of it


def test_comparison_sums_to_both_peaks(tmp_path: Path) -> None:
    source = tmp_path / "source"
    before, after = report(source), report(source, scale=3)
    write(before, tmp_path / "logs" / "before")
    write(after, tmp_path / "logs" / "after")
    one = plugin(tmp_path / "logs")
    ids = {entry["run"]: entry["id"] for entry in runs(one)["recordings"]}
    (device,) = get(one, "/compare", before=ids["before"], after=ids["after"]).json["devices"]
    assert (device["before"], device["after"]) == (4096, 3 * 4096)
    for side, whole in (("before", 4096), ("after", 3 * 4096)):
        assert sum(row[side] for row in device["rows"]) + device["rest"][side] == whole
    assert [(row["before"], row["after"]) for row in device["rows"]] == [(4000, 12000), (96, 288)]


TRAVERSALS = [
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/etc/passwd",
    "..\\..\\etc\\passwd",
    "/etc/passwd",
    "//",
    ".",
    "static/../../x",
    "....//....//etc/passwd",
    "%00",
    "\x00",
    "index.js%00.css",
    "plugins/cuptimem/cycle-0",
]


def test_no_request_reaches_another_file(tmp_path: Path) -> None:
    write(report(tmp_path / "source"), tmp_path / "logs" / "one")
    one = plugin(tmp_path / "logs")
    for attempt in (*TRAVERSALS, str(next((tmp_path / "logs" / "one" / FOLDER).iterdir())), ""):
        for path, names in (("/data", ("id",)), ("/compare", ("before", "after"))):
            answer = get(one, path, **dict.fromkeys(names, attempt))
            assert (answer.status_code, list(answer.json)) == (404, ["error"]), attempt
    assert all("*" not in route for route in one.get_plugin_apps())  # exact names only


def test_assets_have_the_types_that_browsers_ask_for() -> None:
    one = plugin(None)
    for path in one.get_plugin_apps():
        if path in ("/parts", "/runs", "/data", "/compare", "/ranks"):
            continue
        answer = Client(one.get_plugin_apps()[path]).get(path, headers={"Accept-Encoding": "gzip"})
        kind = "text/css" if path.endswith(".css") else "text/javascript"
        assert answer.content_type == f"{kind}; charset=utf-8" and answer.headers["Content-Encoding"] == "gzip"
        assert len(gzip.decompress(answer.data)) > 100
    assert one.frontend_metadata().es_module_path in one.get_plugin_apps()


def test_the_page_loads_what_the_timeline_needs() -> None:
    from cuptimem.output.pages import timeline

    one = plugin(None)
    parts = get(one, "/parts").json
    names = [path.rpartition("/")[2] for path in timeline.SCRIPTS]
    assert [name for name in parts["scripts"] if name in names] == [name for name in names if name.endswith(".js")]
    assert all(f"/{name}" in one.get_plugin_apps() for name in (*parts["styles"], *parts["scripts"]))


def test_it_is_active_with_the_first_file(tmp_path: Path) -> None:
    (tmp_path / "logs" / "one").mkdir(parents=True)
    assert not plugin(tmp_path / "logs").is_active()
    assert not plugin(None).is_active() and not plugin(tmp_path / "not there").is_active()
    write(report(tmp_path / "source"), tmp_path / "logs" / "one")
    one = plugin(tmp_path / "logs")
    assert one.is_active()
    assert runs(one)["broken"] == []


def test_several_folders_have_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(report(tmp_path / "source"), tmp_path / name / "run")
    flags = argparse.Namespace(logdir_spec=f"one:{tmp_path / 'a'},{tmp_path / 'b'}")
    one = Plugin(base_plugin.TBContext(logdir="", flags=flags))
    assert [entry["run"] for entry in runs(one)["recordings"]] == ["one/run", "1/run"]


def test_a_link_to_a_folder_above_ends_no_search(tmp_path: Path) -> None:
    write(report(tmp_path / "source"), tmp_path / "logs" / "one")
    os.symlink(tmp_path / "logs", tmp_path / "logs" / "one" / "again")
    assert [entry["run"] for entry in runs(plugin(tmp_path / "logs"))["recordings"]] == ["one"]


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = reads(monkeypatch)
    write(report(tmp_path / "source"), tmp_path / "logs" / "one")
    one = plugin(tmp_path / "logs")
    for _ in range(3):
        (entry,) = runs(one)["recordings"]
        assert get(one, "/data", id=entry["id"]).status_code == 200
    assert len(read) == 1
    write(report(tmp_path / "source", scale=2), tmp_path / "logs" / "one")
    assert runs(one)["recordings"][0]["devices"][0]["peak"] == 8192
    assert len(read) == 2


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space left"):
        writing.write(report(tmp_path / "source"), str(tmp_path / "logs"), "one", 0)
    assert list((tmp_path / "logs" / FOLDER).iterdir()) == []


def test_files_are_readable_by_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = writing.write(report(tmp_path / "source"), str(tmp_path / "logs"), "one", 0)
    finally:
        os.umask(before)
    assert path.endswith(SUFFIX) and os.stat(path).st_mode & 0o777 == 0o644


# -- what is loaded, and what is missing ---------------------------------------------------------------------------

BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names!r} or name in {names!r}:
            raise ImportError(f"{{name}} is broken here", name=name)
sys.meta_path.insert(0, Block())
"""


def test_importing_cuptimem_loads_neither_torch_nor_tensorboard(run: Run) -> None:
    done = run("-c", "import sys, cuptimem\nprint([m for m in ('torch', 'tensorboard') if m in sys.modules])")
    assert done.out == "[]\n"


def test_the_loader_and_the_plugin_load_no_torch(run: Run) -> None:
    program = (
        "import sys, threading\nfrom cuptimem.tensorboard.loader import Loader\n"
        "light = [m for m in sys.modules if m.startswith('cuptimem.') and not m.startswith('cuptimem.tensorboard')]\n"
        "from tensorboard.plugins import base_plugin\n"
        "plugin = Loader().load(base_plugin.TBContext(logdir='.'))\n"
        "heavy = [m for m in ('torch', 'jinja2', 'pandas') if m in sys.modules]\n"
        "print(light, heavy, plugin.plugin_name, threading.active_count())\n"
    )
    done = run("-c", program)
    assert done.out == "[] [] cuptimem 1\n", done.err


def test_without_the_package_one_line_says_so(run: Run) -> None:
    program = BLOCKED.format(names=["tensorboard"]) + (
        "import cuptimem\ntry:\n    cuptimem.tensorboard_handler('logs')\n"
        "except cuptimem.Error as error:\n    print(error)\n"
    )
    done = run("-c", program)
    assert done.out.count("\n") == 1 and "pip install tensorboard" in done.out and done.err == ""


@pytest.mark.parametrize("broken", ["cuptimem.report.model", "cuptimem._core", "cuptimem.tensorboard.plugin"])
def test_whatever_is_broken_tensorboard_starts(run: Run, broken: str) -> None:
    """As TensorBoard does it: entry points without a guard, then load()."""
    program = BLOCKED.format(names=[broken]) + (
        "from cuptimem.tensorboard.loader import Loader\nfrom tensorboard.backend import application\n"
        "from tensorboard.plugins import base_plugin\n"
        "loader = application.make_plugin_loader(Loader)\n"
        "plugin = loader.load(base_plugin.TBContext(logdir='.'))\n"
        "print(plugin is not None and plugin.is_active())\n"
    )
    done = run("-c", program)
    assert (done.code, done.out) == (0, "False\n"), done.err
    if broken == "cuptimem._core":
        assert done.err == ""
    else:
        assert "cuptimem's Memory page is not there" in done.err and "Traceback" not in done.err


def job(logs: Path) -> Plugin:
    """Three ranks, of which the last has a thousand times the bytes; an earlier recording of it is not compared."""
    environment = {"script": "train.py"}
    for rank in range(3):
        scale = 1000 if rank == 2 else 1
        write(report(logs.parent / "source", scale=scale, environment=environment), logs / "job" / f"rank{rank}", 7)
    write(report(logs.parent / "source", scale=5), logs / "job" / "rank2", 3)
    write(report(logs.parent / "source"), logs / "alone")
    return plugin(logs)


def test_ranks_of_a_job(tmp_path: Path) -> None:
    one = job(tmp_path / "logs")
    listed = {row["run"]: row for row in runs(one)["recordings"]}
    assert listed["job/rank0"]["job"] == "job" and "job" not in listed["alone"]
    blocks = get(one, "/ranks", id=listed["job/rank1"]["id"]).json["blocks"]
    assert blocks[0]["text"].startswith("3 ranks of train.py, 3 steps; median peak 4.0 KiB (rank 1)")
    names = [name for name, _ in blocks[1]["names"]]
    cells = [dict(zip(names, [cell for cell, *_ in row], strict=True)) for row in blocks[1]["rows"]]
    assert [(row["rank"], row["peak"]) for row in cells] == [("2", "3.9 MiB"), ("0", "4.0 KiB"), ("1", "4.0 KiB")]
    assert blocks[2]["text"].startswith("rank 2: +3.9 MiB")
    rows = blocks[3]["rows"]
    assert [cell for cell, *_ in rows[0]][:3] == ["+3.8 MiB", "3.8 MiB", "3.9 KiB"]
    refused = get(one, "/ranks", id=listed["alone"]["id"])
    assert (refused.status_code, refused.json["error"]) == (404, "this recording is not of a rank")
    assert get(one, "/ranks", id="nothing").status_code == 404
