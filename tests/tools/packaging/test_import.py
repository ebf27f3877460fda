"""What importing costs and loads, and what is said where cuptimem cannot work."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conftest import Result

Run = Callable[..., Result]


def test_import_loads_nothing(run: Run) -> None:
    program = (
        "import sys\nbefore = set(sys.modules)\nimport cuptimem\n"
        "print(sorted(set(sys.modules) - before), sorted(n for n in dir(cuptimem) if n[0] != '_'))\n"
    )
    done = run("-c", program)
    assert done.err == ""
    assert done.out.startswith("['cuptimem'] [")
    for name in ("profile", "open", "Report", "schedule", "Error"):
        assert repr(name) in done.out


def test_profiling_loads_no_torch_rich_or_views(run: Run) -> None:
    program = (
        "import cuptimem, sys\nwith cuptimem.profile('a.cmem') as p: p.step()\n"
        "heavy = ('torch', 'rich', 'json', 'argparse', 'cuptimem.output.text', 'cuptimem.cli')\n"
        "print([m for m in heavy if m in sys.modules])\n"
    )
    done = run("-c", program)
    assert (done.code, done.out) == (0, "[]\n")


def test_every_public_name_resolves(run: Run) -> None:
    done = run("-c", "import cuptimem; print(all(getattr(cuptimem, n) is not None for n in cuptimem.__all__))")
    assert done.out == "True\n"
    wrong = run("-c", "import cuptimem; cuptimem.frobnicate")
    assert "module 'cuptimem' has no attribute 'frobnicate'" in wrong.err


ELSEWHERE = {
    # what is changed before cuptimem is used, and what its error must say
    "darwin": ("sys.platform = 'darwin'; sys.modules['cuptimem._core'] = None", "needs Linux"),
    "no core": ("sys.modules['cuptimem._core'] = None", "does not load"),
    "free-threaded": ("sys.abiflags = 't'", "free-threaded"),
    "free-threaded, no core": ("sys.abiflags = 't'; sys.modules['cuptimem._core'] = None", "free-threaded"),
    "gil switched off": ("sys._is_gil_enabled = lambda: False", "free-threaded"),
}


@pytest.mark.parametrize("place", ELSEWHERE)
def test_elsewhere_a_clear_word(run: Run, place: str) -> None:
    change, word = ELSEWHERE[place]
    program = (
        f"import sys\n{change}\nimport cuptimem\n"
        "try:\n    cuptimem.profile('a.cmem').start()\nexcept cuptimem.Error as error:\n    print(error)\n"
        "import pickle\nprint(pickle.loads(pickle.dumps(cuptimem.Frame('f.py', 'f', 1))).place)\n"
    )
    done = run("-c", program)
    assert done.code == 0, done.err
    said, still = done.out.splitlines()
    assert word in said and "still" in said
    assert still == "f.py:1"


@pytest.mark.parametrize("place", ELSEWHERE)
def test_elsewhere_the_command_line_says_it_in_one_line(run: Run, place: str) -> None:
    change, word = ELSEWHERE[place]
    program = f"import sys\n{change}\nfrom cuptimem.cli import main\nsys.exit(main(['run', '-c', 'print(1)']))\n"
    done = run("-c", program)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("cuptimem: ") and done.err.count("\n") == 1 and word in done.err


def test_import_is_quick() -> None:
    """No time is asserted (machines differ); what -X importtime lists is: one module of ours, none of others."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import cuptimem"], capture_output=True, text=True, check=True
    )
    after_site = done.stderr[done.stderr.rindex(" site\n") :]
    assert [line.split("|")[-1].strip() for line in after_site.splitlines() if "cuptimem" in line] == ["cuptimem"]
