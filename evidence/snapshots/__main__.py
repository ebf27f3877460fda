"""python -m evidence.snapshots [SETTING ...] [--program NAME ...] [--save]

Runs each program of programs.py in each setting of settings.py under cuptimem and under PyTorch's own recorder at once,
and compares the two recordings. Needs a PyTorch for CUDA; the device is the simulated one. --save writes
results/<date>-torch-<version>.md. CUPTIMEM_CUDA_PYTHON names an interpreter with another PyTorch. Exit code 1: they
differ somewhere.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from evidence.snapshots.settings import SETTINGS, Setting
from tests.conftest import ROOT, clean_environment
from tests.on_device.simulated import device

PROGRAMS = ("holes", "training", "streams", "refusals", "pools")
RESULTS = Path(__file__).with_name("results")
MEMORY = "24GiB"
CHECKS = {
    "peaks": "allocated and reserved at most and at the end, and requests refused: trace and reading, each against "
    "`memory_stats()`",
    "live bytes": "every event of a block and the sums behind it: trace, reading and the snapshot's history",
    "contributors": "bytes and blocks by the stack that made them, at the peak and at the end: trace and reading; at "
    "the end the snapshot's blocks, too",
    "segments": "at the peak, when refused and at the end: sizes, gaps, ranges, blocks and the largest free piece of "
    "each, and what could go back: trace and reading; at the end the snapshot's segments, too",
    "_memory_viz": "what PyTorch's own `_memory_viz.memory` says is alive, by innermost frame, and the sum of all "
    "segments",
}


@dataclass
class Run:
    setting: Setting
    program: str
    differences: dict[str, list[str]] | None = None  # None: there is no snapshot
    counts: dict[str, int] = field(default_factory=dict)
    refused: str = ""
    unknown: str = ""
    torch: str = ""


def run(setting: Setting, program: str) -> Run:
    """AssertionError where the program failed."""
    with tempfile.TemporaryDirectory(prefix="snapshots-") as name:
        folder = Path(name)
        environment = {
            **clean_environment(),
            **device.environment(memory=MEMORY),
            **setting.environment,
            "PYTHONPATH": str(ROOT),
        }

        def call(module: str, *arguments: str) -> str:
            command = [device.interpreter(), "-W", "ignore", "-m", f"evidence.snapshots.{module}", *arguments]
            done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, f"{program} in {setting.name}: exit {done.returncode}\n{done.stderr[-2000:]}"
            return done.stdout

        call("run", program, name)
        if (unknown := folder / "unknown.txt").exists():
            return Run(setting, program, unknown=unknown.read_text())
        version = json.loads((folder / "stats.json").read_text())["torch"]
        refused = folder / "refused.txt"
        if refused.exists():
            return Run(setting, program, refused=refused.read_text(), torch=version)
        return Run(setting, program, **json.loads(call("compare", name)), torch=version)


def page(runs: list[Run]) -> str:
    compared = [one for one in runs if one.differences is not None]
    settings = {one.setting.name for one in compared}
    versions = ", ".join(sorted({one.torch for one in runs} - {""}))
    lines = [
        f"# One run, recorded twice: {datetime.date.today().isoformat()}",
        "",
        f"`python -m evidence.snapshots --save`, Python {platform.python_version()}, torch {versions} on a simulated "
        f"H100 of {MEMORY}. {len({one.program for one in runs})} programs in {len(settings)} settings of the "
        "allocator, each run once, with cuptimem and PyTorch's recorder (`_record_memory_history`, `_dump_snapshot`) "
        "on. *Trace* is cuptimem's recording, *reading* is the snapshot opened by cuptimem. Equal means: to the byte, "
        "without exception.",
        "",
        "| check | what is equal | compared | differ |",
        "|---|---|---|---|",
    ]
    for check, what in CHECKS.items():
        counted = sum(one.counts.get(check, 0) for one in compared)
        differ = sum(len((one.differences or {}).get(check, ())) for one in compared)
        lines.append(f"| {check} | {what} | {counted:,} | {differ} |")
    programs = list(dict.fromkeys(one.program for one in runs))
    lines += ["", "Differences by setting and program:", "", "| setting | conf | " + " | ".join(programs) + " |"]
    lines.append("|---|---|" + "---|" * len(programs))
    for setting in dict.fromkeys(one.setting for one in runs):
        cells = [_cell(one) for one in runs if one.setting == setting]
        cells += ["-"] * (len(programs) - len(cells))
        lines.append(f"| {setting.name} | `{setting.conf or '-'}` | " + " | ".join(cells) + " |")
    for one in runs:
        if one.refused:
            lines += ["", f"PyTorch refuses a snapshot in *{one.setting.name}*: {one.refused}"]
        if one.unknown:
            lines += ["", f"This PyTorch does not know *{one.setting.name}*: {one.unknown}"]
    rows = [
        f"- {one.setting.name}, {one.program}, {check}: {text}"
        for one in compared
        for check, differences in (one.differences or {}).items()
        for text in differences[:10]
    ]
    return "\n".join([*lines, *([""] if rows else []), *rows]) + "\n"


def _cell(one: Run) -> str:
    if one.unknown:
        return "unknown"
    return "refused" if one.differences is None else str(sum(map(len, one.differences.values())))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.snapshots", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SETTING")
    parser.add_argument("--program", action="append", choices=PROGRAMS, metavar="NAME")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    if options.save and (options.names or options.program):
        parser.error("--save is for all of them")
    unknown = set(options.names) - {setting.name for setting in SETTINGS}
    if unknown:
        parser.error(f"no setting {', '.join(sorted(unknown))}")
    runs = []
    for setting in SETTINGS:
        if options.names and setting.name not in options.names:
            continue
        # Of one that has no snapshot, one program shows that.
        for program in options.program or PROGRAMS[: 1 if setting.refused else None]:
            runs.append(run(setting, program))
            print(f"{setting.name}, {program}: {_cell(runs[-1])}", file=sys.stderr, flush=True)
            if runs[-1].unknown:
                break
    text = page(runs)
    if options.save:
        RESULTS.mkdir(exist_ok=True)
        version = runs[0].torch.partition("+")[0]
        target = RESULTS / f"{datetime.date.today().isoformat()}-torch-{version}.md"
        target.write_text(text)
        print(f"wrote {target.relative_to(ROOT)}")
    else:
        print(text)
    wrong = any(any(one.differences.values()) for one in runs if one.differences is not None)
    wrong = wrong or any(bool(one.refused) != one.setting.refused for one in runs if not one.unknown)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
