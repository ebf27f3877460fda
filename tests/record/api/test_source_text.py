"""The text of lines is of the run: it lies in the trace, and nothing is opened when a report is made.

Each program says `make(...)` on lines of its own kind; the test looks up their text by the bytes that they made.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import ROOT, Result, clean_environment

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("only_new_objects")]

Run = Callable[..., Result]
RECORD = ("-m", "cuptimem", "run", "-q", "-o", "out.cmem")
HEAD = "import torch\n\n\ndef make(n):\n    return torch.empty(n, dtype=torch.uint8)\n\n\n"


def texts(report: cuptimem.Report) -> dict[int, str]:
    """By size: the line below which a block was made, of the innermost frame but those of `make`."""
    found = {}
    for contributor in report.device("cpu").peak.contributors:
        outer = [frame for frame in contributor.stack if frame.function != "make" and not frame.is_library]
        if outer:
            found[contributor.bytes] = outer[0].source
    return found


def test_text_is_of_the_run(run: Run, tmp_path: Path) -> None:
    """Whatever becomes of the file, and reading opens nothing but the trace."""
    script = tmp_path / "train.py"
    script.write_text(HEAD + "kept = make(1001)\nother = make(\n    2002,\n)\n")
    assert run(*RECORD, "train.py").code == 0
    expected = {1001: "kept = make(1001)", 2002: "other = make("}
    look = (
        "import sys, cuptimem\nopened = []\n"
        "sys.addaudithook(lambda event, args: event == 'open' and opened.append(str(args[0])))\n"
        "report = cuptimem.open('out.cmem')\nfrom cuptimem.output.text import text, views\nprint(str(report))\n"
        "print(text.render(views.peak(report, report.peaks, 10)))\n"
        "print('opened', [name for name in opened if name.endswith('train.py')])\n"
    )
    whole = run("-c", look)
    assert "opened []" in whole.out and whole.out.count("return torch.empty(n, dtype=torch.uint8)") == 2, whole.err
    assert texts(cuptimem.open(tmp_path / "out.cmem")) == expected
    script.write_text("wrong\n" * 20)
    assert texts(cuptimem.open(tmp_path / "out.cmem")) == expected
    script.unlink()
    report = cuptimem.open(tmp_path / "out.cmem")
    assert texts(report) == expected
    frame = next(f for c in report.peak.contributors if c.bytes == 2002 for f in c.stack if f.function == "<module>")
    assert frame.expression == "make( ..." and frame.text == "other = make("
    assert run("-c", look).out == whole.out


EDITED = (
    HEAD
    + """
import importlib, sys, time
first = make(1001)
import cuptimem

def late():
    return make(2002)

import edited, lazily, written
kept = [edited.early()]
with cuptimem.profile() as prof:
    assert prof.report  # all lines so far are in the trace

for path, old, new in [
    (__file__, "make(2002)", "make(9999)"), (edited.__file__, "3003", "7777"), (lazily.__file__, "4004", "8888"),
]:
    text = open(path).read().replace(old, new)
    time.sleep(0.02)  # another modification time
    with open(path, "w") as file:
        file.write(text)

kept += [late(), edited.late(), lazily.late()]

with open("fresh.py", "w") as file:
    file.write("def made():\\n    return make(5005)\\n")
importlib.invalidate_caches()
import fresh
fresh.make = make
kept.append(fresh.made())

sys.dont_write_bytecode = True
with open("unknown.py", "w") as file:
    file.write("def made():\\n    return make(6006)\\n")
importlib.invalidate_caches()
import unknown
unknown.make = make
kept.append(unknown.made())
"""
)


def test_files_that_are_edited_meanwhile(run: Run, tmp_path: Path) -> None:
    """What was compiled is shown, or nothing: never what was written later."""
    (tmp_path / "train.py").write_text(EDITED)
    module = (
        "from __main__ import make\n\n\ndef early():\n    return make(1111)\n\n\ndef late():\n    return make(%d)\n"
    )
    (tmp_path / "edited.py").write_text(module % 3003)
    (tmp_path / "lazily.py").write_text(module % 4004)
    (tmp_path / "written.py").write_text("")
    done = run(*RECORD, "train.py", env={"PYTHONDONTWRITEBYTECODE": ""})
    assert done.code == 0, done.err
    assert "9999" in (tmp_path / "train.py").read_text() and "8888" in (tmp_path / "lazily.py").read_text()
    assert texts(cuptimem.open(tmp_path / "out.cmem")) == {
        1001: "first = make(1001)",
        1111: "return make(1111)",
        2002: "return make(2002)",  # the program's own files are kept as they were when they were first seen
        3003: "return make(3003)",
        4004: "",  # not seen before it was edited
        5005: "return make(5005)",  # younger than the process: its compiled file says that it was this text
        6006: "",  # nothing says so
    }


CELLS = (
    HEAD
    + """
import functools, io, linecache, os, stat, sys, zipfile
kept = []


def cell(name, text, known=True):
    if known:
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), {"make": make, "kept": kept})


before = dict(linecache.cache)
cell("<ipython-input-3-0123456789ab>", "\\nkept.append(make(1001))\\n")
cell("/tmp/ipykernel_4711/3405691582.py", "kept.append(  make(1002))")
cell("<nowhere>", "kept.append(make(1003))", known=False)
linecache.cache["<lazy>"] = (lambda: "x = '\\u2028'\\nkept.append(make(1004))",)
cell("<lazy>", "\\nkept.append(make(1004))", known=False)
linecache.cache["<broken>"] = (lambda: 1 / 0,)
linecache.cache["<string>"] = (1, None, ["kept.append(make(1014))\\n", "x = 1\\n"], "<string>")  # as of -c
exec("kept.append(make(1014))")
exec("\\nother = kept.append(make(1015))")
cell("<broken>", "kept.append(make(1005))", known=False)

with zipfile.ZipFile("lib.zip", "w") as file:
    file.writestr("zipped.py", "def made(make):\\n    return make(1006)  # in a zip file\\n")
sys.path.insert(0, "lib.zip")
import zipped
kept.append(zipped.made(make))

import latin, utf
kept += [latin.made(make), utf.made(make)]

os.mkfifo("pipe")
cell(os.path.abspath("pipe"), "kept.append(make(1009))", known=False)
cell("/dev/zero", "kept.append(make(1010))", known=False)
cell(os.getcwd(), "kept.append(make(1011))", known=False)

os.mkdir("elsewhere")
with open("elsewhere/relative.py", "w") as file:
    file.write("wrong")
os.chdir("elsewhere")
cell("relative.py", "kept.append(make(1012))", known=False)
os.chdir("..")
cell("long.py", "kept.append(make(1013))" + " " * 5000 + "# end", known=False)
assert {name for name in linecache.cache if name not in before} >= {"<lazy>"} and len(linecache.cache["<lazy>"]) == 1
"""
)
CELL_TEXTS = {
    1001: "kept.append(make(1001))",
    1002: "kept.append(  make(1002))",
    1003: "",
    1004: "kept.append(make(1004))",
    1005: "",
    1006: "return make(1006)  # in a zip file",
    1007: "return make(1007)  # é in latin-1",
    1008: "return make(1008)  # € in UTF-8",
    1009: "",
    1010: "",
    1011: "",
    1012: "kept.append(make(1012))",
    1014: "kept.append(make(1014))",
    1015: "",  # not what linecache has
    1013: "kept.append(make(1013))" + " " * 486 + "…",
}


def make_cells(folder: Path) -> None:
    (folder / "train.py").write_text(CELLS)
    latin = "# -*- coding: latin-1 -*-\r\ndef made(make):\r\n    return make(1007)  # é in latin-1\r\n"
    (folder / "latin.py").write_bytes(latin.encode("latin-1"))
    (folder / "utf.py").write_text("\ufeffdef made(make):\r    return make(1008)  # € in UTF-8\r", newline="")
    (folder / "relative.py").write_text("kept.append(make(1012))\n")
    (folder / "long.py").write_text("kept.append(make(1013))" + " " * 5000 + "# end\n")


@pytest.mark.parametrize("how", ["run", "window"])
def test_code_that_no_file_has(run: Run, forked: Run, tmp_path: Path, how: str) -> None:
    """Cells of notebooks, code of exec, zip files, encodings; and names that are no files to be opened."""
    make_cells(tmp_path)
    if how == "window":
        around = (
            "import cuptimem\nwith cuptimem.profile():\n    with cuptimem.profile('out.cmem'):\n        import train\n"
        )
        (tmp_path / "main.py").write_text(around)
        done = forked("main.py")
    else:
        done = run(*RECORD, "train.py")
    assert (done.code, done.err) == (0, ""), done.err
    for name in ("train.py", "lib.zip", "latin.py", "utf.py", "relative.py"):
        (tmp_path / name).unlink()
    found = texts(cuptimem.open(tmp_path / "out.cmem"))
    assert {size: found[size] for size in CELL_TEXTS} == CELL_TEXTS


def test_a_killed_program_has_its_lines(python: str, tmp_path: Path) -> None:
    """They are written while it records: files by the collector, cells once the main thread comes by."""
    (tmp_path / "train.py").write_text(
        HEAD
        + "import linecache\nkept = [make(1001)]\ntext = 'kept.append(make(1002))'\n"
        + "linecache.cache['<cell>'] = (len(text), None, [text], '<cell>')\nexec(compile(text, '<cell>', 'exec'))\n"
        + "import time\nwhile True:\n    time.sleep(0.01)\n"
    )
    expected = {1001: "kept = [make(1001)]", 1002: "kept.append(make(1002))"}
    with subprocess.Popen([python, *RECORD, "train.py"], cwd=tmp_path, env=clean_environment()) as process:
        try:
            deadline = time.monotonic() + 120
            growing: dict[int, str] = {}
            while growing != expected and time.monotonic() < deadline:
                time.sleep(0.1)
                try:
                    growing = texts(cuptimem.open(tmp_path / "out.cmem"))
                except cuptimem.Error:  # nothing yet
                    continue
            assert growing == expected  # read while it grows
        finally:
            process.send_signal(signal.SIGKILL)
    (tmp_path / "train.py").unlink()
    report = cuptimem.open(tmp_path / "out.cmem")
    assert report.state == "recovered" and texts(report) == expected


def test_the_program_does_not_notice(run: Run, tmp_path: Path) -> None:
    """Reading takes no descriptor of its numbers, gives up no lock that it holds, and needs none that it has closed."""
    (tmp_path / "train.py").write_text(
        HEAD
        + """
import cuptimem, fcntl, os, subprocess, sys
def opened():
    there = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
    names = {n: os.readlink(n) for n in there if os.path.lexists(n)}  # listdir's own is gone
    return {n: name for n, name in names.items() if not name.endswith("/statm")}  # the collector's, once it looks
own = open(__file__, "r+")
fcntl.lockf(own, fcntl.LOCK_EX)
with cuptimem.profile("out.cmem", overwrite=True) as prof:
    before = opened()
    kept = [make(1001)]
    assert prof.report.peak.bytes == 1001
    assert opened() == before
    ask = "import fcntl, sys\\ntry: fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\\n"
    ask += "except BlockingIOError: print('held')"
    print(subprocess.run([sys.executable, "-c", ask, __file__], capture_output=True, text=True).stdout.strip())
    sys.stdout.flush()
    os.closerange(0, 1024)
    kept.append(make(1002))
"""
    )
    done = run("train.py")
    assert done.out == "held\n"
    assert texts(cuptimem.open(tmp_path / "out.cmem")) == {1001: "kept = [make(1001)]", 1002: "kept.append(make(1002))"}


def test_children_have_their_own(forked: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        HEAD
        + "import os\nkept = make(1001)\npid = os.fork()\nif pid == 0:\n    kept = [kept, make(1002)]\n"
        + "else:\n    os.waitpid(pid, 0)\n"
    )
    assert forked("-m", "cuptimem", "run", "-q", "--follow", "-o", "out.cmem", "train.py").code == 0
    found = [texts(cuptimem.open(path)) for path in sorted(tmp_path.glob("out*.cmem"))]
    assert len(found) == 2
    assert found[0] | found[1] == {1001: "kept = make(1001)", 1002: "kept = [kept, make(1002)]"}


def test_text_is_bounded(forked: Run, tmp_path: Path) -> None:
    """128 KiB of a file; the lines behind have none, and the report says all else of them."""
    lines = [f"kept.append(make({1000 + n}))  # {'x' * 450}" for n in range(600)]
    (tmp_path / "train.py").write_text(HEAD + "kept = []\n" + "\n".join(lines) + "\n")
    assert forked(*RECORD, "train.py").code == 0
    report = cuptimem.open(tmp_path / "out.cmem")
    found = texts(report)
    assert set(found) == {1000 + n for n in range(600)}
    known = [text for text in found.values() if text]
    assert set(known) < set(lines)
    assert 120 * 1024 < sum(map(len, known)) <= 128 * 1024
    assert (tmp_path / "out.cmem").stat().st_size < 128 * 1024 + 100_000


def test_text_is_bounded_by_the_trace(forked: Run, tmp_path: Path) -> None:
    """By a 32nd of max_size, and past the bound there is text still."""
    (tmp_path / "train.py").write_text(
        HEAD
        + "import cuptimem\nwith cuptimem.profile('out.cmem', max_size=1 << 18):\n"
        + "    for i in range(300_000):\n        make(64)\n    kept = make(77_777)\n"
    )
    done = forked("train.py")
    assert done.code == 0, done.err
    report = cuptimem.open(tmp_path / "out.cmem")
    assert report.compacted is not None and texts(report)[77_777] == "kept = make(77_777)"


@pytest.mark.skipif(sys.version_info < (3, 13), reason="Python keeps the text of -c from 3.13 on")
def test_a_program_on_the_command_line(run: Run, tmp_path: Path) -> None:
    program = "import torch\nkept = torch.empty(1001, dtype=torch.uint8)"
    assert run("-m", "cuptimem", "run", "-q", "-o", "out.cmem", "-c", program).code == 0
    assert texts(cuptimem.open(tmp_path / "out.cmem")) == {1001: "kept = torch.empty(1001, dtype=torch.uint8)"}


def test_nothing_of_what_reads_a_trace_reads_source() -> None:
    """Not by the usual ways, at least; the recorded and the simulated process run the program."""
    inside = ("source_text.py", "keeping_line.py", "places.py")
    reading = [p for p in (ROOT / "cuptimem").rglob("*.py") if p.name not in inside]
    assert len(reading) > 50 and "words.py" in {p.name for p in reading}
    assert [p for p in reading if "linecache" in p.read_text() or "tokenize" in p.read_text()] == []
