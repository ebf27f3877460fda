"""Caches of keys and values: one answer's, and one that a module keeps."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import Result

pytestmark = pytest.mark.torch

DECODER = """
import torch
from torch import nn

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.past = nn.Embedding(50, 64), nn.Linear(64, 50), None

    def forward(self, ids, past=None):
        x = self.embed(ids)
        past = x if past is None else torch.cat([past, x], 1)
        return self.mix(past.mean(1)).argmax(-1)[:, None], past

class Remembers(Decoder):
    def forward(self, ids):
        following, self.past = super().forward(ids, self.past)
        return following

class Cache:
    past = None

class Filled(Decoder):
    def forward(self, ids, cache):
        following, cache.past = super().forward(ids, cache.past)
        return following
"""
LOOP = """
ids, past, model = torch.zeros(8, 4, dtype=torch.long), None, Decoder()
with torch.no_grad():
    for _ in range(40):
        ids, past = model(ids, past)
"""
FUNCTION = """
def answer(model, ids, past=None):
    for _ in range(40):
        ids, past = model(ids, past)
    return ids
model = Decoder()
with torch.no_grad():
    answer(model, torch.zeros(8, 4, dtype=torch.long))
"""
OBJECT = """
def main():
    model, cache, ids = Filled(), Cache(), torch.zeros(8, 4, dtype=torch.long)
    with torch.no_grad():
        for _ in range(40):
            ids = model(ids, cache)
main()
"""
STATE = """
def main():
    model, ids = Remembers(), torch.zeros(8, 4, dtype=torch.long)
    with torch.no_grad():
        for _ in range(40):
            ids = model(ids)
main()
"""
KEPT = """
caches, model = [], Decoder()
with torch.no_grad():
    for _ in range(8):
        ids, past = torch.zeros(8, 4, dtype=torch.long), None
        for _ in range(10):
            ids, past = model(ids, past)
        caches.append(past)
"""


@pytest.mark.parametrize(
    ("program", "leaks", "reasons"),
    [
        (LOOP, 0, ["carried on"]),
        (FUNCTION, 0, ["freed behind the loop"]),
        (OBJECT, 0, ["carried on"]),
        (STATE, 1, []),
        (KEPT, 1, []),
    ],
    ids=["loop", "function", "object", "state", "kept"],
)
def test_verdicts(forked: Callable[..., Result], tmp_path: Path, program: str, leaks: int, reasons: list[str]) -> None:
    (tmp_path / "generate.py").write_text(textwrap.dedent(DECODER + program))
    done = forked("-m", "cuptimem", "run", "-q", "-o", "run.cmem", "generate.py")
    assert (done.code, done.err) == (0, "")
    report = cuptimem.open(tmp_path / "run.cmem")
    assert len(report.leaks) == leaks
    assert [one.reason for one in report.suspects if one.reason != "negligible"] == reasons


ERRORS = """
import torch
from torch import nn

def check(model, x):
    out = model(x)
    if out.sum() is not None:
        raise ValueError("bad batch")

def main():
    model, errors = nn.Linear(64, 256), []
    for step in range(60):
        try:
            check(model, torch.randn(16, 64))
        except ValueError as error:
            errors.append(error)
main()
"""


def test_exceptions_that_are_kept(forked: Callable[..., Result], tmp_path: Path) -> None:
    """Their frames lead back to the list, which only the collection at the end frees: the names that a search found
    while the loop ran decide, and lead through a traceback."""
    (tmp_path / "errors.py").write_text(ERRORS)
    done = forked("-m", "cuptimem", "run", "-q", "-o", "run.cmem", "errors.py")
    assert (done.code, done.err) == (0, "")
    report = cuptimem.open(tmp_path / "run.cmem")
    assert report.leaks and not [one for one in report.suspects if one.reason != "negligible"]
    paths = {one.path for leak in report.leaks for row in (leak, *leak.keeps) for one in row.holders if one.is_named}
    assert paths and all(path.startswith("errors in main() → list[") for path in paths)
    assert any("→ traceback → out in check()" in path for path in paths)
