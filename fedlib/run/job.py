"""What the jobs that train and evaluate a run have in common: the run, and the record of it."""

import argparse
from pathlib import Path

import torch

from fedlib import files, seals
from fedlib.environment import environment
from fedlib.federation import Federation
from fedlib.run.build import build_simulation
from fedlib.run.simulate import Simulation


def simulation(args: argparse.Namespace, spec: dict, device: str) -> Simulation:
    """The run that a command line is about, on its threads.

    Args:
      args: of `fedlib.workflow.command.run_parser`.
      spec: its run specification.
      device: as `fedlib.workflow.gpu.device` grants it.

    Raises:
      ConfigError, DataError: see `build_simulation` and `Federation.load`; also if the federation
        is not the one that the run is declared on.
    """
    own = federation(args, spec)
    return build_simulation(spec, own, device=device, executor=args.executor, weights=args.weights)


def federation(args: argparse.Namespace, spec: dict) -> Federation:
    """The federation that a run is declared on; see `simulation`."""
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
    """With what a result is made, as its provenance has it.

    Args:
      code: digest of the code.
      more: files that the job reads besides manifest and weights.
    """
    return environment() | {
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
