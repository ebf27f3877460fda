"""Which installed packages count as the user's own code: --code, CUPTIMEM_CODE, cuptimem.profile(code=...)."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from cuptimem import environ
from cuptimem.errors import Error
from cuptimem.report.stacks import LIBRARY_FOLDER, is_generated, temporary_part

VARIABLE = "CUPTIMEM_CODE"

_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
# Where a file's path inside the folder of installed packages begins. Packages lie in Python's own: the last one counts.
_INSIDE = re.compile(LIBRARY_FOLDER + r"(?=[/\\])")


def names(given: str | Iterable[str]) -> tuple[str, ...]:
    """The packages in a text ("transformers,trl.trainer", or with ":" between them as in PATH), or in several.

    Raises ValueError for what is no name of a package or module.
    """
    texts = [given] if isinstance(given, str) else list(given)
    found: dict[str, None] = {}
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"code is the name of a package, or several, not {text!r}")
        for part in re.split(f"[,{re.escape(os.pathsep)}]", text):
            name = part.strip().replace("-", "_")  # of a distribution: most are named as their package
            if name and _NAME.fullmatch(name) is None:
                raise ValueError(f"{part.strip()!r} is not the name of an installed package, such as transformers")
            if name:
                found[name] = None
    return tuple(found)


def of_trace(text: str) -> tuple[str, ...]:
    """What a trace names; what is no name in it is left out."""
    return tuple(name for name in text.split(",") if _NAME.fullmatch(name))


def of_environment() -> tuple[str, ...] | None:
    """What the environment says; None: nothing. Raises Error, one line."""
    text = environ.get(VARIABLE)
    if not text.strip():
        return None
    try:
        return names(text)
    except ValueError as error:
        raise Error(f"{VARIABLE}: {error}") from None


def script_of(meta: Mapping[str, str]) -> str:
    """The program's script by its path from the root; "" where that is not known."""
    script, directory = meta.get("script", ""), meta.get("directory", "")
    if not script or script.startswith("/"):
        return script
    return f"{directory}/{script}" if directory else ""


def matcher(packages: Iterable[str], script: str = "") -> Callable[[str], bool]:
    """Whether a file is one of these packages', or lies in the same folder with a random name as the script does."""
    own = "|".join(r"[/\\]".join(re.escape(part) for part in name.split(".")) for name in packages if name)
    pattern = re.compile(rf"[/\\](?:{own})(?:[/\\]|\.[^/\\]*\Z)" if own else r"(?!)", re.DOTALL)

    @cache
    def is_own(file: str) -> bool:
        if is_generated(file):
            return False
        end = max((found.end() for found in _INSIDE.finditer(file)), default=None)
        if end is None:
            length = temporary_part(file) if script else 0
            return length > 0 and script.startswith(file[:length])
        return pattern.match(file, end) is not None

    return is_own
