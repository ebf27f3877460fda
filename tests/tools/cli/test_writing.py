"""Pages that verbs write: names, what is replaced and what never is."""

import argparse
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cuptimem import Error, tempfiles, whole_files
from cuptimem.output.pages import page, writing

PAGE = '<!doctype html><html><head><meta name="generator" content="cuptimem"></head></html>'


def options(*arguments: str, **more: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    writing.add_output(parser)
    return argparse.Namespace(**{**vars(parser.parse_args(arguments)), **more})


def test_a_page_lies_beside_its_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = writing.beside(str(tmp_path / "run.1.cmem"), "flamegraph")
    assert name == str(tmp_path / "run.1-flamegraph.html")
    assert writing.write_page(options(), name, PAGE) == name
    assert Path(name).read_text() == PAGE
    assert capsys.readouterr().out == f"wrote {name} ({len(PAGE)} B); open it in a browser, or repeat with --open\n"
    assert os.listdir(tmp_path) == ["run.1-flamegraph.html"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(os.stat(name).st_mode) == 0o666 & ~mask


def test_every_page_says_what_it_is(tmp_path: Path) -> None:
    """What page.html writes is what is looked for."""
    source = page.asset("templates/page.html").encode()
    assert writing._GENERATOR in source[: writing._HEAD // 2]


def test_only_a_page_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    path.write_text("my thesis")
    with pytest.raises(Error, match="no page of cuptimem"):
        writing.target(options("-o", str(path)), "")
    assert path.read_text() == "my thesis"
    writing.write_page(options("-o", str(path), "--force"), "", PAGE)
    writing.write_page(options("-o", str(path)), "", PAGE + " ")
    assert path.read_text() == PAGE + " "


def test_a_trace_is_never_replaced(tmp_path: Path) -> None:
    trace = tmp_path / "run.cmem"
    trace.write_bytes(b"trace")
    for name in ("file", "before", "after"):
        with pytest.raises(Error, match="is the trace itself"):
            writing.target(options("-o", str(trace), "--force", **{name: str(trace)}), "")


def test_places_where_nothing_can_be_written(tmp_path: Path) -> None:
    for path, what in ((tmp_path, "is a directory"), (tmp_path / "none" / "a.html", "make it first")):
        with pytest.raises(Error, match=what):
            writing.target(options("-o", str(path)), "")
    with pytest.raises(Error, match="needs a name"):
        writing.target(options("-o", ""), "")


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real.html").write_text(PAGE)
    (tmp_path / "link.html").symlink_to("real.html")
    writing.write_page(options("-o", str(tmp_path / "link.html")), "", PAGE + "2")
    assert (tmp_path / "link.html").is_symlink() and (tmp_path / "real.html").read_text() == PAGE + "2"


def test_what_is_there_stays_until_all_of_the_new_is_written(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text(PAGE)
    with pytest.raises(KeyboardInterrupt), whole_files.replacing(page) as file:
        file.write(b"half of")
        file.flush()
        assert page.read_text() == PAGE
        raise KeyboardInterrupt
    assert page.read_text() == PAGE and os.listdir(tmp_path) == ["a.html"]


_WRITE = """
import os, signal, sys
from cuptimem import whole_files
path, number, nameless = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "nameless"
if not nameless:
    del os.O_TMPFILE  # as on a file system that has no such files
with whole_files.replacing(path) as file:
    file.write(b"half of")
    file.flush()
    print(*sorted(os.listdir(os.path.dirname(path))), flush=True)
    signal.raise_signal(number)
    signal.pause()
"""


@pytest.mark.parametrize("kind", ["nameless", "named"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL], ids=lambda n: n.name)
def test_a_killed_writer_leaves_nothing(tmp_path: Path, number: signal.Signals, kind: str) -> None:
    """Where the file has a name and the signal is SIGKILL, until the next writer comes to the folder."""
    path = tmp_path / "a.html"
    path.write_text(PAGE)
    command = [sys.executable, "-c", _WRITE, str(path), str(int(number)), kind]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -number, done.stderr
    assert len(done.stdout.split()) == (1 if kind == "nameless" else 2)
    if kind == "named" and number == signal.SIGKILL:
        assert len(os.listdir(tmp_path)) == 2
        with whole_files.replacing(path) as file:
            file.write(PAGE.encode())
    assert path.read_text() == PAGE and os.listdir(tmp_path) == ["a.html"]


def test_a_running_writer_keeps_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither it nor a name that only looks like one of ours is removed."""
    monkeypatch.delattr(os, "O_TMPFILE")
    (tmp_path / ".cuptimem-aside-1.2.3.4.cmem").write_text("theirs")
    os.symlink("b", Path(tempfiles.name(str(tmp_path)).replace(f".{os.getpid()}.", f".{2**22 + 1}.")))
    with whole_files.replacing(tmp_path / "a") as first:
        first.write(b"1")
        with whole_files.replacing(tmp_path / "b") as second:
            second.write(b"2")
    assert [(tmp_path / name).read_text() for name in "ab"] == ["1", "2"] and len(os.listdir(tmp_path)) == 4


def test_signals_of_the_program_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    caught: list[int] = []
    mine = lambda number, frame: caught.append(number)  # noqa: E731 (compared by identity)
    signal.signal(signal.SIGTERM, mine)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with whole_files.replacing(tmp_path / "a"):
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGHUP)
        assert caught == [signal.SIGTERM] and signal.getsignal(signal.SIGTERM) is mine
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with whole_files.replacing(tmp_path / "a"):
            assert callable(signal.getsignal(signal.SIGTERM))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)


def test_what_can_be_no_target(tmp_path: Path) -> None:
    """A pipe without a reader would be waited for, and a socket or a disk is no place for a page."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
    for name, what in (("pipe", "no program reads"), ("socket", "it is a socket")):
        with pytest.raises(Error, match=what):
            writing.write(str(tmp_path / name), b"page")
    assert sorted(os.listdir(tmp_path)) == ["pipe", "socket"]


def test_an_open_file_is_written_to_and_stays(tmp_path: Path) -> None:
    """What /dev/stdout leads to may be a file, and root could replace the link."""
    with (tmp_path / "a").open("wb") as file:
        file.write(b"before ")
        file.flush()
        assert not writing.write(f"/dev/fd/{file.fileno()}", b"page")
    assert (tmp_path / "a").read_text() == "before page"


def test_a_stream_gets_the_page_alone(capsys: pytest.CaptureFixture[str]) -> None:
    reading, written = os.pipe()
    with open(reading) as file:
        writing.write_page(options("-o", f"/dev/fd/{written}"), "", PAGE)
        os.close(written)
        assert file.read() == PAGE
    assert capsys.readouterr().out == ""


def test_without_a_browser_it_says_where_the_page_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    writing.write_page(options("-o", str(tmp_path / "a.html"), "--open"), "", PAGE)
    assert (tmp_path / "a.html").as_uri() in capsys.readouterr().err


def test_a_browser_gets_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = tmp_path / "opened"
    monkeypatch.setenv("BROWSER", f"/bin/sh -c 'echo %s > {opened}'")
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})
    assert writing.write_page(options("-o", str(tmp_path / "a b.html"), "--open"), "", PAGE)
    assert opened.read_text().strip() == (tmp_path / "a b.html").as_uri()


def test_a_page_or_json() -> None:
    assert writing.wanted(options("-o", "a.html", json=False)) and not writing.wanted(options(json=True))
    with pytest.raises(Error, match="choose one"):
        writing.wanted(options("--open", json=True))
