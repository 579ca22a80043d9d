"""The targets of the Makefile as commands: `python -m fedlib make demo`.

Values come from the environment, where no shell changes them: CONFIG (for the configuration), ARGS
(options of Snakemake, or of the command), SCALE (demo, reduced or full; default: demo),
PAPER (for keep), WHAT (for list, why and compare), A and B (for compare) and FROM (for
figures-from and gather). They become a list of words that no shell reads.
"""

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence

from fedlib.cli import arguments
from fedlib.errors import ConfigError

# Targets that run everything, and their scales.
SCALES = {"demo": "demo", "reduced": "reduced", "reproduce": "full"}
# Targets whose command gets ARGS; of ARGS, other targets use only --configfile.
WITH_OPTIONS = ("compare", "keep", "gather", "figures-from")
WITHOUT_PLAN = ("compare", "figures-from", "which")
TARGETS = (*SCALES, *arguments.MODULES)
DEFAULTS = dict.fromkeys(("CONFIG", "ARGS", "SCALE", "WHAT", "A", "B", "FROM"), "") | {
    "PAPER": "pfedmm"
}


def variables() -> dict[str, str]:
    """The values of all variables, removed from the environment so that no job sees them."""
    return {name: os.environ.pop(name, "") or default for name, default in DEFAULTS.items()}


def read(target: str, values: Mapping[str, str]) -> argparse.Namespace:
    """The arguments of a target's command.

    Args:
      values: of all variables.

    Raises:
      ConfigError: for an invalid value, with the name of the variable.
    """
    if target not in TARGETS:
        raise ConfigError(f"make has the targets {', '.join(TARGETS)}; got {target!r}")
    try:
        files, options = _files(_split("ARGS", values["ARGS"]))
        args = arguments.read(words(target, values, files, options))
    except arguments.UsageError as error:
        raise ConfigError(f"ARGS: {error}") from None
    if target in SCALES:
        args.options = options
    given = [f"{k}={values[k]!r}" for k, default in DEFAULTS.items() if values[k] != default]
    args.said = " ".join(["make", target, *given])
    return args


def words(
    target: str, values: Mapping[str, str], files: Sequence[str], options: Sequence[str]
) -> list[str]:
    """The command of a target as words, without options for Snakemake.

    Args:
      values: of the variables.
      files, options: configuration files in ARGS, and the rest of ARGS.

    Raises:
      ConfigError: see `read`.
    """
    scale = SCALES.get(target) or values["SCALE"] or "demo"
    if values["SCALE"] not in ("", scale):
        better = {scale: target for target, scale in SCALES.items()}.get(values["SCALE"], "reduced")
        raise ConfigError(
            f"make {target} is at scale {scale}, got SCALE={values['SCALE']}; SCALE is for plan, "
            f"report and the like, and the command for another scale is: make {better}"
        )
    given = _split("CONFIG", values["CONFIG"])
    if any(word in ("--config", "-C") or word.startswith("--config=") for word in options):
        raise ConfigError("give configuration values as CONFIG=..., not in ARGS")
    if any(word.partition("=")[0].strip() == "scale" for word in given):
        raise ConfigError(f"the scale is given by the target or by SCALE ({scale}), not in CONFIG")
    configured = arguments.configuration(files, [f"scale={scale}", *given])
    if target in SCALES:
        return ["run", *configured]
    about = _about(target, values)
    return [
        target,
        *(configured if target not in WITHOUT_PLAN else ()),
        *(options if target in WITH_OPTIONS else ()),
        *(["--", *about] if about else ()),
    ]


def _about(target: str, values: Mapping[str, str]) -> list[str]:
    """The subject of a command: a job, a paper, folders, words."""
    what = _split("WHAT", values["WHAT"])
    match target:
        case "why":
            if len(what) != 2:
                raise ConfigError(
                    'WHAT names a job, such as WHAT="train pfedmm/digits/fedem/seed1234"'
                )
            return what
        case "list":
            return what
        case "compare":
            if not (values["A"] and values["B"]):
                raise ConfigError("A and B name folders of results, such as A=demo B=demo-slow")
            return [values["A"], values["B"], *what]
        case "keep":
            return [values["PAPER"]]
        case "figures-from":
            if not values["FROM"]:
                raise ConfigError("FROM names what is kept, such as FROM=docs/results/pfedmm")
            return [values["FROM"]]
        case "gather":
            if not values["FROM"]:
                raise ConfigError("FROM names folders, such as FROM=../other/results/full")
            return _split("FROM", values["FROM"])
    return []


def _files(args: list[str]) -> tuple[list[str], list[str]]:
    """The configuration files in ARGS, and the rest of ARGS."""
    parser = arguments.Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[], dest="files")
    known, options = parser.parse_known_args(args)
    return known.files, options


def _split(name: str, text: str) -> list[str]:
    """The words of a variable; blanks in quotes, as in a shell, and in brackets do not split."""
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
