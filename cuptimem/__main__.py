"""`cuptimem` and `python -m cuptimem`."""

import os
import sys


def main() -> int:
    """Runs the command line; the exit code."""
    from cuptimem.cli import main as command_line

    return command_line(sys.argv[1:])


def _leave_current_folder() -> None:
    """Takes what `python -m` put first on the path off it: a module of the user's must not come before Python's own.

    The program is run by another Python, which makes its own path.
    """
    try:
        here = os.getcwd()
    except OSError:  # it was removed, and Python put nothing on the path
        return
    # Python 3.10 has no such flag, and doctor says there that it is too old.
    if not getattr(sys.flags, "safe_path", False) and sys.path[:1] == [here]:
        del sys.path[0]


if __name__ == "__main__":
    _leave_current_folder()
    sys.exit(main())
