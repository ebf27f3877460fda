"""Runs the long forms of the tests of this folder and writes what they counted to docs/stress/<date>.md."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import results

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        began = time.time()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-o", "faulthandler_timeout=3000", str(HERE), *sys.argv[1:]],
            env={**os.environ, "CUPTIMEM_STRESS": "long", "CUPTIMEM_STRESS_RESULT": str(counts)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        took = time.time() - began
        found = [json.loads(line) for line in counts.read_text().splitlines()] if counts.exists() else []
    print(done.stdout)
    lines = [
        f"`make stress{' ARGS=' + ' '.join(sys.argv[1:]) if sys.argv[1:] else ''}`, {took:.0f} s, "
        f"Python {platform.python_version()}, Linux {platform.release().partition('-')[0]}, {os.cpu_count()} cores.",
        "",
        f"Result: {done.stdout.strip().splitlines()[-1].strip('= ')}",
        "",
        "| test | counts |",
        "|---|---|",
    ]
    for entry in found:
        name = entry.pop("test")
        counted = ", ".join(f"{value:,} {key.replace('_', ' ')}" for key, value in entry.items())
        lines.append(f"| {name} | {counted} |")
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    lines += ["", *[f"- {line}" for line in skipped]]
    results.write("stress", "Stress", lines)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
