"""What cuptimem.start names, which Python 3.15 and later call before any program (PEP 829): imports cuptimem only where
a recording is asked for, as cuptimem.pth does before 3.15.

PYTEST_DONT_REWRITE: pytest warns of every module of a plugin's package that was imported before it could rewrite it.
"""

import os


def start() -> None:
    if os.environ.get("CUPTIMEM") or os.environ.get("CUPTIMEM_SIM_CHILD"):
        from cuptimem.record import autostart

        autostart.start()
