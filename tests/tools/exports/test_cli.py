"""cuptimem export: names, refusals, the closing line."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cuptimem import cli

ALL = ("chrome", "memory-viz", "speedscope", "pprof", "firefox", "collapsed", "csv", "json")


@pytest.fixture
def run(
    tmp_path: Path, traces: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def go(name: str, *arguments: str) -> tuple[int, str, str]:
        path = tmp_path / "run.cmem"
        path.write_bytes(Path(traces(name)).read_bytes())
        code = cli.main(["export", str(path), *arguments])
        out, error = capsys.readouterr()
        return code, out, error

    return go


@pytest.mark.parametrize("kind", ALL)
def test_it_lies_beside_the_trace(run: Callable[..., tuple[int, str, str]], tmp_path: Path, kind: str) -> None:
    code, out, error = run("plain", "--to", kind)
    assert (code, error) == (0, "")
    (made,) = (path for path in tmp_path.iterdir() if path.suffix != ".cmem")
    assert made.name.startswith("run") and out.splitlines()[-1].startswith("wrote ") and str(made) in out
    code, out, error = run("plain", "--to", kind)
    assert code == 1 and out == "" and "--force" in error and len(error.splitlines()) == 1
    assert run("plain", "--to", kind, "--force")[0] == 0


def test_what_is_missing_is_said(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run("lost", "--to", "json")
    assert code == 0 and "! 17 events found no room and are lost" in out


def test_a_name_with_commands_is_harmless(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, _ = run("plain", "--to", "collapsed", "-o", str(tmp_path / "a\x1b[31m\u202eb.txt"))
    assert code == 0 and "\x1b" not in out and "\u202e" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "pdf"], "invalid choice"),
        ([], "--to"),
        (["--to", "chrome", "--least", "much"], "a size such as"),
        (["--to", "memory-viz", "--newest", "0"], "at least 1"),
    ],
)
def test_usage(
    traces: Callable[[str], str], capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", traces("plain"), *arguments])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_what_cannot_be_written(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, error = run("plain", "--to", "json", "-o", str(tmp_path / "none" / "x.json"))
    assert code == 1 and out == "" and "cannot be written: No such file or directory" in error
    code, _, error = run("plain", "--to", "json", "--device", "cuda:3")
    assert code == 1 and "no device" in error
    assert sorted(os.listdir(tmp_path)) == ["run.cmem"]


def test_a_pipe_is_written_to_and_stays_one(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        code, _, error = run("plain", "--to", "collapsed", "-o", str(pipe), "--force")
        assert (code, error) == (0, "") and os.read(reading, 1 << 16)
    finally:
        os.close(reading)
    assert pipe.is_fifo()


@pytest.mark.parametrize("kind", ALL)
def test_a_pipe_that_no_program_reads_is_refused(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, kind: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    table = ["--table", "steps"] if kind == "csv" else []
    code, out, error = run("plain", "--to", kind, "-o", str(tmp_path / "pipe"), "--force", *table)
    assert (code, out) == (1, "") and "a pipe that no program reads" in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_has_the_export_alone(
    python: str, traces: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    """A pipe and a file, where what was there before stays; the closing line goes to standard error."""
    command = [python, "-m", "cuptimem", "export", traces("plain"), "--to", "collapsed", "-o", name]
    piped = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert piped.stdout and "wrote" not in piped.stdout and piped.stderr.startswith("wrote /")
    with (tmp_path / "all").open("w") as file:
        file.write("before\n")
        file.flush()
        subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=True, cwd=tmp_path)
    assert (tmp_path / "all").read_text() == "before\n" + piped.stdout and os.listdir(tmp_path) == ["all"]
