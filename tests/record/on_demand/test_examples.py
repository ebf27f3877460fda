"""The examples of windows on demand: a FastAPI server under load, and a Ray actor."""

import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment
from tests.record.on_demand.conftest import PATIENCE

pytestmark = pytest.mark.torch

SERVERS, RAY = ROOT / "build/servers", ROOT / "build/ray"


def _free_port() -> int:
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return int(end.getsockname()[1])


def _post(port: int, path: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def server(python: str, tmp_path: Path) -> Iterator[int]:
    if not SERVERS.is_dir():
        pytest.skip("needs FastAPI and uvicorn: make build/servers/.made")
    port = _free_port()
    environment = clean_environment() | {"PYTHONPATH": str(SERVERS)}
    process = subprocess.Popen(
        [python, str(ROOT / "examples/on_demand_fastapi.py"), str(port)], cwd=tmp_path, env=environment
    )
    end = time.monotonic() + PATIENCE
    while True:
        try:
            _post(port, "/predict?rows=1")
            break
        except OSError:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.1)
    yield port
    process.terminate()
    process.wait(PATIENCE)


def test_a_server_answers_while_a_window_is_open_and_refuses_a_second_one(server: int) -> None:
    answers: list[tuple[int, str]] = []
    done = threading.Event()

    def load() -> None:
        while not done.is_set():
            answers.append(_post(server, "/predict"))

    workers = [threading.Thread(target=load) for _ in range(3)]
    for worker in workers:
        worker.start()
    found: list[tuple[int, str]] = []
    asking = threading.Thread(target=lambda: found.append(_post(server, "/memory?seconds=3")))
    asking.start()
    time.sleep(1)
    second = _post(server, "/memory?seconds=3")
    asking.join()
    third = _post(server, "/memory?seconds=0.2")
    done.set()
    for worker in workers:
        worker.join()
    assert {status for status, _ in answers} == {200} and len(answers) > 20
    assert second[0] == 409 and "a window of 3 s is open already" in second[1]
    for status, text in (*found, third):
        assert status == 200
        assert "on_demand_fastapi.py" in text and "in predict" in text or "predict" in text
    # The model: 256 x 1024 + 1024 + 1024 x 8 + 8 floats, alive before the window.
    assert re.search(r"parameters 1\.0 MiB", found[0][1]), found[0][1]


def test_a_ray_actor_is_recorded_while_it_trains(tmp_path: Path) -> None:
    if not RAY.is_dir():
        pytest.skip("needs Ray: make ray-test")
    environment = clean_environment() | {"PYTHONPATH": f"{RAY}:{ROOT}", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/on_demand_ray.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counted = re.search(r"Steps: (\d+), counted by the optimizer's step", done.stdout)
    assert counted is not None and int(counted[1]) >= 20, done.stdout
    assert int(re.findall(r"trained (\d+) steps", done.stdout)[0]) >= int(counted[1])
