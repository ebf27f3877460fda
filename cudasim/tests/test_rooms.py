"""Which room of cudasim/csrc includes which other, as its README's table says."""

import re

from cudasim.tests.objects import SOURCES


def test_includes_are_those_of_the_readme() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", (SOURCES.parent / "README.md").read_text(), re.M)
    allowed = {room: {room, *re.findall(r"`(\w+)`", others)} for room, others in rows}
    assert allowed.keys() == {path.name for path in SOURCES.iterdir() if path.is_dir()} - {"__pycache__"}
    for path in SOURCES.glob("*/*.[ch]"):
        for name in re.findall(r'^#include "(.+)"', path.read_text(), re.M):
            if not name.startswith("generated/"):
                found = (path.parent / name).resolve()
                assert found.is_file(), f"{path} includes {name}"
                assert found.parent.parent == SOURCES and found.parent.name in allowed[path.parent.name], (
                    f"{path}: {name}"
                )
