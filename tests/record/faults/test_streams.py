"""Output that is full, closed, or in an encoding without our characters: no traceback, and a true exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import clean_environment
from tests.record.faults import traces

GENTLE = "größe_表_🙂"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    return traces.write(tmp_path_factory.mktemp("streams") / "run.cmem", traces.Names(function=GENTLE))


def shell(python: str, command: str, **environment: str) -> tuple[int, bytes, bytes]:
    """With $C for the command."""
    done = subprocess.run(
        ["bash", "-c", command],
        env=clean_environment() | {"C": f"{python} -m cuptimem", "PYTHONUTF8": "0"} | environment,
        capture_output=True,
    )
    return done.returncode, done.stdout, done.stderr


ENCODINGS = [
    ({"PYTHONIOENCODING": "ascii"}, r"gr\xf6\xdfe_\u8868_\U0001f642", " - "),
    ({"PYTHONIOENCODING": "latin-1"}, r"größe_\u8868_\U0001f642", " · "),
    ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}, r"gr\xf6\xdfe_\u8868_\U0001f642", " - "),
    ({"PYTHONIOENCODING": "ascii:replace"}, "gr??e_?_?", " ? "),
    ({"PYTHONIOENCODING": "utf-8"}, GENTLE, " · "),
]


@pytest.mark.parametrize(("environment", "name", "between"), ENCODINGS, ids=range(len(ENCODINGS)))
def test_encodings(python: str, trace: str, environment: dict[str, str], name: str, between: str) -> None:
    code, out, err = shell(python, f"$C table --by function {trace}; $C tree {trace} >&2", **environment)
    encoding = "latin-1" if "latin-1" in environment.values() else "utf-8"
    assert code == 0 and name in out.decode(encoding) and between in out.decode(encoding)
    assert b"Traceback" not in err


def test_json_is_the_same_in_every_encoding(python: str, trace: str) -> None:
    command = f"$C table --by function --json {trace}"
    found = {shell(python, command, PYTHONIOENCODING=encoding)[1] for encoding in ("ascii", "latin-1", "utf-8")}
    (out,) = found
    assert out.isascii() and b"gr\\u00f6\\u00dfe" in out


@pytest.mark.parametrize("verb", ["summary", "tree --json", "tree --help", "--help", "--version"])
def test_a_full_disk(python: str, trace: str, verb: str) -> None:
    command = f"$C {verb} {trace if ' --h' not in verb and verb[0] != '-' else ''} > /dev/full"
    for unbuffered in ("", "1"):
        code, _, err = shell(python, command, PYTHONUNBUFFERED=unbuffered)
        assert (code, err) == (1, b"cuptimem: standard output: No space left on device\n")


def test_nowhere_to_say_it(python: str, trace: str) -> None:
    assert shell(python, f"$C summary {trace} > /dev/full 2> /dev/full")[0] == 1
    assert shell(python, "$C summary nothing.cmem 2> /dev/full")[0] == 1
    assert shell(python, "$C nothing 2> /dev/full")[0] == 2
    assert shell(python, "$C peak --nothing 2> /dev/full")[0] == 2


def test_closed(python: str, trace: str) -> None:
    """What is printed goes nowhere, as with Python's own print; it never goes to another stream or file."""
    for environment in ({}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}):
        assert shell(python, f"$C summary {trace} >&-", **environment) == (0, b"", b"")
    code, out, err = shell(python, "$C summary nothing.cmem 2>&-")
    assert (code, out, err) == (1, b"", b"")
    assert shell(python, f"$C summary {trace} <&- >&- 2>&-") == (0, b"", b"")


def test_a_current_folder_that_is_gone(python: str, trace: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = f"cd {tmp_path}/gone; rmdir ../gone; $C scrub {trace} copy.cmem"
    assert shell(python, command) == (1, b"", b"cuptimem: the current folder: No such file or directory\n")


@pytest.mark.parametrize("verb", ["tree --least 0", "export --to json -o -", "export --to memory-viz -o -"])
def test_a_reader_that_goes_away(python: str, trace: str, verb: str) -> None:
    code, _, err = shell(python, f"(sleep 1; $C {verb} {trace}; echo $? >&2) | true")
    assert (code, err) == (0, b"141\n")


@pytest.mark.parametrize(
    "streams", ["", "2> /dev/full", "2>&-", ">&- 2>&-", "> /dev/full 2> /dev/full", "<&- >&- 2>&-"]
)
def test_a_recorded_program_keeps_its_exit_code(python: str, tmp_path: Path, streams: str) -> None:
    """Whatever becomes of what we say of it, in whatever encoding."""
    (tmp_path / f"{GENTLE}.py").write_text("import sys\nsys.exit(7)\n")
    for environment in ({}, {"PYTHONIOENCODING": "ascii"}):
        code, _, err = shell(python, f"cd {tmp_path}; $C run -f -o {GENTLE}.cmem {GENTLE}.py {streams}", **environment)
        assert code == 7 and b"Traceback" not in err
        assert (tmp_path / f"{GENTLE}.cmem").exists()
        os.unlink(tmp_path / f"{GENTLE}.cmem")


def test_a_recorded_program_sees_its_own_streams(python: str, tmp_path: Path) -> None:
    """A closed one is closed for the program, too."""
    (tmp_path / "p.py").write_text("import os, sys\nprint(sys.stdout is None, file=sys.stderr)\n")
    code, _, err = shell(python, f"cd {tmp_path}; $C run -o run.cmem p.py >&-")
    assert code == 0 and err.startswith(b"True\n")
    plain = subprocess.run(["bash", "-c", f"{sys.executable} {tmp_path}/p.py >&-"], capture_output=True)
    assert plain.stderr == b"True\n"
