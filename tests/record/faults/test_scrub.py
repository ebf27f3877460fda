"""`cuptimem scrub`: the copy has every figure, and none of the text that it is to leave out."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem import _core
from cuptimem.output.scrubbing import Scrubber
from cuptimem.report import stacks
from tests.conftest import Result
from tests.record.faults import bombs, traces
from tests.record.faults.bounded import TEXT
from tests.record.faults.traces import craft
from tests.unit.trace import tracelib

Call = Callable[..., Result]
HOME = "/home/alice/project"
NAMES = traces.Names(
    file=f"{HOME}/train.py",
    function="Alice.main",
    code='    x = open("/home/alice/data/wonderland", "alice")  # füllt',
    label="alice.encoder.weight",
    library="/home/alice/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so",
    holder="alice.main.kept[0]",
    problem="cannot write /home/alice/project/x, see /home/bob/y on wonderland",
    end="cannot write /home/alice/project/run.cmem: No space left on device",
    meta={
        **traces.Names().meta,
        "argv": "python train.py --token hunter2",
        "script": f"{HOME}/train.py",
        "directory": HOME,
        "host": "wonderland.example.org",
        "exec": "/home/alice/bin/tool",
        "stdlib": "/home/alice/python/lib/python3.11",
    },
)
GONE = (b"alice", b"wonderland", b"hunter2", b"bob", b"project")


def figures(document: Any) -> Any:
    """Without text: numbers, truth, and where they stand."""
    if isinstance(document, dict):
        return {key: figures(value) for key, value in document.items() if key != "environment"}
    if isinstance(document, list):
        return [figures(value) for value in document]
    return None if isinstance(document, str) else document


def all_figures(call: Call, path: Path) -> dict[str, Any]:
    found = {}
    for verb in TEXT:
        done = call(verb, str(path), "--json")
        found[verb] = figures(json.loads(done.out)) if done.code == 0 else done.err  # no GPU: no ledger
    return found


def text_of(path: Path) -> bytes:
    """Every byte of the file, in lower case."""
    return path.read_bytes().lower()


def test_figures_stay_and_names_go(call: Call, tmp_path: Path) -> None:
    trace, copy = Path(traces.write(tmp_path / "run.cmem", NAMES)), tmp_path / "shared.cmem"
    assert all(name in text_of(trace) for name in GONE)
    done = call("scrub", str(trace), str(copy))
    assert done.code == 0 and done.out.startswith("wrote ") and not done.err
    assert [name for name in GONE if name in text_of(copy)] == []
    before_all = all_figures(call, trace)
    assert all_figures(call, copy) == before_all and not any(isinstance(one, str) for one in before_all.values())
    before, after = cuptimem.open(trace), cuptimem.open(copy)
    assert after.reason == "cannot write ./run.cmem: No space left on device"
    assert set(before.environment) - set(after.environment) == {"argv"} and after.environment["host"] == "host"
    assert (after.environment["script"], after.environment["directory"]) == ("train.py", ".")
    assert after.environment["stdlib"] == ".../lib/python3.11"
    assert after.environment["problems"] == "cannot write ./x, see ~/y on host"
    frames = [frame for c in after.device("cpu").peak.contributors for frame in c.stack]
    assert {(frame.file, frame.function) for frame in frames} == {("train.py", "user.main"), ("train.py", "forward")}
    # Columns count bytes: the line is as long as it was.
    assert {frame.text for frame in frames} == {'    x = open("***********/data/**********", "*****")  # füllt'}
    assert ".../site-packages/nvidia/nccl/lib/libnccl.so" in copy.read_bytes().decode(errors="replace")


def test_events_are_the_same_bytes(call: Call, tmp_path: Path) -> None:
    trace, copy = Path(traces.write(tmp_path / "run.cmem", NAMES)), tmp_path / "shared.cmem"
    assert call("scrub", str(trace), str(copy)).code == 0
    events = [
        [tracelib.decode_batch(payload) for _, kind, payload in tracelib.chunks_of(path.read_bytes()) if kind == 2]
        for path in (trace, copy)
    ]
    assert events[0] == events[1] and sum(map(len, events[0])) > 300


def test_source_and_more_text_can_go(call: Call, tmp_path: Path) -> None:
    trace, copy = Path(traces.write(tmp_path / "run.cmem", NAMES)), tmp_path / "shared.cmem"
    assert call("scrub", str(trace), str(copy), "--no-source", "--hide", "encoder", "--hide", "gemm").code == 0
    content = text_of(copy)
    assert [name for name in (b"open(", b"encoder", b"gemm") if name in content] == []
    assert all_figures(call, copy)["peak"] == all_figures(call, trace)["peak"]
    assert tracelib.LINES not in {kind for _, kind, _ in tracelib.chunks_of(copy.read_bytes())}


@pytest.mark.torch
def test_a_killed_and_folded_trace(call: Call, killed: Path, tmp_path: Path) -> None:
    """What its side file and its ring have is in the copy, which needs neither."""
    copy = tmp_path / "shared.cmem"
    assert Path(_core.trace_meta(str(killed))["ring.path"]).exists()
    assert call("scrub", str(killed), str(copy)).code == 0
    assert not Path(f"{copy}.tail").exists() and _core.trace_meta(str(copy))["ring.path"] == ""
    report = cuptimem.open(copy)
    assert report.state == "recovered" and report.compacted is not None and len(report.steps) == 300
    assert all_figures(call, copy) == all_figures(call, killed)
    gone = [str(killed.parent).encode(), b"hunter2"]
    assert all(name in killed.read_bytes() for name in gone)
    assert [name for name in gone if name in copy.read_bytes()] == []
    texts = {frame.text for c in report.peak.contributors for frame in c.stack if frame.file == "train.py"}
    assert "        kept.append(torch.ones(16))" in texts


PATHS = (
    "/home/alice/project/train.py",
    "/home/alice/project/.venv/lib/python3.11/site-packages/torch/nn/modules/linear.py",
    "/home/alice/other/train.py",
    "/home/bob/other/train.py",
    "/root/other/train.py",
    "/usr/lib/python3.11/asyncio/events.py",
    "/usr/lib/python3/dist-packages/numpy/core.py",
    "/opt/venv/lib/python3.11/site-packages/numpy/core.py",
    "/venv/lib/python3.11/site-packages/numpy/core.py",
    f"/home/alice/project/ab/cab{'a' * 50}.py",
    "/mnt/alice/x.py",
    "train.py",
    "<frozen importlib._bootstrap>",
    "<ipython-input-3-0123456789ab>",
)


def test_paths_keep_what_figures_depend_on() -> None:
    """Whose code a file is stays, and files that differ still do."""
    meta = [("meta", "directory", HOME), ("meta", "host", "host-1")]
    scrubber = Scrubber([*meta, *(("string", "", path) for path in PATHS)])
    new = {path: scrubber.replace("string", "", path) or "" for path in PATHS}
    assert list(new.values()) == [
        "train.py~2",
        ".../site-packages/torch/nn/modules/linear.py",
        "~/other/train.py",
        "~2/other/train.py",
        "~3/other/train.py",
        ".../lib/python3.11/asyncio/events.py",
        ".../dist-packages/numpy/core.py",
        ".../site-packages/numpy/core.py",
        "...2/site-packages/numpy/core.py",
        f"./ab/cab{'a' * 50}.py",
        "/mnt/user/x.py",
        "train.py",
        "<frozen importlib._bootstrap>",
        "<ipython-input-3-0123456789ab>",
    ]
    for code in ("", "numpy"):
        assert [_core.is_library(path, code) for path in new.values()] == [_core.is_library(p, code) for p in PATHS]
    for path, other in new.items():
        before, after = (stacks.Frame(file, "f", 1) for file in (path, other))
        assert (before.is_library, before.is_plumbing) == (after.is_library, after.is_plumbing)


def test_a_user_who_is_called_as_a_word_is() -> None:
    """A letter or a number goes with the home only: it may be a variable's name, or a part of a shape."""
    label, line = "h.12.a\tfloat32 12 64", "a = load('/home/a/x', '/home/12/y', f'/home/{a}')"
    scrubber = Scrubber([("name", "", label), ("line", "", line)])
    assert scrubber.replace("name", "", label) == label
    assert scrubber.replace("line", "", line) == "a = load('*******/x', '********/y', f'/home/{a}')"


def test_a_user_who_is_called_as_a_library_is() -> None:
    torch = "/home/torch/venv/lib/python3.11/site-packages/torch/nn/linear.py"
    scrubber = Scrubber([("meta", "host", "torch"), ("string", "", torch)])
    assert scrubber.replace("string", "", torch) == ".../site-packages/torch/nn/linear.py"


def test_letters_that_are_one_without_regard_to_case() -> None:
    texts = [("string", "", "/home/sam/x.py"), ("name", "", "ſam.weight"), ("name", "", "SAM.weight")]
    scrubber = Scrubber(texts)
    assert [scrubber.replace(*text) for text in texts] == ["~/x.py", "user.weight", "user.weight~2"]


@pytest.mark.parametrize(
    "path",
    ["/home//sam/x.py", "/home/sam//x.py", "/home/.sam/x.py", "/home/-sam/x.py"],
)
def test_a_home_however_it_is_written(path: str) -> None:
    text = f"cannot read {path}"
    scrubber = Scrubber([("string", "", path), ("name", "", text)])
    assert scrubber.replace("string", "", path) == "~/x.py"
    assert "sam" not in (scrubber.replace("name", "", text) or "")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/CORP/jane.doe", "~"),
        ("/home/corp.example.com/jane.doe", "~"),
        ("/home/JANE/train.py", "~/train.py"),
        ("/home/JANE/run.cmem", "~/run.cmem"),
    ],
)
def test_a_path_that_ends_with_a_home_or_a_file(path: str, shown: str) -> None:
    assert Scrubber([("string", "", path)]).replace("string", "", path) == shown


@pytest.mark.parametrize(
    ("home", "names"),
    [
        ("/home/CORP/jane", "CORP jane"),
        ("/home/CORP.EXAMPLE.COM/jane", "CORP.EXAMPLE.COM jane"),
        ("/home/corp.example.com/jane", "corp.example.com jane"),
        ("/home/CORP/j/jane", "CORP jane"),
        ("/home/j/ja/jane", "ja jane"),
        ("/home/jane@corp.example.com", "jane corp.example.com"),
        (r"/home/CORP\jane", "CORP jane"),
        ("/home/Jane Doe", "Jane Doe"),
        ("/home/CORP/Jane van der Doe", "CORP Jane Doe"),
        ("/Users/Jane Doe", "Jane Doe"),
        ("/mnt/c/Users/Jane Doe", "Jane Doe"),
        ("/var/home/jane", "jane"),
        ("/export/home/jane", "jane"),
        ("/usr/home/jane", "jane"),
        ("/net/home/jane", "jane"),
        ("/net/server/export/home/jane", "jane"),
        ("/home2/jane", "jane"),
        ("/gpfs/homes/jane", "jane"),
        ("/gpfs/users/jane", "jane"),
        ("/afs/cern.ch/user/j/jane", "jane"),
        ("/größe/home/jané", "jané"),
    ],
)
def test_where_homes_lie(home: str, names: str) -> None:
    """Of a name no part is left, and of a path what lies in the home."""
    texts = [
        ("string", "", f"{home}/project/train.py"),
        ("string", "", f"{home}/train.py"),
        ("line", "", f"    x = open('{home}/data', \"{home}\")"),
        ("name", "", f"{home.split('/')[-1].split('@')[0]}.weight"),
        ("meta", "problems", f"cannot write {home}/project/x: no room"),
        ("meta", "exec", home),
        ("end", "", f"cannot write {home}/run.cmem"),
    ]
    scrubber = Scrubber(texts)
    new = [scrubber.replace(*text) or "" for text in texts]
    assert new[:2] == ["~/project/train.py", "~/train.py"] and new[5] == "~"
    assert len(new[2].encode()) == len(texts[2][2].encode())
    assert [one for one in new for name in names.split() if name.lower() in one.lower()] == []


def test_homes_below_a_group() -> None:
    """That a folder is one of a group's homes is known of the owner's, or by what only a home has."""
    jane, joe = "/home/physics/jane/x.py", "/home/physics/joe/y.py"
    local = "/home/physics/jane/.local/bin/tool"
    for scrubber in (
        Scrubber([("string", "", jane), ("string", "", joe)], owner=(r"PHYSICS\jane", "/home/physics/jane")),
        Scrubber([("string", "", jane), ("string", "", joe), ("meta", "exec", local)]),
    ):
        assert [scrubber.replace("string", "", path) for path in (jane, joe)] == ["~/x.py", "~/y.py"]
        assert scrubber.replace("meta", "problems", "of jane, joe@physics") == "of user, user@user"
    # Else it is one user's, whose folders keep their names.
    for owner in (None, ("physics", "/home/physics")):
        scrubber = Scrubber([("string", "", jane)], owner=owner)
        assert scrubber.replace("string", "", jane) == "~/jane/x.py"


def test_a_name_of_two_words_however_it_is_written() -> None:
    scrubber = Scrubber([("string", "", "/home/Jane Doe/x.py")])
    text = "/tmp/torchinductor_Jane_Doe/x of JANE-DOE, janedoe and jane.doe; not of jane"
    assert scrubber.replace("meta", "problems", text) == "/tmp/torchinductor_user/x of user, user and user; not of jane"


@pytest.mark.parametrize(
    "path",
    ["/usr/lib/python3/dist-packages/app/home/views/x.py", "/srv/app/users/views/x.py", "/srv/a/b/c/homes/views/x.py"],
)
def test_what_is_no_home(path: str) -> None:
    scrubber = Scrubber([("string", "", path), ("name", "", "views.weight")])
    assert scrubber.replace("name", "", "views.weight") == "views.weight"


def test_a_user_who_is_called_as_something_that_figures_depend_on() -> None:
    """Whose code a line is, and what the recorder itself said, stays as it is."""
    generated = f"/tmp/jo/cjo{'a' * 50}.py"
    module = "/usr/lib/python3.11/asyncio/events.py"
    homes = [("string", "", f"/home/{user}/x.py") for user in ("lib", "jo", "counted")]
    scrubber = Scrubber([*homes, ("string", "", generated), ("string", "", module), ("meta", "nodes", "counted")])
    assert scrubber.replace("string", "", module) == ".../lib/python3.11/asyncio/events.py"
    assert scrubber.replace("string", "", generated) == generated
    assert scrubber.replace("meta", "nodes", "counted") == "counted"


def test_more_users_than_can_be_looked_for(call: Call, tmp_path: Path) -> None:
    t = bombs.Raw()
    craft.Trace.library = craft.encoder()
    for i in range(257):
        t.alloc(0x1000 + 64 * i, 64, t.line(i + 1, f"/home/user{i}/x.py"))
    trace = t.write(tmp_path / "run.cmem")
    done = call("scrub", str(trace), str(tmp_path / "copy.cmem"))
    assert done.code == 1 and "257 users" in done.err and not (tmp_path / "copy.cmem").exists()


def test_a_home_that_is_not_below_home() -> None:
    kernel = "/tmp/torchinductor_carol/ab/cab.py"
    script = "/cluster/physics/carol/run.py"
    scrubber = Scrubber([("string", "", kernel), ("string", "", script)], owner=("carol", "/cluster/physics/carol"))
    assert scrubber.replace("string", "", script) == "~/run.py"
    assert scrubber.replace("string", "", kernel) == "/tmp/torchinductor_user/ab/cab.py"


def test_a_hidden_folder_below_a_home() -> None:
    script = "/home/alice/secret/run.py"
    assert Scrubber([("string", "", script)], ["/home/alice/secret"]).replace("string", "", script) == "hidden/run.py"


def test_a_hidden_package_stays_the_programs_code() -> None:
    file = "/opt/lib/python3.11/site-packages/acme/train.py"
    scrubber = Scrubber([("meta", "code", "acme,other"), ("string", "", file)], ["acme"])
    assert scrubber.replace("meta", "code", "acme,other") == "hidden,other"
    assert scrubber.replace("string", "", file) == ".../site-packages/hidden/train.py"


def test_refused(call: Call, tmp_path: Path) -> None:
    trace, other = Path(traces.write(tmp_path / "run.cmem")), tmp_path / "other"
    other.write_text("mine")
    newer = tmp_path / "newer.cmem"
    os.mkfifo(tmp_path / "pipe")
    newer.write_bytes(tracelib.header(1, 6) + trace.read_bytes()[16:])
    for words, said in (
        ((trace, trace), "is the trace itself"),
        ((trace, trace, "--force"), "is the trace itself"),
        ((trace, other), "exists; choose another name, or replace it with --force\n"),
        ((trace, tmp_path), "is a directory"),
        ((trace, tmp_path / "pipe", "--force"), "is a device or a pipe"),
        ((trace, tmp_path / "no" / "where"), "is not a directory"),
        ((other, tmp_path / "new"), "is not a cuptimem trace"),
        ((tmp_path / "nothing", tmp_path / "new"), "No such file"),
        ((newer, tmp_path / "new"), "a newer cuptimem wrote it"),
    ):
        done = call("scrub", *map(str, words))
        assert done.code == 1 and said in done.err and done.err.count("\n") == 1, (words, done.err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["newer.cmem", "other", "pipe", "run.cmem"]
    assert other.read_text() == "mine"
    assert call("scrub", str(trace), str(other), "--force").code == 0 and cuptimem.open(other).complete


def test_the_copy_of_a_damaged_trace_says_so_and_joins_no_ring(tmp_path: Path) -> None:
    """The damage is not copied. Without a reason at its end the copy would go on with the ring, and lack nothing."""
    trace, copy = bombs.write_with_ring(tmp_path, "leaks", 60), tmp_path / "copy.cmem"
    damaged = bytearray(tracelib.chunk(tracelib.BATCH, tracelib.batch_payload()))
    damaged[-1] ^= 1
    trace.write_bytes(trace.read_bytes() + damaged)
    _core.trace_rewrite(str(trace), str(copy), lambda *given: given[-1])
    before, after = _core.trace_dump(str(trace)), _core.trace_dump(str(copy))
    assert before[-1][1] == "cut" and before[:-1] == after[:-1]
    assert after[-1][1:3] == ("complete", before[-1][3]) and before[-1][3].endswith("has a wrong checksum")
