"""`cuptimem` and `python -m cuptimem`."""

import sys


def main() -> int:
    """Runs the command line; the exit code."""
    from cuptimem.cli import main as command_line

    return command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
