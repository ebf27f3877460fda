"""Everything that a capture installs besides itself, in the order that matters, and how it comes off again.

Runs inside the profiled process.
"""

import sys
from types import ModuleType


def install() -> None:
    """Hooks into PyTorch, or into its arrival. Before recording starts: what they allocate is not the program's."""
    from cuptimem import torch_events

    torch_events.install()


def look_around(core: ModuleType) -> None:
    """Records what is alive already. After recording has started: a block that is made during the walk is then seen
    twice, never missed, and the reader lets the recorded event decide."""
    if "torch" in sys.modules:
        from cuptimem import seed

        seed.seed_alive()


def note_step() -> None:
    """prof.step() ticks: other clocks need not be looked for."""
    from cuptimem import torch_events

    torch_events.note_step()


def remove() -> None:
    """Takes everything out again; also after an install that failed half-way."""
    from cuptimem import torch_events

    torch_events.remove()
