"""Which code is the user's: the analysis (csrc/analysis/library.c) and reports (cuptimem/stacks.py) say the same."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuptimem import Frame, _core

HASH = "mfiq5ls4nbxndu5wbahle4a4h2dik6pvvrv4oaoyudugoysikg"
PARTS = ["/", "\\", "lib", "lib64", "python3.", "1", "11", "t", "site-packages", "dist-packages", "<frozen ", "x", " "]
PARTS += ["<eval_with_key>", ".9", "qm", "qn", "q", "c", f"cq{HASH}", f"cqm{HASH}", "cqm" + "a" * 39, ".py", "A"]


@given(st.lists(st.sampled_from(PARTS), max_size=9).map("".join))
@example(f"/tmp/inductor/qm/cq{HASH}.py")
@example(f"qm/cq{HASH}.py")
@example("/usr/lib64/python3.11t/threading.py")
@example("/home/me/\udcff/site-packages/x.py")
def test_both_say_the_same(file: str) -> None:
    assert _core.is_library(file) is Frame(file, "f", 1).is_library


def test_examples_are_of_both_kinds() -> None:
    assert _core.is_library(f"/tmp/inductor/qm/cq{HASH}.py") and not _core.is_library(f"/tmp/inductor/qn/cq{HASH}.py")
    assert _core.is_library("/v/lib/python3.11/site-packages/torch/_tensor.py") and not _core.is_library("/v/train.py")
    with pytest.raises(TypeError):
        _core.is_library(b"train.py")  # type: ignore[arg-type]
