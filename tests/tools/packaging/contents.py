"""What a source distribution and a wheel must hold, no more and no less. Each check returns its complaints."""

import email
import re
import runpy
import subprocess
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from tests.pythons import STARTUP

ROOT = Path(__file__).resolve().parents[3]

# What packages are built from; all else is the repository's alone.
_PACKAGED = ("cuptimem/", "csrc/", "cudasim/", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
_PACKAGED += ("CHANGELOG.md", "_cuptimem_start.py", *STARTUP)
_TESTS = "cudasim/tests/"
# Bytes of a wheel, compressed: about a third more than it has.
_LARGEST = 2_500_000
_GENERATED = {"PKG-INFO", "setup.cfg"}


def tracked() -> set[str] | None:
    """The repository's files that exist, relative to its root; None outside of a checkout."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True)
    top = subprocess.run(["git", "-C", ROOT, "rev-parse", "--show-toplevel"], capture_output=True, text=True)
    if listed.returncode != 0 or Path(top.stdout.strip()) != ROOT:
        return None
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def copy(names: set[str], target: Path) -> None:
    """Copies these files of the repository: what is built there cannot pick up what only lies around here."""
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes((ROOT / name).read_bytes())
        (target / name).chmod((ROOT / name).stat().st_mode)


def _compare(what: str, has: set[str], needs: set[str]) -> list[str]:
    return [f"{what} lacks {name}" for name in sorted(needs - has)] + [
        f"{what} has {name}, which does not belong there" for name in sorted(has - needs)
    ]


def simulator() -> set[str]:
    """The simulated device's libraries, as they are named in a wheel."""
    said = runpy.run_path(str(ROOT / "cudasim/__init__.py"))
    return {f"cudasim/{name}" for name in (said["CORE"], *(alias.file for alias in said["ALIASES"]))}


def sdist(archive: Path, names: set[str]) -> list[str]:
    """names: the repository's files."""
    with tarfile.open(archive) as file:
        members = [member for member in file.getmembers() if not member.isdir()]
    has = {member.name.partition("/")[2] for member in members}
    has = {name for name in has if not name.startswith("cuptimem.egg-info/")} - _GENERATED
    wrong = [f"{archive.name} has {m.name}, which is no plain file" for m in members if not m.isfile()]
    return wrong + _compare(
        archive.name, has, {n for n in names if n.startswith(_PACKAGED) and not n.startswith(_TESTS)}
    )


def tests_alone(names: set[str]) -> set[str]:
    """The repository without its packages: whatever imports cuptimem there has it from elsewhere."""
    return {name for name in names if not re.match(r"cuptimem/|cudasim/(tests/|\w+\.py$)", name)}


def released(file: Path) -> list[str]:
    """A wheel that users download is small: no debugging information, and most of it is no simulated device."""
    with zipfile.ZipFile(file) as archive:
        bytes_of = {one.filename: one.compress_size for one in archive.infolist()}
        complaints = [
            f"{name} has debugging information"
            for name in bytes_of
            if ".so" in name and ".debug_info" in _readelf("-SW", archive.read(name))
        ]
    simulated = sum(size for name, size in bytes_of.items() if name.startswith("cudasim/"))
    if file.stat().st_size > _LARGEST:
        complaints.append(f"{file.name} has {file.stat().st_size} bytes, more than {_LARGEST}")
    if simulated * 2 > file.stat().st_size:
        complaints.append(f"{file.name}: the simulated device is {simulated} bytes of it, more than half")
    return complaints


def _readelf(option: str, library: bytes) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(library)
        file.flush()
        return subprocess.run(["readelf", option, file.name], capture_output=True, text=True, check=True).stdout


def _dynamic(library: bytes) -> dict[str, str]:
    """The SONAME, and the folders in which the library's own requirements are searched, as readelf names both."""
    return dict(re.findall(r"\((SONAME|RPATH|RUNPATH)\).*\[(.*)\]", _readelf("-dW", library)))


def libraries(archive: zipfile.ZipFile) -> list[str]:
    """The simulated device's libraries are found by their SONAMEs, and none is searched where the wheel was built."""
    said = runpy.run_path(str(ROOT / "cudasim/__init__.py"))
    sonames = {said["CORE"]: said["CORE"], **{alias.file: alias.soname for alias in said["ALIASES"]}}
    complaints = []
    for name in archive.namelist():
        if ".so" in name:
            own = _dynamic(archive.read(name))
            soname = sonames.get(name.removeprefix("cudasim/"))
            if own.pop("SONAME", None) != soname:
                complaints.append(f"{name} has another SONAME than {soname}")
            complaints += [f"{name} has {what} {path}" for what, path in own.items() if path != "$ORIGIN"]
    return complaints


def wheel(file: Path, names: set[str], extension: str) -> list[str]:
    """names: the repository's files; extension: the suffix of extension modules of the Python it is for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with zipfile.ZipFile(file) as archive:
        has = {name for name in archive.namelist() if not name.endswith("/")}
        info = f"cuptimem-{project['version']}.dist-info/"
        complaints = [] if info + "METADATA" in has else [f"{file.name} lacks {info}METADATA"]
        if not complaints:
            complaints += _metadata(file.name, archive.read(info + "METADATA").decode(), project)
        for startup in STARTUP:
            if archive.read(startup) != (ROOT / startup).read_bytes():
                complaints.append(f"{file.name}: {startup} differs from the repository's")
        entries = archive.read(info + "entry_points.txt")
        if not all(
            part in entries
            for part in (
                b"cuptimem = cuptimem.__main__:main",
                b"cudasim = cudasim.__main__:main",
                b"cuptimem = cuptimem.pytest_plugin",
                b"cuptimem = cuptimem.tensorboard.loader:Loader",
            )
        ):
            complaints.append(f"{file.name} does not install the command and the plugins of pytest and TensorBoard")
        complaints += libraries(archive)
    modules = {name for name in names if re.fullmatch(r"cudasim/\w+\.py", name)} - {"cudasim/setup.py"}
    needs = {name for name in names if name.startswith("cuptimem/")} | modules
    needs |= {*STARTUP, f"cuptimem/_core{extension}"}
    needs |= simulator() | {"_cuptimem_start.py", f"cuptimem-{project['version']}.data/data/share/man/man1/cuptimem.1"}
    written = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
    return complaints + _compare(file.name, has, needs | {info + name for name in written})


def _metadata(name: str, text: str, project: dict[str, Any]) -> list[str]:
    found = email.message_from_string(text)
    expected = {
        "Name": project["name"],
        "Version": project["version"],
        "Requires-Python": project["requires-python"],
        "License-Expression": project["license"],
        "License-File": "LICENSE",
        "Description-Content-Type": "text/markdown",
    }
    complaints = [f"{name}: {k} is {found[k]!r}, not {v!r}" for k, v in expected.items() if found[k] != v]
    extras = project["optional-dependencies"].items()
    needs = [*project["dependencies"], *(f'{need}; extra == "{extra}"' for extra, more in extras for need in more)]
    if found.get_all("Requires-Dist") != needs:
        complaints.append(f"{name}: Requires-Dist is {found.get_all('Requires-Dist')}, not {needs}")
    return complaints
