"""The tables in findings.md and docs/limits.md, made from results/*.json: what real GPUs gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evidence.gpu.checks import CHECKS
from tests.results import replaced

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DRIVER_RESULTS = RESULTS / "driver"
FINDINGS, LIMITS = HERE / "findings.md", ROOT / "docs" / "limits.md"
BEGIN = "<!-- made by evidence/gpu/compare_real.py -->"
DRIVER_BEGIN = "<!-- made by python -m evidence.gpu -->"
NOTHING = "not yet measured"
NOT_RUN = "not yet run on a GPU"


def results() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def driver_results() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(DRIVER_RESULTS.glob("*.json"))]


def amount(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join([row(header), row(["---"] * len(header)), *map(row, rows)])


def programs(found: list[dict[str, Any]]) -> str:
    """Each program on each GPU against the simulated device of that profile."""
    header = ["GPU", "program", "peak allocated", "peak reserved", "events in order", "first difference"]
    rows = []
    for result in found:
        for c in result["comparisons"]:
            cells = []
            for real, simulated in (
                (c["real_peak"], c["simulated_peak"]),
                (c["real_reserved"], c["simulated_reserved"]),
            ):
                cells.append("equal" if real == simulated else f"{amount(real)}, simulated {amount(simulated)}")
            events = "differ" if c["first_event"] else f"{c['events']:,} equal" if c["ordered"] else "not comparable"
            difference = c["first_event"] or c["first_checkpoint"] or "none"
            rows.append([result["device"]["name"], c["program"], *cells, events, difference])
    return table(header, rows or [[NOTHING] * len(header)])


def sizes(found: list[dict[str, Any]]) -> str:
    """What context, libraries and workspaces take, measured and in the simulated device."""
    header = ["GPU", "what", "measured", "simulated"]
    rows = []
    for result in found:
        for kind in ("beyond", "workspaces"):
            for name, size in result["measured"][kind].items():
                other = result["simulated"][kind].get(name)
                rows.append([result["device"]["name"], name, amount(size), "-" if other is None else amount(other)])
    return table(header, rows or [[NOTHING] * len(header)])


def summary(found: list[dict[str, Any]]) -> str:
    """One line for each GPU, for docs/limits.md."""
    header = ["GPU", "programs", "peak and reserved equal to the byte", "events equal in order", "context"]
    rows = []
    for result in found:
        comparisons = result["comparisons"]
        same = sum(
            c["real_peak"] == c["simulated_peak"] and c["real_reserved"] == c["simulated_reserved"] for c in comparisons
        )
        ordered = [c for c in comparisons if c["ordered"]]
        context = f"{amount(result['measured']['beyond']['context'])}, simulated "
        context += amount(result["simulated"]["beyond"]["context"])
        equal = sum(not c["first_event"] for c in ordered)
        rows.append([result["device"]["name"], str(len(comparisons)), str(same), f"{equal} of {len(ordered)}", context])
    return table(header, rows or [[NOTHING] * len(header)])


def driver(found: list[dict[str, Any]]) -> str:
    """Each check with what is expected and what each GPU said."""
    header = [
        "no.",
        "asked",
        "expected",
        *[result["device"]["name"] for result in found or [{"device": {"name": "GPU"}}]],
    ]
    rows = []
    for check in CHECKS:
        cells = []
        for result in found:
            row = next((row for row in result["rows"] if row["check"] == check.key), None)
            cells.append(NOT_RUN if row is None else f"**{row['differs']}**" if row["differs"] else row["told"])
        rows.append([str(check.number), check.asks, check.expects, *(cells or [NOT_RUN])])
    return table(header, [[cell.replace("|", "\\|") for cell in one] for one in rows])


def documents() -> dict[Path, str]:
    """The documents as they should be."""
    found = results()
    findings = f"{programs(found)}\n\n{sizes(found)}"
    return {
        FINDINGS: replaced(replaced(FINDINGS.read_text(), findings, BEGIN), driver(driver_results()), DRIVER_BEGIN),
        LIMITS: replaced(LIMITS.read_text(), summary(found), BEGIN),
    }


def write() -> None:
    for path, text in documents().items():
        path.write_text(text)


if __name__ == "__main__":
    write()
