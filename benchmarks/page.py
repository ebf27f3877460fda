"""docs/costs.md: its table is made of one result, docs/bench/costs.json, and no figure in it is written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.steady import PARTS
from benchmarks.worker import BARE_AGAIN
from tests.results import json_text

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "costs.md"
RESULT = ROOT / "docs" / "bench" / "costs.json"
BEGIN = "<!-- measured: `make bench ARGS=--save` writes what follows -->\n"
END = "<!-- end of what is measured -->\n"
_BUSY = re.compile(r"(; |^)the machine was busy: .*$")  # said once, above the table
PEERS = ("memray", "torch.profiler", "tracemalloc", "PyTorch's recorder")

Result = Mapping[str, Any]


@dataclass
class Line:
    """A row of the table. values: what is compared, each for itself, less is better; texts: the same for people."""

    what: str
    values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    promise: Mapping[str, Any] | None = None

    @property
    def missed(self) -> bool:
        return self.promise is not None and self.promise["verdict"] == "MISSED"

    @property
    def lost(self) -> bool:
        """Another recorder does better, in one value at least."""
        ours = self.values.get("cuptimem", ())
        return any(its < own for theirs in self.values.values() for its, own in zip(theirs, ours, strict=False))


@dataclass(frozen=True)
class Compared:
    """Rows of one benchmark: what its rows are called for each recorder, and the promise's key and reason."""

    what: str
    benchmark: str
    as_time: bool  # what is added, else the share
    names: Mapping[str, str]
    promise: tuple[str, str] | None = None
    bare: str = "bare"


def _in_one_recording(before: str, promise: str) -> Iterator[Compared]:
    for part in PARTS:
        ours, bare = {"cuptimem": f"{before}cuptimem, {part}"}, f"{before}bare, {part}"
        yield Compared(f"... in one of 40 s, {part}", "steady", False, ours, (promise, part), bare)
        again = {"cuptimem": f"{before}{BARE_AGAIN}, {part}"}
        yield Compared(f"... a second process, bare as well, {part}", "steady", False, again, None, bare)


_HERE = {name: name for name in ("cuptimem", "memray", "torch.profiler", "tracemalloc")}
_DEVICE = {"cuptimem": "cuptimem", "PyTorch's recorder": "recorder all/all"}
COMPARED = (
    Compared("an allocation with its free, 30 frames deep", "micro", True, _HERE, ("micro", "")),
    Compared("a step that is all Python, in recordings of 0.2 s", "small_step", False, _HERE, ("worst", "small_step")),
    *_in_one_recording("", "steady"),
    Compared("a GPT step", "gpt", False, _HERE, ("realistic", "gpt")),
    *_in_one_recording("gpt, ", "steady-gpt"),
    Compared("a Hugging Face GPT-2 step", "transformers", False, _HERE, ("realistic", "transformers")),
    Compared("a ResNet step, two workers", "resnet", False, _HERE, ("realistic", "resnet")),
    Compared(
        "a simulated CUDA allocation with its free, 30 frames deep",
        "cuda",
        True,
        {who: f"30 frames, {name}" for who, name in _DEVICE.items()},
        bare="30 frames, bare",
    ),
    Compared("GPT-2 small's step on the simulated device, whose kernels cost nothing", "cuda_gpt2", False, _DEVICE),
)
REPORTS = {"cuptimem": "summary", "memray": "table", "torch.profiler": "table"}


def seconds(value: float) -> str:
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"


def _found(result: Result, benchmark: str, what: str) -> Mapping[str, Any] | None:
    rows = (row for row in result["rows"] if (row["benchmark"], row["what"]) == (benchmark, what))
    return next((row for row in rows if "why" not in row), None)


def _added(row: Mapping[str, Any], as_time: bool) -> tuple[tuple[float, ...], str]:
    if as_time:
        added = row["added_s"]
        low, high = seconds(added["low"]), seconds(added["high"])
        return (added["median"],), f"+{seconds(added['median'])} ({low} .. {high})"
    share = [(row["ratio"][key] - 1) * 100 for key in ("median", "low", "high")]
    text, cpu = f"{share[0]:+.1f} % ({share[1]:.1f} .. {share[2]:.1f})", row["cpu_ratio"]["median"]
    return (share[0], cpu), f"{text}, CPU {cpu:.2f} x"


def _verdict(result: Result, promise: tuple[str, str] | None) -> Mapping[str, Any] | None:
    for one in result["promises"]:
        if promise is not None and one["promise"] == promise[0] and one["why"].startswith(promise[1]):
            found: Mapping[str, Any] = one
            return found
    return None


def _compared(result: Result) -> Iterator[Line]:
    for one in COMPARED:
        line = Line(one.what, promise=_verdict(result, one.promise))
        bare = _found(result, one.benchmark, one.bare)
        if bare is not None:
            line.what += f" (bare {seconds(bare['step']['median'])})"
        for who, name in one.names.items():
            row = _found(result, one.benchmark, name)
            if row is not None:
                line.values[who], line.texts[who] = _added(row, one.as_time)
        if line.values:
            yield line


def _reports(result: Result) -> Iterator[Line]:
    stop, size = Line("stop and first report of {} allocations"), Line("... and their recording")
    for who, verb in REPORTS.items():
        row = _found(result, "report", f"{who} {verb}")
        if row is None:
            continue
        stop.what = stop.what.format(f"{row['allocations']:,}")
        stop.values[who] = (row["stop_s"], row["step"]["median"])
        stop.texts[who] = f"{seconds(row['stop_s'])} + {seconds(row['step']['median'])}"
        size.values[who], size.texts[who] = (row["recording_mib"],), f"{row['recording_mib']:.3g} MiB"
    yield from (line for line in (stop, size) if "cuptimem" in line.values)


def _promised(result: Result) -> Iterator[Line]:
    """What is compared with nothing but its promise."""
    shown = {one.promise[0] for one in COMPARED if one.promise is not None}
    for one in result["promises"]:
        if one["promise"] in shown or one["measured"] is None:
            continue
        text = f"{one['measured']:.3g} {one['unit']}"
        if one["spread"] is not None:
            text += f" ({one['spread'][0]:.3g} .. {one['spread'][1]:.3g})"
        why = _BUSY.sub("", one["why"])
        yield Line(one["text"] + (f" ({why})" if why else ""), {}, {"cuptimem": text}, one)


def lines(result: Result) -> list[Line]:
    """Missed promises first, then what another recorder does better, then the rest."""
    every = [*_compared(result), *_reports(result), *_promised(result)]
    return sorted(every, key=lambda line: (not line.missed, not line.lost))


def _cells(line: Line) -> list[str]:
    promised = ""
    if line.promise is not None:
        promised = f"{line.promise['limit']:.3g} {line.promise['unit']}" + (", **missed**" if line.missed else "")
    ours = line.texts.get("cuptimem", "") + (", **more than another**" if line.lost else "")
    return [line.what, ours, promised, *(line.texts.get(who, "") for who in PEERS)]


def measured(result: Result) -> str:
    """What stands between the page's two marks."""
    machine = result["machine"]
    packages = ", ".join(f"{name} {machine[name]}" for name in ("torch", "memray", "transformers") if machine.get(name))
    where = f"{machine['cores']} cores of {machine['cpu']}, Linux {machine['kernel']}, Python {machine['python']}"
    after = f", {machine['load_after']:.2f} after" if "load_after" in machine else ""
    busy = " **It was busy: measure again.**" if result["busy"] else ""
    when = result.get("when") or f"One run of {result['date'][:16].replace('T', ' ')} UTC"
    text = [
        f"{when} ([rows](bench/{RESULT.name})), commit {machine['commit']},",
        f"on {where}, {packages}.",
        f"Load {machine['load']:.2f} before{after}.{busy}",
        "",
        f"| | cuptimem | promised | {' | '.join(PEERS)} |",
        f"|{'---|' * (3 + len(PEERS))}",
        *(f"| {' | '.join(_cells(line))} |" for line in lines(result)),
    ]
    more = [f"- {note}" for note in result.get("notes", ())]
    more += [f"- not measured: {why}" for why in result["failed"]]
    return "\n".join(text + ([""] + more if more else [])) + "\n"


def write(result: Result) -> None:
    """Rewrites result and page; what is outside of the marks stays."""
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json_text(result))
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{measured(result)}\n{END}{after}", encoding="utf-8")
