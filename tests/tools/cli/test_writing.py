"""Pages that verbs write: names, what is replaced and what never is."""

import argparse
import os
import stat
from pathlib import Path

import pytest

from cuptimem import Error, whole_files
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
