"""Which code is the user's: the analysis (csrc/base/library.c) and reports (cuptimem/report/stacks.py) say the same."""

import sys
import types
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuptimem import Frame, _core
from cuptimem.report import own_code
from cuptimem.report.stacks import short_file
from cuptimem.simulation import places

HASH = "mfiq5ls4nbxndu5wbahle4a4h2dik6pvvrv4oaoyudugoysikg"
PARTS = ["/", "\\", "lib", "lib64", "python3.", "1", "11", "t", "site-packages", "dist-packages", "<frozen ", "x", " "]
PARTS += ["a", "b", ".py", "."]
TEMPORARY = ["/", "tmp", "TEMP", "temp", "ab1_", "xyz9", "tmpab1_xyz9", "pack.mod_", ".py", ".", "_", "m"]
PARTS += ["<eval_with_key>", ".9", "qm", "qn", "q", "c", f"cq{HASH}", f"cqm{HASH}", "cqm" + "a" * 39, ".py", "A"]


@given(st.lists(st.sampled_from(PARTS), max_size=9).map("".join))
@example(f"/tmp/inductor/qm/cq{HASH}.py")
@example(f"qm/cq{HASH}.py")
@example("/usr/lib64/python3.11t/threading.py")
@example("/home/me/\udcff/site-packages/x.py")
def test_both_say_the_same(file: str) -> None:
    assert _core.is_library(file) is Frame(file, "f", 1).is_library


TEXTS = st.lists(st.sampled_from(TEMPORARY), max_size=8).map("".join)


@given(TEXTS, TEXTS)
@example("/tmp/tmpab1_xyz9/gen.py", "/tmp/tmpab1_xyz9/train.py")
@example("/tmp/tmpab1_xyz9/gen.py", "/tmp/tmpab1_xyz8/train.py")
@example("/tmp/a/tmpab1_xyz9.py", "/tmp/a/tmpab1_xyz9.py")
@example("/v/pack.mod_ab1_xyz9.py", "")
@example("\\tmp\\tmpab1_xyz9", "")
def test_both_say_the_same_of_temporary_files(file: str, script: str) -> None:
    own = own_code.matcher((), script)(file)
    assert _core.is_library(file, "", script) is Frame(file, "f", 1, own=own).is_library


def test_files_with_random_names_are_a_librarys() -> None:
    """tempfile's names; not the script's own folder, nor a name that only looks like one."""
    for file, short in (
        ("/tmp/gnn.nn.conv.gcn_GCN_propagate_k2_x91ab.py", "gnn.nn.conv.gcn_GCN_propagate_….py"),
        ("/scratch/tmp/me/tmpab1_xyz9/layers/gen.py", "tmp…/layers/gen.py"),
        ("/var/tmp/tmpab1_xyz9.py", "tmp….py"),
        ("<attrs generated init m.C>", "<attrs generated init m.C>"),
        ("<magic-timeit>", "<magic-timeit>"),
    ):
        assert _core.is_library(file) and Frame(file, "f", 1).is_library and short_file(file) == short
    for file in (
        "/tmp/train.py",
        "/tmp/ipykernel_4711/3405691582.py",
        "/home/me/tmp_project/model.py",
        "/home/me/tmpab1_xyz9/model.py",
        "/tmp/train_baseline.py",
        "<stdin>",
        "<string>",
        "<ipython-input-3-abc>",
        "<timed exec>",
    ):
        assert not _core.is_library(file) and not Frame(file, "f", 1).is_library
    for file in ("/tmp/tmpab1_xyz9/model.py", "/tmp/tmpab1_xyz9/train.py"):
        assert not _core.is_library(file, "", "/tmp/tmpab1_xyz9/train.py")


@given(
    st.lists(st.sampled_from(PARTS), max_size=9).map("".join), st.sampled_from(["a", "a.b", "b,a", "ab", ",x,a.b.a"])
)
@example("/v/site-packages/a/x.py", "a")
@example("/v/site-packages/a.py", "a")
@example("/v/site-packages/a.b/x.py", "a")
@example("/v/lib/python3.11/site-packages/a/b.py", "a.b")
@example("/site-packages/site-packages/a/x.py", "a")
@example("/site-packages/a/site-packages/x.py", "a")
@example(f"/site-packages/a/qm/cq{HASH}.py", "a")
@example("<frozen /site-packages/a/x.py", "a")
def test_both_say_the_same_of_chosen_packages(file: str, code: str) -> None:
    own = own_code.matcher(code.split(","))(file)
    assert _core.is_library(file, code) is Frame(file, "f", 1, own=own).is_library


def test_examples_are_of_both_kinds() -> None:
    assert _core.is_library(f"/tmp/inductor/qm/cq{HASH}.py") and not _core.is_library(f"/tmp/inductor/qn/cq{HASH}.py")
    assert _core.is_library("/v/lib/python3.11/site-packages/torch/_tensor.py") and not _core.is_library("/v/train.py")
    file = "/v/lib/python3.11/site-packages/a/b/c.py"
    answers = {code: _core.is_library(file, code) for code in ("", "a", "a.b", "a.b.c", "a.c", "b", "a.b.c.py", "x,a")}
    assert [code for code, library in answers.items() if not library] == ["a", "a.b", "a.b.c", "x,a"]
    assert not _core.is_library("/usr/lib/python3.11/unittest/case.py", "unittest")
    with pytest.raises(TypeError):
        _core.is_library(b"train.py")  # type: ignore[arg-type]


def test_simulated_reads_belong_to_the_callers_of_such_code() -> None:
    """What a library wrote into a file with a random name reads for the line that called it."""
    names: dict[str, Any] = {"sys": sys, "user_place": places.user_place}
    code = "def generated():\n    return user_place(sys._getframe())\n"
    exec(compile(code, "/tmp/gnn.nn.conv.gcn_GCN_propagate_k2_x91ab.py", "exec"), names)
    exec(compile("def calls():\n    return generated()\n", "/w/train.py", "exec"), names)
    assert names["calls"]()[0] == "/w/train.py"


def test_the_script_is_known_when_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it lies in a folder with a random name."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    monkeypatch.setattr(sys, "orig_argv", ["python3", "/tmp/tmpab1_xyz9/train.py"])
    assert not places.is_library("/tmp/tmpab1_xyz9/model.py") and places.is_library("/tmp/tmpab1_xyz8/model.py")
