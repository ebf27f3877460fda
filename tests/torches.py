"""The tests that depend on PyTorch's inside, with many versions of it: `make torches`.

    python -m tests.torches [--only PART] [VERSION ...]

Each version gets a virtual environment in .venv-torches, made once (4 to 6 GB with its CUDA libraries, without which
it cannot be imported). Writes docs/torches/<date>.json, and the table of docs/limits.md with each version's newest
result; exit code 1 if a test fails.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests import results

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv-torches"
RESULTS, PAGE = ROOT / "docs" / "torches", ROOT / "docs" / "limits.md"
MARK = "<!-- made by make torches -->"
DEFAULT = ("2.4.1", "2.8.0", "2.11.0", "2.12.0", "2.13.0", "2.14.1", "2.15.0")

# What is asked of each version, and where the tests are.
PARTS = {
    "nodes": "tests.record.sources.test_nodes",
    "backward": "tests.record.sources.test_autograd",
    "allocator": "tests.record.sources.test_allocator",
    "storages": "tests.record.sources.test_seed",
    "live set": "tests.record.truth.test_live_set",
    "steps": "tests.record.sources.test_torch_events",
}


def pip(python: Path, *arguments: str) -> None:
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-cache-dir", *arguments], check=True)


def make(version: str) -> Path:
    """The environment of one version: torch, what its import needs, and the tests' own tools."""
    home = HOME / version
    python, made = home / "bin" / "python", home / ".made"
    if made.exists():
        return python
    venv.EnvBuilder(with_pip=True, symlinks=True, clear=True).create(home)
    pip(python, "--no-deps", f"torch=={version}")
    said = subprocess.run(
        [str(python), "-c", "from importlib.metadata import requires; print('\\n'.join(requires('torch') or ()))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    # Triton compiles for GPUs and is not needed to import torch.
    needed = [line for line in said.splitlines() if "extra ==" not in line and not line.lower().startswith("triton")]
    numpy = "numpy<2" if tuple(map(int, version.split(".")[:2])) < (2, 5) else "numpy"
    pip(python, *needed, numpy, "setuptools>=77", "rich>=13", "cloudpickle>=3", "pytest>=8", "hypothesis>=6")
    made.touch()
    return python


def run(version: str, only: str | None) -> dict[str, Any]:
    """Runs the marked tests with one version, or one part of them. Counts by part."""
    python = make(version)
    about = subprocess.run(
        [str(python), "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True, text=True
    ).stdout.strip()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [str(python), "-m", "pytest", "-q", "-m", "torches", "-p", "no:cacheprovider", f"--junitxml={report}"]
            + (
                ["tests/record/sources", "tests/record/truth"]
                if only is None
                else [PARTS[only].replace(".", "/") + ".py"]
            ),
            cwd=ROOT,
            env={**os.environ, "CUPTIMEM_TEST_TORCHES": "1", "OMP_NUM_THREADS": "1"},
        )
        cases = list(ElementTree.parse(report).iter("testcase"))
    parts: dict[str, Counter[str]] = {name: Counter(passed=0, failed=0, skipped=0) for name in PARTS}
    for case in cases:
        name = next(name for name, module in PARTS.items() if case.get("classname", "").startswith(module))
        failed = case.find("failure") is not None or case.find("error") is not None
        skipped = case.find("skipped") is not None
        parts[name]["failed" if failed else "skipped" if skipped else "passed"] += 1
    return {
        "torch": about,
        "seconds": round(time.monotonic() - began),
        "parts": {name: dict(counts) for name, counts in parts.items()},
        "good": bool(cases) and not any(counts["failed"] for counts in parts.values()),
    }


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def newest() -> dict[str, dict[str, Any]]:
    """Each version's newest run, with the date and the Python of it."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text())
        for version, ran in result["versions"].items():
            found[version] = {**ran, **{key: result[key] for key in ("date", "python", "machine")}}
    return {version: found[version] for version in sorted(found, key=number)}


def table(versions: dict[str, dict[str, Any]]) -> str:
    """A row for each version."""

    def cell(counts: dict[str, int]) -> str:
        if not any(counts.values()):
            return "not run"
        text = f"{counts['passed']}"
        text += f", **{counts['failed']} failed**" if counts["failed"] else ""
        return text + (f", {counts['skipped']} skipped" if counts["skipped"] else "")

    lines = [
        "| torch | " + " | ".join(PARTS) + " | run |",
        "|---|" + "---|" * len(PARTS) + "---|",
    ]
    lines += [
        f"| {run['torch']} | "
        + " | ".join(cell(run["parts"].get(name, {})) for name in PARTS)
        + f" | [{run['date']}](torches/{run['date']}.json), Python {run['python']}, {run['machine']} |"
        for run in versions.values()
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torches", description="Tests with versions of PyTorch.")
    parser.add_argument("--only", choices=PARTS, help="this part of the tests")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"default: {' '.join(DEFAULT)}")
    options = parser.parse_args(arguments)
    date = time.strftime("%Y-%m-%d")
    path = RESULTS / f"{date}.json"
    good = True
    for version in options.versions or DEFAULT:
        if not re.fullmatch(r"\d+\.\d+\.\d+", version):
            print(f"not a released version: {version}", file=sys.stderr)
            return 2
        print(f"torch {version}:", flush=True)
        ran = run(version, options.only)
        good = good and ran["good"]
        versions = {**(json.loads(path.read_text())["versions"] if path.exists() else {}), version: ran}
        ordered = sorted(versions, key=number)
        result = {
            "date": date,
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
            "versions": {v: versions[v] for v in ordered},
        }
        RESULTS.mkdir(parents=True, exist_ok=True)
        path.write_text(results.json_text(result))
        PAGE.write_text(results.replaced(PAGE.read_text(), table(newest()), MARK))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
