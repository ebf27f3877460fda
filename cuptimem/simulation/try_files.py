"""Where torch.save writes in a try: beside its result, for what the program trains there is worth nothing."""

import os
from typing import Any

import torch

from cuptimem.simulation.changes.change import patch


def keep_own(folder: str) -> None:
    """The program's own files stay as they are. It finds by torch.load what it has saved in this try.

    Not for what it writes otherwise, such as to an open file.
    """
    saved: dict[str, str] = {}

    def save(original: Any) -> Any:
        def to_folder(obj: Any, f: Any, *arguments: Any, **keywords: Any) -> Any:
            if isinstance(f, str | os.PathLike):
                os.makedirs(folder, exist_ok=True)
                path = os.path.abspath(os.fspath(f))
                f = saved.setdefault(path, os.path.join(folder, str(len(saved))))
            return original(obj, f, *arguments, **keywords)

        return to_folder

    def load(original: Any) -> Any:
        def from_folder(f: Any, *arguments: Any, **keywords: Any) -> Any:
            if isinstance(f, str | os.PathLike):
                f = saved.get(os.path.abspath(os.fspath(f)), f)
            return original(f, *arguments, **keywords)

        return from_folder

    patch(torch, "save", save)
    patch(torch, "load", load)
