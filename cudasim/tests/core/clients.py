"""Builds the C clients of the simulated device's core, with and without sanitizers, and runs their cases."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cudasim.tests.objects import INCLUDE
from tests.build import SANITIZERS, build

HERE = Path(__file__).parent
CORE = Path(__file__).resolve().parents[2] / "csrc" / "core"
UNITS = [
    "account",
    "config",
    "contents",
    "fork",
    "fresh",
    "host",
    "known",
    "library",
    "memory",
    "profiles",
    "report",
    "space",
    "values",
    "virtual",
]
SOURCES = [*(CORE / f"{unit}.c" for unit in UNITS), HERE / "doubles.c"]
FLAGS = ["-std=gnu11", "-g", "-O1", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror", *INCLUDE]
SANITIZED = {
    "plain": [],
    "address": [SANITIZERS["address"], "-fno-sanitize-recover=all"],
    "thread": [SANITIZERS["thread"]],
}
WRAPPED = {"limits": ["-Wl,--wrap=calloc"]}
MIB = 1 << 20

DEVICES = {  # what the clients' numbers assume
    "CUPTIMEM_SIM_DEVICES": "2",
    "CUPTIMEM_SIM_MEMORY": "1GiB",
    "CUPTIMEM_SIM_CONTEXT": "300MiB",
    "CUPTIMEM_SIM_COPY_MAX": "64KiB",
}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's, without settings of the simulator but these."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CUPTIMEM", "CUDA_VISIBLE", "LD_PRELOAD"))}
    sanitizers = {
        "ASAN_OPTIONS": "detect_leaks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1:report_thread_leaks=0",  # a child of fork() lacks its parent's threads
    }
    return inherited | sanitizers | dict(settings)


@dataclass(frozen=True)
class Clients:
    """Clients of the core for one sanitizer."""

    sanitizer: str

    def client(self, name: str) -> Path:
        """The program of one test file."""
        words = [*WRAPPED.get(name, []), "-lpthread", "-ldl"]
        return build(name, [HERE / f"{name}.c", *SOURCES], *FLAGS, *SANITIZED[self.sanitizer], link=words)

    def run(self, name: str, case: str, settings: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
        """Runs a case to its end in a folder; it must say that it got there, and no sanitizer anything."""
        command = [str(self.client(name)), case]
        done = subprocess.run(
            command, env=environment(settings), cwd=folder, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{name} {case} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.endswith("done\n")
        return done


def cases_of(name: str) -> list[str]:
    """The cases of a test file, as its table at the end lists them."""
    table = (HERE / f"{name}.c").read_text().split("static const test_case cases[] = {")[1]
    return [line.split('"')[1] for line in table.splitlines() if '"' in line]
