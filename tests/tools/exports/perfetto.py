"""python -m tests.tools.exports.perfetto [TRACE_PROCESSOR]: the chrome export in Perfetto's own trace_processor.

Needs the package `perfetto` and its binary trace_processor, which the package downloads unless a path is given: hence
no part of `make test`. Writes docs/exports/<date>.md.
"""

import datetime
import importlib.metadata
import sys
import tempfile
from pathlib import Path
from typing import Any

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem import _core
from cuptimem.output import exports
from cuptimem.output.exports import Options

ROOT = Path(__file__).resolve().parents[3]
QUERIES = {
    "highest allocated bytes": "select max(value) as v from counter c join counter_track t on c.track_id = t.id "
    "where t.name = 'allocated cuda:0 bytes'",
    "highest reserved bytes": "select max(value) as v from counter c join counter_track t on c.track_id = t.id "
    "where t.name = 'reserved cuda:0 bytes'",
    "steps": "select count(*) as v from slice where category = 'step'",
    "blocks drawn": "select count(*) as v from slice where category = 'blocks cuda:0'",
    "[memory] events": "select count(*) as v from slice where name = '[memory]'",
    "import errors": "select coalesce(sum(value), 0) as v from stats where severity = 'error'",
}


def expected(trace: str) -> dict[str, int]:
    report = cuptimem.open(trace)
    (device,) = report.devices
    start = sum(1 for batch in _core.Reader(trace) for event in batch if event[0] == "start")
    return {
        "highest allocated bytes": device.peak.bytes,
        "highest reserved bytes": device.reserved_peak or 0,
        "steps": len({step.index for step in report.steps}),
        "blocks drawn": start + device.allocations,
        "[memory] events": start + device.allocations + device.frees,
        "import errors": 0,
    }


def processor(path: str, binary: str | None) -> Any:
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    return TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=binary))


def main() -> int:
    binary = sys.argv[1] if len(sys.argv) > 1 else None
    try:
        importlib.metadata.version("perfetto")
    except importlib.metadata.PackageNotFoundError:
        print("perfetto is not installed: pip install perfetto", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        trace, path = f"{folder}/run.cmem", f"{folder}/run.json"
        write_synthetic(trace, 50_000, on="cuda")
        exports.export(trace, "chrome", path, Options(least=0))
        wanted = expected(trace)
        try:
            opened = processor(path, binary)
        except Exception as error:  # of a download, of a binary: the package has no class of its own for them
            print(f"trace_processor did not start: {error}; name its binary: ARGS=/path/to/trace_processor_shell")
            return 1
        found = {name: int(next(iter(opened.query(query))).v) for name, query in QUERIES.items()}
        opened.close()
    rows = [f"| {name} | {wanted[name]:,} | {found[name]:,} |" for name in wanted]
    day = datetime.date.today().isoformat()
    target = ROOT / "docs" / "exports" / f"{day}.md"
    target.parent.mkdir(exist_ok=True)
    version = importlib.metadata.version("perfetto")
    head = f"# The chrome export in Perfetto, {day}\n\nperfetto {version}, cuptimem {cuptimem.__version__}.\n"
    table = "\n".join(["| what | in the report | in trace_processor |", "|---|---|---|", *rows])
    target.write_text(f"{head}\n{table}\n", encoding="utf-8")
    print(table)
    return 0 if found == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
