"""The C core for aarch64, run in an emulator: `make aarch64`. It names what it needs.

    python -m tests.tools.aarch64 [--mirror URL] [--dir DIR]

DIR (/var/tmp/cuptimem-aarch64) has files of Debian 12 for arm64 and PyTorch's CPU wheel, made once; nothing in it is
configured, because dpkg would take an hour in the emulator. Each run compiles csrc for aarch64 with gcc's warnings as
errors, records a training there, and compares the recording, read here, with what the program says of itself. Writes
docs/aarch64/<date>.md; exit code 1 if they differ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cuptimem
from tests.tools.newest.__main__ import CERTIFICATES, ENTER, IN_NAMESPACE, MIRROR, SOURCE
from tests.tools.packaging import contents

ROOT = contents.ROOT
RESULTS = ROOT / "docs" / "aarch64"
COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
TORCH = "2.8.0"  # the last one whose wheel is small
NEEDED = f"torch=={TORCH} numpy filelock typing-extensions sympy mpmath networkx fsspec jinja2 markupsafe rich pygments"
NEEDED += " markdown-it-py mdurl cloudpickle setuptools"
FLAGS = "-std=gnu11 -O2 -fPIC -fexceptions -fvisibility=hidden -fno-strict-aliasing -Wall -Wextra -Werror"
FLAGS += " -Wno-unused-parameter -Wno-missing-field-initializers"


def make_tree(tree: Path, mirror: str) -> None:
    """Debian's files, and PyTorch's, made once."""
    if (tree / ".made").exists():
        return
    shutil.rmtree(tree, ignore_errors=True)
    include = "--include=python3,python3-venv,libpython3-dev"
    command = ["debootstrap", "--arch=arm64", "--foreign", "--variant=minbase", include, "bookworm"]
    subprocess.run([*command, str(tree), mirror], check=True)
    for package in sorted((tree / "var/cache/apt/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(tree)], check=True)
    (tree / CERTIFICATES).parent.mkdir(parents=True, exist_ok=True)
    (tree / "dev/shm").mkdir(exist_ok=True)
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28)]
    options = [
        "--target",
        str(tree / "opt/site"),
        *platforms,
        "--platform=manylinux2014_aarch64",
        "--python-version=3.11",
    ]
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", *options]
    subprocess.run([*install, *NEEDED.split()], check=True)
    (tree / ".made").touch()


def compile_core(tree: Path) -> int:
    """The extension in the tree, from all files of csrc; how many those are."""
    objects = tree / "tmp" / "objects"
    shutil.rmtree(objects, ignore_errors=True)
    objects.mkdir(parents=True)
    files = sorted((ROOT / "csrc").rglob("*.c"))
    # Headers of this Python: pyconfig.h is the same for both, as far as this code asks.
    include = f"-I{sysconfig.get_path('include')}"

    def compiled(file: Path) -> Path:
        made = objects / f"{'_'.join(file.relative_to(ROOT).parts)}.o"
        subprocess.run([COMPILER, *FLAGS.split(), include, "-c", str(file), "-o", str(made)], check=True)
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(compiled, files))
    target = tree / SOURCE.lstrip("/") / "cuptimem" / "_core.cpython-311-aarch64-linux-gnu.so"
    subprocess.run([COMPILER, "-shared", "-o", str(target), *map(str, made), "-ldl", "-lpthread", "-lrt"], check=True)
    return len(files)


def recorded(tree: Path) -> tuple[str, cuptimem.Report]:
    """What the training says of itself, and its recording."""
    trace = tree / "tmp" / "trained.cmem"
    trace.unlink(missing_ok=True)
    program = f"import sys; sys.path[:0] = ['{SOURCE}', '/opt/site']; sys.argv = sys.argv[1:]\n"
    program += (
        f"import cuptimem, runpy\nwith cuptimem.profile('/tmp/{trace.name}'): alive = runpy.run_path(sys.argv[0])"
    )
    inside = ["python3", "-c", program, "tests/tools/aarch64/trained.py"]
    command = [*IN_NAMESPACE, ENTER.replace("mount --rbind /sys", "mkdir -p /sys #"), str(tree), SOURCE, *inside]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}).stdout
    return said.decode(), cuptimem.open(trace)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.aarch64", description="A recording on aarch64.")
    parser.add_argument("--mirror", default=MIRROR, help=f"a mirror of Debian's archive (default: {MIRROR})")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/cuptimem-aarch64"), help="where the tree is")
    options = parser.parse_args(arguments)
    missing = [name for name in ("debootstrap", COMPILER) if shutil.which(name) is None]
    if missing or os.geteuid() != 0 or not EMULATOR.exists():
        sys.exit(
            "make aarch64: needs root, debootstrap, gcc-aarch64-linux-gnu and qemu-user-static, the last known "
            "to the kernel: mount -t binfmt_misc none /proc/sys/fs/binfmt_misc, then "
            "cat /usr/lib/binfmt.d/qemu-aarch64.conf > /proc/sys/fs/binfmt_misc/register"
        )
    tree = options.dir.resolve()
    make_tree(tree, options.mirror)
    names = contents.tracked()
    if names is None:
        sys.exit("make aarch64: this is no git checkout")
    shutil.rmtree(tree / SOURCE.lstrip("/"), ignore_errors=True)
    contents.copy(
        {name for name in names if name.startswith(("cuptimem/", "cudasim/", "tests/"))}, tree / SOURCE.lstrip("/")
    )
    files = compile_core(tree)
    said, report = recorded(tree)
    storages, size, torch, python = said.split()
    (cpu,) = (device for device in report.devices if device.name == "cpu")
    clean = report.complete and report.lost == type(report.lost)(*[0] * len(report.lost.__slots__))
    equal = clean and cpu.end == int(size)
    compiler = subprocess.run([COMPILER, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[
        0
    ]
    emulator = subprocess.run(["qemu-aarch64-static", "--version"], check=True, capture_output=True, text=True).stdout
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{time.strftime('%Y-%m-%d')}.md"
    target.write_text(
        f"# aarch64, {target.stem}\n\n"
        f"Written by `make aarch64`: {compiler}, {emulator.splitlines()[0]}, CPython {python}, PyTorch {torch}."
        f"\n\n| | |\n|---|---|\n| files of csrc compiled with `-Werror` | {files} |\n"
        f"| bytes alive at the end, by the program ({storages} storages) | {int(size):,} |\n"
        f"| bytes alive at the end, by the recording | {cpu.end:,} |\n"
        f"| events lost, frees unknown | {'none' if clean else report.lost} |\n"
    )
    print(target.read_text())
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
