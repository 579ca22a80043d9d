"""The commands and their arguments, and the plan of a command."""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fedlib.errors import ConfigError
from fedlib.workflow import config
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import Plan

EPILOG = f"""
STAGE is one of {", ".join(STAGES)}. NAME names one job of the stage: digits (download),
pfedmm/digits (partition), pfedmm/digits/fedem/seed0 (train, evaluate), pfedmm (metrics),
pfedmm/table1 (table, figure), nothing (report). If every seed has its own partition:
adaptive_experts/digits-p0.2/seed0 (partition).
"""
# The module of each command.
MODULES = {
    "run": "run",
    "plan": "plan",
    "estimate": "estimate",
    "why": "jobs",
    "spec": "jobs",
    "list": "list",
    "compare": "compare",
    "report": "report",
    "keep": "keep",
    "gather": "gather",
    "wall": "wall",
    "which": "which",
    "figures-from": "redraw",
    "clean": "clean",
    "unlock": "clean",
}


class UsageError(ConfigError):
    """The words of a command line are not a valid command."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> None:
        """See `argparse.ArgumentParser`."""
        raise UsageError(message)


def read(words: Sequence[str]) -> argparse.Namespace:
    """The arguments in the words of a command line.

    Returns:
      With `options`, further options for Snakemake, and `said`, the whole line.

    Raises:
      UsageError: for words that are not a valid command.
    """
    args, options = _parser().parse_known_args(words)
    if options and args.command != "run":
        raise UsageError(f"{args.command} does not know {shlex.join(options)}")
    args.options, args.said = options, shlex.join(sys.argv)
    return args


def plan(args: argparse.Namespace) -> Plan:
    """The plan of a command, from config.yaml, its --configfile and its --config."""
    return Plan(config.read(["config.yaml", *args.configfile], args.config))


def configuration(files: Sequence[str], words: Sequence[str]) -> list[str]:
    """The options for these files and values of a configuration."""
    given = (("--configfile", files), ("--config", words))
    return [word for option, values in given if values for word in (option, *values)]


def _parser() -> Parser:
    """The parser of all commands; `_add_results` adds commands on finished results."""
    top = Parser(prog="python -m fedlib", description="The commands of the workflow.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    plain, configured = Parser(add_help=False), Parser(add_help=False)
    configured.add_argument(
        "--configfile", "--configfiles", nargs="+", default=[], help="YAML or JSON"
    )
    configured.add_argument(
        "--config", "-C", nargs="+", default=[], metavar="KEY=VALUE", help="overrides the files"
    )

    def add(name: str, does: str, parent: Parser = configured) -> Parser:
        return commands.add_parser(
            name, help=does, description=does, epilog=EPILOG if MODULES[name] == "jobs" else None,
            parents=[parent], allow_abbrev=False,
        )  # fmt: skip

    add("run", "make every table and figure; further options go to Snakemake")
    add("plan", "print what would run, why, and for how long")
    add("estimate", "estimate time and memory of what is to run, and choose what a budget buys")
    for name, does, number in (
        ("why", "print what changed since a job was done", 2),
        ("spec", "print the specification of a job, the --spec of its script", "+"),
    ):
        add(name, does).add_argument("job", nargs=number, metavar="STAGE NAME", help="see below")
    _add_results(add, plain)
    add("clean", "delete the results and figures of a configuration, after asking")
    add("unlock", "remove Snakemake's lock of this folder, after a crash")
    return top


def _add_results(add: Callable[..., Parser], plain: Parser) -> None:
    listed = add("list", "list papers, methods, data, tables and more, with their sources")
    listed.add_argument("what", nargs="*", help="a kind, then words that entries must contain")
    compared = add("compare", "compare two folders of results", plain)
    compared.add_argument("folders", nargs=2, help="of results/, such as demo demo-slow")
    compared.add_argument("words", nargs="*", help="print only rows that contain all of these")
    add("report", "write the report of the results that are there")
    gathered = add("gather", "take finished runs of other machines, as if they had been made here")
    gathered.add_argument(
        "sources", nargs="+", type=Path, help="folders of results, or of what is kept"
    )
    add("wall", "write docs/results/full/README.md: published numbers beside ours, or their costs")
    add("which", "write docs/which-method-when.md from what is kept of the benchmark", plain)
    kept = add("keep", "copy a paper's tables, figures and report to docs/results")
    kept.add_argument("paper", help="its name")
    kept.add_argument("--out", type=Path, help="instead of docs/results or docs/results/full")
    kept.add_argument(
        "--replace", action="store_true", help="replace kept results instead of adding to them"
    )
    kept.add_argument("--states", action="store_true", help="pack the weights, too")
    for taking in (gathered, kept):
        taking.add_argument(
            "--older-code", action="store_true", help="take runs of older code, too, and mark them"
        )
    drawn = add("figures-from", "draw kept results again, without any run", plain)
    drawn.add_argument("source", type=Path, help="docs/results/PAPER, or its folder pack")
    drawn.add_argument("--out", type=Path, help="folder (default: figures/from/PAPER)")
