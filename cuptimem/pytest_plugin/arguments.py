"""Options whose value may be left out: `--cuptimem-save tests` names a folder of tests, not a baseline."""

import copy
import os
from collections.abc import Callable, Mapping

import pytest


def give_back_paths(
    config: pytest.Config,
    parser: pytest.Parser,
    args: list[str],
    defaults: Mapping[str, str],
    is_value: Callable[[str], bool] = lambda word: True,
) -> None:
    """argparse takes the word behind an option for its value. A word that exists, as a file or as a test of one, or
    does not read like a value, stays an argument of pytest; the option gets its default. `--cuptimem-save=tests` is
    not changed."""
    end = args.index("--") if "--" in args else len(args)
    found = False
    for at, (argument, following) in enumerate(zip(args[:end], args[1:end], strict=False)):
        if argument not in defaults or following.startswith("-"):
            continue
        if os.path.exists(following.split("::")[0]) or not is_value(following):
            args[at] = f"{argument}={defaults[argument]}"
            found = True
    if found:
        before = config.known_args_namespace
        config.known_args_namespace = parser.parse_known_args(args, namespace=copy.copy(config.option))
        config.known_args_namespace.confcutdir = before.confcutdir
