"""An environment for each Python, with PyTorch and the tools that cases are about; made once, below .venv-fidelity."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests import pythons
from tests.conftest import ROOT

FOLDER = ROOT / ".venv-fidelity"
BASE = ("setuptools>=77", "rich>=13", "cloudpickle>=3", "numpy", "pytest>=8", "hypothesis>=6")
# Each apart: where one cannot be installed, the others still are.
TOOLS = (
    "coverage",
    "debugpy",
    "dill",
    "ipython",
    "line_profiler",
    "memory_profiler",
    "memray",
    "py-spy",
    "pyinstrument",
    "pytest-xdist",
    "scalene",
    "tqdm",
    "uvloop",
    "viztracer",
)


def prepare(version: str) -> str | None:
    """The interpreter of the version's environment; None where this machine has no such Python."""
    found = pythons.find(version)
    return make(FOLDER / version, found, TOOLS) if found is not None else None


def make(home: Path, interpreter: str, tools: Sequence[str] = ()) -> str:
    """The interpreter of an environment with PyTorch, the tools and this tree's cuptimem, made if it is not there."""
    python = str(home / "bin" / "python")
    made = home / ".made"
    if not made.exists():
        print(f"making {home.relative_to(ROOT)}", flush=True)
        subprocess.run([interpreter, "-m", "venv", home], check=True)
        install(python, *BASE, os.environ.get("TORCH", "torch==2.13.0"))
        for tool in tools:
            try:
                install(python, tool)
            except subprocess.CalledProcessError:
                print(f"{tool} was not installed; its cases are left out", file=sys.stderr)
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
        # The first letter puts it before cuptimem.pth, as an editable install's own file is.
        (Path(site) / "__cuptimem_source.pth").write_text(f"{ROOT}\n")
        pythons.add_startup(Path(site))
        made.touch()
    # The extension lies beside its package, one file for each Python.
    build = [python, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=ROOT, check=True, env={**os.environ, "CUPTIMEM_WERROR": "1"})
    return python


def versions(python: str) -> str:
    """What the environment has, for the result."""
    names = ("torch", *sorted(TOOLS))
    code = (
        "import importlib.metadata as m, platform, sys\n"
        "def v(n):\n    try: return m.version(n)\n    except m.PackageNotFoundError: return 'not installed'\n"
        "print('Python', platform.python_version() + ',', ', '.join(f'{n} {v(n)}' for n in sys.argv[1:]))"
    )
    return subprocess.run([python, "-c", code, *names], check=True, capture_output=True, text=True).stdout.strip()


def install(python: str, *packages: str) -> None:
    """With pip, as it is set up here."""
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], check=True)
