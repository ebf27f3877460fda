"""python -m evidence.attribution.accounts [NAME ...]: runs account.py on programs and writes NAME.json. No part of it
loads cuptimem."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from evidence.attribution import suite
from tests.results import json_text


def count(program: suite.Program, arguments: list[str], folder: Path) -> dict[str, Any]:
    command: list[str | Path] = [suite.FOLDER / "account.py", program.device, program.path, *arguments]
    done = suite.run(command, program.device, folder)
    if done.returncode or not done.stdout:
        raise RuntimeError(f"{program.name}: {done.stderr[-2000:]}")
    seen = json.loads(done.stdout)
    code = program.path.read_text().splitlines()
    lines = [
        {"line": int(n), "code": code[int(n) - 1].strip() if int(n) else "", "bytes": size}
        for n, size in seen["lines"].items()
    ]
    return {
        "peak": seen["peak"],
        "allocator": seen["allocator"],
        "lines": lines,
        "categories": seen["categories"],
        "both": seen["both"],
    }


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for program in suite.programs(sys.argv[1:]):
            try:
                counted = count(program, [], Path(folder))
                if "diff" in program.truth:
                    counted["diff"] = count(program, program.truth["diff"], Path(folder))
            except RuntimeError as error:
                print(error, flush=True)
                failed += 1
                continue
            (suite.PROGRAMS / f"{program.name}.json").write_text(json_text(counted))
            print(f"{program.name}: {counted['peak']:,} {counted['allocator']:,} {counted['lines'][:2]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
