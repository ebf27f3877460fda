"""--cuptimem-simulate: in which process pytest runs, with what, and how that ends."""

import os
import signal
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from cuptimem.simulation import cards, launch
from tests.tools.pytest_plugin.conftest import Suite, ended_by

GIB = 1 << 30
H100 = str(cards.card("h100").memory)
PASSING = "def test_passes():\n    pass\n"
needs_xdist = pytest.mark.skipif(find_spec("xdist") is None, reason="pytest-xdist is not installed beside this Python")
needs_cov = pytest.mark.skipif(find_spec("pytest_cov") is None, reason="pytest-cov is not installed beside this Python")

CUDA = """\
import pytest, torch

@pytest.mark.parametrize("mebibytes", [1, 5])
def test_a_gpu(mebibytes):
    block = torch.empty(mebibytes << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.get_device_properties(0).total_memory == 2 << 30
    assert torch.cuda.memory_allocated() == mebibytes << 20

def test_too_much():
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(3 << 30, dtype=torch.uint8, device="cuda")

def test_backward():
    layer = torch.nn.Linear(64, 64).cuda()
    layer(torch.randn(8, 64, device="cuda")).sum().backward()
"""

HOST = """\
import os, sys
import pytest
print("host", os.getpid(), flush=True)
code = pytest.main(["--cuptimem-simulate=2GiB", *sys.argv[1:]])
print("returned", os.getpid(), int(code), type(code).__name__)
sys.exit(code)
"""


@pytest.mark.cuda_torch
def test_tests_use_the_simulated_gpu(cuda_suite: Suite) -> None:
    cuda_suite.pytester.makepyfile(CUDA)
    alone = cuda_suite.run(cuda_suite.python, "-m", "pytest", "--cuptimem-simulate=2GiB")
    assert alone.code == 0 and "4 passed" in alone.out, alone.out + alone.err
    assert "cuptimem: simulated h100, 2.0 GiB; no kernel runs" in alone.out
    bare = cuda_suite.run(cuda_suite.python, "-m", "pytest", "-k", "a_gpu")
    assert bare.code == 1 and "2 failed" in bare.out and not bare.note["simulated"]


@pytest.mark.cuda_torch
@pytest.mark.extended
@needs_xdist
def test_workers_and_isolated_interpreters_use_the_simulated_gpu(cuda_suite: Suite) -> None:
    cuda_suite.pytester.makepyfile(CUDA)
    shared = cuda_suite.run(cuda_suite.script, "--cuptimem-simulate=2GiB", "-n", "1", "-p", "no:cacheprovider")
    assert shared.code == 0 and "4 passed" in shared.out, shared.out + shared.err
    assert [note["simulated"] for note in shared.notes] == [True] * 2
    isolated = cuda_suite.run(cuda_suite.python, "-I", "-m", "pytest", "--cuptimem-simulate=2GiB")
    assert isolated.code == 0 and "4 passed" in isolated.out, isolated.out + isolated.err


COMMANDS = (
    pytest.param(["{python}", "-X", "dev", "-W", "error::UserWarning", "-m", "pytest"], id="module"),
    pytest.param(["{script}"], id="script"),
    pytest.param(["{python}", "-X", "dev", "{script}"], id="script of an interpreter"),
    pytest.param(["{python}", "-m", "coverage", "run", "-m", "pytest"], id="coverage", marks=needs_cov),
)


# Under coverage this is also asserted below, of a script in what is asked for.
LATER = [pytest.param(*one.values, marks=(*one.marks, pytest.mark.extended), id=one.id) for one in COMMANDS[1:]]


@pytest.mark.parametrize("words", [COMMANDS[0], *LATER])
def test_a_command_line_replaces_itself(suite: Suite, words: list[str]) -> None:
    suite.pytester.makepyfile("import sys\ndef test_input():\n    assert sys.stdin.read() == 'typed'\n")
    command = [word.format(python=suite.python, script=suite.script) for word in words]
    arguments = ["--cuptimem-simulate=2GiB", "--of-the-conftest", "-s", "-p", "no:cacheprovider", "-k", "input or é"]
    done = suite.run(*command, *arguments, stdin="typed")
    assert done.code == 0 and "1 passed" in done.out, done.out + done.err
    note = done.note  # the one import of the conftest
    assert (note["pid"], note["simulated"], note["memory"]) == (done.pid, True, str(2 * GIB))
    assert note["arguments"] == arguments and note["directory"] == str(suite.path)
    assert note["dev_mode"] == ("dev" in words) and note["left"] == []


@pytest.mark.parametrize("words", [COMMANDS[0], *LATER])
def test_a_failing_test_is_its_exit_code(suite: Suite, words: list[str]) -> None:
    suite.pytester.makepyfile("def test_it():\n    assert False\n")
    command = [word.format(python=suite.python, script=suite.script) for word in words]
    failing = suite.run(*command, "--cuptimem-simulate", "-s", "-x", "-p", "no:cacheprovider")
    assert failing.code == 1 and failing.note["memory"] == H100


@needs_cov
def test_coverage_of_what_runs_on_the_device(suite: Suite) -> None:
    suite.pytester.makepyfile(measured="def used():\n    return 1\n\ndef unused():\n    return 2\n")
    suite.pytester.makepyfile("import measured\ndef test_it():\n    assert measured.used() == 1\n")
    report = ["-m", "coverage", "report", "--include=measured.py"]
    run = suite.run(suite.python, "-m", "coverage", "run", "-m", "pytest", "--cuptimem-simulate")
    assert run.code == 0 and run.note["simulated"], run.out + run.err
    assert "75%" in suite.run(suite.python, *report).out
    plugin = suite.run(suite.script, "--cuptimem-simulate", "--cov=measured")
    assert plugin.code == 0 and plugin.note["simulated"] and "75%" in plugin.out, plugin.out + plugin.err
    (suite.path / "host.py").write_text(HOST)
    host = suite.run(suite.python, "-m", "coverage", "run", "host.py")
    assert host.code == 4 and host.notes == []
    assert "coverage measures this process" in host.err and "coverage run -m pytest --cuptimem-simulate" in host.err
    through = suite.run(suite.python, "host.py", "--cov=measured")
    assert through.code == 0 and through.note["simulated"] and "75%" in through.out, through.out + through.err


@needs_xdist
def test_workers_are_on_the_device(suite: Suite) -> None:
    suite.pytester.makepyfile(PASSING)
    (suite.path / "host.py").write_text(HOST)
    for words, count in (([suite.script, "--cuptimem-simulate"], 2), ([suite.python, "host.py"], 1)):
        done = suite.run(*words, "-n", str(count))
        assert done.code == 0 and "1 passed" in done.out, done.out + done.err
        assert [note["simulated"] for note in done.notes] == [True] * (count + 1)
        assert len({note["pid"] for note in done.notes}) == count + 1


@pytest.mark.parametrize(
    ("arguments", "device", "memory"),
    [
        (["--cuptimem-simulate", "test_it.py"], "h100", H100),
        pytest.param(
            ["--cuptimem-simulate", "test_it.py::test_passes", "--of-the-conftest"],
            "h100",
            H100,
            marks=pytest.mark.extended,
        ),
        pytest.param(["--cuptimem-simulate", "3GiB", "test_it.py"], "h100", str(3 * GIB), marks=pytest.mark.extended),
        (["--cuptimem-simulate", "l4"], "h100", H100),  # a folder here
        pytest.param(["--cuptimem-simulate=L4"], "l4", str(cards.card("l4").memory), marks=pytest.mark.extended),
        pytest.param(
            ["--cuptimem-simulate=RTX 4090", "--", "test_it.py"],
            "rtx4090",
            str(cards.card("rtx4090").memory),
            marks=pytest.mark.extended,
        ),
        pytest.param(["-o", "cuptimem_simulate=t4"], "t4", str(cards.card("t4").memory), marks=pytest.mark.extended),
        (["-o", "cuptimem_simulate=t4", "--cuptimem-simulate=1.5g"], "h100", str(3 * GIB // 2)),
        pytest.param(["-o", "cuptimem_simulate=on"], "h100", H100, marks=pytest.mark.extended),
        (["-o", "addopts=--cuptimem-simulate", "test_it.py"], "h100", H100),
        (["-o", "cuptimem_simulate=t4", "--cuptimem-simulate=no"], None, None),
        pytest.param(["-o", "cuptimem_simulate=false"], None, None, marks=pytest.mark.extended),
    ],
)
def test_what_is_asked_for(suite: Suite, arguments: list[str], device: str | None, memory: str | None) -> None:
    suite.pytester.makepyfile(test_it=PASSING)
    (suite.pytester.mkdir("l4") / "test_in_l4.py").write_text(PASSING)
    done = suite.run(suite.script, *arguments)
    assert done.code == 0, done.out + done.err
    assert (done.note["device"], done.note["memory"]) == (device, memory)
    assert done.note["simulated"] == (device is not None)
    chosen = 2 if not any(word.startswith(("test_it", "l4")) for word in arguments) else 1
    assert f"{chosen} passed" in done.out


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        pytest.param("24QiB", "a size is written like 24GiB or 512MiB, not '24QiB'", marks=pytest.mark.extended),
        pytest.param("1MiB", "a device has at least 64 MiB, not 1.0 MiB", marks=pytest.mark.extended),
        ("gtx99", "takes a size such as 24GiB or one of a100-40gb, "),
        pytest.param("-5GiB", "takes a size such as 24GiB or one of ", marks=pytest.mark.extended),
    ],
)
def test_a_wrong_size_is_a_usage_error(suite: Suite, memory: str, said: str) -> None:
    suite.pytester.makepyfile(PASSING)
    (suite.path / "host.py").write_text("import pytest, sys\nsys.exit(pytest.main(sys.argv[1:]))\n")
    for words in (
        [suite.script, f"--cuptimem-simulate={memory}"],
        [suite.script, "-o", f"cuptimem_simulate={memory}"],
        [suite.python, "host.py", f"--cuptimem-simulate={memory}"],
    ):
        done = suite.run(*words)
        assert done.code == 4 and done.notes == [] and done.out == "", done.out + done.err
        (line,) = (line for line in done.err.splitlines() if line.startswith("ERROR"))
        assert line.startswith("ERROR: --cuptimem-simulate") and said in line


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda = None\n", "torch 2.13.0+cpu is a CPU-only build"),
        ("__version__ = '2.12.0'\ncuda = '11.8'\n", "torch 2.12.0 is built for CUDA 11.8"),
        ("git = 'abc'\n", "names no version"),
    ],
)
def test_a_torch_that_cannot_be_simulated(
    pytester: pytest.Pytester, python: str, fake_torch: Callable[[str], None], version: str, said: str
) -> None:
    fake_torch(version)
    suite = Suite(pytester, python)
    done = suite.run(suite.script, "--cuptimem-simulate", PYTHONPATH=str(suite.path))
    assert done.code == 4 and done.notes == [] and done.out == ""
    (line,) = (line for line in done.err.splitlines() if line.startswith("ERROR"))
    assert line.startswith("ERROR: --cuptimem-simulate: ") and said in line


def test_a_program_that_calls_pytest_stays(suite: Suite) -> None:
    suite.pytester.makepyfile(PASSING)
    (suite.path / "host.py").write_text(HOST)
    done = suite.run(suite.python, "-X", "dev", "host.py", "--of-the-conftest", "-p", "no:cacheprovider")
    assert done.code == 0 and "1 passed" in done.out, done.out + done.err
    lines = done.out.splitlines()
    assert lines[0] == f"host {done.pid}" and lines[-1] == f"returned {done.pid} 0 ExitCode"
    note = done.note  # of the child: the program itself imported no conftest
    assert note["pid"] != done.pid and note["simulated"] and note["dev_mode"] and note["left"] == []
    assert note["arguments"] == ["--cuptimem-simulate=2GiB", "--of-the-conftest", "-p", "no:cacheprovider"]
    assert suite.run(suite.python, "host.py", "-k", "nothing").code == 5
    # Through pytest's own entry, but in a program that does more than that.
    (suite.path / "launcher.py").write_text("print('launched', flush=True)\n" + Path(suite.script).read_text())
    done = suite.run(suite.python, "launcher.py", "--cuptimem-simulate")
    assert done.code == 0 and done.out.count("launched") == 1, done.out + done.err
    assert done.note["pid"] != done.pid and done.note["simulated"]
    killed = suite.pytester.makepyfile(test_killed="import os\ndef test_it():\n    os.kill(os.getpid(), 9)\n")
    done = suite.run(suite.python, "host.py", str(killed))
    assert done.code == 137 and done.out.endswith(f"returned {done.pid} 137 int\n")


def test_what_pytest_main_is_given_reaches_the_child(suite: Suite) -> None:
    suite.pytester.makepyfile("import helper\ndef test_path():\n    assert helper.__file__\n")
    helpers = suite.pytester.mkdir("helpers")
    (helpers / "helper.py").write_text("def pytest_report_header():\n    return 'the helper is there'\n")
    (suite.path / "host.py").write_text(
        "import sys, pytest\n"
        f"sys.path.append({str(helpers)!r})\n"
        "import helper\n"
        "class Plugin: pass\n"
        "print(int(pytest.main(['--cuptimem-simulate'], plugins=[Plugin()])))\n"
        "print(int(pytest.main(['--cuptimem-simulate'], plugins=[helper])))\n"
        "print(int(pytest.main(['--cuptimem-simulate'], plugins=['helper'])))\n"
    )
    done = suite.run(suite.python, "host.py")
    assert done.code == 0, done.out + done.err
    assert [line for line in done.out.splitlines() if line.isdecimal()] == ["4", "0", "0"], done.out
    assert done.out.count("the helper is there") == 2 and len(done.notes) == 2
    assert "plugins=...) has an object of Plugin" in done.err and done.err.count("ERROR") == 1


def test_a_test_that_calls_pytest_is_not_replaced(suite: Suite) -> None:
    inner = suite.pytester.mkdir("inner")
    (inner / "test_inner.py").write_text(PASSING)
    suite.pytester.makepyfile(
        "import os, pytest\n"
        "def test_outer():\n"
        "    before = os.getpid()\n"
        "    assert pytest.main(['--cuptimem-simulate', 'inner']) == 0\n"
        "    assert os.getpid() == before\n"
    )
    done = suite.run(suite.script, "--ignore=inner")
    assert done.code == 0 and "1 passed" in done.out, done.out + done.err
    assert [note["simulated"] for note in done.notes] == [False, True]
    assert [note["pid"] == done.pid for note in done.notes] == [True, False]


WAITING = """\
import os, time
def test_waits():
    open("waiting", "w").write(str(os.getpid()))
    time.sleep(100)
"""


@pytest.mark.parametrize(
    ("through_host", "number", "group", "code"),
    [
        (False, signal.SIGINT, True, 2),
        pytest.param(False, signal.SIGTERM, False, -signal.SIGTERM, marks=pytest.mark.extended),  # as any process
        pytest.param(True, signal.SIGINT, True, 2, marks=pytest.mark.extended),
        (True, signal.SIGTERM, False, -signal.SIGTERM),
    ],
)
def test_signals_end_all_of_it(
    suite: Suite, through_host: bool, number: signal.Signals, group: bool, code: int
) -> None:
    suite.pytester.makepyfile(WAITING)
    (suite.path / "host.py").write_text(HOST)
    process = suite.start(
        *([suite.python, "host.py"] if through_host else [suite.script, "--cuptimem-simulate"]),
        "-p",
        "no:cacheprovider",
    )
    waiting = suite.path / "waiting"
    while process.poll() is None and not (waiting.exists() and waiting.read_text()):
        time.sleep(0.02)
    pid = int(waiting.read_text())
    assert (pid != process.pid) == through_host
    assert ended_by(process, number, group) == code
    with pytest.raises(ProcessLookupError):  # it was waited for
        os.kill(pid, 0)


@pytest.mark.parametrize("through_host", [pytest.param(False, marks=pytest.mark.extended), True])
def test_the_debugger_has_the_terminal(suite: Suite, through_host: bool) -> None:
    suite.pytester.makepyfile("def test_fails():\n    value = 6\n    assert value == 7\n")
    (suite.path / "host.py").write_text(HOST)
    words = [suite.python, "host.py"] if through_host else [suite.script, "--cuptimem-simulate"]
    done = suite.run(*words, "--pdb", stdin="p 'value', value * 7\nq\n")
    assert done.code == 2 and "('value', 42)" in done.out, done.out + done.err
    assert done.note["simulated"]


def test_options_that_run_nothing(suite: Suite) -> None:
    suite.pytester.makepyfile(test_it=PASSING)
    (suite.path / "host.py").write_text(HOST)
    for option, said in (("--version", f"pytest {pytest.__version__}"), ("--help", "--cuptimem-simulate=")):
        done = suite.run(suite.script, "--cuptimem-simulate", option)
        assert done.code == 0 and said in done.out + done.err and not any(note["simulated"] for note in done.notes)
    done = suite.run(suite.script, "--cuptimem-simulate", "--collect-only", "-q")
    assert done.code == 0 and "test_it.py::test_passes" in done.out and done.note["simulated"]
    done = suite.run(suite.script, "--cuptimem-simulate", "-p", "no:cuptimem")
    assert done.code == 4 and "unrecognized arguments: --cuptimem-simulate" in done.err
    assert not any(note["simulated"] for note in done.notes)


def test_a_recorded_pytest_is_not_replaced(suite: Suite) -> None:
    suite.pytester.makepyfile(PASSING)
    done = suite.run(suite.python, "-m", "cuptimem", "run", "-o", "a.cmem", "-m", "pytest", "--cuptimem-simulate")
    assert done.code == 4 and done.notes == [], done.out + done.err
    line = next(line for line in done.err.splitlines() if line.startswith("ERROR"))
    assert "recording this process" in line and "env $(cuptimem simulate --environment) cuptimem run -m pytest" in line
    # What the line says to type.
    device = launch.by_hand({"HOME": "/h"}, launch.Setup(cards.card("l4"), 3 * GIB))
    words = [suite.python, "-m", "cuptimem", "run", "-f", "-o", "a.cmem", "-m", "pytest", "--cuptimem-simulate=2GiB"]
    done = suite.run(*words, **device)
    assert done.code == 0 and "cuptimem: wrote a.cmem" in done.err, done.out + done.err
    # It was on a device: nothing has happened.
    assert (done.note["pid"], done.note["device"], done.note["memory"]) == (done.pid, "l4", str(3 * GIB))


def test_it_happens_once(suite: Suite) -> None:
    """As where the dynamic linker ignores LD_PRELOAD: the process finds that it has been replaced already."""
    suite.pytester.makepyfile(PASSING)
    shell = f'CUPTIMEM_PYTEST_SIMULATE=$$ exec "{suite.python}" -m pytest --cuptimem-simulate'
    done = suite.run("sh", "-c", shell)
    assert done.code == 4 and done.notes == [] and "did not load the simulated device" in done.err
    stale = suite.run(suite.script, "--cuptimem-simulate", CUPTIMEM_PYTEST_SIMULATE="1")  # of another process
    assert stale.code == 0 and stale.note["simulated"]


def test_a_plugin_that_a_conftest_names_comes_too_late(suite: Suite) -> None:
    suite.pytester.makepyfile(PASSING)
    suite.pytester.makeconftest("pytest_plugins = ['cuptimem.pytest_plugin']\n")
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = suite.run(suite.script, "--cuptimem-simulate", **variables)
    assert done.code == 4 and "add -p cuptimem" in done.err, done.out + done.err
    suite.pytester.makeconftest("")
    done = suite.run(suite.script, "-p", "cuptimem", "--cuptimem-simulate", **variables)
    assert done.code == 0 and "simulated h100" in done.out, done.out + done.err


def test_nothing_is_imported_without_the_option(suite: Suite) -> None:
    suite.pytester.makepyfile(
        "import sys\n"
        "def test_modules():\n"
        "    ours = {name for name in sys.modules if name.split('.')[0] == 'cuptimem'}\n"
        "    assert ours == {'cuptimem', 'cuptimem.pytest_plugin'} and 'torch' not in sys.modules\n"
    )
    done = suite.run(suite.script)
    assert done.code == 0 and not done.note["simulated"], done.out + done.err


def test_another_start_of_pytest_is_a_usage_error(suite: Suite) -> None:
    """Whoever parses a command line without pytest.main(), as a worker on another machine does."""
    program = "from _pytest.config import _prepareconfig\n_prepareconfig(['--cuptimem-simulate'])\n"
    done = suite.run(suite.python, "-c", program)
    assert done.code == 1 and "does not belong to a command line of pytest" in done.err and done.notes == []


def test_the_script_stays_where_it_was_started(suite: Suite) -> None:
    """A relative path of the script, closed input, and a home that a shell would have to quote."""
    (suite.pytester.mkdir("below") / "test_it.py").write_text(PASSING)
    Path(suite.path, "pytest").symlink_to(suite.script)
    shell = f'"{suite.python}" ./pytest --cuptimem-simulate --rootdir=below below <&-'
    done = suite.run("sh", "-c", shell, HOME=str(suite.path / "a home"))
    assert done.code == 0 and "1 passed" in done.out, done.out + done.err
