"""python -m evidence.gpu [NAME ...] [--save]

Asks the GPU that is here what CUPTI's documentation leaves open (evidence/gpu/checks.py) and compares with what
is expected. --save writes results/driver/<date>-<GPU>.json and, from all such files, the table in
evidence/gpu/findings.md.

Start it with a Python that has a CUDA build of PyTorch (.venv-cuda/bin/python after `make test`), in the root of the
source tree, on a GPU that nobody else uses; it needs gcc. python -m evidence.gpu.compare_real is the other half:
the allocator's events against the simulated device.

Exit codes: 0 all as expected; 1 something is not, or a check failed; 2 wrong usage; 77 there is no GPU here.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from evidence.gpu import tables
from evidence.gpu.checks import CHECKS, Check, clean_environment
from evidence.gpu.compare_real import ASK, NO_GPU, Failed, child
from tests.on_device.simulated import device

SOURCE = Path(__file__).with_name("cupti_facts.c")
LIMIT = 300  # seconds for one check: subscribing may take 15 on a busy GPU


def build(folder: Path) -> Path:
    program = folder / "cupti_facts"
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", str(SOURCE), "-o", str(program)]
    try:
        done = subprocess.run([*command, "-lpthread", "-ldl"], capture_output=True, text=True)
    except OSError as error:
        raise Failed(f"gcc is needed: {error}") from None
    if done.returncode != 0:
        raise Failed(f"{SOURCE.name} was not compiled: {done.stderr.strip().splitlines()[-1]}")
    return program


def libraries() -> tuple[str, str]:
    """CUPTI's and the runtime's files, of the wheels that this Python's PyTorch uses; else as the system finds them."""
    found = []
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or []) if spec else []
    for name in ("libcupti.so", "libcudart.so"):
        files = [file for place in places for file in sorted(Path(place).glob(f"*/lib/{name}.[0-9]*"))]
        found.append(str(files[-1]) if files else name)
    return found[0], found[1]


def ask(check: Check, program: Path, folder: Path, environment: dict[str, str], stand_in: bool) -> dict[str, Any]:
    """The facts. Failed where the process did."""
    if check.torch:
        where = folder / re.sub(r"\W", "_", check.key)
        where.mkdir()
        found: dict[str, Any] = child(
            {**environment, **check.environment}, "-m", "evidence.gpu.with_torch", check.name, str(where)
        )
        return found
    # The simulated device's functions are in the process from its start.
    paths = ("-", "-") if stand_in else libraries()
    try:
        done = subprocess.run(
            [program, check.name, *paths],
            env={**clean_environment(), **environment},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{check.key}: not done within {LIMIT} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        raise Failed(f"{check.key}: exit {done.returncode}: {last}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def judge_all(checks: list[Check], environment: dict[str, str], stand_in: bool) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="cuptimem-gpu-") as temporary:
        folder = Path(temporary)
        program = build(folder)
        for check in checks:
            row: dict[str, Any] = {"number": check.number, "check": check.key, "asks": check.asks}
            row["expects"] = check.expects
            try:
                facts = ask(check, program, folder, environment, stand_in)
                row |= {"facts": facts, "told": check.tells(facts), "differs": check.judge(facts)}
            except Failed as error:
                row |= {"facts": {}, "told": "failed", "differs": str(error)}
            rows.append(row)
            verdict = f"NOT AS EXPECTED: {row['differs']}" if row["differs"] else "as expected"
            print(f"{check.number:>3} {check.key:20} {verdict}\n      {row['told']}", flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.gpu", description=__doc__.split("\n\n")[1])
    keys = [check.key for check in CHECKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help="checks; all where none is named")
    parser.add_argument("--save", action="store_true", help="write results/driver/<date>-<GPU>.json and the table")
    stand_in = "for tests of this script: a simulated device in the place of the real one"
    parser.add_argument("--stand-in", metavar="PROFILE", help=stand_in)
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in keys]:
        parser.error(f"no check {unknown[0]!r}; there are: {', '.join(keys)}")
    if arguments.save and (arguments.stand_in or arguments.names):
        parser.error("--save takes a real GPU and all checks")
    environment = device.environment(device=arguments.stand_in) if arguments.stand_in else {}
    try:
        gpu = child(environment, "-c", ASK)
        if gpu is None:
            print("There is no GPU here: nothing was asked, the table says what was measured elsewhere.")
            return NO_GPU
        print(f"{gpu['name']}, {gpu['total']} bytes{', simulated' if arguments.stand_in else ''}")
        chosen = [check for check in CHECKS if not arguments.names or check.key in arguments.names]
        rows = judge_all(chosen, environment, bool(arguments.stand_in))
    except Failed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    if arguments.save:
        date = datetime.date.today().isoformat()
        path = tables.DRIVER_RESULTS / f"{date}-{re.sub(r'[^a-z0-9]+', '-', gpu['name'].lower()).strip('-')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"date": date, "device": gpu, "rows": rows}, indent=1) + "\n")
        tables.write()
        print(f"written: {path.relative_to(tables.ROOT)}, {tables.FINDINGS.name}")
    return 1 if any(row["differs"] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
