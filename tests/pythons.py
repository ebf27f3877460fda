"""The Pythons that cuptimem supports, as far as this machine has them.

`python tests/pythons.py` gives each but the one that runs it an environment, `.venv-VERSION`, with an extension
built in place; with --newest one alone, which is what `make test` runs. Nothing else may build meanwhile.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STARTUP = ("cuptimem.pth", "cuptimem.start")
RUNNING = ".".join(map(str, sys.version_info[:2]))
SUPPORTED = ("3.11", "3.12", "3.13", "3.14", "3.15")

WITH_LIBRARIES = ROOT / ".venv-attribution" / "bin" / "python"  # the one that `make attribution` makes

PACKAGES = ("setuptools>=77", "rich>=13", "cloudpickle>=3", "jinja2>=3.1", "pytest>=8", "hypothesis>=6")

_COUNTS = """\
import os, sys, sysconfig
ok = "%d.%d" % sys.version_info[:2] == sys.argv[1] and "t" not in sys.abiflags
sys.exit(not (ok and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))))
"""


def add_startup(site: Path) -> None:
    """Puts the files into this site-packages that let CUPTIMEM=1 and `cuptimem run` record."""
    for name in STARTUP:
        shutil.copy(ROOT / name, site)


def _candidates(version: str) -> Iterator[str]:
    if version == RUNNING:
        yield sys.executable
    if found := shutil.which(f"python{version}"):
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from (str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python")))


def find(version: str) -> str | None:
    """An interpreter counts if it starts (a shim may not), is that version, and has its headers."""
    for candidate in _candidates(version):
        try:
            done = subprocess.run([candidate, "-c", _COUNTS, version], capture_output=True)
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    return None


def others(*, newest: bool) -> dict[str, str]:
    """Versions and interpreters but the running one; where `make test` has time for one alone, the newest."""
    found = {version: path for version in SUPPORTED if version != RUNNING and (path := find(version))}
    return dict(list(found.items())[-1:]) if newest else found


def make_environment(version: str, interpreter: str) -> None:
    """Once; the extension again when C has changed."""
    venv = ROOT / f".venv-{version}"
    python = venv / "bin/python"
    if not (venv / ".made").exists():
        subprocess.run([interpreter, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (venv / ".made").touch()
    build = [python, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=ROOT, env={**os.environ, "CUPTIMEM_WERROR": "1"}, check=True)


if __name__ == "__main__":
    for other in others(newest="--newest" in sys.argv[1:]).items():
        make_environment(*other)
