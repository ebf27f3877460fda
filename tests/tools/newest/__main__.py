"""Tests with the newest CPython, compilers, glibc and PyTorch, in Debian forky: `make newest MIRROR=...`.

Needs root and debootstrap.

    python -m tests.tools.newest [--mirror URL] [--dir DIR] [--pythons 3.14 3.15]

DIR (build/newest) is made once. Each run copies the repository's files into it and installs them there, with gcc's
warnings as errors. With every Python it then runs tests that record PyTorch, and those of tests/everything.py that an
interpreter may change; with the last one also tests of the C rooms, of what clang compiles and on the simulated device.
All else of `make check` is Python above these and takes as long again: `make pythons` runs it.
docs/newest/<date>.md is written after each part; exit code 1 if a test fails.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import everything
from tests.tools.packaging import contents

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "docs" / "newest"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = "python3.14-venv,python3.14-dev,python3.15-venv,python3.15-dev,gcc,g++,clang,make,git,ca-certificates"
SCRIPT = "/usr/share/debootstrap/scripts/sid"  # an older debootstrap does not know forky
PYTHONS = ("3.14", "3.15")
TORCH = "2.15.0"
TOOLS = (
    "setuptools>=77",
    "rich>=13",
    "cloudpickle>=3",
    "jinja2>=3.1",
    "pytest>=8",
    "hypothesis>=6",
    "pytest-reportlog",
)
# Some tests of tests/record/sources link a double of the device's allocator, which a CUDA build of PyTorch has itself;
# those that `make torches` runs do not.
LINES = "tests/unit/frames tests/record/truth/test_lines.py tests/record/walks tests/record/holders"
RECORDING = {
    "nodes, backward, allocator, storages, live set, steps": "-m torches tests/record/sources tests/record/truth",
    "lines, walks, holders": LINES,
}
# Those of LINES need no second run. Answers to kept traces are the reader's, which these compilers have compiled.
INTERPRETER = [
    "tests/golden",
    *(f"tests/{name}" for name in everything.INTERPRETER if f"tests/{name}"[:-1] not in LINES),
]
# What needs no Triton, as `make older-cuda`.
DEVICE = "-k not(compile_graphs) " + " ".join(
    f"tests/on_device/simulated/test_{name}.py" for name in ("programs", "driver", "imports")
)
SOURCE = "/srv/cuptimem"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
COUNT = re.compile(r"(\d+) (passed|failed|skipped|error)")

# A mount namespace of their own: the kernel takes the mounts away with the last process, however that ends. The tree
# has its own devices, terminals and shared memory, so that nothing that root does there reaches the machine's.
IN_NAMESPACE = ("unshare", "--mount", "--propagation", "private", "sh", "-euc")
ENTER = """
mount -t proc proc "$0/proc"
mount --rbind /sys "$0/sys"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$0/dev/shm"
exec chroot "$0" sh -euc 'cd "$0"; exec "$@"' "$@"
"""


@dataclass(frozen=True)
class Part:
    """What one call of the tests gave: outcomes by their name, and the lines that say what failed."""

    name: str
    counts: Counter[str]
    failed: Sequence[str]
    code: int

    def row(self, commit: str) -> str:
        broken = self.counts["failed"] + self.counts["error"]
        return f"| {self.name} | {self.counts['passed']} | {broken} | {self.counts['skipped']} | {commit} |"


class Tree:
    """A tree of Debian's files, and commands in it."""

    enter = ENTER

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def copy_source(self, names: set[str] | None) -> None:
        """The repository's files as they are now, in a folder of their own: what is built there stays there."""
        if names is None:
            sys.exit("this is no git checkout")
        target = self.root / SOURCE.lstrip("/")
        shutil.rmtree(target, ignore_errors=True)
        contents.copy(names, target)

    def command(self, *words: str, where: str = SOURCE) -> list[str]:
        return [*IN_NAMESPACE, self.enter, str(self.root), where, *words]

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Nothing of the host's but how it reaches the network."""
        kept = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        kept |= {name: os.environ[name] for name in ("PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT") if name in os.environ}
        kept |= {"PATH": "/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/root", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"}
        return kept | {"PIP_CERT": f"/{CERTIFICATES}", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}

    def run(self, *words: str, where: str = SOURCE, **more: str) -> None:
        subprocess.run(self.command(*words, where=where), env=self.environment(more), check=True)

    def said(self, *words: str) -> str:
        done = subprocess.run(self.command(*words), env=self.environment({}), check=True, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()

    def tests(self, name: str, *words: str, **more: str) -> Part:
        """Runs tests and shows what they write."""
        print(f"----- {name}", flush=True)
        lines = []
        with subprocess.Popen(
            self.command(*words),
            env=self.environment(more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None  # it is a pipe
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip())
        counts = Counter({kind: int(number) for number, kind in COUNT.findall("".join(lines[-1:]))})
        failed = sorted({line for line in lines if line.startswith(("FAILED ", "ERROR "))})
        return Part(name, counts, failed, process.returncode)


class Forky(Tree):
    """Debian forky, installed."""

    def __init__(self, root: Path, mirror: str) -> None:
        super().__init__(root)
        begun, made = self.root / ".begun", self.root / ".made"
        if not made.exists():
            if not begun.exists() and self.root.exists() and any(self.root.iterdir()):
                sys.exit(f"make newest: {self.root} has files that are not of a run before; name another with --dir")
            shutil.rmtree(self.root, ignore_errors=True)  # what an interrupted run has left
            self.root.mkdir(parents=True)
            begun.touch()
            options = ("--variant=minbase", f"--include={PACKAGES}", "forky")
            subprocess.run(["debootstrap", *options, str(self.root), mirror, SCRIPT], check=True)
            made.touch()
        # How the host reaches the network: names, and certificates of a proxy.
        for name in ("etc/resolv.conf", CERTIFICATES):
            if Path("/", name).exists():
                shutil.copyfile(Path("/", name), self.root / name)


def make_environments(forky: Forky, versions: Sequence[str]) -> dict[str, str]:
    """Each Python's interpreter in the tree, with PyTorch and what tests need. Made once."""
    pythons = {}
    for version in versions:
        folder = f"/opt/{version}"
        make = f"from tests import torches; torches.HOME = torches.Path('{folder}'); torches.make('{TORCH}')"
        forky.run("mkdir", "-p", folder)
        forky.run(f"python{version}", "-c", make)
        pythons[version] = f"{folder}/{TORCH}/bin/python"
        forky.run(pythons[version], "-m", "pip", "install", "-q", *TOOLS)  # at once where they are there
    return pythons


def install(forky: Forky, python: str, compiler: str) -> None:
    options = ("-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "-e", ".")
    forky.run(python, *options, CUPTIMEM_WERROR="1", CC=compiler)


def tested(forky: Forky, version: str, python: str, *, newest: bool) -> Iterator[Part]:
    """What one Python is asked; the newest one more."""
    pytest = (python, "-m", "pytest", "-q", "--without", "sanitizer")
    record = (*pytest, "--without", "cuda_torch")
    bare = (*record, "--without", "torch")
    if newest:
        install(forky, python, "clang")
        of = f"CPython {version}, compiled by clang: frames"
        yield forky.tests(of, *bare, "tests/unit/frames", CUPTIMEM_CUDA="no")
    install(forky, python, "gcc")
    for name, words in RECORDING.items():
        of = f"CPython {version}, PyTorch {TORCH}: {name}"
        yield forky.tests(of, *record, *words.split(), CUPTIMEM_CUDA="no")
    if newest:
        cuda = forky.said(python, "-c", "import torch; print(torch.version.cuda)")
        of = f"CPython {version}, PyTorch {TORCH} for CUDA {cuda}, simulated device: programs, driver level, imports"
        yield forky.tests(of, *pytest, *DEVICE.split(), CUPTIMEM_CUDA="yes", CUPTIMEM_CUDA_PYTHON=python)
    of = f"CPython {version}: what an interpreter may change"
    yield forky.tests(of, *bare, *INTERPRETER, CUPTIMEM_CUDA="no")
    if newest:
        of = f"CPython {version}: C rooms"
        yield forky.tests(of, *bare, "tests/unit", "--ignore=tests/unit/frames", CUPTIMEM_CUDA="no")


def commit() -> str:
    """What is checked out; -dirty: with changes."""
    command = ("git", "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*")
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def table(what: str, parts: Sequence[Part], of: str, page: Path | None = None) -> list[str]:
    """A row a part, of this commit, with what an earlier run of the same day has of other Pythons; and what failed."""
    names = {part.name for part in parts}
    kept = re.findall(r"^(\| (CPython .*?) \| .*)$", page.read_text(), re.M) if page and page.exists() else []
    rows = sorted([*(row for row, name in kept if name not in names), *(part.row(of) for part in parts)])
    lines = [f"| {what} | passed | failed | skipped | commit |", "|---|---|---|---|---|", *rows]
    for part in parts:
        if part.code != 0:
            lines += ["", f"{part.name} ended with {part.code}:", "", *(f"- `{line}`" for line in part.failed)]
    return lines


def text(date: str, versions: Sequence[str], parts: Sequence[Part], of: str, page: Path | None = None) -> str:
    """docs/newest/<date>.md"""
    lines = [
        f"# Newest versions, {date}",
        "",
        f"Written by `make newest`: {', '.join(versions)}.",
        "",
        "Both compilers compile everything with `-Werror`; where none is named, gcc's is tested.",
        "",
        *table("tests", parts, of, page),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.newest", description="Tests in Debian forky.")
    parser.add_argument("--mirror", default=MIRROR, help=f"a mirror of Debian's archive (default: {MIRROR})")
    parser.add_argument("--dir", type=Path, default=ROOT / "build" / "newest", help="where the tree is (build/newest)")
    parser.add_argument("--pythons", nargs="+", choices=PYTHONS, default=PYTHONS, help="these of them alone")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        sys.exit("make newest: only root can make and enter a tree of Debian")
    if not Path(SCRIPT).exists():
        sys.exit("make newest: debootstrap is not installed")
    of = commit()
    forky = Forky(options.dir, options.mirror)
    forky.copy_source(contents.tracked())
    forky.run("git", "init", "-q")
    forky.run("git", "add", ".")
    pythons = make_environments(forky, options.pythons)
    versions = ["Debian forky", *(forky.said(name, "--version").splitlines()[0] for name in ("gcc", "clang"))]
    versions.append(forky.said("getconf", "GNU_LIBC_VERSION"))
    parts: list[Part] = []
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{time.strftime('%Y-%m-%d')}.md"
    for version, python in pythons.items():
        versions.append("C" + forky.said(python, "--version"))
        for part in tested(forky, version, python, newest=version == options.pythons[-1]):
            parts.append(part)
            target.write_text(text(target.stem, [*versions, f"PyTorch {TORCH}"], parts, of, target))
    print(f"wrote {target.relative_to(ROOT)}")
    return 0 if all(part.code == 0 and part.counts["passed"] for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
