"""The state of another run that has already done the common part of final evaluations.

See `Method.settle`.
"""

from pathlib import Path
from typing import Any

from fedlib.errors import DataError
from fedlib.methods.base import Method
from fedlib.results import RunResult
from fedlib.run.build import build_method
from fedlib.run.checkpoint import load_tensors, restore
from fedlib.run.simulate import Simulation
from fedlib.run_spec import RunSpec


def settled_state(
    simulation: Simulation, spec: RunSpec, own: RunResult, state_file: Path, history_file: Path
) -> tuple[Any, str]:
    """(state, its checksum) of a run on the same shards that did the work of settling `spec`.

    Raises:
      DataError: if it did other work.
    """
    settler, history = simulation.method.settler, RunResult.load(history_file)
    shards = (result.provenance["manifest_sha256"] for result in (own, history))
    other = RunSpec.from_json(history.spec)
    if settler is None or len({*shards}) > 1 or not settles(simulation.method, spec, other):
        raise DataError(
            f"{history_file} is not of a run that settles what {spec.method} would with seed "
            f"{spec.seed}; give one with the same shards, model and settings, or none"
        )
    template = settler.init(simulation.federation.num_clients, spec.seed)
    sha256 = history.provenance["state_sha256"]
    return restore(template, load_tensors(state_file, sha256)), sha256


def settles(method: Method, spec: RunSpec, other: RunSpec) -> bool:
    """Whether the run `other` does the work of settling `method`, the method of the run `spec`."""
    settler = method.settler
    [name] = [name for name in spec.modules if getattr(method, name) is settler.task]
    same = (spec.further[name], spec.seed, spec.precision, None)
    if same != (other.architecture, other.seed, other.precision, other.class_weights):
        return False
    return build_method(other, settler.task) == settler
