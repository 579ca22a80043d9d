"""The configuration of `config.yaml` and the command line: what to run.

It contains no science: `fedlib.papers` declares the runs. This module imports
the standard library only, and PyYAML once it reads a file.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedlib.errors import ConfigError, nearest, quote
from fedlib.spec import SCALES
from fedlib.workflow import overrides
from fedlib.workflow.gpu import DEVICES

EXECUTORS = ("auto", "loop", "traced", "batched", "graphs")  # see engine.choice
UNITS = {"m": 60, "h": 3600, "d": 86400}  # seconds of the units of a budget
MANY = 20  # names, of which a message shows the nearest only
LONGEST = 255  # bytes in the name of a file or folder
MAX_SEED = 2**32 - 1  # the largest seed that every generator accepts
ADDRESSES = ("http://", "https://")
# Snakemake would read "007" and "1e3" as numbers, and write to another folder.
TAG = r"(?!0\d+$|\d+e\d+$|infinity$)[a-z0-9]{0,40}"
# A path that it would read as a number is refused, whatever the case of its letters.
NUMBER = r"(?i)[+-]?(\d(_?\d)*\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)"

# A list with both of its brackets or none.
WHOLE_LIST = r"\s*\[[^\[\]]*\]\s*|[^\[\]]*"

Check = Callable[[str, object], object]  # of a key and its value; raises ConfigError


class Key(NamedTuple):
    """A key of the configuration; config.yaml explains it.

    Attributes:
      default: its value in config.yaml.
      check: of another value than None; None for names that the papers decide.
      listed: whether its value is a list.
      tagged: whether it changes numbers, not only the choice of runs.
    """

    default: str | None
    check: Check | None
    listed: bool = False
    tagged: bool = False


def read(paths: Iterable[str | Path], values: Iterable[str] = ()) -> dict:
    """The configuration from several files and from "key=value" texts; later ones win.

    Raises:
      ConfigError: for a file that is missing or not a mapping, or a text without "=".
    """
    config: dict = {}
    for path in paths:
        config |= _read_file(Path(path))
    for text in values:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(
                f"a configuration value is given as key=value, without blanks, got {quote(text)}"
            )
        config[key] = value
    return normalise(config)


def normalise(config: Mapping) -> dict:
    """`config` with strings of the command line converted as YAML would.

    A list may be one value or several words: papers=pfedmm, seeds="0 1", seeds=[0,1]. The text null
    and the empty text are None. `check` finds other values of wrong types.
    """
    return {key: _normalise(key, value) for key, value in config.items()}


def check(config: Mapping) -> None:
    """Check a configuration that has all keys, without the papers.

    Raises:
      ConfigError: with the key, its value and the valid values.
    """
    for key, value in config.items():
        check_choice("config", key, KEYS)
        if KEYS[key].listed and value is not None:
            _check_list(key, value)
        if KEYS[key].check and (value is not None or KEYS[key].default is not None):
            KEYS[key].check(key, value)
        if KEYS[key].tagged and value is not None and not config["tag"]:
            raise ConfigError(
                f"{key}: {quote(value)} needs a tag, such as tag: mine, so that its runs go "
                f"to a folder of their own and not into results/{config['scale']}"
            )


def budget_seconds(text: object) -> float:
    """Seconds in a budget of computing, such as "30m", "10h" or "2d".

    Raises:
      ConfigError: for anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhd])", str(text).strip())
    if not found or not float(found[1]):
        raise ConfigError(
            f"budget must be a number of minutes, hours or days, such as 30m, 10h or 2d, got "
            f"{quote(text)}"
        )
    return float(found[1]) * UNITS[found[2]]


def check_choice(key: str, value: object, choices: Iterable, where: str = "known") -> None:
    """Raise ConfigError with the choices, of many the nearest, unless `value` is one of them."""
    if value not in choices:
        names = [*map(str, dict.fromkeys(choices))]
        known = f"{where}: {', '.join(names) or 'none'}"
        known = nearest(value, names) if len(names) > MANY else known
        raise ConfigError(f"{key}: unknown {quote(value)}; {known}")


def check_choices(key: str, values: Iterable, choices: Iterable, where: str) -> None:
    """`check_choice` of each of the values."""
    for value in values:
        check_choice(key, value, choices, where)


def check_count(key: str, value: object) -> None:
    """Raise ConfigError unless `value` is a whole number from 1 on."""
    if type(value) is not int or value < 1:
        raise ConfigError(f"{key} must be a whole number from 1, got {quote(value)}")


def check_unique(key: str, values: Iterable) -> None:
    """Raise ConfigError if a value occurs twice."""
    for value, times in Counter(list(values)).items():
        if times > 1:
            raise ConfigError(f"{key}: {quote(value)} is given {times} times")


def check_seeds(key: str, seeds: Iterable[int]) -> None:
    """Raise ConfigError for a seed that is out of range."""
    if any(not 0 <= seed <= MAX_SEED for seed in seeds):
        raise ConfigError(f"{key} must be in [0, {MAX_SEED}], got {quote(seeds)}")


def _normalise(key: str, value: object) -> object:
    if isinstance(value, str) and value.strip() in ("", "null", "None", "~"):
        value = None
    if key in LISTS:
        if key == "set" and isinstance(value, str):
            value = overrides.split(value)
        elif isinstance(value, str) and re.fullmatch(WHOLE_LIST, value):
            value = re.findall(r"[^\s,\[\]'\"]+", value)
        elif isinstance(value, int):
            value = [value]
        if key == "seeds" and isinstance(value, list):
            value = [_whole(seed) for seed in value]
    elif key == "rounds":
        value = _whole(value)
    elif key == "raw" and isinstance(value, str) and "://" not in value:
        value = str(Path(os.path.expanduser(value)))  # Snakemake warns of "./" and "//"
    elif key == "tag" and isinstance(value, int | float | None):
        value = "" if value is None else str(value)
    return value


def _whole(value: object) -> object:
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,99}", value) else value


def _check_list(key: str, value: object) -> None:
    wanted, what = (int, "whole numbers") if key == "seeds" else (str, "names")
    if not isinstance(value, list | tuple) or not all(type(item) is wanted for item in value):
        raise ConfigError(f"{key} must be null or a list of {what}, got {quote(value)}")
    if not value:
        raise ConfigError(f"{key} is empty; null stands for all")
    check_unique(key, value)


def _check_targets(key: str, values: Iterable[str]) -> None:
    check_unique(key, [overrides.parse(value).target for value in values])


def _check_tag(key: str, tag: object) -> None:
    if not isinstance(tag, str) or not re.fullmatch(TAG, tag):
        raise ConfigError(
            "tag must consist of at most 40 lower-case letters and digits, and not look like the "
            f"number 007 or 1e3, got {quote(tag)}"
        )


def _check_raw(key: str, value: object) -> None:
    _check_path(key, value)
    if Path(value).exists() and not Path(value).is_dir():
        raise ConfigError(f"raw must be a folder, got {quote(value)}, which is a file")


def _one_of(*choices: str) -> Check:
    return lambda key, value: check_choice(key, value, choices)


def _check_path(key: str, value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{key} must be a path, got {quote(value)}")
    if "://" in value and (key != "mirror" or not value.startswith(ADDRESSES)):
        kinds = {"raw": "a folder", "mirror": f"a folder or an address ({', '.join(ADDRESSES)})"}
        raise ConfigError(f"{key} must be {kinds.get(key, 'a file')}, got {quote(value)}")
    # Braces are Snakemake's wildcards, and a line end in a name is a mistake.
    if any(len(part.encode(errors="replace")) > LONGEST for part in value.split("/")):
        raise ConfigError(f"{key} must be a path that can exist, got {quote(value)}, too long")
    if re.search(r"[{}\x00-\x1f\x7f]", value) or re.fullmatch(NUMBER, value):
        what = "a path without braces and line ends, and no number"
        raise ConfigError(f"{key} must be {what}, got {quote(value)}")


def _read_file(path: Path) -> dict:
    import yaml  # comes with Snakemake, which has imported it; it reads JSON, too

    try:
        text = path.read_text(encoding="utf-8")
        config, root = yaml.safe_load(text), yaml.compose(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not text in UTF-8") from None
    except (RecursionError, ValueError, yaml.YAMLError) as error:  # such as an impossible date
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is not valid YAML: {reason:.500}") from None
    if not isinstance(config, dict | None):
        raise ConfigError(f"{path} must hold keys and values, got {type(config).__name__}")
    if config:  # of a key that is given again, YAML would take the last value without a word
        check_unique(str(path), [key.value for key, _ in root.value])
    return config or {}


KEYS = {
    "scale": Key("demo", _one_of(*SCALES)),
    "papers": Key(None, None, listed=True),
    "seeds": Key(None, check_seeds, listed=True),
    "federations": Key(None, None, listed=True),
    "labels": Key(None, None, listed=True),
    "runs": Key(None, None, listed=True),
    "methods": Key(None, lambda key, files: [_check_path(key, x) for x in files], listed=True),
    "budget": Key(None, lambda _, text: budget_seconds(text)),
    "rounds": Key(None, check_count, tagged=True),
    "set": Key(None, _check_targets, listed=True, tagged=True),
    "sources": Key(None, None, listed=True),
    "tag": Key("", _check_tag),
    "device": Key("auto", _one_of(*DEVICES)),
    "executor": Key("auto", _one_of(*EXECUTORS)),
    "mirror": Key(None, _check_path),
    "raw": Key("data/raw", _check_raw),
}
DEFAULTS = {name: key.default for name, key in KEYS.items()}
LISTS = [name for name, key in KEYS.items() if key.listed]
