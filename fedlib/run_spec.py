"""What the specification of a run (`fedlib.spec.Run.spec`) has in it, and what it names.

Apart from `fedlib.spec`, because what else a paper declares is no part of the code of a job.
"""

from collections.abc import Mapping

RUN_ENTRIES = frozenset(
    {
        "class_weights",
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
EVALUATED = ("views", "predictions")  # and what that of its evaluation has besides


def run_roots(stage: str, run: Mapping) -> tuple[str, ...]:
    """Roots of the code of a job of `stage` that trains or evaluates `run`.

    Args:
      run: its entries, at least method, model, modules and participation.
    """
    further = architectures(run["modules"]).values()
    names = [f"fedlib.models.{x}" for x in (run["model"], *(one["model"] for one in further))]
    if run["participation"].get("aggregation") == "gossip":
        names.append("fedlib.engine.gossip")
    return f"scripts/{stage}.py", f"fedlib.methods.{run['method']}", *dict.fromkeys(names)


def run_weights(run: Mapping) -> tuple[str, ...]:
    """Names of the pretrained weights that a run starts from: its model's, then its modules'.

    Args:
      run: its entries, at least weights and modules.
    """
    further = architectures(run["modules"]).values()
    named = [run["weights"], *(module.get("weights") for module in further)]
    return tuple(dict.fromkeys(filter(None, named)))


def of_training(spec: Mapping) -> dict:
    """What a run was trained from, by the specification of its evaluation: all but `EVALUATED`."""
    return {name: value for name, value in spec.items() if name not in EVALUATED}


def architectures(modules: Mapping) -> dict[str, dict]:
    """The further architectures of a run (`Run.modules`) one by one, by where they are declared."""
    found = {}
    for name, module in modules.items():
        listed = isinstance(module, list | tuple)
        found |= {f"{name}[{i}]": m for i, m in enumerate(module)} if listed else {name: module}
    return found
