"""The comparison notices a difference in every channel, a case that is not what it says, and a run that hangs."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from evidence.fidelity import results, runner, table
from evidence.fidelity.__main__ import chosen
from evidence.fidelity.case import program
from evidence.fidelity.judge import Verdict, judge
from tests.conftest import clean_environment

# A program that knows whether it is recorded, as none of the table's does.
RECORDED = "import sys\nrecorded = 'cuptimem.record.recorder' in sys.modules\n"


def verdict(python: str, source: str, **more: object) -> Verdict:
    return judge(program("test", RECORDED + source, **more), python)


@pytest.mark.parametrize(
    ("source", "channel", "line"),
    [
        ("print('a')\nprint(recorded)", "out", "line 2: bare False, recorded True"),
        ("print(recorded, file=sys.stderr)", "err", "bare False, recorded True"),
        ("sys.exit(3 if recorded else 0)", "end", "bare exit 0, recorded exit 3"),
        ("import os\nif recorded: os.kill(os.getpid(), 15)", "end", "bare exit 0, recorded SIGTERM"),
        ("if recorded: open('left', 'w')", "files", "line 1: bare work/s.py, recorded work/left"),
        ("import os\nif recorded: os.mkdir(os.environ['TMPDIR'] + '/left')", "files", "recorded tmp/left/"),
        ("def f(): 1/0\ng = (lambda: f()) if recorded else f\ng()", "err", "recorded   File"),
        ("import time\nif recorded: time.sleep(60)", "end", "bare exit 0, recorded hung"),
        ("import glob, os\nfor f in glob.glob('../traces/*'): os.remove(f)", "traces", "1 expected, 0 there"),
    ],
)  # fmt: skip
def test_a_difference_is_noticed(python: str, source: str, channel: str, line: str) -> None:
    found = verdict(python, source, timeout=5 if "sleep" in source else 60, code=1 if "1/0" in source else 0)
    assert found.word == "different"
    assert any(text.startswith(f"{channel}: ") and line in text for text in found.lines), found.lines


def test_a_file_with_other_content_is_noticed(python: str) -> None:
    found = verdict(python, "open('f', 'w').write(str(recorded))", outputs=("f",))
    assert found == Verdict("different", ("files: line 2: bare     False, recorded     True",))


def test_a_difference_on_a_terminal_is_noticed(python: str) -> None:
    found = verdict(python, "print(recorded)", terminal=True)
    assert found == Verdict("different", ("out: bare False, recorded True",))


def test_a_case_that_is_not_steady_by_itself_is_found(python: str) -> None:
    found = judge(program("test", "import os\nprint(os.urandom(8))"), python, recorded=False)
    assert found.word == "different" and found.lines[0].startswith("out: ")
    assert judge(program("test", "print(1)"), python, recorded=False) == Verdict("same")


def test_the_same_is_the_same(python: str) -> None:
    assert verdict(python, "print(1)\nprint(2, file=sys.stderr)\nsys.exit(3)", code=3, shows="2") == Verdict("same")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"code": 4}, "bare Python ended with exit 3, not exit 4"),
        ({"code": -15}, "bare Python ended with exit 3, not SIGTERM"),
        ({"code": 3, "shows": "not there"}, "bare Python did not show 'not there'"),
    ],
)
def test_a_case_must_be_what_it_says(python: str, more: dict[str, object], line: str) -> None:
    assert verdict(python, "print(1)\nsys.exit(3)", **more) == Verdict("broken", (line,))


@pytest.mark.parametrize(
    "need", ["2000+", "not_a_module_of_anyone", "libnot-there.so.1", "$not-a-command", "bin/not-a-script"]
)
def test_what_is_missing_leaves_a_case_out(python: str, need: str) -> None:
    need = need.replace("2000", "3.2000")
    found = verdict(python, "print(1)", needs=(need,))
    assert found.word == "left out" and len(found.lines) == 1


def test_signals_come_when_the_program_is_ready(python: str) -> None:
    source = (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "for _ in range(2):\n    print('ready', flush=True)\n    signal.sigwait([signal.SIGUSR1])\n    print('one')\n"
    )
    assert verdict(python, source, signals=(signal.SIGUSR1,) * 2, shows="one\nready\none") == Verdict("same")


def test_children_that_keep_the_output_open_are_a_hang(python: str) -> None:
    source = "import subprocess\nif recorded: subprocess.Popen(['sleep', '60'])"
    assert verdict(python, source, timeout=3).lines == ("end: bare exit 0, recorded hung",)


def test_only_what_cannot_be_equal_is_taken_out() -> None:
    shown = runner.Normal(runner.EVERYWHERE)
    assert shown("<A object at 0x7f00aa11bb22>, 0xff, 12345") == "<A object at ADDRESS>, 0xff, 12345"
    assert shown("(pid=12) 12") == "(pid=PID) 12"
    assert shown("<Thread(T-1, started 140001)> started 5") == "<Thread(T-1, started THREAD)> started 5"
    assert shown("/tmp/tmpab12_xyz/pymp-abcdefgh tmp") == "/tmp/tmpNAME/pymp-NAME tmp"


def test_own_lines_are_taken_out_and_no_others(python: str, tmp_path: Path) -> None:
    case = program("test", "import sys\nprint('cuptimem: of the program')\nprint('x cuptimem: y', file=sys.stderr)")
    seen = runner.run(case, python, tmp_path, recorded=True)
    assert (seen.out, seen.err) == ("cuptimem: of the program\n", "x cuptimem: y\n")
    assert seen.own.startswith("cuptimem: wrote ") and seen.own.count("\n") == 1


def test_rings_of_killed_runs_are_removed(python: str, tmp_path: Path) -> None:
    """And no others: what another run left belongs to its trace."""
    place = tmp_path / "rings"
    place.mkdir()
    killed = "import os\nfrom cuptimem import _core\n_core.capture_share()\nos.kill(os.getpid(), 9)"
    case = program("test", killed, code=-9, environment={"CUPTIMEM_RING_DIR": str(place)})
    for name in ("one", "two"):
        runner.run(case, python, tmp_path / name, recorded=True)
        # The next start would move it into its trace.
        next(place.glob(".cuptimem-ring-*")).rename(place / f".cuptimem-ring-{name}.kept")
    runner.remove_rings(tmp_path / "one", place)
    assert [path.name for path in place.iterdir()] == [".cuptimem-ring-two.kept"]


def test_the_table() -> None:
    assert len(table.CASES) >= 150
    for case in table.CASES.values():
        assert case.name == case.name.strip() and "\n" not in case.name
        assert not case.fixed or set(case.needs) <= {"torch", "3.12+"}, f"{case.name}: tools are not in `make test`"
        assert case.traces is None or case.traces >= 0


def test_cases_are_chosen_by_name_kind_and_pattern() -> None:
    assert len(chosen([])) == len(table.CASES)
    assert chosen(["exit 3"]) == [("ends", "exit 3")]
    assert {kind for kind, _ in chosen(["signals"])} == {"signals"}
    assert [name for _, name in chosen(["argv", "exit ?"])] == ["exit 3", "argv"]


def test_the_result_names_what_differs() -> None:
    verdicts = {
        "a": {"3.11": Verdict("same"), "3.12": Verdict("different", ("out: bare 1, recorded 2",))},
        "b": {"3.11": Verdict("left out", ("no | tool",)), "3.12": Verdict("left out", ("no | tool",))},
    }
    text = results.document("2030-01-02", "abc", [("ends", "a"), ("tools", "b")], verdicts, {"3.11": "x", "3.12": "y"})
    assert "- Python 3.12: 2 cases: 0 same, 1 different, 0 known, 0 broken, 1 left out" in text
    assert "- a (3.12): out: bare 1, recorded 2" in text
    assert "- b (3.11, 3.12): no \\| tool" in text
    assert "| ends | a | same | different |" in text


def test_installed_command(python: str, tmp_path: Path) -> None:
    """The `cuptimem` script does as `python -m cuptimem` does."""
    (tmp_path / "s.py").write_text("import sys\nprint(sys.argv, sys.flags.isolated)\n")
    (tmp_path / "cuptimem").write_text(
        f"#!{python} -I\nimport sys\nfrom cuptimem.__main__ import main\nsys.exit(main())\n"
    )
    os.chmod(tmp_path / "cuptimem", 0o755)
    done = subprocess.run(
        [tmp_path / "cuptimem", "run", "-q", "-o", "out.cmem", "s.py", "a"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=clean_environment(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['s.py', 'a'] 0\n", "")
    assert (tmp_path / "out.cmem").exists()
