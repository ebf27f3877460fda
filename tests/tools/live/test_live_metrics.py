"""Metrics of a state, what Prometheus' own parser reads of them, and watch() in a program."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuptimem.errors import Error
from cuptimem.live import metrics
from cuptimem.live.following import Follower
from cuptimem.live.state import LiveDevice, LiveState
from tests.conftest import Result

pytestmark = pytest.mark.torch
needs_client = pytest.mark.skipif(
    importlib.util.find_spec("prometheus_client") is None, reason="prometheus-client is not installed"
)


@pytest.fixture(scope="module")
def state(trained: Path) -> LiveState:
    follower = Follower(str(trained), judge=False)
    follower.poll()
    follower.judge()
    return follower.state()


def values(found: list[metrics.Metric]) -> dict[str, list[float]]:
    return {one.name: [value for _, value in one.values] for one in found}


def test_metrics_are_the_states(state: LiveState) -> None:
    found = values(metrics.of(state))
    device = state.devices[0]
    assert sum(found["cuptimem_allocated_bytes"]) == device.allocated
    assert found["cuptimem_step_peak_bytes"] == [device.steps[-1].peak]
    assert found["cuptimem_growth_bytes_per_step"] == [40_000]
    assert found["cuptimem_steps"] == [24]
    assert found["process_memory_usage_bytes"] == [state.resident]
    assert "hw_gpu_memory_usage_bytes" not in found and "cuptimem_reserved_bytes" not in found  # not known


def test_what_a_gpu_has_is_named_as_opentelemetry_does() -> None:
    device = LiveDevice("cuda:0", 5, 1, 7, 8, 100, 1000, 3, (), ())
    found = {one.name: one.values for one in metrics._of_devices((device,))}
    assert found["hw_gpu_memory_usage_bytes"] == (({"hw_id": "cuda:0"}, 100.0),)
    assert found["hw_gpu_memory_limit_bytes"] == (({"hw_id": "cuda:0"}, 1000.0),)
    assert found["cuptimem_reserved_bytes"] == (({"device": "cuda:0"}, 8.0),)
    assert device.headroom == 900


@needs_client
def test_prometheus_own_parser_reads_them(state: LiveState) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    server = metrics.Server(0)

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            return str(answer.read().decode())

    try:
        assert list(text_string_to_metric_families(read())) == []
        server(state)
        families = {one.name: one for one in text_string_to_metric_families(read())}
    finally:
        server.close()
    assert set(families) == {one.name for one in metrics.of(state)}
    assert families["cuptimem_steps"].type == "counter"
    samples = families["cuptimem_allocated_bytes"].samples
    assert {one.labels["category"] for one in samples} >= {"parameter", "optimizer state", metrics.NOT_KNOWN_YET}
    assert sum(one.value for one in samples) == state.devices[0].allocated


@needs_client
def test_a_port_that_is_taken_and_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = pytest.raises(Error, match=r"^127\.0\.0\.1:\d+ cannot be listened on: ")
    with socket.create_server(("127.0.0.1", 0)) as taken, refused:
        metrics.Server(taken.getsockname()[1])
    for name in [name for name in sys.modules if name.partition(".")[0] == "prometheus_client"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(Error, match=r"pip install cuptimem\[metrics\]"):
        metrics.Server(0)


# --- in a program -----------------------------------------------------------------------------


def run(folder: Path, program: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, *options, "program.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUPTIMEM_CUDA": "no", **variables}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)


WATCHED = """\
import json, sys, threading
import torch, cuptimem
seen, called, threads = [], threading.Event(), set()

def see(state):
    seen.append(state)
    threads.add(threading.current_thread().name)
    called.set()

with cuptimem.profile("run.cmem") as prof:
    kept = torch.zeros(1_000_000)
    watch = prof.watch(see, every=0.1)
    called.wait()
    called.clear()
    more = torch.zeros(2_000_000)
    called.wait()
    called.clear()
    called.wait()
    bad = prof.watch(lambda state: 1 / 0, every=0.1)
    bad._thread.join()
watch._thread.join()
last = seen[-1]
print(json.dumps([last.state, last.devices[0].allocated, sorted(threads), len(seen) > 2]))
assert "textual" not in sys.modules and "prometheus_client" not in sys.modules
"""


def test_watch(forked: Callable[..., Result]) -> None:
    done = forked("-c", WATCHED)
    assert done.code == 0, done.err
    result: list[Any] = json.loads(done.out)
    assert result == ["complete", 12_000_000, ["cuptimem watch"], True]
    assert done.err == "cuptimem: no more calls of <lambda>: ZeroDivisionError: division by zero\n"


def test_watch_belongs_inside_a_profile() -> None:
    import cuptimem

    with pytest.raises(RuntimeError, match="inside the profile's block"):
        cuptimem.profile().watch(print)
    with pytest.raises(TypeError, match="callback is a function"):
        cuptimem.profile().watch(3)  # type: ignore[arg-type]


SERVED = """\
import sys, torch, urllib.request
kept = torch.zeros(1000)
body = ""
while "cuptimem_steps_total" not in body:
    body = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics").read().decode()
print("process_memory_usage_bytes " in body)
"""


@needs_client
@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_program_serves_metrics(tmp_path: Path, how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    program = SERVED.replace("sys.argv[1]", repr(port))
    if how == "option":
        done = run(tmp_path, program, "-m", "cuptimem", "run", "-q", "--metrics-port", port)
    else:
        done = run(tmp_path, program, CUPTIMEM="1", CUPTIMEM_QUIET="1", CUPTIMEM_METRICS_PORT=port)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_a_wrong_port_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "print(1)", CUPTIMEM="1", CUPTIMEM_QUIET="1", CUPTIMEM_METRICS_PORT="many")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr.startswith(
        "cuptimem: no metrics: CUPTIMEM_METRICS_PORT takes the number of a port, not 'many'\n"
    )
    done = run(tmp_path, "print(1)", "-m", "cuptimem", "run", "--metrics-port", "70000")
    assert done.returncode == 2 and "takes the number of a port, not '70000'" in done.stderr
