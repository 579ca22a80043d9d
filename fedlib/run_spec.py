"""The entries of a run's specification, and the names in them.

They are those of `fedlib.spec.Run.spec`, and "data": the digest of the federation's specification
(`fedlib.seals.spec_digest` of `fedlib.spec.Data.spec`). A tuned run also has "tuned": the digest of
the specification of its tuning.

This module is not in `fedlib.spec`, because the code of a job must not include the other
declarations of a paper.
"""

import ast
import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedlib.errors import ConfigError

RUN_ENTRIES = frozenset(
    {
        "class_weights",
        "data",
        "evaluate_every",
        "local",
        "method",
        "model",
        "model_params",
        "modules",
        "params",
        "participation",
        "precision",
        "rounds",
        "seed",
        "weights",
    }
)
TUNED = "tuned"
RUNG = 4  # at a rung, after 1 / RUNG of the rounds, 1 / RUNG of the trials go on
LOOK = re.compile(r"^    look = (.+)", re.MULTILINE)  # in the class of a method
EVALUATED = ("views", "predictions")  # further entries of the specification of an evaluation


def check(spec: Mapping) -> None:
    """Raises ConfigError unless the entries of a run are names and tables as they should be."""
    for entry in ("method", "model"):
        own = entry == "method" and is_file(spec[entry])
        if not own and (not isinstance(spec[entry], str) or not re.fullmatch(r"\w+", spec[entry])):
            raise ConfigError(f"{entry} must be a name, got {spec[entry]!r:.80}")
    if not isinstance(spec["weights"], str | None):
        raise ConfigError(f"weights must be a name or null, got {spec['weights']!r:.80}")
    if not isinstance(spec["data"], str):
        raise ConfigError(f"data must be the digest of a specification, got {spec['data']!r:.80}")
    if not isinstance(spec.get(TUNED), str | None):
        raise ConfigError(f"tuned must be the digest of a tuning, got {spec[TUNED]!r:.80}")
    for entry in ("local", "model_params", "modules", "params", "participation"):
        if not isinstance(spec[entry], dict):
            raise ConfigError(f"{entry} must be a JSON object, got {spec[entry]!r:.80}")
    for place, module in architectures(spec["modules"]).items():
        if not isinstance(module, dict):
            raise ConfigError(f"modules: {place!r:.80} must be a JSON object, got {module!r:.80}")
        if not isinstance(module.get("weights"), str | None):
            raise ConfigError(f"modules: weights of {place!r:.80} must be a name or null")


def run_roots(stage: str, run: Mapping) -> tuple[str, ...]:
    """Roots of the code of a job of `stage` that trains or evaluates `run`.

    Args:
      run: entries of its specification, at least method, model, modules and participation.
    """
    further = architectures(run["modules"]).values()
    names = [f"fedlib.models.{x}" for x in (run["model"], *(one["model"] for one in further))]
    if run["participation"].get("aggregation") == "gossip":
        names.append("fedlib.engine.gossip")
    method = run["method"] if is_file(run["method"]) else f"fedlib.methods.{run['method']}"
    return f"scripts/{stage}.py", method, *dict.fromkeys(names)


def is_file(method: str) -> bool:
    """Whether a method is given by its file, "mine/fedper.py", and not by its registered name."""
    return isinstance(method, str) and method.endswith(".py")


@functools.cache
def methods() -> dict[str, tuple]:
    """The project's methods, each with the `look` of its class, read without importing it."""
    files = sorted(Path(__file__).with_name("methods").glob("*.py"))
    found = {file.stem: LOOK.search(file.read_text(encoding="utf-8")) for file in files}
    return {name: ast.literal_eval(look[1]) for name, look in found.items() if look}


def class_of_file(file: str, classes: Iterable[str]) -> str:
    """The class of a file that is called like the file, such as FedPer in fedper.py.

    Case and underscores do not matter.

    Raises:
      ConfigError: if there is none.
    """
    classes = list(classes)
    wanted = _plain(Path(file).stem)
    for name in classes:
        if _plain(name) == wanted:
            return name
    raise ConfigError(
        f"{file} has no class that is called like the file, as FedPer is in fedper.py; it has "
        f"{', '.join(classes) or 'no class'}"
    )


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def run_weights(run: Mapping) -> tuple[str, ...]:
    """Names of the pretrained weights of a run: those of its model, then those of its modules.

    Args:
      run: entries of its specification, at least weights and modules.
    """
    further = architectures(run["modules"]).values()
    named = [run["weights"], *(module.get("weights") for module in further)]
    return tuple(dict.fromkeys(filter(None, named)))


def of_training(spec: Mapping) -> dict:
    """The training's part of the specification of an evaluation: all entries but `EVALUATED`."""
    return {name: value for name, value in spec.items() if name not in EVALUATED}


def trainings_worth(tuning: Mapping) -> float:
    """Cost of a tuning, in trainings; see `fedlib.run.tune`."""
    trials = tuning["trials"]
    return trials / RUNG + -(-trials // RUNG) if tuning.get("rung") else trials


def architectures(modules: Mapping) -> dict[str, dict]:
    """The further architectures of a run (`Run.modules`), by their place in the declaration."""
    found = {}
    for name, module in modules.items():
        listed = isinstance(module, list | tuple)
        found |= {f"{name}[{i}]": m for i, m in enumerate(module)} if listed else {name: module}
    return found
