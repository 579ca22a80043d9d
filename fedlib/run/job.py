"""Common parts of the jobs that train, tune and evaluate a run: the run itself, and its record."""

import argparse
from pathlib import Path

import torch

from fedlib import files, seals
from fedlib.environment import environment
from fedlib.federation import Federation
from fedlib.run.build import build_simulation
from fedlib.run.simulate import Simulation


def simulation(args: argparse.Namespace, spec: dict, device: str) -> Simulation:
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


def federation(args: argparse.Namespace, spec: dict) -> Federation:
    """The declared federation of a run; see `simulation`."""
    torch.set_num_threads(args.threads)
    found = Federation.load(args.shards, args.manifest)
    seals.check_spec(args.manifest, seals.spec_digest(found.spec), spec["data"])
    return found


def weights(args: argparse.Namespace) -> dict[str, str]:
    """Digests of the receipts of pretrained weights, by name."""
    return {receipt.stem: files.digest(receipt) for receipt in args.weights}


def record(
    args: argparse.Namespace, simulation: Simulation, device: str, code: str, *more: Path
) -> dict:
    """The provenance of a result.

    Args:
      code: digest of the code.
      more: files that the job reads besides manifest and weights.
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
        "inputs_sha256": seals.contents(args.manifest, *args.weights, *more),
    }
