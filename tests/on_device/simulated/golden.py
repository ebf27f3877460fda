"""python -m tests.on_device.simulated.golden FILE: runs a golden case's program; prints what it found as JSON."""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from tests.on_device.simulated.ending import leave


def main() -> None:
    case = json.loads(Path(sys.argv[1]).read_text())
    found: dict[str, Any] = {}
    exec("\n".join(case["program"]), {"torch": torch, "found": found})
    print(json.dumps(found))
    leave()


if __name__ == "__main__":
    main()
