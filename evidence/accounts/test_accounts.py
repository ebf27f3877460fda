"""What cuptimem says that memory is for, byte for byte against what the program's own objects take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from evidence.accounts.names import NAMES
from evidence.accounts.runs import Runs

pytestmark = pytest.mark.torch
FIXED = ("parameter", "buffer", "optimizer state", "input")  # as much at the peak as at the end
UNKNOWN = 0.02  # of the peak, at most
TENSORS = ("parameter", "buffer", "gradient", "optimizer state")


def check(said: dict[str, Any], way: str) -> None:
    moments = ["end"] + ["after forward", "forward alone", "after backward"] * (way == "windows")
    for moment in moments:
        check_moment(moment, said[moment]["cuptimem"], said[moment]["independent"])
    check_peak(said["peak"]["cuptimem"], said["end"]["independent"])


def positive(bytes_by: dict[str, int]) -> dict[str, int]:
    return {key: size for key, size in bytes_by.items() if size}


def check_moment(moment: str, said: dict[str, Any], own: dict[str, Any]) -> None:
    assert positive(said["bytes"]) == positive(own["bytes"]), moment
    assert sum(said["bytes"].values()) == said["total"], moment
    for category in (*TENSORS, *(["activation"] if "forward" in moment else [])):
        assert said["modules"].get(category, {}) == own["modules"].get(category, {}), (moment, category)


def check_peak(said: dict[str, Any], end: dict[str, Any]) -> None:
    parts = said["bytes"]
    assert sum(parts.values()) == said["total"]
    assert {key: parts.get(key, 0) for key in FIXED} == {key: end["bytes"].get(key, 0) for key in FIXED}
    assert parts.get("before start", 0) == 0
    assert parts.get("unknown", 0) < UNKNOWN * said["total"]
    known = [tuple(map(str, row)) for row in end["tensors"]]
    labelled = [tuple(map(str, row)) for row in said["tensors"] if row[0] in TENSORS]
    assert set(labelled) <= set(known) and len(set(labelled)) == len(labelled)
    fixed = {row for row in known if row[0] in FIXED}
    assert fixed <= set(labelled)
    for category in TENSORS:
        assert sum(int(row[4]) for row in labelled if row[0] == category) == parts.get(category, 0)


# `make extended` runs the other windows, `make long` the rest, `make accounts` each program on both devices.
INSIDE = ("GPT, AdamW", "GAN")
WINDOWS = ("checkpointing",)


def cases(inside: Sequence[str], windows: Sequence[str], extended: Sequence[str]) -> list[Any]:
    def case(name: str, way: str, short: Sequence[str]) -> Any:
        mark = pytest.mark.extended if way == "windows" and name in extended else pytest.mark.long
        return pytest.param(name, way, id=f"{name}, {way}", marks=[] if name in short else mark)

    return [case(name, way, short) for name in NAMES for way, short in (("inside", inside), ("windows", windows))]


@pytest.mark.parametrize(("name", "way"), cases(INSIDE, WINDOWS, NAMES))
def test_on_the_cpu(name: str, way: str, cpu: Runs) -> None:
    check(said_by(cpu, name, way), way)


@pytest.mark.cuda_torch
@pytest.mark.parametrize(("name", "way"), cases((), NAMES[:1], NAMES[:4]))
def test_on_a_simulated_device(name: str, way: str, cuda: Runs) -> None:
    check(said_by(cuda, name, way), way)


@pytest.mark.cuda_torch
def test_workspaces_of_cublas(cuda: Runs) -> None:
    """One made in forward and one in backward: no object has them."""
    size = 4096 * 1024 * 2 + 16 * 1024 * 8
    said = cuda.run("run.py", "GPT, AdamW", "windows", CUBLAS_WORKSPACE_CONFIG=":4096:2:16:8")
    for moment in ("end", "after forward", "forward alone", "after backward"):
        own = said[moment]["independent"]["bytes"]
        assert positive(said[moment]["cuptimem"]["bytes"]) == {**positive(own), "workspace": 2 * size}, moment


def said_by(runs: Runs, name: str, way: str) -> dict[str, Any]:
    said: dict[str, Any] = runs.run("run.py", name, way)
    if said.get("missing"):
        pytest.skip(said["missing"])
    return said
