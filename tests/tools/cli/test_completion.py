"""Completion in a real shell, and the manual page as groff reads it."""

import argparse
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cuptimem.cli import VERBS, manual, module_of
from tests.conftest import Result, clean_environment

Run = Callable[..., Result]

COMPLETE = """
source "$1"
shift
complete -p cuptimem >&2
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_shtab_cuptimem
printf '%s\\n' "${COMPREPLY[@]}"
"""
# What is typed, its last word unfinished, in a folder with a.cmem, b.txt, train.py and old/.
TYPED = {
    "su": {"summary"},
    "doctor --": {"--help", "--json", "--all", "--bundle", "--force", "--max-bytes", "--most"},
    "peak --at ": {"start", "peak", "end", "oom"},
    "completion ": {"bash", "zsh", "fish"},
    "summary ": {"a.cmem", "old"},
    "diff a.cmem ": {"a.cmem", "old"},
    "table -o ": {"a.cmem", "b.txt", "train.py", "old"},
    "run tr": {"train.py"},
    "run train.py --data b": {"b.txt"},
    "run -m train o": {"old"},
    "simulate --memory 8G t": {"train.py"},
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("shtab", reason="what makes the scripts")
    from cuptimem.cli import completion

    folder = tmp_path_factory.mktemp("scripts")
    for shell in completion.SHELLS:
        (folder / shell).write_text(completion.script(shell))
    return folder


@pytest.mark.parametrize("typed", TYPED)
def test_bash(scripts: Path, tmp_path: Path, typed: str) -> None:
    for name in ("a.cmem", "b.txt", "train.py"):
        (tmp_path / name).touch()
    (tmp_path / "old").mkdir()
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", str(scripts / "bash"), "cuptimem", *typed.split(" ")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=clean_environment(),
    )
    assert done.stderr.endswith("-F _shtab_cuptimem cuptimem\n")
    assert set(done.stdout.split()) == TYPED[typed]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_parse(scripts: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    done = subprocess.run([shell, "-n", str(scripts / shell)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_shtab_it_names_the_extra(run: Run) -> None:
    program = (
        "import sys; sys.modules['shtab'] = None\nfrom cuptimem.cli import main\nsys.exit(main(['completion', 'zsh']))"
    )
    done = run("-c", program)
    assert (done.code, done.out) == (1, "")
    assert done.err == "cuptimem: completion needs shtab: pip install shtab\n"


def test_manual_has_every_verb_and_option() -> None:
    sections = manual.page().split("\n.SS ")[1:]
    assert [section.split("\n", 1)[0] for section in sections] == list(VERBS)
    for verb, section in zip(VERBS, sections, strict=True):
        parser = module_of(verb).parser()
        for action in parser._actions:  # argparse has no public list of them
            assert action.help is argparse.SUPPRESS or any(
                line.startswith(".B ") and (action.option_strings or [action.metavar or action.dest])[-1] in line
                for line in section.replace(r"\-", "-").splitlines()
            ), action


def test_manual_is_clean_roff(tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("there is no groff")
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-cbou"], input=manual.page(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "cuptimem run [options] script.py [args ...]\n" in done.stdout
