"""The commands and their arguments, and the plan of a command."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedlib.environment import ROOT
from fedlib.errors import ConfigError
from fedlib.workflow import config, freshness
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import Plan


class Command(NamedTuple):
    """A command.

    Attributes:
      does: its help.
      arguments: its own arguments, besides those of a configuration.
      variables: make's variables with the values of its positional arguments.
    """

    does: str
    arguments: tuple = ()
    variables: tuple[str, ...] = ()


def _arg(*names: str, **options: Any) -> tuple:
    """An argument for `ArgumentParser.add_argument`."""
    return names, options


_STAGE = _arg("stage", metavar="STAGE", help=f"one of {', '.join(STAGES)}")
_JOB = _arg("name", nargs="?", default="", metavar="NAME", help="pfedmm/digits/fedem/seed1234")
_WHAT = _arg("what", nargs="?", metavar="KIND", help="kind whose titles to show, too")
_PAPER = _arg("paper", help="its name")
_OUT = _arg("--out", type=Path, help="folder to write to, instead of the usual one")
_REPLACE = _arg("--replace", action="store_true", help="even if kept runs are lost")
_SOURCE = _arg("source", type=Path, help="folder with packs, such as docs/results/PAPER/SCALE")
COMMANDS = {
    "run": Command("make every table and figure; further options go to Snakemake"),
    "plan": Command("print what would run, why, and for how long"),
    "estimate": Command("estimate what is to run, and choose what a budget buys"),
    "spec": Command("print the --spec of a job's script", (_STAGE, _JOB)),
    "list": Command("list the names of papers, runs, methods, data and more", (_WHAT,), ("WHAT",)),
    "tensorboard": Command("write the curves of finished trainings for TensorBoard", (_OUT,)),
    "take": Command("bring kept runs here, as if they were made here", (_SOURCE,), ("FROM",)),
    "wall": Command("write docs/results/published/README.md: all published numbers, and ours"),
    "keep": Command("copy a paper's results to docs/results", (_PAPER, _OUT, _REPLACE), ("PAPER",)),
    "figures-from": Command("draw kept results again, without any run", (_SOURCE, _OUT), ("FROM",)),
}
_SEVERAL = {"nargs": "+", "action": "extend", "default": []}
_KEYS = f"other values than those of files; config.yaml explains {', '.join(config.KEYS)}"
_CONFIGURATION = (
    _arg("--configfile", "--configfiles", **_SEVERAL, type=Path, help="YAML or JSON"),
    _arg("--config", "-C", **_SEVERAL, metavar="KEY=VALUE", help=_KEYS),
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> None:
        """See `argparse.ArgumentParser`."""
        raise ConfigError(message)


def read(words: Sequence[str], here: Path = ROOT) -> argparse.Namespace:
    """The arguments in the words of a command line.

    Args:
      here: the folder that paths begin in; commands work in the root of the checkout.

    Returns:
      With `options`, further options for Snakemake, and `said`, the whole line.

    Raises:
      ConfigError: for words that are not a valid command.
    """
    args, options = _parser(here).parse_known_args(words)
    if options and args.command != "run":
        raise ConfigError(f"{args.command} does not know {shlex.join(options)}")
    config.check_unique("--config", [x.partition("=")[0] for x in getattr(args, "config", ())])
    args.options, args.said = options, shlex.join(sys.argv)
    return args


def plan(args: argparse.Namespace) -> Plan:
    """The plan of a command, from config.yaml, its --configfile and its --config.

    An installed package has no config.yaml, which has the default values.
    """
    return freshness.make_plan(settings(args))


def settings(args: argparse.Namespace) -> dict:
    """The configuration of a command; see `plan`."""
    own = [file for file in (Path("config.yaml"),) if file.exists()]
    return config.read([*own, *args.configfile], args.config)


def configuration(files: Sequence[str | Path], words: Sequence[str]) -> list[str]:
    """The options for these files and values of a configuration."""
    given = (("--configfile", files), ("--config", words))
    return [word for option, values in given if values for word in (option, *map(str, values))]


def _parser(here: Path) -> Parser:
    place = {"type": Path if here == ROOT else here.joinpath}
    top = Parser(prog="python -m fedlib", description="The commands of the workflow.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (does, *_) in COMMANDS.items():
        parser = commands.add_parser(name, help=does, description=does, allow_abbrev=False)
        for names, options in (*COMMANDS[name].arguments, *_CONFIGURATION):
            parser.add_argument(*names, **options | (place if "type" in options else {}))
    return top
