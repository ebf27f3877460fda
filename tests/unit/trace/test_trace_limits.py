"""Huge numbers wherever a trace has one, under a small memory limit."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tracelib import (
    batch_payload,
    chunk,
    define_code,
    define_stack,
    define_string,
    end_chunk,
    header,
    meta_chunk,
    varint,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "fuzz"))

import fuzz


@pytest.fixture(scope="module")
def plain() -> Path:
    return fuzz.build_driver("-O0")


def run(program: Path, *arguments: object, memory: int) -> str:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    done = subprocess.run(
        [str(program), *map(str, arguments)], check=False, capture_output=True, text=True, timeout=120, preexec_fn=limit
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


HUGE = [2**20, 2**26, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1]


@pytest.mark.parametrize("number", HUGE)
def test_no_allocation_by_an_unchecked_number(plain: Path, tmp_path: Path, number: int) -> None:
    """Every length and count in the format, huge: 40 MiB of address space suffice to say no."""
    n = varint(number)
    start = batch_payload()[:24]
    names = define_string("a") + define_code(1, 1, 1, b"")
    payloads = [
        (2, start + n),
        (2, start + b"\0" + n + b"\0"),
        (2, start + b"\0\0" + n),
        (2, start + b"\0" + n + b"\x03\x05\x04\0" + b"\0\0"),
        (2, start + b"\0\0\0" + n),
        (2, start + b"\0\0\0\x01" + n + b"\0\0"),
        (2, batch_payload(definitions=b"\x01" + n)),
        (2, batch_payload(definitions=b"\x04" + n)),
        (2, batch_payload(definitions=define_string("a") + b"\x02\1\1\1" + n)),
        (2, batch_payload(definitions=names + b"\x03" + n + b"\1\0\0\0\0")),
        (2, batch_payload(definitions=names + b"\x03\0" + n + b"\0\0\0\0")),
        (2, batch_payload(definitions=names + define_stack(0, 1, min(number, 2**32 - 1), 0, number, 0))),
        (2, batch_payload(count=1, section=b"\x05\x07" + n + b"\x04\0")),
        (1, n),
        (1, b"\x01" + n),
        (1, b"\x01\x01a" + n),
        (3, b"\0\0\0" + n),
        (77, n),
    ]
    path = tmp_path / "t.cmem"
    for kind, payload in payloads:
        path.write_bytes(header() + meta_chunk() + chunk(kind, payload) + end_chunk())
        assert run(plain, "read", path, memory=40 << 20).startswith("events ")
    for length in {number & 0xFFFFFFFF or 1, number - 1 & 0xFFFFFFFF}:
        path.write_bytes(header() + meta_chunk() + chunk(2, b"", length))
        assert run(plain, "read", path, memory=40 << 20) == "events 0 state 3 last 0\n"
        path.write_bytes(header() + chunk(1, b"", length))
        assert "corrupt" in run(plain, "read", path, memory=40 << 20)
