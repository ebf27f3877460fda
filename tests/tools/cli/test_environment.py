"""Environment variables: what they do, and that docs/running.md has every one."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import cudasim
import cuptimem
from cuptimem.record import autostart
from cuptimem.simulation import child
from tests.conftest import ROOT, Result

Run = Callable[..., Result]


def in_source() -> set[str]:
    files = [
        ROOT / "setup.py",
        ROOT / "cudasim/setup.py",
        *(ROOT / "cuptimem").rglob("*.py"),
        *(ROOT / "csrc").rglob("*.[ch]"),
    ]
    quoted = {name for file in files for name in re.findall(r'"(CUPTIMEM\w+)"', file.read_text())}
    return {"CUPTIMEM", *quoted, *cudasim.VARIABLES, child.VARIABLE, child.OFF}


def test_every_variable_is_documented_and_every_documented_one_is_read() -> None:
    page = (ROOT / "docs/running.md").read_text()
    user, internal = page.split("## Internal")
    rows = [re.findall(r"^\| `(CUPTIMEM\w*)` \|", part, re.M) for part in (user, internal)]
    assert len({*rows[0], *rows[1]}) == len(rows[0]) + len(rows[1])
    assert {*rows[0], *rows[1]} == in_source()
    ours = {"CUPTIMEM_RUN", "CUPTIMEM_LEADER", "CUPTIMEM_IMAGE"}
    assert ours <= set(rows[1]) and set(autostart.VARIABLES) - ours <= set(rows[0])


@pytest.mark.parametrize(
    ("environment", "trace"),
    [
        ({"CUPTIMEM": "a-{pid}.cmem", "CUPTIMEM_OUTPUT": "b.cmem"}, "b.cmem"),
        ({"CUPTIMEM": "Run.cmem"}, "Run.cmem"),
        ({"CUPTIMEM": "2.cmem", "CUPTIMEM_OUTPUT": ""}, "2.cmem"),
        ({"CUPTIMEM": "a-{rank}.cmem", "RANK": "3", "WORLD_SIZE": "4"}, "a-3.cmem"),
        ({"CUPTIMEM": "TRUE", "CUPTIMEM_MAX_SIZE": "2G"}, "cuptimem-c.*.cmem"),
        *(({"CUPTIMEM": word}, None) for word in ("0", "false", "Off")),
    ],
)
def test_name_of_the_trace(run: Run, tmp_path: Path, environment: dict[str, str], trace: str | None) -> None:
    assert run("-c", "pass", env=environment).code == 0
    found = [path.name for path in tmp_path.iterdir()]
    assert found == [] if trace is None else len(found) == 1 and Path(found[0]).match(trace), found


def test_children_do_not_replace_the_trace_that_is_named(run: Run, tmp_path: Path) -> None:
    started = "subprocess.run([sys.executable, '-c', 'pass'], check=True)\n"
    program = f"import os, subprocess, sys\nprint(os.getpid())\n{started}{started}"
    for follow, traces in (("", 1), ("1", 3)):
        folder = tmp_path / f"traces{follow}"
        folder.mkdir()
        environment = {"CUPTIMEM": str(folder / "run.cmem"), "CUPTIMEM_FOLLOW": follow}
        leader = run("-c", program, env=environment).out.strip()
        assert len(list(folder.iterdir())) == traces
        assert cuptimem.open(folder / "run.cmem").environment["pid"] == leader
        again = run("-c", "print(1)", env=environment)
        assert again.out == "1\n" and "not recording" in again.err
        assert again.err.endswith(" exists; choose another name, or replace it with CUPTIMEM_OVERWRITE=1\n")


def test_workers_without_a_rank_do_not_take_one_name(run: Run, tmp_path: Path) -> None:
    """Ray gives its workers their ranks when they have started."""
    pids = [run("-c", "import os; print(os.getpid())", env={"CUPTIMEM": "a-{rank}.cmem"}).out.strip() for _ in range(2)]
    assert {path.name for path in tmp_path.iterdir()} == {"a-0.cmem", f"a-0.{pids[1]}.cmem"}
    assert cuptimem.open(tmp_path / "a-0.cmem").environment["pid"] == pids[0]


def test_the_command_itself_is_not_recorded(run: Run, tmp_path: Path) -> None:
    assert run("-m", "cuptimem", "--version", env={"CUPTIMEM": "1"}).err == ""
    done = run("-m", "cuptimem", "run", "-q", "-o", "a.cmem", "-c", "pass", env={"CUPTIMEM": "b.cmem"})
    assert done.code == 0 and [path.name for path in tmp_path.iterdir()] == ["a.cmem"]


def test_a_wrong_size_is_said(run: Run, tmp_path: Path) -> None:
    done = run("-c", "print(1)", env={"CUPTIMEM": "1", "CUPTIMEM_MAX_SIZE": "2X"})
    assert done.out == "1\n" and "CUPTIMEM_MAX_SIZE takes a number of bytes" in done.err
    assert list(tmp_path.iterdir()) == []
