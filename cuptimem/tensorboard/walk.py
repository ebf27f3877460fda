"""Finds the handler's files below a folder. It follows no link, and looks at so many names at most."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from cuptimem.output.text.words import shortened
from cuptimem.tensorboard.data import FOLDER, SUFFIX

FOLDERS = 50_000
NAMES = 500_000  # in all folders together
RECORDINGS = 10_000
_LINKS = 100  # of which it is found out where they lead


@dataclass(frozen=True, slots=True)
class Found:
    """A file of ours below the folder."""

    top: str  # the folder
    below: str  # path of the file from there
    run: str

    @property
    def path(self) -> str:
        return os.path.join(self.top, self.below)

    @property
    def id(self) -> str:
        """What a request names it by: never a path."""
        return hashlib.sha256(os.fsencode(self.path)).hexdigest()[:20]

    @property
    def name(self) -> str:
        return os.path.basename(self.below).removesuffix(SUFFIX)


@dataclass(frozen=True, slots=True)
class Walked:
    found: tuple[Found, ...]  # in the order of runs and names
    notes: tuple[str, ...]  # what is not among them, and why


def walk(folders: dict[str, str]) -> Walked:
    """folders: by what stands before the names of their runs. A link leads out of a folder or to something in it, which
    is found at its own place: so none is followed."""
    made = _Walk(folders)
    found = tuple(made.run())
    return Walked(found, tuple(made.notes()))


class _Walk:
    def __init__(self, folders: dict[str, str]) -> None:
        self._tops = folders
        self._real = [os.path.realpath(top) for top in folders.values()]
        self._left = {"folders": FOLDERS, "names": NAMES, "recordings": RECORDINGS}
        self._over: set[str] = set()  # which of these was not enough
        self._links = 0
        self._outside: list[str] = []
        self._unread: list[str] = []

    def notes(self) -> Iterator[str]:
        limits = {"folders": FOLDERS, "names": NAMES, "recordings": RECORDINGS}
        for what in sorted(self._over):
            yield (
                f"Not everything was looked at: there are more than {limits[what]:,} {what}. "
                "Start TensorBoard with a folder that has fewer."
            )
        if self._outside:
            yield f"Links that lead out of the folder are not followed: {_named(self._outside)}."
        if self._unread:
            yield f"Folders that cannot be read: {_named(self._unread)}."

    def run(self) -> Iterator[Found]:
        for prefix, top in self._tops.items():
            # Names of folders that are still to be looked into, by level. No recursion: paths may be deep.
            waiting: list[tuple[str, list[str]]] = [("", [""])]
            while waiting:
                above, names = waiting[-1]
                if not names:
                    waiting.pop()
                    continue
                below = os.path.join(above, names.pop())
                folders, _files = self._scan(top, below)
                if "plugins" in folders:
                    folders.remove("plugins")
                    yield from self._found(prefix, top, below)
                waiting.append((below, sorted(folders, reverse=True)))

    def _found(self, prefix: str, top: str, below: str) -> Iterator[Found]:
        run = below or "."
        if prefix:
            run = f"{prefix}/{below}" if below else prefix
        outer, inner = (os.path.join(below, part) for part in (os.path.dirname(FOLDER), FOLDER))
        if os.path.basename(FOLDER) in self._scan(top, outer)[0]:
            for name in sorted(self._scan(top, inner)[1]):
                yield Found(top, os.path.join(inner, name), run)

    def _scan(self, top: str, below: str) -> tuple[list[str], list[str]]:
        """Folders, and names as our files have them."""
        folders: list[str] = []
        files: list[str] = []
        if not self._take("folders"):
            return folders, files
        try:
            with os.scandir(os.path.join(top, below)) as entries:
                for entry in entries:
                    if not self._take("names"):
                        break
                    self._sort(entry, below, folders, files)
        except OSError as error:
            if below and not isinstance(error, FileNotFoundError):
                self._unread.append(below)
        return folders, files

    def _take(self, what: str) -> bool:
        if self._left[what] <= 0:
            self._over.add(what)
            return False
        self._left[what] -= 1
        return True

    def _sort(self, entry: "os.DirEntry[str]", below: str, folders: list[str], files: list[str]) -> None:
        """A pipe or a device is passed over. A folder or a link with the name of a file is named as one that cannot be
        read."""
        named = entry.name.endswith(SUFFIX) and not entry.name.startswith(".") and below.endswith(FOLDER)
        if entry.is_symlink():
            if named and self._take("recordings"):
                files.append(entry.name)
            elif not named:
                self._link(entry, below)
        elif entry.is_dir(follow_symlinks=False):
            if named and self._take("recordings"):
                files.append(entry.name)
            elif len(folders) < self._left["folders"]:
                folders.append(entry.name)
            else:
                self._over.add("folders")
        elif named and entry.is_file(follow_symlinks=False) and self._take("recordings"):
            files.append(entry.name)

    def _link(self, entry: "os.DirEntry[str]", below: str) -> None:
        self._links += 1
        if self._links > _LINKS:
            return
        target = os.path.realpath(entry.path)
        inside = any(target == top or target.startswith(os.path.join(top, "")) for top in self._real)
        if not inside and os.path.isdir(target):
            self._outside.append(os.path.join(below, entry.name))


def _named(paths: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
    return ", ".join(shortened(path, 100) for path in paths[:3]) + more
