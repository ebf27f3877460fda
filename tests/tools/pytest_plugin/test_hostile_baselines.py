"""Baselines that others made: nothing of them reaches a terminal as it is, and each of their faults is one line."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuptimem.errors import Error
from cuptimem.pytest_plugin import baselines, comparison, outputs, session, usage
from tests.tools.pytest_plugin.records import ENVIRONMENT, KEY, figures, line, record
from tests.tools.pytest_plugin.runs import MemorySuite

EVIL = "\x1b]0;evil\x07\r\x9b2J\u202e\u2028\n\udcff"
SHOWN = r"\x1b]0;evil\x07\r\x9b2J\u202e\u2028\n\udcff"

SUITE = """
KEPT = []

def test_within():
    KEPT.append(block(3000))

@pytest.mark.limit_tensor_memory("1 KiB")
def test_over():
    KEPT.append(block(2000))
"""


def harmless(text: str) -> bool:
    """Lines that print, and nothing else but pytest's own colours and its counter of collected tests."""
    own = re.compile(r"\x1b\[[\d;]*m|\r(?=\n|(\x1b\[[\d;]*m)*coll)")
    return all(line.isprintable() for line in own.sub("", text).split("\n"))


def make_evil(file: Path) -> None:
    """Keeps the schema and names of the suite's tests."""
    tests: Any = {}
    for name, size in (("test_within", 1000), ("test_over", 10)):
        lines = [
            [size // 2, 1, f"gone{EVIL}.py:1 f{EVIL}", f"phase{EVIL}", f"source{EVIL}"],
            [size // 4, 1, f"nowhere{EVIL}", EVIL, EVIL],
        ]
        row = {"peak": size, "allocated": size, "allocations": 1, "leaked": None, "contributors": lines}
        tests[f"test_it.py::{name}"] = {"cpu": row, f"cuda{EVIL}": row}
    tests[f"test_{EVIL}"] = {EVIL: row}
    file.write_text(json.dumps({"schema": 1, "tests": tests, EVIL: EVIL}))


def test_on_a_terminal_and_in_a_pipe(memory_suite: MemorySuite) -> None:
    suite = memory_suite
    suite.write(SUITE)
    suite.environment["COLUMNS"] = "400"
    assert suite.run("--cuptimem-save").code == 1
    (saved,) = suite.path.glob(".cuptimem/*/baseline.json")
    make_evil(saved)
    for options in (
        ("-v", "-rA", "--cuptimem", "--cuptimem-compare-fail=peak:0B", "--junitxml=junit.xml"),
        ("-q", "--color=yes", "-s"),
        ("-p", "no:terminal"),
    ):
        run = suite.run("--cuptimem-compare", "-pno:cacheprovider", *options)
        assert run.code == 1 and harmless(run.out) and harmless(run.err), run.out
        if "no:terminal" not in options:
            assert f"-500 B removed gone{SHOWN}.py:1 f{SHOWN}: 500 B to 0 B" in run.out
            assert f"-5 B removed gone{SHOWN}.py:1 f" in run.out  # in the failure, which is less wide
    xml = (suite.path / "junit.xml").read_text()
    assert harmless(xml) and f"-5 B removed gone{SHOWN}.py:1 f" in xml

    leader, follower = pty.openpty()
    command = (sys.executable, "-m", "pytest", "-pno:cacheprovider", "--cuptimem-compare", "-v", "-rA", "--color=yes")
    process = subprocess.Popen(command, cwd=suite.path, env=suite.environment, stdout=follower, stderr=follower)
    os.close(follower)
    out = b""
    try:
        while part := os.read(leader, 65536):
            out += part
    except OSError:  # the end of the other side
        assert process.wait() == 1
    os.close(leader)
    text = out.decode("utf-8", "surrogateescape")
    assert f"gone{SHOWN}.py:1" in text.replace("\r\n", "") and "\x1b[" in text and harmless(text)


def test_baselines_of_other_devices(memory_suite: MemorySuite) -> None:
    """The names of their folders are the reason why nothing was compared."""
    suite = memory_suite
    suite.write(SUITE)
    folder = suite.path / ".cuptimem" / f"key{EVIL}"
    folder.mkdir(parents=True)
    (folder / "baseline.json").write_text('{"schema": 1, "tests": {}}')
    run = suite.run("--cuptimem-compare")
    assert f"the baseline is of key{SHOWN}, this is " in run.out and harmless(run.out)
    (folder / "baseline.json").write_text('{"schema": 1, "tests": []}')
    run = suite.run("--cuptimem-compare")
    assert run.code == pytest.ExitCode.USAGE_ERROR and harmless(run.out + run.err)
    assert f".cuptimem/key{SHOWN}/baseline.json: there are no tests in it; restore" in run.out + run.err


def test_whatever_is_written(tmp_path: Path) -> None:
    """Each place that writes for the plugin, with the text of any other part of it."""
    run = record(f"t.py::{EVIL}", cpu=figures(9, [line(9, f"x{EVIL}", EVIL, EVIL)]))
    before = record(f"t.py::{EVIL}", cpu=figures(1, [line(1, f"y{EVIL}", EVIL, EVIL)]))
    baselines.save(tmp_path, "main", [before], ENVIRONMENT)
    (difference,) = comparison.compare([run], ENVIRONMENT, baselines.load(tmp_path, "main")).differences
    for width in (20, 80, 400):
        lines = [*comparison.describe(difference, width), *outputs.table([run], width)]
        assert all(one.isprintable() and len(one) <= width for one in lines)
    assert str(usage.usage_error(EVIL)) == SHOWN
    assert str(session._raised([EVIL, "a"]).value) == f"{SHOWN}\na"


@pytest.mark.parametrize("what", ["pipe", "zeros", "socket", "loop", "large"])
def test_what_is_no_file_of_a_bounded_size(tmp_path: Path, what: str) -> None:
    folder = tmp_path / ".cuptimem" / KEY
    folder.mkdir(parents=True)
    path = folder / "main.json"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "large":
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    else:
        path.symlink_to({"zeros": "/dev/zero", "socket": "/dev/ptmx", "loop": "main.json"}[what])
    said = {"large": "larger than 256 MiB", "loop": "Too many levels of symbolic links"}.get(what, "not a regular file")
    for call in (
        lambda: baselines.load(tmp_path, "main"),
        lambda: baselines.check(tmp_path, "main"),
        lambda: baselines.save(tmp_path, "main", [record("a", cpu=figures(1))], ENVIRONMENT),
    ):
        with pytest.raises(Error, match=rf"main\.json: {said}; restore the file, or remove it") as raised:
            call()
        assert str(raised.value).isprintable()


def test_a_link_to_a_baseline_is_followed(tmp_path: Path) -> None:
    (saved,) = baselines.save(tmp_path, "main", [record("a", cpu=figures(1))], ENVIRONMENT)
    saved.path.rename(tmp_path / "kept.json")
    saved.path.symlink_to(tmp_path / "kept.json")
    assert baselines.load(tmp_path, "main").row(KEY, "a", "cpu") is not None


BAD = ["-1", "NaN", "1e400", "Infinity", "1.0", "true", "null", "[]", "{}", '"1"', str(1 << 70), "9" * 5000]


@pytest.mark.parametrize("number", BAD, ids=lambda text: text[:9])
def test_what_is_no_number(tmp_path: Path, number: str) -> None:
    """In every place of a number, also of the schema: one line with the file's name. The leak may be unknown."""
    row = {"peak": 1, "allocated": 1, "allocations": 1, "leaked": 1, "contributors": [[1, 1, "a", "b", "c"]]}
    good = {"schema": 1, "tests": {"a": {"cpu": row}}}
    text = json.dumps(good)
    path = tmp_path / ".cuptimem" / KEY / "main.json"
    path.parent.mkdir(parents=True)
    tried = 0
    for found in re.finditer(r"(?<=[ \[])1(?=[,}])", text):
        path.write_text(text[: found.start()] + number + text[found.end() :])
        if number == "null" and '"leaked": null' in path.read_text():
            assert baselines.load(tmp_path, "main").row(KEY, "a", "cpu") == {**row, "leaked": None}
            continue
        tried += 1
        with pytest.raises(Error) as raised:
            baselines.load(tmp_path, "main")
        said = str(raised.value)
        assert said.startswith(f".cuptimem/{KEY}/main.json: ") and said.isprintable() and len(said) < 500
    assert tried == (6 if number == "null" else 7)


@pytest.mark.parametrize("value", ["1", "null", "true", "[]", "{}"])
def test_what_is_no_text(tmp_path: Path, value: str) -> None:
    path = tmp_path / ".cuptimem" / KEY / "main.json"
    path.parent.mkdir(parents=True)
    row = '{"peak": 1, "allocated": 1, "allocations": 1, "leaked": 1, "contributors": [[1, 1, %s, %s, %s]]}'
    for at in range(3):
        texts = tuple(value if at == i else '"x"' for i in range(3))
        path.write_text(f'{{"schema": 1, "tests": {{"a": {{"cpu": {row % texts}}}}}}}')
        with pytest.raises(Error, match="'a', 'cpu': a contributor is "):
            baselines.load(tmp_path, "main")


def test_more_contributors_than_are_kept(tmp_path: Path) -> None:
    """Lines of both sides are matched: their number is bounded."""
    path = tmp_path / ".cuptimem" / KEY / "main.json"
    path.parent.mkdir(parents=True)
    row = {"peak": 1, "allocated": 1, "allocations": 1, "leaked": 1, "contributors": [[1, 1, "a", "b", "c"]] * 11}
    path.write_text(json.dumps({"schema": 1, "tests": {"a": {"cpu": row}}}))
    with pytest.raises(Error, match="it has 11 contributors, and a row has at most 10"):
        baselines.load(tmp_path, "main")
