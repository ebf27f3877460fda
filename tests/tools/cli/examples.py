"""python -m tests.tools.cli.examples

Writes docs/examples.md: three programs in examples/, commands that show what their memory is, and what these print.
Its last section is written by evidence/leaks/reports.py, and stays as it is.
README and other pages get the same output between two marks. The simulated device needs PyTorch's CUDA build in
.venv-cuda (make examples).
"""

import os
import re
import shutil
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT
from tests.transcript import transcript

TARGET = ROOT / "docs" / "examples.md"
PAGES = (ROOT / "README.md", ROOT / "docs" / "leaks.md", ROOT / "docs" / "glossary.md")
COLUMNS = 100
MARKED = re.compile(r"(<!-- made by make examples: \$ ([^\n]*) -->\n).*?(\n<!-- to here -->)", re.DOTALL)
OTHER_PROGRAMS = "\n## Programs as people build theirs\n"
HEAD = f"""# Three programs, and what their memory is

Written by `make examples`: each program takes a few seconds on one core. The output is that of a terminal of
{COLUMNS} columns, without process numbers and the middle of tracebacks.
"""


@dataclass(frozen=True)
class Shown:
    """A command with what is said of it before. code: what it exits with."""

    about: str
    command: str
    code: int = 0


@dataclass(frozen=True)
class Section:
    title: str
    shown: tuple[Shown, ...]


SECTIONS = (
    Section(
        "A leak, and what holds it",
        (
            Shown(
                "[leak.py](../examples/leak.py) keeps two things in every step: a hook's copy of the features and, "
                "through a sum of losses, every step's autograd graph.",
                "cuptimem run -o leak.cmem examples/leak.py",
            ),
            Shown(
                "`leaks` names the line that makes each leak and, after `held by`, what holds it. Holders are searched "
                "when the recording ends, so the loop's variables must live until then: those of this script do. Where "
                'the loop is in a function, put `with cuptimem.profile("leak.cmem"):` around it.',
                "cuptimem leaks leak.cmem",
            ),
        ),
    ),
    Section(
        "Out of memory",
        (
            Shown(
                "[out_of_memory.py](../examples/out_of_memory.py) computes attention with explicit scores, over "
                "sentences of growing length. `--room` limits the address space of the process. The account below the "
                "traceback needs no option, and `cuptimem peak --at oom oom.cmem` prints it again. The memory is "
                "activations, nearly all of two lines of the attention. A smaller model would not help. Scores that "
                "are never made would: `F.scaled_dot_product_attention`.",
                "cuptimem run -o oom.cmem examples/out_of_memory.py --room 512",
                1,
            ),
            Shown(
                "The same program runs on a simulated GPU of 4 GiB as it is.",
                "cuptimem simulate --memory 4GiB --no-retry -o sim.cmem examples/out_of_memory.py --length 4096",
                3,
            ),
            Shown(
                "For a device the account also has what was cached, and what would have let the request fit.",
                "cuptimem peak --at oom sim.cmem",
            ),
        ),
    ),
    Section(
        "Too big a peak",
        (
            Shown(
                "[too_big_a_peak.py](../examples/too_big_a_peak.py) trains a small transformer in mixed precision.",
                "cuptimem run -o peak.cmem examples/too_big_a_peak.py",
            ),
            Shown(
                "Parameters and optimizer state are a fifth of its peak. Three quarters stand at one line: the scores "
                "of 16,000 words at 1,024 places in float32, three times over.",
                "cuptimem summary peak.cmem",
            ),
            Shown("`account` has the exact bytes, by category and module.", "cuptimem account --depth 1 peak.cmem"),
            Shown("`--by operator` names the calls.", "cuptimem table --by operator -n 5 peak.cmem"),
            Shown(
                "The fix is in the same file: `--chunks 8` scores an eighth of the places at a time, and a checkpoint "
                "makes each part again in backward.",
                "cuptimem run -o chunked.cmem examples/too_big_a_peak.py --chunks 8",
            ),
            Shown("The peak is 60 % lower, for more work in each step.", "cuptimem diff peak.cmem chunked.cmem"),
        ),
    ),
)

# Commands whose output other pages have alone.
OTHERS = ("cuptimem run -o demo.cmem examples/train_small.py", "cuptimem summary demo.cmem")


def filled(page: str, outputs: dict[str, str]) -> str:
    """The page with the output of each command between its marks. Raises KeyError for a command without one."""
    return MARKED.sub(lambda found: f"{found[1]}\n{outputs[found[2]]}\n{found[3]}", page)


def interpreter(command: str) -> Path:
    if command.startswith("cuptimem simulate"):
        return Path(os.environ.get("CUPTIMEM_CUDA_PYTHON") or ROOT / ".venv-cuda" / "bin" / "python")
    return Path(sys.executable)


def main() -> int:
    parts = [HEAD]
    outputs = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copytree(ROOT / "examples", folder / "examples")
        for section in SECTIONS:
            parts.append(f"## {section.title}\n")
            for one in section.shown:
                parts.append(f"{textwrap.fill(one.about, 120)}\n")
                text = transcript(interpreter(one.command), one.command, folder, columns=COLUMNS, code=one.code)
                parts.append(f"{text}\n")
                outputs[one.command] = text
        for command in OTHERS:
            outputs[command] = transcript(interpreter(command), command, folder, columns=COLUMNS)
    _, title, others = TARGET.read_text().partition(OTHER_PROGRAMS)
    TARGET.write_text("\n".join(parts) + title + others)
    for page in PAGES:
        page.write_text(filled(page.read_text(), outputs))
    print("wrote", *(path.relative_to(ROOT) for path in (TARGET, *PAGES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
