"""What cuptimem.start names, which Python 3.15 and later call before any program (PEP 829): imports cuptimem only where
a recording is asked for, as cuptimem.pth does before 3.15.

PYTEST_DONT_REWRITE: pytest warns of every module of a plugin's package that was imported before it could rewrite it.
"""

import os
import sys


def start() -> None:
    # A Python that ignores its environment is asked by its command line: cuptimem/environ.py.
    asked = sys._xoptions if sys.flags.ignore_environment else os.environ
    if asked.get("CUPTIMEM") or asked.get("CUPTIMEM_SIM_CHILD"):
        from cuptimem.record import autostart

        autostart.start()
