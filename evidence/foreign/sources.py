"""Where a suite's files come from: local copies, or git."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

HOST = "https://github.com"


class Unavailable(Exception):
    """A suite's files cannot be had; the text says which and why."""


def checkout(repository: str, ref: str, paths: tuple[str, ...], work: Path, source: Path | None) -> tuple[Path, str]:
    """A fresh copy of the repository's paths at the tag, and what it is a copy of. `source` has local copies, as
    <owner>+<name>: a git directory, a clone, or an unpacked source archive."""
    name = repository.replace("/", "+")
    target = work / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    if source is None:
        target.rmdir()
        _git(
            "clone",
            "-q",
            "--depth",
            "1",
            "--branch",
            ref,
            "--filter=blob:none",
            "--sparse",
            f"{HOST}/{repository}",
            target,
        )
        if paths:
            _git("-C", target, "sparse-checkout", "set", "--no-cone", *(f"/{path}" for path in paths))
        else:
            _git("-C", target, "sparse-checkout", "disable")
        return target, f"{repository} {ref}"
    for folder in (source / name / ".git", source / name, source / f"{name}.git", source / name / "repo"):
        if (folder / "objects").is_dir():
            _unpack(folder, ref, paths, target)
            return target, f"{repository} {ref}"
    given = source / name
    if not given.is_dir():
        raise Unavailable(f"{source} has no {name}")
    for path in paths or (".",):
        if (given / path).is_dir():
            shutil.copytree(given / path, target / path, dirs_exist_ok=True, symlinks=True)
        elif (given / path).exists():
            shutil.copy2(given / path, target / path)
    return target, f"{repository}, unpacked source of {_version(given)}"


def _unpack(folder: Path, ref: str, paths: tuple[str, ...], target: Path) -> None:
    """What a git directory has at the tag."""
    archive = target / ".archive.tar"
    _git("--git-dir", folder, "archive", "-o", archive, ref, *paths)
    subprocess.run(["tar", "-x", "-f", archive, "-C", target], check=True)
    archive.unlink()


def _version(folder: Path) -> str:
    file = folder / "version.txt"
    return file.read_text().strip() if file.exists() else "an unknown version"


def _git(*arguments: object) -> None:
    command = ["git", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
    if done.returncode != 0:
        last = (done.stderr.strip() or "failed").splitlines()[-1]
        raise Unavailable(f"{' '.join(command[:3])}: {last}; --source DIR gives local copies")
