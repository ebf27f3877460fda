"""The page of `cuptimem flamegraph`: one file in which all of a report's bytes can be looked at by their stacks."""

from typing import Any

from cuptimem.output.pages import page, stacks_data
from cuptimem.output.pages.heading import head
from cuptimem.output.text import peak_views
from cuptimem.output.text.part_views import under
from cuptimem.output.text.words import code, count, function, plural, share, size
from cuptimem.report.leaks import Leak
from cuptimem.report.model import Report, first_lines

ASSETS = ("assets/stacks.css", *page.FLAME_GRAPH, "assets/stacks.js", "assets/flame.js")
LINES = 25  # of the table that needs no script


def html(report: Report) -> str:
    """report: opened with stacks_data.tables(step)."""
    data = stacks_data.of_report(report)
    return page.render(
        "flamegraph.html",
        data,
        (*ASSETS, "assets/flamegraph.js"),
        **head(report, "memory by stack"),
        notes=notes(report, data),
        tables=[lines_table(report, peak.device) for peak in report.peaks if peak.bytes],
        empty=not any(measure["bytes"] for measure in data["measures"]),
    )


def notes(report: Report, data: dict[str, Any]) -> list[str]:
    """What is not in the picture."""
    said = stacks_data.merged_note(data)
    nodes = [leak for leak in report.leaks if leak.kind == "nodes"]
    if nodes and report.step is None:
        said.append(
            f"Leaked graph nodes are not drawn, for their sizes are estimates: {_nodes(nodes)}; see cuptimem leaks."
        )
    if report.step is not None:
        said.append(f"Only step {report.step}. What leaked and what was kept is about the whole recording.")
    elif not report.steps:
        said.append("No steps were seen, so that nothing is known to be temporary or to leak.")
    return said


def _nodes(leaks: list[Leak]) -> str:
    return f"{plural(sum(leak.count for leak in leaks), 'node')} (about {size(sum(leak.bytes for leak in leaks))})"


def lines_table(report: Report, device: str) -> dict[str, Any]:
    """The largest lines of a device's peak, for readers without scripts and for paper; the rows sum to the peak."""
    peak = report.device(device).peak
    lines, others = first_lines(peak.lines, LINES)
    heading, kind = peak_views.kinds(peak)
    rows = [
        (
            size(line.bytes),
            share(line.bytes, peak.bytes),
            count(line.count),
            kind(line),
            stacks_data.short(line.where),
            stacks_data.short(function(line.frame)),
            code(line.frame),
            [stacks_data.short(part) for part in under(line, peak)],
        )
        for line in lines
    ]
    for bytes_, count_, name in peak_views.left_out(others, peak, "line"):
        rows.append((size(bytes_), share(bytes_, peak.bytes), count(count_), "", name, "", "", []))
    title = f"{device} at the peak: {size(peak.bytes)} in {plural(peak.count, 'block')}, {peak_views.moment(peak)}"
    return {"title": title, "kind": heading, "rows": rows}
