"""Write the curves of finished trainings for TensorBoard."""

import argparse
from pathlib import Path

from fedlib import seals
from fedlib.cli import arguments
from fedlib.errors import ConfigError


def main(args: argparse.Namespace) -> None:
    """Write a folder of events for each training: all accuracies, bytes and losses, by round.

    Raises:
      ConfigError: without the package tensorboard, or if no training is finished.
    """
    plan = arguments.plan(args)
    jobs = [run._asdict() for run in plan.trainings()]
    every = [(Path(plan.path("history", **job)), plan.digest("train", **job)) for job in jobs]
    made = {path: seals.origin(path) for path, _ in every if path.exists()}
    finished = [path for path, spec in every if getattr(made.get(path), "spec", None) == spec]
    if not finished:
        raise ConfigError(f"no training in results/{plan.folder} is finished; run some first")
    from fedlib.results import RunResult  # takes half a second to import

    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("no tensorboard: .venv/bin/python -m pip install tensorboard") from None
    runs = Path(plan.path("results")) / "runs"
    folder = args.out or Path("tensorboard") / plan.folder
    for path in finished:
        history = RunResult.load(path)
        # An earlier command's curves of the training end where these begin.
        with SummaryWriter(str(folder / path.parent.relative_to(runs)), purge_step=0) as writer:
            for view, scores in history.scores.items():
                pooled = scores.correct.sum(1) / scores.count.sum()
                for number, value in zip(history.round, pooled, strict=True):
                    writer.add_scalar("/".join(("accuracy", *view)), value, number)
            for name in ("bytes_down", "bytes_up"):
                for number, value in zip(history.round, getattr(history, name), strict=True):
                    writer.add_scalar(name, value, number)
            for number, value in enumerate(history.train_loss, 1):
                writer.add_scalar("train_loss", value, number)
    print(f"{len(finished)} trainings; see them by: tensorboard --logdir {folder}")
