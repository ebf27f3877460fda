"""Which of the folders that a trace names are homes of users, and what these are called."""

import re
from collections.abc import Iterable, Iterator, Sequence

ROOTS = ("/root", "/var/root")  # homes that no user's name is in

# The folder, and the names in it: of a domain or group where there is one, of a user.
Home = tuple[str, tuple[str, ...]]

# A path within other text. A name may have spaces where the path goes on behind it, or a quote ends it.
_NAME = r"[.@+-]*\w(?:[\w.@+-]*\w)?"
_PATH = re.compile(rf"(?<!/)(?:/+(?:{_NAME}(?: {_NAME}){{1,3}}(?=[/'\"])|{_NAME}))+")
_DEEPEST = 64  # folders of a path that are looked at
# Folders of homes, and the most folders that such a folder lies in.
_FOLDERS = (
    (re.compile(r"home|Users"), 99),
    (re.compile(r"homes|home\d{1,2}"), 3),
    (re.compile(r"users"), 1),
)
_OF_AFS = ("user", "usr", "users")
# CORP, CORP.EXAMPLE.COM, corp.example.com: what sssd and winbind put between /home and the user.
_DOMAIN = re.compile(
    r"(?=.*[A-Z])[A-Z0-9._-]{2,}"
    r"|[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:[a-z]{2}|com|org|net|edu|gov|mil|int|local|lan|corp|internal|intra|example|test)"
)
# What the names of files end with that a trace names: code, libraries, data, logs, archives.
_FILE = re.compile(
    r"\.(?:py[cdiowxz]?|ipynb|pth?|cc|cpp|cuh?|hpp|so(?:\.\d+)*|sh|bin|egg|whl|zip|tar|gz|xz"
    r"|cmem|json|jsonl|ya?ml|toml|ini|cfg|txt|csv|log|out|md|html|safetensors|ckpt|parquet|npy|npz|h5|pkl)$",
    re.IGNORECASE,
)
# Folders of a home itself: one of them shows which level the homes are on.
_IN_HOMES = ((".local",), (".config",), (".pyenv",), (".virtualenvs",))


def find(whole: Iterable[str], within: Iterable[str], owner: str = "") -> dict[str, tuple[str, ...]]:
    """Homes by their folder. whole: texts that are a path and nothing else, where a name may have any character.
    within: other texts. owner: a folder that is a home; those beside it are homes, too."""
    own = _split(owner)
    paths = [own, *map(_split, whole), *(_split(match[0]) for text in within for match in _PATH.finditer(text))]
    below = [(path, top) for path in dict.fromkeys(paths) for top in _tops(path)]
    known = {path[:at] for path, top in below for at in (top + 1, top + 2) if path[at : at + 1] in _IN_HOMES}
    known |= {own[:at] for top in _tops(own) for at in (top + 1, top + 2) if at == len(own)}
    # A home lies in no other one.
    parents = {home[:-1] for home in known if home[:-1] not in known}
    return dict(_home(path, top, parents) for path, top in below)


def _split(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/", _DEEPEST)[:_DEEPEST]))


def _tops(path: Sequence[str]) -> Iterator[int]:
    """Where in the path the names below a folder of homes begin."""
    for at, name in enumerate(path[:-1]):
        if name.endswith("-packages"):  # what follows is a package's own
            return
        is_of_afs = at == 2 and path[0] == "afs" and name in _OF_AFS
        if is_of_afs or any(at <= most and folder.fullmatch(name) for folder, most in _FOLDERS):
            yield at + 1


def _home(path: tuple[str, ...], top: int, parents: set[tuple[str, ...]]) -> Home:
    """The home that the path lies in: /home/jane, /home/CORP/jane, /home/j/ja/jane."""
    end = top + 1
    if path[:end] in parents or _DOMAIN.fullmatch(path[top]) and _is_folder(path, end):
        end += 1
    while len(path[end - 1]) <= 2 and _is_folder(path, end) and path[end].lower().startswith(path[end - 1].lower()):
        end += 1
    return f"/{'/'.join(path[:end])}", path[top:end]


def _is_folder(path: tuple[str, ...], at: int) -> bool:
    """A path may end with a home (/home/CORP/jane.doe) or a file beside its program's (/home/JANE/train.py)."""
    return len(path) > at + 1 or (len(path) > at and not _FILE.search(path[at]))


def words(name: str) -> Iterator[str]:
    """A name and what it consists of: CORP\\jane, jane@corp.example.com."""
    yield name
    if re.search(r"[\\@+]", name):
        yield from filter(None, re.split(r"[\\@+]", name))
