"""How code of this process's notebook is named: In[3], as on the screen, rather than by the file that Python was given.

The kernel compiles a cell under a name with its process id and a hash, such as /tmp/ipykernel_4711/3405691582.py.
"""

import sys
from collections.abc import Callable
from typing import Any


def shell() -> Any:
    """The IPython shell of this process, or None. Loads nothing."""
    ipython = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    return get() if get is not None else None


def namer() -> Callable[[str], str]:
    """Maps the file of a cell to "In[3]" (the latest, where several have the same code), any other to itself."""
    formatted = getattr(getattr(shell(), "compile", None), "format_code_name", None)
    if formatted is None:
        return str

    def named(file: str) -> str:
        known = formatted(file)
        return str(known[1]) if known else file

    return named
