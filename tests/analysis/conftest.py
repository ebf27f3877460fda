import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import craft
from craft import ROOT, Trace, build


@pytest.fixture(scope="session", autouse=True)
def _craft_library(tmp_path_factory: pytest.TempPathFactory) -> None:
    trace = ROOT / "csrc" / "trace"
    sources = [Path(__file__).parent / "craft.c", trace / "encode.c", trace / "writer.c", trace / "crc32c.c"]
    Trace.library = build(tmp_path_factory.mktemp("craft") / "craft.so", sources)


@pytest.fixture
def analyze(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """analyze(trace, **options): writes the trace and gives the report's dict."""
    from cuptimem import _core

    count = 0

    def go(trace: craft.Trace, *, per_batch: int = 1000, end: str | None = "", **options: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        return _core.analyze(trace.write(tmp_path / f"{count}.cmem", per_batch=per_batch, end=end), **options)

    return go
