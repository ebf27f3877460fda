"""Every command of docs/examples.md does something: on a recording, or as its verb's parser reads it."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cuptimem import cli
from tests.conftest import ROOT, Result

PAGE = (ROOT / "docs" / "examples.md").read_text().partition("## Coming from another tool")[2]
COMMANDS = sorted(set(re.findall(r"`cuptimem ([^`]+)`", PAGE)))
RUNS = "train.py"  # is run by other tests


def test_the_page_names_most_verbs() -> None:
    assert len({command.split()[0] for command in COMMANDS}) >= 15


@pytest.mark.parametrize("command", [one for one in COMMANDS if not one.endswith(RUNS)])
def test_reads_a_recording(call: Callable[..., Result], tmp_path: Path, command: str) -> None:
    if "tensorboard" in command:
        pytest.importorskip("tensorboard", reason="tensorboard is not installed here: pip install tensorboard")
    trace, snapshot = tmp_path / "run.cmem", tmp_path / "snapshot.pickle"
    recorded = "leak-list.cmem" if command.startswith(("holders", "leaks")) else "cuda-train.cmem"
    trace.write_bytes((ROOT / "tests" / "golden" / "traces" / recorded).read_bytes())
    names = {one.name: str(one) for one in (trace, snapshot)}
    if snapshot.name in command:
        assert call("export", "--to", "memory-viz", str(trace), "-o", str(snapshot)).code == 0
    done = call(*(names.get(word, word) for word in shlex.split(command)))
    assert (done.code, done.err) == (0, ""), done.err
    assert done.out


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.endswith(RUNS)])
def test_is_a_command_line(command: str) -> None:
    verb, *words = shlex.split(command)
    assert cli.module_of(verb).parser().parse_known_args(words)
