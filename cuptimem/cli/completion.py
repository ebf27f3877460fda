"""cuptimem completion SHELL"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import VERBS, module_of, parsing
from cuptimem.errors import Error

SHELLS = ("bash", "zsh", "fish")
_EPILOG = """\
bash: cuptimem completion bash > ~/.local/share/bash-completion/completions/cuptimem
zsh:  cuptimem completion zsh > DIR/_cuptimem, where DIR is in $fpath
fish: cuptimem completion fish > ~/.config/fish/completions/cuptimem.fish

The script needs neither cuptimem nor Python while you type. Write it again after an update of cuptimem.
"""


def parser() -> parsing.Parser:
    result = parsing.Parser(
        "completion",
        description="Prints a script with which the shell completes verbs, options, their choices and trace files.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")
    return result


def script(shell: str) -> str:
    """The script for one of SHELLS. Raises Error without shtab."""
    try:
        import shtab
    except ImportError:
        raise Error("completion needs shtab: pip install shtab") from None
    root = argparse.ArgumentParser(prog="cuptimem")
    root.add_argument("--version", action="store_true", help="print the version")
    verbs = root.add_subparsers(parser_class=argparse.ArgumentParser)
    for verb, what in VERBS.items():
        own = module_of(verb).parser()
        for action in own._actions:  # argparse has no public list of them; shtab reads this one, too
            if action.dest in ("output", "program"):  # a program's arguments may be files, too
                action.complete = shtab.FILE
            elif not action.option_strings and not action.choices:
                action.complete = shtab.glob("*.cmem")
        verbs.add_parser(verb, parents=[own], add_help=False, help=what)
    return str(shtab.complete(root, shell))


def main(arguments: Sequence[str]) -> int:
    print(script(parser().parse_args(arguments).shell))
    return 0
