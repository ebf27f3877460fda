"""Which Python reads the file that starts recordings, and what starts one that does not."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import pythons
from tests.conftest import ROOT, clean_environment

ASK = """\
import os
from cuptimem.record import startup
startup.write(".")
print(startup.is_read(), startup.starts(startup.without_file(".", os.environ)))
"""
MAKE = """\
from cuptimem.record import startup
startup.write(".")
print(startup.without_file(".", {"PYTHONPATH": "own"})["PYTHONPATH"])
"""


@pytest.fixture
def laid_over(tmp_path: Path) -> Callable[..., tuple[Path, str]]:
    """An environment with one .pth, which speaks of a folder that has the startup file; and that folder."""
    below = tmp_path / "below"
    below.mkdir()
    pythons.add_startup(below)
    (below / "__paths.pth").write_text(f"{ROOT}\n")

    def call(line: str) -> tuple[Path, str]:
        home = tmp_path / "venv"
        venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
        (next(home.glob("lib/python3.*/site-packages")) / "overlay.pth").write_text(line.format(below=below, root=ROOT))
        return home / "bin" / "python", str(below)

    return call


def ask(python: Path, cwd: Path, code: str = ASK, **variables: str) -> str:
    done = subprocess.run(
        [python, "-c", code], cwd=cwd, env=clean_environment() | variables, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_site_packages_that_another_pth_adds(laid_over, tmp_path):
    python, _ = laid_over("import site; site.addsitedir('{below}')\n")
    assert ask(python, tmp_path) == "True True"


def test_folders_that_are_only_on_the_path(laid_over, tmp_path):
    """The file lies there, and Python reads none of them: an own sitecustomize does what it would do."""
    python, _ = laid_over("{root}\n{below}\n")
    assert ask(python, tmp_path) == "False True"
    python, below = laid_over("")
    assert ask(python, tmp_path, PYTHONPATH=f"{ROOT}:{below}") == "False True"


def test_the_program_has_its_own_sitecustomize(laid_over, tmp_path):
    """It is run once, from where it lies, and ours is nowhere on the path."""
    python, _ = laid_over("{root}\n")
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('mine')\n")
    made = ask(python, tmp_path, MAKE)
    assert made == f"./start{os.pathsep}own"
    code = "import sys, sitecustomize; print(sitecustomize.__file__, any(path.endswith('start') for path in sys.path))"
    said = ask(
        python, tmp_path, f"{code}; print('cuptimem.record.autostart' in sys.modules)", PYTHONPATH=made, CUPTIMEM="0"
    )
    assert said.splitlines() == ["mine", f"{own}/sitecustomize.py False", "True"]
    (own / "sitecustomize.py").unlink()
    code = "import sys; print('cuptimem.record.autostart' in sys.modules)"
    assert ask(python, tmp_path, code, PYTHONPATH=made, CUPTIMEM="0") == "True"


def test_without_site_nothing_is_read(tmp_path):
    done = subprocess.run(
        [sys.executable, "-S", "-c", "from cuptimem.record import startup; print(startup.is_read())"],
        env=clean_environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "False\n", done.stderr
