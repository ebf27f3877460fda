"""What arrives in site-packages: from a wheel, from the source distribution, and from an editable install."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import ROOT, clean_environment

setuptools = pytest.importorskip("setuptools", minversion="77", reason="the build backend")

BUILD = "from setuptools import build_meta as b; import sys; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"


def build(kind: str, source: Path, target: Path) -> Path:
    """Calls the build backend as pip does. Compiling takes most of the time, so that is left out of it."""
    target.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(target)],
        cwd=source,
        capture_output=True,
        text=True,
        env={**clean_environment(), "CFLAGS": "-O0 -g0"},
    )
    assert done.returncode == 0, done.stderr
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a source distribution holds, unpacked elsewhere: what it lacks is missing in every build below."""
    folder = tmp_path_factory.mktemp("sdist")
    clean = folder / "clone"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (clean / name).parent.mkdir(parents=True, exist_ok=True)
            (clean / name).write_bytes((ROOT / name).read_bytes())
    archive = build("sdist", clean, folder)
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def environment(folder: Path) -> tuple[Path, Path]:
    """A virtual environment of its own with what cuptimem depends on, and its site-packages."""
    venv.EnvBuilder(with_pip=True, symlinks=True).create(folder)
    site = next(folder.glob("lib/python3.*/site-packages"))
    for old in site.glob("setuptools*"):  # Python 3.11 puts one in that is older than this interpreter's
        shutil.rmtree(old)
    seen = [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)]
    # Without their .pth files: an installed cuptimem of this interpreter stays out.
    (site / "__paths.pth").write_text("\n".join(seen) + "\n")
    return folder / "bin" / "python", site


def works(python: Path, folder: Path) -> None:
    """The command is there, and it records."""
    for command in ([str(python.parent / "cuptimem")], [str(python), "-m", "cuptimem"]):
        output = folder / f"{len(command)}.cmem"
        done = subprocess.run(
            [*command, "run", "-o", str(output), "-c", "import cuptimem, sys; print(cuptimem.__file__)"],
            capture_output=True,
            text=True,
            cwd=folder,
            env=clean_environment(),
        )
        assert done.returncode == 0, done.stderr
        assert output.exists() and "cuptimem: wrote" in done.stderr
        shown = subprocess.run([*command, "summary", str(output)], capture_output=True, text=True, cwd=folder)
        assert shown.returncode == 0, shown.stderr


def pip(python: Path, *arguments: str, cwd: Path) -> None:
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**clean_environment(), "CFLAGS": "-O0 -g0"},
    )
    assert done.returncode == 0, done.stderr


def test_wheel(source: Path, tmp_path: Path) -> None:
    wheel = build("wheel", source, tmp_path / "dist")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        packaged = {name for name in names if name.startswith("cuptimem/")}
        assert file.read("cuptimem.pth") == (ROOT / "cuptimem.pth").read_bytes()
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "cuptimem").rglob("*.py")}
    assert modules <= packaged
    assert {"cuptimem/py.typed", "cuptimem/_core.pyi"} <= packaged
    assert [name for name in packaged if name.startswith("cuptimem/_core.") and name.endswith(".so")]
    assert not [name for name in names if name.startswith(("csrc", "tests", "benchmarks"))]
    python, site = environment(tmp_path / "venv")
    pip(python, str(wheel), cwd=tmp_path)
    assert (site / "cuptimem.pth").is_file()
    works(python, tmp_path)
    subprocess.run([str(python), "-m", "pip", "uninstall", "-q", "-y", "cuptimem"], check=True, env=clean_environment())
    assert not (site / "cuptimem.pth").exists()


def test_editable(source: Path, tmp_path: Path) -> None:
    python, site = environment(tmp_path / "venv")
    pip(python, "-e", str(source), cwd=tmp_path)
    assert (site / "cuptimem.pth").is_file()
    assert not (site / "cuptimem").exists()
    works(python, tmp_path)
    subprocess.run([str(python), "-m", "pip", "uninstall", "-q", "-y", "cuptimem"], check=True, env=clean_environment())
    assert not (site / "cuptimem.pth").exists()


def test_pth_does_nothing_unless_asked() -> None:
    lines = (ROOT / "cuptimem.pth").read_text().splitlines()
    assert len(lines) == 1
    scope: dict[str, object] = {}
    before = set(sys.modules)
    saved = {name: os.environ.pop(name) for name in list(os.environ) if name == "CUPTIMEM"}
    try:
        exec(lines[0], scope)
    finally:
        os.environ.update(saved)
    assert set(sys.modules) == before


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == cuptimem.__version__
    try:
        assert importlib.metadata.version("cuptimem") == cuptimem.__version__
    except importlib.metadata.PackageNotFoundError:
        assert "cuptimem" not in {d.metadata["Name"] for d in importlib.metadata.distributions()}
