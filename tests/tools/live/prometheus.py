"""python -m tests.tools.live.prometheus: a real Prometheus reads a recorded program, and answers with its bytes.

Needs the program `prometheus` (Debian: apt-get install prometheus). Prints what was asked and answered.
"""

import datetime
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

PROGRAM = """\
import os, time, torch
kept = torch.zeros(1_000_000)
while not os.path.exists("go"):
    time.sleep(0.1)
"""
CONFIGURATION = """\
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: cuptimem
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
WANTED = {
    "sum by (device) (cuptimem_allocated_bytes)": 4_000_000,
    'cuptimem_allocated_bytes{category="not known yet"}': 4_000_000,
    "cuptimem_peak_bytes": 4_000_000,
    "cuptimem_steps_total": 0,
    "cuptimem_refused_requests_total": 0,
}
PATIENCE = 120  # seconds


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def ask(port: int, query: str) -> float | None:
    """The value of a query with one result; None: there is none yet."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
    except urllib.error.URLError:  # it has just been started
        return None
    return float(found[0]["value"][1]) if len(found) == 1 else None


def wait_for(port: int, query: str, wanted: float) -> float | None:
    end = time.monotonic() + PATIENCE
    while (found := ask(port, query)) != wanted and time.monotonic() < end:
        time.sleep(0.2)
    return found


def main() -> int:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        print("prometheus is not installed: apt-get install prometheus", file=sys.stderr)
        return 1
    version = subprocess.run([prometheus, "--version"], capture_output=True, text=True, check=True)
    name = (version.stdout or version.stderr).split(" (")[0].strip()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        here, metrics, api = Path(folder), free_port(), free_port()
        (here / "program.py").write_text(PROGRAM)
        (here / "prometheus.yml").write_text(CONFIGURATION.format(port=metrics))
        recorded = [sys.executable, "-m", "cuptimem", "run", "-q", "--metrics-port", str(metrics), "program.py"]
        server = [prometheus, "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        server += [f"--web.listen-address=127.0.0.1:{api}", "--log.level=error"]
        with (
            subprocess.Popen(recorded, cwd=here, env={**os.environ, "CUPTIMEM_CUDA": "no"}) as program,
            subprocess.Popen(server, cwd=here) as reader,
        ):
            print(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d} {name}")
            for query, wanted in WANTED.items():
                found = wait_for(api, query, wanted)
                failed += found != wanted
                print(f"  {query}: {found}{'' if found == wanted else f', not {wanted}'}")
            (here / "go").touch()
            failed += program.wait() != 0
            reader.terminate()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
