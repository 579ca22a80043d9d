"""The targets of `make`: their variables, checked first, and their commands as argument lists.

No value of a user reaches a shell or a path before the configuration has been checked. This module
needs the standard library only (and PyYAML, to read config.yaml).
"""

import argparse
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedlib.errors import ConfigError
from fedlib.files import canonical_json
from fedlib.workflow import config, gpu, specs
from fedlib.workflow.plan import Plan

# Of the targets that run all.
SCALES = {"demo": "demo", "demo-all": "demo-all", "reduced": "reduced", "reproduce": "full"}
SNAKEMAKE = (sys.executable, "-m", "fedlib.workflow.console")


class Order(NamedTuple):
    """A checked target with its variables.

    Attributes:
      target: of the Makefile.
      plan: of the configuration.
      words: of the configuration, scale included, for Snakemake's --config.
      files: further configuration files in ARGS.
      options: everything else in ARGS.
      paper: name of the paper, for `keep`.
      what: words for `list` and `compare`.
      source: folder of kept results, for `figures-from`.
      folders: two folders of results, for `compare`.
    """

    target: str
    plan: Plan
    words: list[str]
    files: list[str]
    options: list[str]
    paper: str
    what: list[str]
    source: str
    folders: tuple[str, str]

    @property
    def is_preview(self) -> bool:
        """Whether Snakemake is only to say what it would do."""
        dry = ("--dry-run", "--dryrun")
        return any(word in dry or word.startswith("-n") for word in self.options)


def read(target: str, root: Path, values: Mapping[str, str]) -> Order:
    """The order in a target and the variables CONFIG, ARGS, SCALE, PAPER, WHAT, FROM, A and B.

    Args:
      root: of the checkout, which has config.yaml.

    Raises:
      ConfigError: for a value that makes no sense; it names the variable.
    """
    gpu.slots(0)
    scale = SCALES.get(target) or values["SCALE"] or "demo"
    if values["SCALE"] not in ("", scale):
        better = {scale: target for target, scale in SCALES.items()}.get(values["SCALE"], "reduced")
        raise ConfigError(
            f"make {target} is at scale {scale}, got SCALE={values['SCALE']}; SCALE is for plan, "
            f"report and the like, and the command for another scale is: make {better}"
        )
    words, args = _split("CONFIG", values["CONFIG"]), _split("ARGS", values["ARGS"])
    if any(word in ("--config", "-C") or word.startswith("--config=") for word in args):
        raise ConfigError("give configuration values as CONFIG=..., not in ARGS")
    if any(word.partition("=")[0].strip() == "scale" for word in words):
        raise ConfigError(f"the scale is given by the target or by SCALE ({scale}), not in CONFIG")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[], dest="files")
    try:
        known, options = parser.parse_known_args(args)
    except argparse.ArgumentError as error:
        raise ConfigError(f"ARGS: {error}") from None
    words = [f"scale={scale}", *words]
    plan = Plan(config.read([root / "config.yaml", *known.files], words))
    what = _split("WHAT", values["WHAT"])
    paper, source = values["PAPER"], values["FROM"]
    folders = values["A"], values["B"]
    return Order(target, plan, words, known.files, options, paper, what, source, folders)


def steps(order: Order) -> list[list[str]]:
    """The commands of an order, to be run one by one in the root of the checkout."""
    estimate, given = _given(order)
    match order.target:
        case "report" if order.options == ["--snakemake"]:
            return [[*SNAKEMAKE, "--report", order.plan.path("report_snakemake"), *given]]
        case "report":
            if order.options:
                given = shlex.join(order.options)
                raise ConfigError(f"ARGS: make report takes --snakemake or nothing, got {given}")
            return [_report(_bought(order))]
        case "plan":
            return [estimate, [sys.executable, "scripts/plan.py", *given]]
        case "why":
            if len(order.what) != 2:
                raise ConfigError(
                    'WHAT names a job, such as WHAT="train pfedmm/digits/fedem/seed1234"'
                )
            return [[sys.executable, "scripts/plan.py", "why", *order.what, *given]]
        case "list":
            return [[sys.executable, "scripts/list.py", *order.what, *given]]
        case "compare":
            if not all(order.folders):
                raise ConfigError("A and B name folders of results, such as A=demo B=demo-slow")
            script = [sys.executable, "scripts/compare.py", *order.options]
            return [[*script, "--", *order.folders, *order.what]]
        case "calibrate":
            return [[sys.executable, "scripts/calibrate.py", *order.options, *given]]
        case "keep":
            script = [sys.executable, "scripts/keep_results.py", order.paper]
            return [[*script, *order.options, *given]]
        case "figures-from":
            if not order.source:
                raise ConfigError("FROM names what is kept, such as FROM=docs/results/pfedmm")
            return [[sys.executable, "scripts/redraw.py", *order.options, "--", order.source]]
    # The first call makes the shards. If they have the same content as before, the second call sees
    # that and trains nothing again.
    runs = [[*SNAKEMAKE, *what, *order.options, *given] for what in (["partitions"], [])]
    return [estimate, *runs] if order.plan.config["budget"] else runs


def closing(order: Order) -> list[str]:
    """The command that shows what the steps of a workflow have made."""
    # What the selection has of each paper: its main table, or else the first of the others.
    chosen = {} if order.plan.config["budget"] else order.plan.papers
    tables = [f"{name}/{next(iter(p.tables))}" for name, p in chosen.items() if p.tables]
    return [sys.executable, "scripts/show_results.py", order.plan.folder, *tables]


def made(plan: Plan) -> dict[str, int]:
    """Times of the existing results of a workflow, in nanoseconds, by path."""
    paths = [path for path in map(Path, plan.targets()) if path.exists()]
    return {str(path): path.stat().st_mtime_ns for path in paths}


def _bought(order: Order) -> Plan:
    """The plan, with the cells that its budget bought if it has one."""
    if not order.plan.config["budget"]:
        return order.plan
    chosen = config.read([order.plan.path("budget")])
    return Plan({**order.plan.config, **chosen})


def _report(plan: Plan) -> list[str]:
    """The command that writes the report of the existing results."""
    spec = specs.of_report(plan, there=True)
    if not spec["papers"]:
        raise ConfigError(
            f"results/{plan.folder} has nothing to report yet; run the workflow first"
        )
    paths = {"md": "report", "html": "report_html", "results": "results", "figures": "figures"}
    words = [word for name, file in paths.items() for word in (f"--{name}", plan.path(file))]
    return [sys.executable, "scripts/report.py", "--spec", canonical_json(spec), *words]


def _given(order: Order) -> tuple[list[str], list[str]]:
    """The command that estimates and spends a budget, and the configuration of the other steps.

    The other steps get its output file instead of the budget. So their choice of cells stays the
    same, while estimates improve with every timed job.
    """
    files, words = order.files, order.words
    asked = _options(files, words)
    if order.plan.config["budget"]:
        files = [*files, order.plan.path("budget")]
        words = [word for word in words if word.partition("=")[0].strip() != "budget"]
    return [sys.executable, "scripts/estimate.py", *asked], _options(files, words)


def _options(files: list[str], words: list[str]) -> list[str]:
    return [*(["--configfile", *files] if files else []), "--config", *words]


def made_folders(plan: Plan, root: Path) -> list[Path]:
    """The folders of results and figures of a configuration that are there, for `clean`.

    Raises:
      ConfigError: if the raw files are in one of them.
    """
    folders = [root / plan.path(name) for name in ("results", "figures")]
    raw = (root / plan.config["raw"]).resolve()
    for folder in folders:
        if raw.is_relative_to(folder.resolve()):
            raise ConfigError(f"raw: the raw files in {raw} are in {folder}, which is not deleted")
    return [folder for folder in folders if folder.is_symlink() or folder.exists()]


def size(folder: Path) -> str:
    """The size of a folder in words; for a link its target."""
    if folder.is_symlink():
        return f"a link to {folder.readlink()}, which stays"
    sizes = [path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()]
    return f"{sum(sizes) / 1e6:,.1f} MB in {len(sizes):,} file{'s' * (len(sizes) != 1)}"


def clean(folders: Iterable[Path]) -> None:
    """Delete folders; of a link only the link."""
    for folder in folders:
        folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)


def _split(name: str, text: str) -> list[str]:
    """The words of a variable; quotes keep blanks together, as in a shell, and so do brackets."""
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error} in {text!r}") from None
    words: list[str] = []
    for part in parts:
        if words and words[-1].count("[") > words[-1].count("]"):
            words[-1] += f" {part}"
        else:
            words.append(part)
    return words
