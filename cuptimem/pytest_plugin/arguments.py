"""Options whose value may be left out: `--cuptimem-save tests` names a folder of tests, not a baseline."""

import copy
import os
from collections.abc import Mapping

import pytest


def give_back_paths(config: pytest.Config, parser: pytest.Parser, args: list[str], defaults: Mapping[str, str]) -> None:
    """argparse takes the word behind an option for its value. A word that exists, as a file or as a test of one, stays
    an argument of pytest; the option gets its default. `--cuptimem-save=tests` is not changed."""
    end = args.index("--") if "--" in args else len(args)
    found = False
    for at, (argument, following) in enumerate(zip(args[:end], args[1:end], strict=False)):
        if argument in defaults and not following.startswith("-") and os.path.exists(following.split("::")[0]):
            args[at] = f"{argument}={defaults[argument]}"
            found = True
    if found:
        before = config.known_args_namespace
        config.known_args_namespace = parser.parse_known_args(args, namespace=copy.copy(config.option))
        config.known_args_namespace.confcutdir = before.confcutdir
