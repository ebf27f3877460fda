"""python -m evidence.accounts: runs every program on the CPU and the simulated device; writes
evidence/accounts/results/<date>.md.

Both accounts of a moment stand beside each other; a cell with one number says that they agree to the byte. Exit code 1
if one of them does not, 2 if a program failed.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence.accounts.names import NAMES
from evidence.accounts.runs import Runs, on_cpu, on_device
from tests.conftest import ROOT
from tests.on_device.simulated import device
from tests.on_device.simulated.conftest import MISSING

COLUMNS = (
    "parameter",
    "buffer",
    "gradient",
    "optimizer state",
    "input",
    "activation",
    "kept",
    "autocast cache",
    "temporary",
    "unknown",
)
MOMENTS = (
    ("after forward", "alive behind the last forward pass"),
    ("after backward", "alive behind the last backward pass"),
    ("end", "alive at the end"),
)
HEAD = """\
`make accounts`: {python}, {torches}.

Bytes by cuptimem's trace, against those that each program counts in its own objects
(`evidence/accounts/independent.py`), by unique storages. Where both agree to the byte a cell has one number, else
"cuptimem's / the program's". On CUDA, blocks are multiples of 512 bytes, and cuBLAS's workspaces are off. A program
of the package `transformers` runs only where that is installed; "GPT-2 as Hugging Face writes it" is written by
hand, with Conv1D, mask buffers and tied weights."""


def cell(said: int, own: int) -> str:
    return f"{said:,}" if said == own else f"**{said:,} / {own:,}**"


def table(found: dict[str, dict[str, Any]], moment: str) -> Iterator[str]:
    yield "| program | " + " | ".join(COLUMNS) + " | all |"
    yield "|---|" + "---:|" * (len(COLUMNS) + 1)
    for name, said in found.items():
        bytes_by, own = said[moment]["cuptimem"]["bytes"], said[moment]["independent"]["bytes"]
        cells = [cell(bytes_by.get(column, 0), own.get(column, 0)) for column in COLUMNS]
        yield f"| {name} | " + " | ".join([*cells, cell(said[moment]["cuptimem"]["total"], sum(own.values()))]) + " |"


def peaks(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield "| program | " + " | ".join(COLUMNS) + " | all | unknown |"
    yield "|---|" + "---:|" * (len(COLUMNS) + 2)
    for name, said in found.items():
        peak = said["peak"]["cuptimem"]
        cells = [f"{peak['bytes'].get(column, 0):,}" for column in COLUMNS]
        share = f"{peak['bytes'].get('unknown', 0) / peak['total']:.2%}"
        yield f"| {name} | " + " | ".join([*cells, f"{peak['total']:,}", share]) + " |"


def differences(found: dict[str, dict[str, Any]]) -> int:
    return sum("**" in line for moment, _ in MOMENTS for line in table(found, moment))


def run(runs: Runs, missing: list[str]) -> dict[str, dict[str, Any]]:
    found = {}
    for name in NAMES:
        said = runs.run("run.py", name, "windows")
        if "missing" in said:
            missing.append(f"{name} on {runs.kind}: {said['missing']}")
        else:
            found[name] = said
    runs.close()
    return found


def main() -> int:
    missing: list[str] = []
    devices = {"CPU": run(on_cpu(), missing)}
    if device.interpreter().exists():
        devices["simulated H100"] = run(on_device(str(device.interpreter())), missing)
    else:
        missing.append(MISSING)
    torches = ", ".join(f"PyTorch {next(iter(found.values()))['torch']} ({name})" for name, found in devices.items())
    today = time.strftime("%Y-%m-%d")
    lines = [f"# Accounts, {today}", "", HEAD.format(python=f"Python {platform.python_version()}", torches=torches), ""]
    for name, found in devices.items():
        lines += [f"## {name}: {len(found)} programs, {differences(found)} rows that differ", ""]
        for moment, words in MOMENTS:
            lines += [f"### {words[0].upper()}{words[1:]}", "", *table(found, moment), ""]
        lines += ["### At the peak, by cuptimem", "", *peaks(found), ""]
    lines += [f"- Not run: {line}" for line in missing]
    target = Path(__file__).parent / "results" / f"{today}.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(lines).rstrip() + "\n")
    print(f"wrote {target.relative_to(ROOT)}")
    return int(any(differences(found) for found in devices.values()))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AssertionError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
