"""What a copy of a trace for sharing says instead: no command line, no host, no user, no place on this machine.

Events and numbers are copied byte for byte (csrc/trace/rewrite.h). Text decides some figures, too: the package that a
file belongs to, which lines are one. So a path keeps what lies inside the folder of installed packages, and two texts
that differ still do.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from cuptimem.errors import Error
from cuptimem.output import homes
from cuptimem.report.stacks import is_generated, is_no_users

# Words of cuptimem's own, on which figures depend.
_AS_THEY_ARE = frozenset(
    ("ring.place", "ring.id", "ring.owner", "ring.bytes", "nodes", "driver")
    + tuple(f"driver.{name}" for name in ("interface", "activity", "kernels", "time_base_changed"))
)
_PATHS = frozenset(("directory", "script", "exec", "stdlib"))  # meta that is a path and nothing else
_SLASHES = re.compile(r"//+")
_MOST_USERS = 256  # each is looked for at each place of each text
# Up to the folder of installed packages, or of Python's own modules; packages lie in Python's own folder.
_UP_TO_PACKAGES = re.compile(r".*[/\\](?=(?:site|dist)-packages(?:[/\\]|\Z))", re.DOTALL)
_UP_TO_PYTHON = re.compile(r".*[/\\](?=lib(?:64)?[/\\]python3\.\d+t?(?:[/\\]|\Z))", re.DOTALL)
_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\.]+)")

Text = tuple[str, str, str]  # kind, key, text, as _core.trace_rewrite gives them


class Scrubber:
    """Gives the text of the copy for each text of one trace."""

    def __init__(self, texts: Iterable[Text], hide: Iterable[str] = (), owner: tuple[str, str] | None = None) -> None:
        """texts: all of the trace. hide: parts of text that go, too. owner: name and home of a user that no path need
        show."""
        texts = list(texts)
        meta = {key: text for kind, key, text in texts if kind == "meta"}
        self._hide = sorted((part for part in hide if part), key=len, reverse=True)
        self._directory = meta.get("directory", "").rstrip("/")
        name, home = owner if owner is not None else ("", "")
        found = homes.find(
            [text for kind, key, text in texts if _is_path(kind, key, text)],
            [text for kind, key, text in texts if not _is_path(kind, key, text)],
            home,
        )
        if len(found) > _MOST_USERS:
            raise Error(f"the trace names the homes of {len(found)} users, more than {_MOST_USERS}: nothing was copied")
        self._homes = sorted({*homes.ROOTS, *found, *filter(None, [home])}, key=len, reverse=True)
        packages = {match[1].lower() for _, _, text in texts for match in _PACKAGE.finditer(text)}
        host = meta.get("host", "")
        users = [name, *(one for names in found.values() for one in names)]
        names = {word: "user" for one in users for word in homes.words(one)}
        names.update({name: "host" for name in (host, host.partition(".")[0]) if name != "localhost"})
        # Of a single letter or a number: its home goes, but any such word may be a variable or a tensor's shape. One
        # that is called as a library is: by that name the library's files are known.
        self._names = {
            name.lower(): stand_in
            for name, stand_in in names.items()
            if len(name) > 1 and not name.isdecimal() and name.lower() not in packages
        }
        self._word = _words(self._names)
        self._place = _places([*([self._directory] if self._directory else []), *self._homes])
        self._string = _one_to_one((text for kind, _, text in texts if kind == "string"), self._new)
        self._label = _one_to_one((text for kind, _, text in texts if kind == "name"), self._new)

    def replace(self, kind: str, key: str, text: str) -> str | None:
        """The text of the copy; None: of a key that it has not."""
        if kind == "string":
            return self._string[text]
        if kind == "name":
            return self._label[text]
        if kind == "line":
            return self._masked(text)
        if key == "argv":
            return None
        if key == "host":  # exports name their files by it, or by the host that they are made on
            return key
        if key == "ring.path":  # the copy has what was there: it names no file
            return ""
        if key == "code":  # packages, as files name them
            return self.without_names(self._hidden(text))
        return text if key in _AS_THEY_ARE else self._new(text)

    def _new(self, text: str) -> str:
        for part in self._hide:
            if "/" in part:  # before the folders that it names are gone without it
                text = text.replace(part, "hidden")
        if text.startswith("/"):
            return self._of_file(_SLASHES.sub("/", text))
        if self._place is not None:
            text = self._place.sub(lambda match: "." if match[0] == self._directory else "~", text)
        return self.without_names(self._hidden(text))

    def _of_file(self, path: str) -> str:
        """A library's file stays one, and a user's: then a name in it stays."""
        found = self._hidden(self._of_path(path))
        without = self.without_names(found)
        return without if is_no_users(without) == is_no_users(found) else found

    def _of_path(self, path: str) -> str:
        for pattern in (_UP_TO_PACKAGES, _UP_TO_PYTHON):
            up_to = pattern.match(path)
            if up_to is not None:
                return f".../{path[up_to.end() :]}"
        if path == self._directory:
            return "."
        if self._directory and path.startswith(f"{self._directory}/"):
            inside = path[len(self._directory) + 1 :]
            return inside if is_generated(path) == is_generated(inside) else f"./{inside}"
        for home in self._homes:
            if path == home or path.startswith(f"{home}/"):
                return f"~{path[len(home) :]}"
        return path

    def _hidden(self, text: str) -> str:
        for part in self._hide:
            text = text.replace(part, "hidden")
        return text

    def without_names(self, text: str) -> str:
        """The text with a word for the host and for each user."""
        return text if self._word is None else self._word.sub(self._stand_in, text)

    def _stand_in(self, name: re.Match[str]) -> str:
        # More letters match without regard to case than lower() makes equal: "ſam" is "sam".
        return self._names.get(name[0].lower(), "user")

    def _masked(self, line: str) -> str:
        """Of the same length in bytes: columns count them."""
        for part in self._hide:
            line = line.replace(part, _stars(part))
        for pattern in (self._place, self._word):
            if pattern is not None:
                line = pattern.sub(lambda match: _stars(match[0]), line)
        return line


def _is_path(kind: str, key: str, text: str) -> bool:
    return text.startswith("/") and (kind in ("string", "name") or key in _PATHS)


def _stars(text: str) -> str:
    return "*" * len(text.encode("utf-8", "surrogateescape"))


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    """Any of these names where it is no part of a longer one. Between words of a name there may be another sign than
    the space, or none."""
    either = "|".join(re.escape(name).replace(r"\ ", "[ ._-]?") for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{either})(?![^\W_])", re.IGNORECASE) if either else None


def _places(folders: Iterable[str]) -> re.Pattern[str] | None:
    either = "|".join(re.escape(folder) for folder in folders)
    return re.compile(rf"(?<![\w.~-])(?:{either})(?![\w-])") if either else None


def _one_to_one(texts: Iterable[str], new: Callable[[str], str]) -> dict[str, str]:
    """The new text of each; two texts that would become one get numbers: equal lines are counted as one."""
    found = {text: new(text) for text in texts}
    taken = {text for text, becomes in found.items() if text == becomes}
    names: dict[str, Iterator[str]] = {}  # where the search for the next one goes on
    for text, becomes in found.items():
        if text != becomes:
            numbered = names.setdefault(becomes, _numbered(becomes))
            found[text] = next(name for name in numbered if name not in taken)
            taken.add(found[text])
    return found


def _numbered(text: str) -> Iterator[str]:
    """~/a.py, ~2/a.py, ~3/a.py and so on: what lies in a folder of packages stays there."""
    yield text
    root, slash, rest = text.partition("/")
    number = 1
    while True:
        number += 1
        yield f"{root}{number}{slash}{rest}" if slash else f"{text}~{number}"
