"""python -m evidence.leaks.reports

Writes the last section of docs/examples.md: what cuptimem says of three programs of the suite that are built as people
build theirs. Each runs once as train.py, without the marks that only the judge reads.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from evidence.leaks import suite
from evidence.leaks.__main__ import environment
from evidence.leaks.truth import ROOT
from tests.results import replaced
from tests.transcript import transcript

TARGET = ROOT / "docs" / "examples.md"
MARK = "<!-- made by evidence/leaks/reports.py -->"
STEPS = 96
SHOWN = {
    "p134": "A Hugging Face Trainer with a callback",
    "p135": "A loop as Lightning runs it",
    "p101": "A generator and a critic that is updated five times as often",
}


def shown(program: suite.Program, python: Path, folder: Path) -> str:
    source = re.sub(r"  # (LEAK|GROWS|NEGLIGIBLE)$", "", program.path.read_text(), flags=re.MULTILINE)
    place = folder / program.name
    place.mkdir()
    (place / "train.py").write_text(source)

    run = [python, "-m", "cuptimem", "run", "-q", "-o", "run.cmem", "train.py", str(STEPS)]
    subprocess.run(run, cwd=place, capture_output=True, check=True)
    return "\n\n".join(transcript(python, f"cuptimem {verb} run.cmem", place) for verb in ("summary", "leaks"))


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        python = environment()
        sections = []
        for program in suite.programs(SHOWN):
            text = shown(program, python, folder)
            said = program.path.read_text().splitlines()[1].strip()
            about = f"{program.about} {said} The program is `{program.path.relative_to(ROOT)}`, with {STEPS} steps."
            sections.append((list(SHOWN).index(program.name), f"### {SHOWN[program.name]}\n\n{about}\n\n{text}\n"))
    made = "\n".join(text for _, text in sorted(sections)).rstrip()
    TARGET.write_text(replaced(TARGET.read_text(), made, MARK))
    print(f"wrote {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
