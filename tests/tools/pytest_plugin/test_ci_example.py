"""examples/ci: its script is what its workflow calls, passes with its baseline, names a line that grew."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment

pytestmark = pytest.mark.torch
EXAMPLE = ROOT / "examples" / "ci"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    if "avx2" not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip("the example's baseline is of x86-64 with AVX2")
    if not importlib.metadata.version("torch").startswith("2.13."):
        pytest.skip("the example's baseline is of PyTorch 2.13")
    kept = shutil.ignore_patterns("__pycache__", ".pytest_cache", "memory.json")
    return Path(shutil.copytree(EXAMPLE, tmp_path / "checkout", ignore=kept))


def check(project: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        ["sh", str(project / "check_memory.sh"), *words],
        env={**clean_environment(), "PYTHON": sys.executable, "COLUMNS": "120"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def change(project: Path, before: str, after: str) -> None:
    file = project / "model.py"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))


def test_the_workflow_calls_the_script() -> None:
    workflow = (EXAMPLE / "cuptimem.yml").read_text()
    assert re.findall(r"^ +- run: (.*sh.*)$", workflow, re.MULTILINE) == ["sh check_memory.sh"]


def test_it_passes_with_its_baseline(project: Path) -> None:
    code, text = check(project)
    assert code == 0, text
    assert "compared 2, new 0, not comparable 0" in text
    assert (project / "memory.json").exists()


@pytest.mark.extended
def test_a_larger_model_fails_with_the_line_that_did_it(project: Path) -> None:
    change(project, "F.relu(self.up(x))", "F.relu(self.up(x)) + F.relu(-self.up(x))")
    code, text = check(project)
    assert code == 1, text
    assert re.search(r"tests/test_memory.py::test_training on cpu\n  peak \+.* over peak:5%", text), text
    changed = r"\+1\.8 MiB changed model.py:17 Block.forward: 4\.3 MiB to 6\.0 MiB\n +return x \+ .*-self\.up"
    assert re.search(changed, text), text


@pytest.mark.extended
def test_a_leak_fails_with_its_line(project: Path) -> None:
    change(project, "    optimizer.step()\n", "    optimizer.step()\n    kept.append(batch + 1)\n\n\nkept = []\n")
    code, text = check(project)
    assert code == 1, text
    assert re.search(r"640\.0 KiB left behind on cpu, the limit is 0 B", text), text
    assert "kept.append(batch + 1)" in text


@pytest.mark.extended
def test_save_writes_what_is_committed(project: Path) -> None:
    (committed,) = project.glob(".cuptimem/*/main.json")
    before = committed.read_bytes()
    code, text = check(project, "--save")
    assert code == 0, text
    assert f"{committed.relative_to(project)}: 2 written, 0 kept" in text
    assert committed.read_bytes() == before
