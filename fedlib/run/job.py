"""What the jobs that train and evaluate a run have in common: the run, and the record of it."""

import argparse

import torch

from fedlib import files
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
      ConfigError, DataError: see `build_simulation` and `Federation.load`.
    """
    torch.set_num_threads(args.threads)
    federation = Federation.load(args.shards, args.manifest)
    return build_simulation(
        spec, federation, device=device, executor=args.executor, weights=args.weights
    )


def weights(args: argparse.Namespace) -> dict[str, str]:
    """Digests of the receipts of pretrained weights, by name."""
    return {receipt.stem: files.digest(receipt) for receipt in args.weights}


def record(args: argparse.Namespace, simulation: Simulation, device: str, code: str) -> dict:
    """With what a result is made, as its provenance has it; `code` is the digest of the code."""
    return environment() | {
        "device": device,
        "threads": args.threads,
        "precision": simulation.method.task.precision,
        "weights_sha256": weights(args),
        "executor": simulation.executor.setting,
        "execution": simulation.executor.notes,
        "code": code,
    }
