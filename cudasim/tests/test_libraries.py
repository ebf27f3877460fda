"""The libraries' entry points, called by a C client with its own declarations, under sanitizers."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from cudasim.tests import objects
from tests.conftest import clean_environment

CLIENT = Path(__file__).parent / "libraries" / "client.c"
CASES = re.findall(r'\{"(\w+)", \w+\}', CLIENT.read_text())


def build(sanitizer: str) -> Path:
    return objects.client("client", sanitizer, [*objects.everything(), CLIENT])


@pytest.fixture(scope="module")
def client() -> Path:
    return build("address")


def run(client: Path, case: str, **environment: str) -> None:
    done = subprocess.run(
        [client, case],
        capture_output=True,
        text=True,
        env={**clean_environment(), "CUPTIMEM_SIM_HANDLE_BYTES": "4MiB", **environment},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_client_has_cases() -> None:
    assert len(CASES) >= 12
    assert {"full", "backend", "threads", "refused"} < set(CASES)


@pytest.mark.parametrize("case", sorted(set(CASES) - {"full", "backend", "refused", "ranks"}))
def test_calls(client: Path, case: str) -> None:
    run(client, case)


def test_a_handle_that_finds_no_room(client: Path) -> None:
    run(client, "full", CUPTIMEM_SIM_MEMORY="600MiB", CUPTIMEM_SIM_CONTEXT="592MiB")


@pytest.mark.parametrize("workspace", ["", "0", "67108864"])
def test_workspaces(client: Path, workspace: str) -> None:
    run(client, "backend", **({"CUPTIMEM_SIM_CONV_WORKSPACE": workspace} if workspace else {}))


def test_ranks_of_one_process(client: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    run(client, "ranks", CUPTIMEM_SIM_DEVICES="2", CUPTIMEM_SIM_REPORT=str(report))
    told = report.read_bytes()
    for name in ("NCCL communicators", "NCCL between processes", "NCCL's one-sided and device calls"):
        assert told.count(name.encode() + b"\0") == 1


def test_what_is_refused_names_itself(client: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    run(client, "refused", CUPTIMEM_SIM_REPORT=str(report))
    told = report.read_bytes()
    for name in ("cublasXtCreate", "cusolverSpCreate", "cufftPlan1d", "cudnnGetDropoutDescriptor"):
        assert told.count(name.encode() + b"\0") == 1


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="ThreadSanitizer is tried on x86-64")
def test_threads() -> None:
    run(build("thread"), "threads")
