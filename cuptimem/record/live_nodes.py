"""Whether live autograd nodes are counted in this process, and for which versions of PyTorch that is possible.

A node with no recorded end resembles a leak. How nodes die differs between versions, so counts are claimed
only for those on which `make torches` has run (docs/limits.md). Runs inside the profiled process: standard library
only.
"""

import os

COUNTED = "counted"

# Minor version -> the release on which the tests ran. Another release of that minor has the same layout, and is checked
# at start: nodes that we make ourselves must be seen coming and going.
RUN_ON = {
    "2.4": "2.4.1",
    "2.8": "2.8.0",
    "2.11": "2.11.0",
    "2.12": "2.12.0",
    "2.13": "2.13.0",
    "2.14": "2.14.1",
    "2.15": "2.15.0",
}


def minor_of(version: str) -> str | None:
    """The minor of a released version ("2.13.0+cpu": "2.13"); None for a development build, which may be anything."""
    parts = version.partition("+")[0].split(".")
    return ".".join(parts[:2]) if len(parts) == 3 and all(part.isdigit() for part in parts) else None


def why_not(version: str) -> str | None:
    """None where counts are claimed for this version of PyTorch; else one line."""
    if os.uname().machine != "x86_64":
        return f"they have not been tested on {os.uname().machine} yet"
    if minor_of(version) not in RUN_ON:
        return f"they have not been tested with torch {version} yet (tested: {', '.join(RUN_ON.values())})"
    return None


def claim(version: str, problem: str | None) -> str:
    """The trace's meta entry "nodes": COUNTED, or one line why they are not."""
    return problem or why_not(version) or COUNTED
