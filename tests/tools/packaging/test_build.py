"""How setup.py builds: side by side, with one clear line where that cannot work, and without the .pth where asked."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment
from tests.pythons import STARTUP, SUPPORTED
from tests.tools.packaging import contents

pytest.importorskip("setuptools", minversion="77", reason="the build backend")

FEW = ("csrc/base/clock.c", "csrc/capture/merge.c", "csrc/capture/ring_place.c", "csrc/capture/shared_memory.c")
# Each stands for gcc. WORK is a folder of the test's.
MEETS_ANOTHER = """
case " $* " in *" -c "*)
    : > "$WORK/$$"
    for attempt in $(seq 300); do
        [ $(ls "$WORK" | wc -l) -ge 2 ] && exit 0
        sleep 0.1
    done
    exit 1 ;;
esac"""
IS_ALONE = 'mkdir "$WORK/lock" && rmdir "$WORK/lock"'
FAILS_ON_ONE = """
case " $* " in *merge.c*) echo 'merge.c:1:1: error: first'; echo 'merge.c:2:1: error: second' >&2; exit 3 ;; esac"""

# Every file includes csrc/base/shared.h. Their names are in $WORK/compiled.
LISTS_WHAT_IT_READS = """
for word; do case "$word" in *.c) source=$word ;; esac; done
case " $* " in *" -c "*) echo "$source" >> "$WORK/compiled" ;; esac
for word; do
    case "$before" in -o) : > "$word" ;; -MF) echo "x.o: $source csrc/base/shared.h" > "$word" ;; esac
    before=$word
done"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A source tree with four files of the extension's and none of the simulated device's core."""
    names = contents.tracked()
    if names is None:
        pytest.skip("not a git checkout")
    absent = ("csrc/", "cudasim/csrc/", "cudasim/tests/", "tests/", "evidence/", "docs/", "benchmarks/", "examples/")
    kept = {name for name in names if not name.startswith(absent)}
    contents.copy(kept, tmp_path / "clone")
    contents.copy(set(FEW), tmp_path / "clone")
    return tmp_path / "clone"


def build(
    clone: Path, compiler: str, *before: str, command: str = "build_ext", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs setup.py. compiler: a shell script's lines; before: Python that runs first."""
    script, work = clone.parent / "cc", clone.parent / "work"
    script.write_text(f"#!/bin/sh\nWORK='{work}'\n{compiler}\n")
    script.chmod(0o755)
    work.mkdir(exist_ok=True)
    program = "; ".join([*before, "import runpy, sys", f"sys.argv = ['setup.py', '-q', {command!r}]"])
    return subprocess.run(
        [sys.executable, "-c", f"{program}; runpy.run_path('setup.py')"],
        cwd=clone,
        capture_output=True,
        text=True,
        env={**clean_environment(), "CC": str(script), **environment},
    )


def test_compilers_run_side_by_side(clone: Path) -> None:
    """Each compiler waits until another one has begun: alone, the first one fails."""
    done = build(clone, MEETS_ANOTHER, MAX_JOBS="2")
    assert done.returncode == 0, done.stderr


def test_max_jobs_is_a_bound(clone: Path) -> None:
    """Two compilers at once would find the other's lock."""
    done = build(clone, IS_ALONE, MAX_JOBS="1")
    assert (done.returncode, done.stderr) == (0, "")
    wrong = build(clone, IS_ALONE, MAX_JOBS="0")
    assert wrong.stderr == "error: MAX_JOBS is the number of compilers that may run at once, not '0'\n"


def test_only_what_changed_is_compiled_again(clone: Path) -> None:
    shared, log = clone / "csrc/base/shared.h", clone.parent / "work" / "compiled"
    shared.touch()

    def compiled(**environment: str) -> set[str]:
        log.unlink(missing_ok=True)
        done = build(clone, LISTS_WHAT_IT_READS, **environment)
        assert done.returncode == 0, done.stderr
        return set(log.read_text().split()) if log.exists() else set()

    def change(path: Path) -> None:
        newest = max(made.stat().st_mtime_ns for made in clone.glob("build/**/*"))
        os.utime(path, ns=(newest + 1_000_000, newest + 1_000_000))

    every = compiled()
    assert every > set(FEW) and compiled() == set()
    change(clone / FEW[0])
    assert compiled() == {FEW[0]}
    change(shared)
    assert compiled() == set(FEW)  # and nothing of other extensions
    assert compiled(CFLAGS="-DOTHER") == set()  # until something has: the file is there
    change(clone / FEW[1])
    assert compiled(CFLAGS="-DOTHER") >= set(FEW)


def test_errors_of_a_file_stay_together(clone: Path) -> None:
    done = build(clone, FAILS_ON_ONE)
    assert done.returncode == 1
    first, second, last = done.stderr.splitlines()
    assert (first, second) == ("merge.c:1:1: error: first", "merge.c:2:1: error: second")
    assert last.startswith("error: ") and "failed with exit code 3 on " in last and last.endswith("merge.o")


def test_no_compiler_is_one_line(clone: Path) -> None:
    done = build(clone, "", command="bdist_wheel", CC="/nonexistent/gcc -pthread")
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 1 and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: '/nonexistent/gcc' does not start (No such file or directory). ")
    assert "apt install gcc python3-dev" in last


def test_no_headers_is_one_line(clone: Path) -> None:
    """Wherever the compiler searched, there is no Python.h where this Python says."""
    nowhere = "import sysconfig; sysconfig.get_path = lambda *_, **__: '/nonexistent'"
    done = build(clone, "echo 'clock.c:1:1: fatal error: Python.h: No such file'; exit 1", nowhere)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: there is no Python.h for {sys.executable}. ")
    assert done.stderr.count("\n") == 1 and "python3-dev" in done.stderr


def test_without_the_pth(clone: Path) -> None:
    """Also where an earlier build has left one."""
    text = (ROOT / "setup.py").read_text()
    assert 'if sys.platform == "linux"' in text
    (clone / "setup.py").write_text(text.replace('if sys.platform == "linux"', "if False"))
    for setting, expected in (("0", True), ("1", False)):
        done = build(clone, "", command="bdist_wheel", CUPTIMEM_NO_PTH=setting)
        assert done.returncode == 0, done.stderr
        (wheel,) = clone.glob("dist/*.whl")
        with zipfile.ZipFile(wheel) as archive:
            assert [name in archive.namelist() for name in STARTUP] == [expected] * len(STARTUP)
            page = next(name for name in archive.namelist() if name.endswith("/share/man/man1/cuptimem.1"))
            assert archive.read(page).startswith(b".TH CUPTIMEM 1 ")
        wheel.unlink()


def test_wheels_are_configured_for_every_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheels = project["tool"]["cibuildwheel"]
    minors = [f"3.{minor}" for minor in range(9, 20)]
    chosen = [one for one in minors if fnmatch(f"cp{one.replace('.', '')}-manylinux_x86_64", wheels["build"])]
    assert chosen == [*SUPPORTED]
    assert project["project"]["requires-python"] == f">={SUPPORTED[0]}"
    paths = [*wheels["test-sources"], *re.findall(r"tests/\S+", wheels["test-command"])]
    assert len(paths) > 5 and [path for path in paths if not (ROOT / path).exists()] == []
    linked = [re.search(r"/(?:tree|blob)/main/(.+)", url) for url in project["project"]["urls"].values()]
    assert [found[1] for found in linked if found] == ["docs", "CHANGELOG.md"]
