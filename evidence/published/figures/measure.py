"""What the scripts of this folder share: each measures one figure by the call that its source used."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable

import torch

UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def figure() -> str:
    """Which figure the script is to measure."""
    return sys.argv[1]


def report(value: float) -> None:
    """Keeps the figure where the runner looks for it. Other runs of the same program add a line each."""
    print("measured", value)
    if os.environ.get("PUBLISHED_RESULT"):
        with open(os.environ["PUBLISHED_RESULT"], "a") as file:
            file.write(json.dumps(value) + "\n")


def message(program: Callable[[], object]) -> dict[str, float]:
    """The bytes that an out-of-memory message names. Raises AssertionError where the program had enough."""
    try:
        program()
    except torch.OutOfMemoryError as error:
        text = str(error)
    else:
        raise AssertionError("the program did not run out of memory")
    patterns = {
        "request": r"Tried to allocate ([\d.]+) (\w+)",
        "allocated": r"Of the allocated memory ([\d.]+) (\w+) is allocated by PyTorch",
        "process": r"this process has ([\d.]+) (\w+) memory in use",
        "free": r"of which ([\d.]+) (\w+) is free",
    }
    found = {}
    for name, pattern in patterns.items():
        match = re.search(pattern, text)
        if match:
            found[name] = float(match[1]) * UNITS[match[2]]
    print(text)
    return found
