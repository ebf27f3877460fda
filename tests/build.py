"""C programs and libraries of tests, compiled once: they are kept in build/tests by what goes into them.

`build(name, sources, *flags, link=...)` does what `gcc FLAGS SOURCES LINK -o NAME` does (compiler="clang": clang). The
key of an object is the compiler, the flags, the source and every header that was read for it; that of a program is its
objects. So a change compiles what it touches, and all folders, Pythons and processes share the rest.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "tests"
KEPT_BYTES = 1 << 30  # what was used last stays
WARNINGS = ["-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Wno-unused-parameter", "-Werror"]
SANITIZERS = {"address": "-fsanitize=address,undefined", "thread": "-fsanitize=thread"}
if os.environ.get("CUPTIMEM_TEST_SANITIZERS") == "no":  # an emulator has no room for their shadows: the programs alone
    SANITIZERS = dict.fromkeys(SANITIZERS, "-fno-sanitize=all")
# One set for all programs that run csrc under a sanitizer, so that they share their objects.
SANITIZED = ["-std=gnu11", "-g", "-O1", "-fno-strict-aliasing", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
SANITIZED += WARNINGS


class Failed(Exception):
    """What the compiler said."""


def build(
    name: str, sources: Iterable[Path], *flags: str, link: Sequence[str | Path] = (), compiler: str = "gcc"
) -> Path:
    """The program or library of that name. flags are for compiling and linking, link for linking alone."""
    flags += tuple(os.environ.get("CUPTIMEM_TEST_FLAGS", "").split())  # tests.coverage
    objects = {source: _kept_object(compiler, source, flags) for source in sorted(sources)}
    missing = [source for source, found in objects.items() if found is None]
    if missing:
        with _lock():
            objects.update(zip(missing, _compile_all(compiler, missing, flags), strict=True))
    made = [str(path) for path in objects.values()]
    words = [str(word) for word in link]
    libraries = [_digest(word) for word in words if os.path.isfile(word)]
    key = _key(_version(compiler), name, *flags, "--", *words, *libraries, *made)
    target = KEPT / "programs" / key / name
    if not _use(target):
        with _lock():
            _link(compiler, *flags, *made, *words, target=target)
    return target


def rooms(*names: str) -> list[Path]:
    """The C files of these rooms of csrc."""
    return [path for name in names for path in sorted((ROOT / "csrc" / name).glob("*.c"))]


def generated(name: str, text: str) -> Path:
    """A source of that name and text, at a place that depends on nothing else."""
    target = KEPT / "sources" / _key(name, text) / name
    if not _use(target):
        with _unfinished(target) as path:
            path.write_text(text)
    return target


def kept_tree(folder: Path) -> Path:
    """A copy of a folder of sources, at a place that depends on what is in them alone."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    key = _key(*(f"{path.relative_to(folder)} {_digest(str(path))}" for path in files))
    target = KEPT / "sources" / key / folder.name
    with _lock():
        if not _use(target):
            with _unfinished(target) as path:
                shutil.copytree(folder, path)
    return target


def works(sanitizer: str) -> bool:
    """Whether a program can be built so: the library may be missing even where the compiler knows the option."""
    try:
        build("empty", [generated("empty.c", "int main(void) { return 0; }\n")], SANITIZERS[sanitizer])
    except (Failed, FileNotFoundError):
        return False
    return True


def prune(most: int = KEPT_BYTES) -> None:
    """Removes what was not used for longest, until the rest is no larger than that."""
    with _lock():
        for unit in sorted(KEPT.glob("*/*"), key=lambda path: path.stat().st_mtime, reverse=True):
            most -= sum(path.stat().st_size for path in (unit, *unit.rglob("*")))
            if most < 0:
                shutil.rmtree(unit) if unit.is_dir() else unit.unlink()


# --- objects ----------------------------------------------------------------------------------------------------------


def _kept_object(compiler: str, source: Path, flags: Sequence[str]) -> Path | None:
    """What _object would give, if it is there."""
    recipe = _key(_version(compiler), str(source), *flags)
    try:
        read = (KEPT / "objects" / f"{recipe}.d").read_text().split("\n")
        target = _named(recipe, read)
    except FileNotFoundError:  # never compiled so, or one of its headers is gone
        return None
    return target if _use(target) else None


def _compile_all(compiler: str, sources: list[Path], flags: Sequence[str]) -> list[Path]:
    """With all cores."""
    if len(sources) == 1:  # no thread for it: this may be a program under test
        return [_object(compiler, sources[0], flags)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda source: _object(compiler, source, flags), sources))


def _object(compiler: str, source: Path, flags: Sequence[str]) -> Path:
    if found := _kept_object(compiler, source, flags):
        return found
    recipe = _key(_version(compiler), str(source), *flags)
    with (
        _unfinished(KEPT / "objects" / f"{recipe}.d") as needs,
        _unfinished(needs.with_suffix(".o"), keep=False) as made,
    ):
        _call(compiler, *flags, "-c", "-MD", "-MF", needs, source, "-o", made)
        # "a.o: a.c a.h \" and so on, to be read again without make's syntax
        read = shlex.split(needs.read_text().replace("\\\n", " "))[1:]
        needs.write_text("\n".join(read))
        target = _named(recipe, read)
        os.replace(made, target)
    return target


def _named(recipe: str, read: Sequence[str]) -> Path:
    return KEPT / "objects" / f"{_key(recipe, *map(_digest, read))}.o"


# --- files ------------------------------------------------------------------------------------------------------------


def _key(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _digest(path: str) -> str:
    found = os.stat(path)
    return _digest_of(path, found.st_mtime_ns, found.st_size)


@cache
def _digest_of(path: str, mtime_ns: int, size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@cache
def _version(compiler: str) -> str:
    return _call(compiler, "--version")


def _call(*words: str | Path) -> str:
    # A sanitizer's or a device's library that is preloaded into this process is none of the compiler's.
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=plain)
    if done.returncode != 0:
        raise Failed(f"{shlex.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def _link(compiler: str, *words: str | Path, target: Path) -> None:
    with _unfinished(target) as path:
        _call(compiler, *words, "-o", path)


def _use(path: Path) -> bool:
    """Whether it is there; it counts as used now (prune)."""
    unit = KEPT.joinpath(*path.relative_to(KEPT).parts[:2])
    try:
        os.utime(unit)
    except FileNotFoundError:
        return False
    return path.exists()


@contextmanager
def _unfinished(target: Path, *, keep: bool = True) -> Iterator[Path]:
    """A name beside it that becomes it at the end, at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.with_name(f"{target.stem}.{os.getpid()}.{threading.get_ident()}.tmp{target.suffix}")
    try:
        yield path
        if keep:
            os.replace(path, target)
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _lock() -> Iterator[None]:
    """One process compiles at a time, with all cores; the others then find what it made."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
