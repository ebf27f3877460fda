"""python -m evidence.gpu.compare_real [NAME ...] [--profile KEY] [--save]

Runs the programs of tests/on_device/simulated on the GPU that is here and on the simulated device of the same kind, and
compares peaks, reserved bytes and the allocator's events one by one; measures what the context, the libraries and their
workspaces take. --save writes results/<date>-<GPU>.json and, from all such files, the tables in findings.md
and docs/limits.md.

Start it with a Python that has a CUDA build of PyTorch (.venv-cuda/bin/python after `make test`), in the root of the
source tree, on a GPU that nobody else uses.

Exit codes: 0 all equal; 1 something differs, or a program failed; 2 wrong usage; 77 there is no GPU here, or none that
a profile is like, so nothing was compared.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from evidence.gpu import tables
from evidence.gpu.compare import Comparison, compare
from tests.on_device.simulated import device
from tests.on_device.simulated.programs import PROGRAMS, Program
from tests.results import json_text

NO_GPU = 77
# What a device's name must match for a profile of the simulator to be of its kind.
KINDS = {
    "h100": r"H100",
    "h200": r"\bH200",
    "gh200": r"\bGH200",
    "b200": r"\bB200",
    "gb10": r"\bGB10\b",
    "a100-40gb": r"A100.*40\s?GB",
    "a100-80gb": r"A100.*80\s?GB",
    "a10g": r"\bA10G\b",
    "a40": r"\bA40\b",
    "a6000": r"RTX A6000\b",
    "l4": r"\bL4\b",
    "l40s": r"\bL40S\b",
    "rtx4090": r"RTX 4090\b(?! D)",
    "rtx3090": r"RTX 3090\b(?! Ti)",
    "rtx3060": r"RTX 3060\b(?! Ti| Laptop)",
    "rtx5090": r"RTX 5090\b(?! D| Laptop)",
    "t4": r"\bT4\b",
    "v100-16gb": r"V100.*16\s?GB",
    "v100-32gb": r"V100.*32\s?GB",
}
ASK = """
import json, torch
if torch.version.cuda is None:
    raise SystemExit(f"torch {torch.__version__} is a CPU build; start this with one for CUDA")
found = None
if torch.cuda.is_available():
    p = torch.cuda.get_device_properties(0)
    found = {"name": p.name, "total": p.total_memory, "capability": f"{p.major}.{p.minor}"}
    found["count"] = torch.cuda.device_count()
print(json.dumps(found))
"""


class Failed(Exception):
    """A child failed; the text says which and why."""


def child(environment: dict[str, str], *arguments: str) -> Any:
    """What this Python prints last with these arguments, as JSON."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUPTIMEM", "PYTORCH_"))}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env={**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tables.ROOT), **environment},
        cwd=tables.ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Failed(f"{' '.join(arguments[:3]).splitlines()[0]}: exit {done.returncode}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def profile_of(name: str) -> str | None:
    return next((key for key, pattern in KINDS.items() if re.search(pattern, name)), None)


def comparable(program: Program, devices: int, stand_in: bool) -> str:
    """Why it cannot be compared here; "" if it can."""
    if program.devices > devices:
        return f"needs {program.devices} GPUs"
    if not program.anywhere and not stand_in:
        return "behaves as the device is large"
    return ""


def run(program: Program, real: dict[str, str], simulated: dict[str, str]) -> tuple[Comparison, bool]:
    facts = [
        child({**side, **program.environment}, "-m", "evidence.gpu.facts", program.name) for side in (real, simulated)
    ]
    return compare(facts[0], facts[1], ordered=program.ordered), program.ordered


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.gpu.compare_real", description=__doc__.split("\n\n")[1])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all where none is named")
    parser.add_argument("--profile", help="compare with this one of the simulator, not with the one of the GPU's name")
    parser.add_argument("--save", action="store_true", help="write results/<date>-<GPU>.json and the tables")
    stand_in = "for tests of this script: a simulated device in the place of the real one"
    parser.add_argument("--stand-in", metavar="PROFILE", help=stand_in)
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in PROGRAMS]:
        parser.error(f"no program {unknown[0]!r}; there are: {', '.join(PROGRAMS)}")
    if arguments.save and (arguments.stand_in or arguments.names):
        parser.error("--save takes a real GPU and all programs")
    real = device.environment(device=arguments.stand_in, devices=2) if arguments.stand_in else {}
    try:
        gpu = child(real, "-c", ASK)
        if gpu is None:
            print("There is no GPU here: nothing was compared, the tables say what was measured elsewhere.")
            return NO_GPU
        profile = arguments.profile or profile_of(gpu["name"])
        if profile is None:
            print(f"No profile of the simulator is like {gpu['name']}: nothing was compared. --profile names one.")
            return NO_GPU
        simulated = device.environment(device=profile, devices=gpu["count"], memory=str(gpu["total"]))
        return compare_all(arguments, gpu, profile, real, simulated)
    except Failed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1


def compare_all(
    arguments: argparse.Namespace, gpu: dict[str, Any], profile: str, real: dict[str, str], simulated: dict[str, str]
) -> int:
    print(f"{gpu['name']}, {gpu['total']} bytes, against the simulated {profile}")
    rows, equal = [], True
    for name in arguments.names or PROGRAMS:
        program = PROGRAMS[name]
        if why := comparable(program, gpu["count"], bool(arguments.stand_in)):
            print(f"  {name:20} not compared: {why}")
            continue
        found, ordered = run(program, real, simulated)
        difference = found.first_event or found.first_checkpoint
        if ordered:
            equal &= found.equal
        said = "not comparable event by event" if not ordered else difference or f"equal, {found.events} events"
        print(f"  {name:20} {said}", flush=True)
        rows.append({**asdict(found), "ordered": ordered})
    measured = child(real, "-m", "evidence.gpu.measure")
    modelled = child(simulated, "-m", "evidence.gpu.measure")
    for kind in ("beyond", "workspaces"):
        for name, size in measured[kind].items():
            print(f"  {name:24} {size:>14,} bytes, simulated {modelled[kind].get(name, 0):,}")
    if arguments.save:
        date = datetime.date.today().isoformat()
        tables.RESULTS.mkdir(parents=True, exist_ok=True)
        path = tables.RESULTS / f"{date}-{re.sub(r'[^a-z0-9]+', '-', gpu['name'].lower()).strip('-')}.json"
        result = {
            "date": date,
            "device": gpu,
            "profile": profile,
            "torch": measured["torch"],
            "measured": measured,
            "simulated": modelled,
            "comparisons": rows,
        }
        path.write_text(json_text(result))
        tables.write()
        print(f"written: {path.relative_to(tables.ROOT)}, {tables.FINDINGS.name}, {tables.LIMITS.name}")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
