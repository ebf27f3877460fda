"""What `make test` runs, in two streams side by side: a test mostly waits for one process, and one after the other they
would take half an hour.

    python -m tests.everything [pytest's arguments]

The first stream is everything but tests/simulated, shown as it runs. The second one, the other Pythons' tests and then
tests/simulated, is shown when both are done. What failed anywhere is repeated at the end.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SIMULATED = "tests/simulated"
SIDE = "--side"
NOTHING_CHOSEN = 5  # pytest's exit code


def run(*command: str, arguments: list[str]) -> int:
    """The exit code; arguments may choose tests of one stream only."""
    sys.stdout.flush()
    code = subprocess.run([*command, *arguments], cwd=ROOT, check=False).returncode
    return 0 if code == NOTHING_CHOSEN and arguments else code


def run_side(arguments: list[str]) -> int:
    others = run("sh", "tests/other_pythons.sh", "test", arguments=arguments)
    return run(sys.executable, "-m", "pytest", "-q", SIMULATED, arguments=arguments) or others


def main(arguments: list[str]) -> int:
    if arguments[:1] == [SIDE]:
        return run_side(arguments[1:])
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", "tests.everything", SIDE, *arguments]
        beside = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            code = run(sys.executable, "-m", "pytest", f"--ignore={SIMULATED}", arguments=arguments)
            beside_code = beside.wait()
        finally:
            beside.terminate()
            beside.wait()
        log.seek(0)
        shown = log.read().decode(errors="replace")
    print(f"\nBeside it, the other Pythons and {SIMULATED}:\n{shown}", flush=True)
    if code == 0 and beside_code == 0:
        return 0
    failed = [line for line in shown.splitlines() if line.startswith(("FAILED", "ERROR"))]
    print("\n".join(["", f"The first stream ended with {code}, the second with {beside_code}.", *failed]))
    return code or beside_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
