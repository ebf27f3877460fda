"""The rings under ThreadSanitizer and AddressSanitizer: any report fails the run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from capture_support import Stress, compile_stress


@pytest.fixture(scope="module", params=["thread", "address,undefined"], ids=["thread", "address"])
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized")
    flags = [f"-fsanitize={request.param}", "-fno-sanitize-recover=all"]
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    probe = ["gcc", *flags, str(folder / "empty.c"), "-o", str(folder / "empty")]
    # The library that it needs may be missing even where the compiler knows the option.
    if subprocess.run(probe, check=False).returncode != 0:
        pytest.skip(f"no -fsanitize={request.param} here")
    return compile_stress(folder / "stress", *flags, "-O1")


@pytest.mark.parametrize(
    "words",
    [
        ("make", "t.cmem", 3, 8000, 1 << 20),
        ("handoff", "t.cmem", 3000, 20),
        ("idle", "t.cmem", 60),
        ("churn", "t.cmem", 20, 60),
        ("short", "t.cmem", 300),
        ("together", "t.cmem", 60),
        ("full", "t.cmem", 12000),
        ("again", ".", 4),
    ],
    ids=lambda words: words[0],
)
def test_no_report(sanitized: Path, tmp_path: Path, words: tuple[object, ...]) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    stress = Stress(sanitized, tmp_path, rings)
    stress.run(words[0], tmp_path / str(words[1]), *words[2:])
    for trace in tmp_path.glob("*.cmem"):
        stress.verify(trace)


def test_recovery_without_report(sanitized: Path, tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    stress = Stress(sanitized, tmp_path, rings)
    process = stress.start("kill", tmp_path, 1 << 20, 50)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.5)
    process.kill()
    process.communicate()
    begun, _ = stress.run("killed", tmp_path)
    assert begun >= 1
    stress.run("sweep", rings)
    assert stress.run("killed", tmp_path)[0] == begun
