"""Nothing that a trace names is opened: files of frames, rings, and what lies beside it in the place of a side file.

Source text that is shown is the trace's own (tests/record/api/test_source_text.py has what it says).
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem.doctor import places
from cuptimem.notebook import display
from cuptimem.simulation import places as simulated_places
from cuptimem.tensorboard.files import Files
from tests.conftest import Result
from tests.record.faults import bounded, traces
from tests.record.faults.bounded import TEXT
from tests.record.faults.opened import opened
from tests.unit.trace import tracelib

SECRET = "the secret line"
PAGES = ("timeline", "flamegraph", "table", "tree", "diff")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.py"
    path.write_text(f"{SECRET}\n" * 40)
    return path


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.py"
    os.mkfifo(path)
    return path


def without(path: Path, *kinds: int) -> None:
    """The trace loses its chunks of these kinds."""
    chunks = tracelib.chunks_of(path.read_bytes())
    tracelib.write_file(path, [tracelib.chunk(kind, payload) for _, kind, payload in chunks if kind not in kinds])


def shown_everywhere(call: Callable[..., Result], trace: Path) -> str:
    """All that verbs, pages, exports and notebooks make of a trace."""
    said = ""
    for verb in TEXT:
        for options in ((), ("--json",)):
            done = call(verb, str(trace), *options)
            assert done.code == 0, (verb, options, done.err)
            said += done.out + done.err
    for at in ("oom", "0"):
        said += call("peak", str(trace), "--at", at).out
    done = call("diff", str(trace), str(trace))
    assert done.code == 0, done.err
    folder = trace.with_suffix(".out")
    folder.mkdir()
    for verb in PAGES:
        done = call(verb, *[str(trace)] * (1 + (verb == "diff")), "-o", str(folder / f"{verb}.html"))
        assert done.code == 0, (verb, done.err)
    for kind in bounded.available():
        done = call("export", str(trace), "--to", kind, "-o", str(folder / f"export-{kind}"))
        assert done.code == 0, (kind, done.err)
    assert call("scrub", str(trace), str(folder / "scrubbed.cmem")).code == 0
    report = cuptimem.open(trace)
    said += str(report) + display.markup_of(report)
    made = [Path(place) / file for place, _, files in os.walk(folder) for file in files]
    return said + "".join(path.read_bytes().decode(errors="replace") for path in made)


@pytest.mark.parametrize("known", [True, False], ids=["with text", "without text"])
def test_no_view_opens_a_frames_file(
    call: Callable[..., Result], tmp_path: Path, secret: Path, pipe: Path, known: bool
) -> None:
    code = "    x = recorded_text(10)"
    for name in (secret, pipe, Path("/dev/zero")):
        trace = tmp_path / f"{name.stem}.cmem"
        traces.write(trace, traces.Names(file=str(name), code=code, library=str(name)))
        if not known:
            without(trace, tracelib.LINES)
        with opened([secret, pipe]) as found:
            shown = shown_everywhere(call, trace)
        assert found == set()
        assert name.name in shown and ("recorded_text" in shown) is known
        assert SECRET not in shown


def test_a_ring_is_only_what_rings_are_called(call: Callable[..., Result], tmp_path: Path, secret: Path) -> None:
    """The ring's path is the trace's word: no other file, no link and no pipe is opened for it."""
    link, ring_pipe = tmp_path / ".cuptimem-ring-1", tmp_path / ".cuptimem-ring-2"
    link.symlink_to(secret)
    os.mkfifo(ring_pipe)
    trace = tmp_path / "x.cmem"
    for path in (secret, link, ring_pipe, Path("/dev/zero"), tmp_path / "nowhere" / ".cuptimem-ring-3"):
        meta = {"ring.path": str(path), "ring.id": "0x1234", "ring.place": "shared"}
        traces.write(trace, traces.Names(meta={**traces.Names().meta, **meta}))
        without(trace, tracelib.END)
        with opened([secret, ring_pipe]) as found:
            done = call("summary", str(trace))
        assert done.code == 0 and "its ring file is not here" in done.out
        assert found == set()
        trace.unlink()


def test_a_side_file_is_no_link_and_no_pipe(call: Callable[..., Result], tmp_path: Path, secret: Path) -> None:
    trace = tmp_path / "x.cmem"
    traces.write(trace, traces.Names(meta={**traces.Names().meta, "ring.path": "", "ring.id": "0x1234"}))
    without(trace, tracelib.END)
    with trace.open("ab") as file:  # serial 1: a side file was made
        file.write(tracelib.chunk(tracelib.BATCH, tracelib.batch_payload() + tracelib.varint(1)))
    side = tmp_path / "x.cmem.tail"
    for make in (lambda: side.symlink_to(secret), lambda: os.mkfifo(side), lambda: side.symlink_to("/dev/zero")):
        make()
        with opened([secret, *([] if side.is_symlink() else [side])]) as found:
            done = call("summary", str(trace))
        assert done.code == 0 and "its side file (its name with .tail) is not here" in done.out
        assert found == set()
        side.unlink()


def test_what_lies_in_a_shared_folder(tmp_path: Path, secret: Path) -> None:
    """Doctor's search for left rings, and TensorBoard's for what to show, pass over links (doctor) and pipes."""
    ring, link, page = (
        tmp_path / name for name in (".cuptimem-ring-1", ".cuptimem-ring-2", "run/plugins/cuptimem/a.cuptimem.json.gz")
    )
    page.parent.mkdir(parents=True)
    for path in (ring, page):
        os.mkfifo(path)
    link.symlink_to(secret)
    with opened([ring, page, secret]) as found:
        assert not places._is_orphan(str(ring)) and not places._is_orphan(str(link))
        assert list(Files({"": str(tmp_path)}).find()) == []
    assert found == set()


def test_lines_of_a_simulated_program_are_read_from_no_device(tmp_path: Path, secret: Path, pipe: Path) -> None:
    """Where the simulated program says that its code is of such a file. In a child: what reads one never ends."""
    names = ("/dev/zero", str(pipe), "/proc/kmsg", str(tmp_path), "nowhere.py", "a\0b")
    program = f"from cuptimem.simulation import places as p; print([p._line_of(name, 1) for name in {names!r}])"
    with opened([pipe]) as found:
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120).stdout
    assert (said, found) == (f"{[''] * len(names)}\n", set())
    assert simulated_places._line_of(str(secret), 1) == SECRET


@pytest.mark.torch
def test_code_that_claims_a_device_is_recorded(forked: Callable[..., Result], tmp_path: Path, pipe: Path) -> None:
    """The collector reads regular files only, and such lines have no text."""
    (tmp_path / "train.py").write_text(
        "import torch\nkept = []\n"
        f"for size, name in ((1001, '/dev/zero'), (1002, {str(pipe)!r}), (1003, '/proc/kmsg'), (1004, __file__)):\n"
        "    exec(compile(f'kept.append(torch.empty({size}, dtype=torch.uint8))', name, 'exec'))\n"
    )
    with opened([pipe]) as found:
        done = forked("-m", "cuptimem", "run", "-q", "-o", "out.cmem", "train.py")
    assert (done.code, done.err, found) == (0, "", set())
    texts = {c.bytes: c.stack[0].source for c in cuptimem.open(tmp_path / "out.cmem").peak.contributors}
    assert texts == {1001: "", 1002: "", 1003: "", 1004: "import torch"}  # the file's first line, as Python shows it
