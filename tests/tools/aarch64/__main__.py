"""cuptimem on aarch64, in an emulator: `make aarch64`. It names what it needs.

    python -m tests.tools.aarch64 [--mirror URL] [--dir DIR] [--pythons 3.11 3.14]

DIR (/var/tmp/cuptimem-aarch64) has a tree of arm64 files for each release of Debian that has one of the Pythons, made
once. Nothing in it is configured, because dpkg would take an hour in the emulator. In a tree everything is emulated but
gcc, which is the host's cross-compiler: setup.py builds the extension and the simulated device there, with warnings as
errors. Each Python tests its frames; 3.11, for which there is a small wheel of PyTorch, runs the rest:
doctor, trainings whose recordings are compared with what the programs say of themselves (on the CPU, and on the
simulated device), the recorder's C programs and the simulated device's. docs/aarch64/<date>.md is written after each
part; exit code 1 if one fails.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import cuptimem
from tests.tools.newest.__main__ import CERTIFICATES, ENTER, MIRROR, SCRIPT, SOURCE, TOOLS, Part, Tree, commit, table
from tests.tools.packaging import contents

ROOT = contents.ROOT
RESULTS = ROOT / "docs" / "aarch64"
PREFIX = "aarch64-linux-gnu-"
COMPILER = Path(f"/usr/bin/{PREFIX}gcc")
# What lies there for x86-64 alone, so that an arm64 tree has other folders.
CROSS = "/lib64 /lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu /usr/lib/gcc-cross /usr/aarch64-linux-gnu"
MOUNT = f'for one in {CROSS}; do mkdir -p "$0$one"; mount --bind "$one" "$0$one"; done\n'
EMULATOR = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
RELEASES = {"3.15": "forky", "3.14": "forky", "3.13": "trixie", "3.11": "bookworm"}
RECORDS, TORCH = "3.11", "2.8.0"  # the last one whose wheel is small
# Its CUDA build, and what the simulated device has no stand-in for.
CUDA_TORCH = "2.15.0"
NEEDED_BY_CUDA = f"torch=={CUDA_TORCH} nvidia-cufile==1.17.* nvidia-cuda-nvrtc==13.2.* nvidia-nvshmem-cu13==3.7.2"
NEEDED = "markupsafe pygments markdown-it-py mdurl pluggy iniconfig packaging sortedcontainers"
NEEDED_BY_TORCH = f"torch=={TORCH} numpy filelock typing-extensions sympy mpmath networkx fsspec"

FRAMES = "self-test", "tests/unit/frames/test_frames_selftest.py", "tests/unit/frames/test_frames_identity.py"
# Tests that an emulator fails, and why.
NOT_SHOWN = {
    "a_free_never_overtakes": "which of two events in a microsecond was first: its counter moves once in that time",
    "test_hostile": "what a program writes that aborts: it adds a line of its own",
    "test_forks": "a child of a fork that runs no handler: MADV_WIPEONFORK does nothing there",
}
NEVER = (
    "what the order of memory accesses or a cost is on a real processor, or what a sanitizer sees: it runs none",
    "whose SIGBUS a handler is for: `/proc/self/status` shows the emulator's own (`test_capture_bus_error.py`)",
    "CPython 3.12, which no release of Debian has; a GPU, CUPTI itself",
)
C_PROGRAMS = {
    "recorder: rings, kills, blocks past the bound": [
        f"tests/unit/capture/test_capture_{n}.py" for n in ("rings", "kill", "tail")
    ],
    "driver level: callbacks and records of CUPTI": [
        f"tests/record/driver/test_{n}.py" for n in ("callbacks", "activity")
    ],
    "simulated device, under C clients": [
        f"cudasim/tests/test_{n}.py" for n in ("runtime", "driver", "libraries", "cupti")
    ],
}


class Emulated(Tree):
    """Files of a release for arm64, and commands that are emulated."""

    enter = ENTER.replace('mount --rbind /sys "$0/sys"\n', "").replace("exec chroot", f"{MOUNT}exec chroot")

    def __init__(self, root: Path, release: str, mirror: str) -> None:
        super().__init__(root / release)
        made = self.root / ".made"
        if made.exists():
            return
        shutil.rmtree(self.root, ignore_errors=True)
        pythons = [version for version, its in RELEASES.items() if its == release]
        packages = [name for version in pythons for name in (f"python{version}", f"libpython{version}-dev")]
        command = ["debootstrap", "--arch=arm64", "--foreign", "--variant=minbase", f"--include={','.join(packages)}"]
        subprocess.run([*command, release, str(self.root), mirror, SCRIPT], check=True)
        proc = self.root / "proc"
        if proc.is_symlink():
            proc.unlink()
        for package in sorted((self.root / "var/cache/apt/archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(self.root)], check=True)
        for folder in ("proc", "dev/pts", "dev/shm", "tmp", str(Path(CERTIFICATES).parent)):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        for name in ("gcc", "as", "ld", "nm", "ar", "objdump", "readelf"):
            shutil.copy(f"/usr/bin/{PREFIX}{name}", self.root / "usr/bin")
            shutil.copy(f"/usr/bin/{PREFIX}{name}", self.root / "usr/bin" / name)
        for version in pythons:
            self.download(version, version, [*TOOLS, *NEEDED.split()])
        if RECORDS in pythons:
            self.download(RECORDS, RECORDS, NEEDED_BY_TORCH.split())
            self.download("cuda", RECORDS, NEEDED_BY_CUDA.split())
        made.touch()

    def download(self, folder: str, version: str, packages: Sequence[str]) -> None:
        platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 24, 26, 27, 28)]
        options = ["--no-deps", "--only-binary=:all:", *platforms, "--platform=manylinux2014_aarch64"]
        target = ["--target", str(self.root / "opt" / folder), f"--python-version={version}"]
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *options, *target, *packages], check=True)

    def environment_of(self, version: str) -> dict[str, str]:
        return {"PYTHONPATH": f"/opt/{version}:{SOURCE}", "CUPTIMEM_TEST_SANITIZERS": "no", "CUPTIMEM_CUDA": "no"}

    def pytest(self, version: str, name: str, *words: str) -> Part:
        command = (f"python{version}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--without", "torch", *words)
        return self.tests(f"CPython {version}, {name}", *command, **self.environment_of(version))


def doctor(tree: Emulated) -> Part:
    """Its checks that try something: what it finds out about PyTorch, and the self-test, which records."""
    print("----- doctor", flush=True)
    command = tree.command(f"python{RECORDS}", "-m", "cuptimem", "doctor", "--json")
    environment = tree.environment(tree.environment_of(RECORDS))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE)
    checks = json.loads(done.stdout)["checks"] if done.stdout else []
    tried = [one for one in checks if one["group"] == "Self-test" or one["name"] == "Python stacks"]
    good = sum(one["state"] == "ok" for one in tried)
    bad = [f"{one['name']}: {one['text']}" for one in checks if one["state"] == "failed"]
    counts = Counter(passed=good, failed=len(tried) - good)
    return Part(f"CPython {RECORDS}, PyTorch {TORCH}: doctor's self-tests", counts, bad, done.returncode or len(bad))


def training(tree: Emulated) -> Part:
    """Of what is alive at its end the program's own account is compared with the recording, which is read here."""
    print("----- training", flush=True)
    trace = tree.root / "tmp" / "trained.cmem"
    trace.unlink(missing_ok=True)
    program = f"import cuptimem, runpy\nwith cuptimem.profile('/tmp/{trace.name}'):\n"
    program += "    alive = runpy.run_path('tests/tools/aarch64/trained.py')"
    command = tree.command(f"python{RECORDS}", "-c", program)
    environment = tree.environment(tree.environment_of(RECORDS))
    said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    report = cuptimem.open(trace)
    (cpu,) = (device for device in report.devices if device.name == "cpu")
    bad = [] if report.complete else ["the recording is not complete"]
    bad += [f"{report.lost}"] * any(getattr(report.lost, name) for name in report.lost.__slots__)
    bad += [f"{said[1]} bytes are alive, {cpu.end} of them recorded"] * (cpu.end != int(said[1]))
    name = (
        f"CPython {RECORDS}, PyTorch {said[2]}: a training's {int(said[1]):,} bytes in {said[0]} storages, to the byte"
    )
    return Part(name, Counter(passed=int(not bad), failed=len(bad)), bad, len(bad))


def simulated(tree: Emulated) -> Part:
    """PyTorch's CUDA build under the simulated device: peaks as PyTorch counts them, and as they are recorded."""
    print("----- simulated device", flush=True)
    said = tree.root / "tmp" / "simulated"
    said.unlink(missing_ok=True)
    program = ("tests/tools/aarch64/simulated.py", f"/tmp/{said.name}")
    command = tree.command(f"python{RECORDS}", "-m", "cuptimem", "simulate", "--json", *program)
    environment = tree.environment(tree.environment_of(RECORDS))
    environment["PYTHONPATH"] = f"/opt/cuda:{environment['PYTHONPATH']}"
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE)
    if done.returncode != 0 or not said.exists():
        name = f"CPython {RECORDS}, PyTorch {CUDA_TORCH} on the simulated device"
        return Part(name, Counter(failed=1), [f"simulate ended with {done.returncode}"], done.returncode or 1)
    torch, cuda, peak, reserved = said.read_text().split()
    (device,) = json.loads(done.stdout)["devices"]
    bad = [
        f"{what}: {count} by PyTorch, {device[what]} recorded"
        for what, count in (("allocated", int(peak)), ("reserved", int(reserved)))
        if device[what] != {"low": count, "high": count}
    ]
    name = f"CPython {RECORDS}, PyTorch {torch} (CUDA {cuda}) on the simulated device: peaks of {int(peak):,} bytes in "
    name += f"tensors and {int(reserved):,} reserved, to the byte"
    return Part(name, Counter(passed=2 - len(bad), failed=len(bad)), bad, len(bad))


def tested(tree: Emulated, version: str) -> Iterator[Part]:
    """What one Python is asked."""
    python = f"python{version}"
    if version == RECORDS:
        build = (python, "setup.py", "-q", "build_ext", "--inplace")
        tree.run(*build, CC="gcc", CUPTIMEM_WERROR="1", **tree.environment_of(version))
        yield doctor(tree)
        yield training(tree)
        yield simulated(tree)
    name, *files = FRAMES
    yield tree.pytest(version, f"frames: {name}", *files)
    if version == RECORDS:
        for name, files in C_PROGRAMS.items():
            yield tree.pytest(version, name, *files, "-k", " and ".join(f"not {one}" for one in NOT_SHOWN))


def text(date: str, versions: Sequence[str], parts: Sequence[Part], of: str, page: Path) -> str:
    """docs/aarch64/<date>.md"""
    lines = [
        f"# aarch64, {date}",
        "",
        f"Written by `make aarch64`: {', '.join(versions)}.",
        "",
        "setup.py builds the extension and the simulated device, with `-Werror`.",
        "",
        *table("what ran in the emulator", parts, of, page),
    ]
    lines += ["", "An emulator does not show", ""]
    lines += [f"- {why} (`{test}` is not run)" for test, why in NOT_SHOWN.items()]
    lines += [f"- {what}" for what in NEVER]
    return "\n".join(lines) + "\n"


def first_line(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.aarch64", description="cuptimem on aarch64.")
    parser.add_argument("--mirror", default=MIRROR, help=f"a mirror of Debian's archive (default: {MIRROR})")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/cuptimem-aarch64"), help="where the trees are")
    parser.add_argument("--pythons", nargs="+", choices=RELEASES, default=RELEASES, help="these of them alone")
    options = parser.parse_args(arguments)
    if shutil.which("debootstrap") is None or not COMPILER.exists() or os.geteuid() != 0 or not EMULATOR.exists():
        sys.exit(
            "make aarch64: needs root, debootstrap, gcc-aarch64-linux-gnu and qemu-user-static, the last known "
            "to the kernel: mount -t binfmt_misc none /proc/sys/fs/binfmt_misc, then "
            "cat /usr/lib/binfmt.d/qemu-aarch64.conf > /proc/sys/fs/binfmt_misc/register"
        )
    versions = [first_line(str(COMPILER), "--version"), first_line("qemu-aarch64-static", "--version")]
    parts: list[Part] = []
    of = commit()
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{time.strftime('%Y-%m-%d')}.md"
    for version in options.pythons:
        tree = Emulated(options.dir, RELEASES[version], options.mirror)
        tree.copy_source(contents.tracked())
        for part in tested(tree, version):
            parts.append(part)
            target.write_text(text(target.stem, versions, parts, of, target))
    print(target.read_text())
    return 0 if all(part.code == 0 and part.counts["passed"] for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
