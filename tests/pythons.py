"""The Pythons that cuptimem supports, as far as this machine has them.

`python tests/pythons.py 3.12` prints the path of one, or says nothing and exits 1; tests/other_pythons.sh asks so.
"""

from __future__ import annotations

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


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in SUPPORTED:
        print(f"usage: pythons.py {'|'.join(SUPPORTED)}", file=sys.stderr)
        return 2
    found = find(sys.argv[1])
    if found is not None:
        print(found)
    return found is None


if __name__ == "__main__":
    sys.exit(main())
