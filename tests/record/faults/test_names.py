"""Names that command a terminal, change the direction of text or end an element of a page, in all that is shown."""

import base64
import contextlib
import csv
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem import cli, naming
from cuptimem.notebook import display
from cuptimem.output import exports
from cuptimem.output.text import cells, terminal
from cuptimem.printable import encoded, printable
from tests.conftest import clean_environment
from tests.record.faults import traces

EVIL = "\x1b]0;owned\x07\x1b[2J\n\r\x00\x7f\x9b31m\u061c\u200b\u200e\u202e\u2028\u2066\U000e0041</script><img src=x>"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\n\r\x00\x7f\x9b31m\u061c\u200b\u200e\u202e\u2028\u2066\U000e0041</script><img src=x>"
ARGUMENT = EVIL.replace("\x00", "")  # of a command line, which has no NUL
GENTLE = "größe_表_🙂_é_مرحبا"

VIEWS = (
    ["summary"],
    ["peak"],
    ["peak", "--at", "end"],
    ["peak", "--at", "oom"],
    ["leaks"],
    ["ledger"],
    ["fragmentation"],
    ["kernels"],
    ["steps"],
    *(["table", "--by", by] for by in ("line", "library-line", "function", "file", "module", "operator", "stack")),
    ["account"],
    ["tree"],
    ["tree", "--inverted"],
)
JSON = [[*view, "--json"] for view in VIEWS]
PAGES = (["timeline"], ["flamegraph"], ["tree"], ["table"])
# No text has these of this trace: the module has a name, which goes before its class, and of meta see the heading.
UNSHOWN = {"module", "dtype", "meta"}


def evil(name: str) -> str:
    """Of text that C code keeps, which ends at a NUL."""
    return name + ARGUMENT


def names() -> traces.Names:
    """Every name of a trace begins like its field."""
    text = {one.name: evil(f"{one.name}-") for one in fields(traces.Names) if one.name != "meta"}
    # What is left of the last / is shown of these, and the kernel's arguments are not.
    plain = {name: text[name].replace("/", "|") for name in ("file", "library", "kernel")}
    text |= {
        "file": f"/x/{plain['file']}",
        "library": f"/x/{plain['library']}",
        "kernel": re.sub("[<>|]", "", plain["kernel"]),
    }
    meta = traces.Names().meta
    return replace(
        traces.Names(**text),  # type: ignore[arg-type]  # meta, of another type, is not among them
        problem=text["problem"].replace("\n", ""),  # a list of lines
        meta={name: value if name in ("pid", "nodes") else value + evil("") for name, value in meta.items()},
    )


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    return traces.write(tmp_path_factory.mktemp("names") / "run.cmem", names())


def verb(arguments: list[str]) -> tuple[int, str, str]:
    """In this process: what it prints on both streams."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = cli.main(arguments)
        except SystemExit as end:
            code = int(str(end.code))
    return code, out.getvalue(), err.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def harmless(text: str) -> bool:
    """Lines that print, and nothing else."""
    return all(line.isprintable() for line in text.split("\n"))


# -- text ----------------------------------------------------------------------------------------------------------


def test_escapes() -> None:
    assert printable(EVIL) == SHOWN
    assert printable("a\tb \udcff \u2069 \u200d \ufeff") == r"a b \udcff \u2069 \u200d \ufeff"
    assert printable(GENTLE) == GENTLE
    assert encoded("a…b · 5 µs → ü\udcff", "ascii") == rb"a...b - 5 us -> \xfc\udcff"
    assert encoded("· µ …\udcff", "latin-1") == b"\xb7 \xb5 ...\\udcff"


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_every_view(trace: str, view: list[str]) -> None:
    for width in ("", "80"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", width)
            code, out, err = verb([*view, trace])
        assert code == 0 and out and harmless(out) and harmless(err)


def test_every_name_is_shown(trace: str) -> None:
    text = "".join(verb([*view, trace])[1] for view in VIEWS)
    for name in {one.name for one in fields(traces.Names)} - UNSHOWN:
        assert re.search(rf"{name}-\\x1b\]0;owned\\x07\\x1b\[2J", text), name


@pytest.mark.parametrize("view", VIEWS[:9], ids=" ".join)
def test_on_a_terminal(trace: str, view: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside our own colours nothing begins with ESC."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    with contextlib.redirect_stdout(stream):
        assert cli.main([*view, trace]) == 0
    out = stream.getvalue()
    assert "\x1b[" in out and harmless(re.sub(r"\x1b\[[\d;]*m", "", out))


@pytest.mark.parametrize("view", JSON, ids=" ".join)
def test_json_has_the_exact_text(trace: str, view: list[str]) -> None:
    code, out, _ = verb([*view, trace])
    assert code == 0 and out.isascii() and harmless(out)
    assert any(evil(f"{name}-") in str(text) for text in _texts(json.loads(out)) for name in ("function", "end"))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []


def test_two_traces(trace: str) -> None:
    assert harmless(verb(["diff", trace, trace])[1])


# -- pages and notebooks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", [*PAGES, ["diff"]], ids=" ".join)
def test_pages(trace: str, view: list[str], tmp_path: Path) -> None:
    gentle = traces.write(tmp_path / "gentle.cmem")
    wild = shutil.copy(trace, tmp_path / (ARGUMENT.replace("/", "|") + ".cmem"))
    tags = []
    for one in (str(wild), gentle):
        code, _, err = verb([*view, *([one] if view == ["diff"] else []), one, "-f", "-o", str(tmp_path / "page.html")])
        assert code == 0, err
        page = (tmp_path / "page.html").read_text()
        assert harmless(page.replace("\u00a0", " ").replace("\t", " "))
        tags.append([page.lower().count(tag) for tag in ("<script", "</script", "<img", "<title", "</title")])
        data = re.search(r'<script type="text/plain" id="data">([A-Za-z0-9+/=]*)</script>', page)
        assert data is not None
        texts = _texts(json.loads(gzip.decompress(base64.b64decode(data[1]))))
        assert texts and all(text.isprintable() for text in texts)
    assert tags[0] == tags[1]


def test_notebook(trace: str) -> None:
    report = cuptimem.open(trace)
    for shown in (report, report.peak, report.steps, report.leaks):
        assert harmless(display.plain(shown))
        page = display.markup_of(shown)
        assert harmless(page.replace("\u00a0", " ")) and "<img src=x" not in page and "</script><img" not in page


def test_printed(trace: str) -> None:
    assert harmless(str(cuptimem.open(trace)))


# -- exports -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["chrome", "speedscope", "collapsed", "json"])
def test_exports(trace: str, kind: str, tmp_path: Path) -> None:
    written = exports.export(trace, kind, str(tmp_path / "out.txt"))
    text = Path(written.path).read_text()
    assert harmless(text) and harmless("".join(written.notes))
    if kind == "collapsed":
        # One stack a line, frames between semicolons, one number behind the last space.
        assert all(re.fullmatch(r"[^;]+(;[^;]+)* \d+", line) for line in text.splitlines())
    elif kind == "json":
        rows = [json.loads(line) for line in text.splitlines()]
        assert any(evil("function-") in text for row in rows for text in _texts(row))


def test_csv(tmp_path: Path) -> None:
    """Neither a row more nor a formula, also in the wide letters that spreadsheets of East Asia take for one."""
    for function in ('=cmd|"/c calc"!A1', "＝1+1", 'a"b\r\nc,d', "@x", "-1", "+1"):
        trace = traces.write(tmp_path / "run.cmem", traces.Names(function=function))
        exports.export(trace, "csv", str(tmp_path / "out"), exports.Options(force=True))
        with open(tmp_path / "out/stacks.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        shown = {row["function"] for row in rows} - {"forward"}
        (one,) = shown
        assert printable(function) in (one, one[1:]) and (one[0] == "'" or one[0] == "a")


# -- errors and closing lines --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["summary", ARGUMENT], 1),
        (["summary", "TRACE", "-o" + ARGUMENT], 2),
        (["summary", "TRACE", ARGUMENT], 2),
        (["peak", "TRACE", "--step", ARGUMENT], 2),
        (["peak", "TRACE", "--device", ARGUMENT], 1),
        (["table", "TRACE", "--by", ARGUMENT], 2),
        (["timeline", "TRACE", "-o", f"/nowhere/{ARGUMENT}"], 1),
        (["export", "TRACE", "--to", ARGUMENT], 2),
        (["run", "--" + ARGUMENT.replace(" ", "")], 2),
        (["simulate", "--" + ARGUMENT.replace(" ", "")], 2),
        ([ARGUMENT], 2),
    ],
    ids=lambda one: one[0][:9] if isinstance(one, list) else "",
)
def test_errors(trace: str, arguments: list[str], code: int) -> None:
    found, out, err = verb([trace if one == "TRACE" else one for one in arguments])
    assert found == code and out == "" and harmless(err)
    assert len(err.splitlines()) == 1 and r"\x1b]0;owned" in err


@pytest.mark.parametrize("before", [["table"], ["export", "--to", "collapsed"], ["scrub"]], ids=lambda one: one[0])
def test_files_that_are_written(trace: str, tmp_path: Path, before: list[str]) -> None:
    name = str(tmp_path / ARGUMENT.replace("/", "|"))
    code, out, err = verb([*before, trace, *([] if before == ["scrub"] else ["-o"]), name])
    assert (code, err) == (0, "") and os.path.exists(name)
    assert out.count("wrote ") == 1 and printable(name) in out and harmless(out)


def test_what_is_not_recorded(tmp_path: Path, python: str) -> None:
    done = subprocess.run(
        [python, "-c", "pass"],
        cwd=tmp_path,
        env=clean_environment() | {"PYTHONUTF8": "1", "CUPTIMEM": f"/nowhere/{ARGUMENT}"},
        capture_output=True,
    )
    err = done.stderr.decode()
    assert done.returncode == 0 and len(err.splitlines()) == 1 and harmless(err)
    assert err.startswith("cuptimem: not recording: ") and r"\x1b]0;owned" in err


def test_an_exception_of_ours(tmp_path: Path) -> None:
    path = str(tmp_path / evil("gone"))
    with pytest.raises(cuptimem.Error) as caught:
        cuptimem.open(path)
    assert harmless(str(caught.value)) and printable(path) in str(caught.value) and path in caught.value.args[0]


def test_closing_lines(tmp_path: Path, python: str) -> None:
    """Of `run` and of a profile; the command in it is one that a shell takes."""
    name = evil("a").replace("/", "|") + "\udcff'.cmem"
    script = tmp_path / (evil("s").replace("/", "|") + ".py")
    script.write_text("import cuptimem\nwith cuptimem.profile(): pass\n")
    done = subprocess.run(
        [python, "-m", "cuptimem", "run", "-o", name, script.name],
        cwd=tmp_path,
        env=clean_environment() | {"PYTHONUTF8": "1"},
        capture_output=True,
    )
    err = done.stderr.decode()
    assert done.returncode == 0 and harmless(err) and os.path.exists(tmp_path / name)
    (line,) = [line for line in err.splitlines() if "see: " in line]
    word = re.search(r"see: cuptimem summary (.*)", line)
    assert word is not None
    shell = subprocess.run(["bash", "-c", f"printf %s {word[1]}"], capture_output=True, check=True)
    assert shell.stdout == os.fsencode(name)


def test_typed() -> None:
    assert naming.typed("-x.cmem") == "./-x.cmem"
    assert naming.typed("a b").endswith("a b'") and naming.typed("größe.cmem").endswith("größe.cmem")
    assert naming.typed("a\x1b1\u202e'").endswith("a\\0331\\342\\200\\256\\''")


@pytest.mark.parametrize("size", ["²", "0", "-1", "9" * 5000, "x"])
def test_sizes_of_a_terminal_that_are_none(trace: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they were not set: of a pipe no line is cut, a terminal has 80 columns."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "LINES"):
        monkeypatch.setenv(name, size)
    found = [verb(["peak", trace])]
    with contextlib.redirect_stdout(Terminal()) as stream:
        assert cli.main(["peak", trace]) == 0
    shown = [stream.getvalue()]
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name)
    found.append(verb(["peak", trace]))
    with contextlib.redirect_stdout(Terminal()) as stream:
        assert cli.main(["peak", trace]) == 0
    shown.append(stream.getvalue())
    assert found[0] == found[1] and found[0][0] == 0 and shown[0] == shown[1]


def test_numbers_in_names_that_are_too_long(tmp_path: Path) -> None:
    """Lengths in mangled names, the version of torch: Python refuses numbers of more than 4,300 digits."""
    digits = "9" * 5000
    long = replace(
        names(),
        node=f"N{digits}",
        operator=digits,
        kernel=f"_ZN{digits}",
        meta={**names().meta, "torch": f"{digits}.{digits}"},
    )
    trace = traces.write(tmp_path / "run.cmem", long)
    for view in VIEWS:
        code, out, err = verb([*view, trace])
        assert code == 0 and harmless(out) and harmless(err), view


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is no markup of rich's, either."""
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with terminal.progress("reading [/red]\x1b]0;owned\x07") as tell:
        tell(0.1)
        now[0] = 2.0
        tell(0.5)
    assert r"reading [/red]\x1b]0;owned\x07" in stream.getvalue() and "\x1b]0;" not in stream.getvalue()


# -- wide characters -----------------------------------------------------------------------------------------------


def test_cells() -> None:
    assert [cells.cell_len(text) for text in ("a…├", "表", "🙂", "e\u0301", "")] == [3, 2, 2, 1, 0]
    assert cells.cut("表表表", 5) == "表表…" and cells.cut("表表表", 4) == "表…" and cells.cut("表表表", 6) == "表表表"
    assert cells.cut("表表表", 5, keep_end=True) == "…表表"
