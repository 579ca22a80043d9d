"""The command line: `python -m fedlib COMMAND`, of which the Makefile's targets are aliases.

A command is a module here with a function `main` of the parsed arguments. Each command makes one
plan, besides Snakemake's own.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

from fedlib.cli import arguments, make
from fedlib.errors import ConfigError
from fedlib.workflow.provenance import ROOT


def main() -> None:
    """Run the command of the command line, in the root of the checkout.

    Raises:
      ConfigError: for a command that needs a checkout, from a package that pip installed.
    """
    here = Path.cwd()
    os.chdir(ROOT)
    first, *others = sys.argv[1:] or ["--help"]
    if first == "make":
        args = make.read(" ".join(others), make.variables())
    else:
        args = arguments.read([first, *others], here)
    if args.command != "list" and not Path("config.yaml").exists():
        raise ConfigError(
            f"{args.command} works in a checkout of the project only (docs/install.md), with its "
            "config.yaml; in an installed package python -m fedlib list works"
        )
    import_module(f"fedlib.cli.{args.command.replace('-', '_')}").main(args)
