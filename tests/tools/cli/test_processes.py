"""A program of several processes under `cuptimem run`: which are recorded, under which names, and what is said."""

import os
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem.interpreter import split, without
from tests.conftest import Result, clean_environment

Run = Callable[..., Result]
RUN = ("-m", "cuptimem", "run")


def write(folder: Path, **programs: str) -> None:
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)


def said(result: Result) -> list[str]:
    return [line for line in result.err.splitlines() if line.startswith("cuptimem: ")]


# -- exec ----------------------------------------------------------------------------------------------------------

FIRST = "import os, sys\nprint('first', flush=True)\nos.execv(sys.executable, [sys.executable, 'second.py'])\n"
SECOND = "print('second')\n"


@pytest.mark.parametrize("force", [(), ("-f",)], ids=["new", "replacing"])
def test_each_program_of_a_process_has_its_own_file(run: Run, tmp_path: Path, force: tuple[str, ...]) -> None:
    write(tmp_path, first=FIRST, second=SECOND)
    for path in ("a.cmem", "a-2.cmem"):
        if force:
            (tmp_path / path).write_text("older")
    done = run(*RUN, "--follow", *force, "-o", "a.cmem", "first.py")
    assert (done.code, done.out) == (0, "first\nsecond\n")
    assert [line.split("(")[0] for line in said(done)] == ["cuptimem: wrote a-2.cmem "]
    first, second = cuptimem.open(tmp_path / "a.cmem"), cuptimem.open(tmp_path / "a-2.cmem")
    assert (first.state, first.reason) == (second.state, second.reason) == ("complete", "")
    assert os.path.basename(first.environment["exec"]).startswith("python") and "exec" not in second.environment
    assert (first.environment["script"], second.environment["script"]) == ("first.py", "second.py")
    assert first.environment["pid"] == second.environment["pid"]


def test_a_child_that_is_about_to_exec_is_not_recorded(run: Run, tmp_path: Path) -> None:
    """subprocess with preexec_fn runs the handlers of a fork in it."""
    write(tmp_path, parent="import subprocess\nprint(subprocess.run(['true'], preexec_fn=lambda: None).returncode)\n")
    done = run(*RUN, "--follow", "-o", "a.cmem", "parent.py")
    assert (done.code, done.out) == (0, "0\n")
    assert [path.name for path in tmp_path.glob("*.cmem")] == ["a.cmem"]


def test_three_programs_in_a_followed_child(run: Run, tmp_path: Path) -> None:
    child = (
        "import os, sys\nif os.fork() == 0:\n    os.execv(sys.executable, [sys.executable, 'first.py'])\nos.wait()\n"
    )
    write(tmp_path, child=child, first=FIRST, second=SECOND)
    done = run(*RUN, "--follow", "-o", "a.cmem", "child.py")
    assert done.code == 0, done.err
    names = sorted(path.name for path in tmp_path.glob("*.cmem"))
    pid = names[1].split(".")[1].split("-")[0]
    assert names == sorted(["a.cmem", f"a.{pid}.cmem", f"a.{pid}-2.cmem", f"a.{pid}-3.cmem"])
    scripts = [cuptimem.open(tmp_path / f"a.{pid}{n}.cmem").environment["script"] for n in ("", "-2", "-3")]
    assert scripts == ["child.py", "first.py", "second.py"]


def test_default_names_after_exec(run: Run, tmp_path: Path) -> None:
    write(
        tmp_path,
        first=FIRST.replace("second.py", "first.py', 'again").replace("os.execv", "len(sys.argv) > 1 or os.execv"),
    )
    done = run(*RUN, "--follow", "first.py")
    assert (done.code, done.out) == (0, "first\nfirst\n")
    assert sorted(path.name.split(".")[0] for path in tmp_path.glob("*.cmem")) == ["cuptimem-first"] * 2


def test_an_exec_that_fails_ends_nothing(run: Run, tmp_path: Path) -> None:
    """As os.execvp does for each folder of PATH."""
    program = (
        "import os, cuptimem\n"
        "for _ in range(3):\n"
        "    try: os.execve('/nowhere/at/all', ['x'], {})\n"
        "    except OSError: pass\n"
        "    cuptimem.profile(f'w{_}.cmem').__enter__()\n"
    )
    write(tmp_path, program=program)
    done = run(*RUN, "-o", "a.cmem", "program.py")
    assert (done.code, len(said(done))) == (0, 1), done.err
    report = cuptimem.open(tmp_path / "a.cmem")
    assert (report.state, report.environment["exec"]) == ("complete", "")


def test_a_killed_program_is_told_from_one_that_became_another(run: Run, call: Run, tmp_path: Path) -> None:
    killed = (
        "import os, signal\ntry: os.execv('/nowhere', ['x'])\nexcept OSError: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    write(tmp_path, killed=killed)
    assert run(*RUN, "-o", "a.cmem", "killed.py").code == -9
    assert cuptimem.open(tmp_path / "a.cmem").state == "recovered"
    shown = call("summary", "a.cmem").out
    assert "the program was killed" in shown and "became another" not in shown


# -- children ------------------------------------------------------------------------------------------------------

CHILDREN = """
import multiprocessing, os, subprocess, sys, warnings
warnings.simplefilter("error")
def work(): pass
if __name__ == "__main__":
    for _ in range(2):
        if os.fork() == 0: os._exit(0)
        os.wait()
    for kind in ("fork", "spawn"):
        p = multiprocessing.get_context(kind).Process(target=work); p.start(); p.join()
    subprocess.run([sys.executable, "-c", ""], check=True)
    subprocess.run(["true"], check=True, preexec_fn=int)
    try: subprocess.run(["/nowhere/python3"])
    except FileNotFoundError: pass
"""


def test_children_that_are_not_recorded_are_counted(run: Run, tmp_path: Path) -> None:
    """Two forks, a fork and a spawn of multiprocessing, one Python; not `true`, not multiprocessing's own helper."""
    write(tmp_path, children=CHILDREN)
    done = run(*RUN, "-o", "a.cmem", "children.py")
    assert done.code == 0, done.err
    assert said(done)[1:] == ["cuptimem: 5 child processes were not recorded; --follow records them, too"]
    alone = run(*RUN, "-o", "b.cmem", "-c", "import os\nif os.fork() == 0: os._exit(0)\nos.wait()")
    assert said(alone)[1:] == ["cuptimem: 1 child process was not recorded; --follow records them, too"]
    assert said(run(*RUN, "-q", "-o", "c.cmem", "children.py")) == []
    assert "not recorded" not in run(*RUN, "--follow", "-o", "d.cmem", "children.py").err
    assert len(said(run(*RUN, "-o", "e.cmem", "-c", "pass"))) == 1


def test_lines_come_whole(python: str, tmp_path: Path) -> None:
    """One write a line: standard error of several processes may be one pipe. Here each write is a message."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        command = [python, *RUN, "-o", "a.cmem", "-c", "import os\nif os.fork() == 0: os._exit(0)\nos.wait()"]
        subprocess.run(command, stderr=there, cwd=tmp_path, env=clean_environment(), check=True)
        there.shutdown(socket.SHUT_WR)
        messages = [message.decode() for message in iter(lambda: here.recv(10_000), b"")]
    assert [(m[:10], m.count("\n"), m[-1:]) for m in messages] == [("cuptimem: ", 1, "\n")] * 2


@pytest.mark.parametrize("end", ["os.close(2)", "os.close(0); os.close(1); os.close(2)", "sys.stderr = None"])
def test_a_line_that_cannot_be_written_changes_no_exit_code(run: Run, end: str) -> None:
    assert run(*RUN, "-o", "a.cmem", "-c", f"import os, sys; {end}").code == 0


def test_a_reader_that_went_away_changes_no_exit_code(python: str, tmp_path: Path) -> None:
    read, there = os.pipe()
    os.close(read)
    command = [python, *RUN, "-o", "a.cmem", "-c", "pass"]
    done = subprocess.run(command, stderr=there, cwd=tmp_path, env=clean_environment(), check=False)
    os.close(there)
    assert done.returncode == 0 and cuptimem.open(tmp_path / "a.cmem").state == "complete"


ROLES = """
import multiprocessing, os
def work(): pass
if __name__ == "__main__":
    if os.fork() == 0: os._exit(0)
    os.wait()
    for kind in ("fork", "spawn"):
        p = multiprocessing.get_context(kind).Process(target=work, name=f"by {kind}"); p.start(); p.join()
"""


def roles(folder: Path) -> list[str]:
    return sorted(cuptimem.open(path).environment.get("role", "") for path in folder.glob("*.cmem"))


def test_each_file_says_what_its_process_is(run: Run, call: Run, tmp_path: Path) -> None:
    write(tmp_path, roles=ROLES)
    done = run(*RUN, "--follow", "-o", "a.cmem", "roles.py")
    assert done.code == 0, done.err
    program = cuptimem.open(tmp_path / "a.cmem").environment["pid"]
    found = [role for role in roles(tmp_path) if "resource_tracker" not in role]
    assert [role for role in found if role] == [f"forked by process {program}", "process by fork", "process by spawn"]
    child = next(path for path in tmp_path.glob("*.cmem") if "spawn" in cuptimem.open(path).environment.get("role", ""))
    assert " · process by spawn · " in call("summary", child.name).out


WORKERS = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.ones(10) * i
if __name__ == "__main__":
    for _ in torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context="KIND"): pass
"""


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["fork", pytest.param("spawn", marks=pytest.mark.extended)])
def test_workers_of_a_data_loader(forked: Run, tmp_path: Path, kind: str) -> None:
    write(tmp_path, workers=WORKERS.replace("KIND", kind))
    done = forked(*RUN, "--follow", "-o", "a.cmem", "workers.py")
    assert done.code == 0, done.err
    assert [role for role in roles(tmp_path) if role] == ["worker 0 of a DataLoader", "worker 1 of a DataLoader"]


# -- the interpreter's own options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "options", "program"),
    [
        ("s.py -X a", [], ["s.py", "-X", "a"]),
        ("-Xdev -X a=1 -W error -Wignore s.py", [["-Xdev"], ["-X", "a=1"], ["-W", "error"], ["-Wignore"]], ["s.py"]),
        ("-iuBm pkg -x", [["-iuB"]], ["-m", "pkg", "-x"]),
        ("-OO -cpass a", [["-OO"]], ["-c", "pass", "a"]),
        ("-BXm -m pkg", [["-BXm"]], ["-m", "pkg"]),
        ("-uW m -c c", [["-uW", "m"]], ["-c", "c"]),
        ("--check-hash-based-pycs never -b -", [["--check-hash-based-pycs", "never"], ["-b"]], ["-"]),
        ("-q -- s.py", [["-q"]], ["s.py"]),
        ("-i", [["-i"]], []),
    ],
)
def test_command_lines_are_read_as_python_reads_them(line: str, options: list[list[str]], program: list[str]) -> None:
    assert split(line.split()) == (options, program)


def test_a_flag_alone_is_taken_out() -> None:
    assert [without([word], "IEsP") for word in ("-I", "-Is", "-uIB", "-WIs", "--xIs")] == [
        [],
        [],
        ["-uB"],
        ["-WIs"],
        ["--xIs"],
    ]


@pytest.mark.parametrize("flag", ["-I", "-E"])
def test_a_python_that_ignores_its_environment_is_not_recorded(run: Run, tmp_path: Path, flag: str) -> None:
    inherited = run(flag, "-c", "print('ran')", env={"CUPTIMEM": "1", "CUPTIMEM_OUTPUT": "a.cmem"})
    assert (inherited.code, inherited.out, inherited.err, list(tmp_path.glob("*"))) == (0, "ran\n", "", [])
    asked = run(flag, *RUN, "-o", "a.cmem", "-c", "import sys; print(sys.flags.isolated, sys.flags.ignore_environment)")
    assert (asked.code, asked.out) == (0, f"{int(flag == '-I')} 1\n")
    assert cuptimem.open(tmp_path / "a.cmem").state == "complete"
    child = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', ''], check=True)"
    assert run(*RUN, "--follow", "-o", "b.cmem", "-c", child).code == 0
    assert sorted(path.name for path in tmp_path.glob("b*")) == ["b.cmem"]


def test_the_launcher_imports_nothing_that_the_program_could_shadow(python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            python,
            "-c",
            "import sys; before = set(sys.modules); import cuptimem.cli.run; print(set(sys.modules) - before)",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=clean_environment(),
        check=True,
    )
    assert {name.split(".")[0] for name in eval(done.stdout)} == {"cuptimem"}


@pytest.mark.parametrize("verb", ["run", "simulate", "doctor"])
def test_a_module_of_the_user_named_argparse(run: Run, call: Run, tmp_path: Path, verb: str) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit('the folder of the program was searched')\n")
    (tmp_path / "s.py").write_text("import sys; print(sys.path[0])\n")
    usage = call(verb, "--frob")
    assert (usage.code, usage.out) == (2, "") and "unknown option --frob" in usage.err
    if verb == "run":
        assert run(*RUN, "s.py").out == f"{tmp_path}\n"


def test_the_c_locale_is_the_programs_to_mend(python: str, tmp_path: Path) -> None:
    """PEP 538: Python puts LC_CTYPE into its own environment there; the launcher's must not become the program's."""
    show = "import os, sys; print(sys.flags.utf8_mode, os.environ.get('LC_CTYPE'), len(os.environ))"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    seen = [
        subprocess.run(
            [python, *before, "-c", show], capture_output=True, text=True, cwd=tmp_path, env=environment
        ).stdout
        for before in ([], [*RUN, "-q", "-o", "a.cmem"])
    ]
    assert seen[0] == seen[1] != ""


def test_a_program_that_takes_python_apart_is_recorded_to_its_end(run: Run, tmp_path: Path) -> None:
    names = "(b, 'open'), (b, 'len'), (os, 'getpid'), (t, 'monotonic')"
    program = f"import builtins as b, os, time as t\nfor m, n in {names}:\n"
    program += "    delattr(m, n)\n"
    write(tmp_path, program=program)
    done = run(*RUN, "-o", "a.cmem", "program.py")
    assert done.code == 0 and all(line.startswith("cuptimem: ") for line in done.err.splitlines()), done.err
    assert cuptimem.open(tmp_path / "a.cmem").state == "complete"


def test_a_fork_while_python_ends(run: Run, tmp_path: Path) -> None:
    program = (
        "import os\nclass A:\n    def __del__(self, fork=os.fork, leave=os._exit, wait=os.wait):\n"
        "        if fork() == 0: leave(0)\n        wait()\na = A()\na.myself = a\n"
    )
    write(tmp_path, program=program)
    bare, ours = run("program.py"), run(*RUN, "-q", "-o", "a.cmem", "program.py")
    address = re.compile("0x[0-9a-f]+")  # from 3.12 on Python itself refuses, and says of which function
    assert (ours.code, address.sub("", ours.err)) == (bare.code, address.sub("", bare.err))


# -- the trace itself ----------------------------------------------------------------------------------------------

HARMED = """
import os, sys, time
errors = open("errors", "w")
os.dup2(errors.fileno(), 2)
while not os.path.getsize("a.cmem"): time.sleep(0.01)
{harm}
end = time.monotonic() + 120
while "recording ended" not in open("errors").read() and time.monotonic() < end: time.sleep(0.01)
sys.stderr.write("the program goes on\\n")
"""


@pytest.mark.parametrize(
    ("harm", "why", "last"),
    [
        ("os.unlink('a.cmem')", "removed", "is gone: No such file or directory"),
        ("os.truncate('a.cmem', 0)", "truncated", "does not hold this run any more"),
        ("open('b', 'w').close(); os.replace('b', 'a.cmem')", "replaced", "does not hold this run any more"),
    ],
    ids=["removed", "truncated", "replaced"],
)
def test_harm_to_the_trace_is_told_while_the_program_runs(
    run: Run, tmp_path: Path, harm: str, why: str, last: str
) -> None:
    write(tmp_path, harmed=HARMED.format(harm=harm))
    done = run(*RUN, "-o", "a.cmem", "harmed.py")
    assert done.code == 0
    first, middle, end = (tmp_path / "errors").read_text().splitlines()
    assert first.startswith(f"cuptimem: recording ended: its trace was {why}")
    assert (middle, end) == ("the program goes on", f"cuptimem: a.cmem {last}")
