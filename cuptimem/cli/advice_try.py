"""cuptimem advice --try script.py args: tries changes of an unchanged program and shows what each saves."""

import sys
from collections.abc import Mapping, Sequence

from cuptimem.output.text import terminal

FAILED = 5  # exit code, as `simulate` has it: the program itself failed


def run(
    words: Sequence[str],
    tried: Sequence[str] | None = None,
    *,
    predicted: Mapping[str, int] | None = None,
    steps: int | None = None,
    device: str = "h100",
) -> int:
    """The exit code. words: the script, -m or -c, and what follows; tried: names of changes, None for the usual ones;
    predicted: the peak that a recording foretells with a change; steps: None for the usual number, 0 for whole runs.

    Raises Error where nothing can be tried.
    """
    from cuptimem.simulation import tries, try_views

    with terminal.progress("trying changes") as tell:

        def progress(number: int, total: int, _: str) -> None:
            tell(number / total)

        found = tries.run(
            words[0],
            words[1:],
            tried,
            steps=tries.STEPS if steps is None else steps or None,
            device=device,
            progress=progress,
        )
    program = " ".join(words[:2]) if words[0] == "-m" else words[0]
    failed = found[0].peak_bytes is None
    blocks = try_views.blocks(found, program, device, predicted or {})
    terminal.show(blocks, sys.stderr if failed else None)
    return FAILED if failed else 0
