"""Whether a Python like this one reads the file that starts a recording (autostart.FILE).

Python reads such files only in certain folders: in its own site-packages, and in every folder that
`site.addsitedir` has been called for. A folder that is only on the path (PYTHONPATH, a plain line of another .pth) may
hold the file, too, and Python does not read it there.
"""

import os
import site
import sys

from cuptimem import environ, interpreter
from cuptimem.errors import Error
from cuptimem.record import autostart

TYPE_CHECKING = False  # the program's folder may have a module of any name: only what Python has loaded is imported

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACE = "start"
# Python imports this module before any program. It gives way to the program's own one of that name.
_START = """\
import os, sys

sys.path[:] = [path for path in sys.path if path != os.path.dirname(__file__)]
ours = sys.modules.pop(__name__)
try:
    import sitecustomize
except ImportError as error:
    if error.name != "sitecustomize":
        raise
    sys.modules[__name__] = ours
finally:
    from cuptimem.record import autostart

    autostart.start()
"""


def is_read() -> bool:
    """Whether this Python reads the file: checks the usual folders, and starts such a Python if it is in none."""
    if sys.flags.no_site:
        return False
    folders = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return any(os.path.isfile(os.path.join(folder, autostart.FILE)) for folder in folders) or starts()


def starts(variables: "Mapping[str, str] | None" = None) -> bool:
    """Whether this Python, started with these variables, loads cuptimem.record.autostart by itself."""
    import subprocess

    options, program = interpreter.split(sys.orig_argv[1:])
    # `python -m cuptimem` gives its options on (cli/run.py); those of an installed command are its own.
    left = "i" if program[:1] == ["-m"] else "iIEsP"
    flags = [part for option in options for part in interpreter.without(option, left)]
    # Any word makes the file call autostart, and this one asks for nothing.
    base = {**os.environ, **(variables or {})}
    base.pop("CUPTIMEM_SIM_CHILD", None)
    flags, base = environ.given(flags, {"CUPTIMEM": "0"}, base)
    ask = "import sys; sys.exit('cuptimem.record.autostart' not in sys.modules)"
    try:
        done = subprocess.run(
            [sys.executable, *flags, "-c", ask],
            env=base,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def write(folder: str) -> None:
    """Writes the file that `without_file` needs."""
    place = os.path.join(folder, _PLACE)
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "sitecustomize.py"), "w", encoding="utf-8") as file:
        file.write(_START)


def without_file(folder: str, base: "Mapping[str, str]") -> dict[str, str]:
    """Variables for where Python does not read the startup file: a file in `folder` starts the same."""
    place = os.path.join(folder, _PLACE)
    return {"PYTHONPATH": os.pathsep.join([place, *filter(None, [base.get("PYTHONPATH")])])}


def check() -> None:
    """Raises Error, with the reason, unless this Python reads the file that starts the recording."""
    if not is_read():
        why = "it was started with -S" if sys.flags.no_site else f"it reads no {autostart.FILE}"
        raise Error(
            f"{sys.executable} would not start the recording: {why}; "
            + (
                "leave -S away"
                if sys.flags.no_site
                else "install cuptimem again with this Python, without CUPTIMEM_NO_PTH; or record with cuptimem.profile"
            )
        )


def given_environment() -> dict[str, str]:
    """As this process got it: in the C locale Python adds LC_CTYPE to its own (PEP 538), and the program's Python is to
    decide that for itself."""
    found = dict(os.environ)
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read().split(b"\0")
    except OSError:
        return found
    if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
        found.pop("LC_CTYPE", None)
    return found
