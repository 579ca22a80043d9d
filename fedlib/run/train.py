"""Training: a run from its first round to the files of its state and history."""

from dataclasses import replace
from pathlib import Path

from fedlib.run.checkpoint import Checkpoints, flatten, save_tensors
from fedlib.run.simulate import Simulation
from fedlib.run_spec import RunSpec


def train(
    simulation: Simulation,
    spec: RunSpec,
    provenance: dict,
    *,
    state_file: Path,
    history_file: Path,
    checkpoints: Checkpoints,
    **run_options,
) -> None:
    """Run, then write the state and, last, the history, which has the checksum of the state."""
    state, result = simulation.run(checkpoints, **run_options)
    sha256 = save_tensors(state_file, flatten(state))
    replace(
        result,
        spec=spec.to_json(),
        provenance={**provenance, "state_sha256": sha256, "spent": checkpoints.spent()},
    ).save(history_file, state_file)
    checkpoints.clear(last=False)  # needed if the workflow dies before it sees the result
