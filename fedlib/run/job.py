"""Common parts of the jobs of a run: its specification, the run itself, and its record.

A tuned run is trained as declared, but with the values that `fedlib.run.tune` chose. The history of
the run contains that specification.
"""

import argparse
from pathlib import Path

import torch

from fedlib import files, seals
from fedlib.environment import environment
from fedlib.errors import DataError
from fedlib.federation import Federation
from fedlib.results import RunResult
from fedlib.run.build import build_simulation
from fedlib.run.simulate import Simulation
from fedlib.run_spec import RunSpec

RAN = "ran"  # in the provenance of a history: the specification with which a tuned run was trained
VALUES, TUNING = "values", "tuning"  # of a choice: values by name, digest of the tuning


def apply_choice(spec: RunSpec, choice: Path | None) -> RunSpec:
    """The specification with which to train.

    Args:
      choice: file of `fedlib.run.tune.tune`; None for a run that is not tuned.

    Raises:
      DataError: if the choice of a tuned run is missing or belongs to another tuning.
    """
    if spec.tuned is None:
        return spec
    if choice is None:
        raise DataError("the run is tuned: give what was chosen for it as --choice")
    found = seals.read_json(choice, has=(VALUES, TUNING))
    seals.check_spec(choice, found[TUNING], spec.tuned)
    return spec.set(found[VALUES])


def training_spec(spec: RunSpec, history: Path) -> RunSpec:
    """The specification with which the run of a history was trained.

    Args:
      spec: of the run as declared.
    """
    if spec.tuned is None:
        return spec.training()
    return RunSpec.from_json(RunResult.load(history).provenance[RAN])


def simulation(args: argparse.Namespace, spec: RunSpec, device: str) -> Simulation:
    """The run of a command line, with its number of threads.

    Args:
      args: of `fedlib.workflow.command.run_parser`.
      spec: specification of the run.
      device: from `fedlib.workflow.gpu.device`.

    Raises:
      ConfigError, DataError: see `build_simulation` and `Federation.load`; also if the shards are
        not those of the run's declared federation.
    """
    own = federation(args, spec)
    return build_simulation(spec, own, device=device, executor=args.executor, weights=args.weights)


def federation(args: argparse.Namespace, spec: RunSpec) -> Federation:
    """The declared federation of a run; see `simulation`."""
    torch.set_num_threads(args.threads)
    found = Federation.load(args.shards, args.manifest)
    seals.check_spec(args.manifest, seals.spec_digest(found.spec), spec.data)
    return found


def weights(args: argparse.Namespace) -> dict[str, str]:
    """Digests of the receipts of pretrained weights, by name."""
    return {receipt.stem: files.digest(receipt) for receipt in args.weights}


def stamp(args: argparse.Namespace, spec: RunSpec, code: str) -> dict:
    """What identifies the job that trains or tunes `spec`; `code` is the digest of its code."""
    manifest = files.digest(args.manifest)
    return {"spec": spec.to_json(), "code": code, "manifest": manifest, "weights": weights(args)}


def record(
    args: argparse.Namespace, simulation: Simulation, device: str, code: str, inputs: str
) -> dict:
    """The provenance of a result.

    Args:
      code, inputs: digests of the code, and of what the job reads, taken before it was read.
    """
    return environment(simulation.data.device) | {
        "device": device,
        "threads": args.threads,
        "precision": simulation.method.task.precision,
        "weights_sha256": weights(args),
        "executor": simulation.executor.setting,
        "execution": simulation.executor.notes,
        "code": code,
        "manifest_sha256": files.digest(args.manifest),
        "inputs_sha256": inputs,
    }
