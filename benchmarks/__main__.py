"""python -m benchmarks [NAME ...] [--minutes N] [--quick] [--json FILE] [--save] [--page FILE] [--setup]

Runs all benchmarks that the minutes suffice for, or those named, and prints a table with the promises kept or MISSED.
Times are medians; behind each is the 95 % interval of the median. A ratio compares neighbours: the same steps in the
same process and minute.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import page
from benchmarks.bench import BENCHMARKS, LONG, ROOT, Failed, Outcome, installed
from benchmarks.deadline import end_by, left

MINUTES = 20  # of a run without names
ENVIRONMENT = ROOT / ".venv-bench"


def version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "commit": commit,
        **{name: version_of(name) for name in ("torch", "memray", "transformers")},
    }


def amount(value: float, unit: str) -> str:
    if unit == "s":
        for scale, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
            if abs(value) >= scale or name == "ns":
                return f"{value / scale:.3g} {name}"
    return f"{value:.3g} {unit}"


def line(row: dict[str, Any]) -> list[str]:
    cells = [row["benchmark"], row["what"]]
    if "why" in row:
        return [*cells, row["why"], "", "", ""]
    if "step" in row:
        step, unit = row["step"], row["unit"]
        cells += [amount(step["median"], unit), f"{amount(step['low'], unit)} .. {amount(step['high'], unit)}"]
    else:
        cells += [f"{row['per_event']:.3g} bytes", f"{row['bytes']:,} bytes, {row['recorded']:,} events"]
    ratio, cpu = row.get("ratio"), row.get("cpu_ratio")
    if ratio and row["benchmark"] in ("micro", "cuda", "driver", "kernels", "operators"):
        added = row["added_s"]
        cells += [f"{ratio['median']:.3f} x", f"+{amount(added['median'], 's')}"]
    elif ratio and cpu:
        cells += [
            f"{ratio['median']:.3f} x ({ratio['low']:.3f} .. {ratio['high']:.3f})",
            f"CPU {cpu['median']:.3f} x",
        ]
    elif "whole" in row:
        cells += [f"{ratio['median']:.3f} x ({ratio['low']:.3f} .. {ratio['high']:.3f}) one reading"]
        cells += [f"decoded {row['decoded']:.2f} times"]
    elif "peak_mib" in row:
        cells += [f"{row['events_per_s']:,} events/s", f"peak {row['peak_mib']} MiB, file {row['file_mib']} MiB"]
    elif "stop_s" in row:
        cells += [f"{row['allocations']:,} allocations", f"recording {row['recording_mib']} MiB"]
        cells[-1] += f", stop {amount(row['stop_s'], 's')}"
    elif "own_mib" in row:
        cells += [f"own account {row['own_mib']} MiB", f"{row['live_blocks']:,} live blocks"]
    else:
        cells += ["", ""]
    return cells


def table(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def verdicts(outcomes: list[Outcome]) -> str:
    rows = [["promise", "limit", "measured", "", ""]]
    for verdict in (v for outcome in outcomes for v in outcome.verdicts):
        unit = verdict.promise.unit
        measured = "" if verdict.measured is None else f"{verdict.measured:.3g} {unit}"
        if verdict.spread is not None:
            measured += f" ({verdict.spread[0]:.3g} .. {verdict.spread[1]:.3g})"
        rows.append([verdict.promise.text, f"{verdict.promise.limit:g} {unit}", measured, verdict.word, verdict.why])
    return table(rows)


def set_up() -> int:
    """A virtual environment beside this one (whose packages it sees) with the peers to compare with."""
    if not (ENVIRONMENT / "bin" / "python").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    python = ENVIRONMENT / "bin" / "python"
    where = subprocess.check_output(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    )
    seen = [path for path in sys.path if path.endswith("site-packages")]
    (Path(where.strip()) / "parent.pth").write_text("".join(f"{path}\n" for path in seen))
    requirements = Path(__file__).with_name("requirements.txt")
    return subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)]).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n\n")[1])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--minutes", metavar="N", type=float, help=f"end by then (without names: {MINUTES})")
    parser.add_argument("--quick", action="store_true", help="the shape only, in less than a minute; judges nothing")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results there too")
    parser.add_argument("--save", action="store_true", help="write them to docs/bench/costs.json, and docs/costs.md")
    parser.add_argument("--page", metavar="FILE", type=Path, help="write docs/costs.md of that result; measure nothing")
    parser.add_argument("--setup", action="store_true", help="install the peers into .venv-bench, then stop")
    arguments = parser.parse_args()
    if arguments.setup:
        return set_up()
    if arguments.page:
        page.write(json.loads(arguments.page.read_text()))
        return 0
    if arguments.save and (arguments.names or arguments.quick):
        parser.error("the page is of one run of everything: --save goes with no NAME and not with --quick")
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    better = ENVIRONMENT / "bin" / "python"
    if (
        better.exists()
        and not (installed("memray") and installed("transformers"))
        and "CUPTIMEM_BENCH" not in os.environ
    ):
        os.environ["CUPTIMEM_BENCH"] = "1"
        os.execv(better, [str(better), "-m", "benchmarks", *sys.argv[1:]])
    outcomes: list[Outcome] = []
    broken: list[str] = []
    where = machine()
    minutes = arguments.minutes or (None if arguments.names else MINUTES)
    if minutes is not None:
        end_by(60 * minutes)
    for name in arguments.names or [name for name in BENCHMARKS if name not in LONG]:
        if left() == 0:
            broken.append(f"{name}: the {minutes:g} minutes were over")
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            outcome = BENCHMARKS[name](arguments.quick)
            if arguments.quick:  # too few rounds to judge by
                outcome.verdicts = [replace(v, measured=None, spread=None, why="quick run") for v in outcome.verdicts]
            outcomes.append(outcome)
        except subprocess.TimeoutExpired:
            broken.append(f"{name}: the {minutes:g} minutes were over while it ran")
        except (Failed, subprocess.SubprocessError, AssertionError) as error:  # the others go on
            broken.append(f"{name}: {str(error).strip().splitlines()[-1][-200:]}")
            print(f"  failed: {error}", file=sys.stderr, flush=True)
    where["load_after"] = os.getloadavg()[0]
    busy = where["load"] > 0.8 * (where["cores"] or 1)
    if busy:
        note = f"the machine was busy: load {where['load']:.1f} on {where['cores']} cores"
        for outcome in outcomes:
            outcome.verdicts = [replace(v, why=f"{v.why}; {note}" if v.why else note) for v in outcome.verdicts]
    result = {
        "schema": 1,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "quick": arguments.quick,
        "machine": where,
        "busy": busy,
        "rows": [row for outcome in outcomes for row in outcome.rows],
        "promises": [v.to_dict() for outcome in outcomes for v in outcome.verdicts],
        "failed": broken,
    }
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    if outcomes:
        header = ["benchmark", "what", "median", "95 % of the median", "against bare", ""]
        print("\n" + table([header, *[line(row) for outcome in outcomes for row in outcome.rows]]))
        print("\n" + verdicts(outcomes))
    for text in broken:
        print(f"failed: {text}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.save:
        page.write(result)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
