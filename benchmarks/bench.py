"""The benchmarks themselves: each runs its processes and returns rows and verdicts."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import driver as driver_level
from benchmarks import exports as export_costs
from benchmarks import holders as holder_costs
from benchmarks import host as host_costs
from benchmarks import live as live_costs
from benchmarks import pages as timeline_pages
from benchmarks import pauses as pause_costs
from benchmarks import simulated
from benchmarks import steady as steady_costs
from benchmarks.deadline import left
from benchmarks.measure import Spread, paired, spread
from benchmarks.promises import PROMISES, Verdict
from benchmarks.worker import BARE_AGAIN, CALLBACK, LOGGED, MODES
from benchmarks.workloads import QUICK, SIZES

ROOT = Path(__file__).resolve().parents[1]
REPORT_STEPS = 115  # of the GPT workload: 100,000 allocations; torch.profiler takes 5 GiB for that


@dataclass
class Outcome:
    """rows: a dict each, "benchmark" and "what" first; spreads under their names."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


class Failed(Exception):
    """A process of a benchmark failed, or had no time left; the text says which and why."""


def child(
    module: str,
    *arguments: object,
    python_options: tuple[str, ...] = (),
    python: Path | str = sys.executable,
    more: Mapping[str, str] | None = None,
) -> Any:
    """Runs python -m module in a process with one thread for arithmetic; returns the JSON it prints last."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment.update(more or {})
    environment.pop("CUPTIMEM", None)
    command = [str(python), *python_options, "-W", "ignore", "-m", module, *map(str, arguments)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=left())
    except subprocess.TimeoutExpired:
        raise Failed(f"{module} {' '.join(map(str, arguments))}: no time was left") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Failed(f"{module} {' '.join(map(str, arguments))}: exit {done.returncode}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def percent(ratio: Spread) -> tuple[float, tuple[float, float]]:
    return (ratio.median - 1) * 100, ((ratio.low - 1) * 100, (ratio.high - 1) * 100)


def workload(name: str, quick: bool) -> Outcome:
    """Bare, cuptimem and its peers in turn."""
    steps, rounds = (QUICK if quick else SIZES)[name]
    modes = [mode for mode in MODES if mode != "memray" or installed("memray")]
    found = child("benchmarks.worker", name, steps, rounds, *modes)
    out = Outcome()
    for mode in modes:
        times = found["times"][mode]
        row: dict[str, Any] = {"benchmark": name, "what": mode, "unit": "s", "step": spread(times["step"]).to_dict()}
        if mode != "bare":
            base = found["times"]["bare"]
            row["ratio"] = paired(times["step"], base["step"], ratio=True).to_dict()
            row["cpu_ratio"] = paired(times["cpu"], base["cpu"], ratio=True).to_dict()
            row["added_s"] = paired(times["step"], base["step"], ratio=False).to_dict()
            if mode in found["disk"]:  # the others keep what they record in memory
                row["disk_bytes_per_step"] = round(found["disk"][mode] / (steps + 1))
        out.rows.append(row)
    if "memray" not in modes:
        out.rows.append({"benchmark": name, "what": "memray", "why": "not installed: python -m benchmarks --setup"})
    ours, base = found["times"]["cuptimem"]["step"], found["times"]["bare"]["step"]
    if name == "micro":
        added = paired(ours, base, ratio=False)
        out.verdicts.append(Verdict(PROMISES["micro"], added.median * 1e9, (added.low * 1e9, added.high * 1e9)))
    else:
        promise = PROMISES["worst" if name == "small_step" else "realistic"]
        measured, between = percent(paired(ours, base, ratio=True))
        out.verdicts.append(Verdict(promise, measured, between, why=name))
    return out


def steady(quick: bool) -> Outcome:
    """One recording of a step that is all Python, and one of a real one: the first 20 seconds, and what follows."""
    out = Outcome()
    for name, before, step_promise, cpu_promise in (
        ("small_step", "", "steady", "steady-cpu"),
        ("gpt", "gpt, ", "steady-gpt", "steady-gpt-cpu"),
    ):
        found = steady_costs.measured(name, ("bare", "cuptimem", BARE_AGAIN), 2 if quick else 2 * steady_costs.FIRST)
        for part in steady_costs.PARTS:
            if not found["bare"][part]:
                continue
            base = {key: [block[key] for block in found["bare"][part]] for key in ("step", "cpu")}
            row = {"benchmark": "steady", "unit": "s"}
            out.rows.append({**row, "what": f"{before}bare, {part}", "step": spread(base["step"]).to_dict()})
            for mode in ("cuptimem", BARE_AGAIN):
                its = {key: [block[key] for block in found[mode][part]] for key in ("step", "cpu")}
                ratio, cpu = (paired(its[key], base[key], ratio=True) for key in ("step", "cpu"))
                ratios = {"ratio": ratio.to_dict(), "cpu_ratio": cpu.to_dict()}
                what = f"{before}{mode}, {part}"
                out.rows.append({**row, "what": what, "step": spread(its["step"]).to_dict(), **ratios})
                if mode == "cuptimem":
                    out.verdicts.append(Verdict(PROMISES[step_promise], *percent(ratio), why=part))
                    out.verdicts.append(Verdict(PROMISES[cpu_promise], cpu.median, (cpu.low, cpu.high), why=part))
    return out


def size(quick: bool) -> Outcome:
    """Bytes on disk for each allocation or free, of a million or more."""
    found = child("benchmarks.probes", "size", 10_000 if quick else 1_000_000)
    each = found["bytes"] / found["recorded"]
    row = {"benchmark": "size", "what": "training step", "unit": "bytes", **found, "per_event": round(each, 3)}
    return Outcome([row], [Verdict(PROMISES["size"], each)])


def opened(folder: str, events: int, on: str, rounds: int) -> tuple[dict[str, Any], dict[str, Any], Spread]:
    """What was written of a synthetic trace, the row of opening it in fresh processes, and the seconds."""
    path = os.path.join(folder, f"{on}-{events}.cmem")
    truth = child("benchmarks.probes", "synthetic", path, events, on)
    runs = [child("benchmarks.probes", "analyse", path) for _ in range(rounds)]
    os.unlink(path)
    for run in runs:
        for key in ("events", "peak_bytes", "segments"):
            if run[key] != truth[key]:
                raise Failed(f"{events} events, {on}: {key} {run[key]}, but {truth[key]} was written")
        if (run["residuals"] == []) != (on == "cpu") or any(run["residuals"]):
            raise Failed(f"{events} events, {on}: ledgers leave {run['residuals']}, but all was accounted for")
    seconds = spread([r["seconds"] for r in runs])
    row = {
        "benchmark": "analysis",
        "what": f"{events:,} events",
        "unit": "s",
        "step": seconds.to_dict(),
        "peak_mib": round(spread([r["peak_mib"] for r in runs]).median, 1),
        "added_mib": round(spread([r["added_mib"] for r in runs]).median, 1),
        "steps": truth["steps"],
        "file_mib": round(truth["file_bytes"] / 2**20, 1),
        "events_per_s": round(truth["events"] / seconds.median),
    }
    return truth, row, seconds


def analysis(quick: bool) -> Outcome:
    """Opening 10 and 100 million synthetic events in fresh processes."""
    sizes = (100_000, 1_000_000) if quick else (10_000_000, 100_000_000)
    out, medians = Outcome(), []
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
        for events in sizes:
            truth, row, seconds = opened(folder, events, "cpu", 1 if quick or events > 10**7 else 5)
            medians.append((seconds.median / truth["events"], row["peak_mib"], truth["steps"], seconds))
            out.rows.append(row)
    (first_each, first_memory, first_steps, first), (second_each, second_memory, second_steps, _) = medians
    out.verdicts = [
        Verdict(PROMISES["open-10m"], first.median, (first.low, first.high)),
        Verdict(PROMISES["linear"], 10 * second_each / first_each),
        Verdict(PROMISES["bounded"], (second_memory - first_memory) * 1024 / (second_steps - first_steps)),
    ]
    return out


def windows(quick: bool) -> Outcome:
    """A thousand windows of one capture, which is what a test suite asks for."""
    events, count = (200_000, 50) if quick else (10_000_000, 1000)
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
        path = os.path.join(folder, "a.cmem")
        runs = [child("benchmarks.probes", "windows", path, events, count) for _ in range(1 if quick else 5)]
    for run in runs:
        if len(set(run["allocations"])) > 1:
            raise Failed(f"{count} windows: allocations {run['allocations']} (written, in all, in the windows) differ")
    ratio = spread([run["windows_s"] / run["whole_s"] for run in runs])
    row = {
        "benchmark": "windows",
        "what": f"{count:,} windows of {events:,} events",
        "unit": "s",
        "step": spread([run["windows_s"] for run in runs]).to_dict(),
        "whole": spread([run["whole_s"] for run in runs]).to_dict(),
        "ratio": ratio.to_dict(),
        "decoded": round(runs[0]["decoded"] / runs[0]["events"], 4),
    }
    return Outcome([row], [Verdict(PROMISES["windows"], ratio.median, (ratio.low, ratio.high))])


def tensorboard(quick: bool) -> Outcome:
    """What TensorBoard's handler adds at the end of a cycle."""
    if not installed("tensorboard"):
        why = "the package tensorboard is not installed"
        row = {"benchmark": "tensorboard", "what": "handler", "why": why}
        return Outcome([row], [Verdict(PROMISES["tensorboard"], None, why=why)])
    out = Outcome()
    for events in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000):
        runs = []
        for _ in range(1 if quick else 5):
            with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
                runs.append(child("benchmarks.probes", "tensorboard", folder, events))
        took = spread([run["s"] for run in runs])
        steps, kib = runs[0]["steps"], runs[0]["bytes"] >> 10
        what = f"cycle of {events:,} events, {steps} steps, files of {kib} KiB"
        out.rows.append({"benchmark": "tensorboard", "what": what, "unit": "s", "step": took.to_dict()})
    measured = None if quick else took.median
    why = "--quick" if quick else ""
    out.verdicts.append(Verdict(PROMISES["tensorboard"], measured, None if quick else (took.low, took.high), why))
    return out


# Synthetic traces with a driver level (benchmarks/synthetic.h).
DRIVER_TRACES = {"cuda": "driver level", "scattered": "driver level, 1,000 segments at random"}


def analysis_driver(quick: bool) -> Outcome:
    """Opening 10 million events of a CUDA device with a driver level: of a training, and in the worst order."""
    out, worst = Outcome(), None
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
        for on, what in DRIVER_TRACES.items():
            _, row, seconds = opened(folder, 100_000 if quick else 10_000_000, on, 1 if quick else 5)
            out.rows.append(row | {"benchmark": "analysis_driver", "what": f"{row['what']}, {what}"})
            if worst is None or seconds.median > worst[0].median:
                worst = seconds, what
    assert worst is not None
    seconds, what = worst
    out.verdicts = [Verdict(PROMISES["open-10m-driver"], seconds.median, (seconds.low, seconds.high), why=what)]
    return out


# What a user runs afterwards, as Python modules: {trace} is the recording, {out} a file that does not exist.
REPORTS = {
    "cuptimem": {"summary": ["cuptimem", "summary", "{trace}"], "peak": ["cuptimem", "peak", "{trace}"]},
    "memray": {
        "stats": ["memray", "stats", "{trace}"],
        "table": ["memray", "table", "-o", "{out}", "{trace}"],
        "flamegraph": ["memray", "flamegraph", "-o", "{out}", "{trace}"],
    },
}


def report(quick: bool) -> Outcome:
    """The same training recorded by each: seconds from there to its report on the screen or in a file, and the file.

    cuptimem and memray report in a command of their own, timed whole. torch.profiler reports in the training process.
    """
    steps, rounds = (2, 1) if quick else (REPORT_STEPS, 5)
    out = Outcome()
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
        peers = [peer for peer in REPORTS if installed(peer)]
        recorded = {peer: child("benchmarks.probes", "record", peer, folder, steps) for peer in peers}
        times: dict[tuple[str, str], list[float]] = {}
        for number in range(rounds):
            for peer in peers:
                for verb, words in REPORTS[peer].items():
                    target = os.path.join(folder, f"{verb}.{number}.html")
                    filled = [word.format(trace=recorded[peer]["file"], out=target) for word in words]
                    times.setdefault((peer, verb), []).append(command_seconds(folder, *filled))
        theirs = child("benchmarks.probes", "record", "torch.profiler", folder, steps)  # once: it takes a minute
        recorded["torch.profiler"] = theirs
        for verb, took in theirs["reports"].items():
            times["torch.profiler", verb] = [took]
    for (peer, verb), values in times.items():
        found = recorded[peer]
        out.rows.append(
            {
                "benchmark": "report",
                "what": f"{peer} {verb}",
                "unit": "s",
                "step": spread(values).to_dict(),
                "stop_s": round(found["stop_s"], 4),
                "recording_mib": round(found["bytes"] / 2**20, 2),
                "allocations": recorded["cuptimem"]["allocations"],
                "steps": steps,
            }
        )
    if "memray" not in peers:
        out.rows.append({"benchmark": "report", "what": "memray", "why": "not installed: python -m benchmarks --setup"})
    return out


def command_seconds(folder: str, *words: str) -> float:
    """How long python -m words takes, from its start to its end. folder: keeps byte code, which an installed package
    has and a tree of sources may lack: the first of several is slow."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
    begin = time.perf_counter()
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=left())
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise Failed(f"{' '.join(words[:2])}: exit {done.returncode}: {(done.stderr.strip() or '-').splitlines()[-1]}")
    return seconds


def resident(quick: bool) -> Outcome:
    """What the profiler adds to the process's resident memory, against the same threads without it."""
    out = Outcome()
    for threads in (1, 200):
        pairs = [
            [child("benchmarks.probes", "resident", threads, on) for on in (0, 1)] for _ in range(1 if quick else 5)
        ]
        added = spread([on["added_mib"] - off["added_mib"] for off, on in pairs])
        live = pairs[0][1]["live"]
        row = {"benchmark": "resident", "what": f"{threads} threads", "unit": "MiB", "step": added.to_dict()}
        out.rows.append({**row, "own_mib": round(pairs[0][1]["own_mib"], 1), "live_blocks": live})
        beyond = max(added.median, pairs[0][1]["own_mib"]) - 32 * live / 2**20
        out.verdicts.append(Verdict(PROMISES[f"resident-{threads}"], beyond))
    return out


def stopped(quick: bool) -> Outcome:
    """The micro-loop in processes that have recorded and stopped, and in processes that never did."""
    cases = {"never recorded, never a second thread": (0, 0), "never recorded": (0, 1), "after stop": (3, 1)}
    times: dict[str, list[float]] = {what: [] for what in cases}
    for _ in range(1 if quick else 11):
        for what, case in cases.items():
            times[what].append(child("benchmarks.probes", "stopped", *case)["ns"])
    added = paired(times["after stop"], times["never recorded"], ratio=False)
    spreads = {**{what: spread(values) for what, values in times.items()}, "added": added}
    rows = [{"benchmark": "stopped", "what": what, "unit": "ns", "step": s.to_dict()} for what, s in spreads.items()]
    return Outcome(rows, [Verdict(PROMISES["stopped"], added.median, (added.low, added.high))])


def imports(quick: bool) -> Outcome:
    """Starting Python with and without import cuptimem."""

    def start(code: str) -> float:
        begin = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=ROOT)
        return (time.perf_counter() - begin) * 1000

    start("import cuptimem; cuptimem.profile")  # writes the bytecode files
    out = Outcome()
    nothing: list[float] = []
    only: list[float] = []
    used: list[float] = []
    for _ in range(3 if quick else 25):
        nothing.append(start("pass"))
        only.append(start("import cuptimem"))
        used.append(start("import cuptimem; cuptimem.profile"))
    for what, values in (("import cuptimem", only), ("import cuptimem; cuptimem.profile", used)):
        added = paired(values, nothing, ratio=False)
        out.rows.append({"benchmark": "import", "what": what, "unit": "ms", "step": added.to_dict()})
    heavier = paired(used, nothing, ratio=False)  # the name that people import it for
    out.verdicts.append(Verdict(PROMISES["import"], heavier.median, (heavier.low, heavier.high)))
    return out


CUDA_PYTHON = Path(os.environ.get("CUPTIMEM_CUDA_PYTHON") or ROOT / ".venv-cuda" / "bin" / "python")
NO_CUDA = "no .venv-cuda with PyTorch's CUDA build: make test makes it"


def on_device(module: str, *arguments: object, more: Mapping[str, str] | None = None) -> Any:
    """As child, in .venv-cuda on the simulated device."""
    import cudasim

    device = {**cudasim.variables(), "CUPTIMEM_SIM_DEVICE": "h100"}
    return child(module, *arguments, python=CUDA_PYTHON, more={**device, **(more or {})})


def against_recorder(benchmark: str, name: str, what: str, quick: bool) -> tuple[Outcome, dict[str, Spread]]:
    """A workload bare, under cuptimem and under PyTorch's own recorder in its modes, in turn; what each adds."""
    modes = ["bare", "empty client", "cuptimem without driver", "cuptimem", *simulated.RECORDER]
    steps, rounds = (simulated.QUICK if quick else simulated.SIZES)[name]
    times = on_device("benchmarks.worker", name, steps, rounds, *modes)["times"]
    out, added = Outcome(), {}
    for mode in modes:
        label = f"recorder {mode}" if mode in simulated.RECORDER else mode
        row: dict[str, Any] = {"benchmark": benchmark, "what": f"{what}{label}", "unit": "s"}
        row["step"] = spread(times[mode]["step"]).to_dict()
        if mode != "bare":
            added[mode] = paired(times[mode]["step"], times["bare"]["step"], ratio=False)
            row["ratio"] = paired(times[mode]["step"], times["bare"]["step"], ratio=True).to_dict()
            row["cpu_ratio"] = paired(times[mode]["cpu"], times["bare"]["cpu"], ratio=True).to_dict()
            row["added_s"] = added[mode].to_dict()
        out.rows.append(row)
    # What the simulated device takes to be a CUPTI is none of the recorder's cost.
    added["cuptimem"] = paired(times["cuptimem"]["step"], times["empty client"]["step"], ratio=False)
    return out, added


def without_cuda(name: str, *promises: str) -> Outcome:
    verdicts = [Verdict(PROMISES[key], None, why=NO_CUDA) for key in promises]
    return Outcome([{"benchmark": name, "what": "all", "why": NO_CUDA}], verdicts)


def cuda(quick: bool) -> Outcome:
    """An allocation with its free on the simulated device, at several depths: cuptimem and PyTorch's own recorder."""
    if not CUDA_PYTHON.exists():
        return without_cuda("cuda", "cuda-pair", "recorder-default", "recorder-cheapest")
    out = Outcome()
    for frames in simulated.DEPTHS:
        found, added = against_recorder("cuda", f"pairs_{frames}", f"{frames} frames, ", quick)
        out.rows += found.rows
        if frames == 30:
            ours = added["cuptimem"]
            spread_ns = (ours.low * 1e9, ours.high * 1e9)
            out.verdicts.append(Verdict(PROMISES["cuda-pair"], ours.median * 1e9, spread_ns))
            theirs = {mode: added[mode].median for mode in simulated.RECORDER}
            cheapest = min(theirs, key=lambda mode: theirs[mode])
            for key, mode in (("recorder-default", simulated.RECORDER_DEFAULT), ("recorder-cheapest", cheapest)):
                out.verdicts.append(Verdict(PROMISES[key], ours.median / theirs[mode] * 100, why=mode))
    return out


def _against_empty(what: str, quick: bool) -> tuple[Outcome, Spread]:
    """A memory call or a launch bare, under a CUPTI client that does nothing, and recorded; what each callback adds."""
    times, rounds = (500, 2) if quick else (5_000, 15)
    found = on_device("benchmarks.driver", what, times, rounds)
    out = Outcome()
    for mode in driver_level.MODES:
        seconds = [ns * 1e-9 for ns in found[mode]]
        row: dict[str, Any] = {"benchmark": "driver" if what != "launch" else "kernels", "what": f"{what}, {mode}"}
        row |= {"unit": "s", "step": spread(seconds).to_dict()}
        if mode != "bare":
            base = [ns * 1e-9 for ns in found["bare"]]
            row["ratio"] = paired(seconds, base, ratio=True).to_dict()
            row["added_s"] = paired(seconds, base, ratio=False).to_dict()
        out.rows.append(row)
    callbacks = driver_level.WHAT[what][2]
    each = {mode: [ns / callbacks for ns in found[mode]] for mode in driver_level.MODES}
    return out, paired(each["cuptimem"], each["empty client"], ratio=False)


def driver(quick: bool) -> Outcome:
    """cudaMalloc and cudaMallocAsync with their frees in C loops: what the driver level adds to each callback."""
    if not CUDA_PYTHON.exists():
        return without_cuda("driver", "driver-callback")
    out, worst = Outcome(), None
    for what in ("cudaMalloc", "cudaMallocAsync"):
        found, added = _against_empty(what, quick)
        out.rows += found.rows
        if worst is None or added.median > worst[0].median:
            worst = added, what
    assert worst is not None
    added, what = worst
    out.verdicts.append(Verdict(PROMISES["driver-callback"], added.median, (added.low, added.high), why=what))
    return out


def kernels(quick: bool) -> Outcome:
    """A launch with kernels recorded."""
    if not CUDA_PYTHON.exists():
        return without_cuda("kernels")
    return _against_empty("launch", quick)[0]


def _in_turn(benchmark: str, names: Sequence[str], modes: Sequence[str], quick: bool) -> tuple[Outcome, dict[str, Any]]:
    """Rows of each workload in each mode, the first of which is bare; and the times, by workload and mode."""
    out, times = Outcome(), {}
    for name in names:
        steps, rounds = (QUICK if quick else SIZES)[name]
        found = child("benchmarks.worker", name, steps, rounds, *modes)
        times[name] = found["times"]
        bare = found["times"][modes[0]]
        for mode in modes:
            here = found["times"][mode]
            row: dict[str, Any] = {"benchmark": benchmark, "what": f"{name}, {mode}", "unit": "s"}
            row["step"] = spread(here["step"]).to_dict()
            if here is not bare:
                row["ratio"] = paired(here["step"], bare["step"], ratio=True).to_dict()
                row["cpu_ratio"] = paired(here["cpu"], bare["cpu"], ratio=True).to_dict()
                row["added_s"] = paired(here["step"], bare["step"], ratio=False).to_dict()
                row["disk_bytes_per_step"] = round(found["disk"][mode] / (steps + 1))
            out.rows.append(row)
    return out, times


def operators(quick: bool) -> Outcome:
    """What the names of operators add: to an allocation with its free, and to steps of many small ones."""
    modes = ["bare", "cuptimem", "cuptimem with operators"]
    return _in_turn("operators", ("micro", "small_step"), modes, quick)[0]


def logged(quick: bool) -> Outcome:
    """What figures of each log add, which a callback of a trainer takes, too: to realistic steps, and to the worst."""
    out, times = _in_turn("logged", ("gpt", "small_step"), ["bare", "cuptimem", *LOGGED], quick)
    realistic = times["gpt"]
    for trainer, needed in (("trainer", ("transformers", "accelerate")), ("lightning", ("lightning",))):
        if all(map(installed, needed)):
            out.rows += _in_turn("logged", (trainer,), ["bare", CALLBACK], quick)[0].rows
        else:
            why = f"{' or '.join(needed)} is not installed: python -m benchmarks --setup"
            out.rows.append({"benchmark": "logged", "what": trainer, "why": why})
    ratio = paired(realistic["logged every 10 steps"]["step"], realistic["bare"]["step"], ratio=True)
    out.verdicts.append(Verdict(PROMISES["logged"], *percent(ratio)))
    return out


def driver_step(quick: bool) -> Outcome:
    """A training step of GPT-2 small's shape on the simulated device, with the driver level and without."""
    if not CUDA_PYTHON.exists():
        return without_cuda("driver_step", "driver-step")
    modes = ["bare", "empty client", "cuptimem without driver", "cuptimem", "cuptimem with kernels"]
    steps, rounds = (simulated.QUICK if quick else simulated.SIZES)["gpt2"]
    times = on_device("benchmarks.worker", "gpt2", steps, rounds, *modes)["times"]
    out = Outcome()
    for mode in modes:
        row: dict[str, Any] = {"benchmark": "driver_step", "what": mode, "unit": "s"}
        row["step"] = spread(times[mode]["step"]).to_dict()
        if mode != "bare":
            row["ratio"] = paired(times[mode]["step"], times["bare"]["step"], ratio=True).to_dict()
            row["cpu_ratio"] = paired(times[mode]["cpu"], times["bare"]["cpu"], ratio=True).to_dict()
        out.rows.append(row)
    on, off, client, bare = (
        times[mode]["step"] for mode in ("cuptimem", "cuptimem without driver", "empty client", "bare")
    )
    # Beyond what the simulated device takes to be a CUPTI.
    own = [here - empty + nothing for here, empty, nothing in zip(on, client, bare, strict=True)]
    measured, between = percent(paired(own, off, ratio=True))
    out.verdicts.append(Verdict(PROMISES["driver-step"], measured, between))
    return out


def cuda_gpt2(quick: bool) -> Outcome:
    """A training step of GPT-2 small's shape on the simulated device, whose kernels cost nothing."""
    if not CUDA_PYTHON.exists():
        return without_cuda("cuda_gpt2")
    return against_recorder("cuda_gpt2", "gpt2", "", quick)[0]


def simulator(quick: bool) -> Outcome:
    """How much of that step are the simulator's own entry points, and the process's resident memory."""
    if not CUDA_PYTHON.exists():
        return without_cuda("simulator", "entry-points", "simulated-resident")
    found = []
    for _ in range(1 if quick else 5):
        with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
            more = {"CUPTIMEM_SIM_TIMING": "1", "CUPTIMEM_SIM_REPORT": os.path.join(folder, "report")}
            found.append(on_device("benchmarks.probes", "entry_points", 3 if quick else 30, more=more))
    share, resident_mib = spread([f["share"] * 100 for f in found]), spread([f["resident_mib"] for f in found])
    step = spread([f["step_s"] for f in found])
    measured = (
        (f"entry points, {round(found[0]['calls']):,} calls a step", "%", share),
        ("resident memory", "MiB", resident_mib),
        ("step, timed", "s", step),
    )
    rows = [{"benchmark": "simulator", "what": what, "unit": unit, "step": s.to_dict()} for what, unit, s in measured]
    verdicts = [
        Verdict(PROMISES["entry-points"], share.median, (share.low, share.high)),
        Verdict(PROMISES["simulated-resident"], resident_mib.median, (resident_mib.low, resident_mib.high)),
    ]
    return Outcome(rows, verdicts)


def pages(quick: bool) -> Outcome:
    """Timeline pages: bytes and opening times, beside memory_viz."""
    why = timeline_pages.missing()
    if why:
        verdicts = [Verdict(PROMISES[key], None, why=why) for key in ("page-size", "page-open")]
        return Outcome([{"benchmark": "pages", "what": "all", "why": why}], verdicts)
    rows, found = timeline_pages.measured(quick)
    return Outcome(rows, timeline_pages.verdicts(found))


def exports(quick: bool) -> Outcome:
    """Exports: bytes, seconds of CPU and memory of each, each in a process of its own."""
    rows: list[dict[str, Any]] = []
    slowest = (0.0, "")
    for events in (10_000,) if quick else (1_000_000, 10_000_000):
        for kind, size, seconds, peak in export_costs.measured(events, ("reader", *export_costs.FORMATS)):
            unit = "tuples" if kind == "reader" else "bytes"
            what = f"{kind}, {events:,} events, {size:,} {unit}, {peak / 2**20:.0f} MiB of memory"
            rows.append({"benchmark": "exports", "what": what, "unit": "s", "step": spread([seconds]).to_dict()})
            slowest = max(slowest, (seconds, kind))
    measured, why = (None, "--quick") if quick else slowest
    return Outcome(rows, [Verdict(PROMISES["exports-10m"], measured, why=why)])


def holders(quick: bool) -> Outcome:
    """Seconds of CPU that the stop of a program takes, with and without the search for who holds what grows."""
    rows: list[dict[str, Any]] = []
    for what, searched, plain in holder_costs.measured(quick):
        for how, found in (("with the search", searched), ("without", plain)):
            step = spread(found).to_dict()
            rows.append({"benchmark": "holders", "what": f"{what}, {how}", "unit": "s", "step": step})
    return Outcome(rows)


def pauses(quick: bool) -> Outcome:
    """The longest steps of one program, bare and recorded, and the longest slice of each kind of walk, in CPU."""
    rows = [
        {"benchmark": "pauses", "what": what, "unit": "s", "step": spread(found).to_dict()}
        for what, found in pause_costs.measured(quick)
    ]
    return Outcome(rows)


def running(quick: bool) -> Outcome:
    """What looking at a running program costs: samples of the host's memory in it, the live view beside it, standby."""
    found = [*((what, "s", values) for what, values in host_costs.measured(quick)), *live_costs.measured(quick)]
    return Outcome(
        [
            {"benchmark": "running", "what": what, "unit": u, "step": spread(values).to_dict()}
            for what, u, values in found
        ]
    )


def _workload(name: str) -> Callable[[bool], Outcome]:
    def run(quick: bool) -> Outcome:
        if name == "transformers" and not installed("transformers"):
            why = "transformers is not installed: python -m benchmarks --setup"
            return Outcome([{"benchmark": name, "what": "all", "why": why}], [])
        return workload(name, quick)

    run.__doc__ = f"The workload {name}: {', '.join(MODES)}."
    return run


# Minutes each: only by name.
LONG = ("pages", "exports")
# In the order of their worth: what a run without names has no time for is at the end.
BENCHMARKS: dict[str, Callable[[bool], Outcome]] = {
    **{name: _workload(name) for name in SIZES if name != "trainer"},
    "cuda": cuda,
    "cuda_gpt2": cuda_gpt2,
    "steady": steady,
    "pauses": pauses,
    "report": report,
    "analysis": analysis,
    "windows": windows,
    "analysis_driver": analysis_driver,
    "import": imports,
    "size": size,
    "driver": driver,
    "driver_step": driver_step,
    "resident": resident,
    "stopped": stopped,
    "simulator": simulator,
    "holders": holders,
    "running": running,
    "operators": operators,
    "logged": logged,
    "kernels": kernels,
    "tensorboard": tensorboard,
    "pages": pages,
    "exports": exports,
}
