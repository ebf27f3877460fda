"""`cuptimem simulate` before anything runs: its arguments, and environments that cannot be simulated."""

import os
import re
import subprocess
import venv
from pathlib import Path

import pytest

from cuptimem.cli import simulate
from cuptimem.errors import Error
from cuptimem.simulation import environment
from tests.conftest import ROOT

PROGRAM = "open('it-ran', 'w').close()\n"


def fake_torch(place: Path, version: str) -> str:
    """A folder for PYTHONPATH with a torch of which only version.py can be read."""
    (place / "torch").mkdir(parents=True)
    (place / "torch/__init__.py").write_text("raise SystemExit('torch was imported')\n")
    (place / "torch/version.py").write_text(version)
    return str(place)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--longest", "2", "--environment"], "--longest is for a program that cuptimem starts"),
        ([], "nothing to run"),
        (["--memory"], "--memory needs a value"),
        (["--memory=", "s.py"], "--memory needs a value"),
        (["--memory", "much", "s.py"], "a size is written like 24GiB"),
        (["--memory", "24", "s.py"], "write 24GiB"),
        (["--device", "a100", "s.py"], "did you mean a100-40gb or a100-80gb?"),
        (["--memory", "1MiB", "s.py"], "at least 64 MiB"),
        (["--devices", "x", "s.py"], "--devices takes a number"),
        (["--devices", "99", "s.py"], "between 1 and 16"),
        (["--memory", "1GiB", "--context", "2GiB", "s.py"], "the context takes all"),
        (["--assume", "nonzero", "s.py"], "OPERATOR=SHARE"),
        (["--assume", "nonzero=lots", "s.py"], "OPERATOR=SHARE"),
        (["--assume", "nonzero=2", "s.py"], "nonzero=2 makes no sense"),
        (["--assume", "sort=0.5", "s.py"], "no size is assumed for 'sort'"),
        (["--timeout", "soon", "s.py"], "--timeout takes seconds"),
        (["--timeout", "inf", "s.py"], "--timeout takes seconds"),
        (["--frob", "s.py"], "unknown option --frob"),
        (["-m"], "-m needs a module"),
        (["none.py"], "there is no script 'none.py'"),
        (["--"], "nothing to run"),
    ],
)
def test_wrong_usage(call, tmp_path, arguments, said):
    (tmp_path / "s.py").write_text(PROGRAM)
    done = call("simulate", *arguments)
    assert done.code == 2 and done.out == "", done.err
    assert said in done.err and "see: cuptimem simulate --help" in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "it-ran").exists()


def test_help_names_everything(run):
    done = run("-m", "cuptimem", "simulate", "--help")
    assert done.code == 0 and done.err == ""
    for word in (
        "h100",
        "t4",
        "rtx4090",
        "repeat_interleave",
        "--allow-oom",
        "--trust-reads",
        "--no-retry",
        "your checkpoints are lost",
        "(600; 0: no limit)",
        "3 it does",
    ):
        assert word in done.out, word
    assert "simulate" in run("-m", "cuptimem", "--help").out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["t.py", "--memory", "24GiB", "--batch", "4", "-o", "x"], ["--memory", "-o"]),
        (["t.py", "--timeout=5", "--timeout", "5"], ["--timeout"]),
        (["-m", "--json", "--json"], ["--json"]),
        (["-c", "--json"], []),
        (["t.py", "memory"], []),
    ],
)
def test_options_behind_the_script(words, found):
    assert simulate._misplaced(words) == found


@pytest.mark.parametrize(
    ("version", "said", "command"),
    [
        (
            "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n",
            "torch 2.13.0+cpu is a CPU-only build",
            "torch==2.13.0",
        ),
        ("__version__ = '2.9.1+cpu'\ncuda = None\n", "CPU-only build", "torch==2.14.1"),
        ("__version__ = '2.15.0.dev20270101'\ncuda = None\n", "CPU-only build", "torch==2.14.1"),
        ("__version__ = '2.6.0'\ncuda: str | None = '11.8'\nhip = None\n", "built for CUDA 11.8", "torch==2.14.1"),
        ("__version__ = '2.14.1'\ncuda = None\nhip: str = '7.1'\n", "ROCm build", "torch==2.14.1"),
    ],
)
def test_a_torch_that_cannot_be_simulated(run, tmp_path, version, said, command):
    (tmp_path / "s.py").write_text(PROGRAM)
    path = fake_torch(tmp_path / "site", version)
    done = run("-m", "cuptimem", "simulate", "s.py", env={"PYTHONPATH": path})
    assert done.code == 1 and done.out == "" and done.err.count("\n") == 1, done.err
    assert said in done.err and "no GPU" in done.err or "only CUDA 12 and 13" in done.err
    assert re.search(
        rf"python -m pip install --force-reinstall {re.escape(command)} --index-url https://\S+/cu130$",
        done.err.strip(),
    ), done.err
    assert not (tmp_path / "it-ran").exists()


def test_a_torch_that_says_nothing(run, tmp_path):
    (tmp_path / "s.py").write_text(PROGRAM)
    path = fake_torch(tmp_path / "site", "git = 'abc'\n")
    done = run("-m", "cuptimem", "simulate", "s.py", env={"PYTHONPATH": path})
    assert done.code == 1 and "names no version" in done.err
    os.unlink(tmp_path / "site/torch/version.py")
    done = run("-m", "cuptimem", "simulate", "s.py", env={"PYTHONPATH": path})
    assert done.code == 1 and "cannot tell which torch this is" in done.err


def test_no_torch_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    with pytest.raises(Error, match="there is no torch in .* install it: "):
        environment.check()


def test_another_system_or_c_library(monkeypatch):
    monkeypatch.setattr(environment.os, "confstr", lambda name: None)
    with pytest.raises(Error, match="needs glibc"):
        environment.check()

    def unknown(name: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(environment.os, "confstr", unknown)
    with pytest.raises(Error, match="needs glibc"):
        environment.check()
    monkeypatch.setattr(environment.sys, "platform", "darwin")
    with pytest.raises(Error, match=r"this is darwin\)"):
        environment.check()


def test_without_the_pth(tmp_path, run, python):
    """An interpreter that would not start the recording; one with cuptimem on PYTHONPATH would: test_startup.py."""
    (tmp_path / "s.py").write_text(PROGRAM)
    path = fake_torch(tmp_path / "site", "__version__ = '2.14.1'\ncuda = '13.0'\n")
    home = tmp_path / "bare"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
    for flags, why in ((["-S"], "it was started with -S"), (["-I"], "")):
        done = subprocess.run(
            [home / "bin/python", *flags, "-m", "cuptimem", "simulate", "s.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{path}:{ROOT}"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1 and why in done.stderr, done.stderr
        assert not (tmp_path / "it-ran").exists()


def test_the_output_is_checked_before_anything_runs(run, tmp_path):
    (tmp_path / "s.py").write_text(PROGRAM)
    (tmp_path / "there").write_text("")
    done = run("-m", "cuptimem", "simulate", "-o", "there", "s.py")
    assert done.code == 1 and "there exists" in done.err and not (tmp_path / "it-ran").exists()
    done = run("-m", "cuptimem", "simulate", "-o", "no/where", "s.py")
    assert done.code == 1 and "no is not a directory" in done.err
