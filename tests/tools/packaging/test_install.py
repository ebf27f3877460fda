"""What arrives in site-packages: from a wheel, from the source distribution, and from an editable install."""

import importlib.metadata
import os
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import ROOT, clean_environment
from tests.pythons import STARTUP
from tests.tools.packaging import contents

setuptools = pytest.importorskip("setuptools", minversion="77", reason="the build backend")

# Stands for gcc: an object is empty, and a library of the package is the one that was built in the source tree.
BUILT = """#!/bin/sh
for word; do
    [ "$before" = -o ] && target=$word
    before=$word
done
case " $* " in
*" -c "*) : > "$target" ;;
*/cuptimem/*) cp {root}/cuptimem/"${{target##*/cuptimem/}}" "$target" ;;
*/cudasim/*) cp {root}/cudasim/"${{target##*/cudasim/}}" "$target" ;;
*) : > "$target" ;;
esac
"""
BUILD = "from setuptools import build_meta as b; import sys; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"


DEVICE = ("__init__", "__main__", "cards", "report", "smi")


@pytest.fixture(scope="module")
def compiler(long: bool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for builds. What the set-up has compiled from the same sources is not compiled again, but in long."""
    if long:
        return {}
    script = tmp_path_factory.mktemp("compiler") / "cc"
    script.write_text(BUILT.format(root=shlex.quote(str(ROOT))))
    script.chmod(0o755)
    return {"CC": str(script)}


def build(kind: str, source: Path, target: Path, compiler: Mapping[str, str] | None = None) -> Path:
    """Calls the build backend as pip does."""
    target.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(target)],
        cwd=source,
        capture_output=True,
        text=True,
        env={**clean_environment(), **(compiler or {})},
    )
    assert done.returncode == 0, done.stderr
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    names = contents.tracked()
    if names is None:
        pytest.skip("not a git checkout")
    return names


@pytest.fixture(scope="module")
def sdist(tracked: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    contents.copy(tracked, folder / "clone")
    return build("sdist", folder / "clone", folder)


@pytest.fixture(scope="module")
def source(sdist: Path) -> Path:
    """What a source distribution holds, unpacked elsewhere: what it lacks is missing in every build below."""
    with tarfile.open(sdist) as file:
        file.extractall(sdist.parent, filter="data")
    return sdist.parent / sdist.name.removesuffix(".tar.gz")


def environment(folder: Path) -> tuple[Path, Path]:
    """A virtual environment of its own with what cuptimem depends on, and its site-packages."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    site = next(folder.glob("lib/python3.*/site-packages"))
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


def pip(python: Path, *arguments: str, cwd: Path, compiler: Mapping[str, str] | None = None) -> None:
    """This interpreter's pip, on that environment."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**clean_environment(), **(compiler or {})},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def install(python: Path, *what: str, cwd: Path, compiler: Mapping[str, str] | None = None) -> None:
    options = ("-q", "--no-index", "--no-deps", "--no-build-isolation")
    pip(python, "install", *options, *what, cwd=cwd, compiler=compiler)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def uninstall(python: Path, folder: Path, before: set[str]) -> None:
    pip(python, "uninstall", "-q", "-y", "cuptimem", cwd=folder)
    assert files(folder) == before


def test_sdist(sdist: Path, tracked: set[str]) -> None:
    assert contents.sdist(sdist, tracked) == []


@pytest.mark.scaled
def test_wheel(source: Path, tracked: set[str], compiler: dict[str, str], tmp_path: Path) -> None:
    wheel = build("wheel", source, tmp_path / "dist", compiler)
    assert contents.wheel(wheel, tracked, sysconfig.get_config_var("EXT_SUFFIX")) == []
    python, site = environment(tmp_path / "venv")
    before = files(tmp_path / "venv")
    install(python, str(wheel), cwd=tmp_path)
    assert all((site / name).is_file() for name in STARTUP)
    checked = subprocess.run([str(python), "-m", "pip", "check"], capture_output=True, text=True)
    assert "cuptimem" not in checked.stdout
    works(python, tmp_path)
    away(python, site, tracked, tmp_path / "away")
    uninstall(python, tmp_path / "venv", before)
    install(python, str(older(wheel, tmp_path)), cwd=tmp_path)
    assert (site / "cuptimem" / "gone.py").exists()
    install(python, str(wheel), cwd=tmp_path)
    assert not (site / "cuptimem" / "gone.py").exists(), "an upgrade leaves nothing of the version before"
    uninstall(python, tmp_path / "venv", before)


def older(wheel: Path, folder: Path) -> Path:
    """The same wheel as a version before, with a module that there is no more."""
    version = wheel.name.split("-")[1]
    made = folder / wheel.name.replace(version, "0.0.1")
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(made, "w") as copy:
        for name in archive.namelist():
            text = archive.read(name)
            if name.endswith(".dist-info/METADATA"):
                text = text.replace(f"Version: {version}".encode(), b"Version: 0.0.1", 1)
            elif name.endswith(".dist-info/RECORD"):
                files = [line.split(",")[0] for line in text.decode().splitlines()]
                text = "".join(
                    f"{file},,\n".replace(version, "0.0.1") for file in [*files, "cuptimem/gone.py"]
                ).encode()
            copy.writestr(name.replace(version, "0.0.1"), text)
        copy.writestr("cuptimem/gone.py", "")
    return made


def away(python: Path, site: Path, tracked: set[str], tree: Path) -> None:
    """A few tests, away from the source tree: make wheel-tests runs all of them so, with each Python."""
    contents.copy(contents.tests_alone(tracked), tree)
    where = "import cuptimem, cuptimem._core as core; print(cuptimem.__file__, core.__file__)"
    found = subprocess.run([str(python), "-c", where], cwd=tree, capture_output=True, text=True, check=True)
    assert all(Path(file).is_relative_to(site) for file in found.stdout.split())
    chosen = [
        "tests/tools/packaging/test_import.py",
        "tests/tools/cli/test_views.py",
        "tests/tools/cli/test_leak_views.py",
    ]
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not torch", *chosen],
        cwd=tree,
        capture_output=True,
        text=True,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.scaled
def test_editable(source: Path, compiler: dict[str, str], tmp_path: Path) -> None:
    python, site = environment(tmp_path / "venv")
    before = files(tmp_path / "venv")
    install(python, "-e", str(source), cwd=tmp_path, compiler=compiler)
    assert all((site / name).is_file() for name in STARTUP)
    assert not (site / "cuptimem").exists()
    works(python, tmp_path)
    uninstall(python, tmp_path / "venv", before)


def test_the_simulated_device_alone(source: Path, compiler: dict[str, str], tmp_path: Path) -> None:
    """Its own wheel has modules and libraries, and its command runs programs where there is no cuptimem."""
    wheel = build("wheel", source / "cudasim", tmp_path / "dist", compiler)
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("cudasim/")}
        assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())
    assert names == contents.simulator() | {f"cudasim/{name}.py" for name in DEVICE}
    python, _ = environment(tmp_path / "venv")
    before = files(tmp_path / "venv")
    install(python, str(wheel), cwd=tmp_path)
    program = (
        "import ctypes, importlib.util as i; print(i.find_spec('cuptimem'), ctypes.CDLL('libcuda.so.1').cuInit(0))"
    )
    done = subprocess.run(
        [str(python.parent / "cudasim"), "--device", "l4", str(python), "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=clean_environment(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "None 0\n", "")
    pip(python, "uninstall", "-q", "-y", "cudasim", cwd=tmp_path)
    assert files(tmp_path / "venv") == before


# By the build that shows it: of each file what is changed, and what the checks above say then.
BROKEN = {
    "sdist": {"MANIFEST.in": ("graft csrc", "prune csrc", "lacks csrc/base/event.h")},
    "wheel": {
        "pyproject.toml": ("cuptimem.__main__:main", "cuptimem.cli:main", "does not install the command"),
        "cuptimem.pth": ("import", "#import", "cuptimem.pth differs"),
        "cuptimem.start": ("_cuptimem", "#_cuptimem", "cuptimem.start differs"),
        "setup.py": ('if sys.platform == "linux"', "if False", "lacks cuptimem/_core.so"),  # nothing is compiled
    },
}


@pytest.mark.parametrize("kind", BROKEN)
def test_the_checks_find(kind: str, tracked: set[str], tmp_path: Path) -> None:
    """What is missing in a package is named."""
    contents.copy(tracked, tmp_path / "clone")
    for name, (old, new, _) in BROKEN[kind].items():
        file = tmp_path / "clone" / name
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
    package = build(kind, tmp_path / "clone", tmp_path / "dist")
    complaints = contents.sdist(package, tracked) if kind == "sdist" else contents.wheel(package, tracked, ".so")
    for _, _, said in BROKEN[kind].values():
        assert any(said in complaint for complaint in complaints), complaints


@pytest.mark.usefixtures("tracked")
def test_the_checks_find_changed_libraries(tmp_path: Path) -> None:
    """What auditwheel does to a library that it takes in: another name, and another folder for what it needs."""
    name = "cudasim/libcublas.so.13"
    library = (ROOT / name).read_bytes()
    changes = {
        b"$ORIGIN": [],
        b"/ORIGIN": [f"{name} has RUNPATH /ORIGIN"],
        b"libcublas.so.14": [f"{name} has another SONAME than libcublas.so.13"],
    }
    for new, complaints in changes.items():
        with zipfile.ZipFile(tmp_path / "one.whl", "w") as archive:
            old = b"libcublas.so.13" if new.startswith(b"lib") else b"$ORIGIN"
            archive.writestr(name, library.replace(old, new))
        with zipfile.ZipFile(tmp_path / "one.whl") as archive:
            assert contents.libraries(archive) == complaints


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
