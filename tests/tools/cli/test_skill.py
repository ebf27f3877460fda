"""`cuptimem skill`: its commands run, its answer is one that is given, its verbs and options are there."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from cuptimem.cli import VERBS, main, module_of, skill
from tests.golden.answers import TRACES

TEXT = skill.text()
BLOCK = re.search(r"```sh\n(.*?)```", TEXT, re.DOTALL)
assert BLOCK is not None
COMMANDS = [line.partition("#")[0].strip() for line in BLOCK.group(1).splitlines()]
CODES = {"leaks run.cmem --fail-on-leak": 3}
FILES = {"run.cmem": "leak-cache", "before.cmem": "train", "after.cmem": "train-wider"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, golden in FILES.items():
        shutil.copyfile(TRACES / f"{golden}.cmem", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill"]) == 0
    out = capsys.readouterr().out
    assert out == TEXT and out.startswith("---\nname: cuptimem\ndescription: ") and out.endswith("\n")
    assert out.isascii() and len(out) < 8192


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(command: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)
    assert words[0] == "cuptimem"
    code = main(words[1:])
    out, error = capfd.readouterr()
    wanted = CODES.get(" ".join(words[1:]), 0)
    if words[1] == "doctor":  # of this environment
        wanted = code if code in (0, 1) else 0
    assert code == wanted, error
    if "--max-bytes" in words:
        assert len(out.encode()) <= 8192
    if "--most" in words or "--max-bytes" in words:
        assert "left_out" in json.loads(out)


def test_every_command_in_the_text_is_taken() -> None:
    for command in [*COMMANDS, *re.findall(r"`(cuptimem [^`]+)`", TEXT)]:
        _, verb, *words = shlex.split(command)
        assert verb in VERBS, command
        home = "advice_try" if words[:1] == ["--try"] else verb
        known = module_of(home).parser().own_options()
        options = [word for word in words if word.startswith("-") and word != "--try"]
        assert all(option in known for option in options), command
