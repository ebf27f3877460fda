"""Traces in a bucket, read from real local servers of S3 and of Google's storage (`make remote`)."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, Result, clean_environment
from tests.tools.ranks.test_reading import write
from tests.unit.analysis import craft

pytestmark = pytest.mark.extended

PACKAGES = ROOT / "build/remote"
PATIENCE = 120
SERVERS = {
    "s3": ["moto.server", "--host", "127.0.0.1", "--port"],
    "gs": ["gcp_storage_emulator", "start", "--in-memory", "--default-bucket=bucket", "--host=127.0.0.1", "--port"],
}
# Runs with the servers' packages: makes the bucket, and puts a folder into it.
UPLOAD = """
import sys, fsspec
files = fsspec.filesystem(sys.argv[1])
if sys.argv[1] == "s3":
    files.mkdir("bucket")
files.put(sys.argv[2], "bucket/job", recursive=True)
"""


def free_port() -> int:
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return int(end.getsockname()[1])


def variables(address: str) -> dict[str, str]:
    return {
        "PYTHONPATH": f"{PACKAGES}:{ROOT}",
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "one",
        "AWS_SECRET_ACCESS_KEY": "two",
        "STORAGE_EMULATOR_HOST": address,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # asks Google itself
    }


@pytest.fixture(scope="module", params=SERVERS)
def bucket(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The scheme, and where its server is; bucket/job has four ranks and a file of another kind."""
    if not PACKAGES.is_dir():
        pytest.skip("needs moto and other servers: make remote")
    craft.Trace.library = craft.encoder()
    folder = tmp_path_factory.mktemp("remote")
    for number in range(4):
        write(folder / f"run-{number}.cmem", number, (100 + 100 * number) << 10)
    (folder / "readme.txt").write_text("no trace")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    environment = clean_environment() | variables(address)
    with open(folder.parent / f"{request.param}.log", "wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", *SERVERS[request.param], str(port)], env=environment, stdout=log, stderr=log
        )
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < end, Path(log.name).read_text()
                time.sleep(0.1)
        subprocess.run(
            [sys.executable, "-c", UPLOAD, request.param, f"{folder}{os.sep}"],
            env=environment,
            check=True,
            timeout=PATIENCE,
        )
        yield request.param, address
    finally:
        server.terminate()
        server.wait(PATIENCE)


@pytest.mark.parametrize("named", ["job/run-*.cmem", "job", "job/"])
def test_ranks_of_a_bucket(bucket: tuple[str, str], named: str, run: Callable[..., Result]) -> None:
    scheme, address = bucket
    done = run("-m", "cuptimem", "ranks", f"{scheme}://bucket/{named}", "--jobs", "2", env=variables(address))
    assert done.code == 0, done.err
    found = sorted(line.split()[:4] for line in done.out.splitlines()[3:7])
    assert found == [[str(number), "cpu", f"{100 + 100 * number}.0", "KiB"] for number in range(4)], done.out


@pytest.mark.parametrize(
    "named, why",
    [
        ("bucket/job/run-9.cmem", "there is no such file"),
        ("bucket/none-*.cmem", "name files, a folder or a pattern"),
        ("no-such-bucket/run-*.cmem", "there is no such file"),
    ],
)
def test_what_is_not_there_is_one_line(
    bucket: tuple[str, str], named: str, why: str, run: Callable[..., Result]
) -> None:
    scheme, address = bucket
    done = run("-m", "cuptimem", "ranks", f"{scheme}://{named}", env=variables(address))
    (line,) = done.err.splitlines()
    assert done.code == 1 and f"{scheme}://{named}" in line and why in line


def test_a_server_that_does_not_answer_is_one_line(run: Callable[..., Result]) -> None:
    if not PACKAGES.is_dir():
        pytest.skip("needs moto and other servers: make remote")
    nobody = variables(f"http://127.0.0.1:{free_port()}")
    done = run("-m", "cuptimem", "ranks", "s3://bucket/run-*.cmem", env=nobody)
    (line,) = done.err.splitlines()
    assert done.code == 1 and line.startswith("cuptimem: s3://bucket/run-*.cmem: Could not connect")
    del nobody["AWS_ACCESS_KEY_ID"], nobody["AWS_SECRET_ACCESS_KEY"]
    done = run("-m", "cuptimem", "ranks", "s3://bucket/run-*.cmem", env=nobody)
    assert done.err == "cuptimem: s3://bucket/run-*.cmem: Unable to locate credentials\n"
