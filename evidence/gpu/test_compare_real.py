"""evidence/gpu/compare_real.py with a simulated device in the real one's place: equal ones are equal, others are
not."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from cuptimem.simulation import cards
from evidence.gpu import tables
from evidence.gpu.compare import compare
from evidence.gpu.compare_real import KINDS, NO_GPU, profile_of
from tests.conftest import ROOT, Result, clean_environment

Compare = Callable[..., Result]


@pytest.fixture
def compare_real(sim_python: str) -> Compare:
    def call(*arguments: str) -> Result:
        done = subprocess.run(
            [sim_python, "-W", "ignore", "-m", "evidence.gpu.compare_real", *arguments],
            capture_output=True,
            text=True,
            env={**clean_environment(), "CUDA_VISIBLE_DEVICES": ""} if not arguments else clean_environment(),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            timeout=240,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return call


@pytest.mark.cuda_torch
@pytest.mark.parametrize(
    "names", [["mem_pool"], pytest.param(["gpt_fp32", "malloc_async"], marks=pytest.mark.extended)]
)
def test_two_simulated_runs_are_equal(compare_real: Compare, names: list[str]) -> None:
    done = compare_real(*names, "--stand-in", "a100-80gb")
    assert done.code == 0, done.out + done.err
    assert "against the simulated a100-80gb" in done.out
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.startswith("  ")}
    assert all("equal, " in lines[name] for name in names)
    assert "context" in lines and "cuBLAS," in lines


@pytest.mark.cuda_torch
@pytest.mark.extended
def test_devices_of_two_kinds_differ(compare_real: Compare) -> None:
    done = compare_real("gpt_fp32", "--stand-in", "a100-80gb", "--profile", "h100")
    assert done.code == 1, done.out + done.err
    assert "cuda:0, event" in done.out or "allocated_bytes" in done.out


@pytest.mark.cuda_torch
def test_without_a_gpu_it_says_so(compare_real: Compare) -> None:
    done = compare_real()
    assert (done.code, done.err) == (NO_GPU, "")
    assert done.out.startswith("There is no GPU here")


def facts(**changes: object) -> dict[str, object]:
    row = {"label": "end", "device": 0, "allocated_bytes.all.peak": 10, "reserved_bytes.all.peak": 20, **changes}
    return {"program": "p", "checkpoints": [row], "events": [[["alloc", 10, 0, 0, 0]]]}


def test_comparison_of_facts() -> None:
    assert compare(facts(), facts(), ordered=True).equal
    other = compare(facts(), facts(**{"reserved_bytes.all.peak": 22}), ordered=True)
    assert (other.equal, other.real_reserved, other.simulated_reserved) == (False, 20, 22)
    assert other.first_checkpoint == "end, cuda:0: reserved_bytes.all.peak 20 against 22"
    longer = facts()
    longer["events"] = [[["alloc", 10, 0, 0, 0], ["free_requested", 10, 0, 0, 0]]]
    assert compare(facts(), longer, ordered=True).first_event == (
        "cuda:0, event 1: None against ['free_requested', 10, 0, 0, 0]"
    )
    assert compare(facts(), longer, ordered=False).equal
    with pytest.raises(ValueError, match="cannot be compared"):
        compare(facts(), {**facts(), "program": "q"}, ordered=True)


def test_profiles_by_name() -> None:
    names = {
        "NVIDIA H100 80GB HBM3": "h100",
        "NVIDIA H200": "h200",
        "NVIDIA GH200 120GB": "gh200",
        "NVIDIA B200": "b200",
        "NVIDIA GB10": "gb10",
        "NVIDIA A100-SXM4-40GB": "a100-40gb",
        "NVIDIA A100 80GB PCIe": "a100-80gb",
        "NVIDIA A10G": "a10g",
        "NVIDIA A40": "a40",
        "NVIDIA RTX A6000": "a6000",
        "NVIDIA L4": "l4",
        "NVIDIA L40S": "l40s",
        "NVIDIA GeForce RTX 4090": "rtx4090",
        "NVIDIA GeForce RTX 3060": "rtx3060",
        "NVIDIA GeForce RTX 3090": "rtx3090",
        "NVIDIA GeForce RTX 5090": "rtx5090",
        "Tesla T4": "t4",
        "Tesla V100-SXM2-16GB": "v100-16gb",
        "Tesla V100-PCIE-32GB": "v100-32gb",
    }
    assert {name: profile_of(name) for name in names} == names
    assert set(names.values()) == set(KINDS) == {card.key for card in cards.CARDS}
    others = ("NVIDIA L40", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 3060 Laptop GPU", "NVIDIA A10")
    assert [profile_of(n) for n in others] == [None] * 4


def test_tables_are_what_the_results_say() -> None:
    """evidence/gpu/findings.md and docs/limits.md say what evidence/gpu/results/*.json say."""
    for path, text in tables.documents().items():
        assert path.read_text() == text, f"{path.name} is not up to date: python -m evidence.gpu.tables"
    if not tables.results():
        assert all(tables.NOTHING in text for text in tables.documents().values())


def test_tables_of_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equal = {**asdict(compare(facts(), facts(), ordered=True)), "ordered": True}
    differs = {**asdict(compare(facts(), facts(**{"allocated_bytes.all.peak": 12}), ordered=True)), "ordered": True}
    size = {"beyond": {"context": 512 << 20}, "workspaces": {"cuBLAS": 32 << 20}}
    result = {"device": {"name": "GPU X"}, "comparisons": [equal, differs], "measured": size, "simulated": size}
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    (tmp_path / "x.json").write_text(json.dumps(result))
    found = tables.results()
    assert "| GPU X | p | equal | equal | 1 equal | none |" in tables.programs(found)
    assert "0.0 MiB, simulated 0.0 MiB" in tables.programs(found)
    assert "| GPU X | context | 512.0 MiB | 512.0 MiB |" in tables.sizes(found)
    assert "| GPU X | 2 | 1 | 2 of 2 | 512.0 MiB, simulated 512.0 MiB |" in tables.summary(found)
    assert os.linesep.join(tables.summary([]).splitlines()[2:]).count(tables.NOTHING) == 5
    with pytest.raises(ValueError, match="lacks"):
        tables.replaced("no marks", "x", tables.BEGIN)
