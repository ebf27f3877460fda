"""Which Pythons obey environment variables: all, but those that ignore their environment (-I, -E) and those with more
rights than their caller. docs/running.md has the variables."""

import os
import re
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem.record import autostart
from cuptimem.simulation import child
from tests.build import build
from tests.conftest import ROOT, Result, clean_environment

Run = Callable[..., Result]

RUN = ("-m", "cuptimem", "run")
PAGE = (ROOT / "docs/running.md").read_text()
OWN = sorted(set(re.findall(r"^\| `(CUPTIMEM\w*)` \|", PAGE, re.M)) - {"CUPTIMEM_NO_PTH", "CUPTIMEM_WERROR"})
OTHERS = ["NO_COLOR", "COLUMNS", "BROWSER", "TMPDIR", "RANK", "WORLD_SIZE"]
FOREIGN = ["HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "CUDA_HOME", "CUDA_PATH", "DISPLAY"]
IGNORING = ["-I", "-E"]

# The variables that cuptimem's own lines read are in `read`; passing all of them on to a child reads none.
SPIED = """
import json, os, sys, _cuptimem_start

read = set()

class Spy(type(os.environ)):
    def __getitem__(self, name):
        self.note(name)
        return super().__getitem__(name)

    def __contains__(self, name):
        self.note(name)
        return super().__contains__(name)

    def note(self, name):
        code = sys._getframe(2).f_code
        if code.co_filename.startswith("<frozen"):  # Mapping.get and the like
            code = sys._getframe(3).f_code
        ours = "/cuptimem/" in code.co_filename or code.co_filename.endswith(("<pth>", "_cuptimem_start.py"))
        if ours and code.co_name not in ("inherited", "given_environment", "<dictcomp>"):
            read.add(name)

os.environ.__class__ = Spy
exec(compile(open({pth!r}).read(), "<pth>", "exec"))
_cuptimem_start.start()
import cuptimem
from cuptimem import cli

with cuptimem.profile("a.cmem") as profile:
    kept = [b"x" * 1000 for _ in range(10)]
with cuptimem.profile() as temporary:
    pass
print(profile.report, file=sys.stderr)
for words in (["summary", "a.cmem"], ["leaks", "--json", "a.cmem"], ["timeline", "--open", "a.cmem"]):
    cli.main(words)
print(json.dumps(sorted(read)))
"""


def hostile(tmp_path: Path, name: str) -> str:
    """A value that would show if it was obeyed, by a file or a word."""
    folder = tmp_path / "elsewhere"
    folder.mkdir(exist_ok=True)
    values = {
        "CUPTIMEM_OUTPUT": str(folder / "run.cmem"),
        "CUPTIMEM_MAX_SIZE": "nonsense",
        "CUPTIMEM_CODE": "not a name!",
        "CUPTIMEM_SIM_CHILD": str(folder),
        "BROWSER": f"touch {folder}/evil %s",
        "COLUMNS": "20",
        "RANK": "3",
        "WORLD_SIZE": "4",
    }
    is_place = name.endswith(("_DIR", "_HOME", "_PATH", "TMPDIR", "_REPORT", "_LOG")) or name == "HOME"
    return values.get(name, str(folder) if is_place else "1")


@pytest.mark.parametrize("flag", [*IGNORING, "-P", pytest.param("-B", marks=pytest.mark.extended)])
@pytest.mark.parametrize("name", ["CUPTIMEM_RUN's pid", *OWN, *OTHERS])
def test_no_variable_starts_a_recording(python: str, tmp_path: Path, flag: str, name: str) -> None:
    """With CUPTIMEM=1, which starts one where it is obeyed."""
    work = tmp_path / "work"
    work.mkdir()
    if name == "CUPTIMEM_RUN's pid":  # the shell's number, which becomes the program's
        variables, start = {"CUPTIMEM": "1"}, "export CUPTIMEM_RUN=$$; exec"
    else:
        variables, start = {"CUPTIMEM": "1", name: hostile(tmp_path, name)}, "exec"
    if name == "CUPTIMEM_SIM_CHILD":
        os.mkfifo(tmp_path / "elsewhere" / child.SETTINGS)  # a reader would wait for its writer
    started = subprocess.run(
        ["sh", "-c", f'{start} "$0" {flag} -c "print(1)"', python],
        cwd=work,
        env={**clean_environment(), **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (started.returncode, started.stdout) == (0, "1\n")
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    if flag in IGNORING:
        assert (started.stderr, made) == ("", [])
    elif name not in ("CUPTIMEM", "CUPTIMEM_QUIET"):
        assert started.stderr != "", "the variable is obeyed where Python obeys variables"


@pytest.fixture(scope="session")
def spy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A library that sees which variables the extension asks for, and the file that it writes them to."""
    log = tmp_path_factory.mktemp("spy") / "names"
    source = ROOT / "tests/tools/cli/getenv_spy.c"
    return build("getenv_spy.so", [source], f'-DSPY_LOG="{log}"', "-fPIC", "-shared"), log


@pytest.mark.parametrize("flag", [*IGNORING, "-P"])
def test_which_variables_are_read(run: Run, tmp_path: Path, spy: tuple[Path, Path], flag: str) -> None:
    library, log = spy
    log.unlink(missing_ok=True)
    names = [*OWN, *OTHERS, *FOREIGN]
    variables = {name: hostile(tmp_path, name) for name in names if name not in ("CUPTIMEM", "CUPTIMEM_SIM_CHILD")}
    variables |= {"CUPTIMEM_CODE": "numpy", "LD_PRELOAD": str(library), "CUPTIMEM_RING_DIR": ""}
    done = run(flag, "-c", SPIED.replace("{pth!r}", repr(str(ROOT / "cuptimem.pth"))), env=variables)
    assert done.code == 0, done.err
    read = set(eval(done.out.splitlines()[-1]))
    asked = set(log.read_text().split()) if log.exists() else set()
    if flag in IGNORING:
        # CUDA's and PyTorch's own libraries obey theirs whatever Python's options are.
        assert (read, asked - {"PYTORCH_NO_CUDA_MEMORY_CACHING"}) == (set(), set())
        assert not (tmp_path / "elsewhere" / "evil").exists()
    else:
        assert read >= {"CUPTIMEM", "CUPTIMEM_SIM_CHILD", "CUPTIMEM_CODE", "COLUMNS", "TMPDIR", "RANK", "DISPLAY"}
        assert asked >= {"CUPTIMEM_RING_DIR", "XDG_STATE_HOME", "CUDA_HOME"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process with more rights than its caller")
@pytest.mark.parametrize("way", ["user", "group", None])
def test_a_process_with_more_rights_than_its_caller(run: Run, tmp_path: Path, python: str, way: str | None) -> None:
    """As the kernel marks what a set-user-ID file, or one with capabilities, starts (AT_SECURE)."""

    def leave() -> None:
        if way == "user":
            os.setresuid(65534, 0, 0)
        elif way == "group":
            os.setresgid(65534, 0, 0)

    program = "import sys; from cuptimem import environ; print(environ.is_ignored(), environ.get('CUPTIMEM_CODE'))"
    variables = {"CUPTIMEM": "1", "CUPTIMEM_RUN": "1", "CUPTIMEM_CODE": "numpy"}
    done = subprocess.run(
        [python, "-c", program],
        preexec_fn=leave,
        cwd=tmp_path,
        env={**clean_environment(), **variables},
        capture_output=True,
        text=True,
    )
    found = [path.name for path in tmp_path.iterdir()]
    if way is None:
        assert (done.stdout, len(found)) == ("False numpy\n", 1)
    else:
        assert (done.returncode, done.stdout, done.stderr, found) == (0, "True \n", "", [])


@pytest.mark.parametrize("flag", IGNORING)
def test_the_command_line_takes_the_place_of_variables(run: Run, tmp_path: Path, flag: str) -> None:
    """`cuptimem run` hands over so; the program sees nothing of it."""
    see = "import os, sys; print(sys.orig_argv[1:], sys._xoptions, [n for n in os.environ if n.startswith('CUPTIMEM')])"
    env = {"CUPTIMEM_RING_DIR": ""}
    bare = run(flag, "-X", "dev", "-c", see, env=env)
    done = run(flag, "-X", "dev", *RUN, "-q", "-o", "a=b c.cmem", "-c", see, env=env)
    assert (done.code, done.out) == (0, bare.out)
    assert cuptimem.open(tmp_path / "a=b c.cmem").state == "complete"
    asked = run(flag, "-XCUPTIMEM=x.cmem", "-XCUPTIMEM_QUIET=1", "-c", see, env=env)
    assert (asked.out, asked.err) == (bare.out.replace(", '-X', 'dev'", "").replace("'dev': True", ""), "")
    assert (tmp_path / "x.cmem").exists()


@pytest.mark.parametrize("flag", IGNORING)
def test_children_of_a_program_that_ignores_its_environment(run: Run, tmp_path: Path, flag: str) -> None:
    """With --follow children that obey variables are recorded, as are those that are forked."""
    start = "subprocess.run([sys.executable, *{}, '-c', ''], check=True)"
    program = (
        f"import os, subprocess, sys; {start.format([])}; {start.format([flag])}; os.fork() or os._exit(0); os.wait()"
    )
    done = run(flag, *RUN, "-q", "--follow", "-o", "a.cmem", "-c", program)
    assert (done.code, done.out) == (0, "")
    assert len(list(tmp_path.glob("a*.cmem"))) == 3


def test_commands_at_the_end_obey_no_more_than_the_program(run: Run, tmp_path: Path) -> None:
    """They run in processes of their own, which PYTHONPATH or BROWSER would reach."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path/sitecustomize.py").write_text(f"open({str(tmp_path / 'evil')!r}, 'w')\n")
    variables = {"PYTHONPATH": str(tmp_path / "path"), "BROWSER": f"touch {tmp_path}/evil %s", "COLUMNS": "20"}
    done = run("-I", *RUN, "--open", "-o", "a.cmem", "-c", "pass", env=variables)
    assert done.code == 0 and "no browser was found here" in done.err
    assert (tmp_path / "a-timeline.html").exists() and not (tmp_path / "evil").exists()
    assert run(*RUN, "--open", "-o", "b.cmem", "-c", "pass", env=variables).code == 0
    assert (tmp_path / "evil").exists(), "they are obeyed where the program obeys them"


@pytest.mark.parametrize("number", ["\u00b2", "\u0663", "", "x", "9" * 30, "-1", "1.1"])
def test_a_wrong_image_is_none(run: Run, tmp_path: Path, number: str) -> None:
    program = f"import os; os.environ['CUPTIMEM_IMAGE'] = f'{{os.getpid()}}.{number}'; os.execv(sys.executable, words)"
    words = "import sys; words = [sys.executable, '-c', 'print(1)']; "
    done = run("-c", words + program, env={"CUPTIMEM": "a.cmem", "CUPTIMEM_OVERWRITE": "1", "CUPTIMEM_FOLLOW": "1"})
    assert (done.code, done.out) == (0, "1\n")
    assert "Traceback" not in done.err and (tmp_path / "a.cmem").exists()


# --- the folder of a simulated run --------------------------------------------------------------------------


def test_links_in_the_folder_of_a_simulated_run_are_not_followed(run: Run, tmp_path: Path) -> None:
    folder, target = tmp_path / "folder", tmp_path / "target"
    folder.mkdir()
    settings = "high_end=0\nother_branches=0\nother_integers=64\ntimeout=9\nparent={}\n"
    (folder / child.SETTINGS).write_text(settings.format(os.getpid()))
    for name in (child.CRASH, child.WHERE):
        (folder / name).symlink_to(target)
    program = (
        f"import os, sys; os.symlink({str(target)!r}, f'{folder}/child-{{os.getpid()}}.note.new'); "
        f"os.environ[{child.VARIABLE!r}] = {str(folder)!r}; "
        "os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])"
    )
    done = run("-c", program)
    assert (done.code, done.out, done.err) == (0, "1\n", "")
    assert not target.exists()
    files = [folder / name for name in (child.CRASH, child.WHERE)] + list(folder.glob("child-*.note"))
    assert len(files) == 3 and all(stat.S_ISREG(file.lstat().st_mode) for file in files)
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "of another user"])
def test_settings_of_a_simulated_run_are_a_file_of_this_user(run: Run, tmp_path: Path, kind: str) -> None:
    settings = tmp_path / child.SETTINGS
    if kind == "link":
        settings.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(settings)
    elif kind == "folder":
        settings.mkdir()
    elif os.geteuid() == 0:
        settings.write_text("parent=1\n")
        os.chown(settings, 65534, 65534)
    else:
        pytest.skip("only root can give a file to another user")
    done = run("-c", "print(1)", env={"CUPTIMEM_SIM_CHILD": str(tmp_path)})
    assert (done.code, done.out) == (0, "1\n")
    assert done.err.startswith("cuptimem: ") and done.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [child.SETTINGS]


def test_every_variable_that_is_read_once_is_known_to_the_table() -> None:
    assert set(autostart.VARIABLES) <= set(OWN)
