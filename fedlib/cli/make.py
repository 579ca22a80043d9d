"""The targets of the Makefile as commands: `python -m fedlib make demo`.

Values come from the environment, where no shell changes them: CONFIG (for the configuration), ARGS
(further options), SCALE (demo, reduced or full; default: demo), PAPER (for keep), WHAT (for list)
and FROM (for figures-from and take). They become a list of words that no shell reads.
"""

import argparse
import os
import shlex
from collections.abc import Mapping

from fedlib.cli import arguments
from fedlib.errors import ConfigError

# Targets that run everything, and their scales.
SCALES = {"demo": "demo", "reduced": "reduced", "reproduce": "full"}
DEFAULTS = dict.fromkeys(("CONFIG", "ARGS", "SCALE", "WHAT", "FROM"), "") | {"PAPER": "pfedmm"}


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
    name = "run" if target in SCALES else target
    command = arguments.COMMANDS.get(name, arguments.Command(""))
    if missing := [x for x in command.variables if x != "WHAT" and not values[x]]:
        raise ConfigError(f"make {target} needs {' and '.join(missing)}, as the Makefile says")
    options = _split("ARGS", values["ARGS"])
    configured = ["--config", *_configuration(target, values, options)]
    about = [word for variable in command.variables for word in _split(variable, values[variable])]
    try:
        args = arguments.read([name, *options, *configured, *(["--", *about] if about else ())])
    except ConfigError as error:
        raise ConfigError(f"{' or '.join((*command.variables, 'ARGS'))}: {error}") from None
    given = [f"{k}={values[k]!r}" for k, default in DEFAULTS.items() if values[k] != default]
    args.said = " ".join(["make", target, *given])
    return args


def _configuration(target: str, values: Mapping[str, str], options: list[str]) -> list[str]:
    """The scale of a target and the values in CONFIG.

    Raises:
      ConfigError: if one of them is given in another variable.
    """
    scale = SCALES.get(target) or values["SCALE"] or "demo"
    if values["SCALE"] not in ("", scale):
        raise ConfigError(
            f"make {target} is at scale {scale}, got SCALE={values['SCALE']}; SCALE is for plan, "
            f"keep and the like, and the commands of the scales are: make {', '.join(SCALES)}"
        )
    given = _split("CONFIG", values["CONFIG"])
    if any(word == "--config" or word.startswith(("--config=", "-C")) for word in options):
        raise ConfigError("give configuration values as CONFIG=..., not in ARGS")
    if any(word.partition("=")[0].strip() == "scale" for word in given):
        raise ConfigError(f"the scale is given by the target or by SCALE ({scale}), not in CONFIG")
    return [f"scale={scale}", *given]


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
