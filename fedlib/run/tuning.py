"""The job that tunes a run: from its command line to the files of its trials and of its choice."""

import argparse
from collections.abc import Callable

from fedlib import files, seals
from fedlib.run import job
from fedlib.run.build import build_simulation
from fedlib.run.checkpoint import Checkpoints
from fedlib.run.simulate import Simulation
from fedlib.run.tune import Memory, Tuner, record, without_test
from fedlib.run.tuned import write_choice


def tune(
    args: argparse.Namespace,
    spec: dict,
    device: str,
    code: str,
    report: Callable[[str], None],
    stop: Callable[[], bool],
) -> None:
    """Run all trials, then write the choice and, last, the trials, which have its digest.

    Args:
      args: of `scripts/tune.py`.
      spec: of the run, with "tuning".
      device: from `fedlib.workflow.gpu.device`.
      code: digest of the code.
      report, stop: as in `Simulation.run`.
    """
    federation = without_test(job.federation(args, spec))
    stamp = {"spec": spec, "code": code, "manifest": files.digest(args.manifest)}
    stamp["weights"] = job.weights(args)
    memory = Memory(args.checkpoints / "finished.json", stamp)

    def build(ran: dict) -> Simulation:
        given = {"device": device, "executor": args.executor, "weights": args.weights}
        return build_simulation(ran, federation, **given)

    def checkpoints(name: str) -> Checkpoints:
        return Checkpoints(args.checkpoints, {**stamp, "trial": name})

    trials = Tuner(spec, build, memory, checkpoints, report, stop).run()
    found = record(spec, trials)
    write_choice(args.choice, found["values"], spec)
    read = seals.contents(args.manifest, *args.weights)
    made = seals.Made(seals.spec_digest(spec), code, read, seals.contents(args.choice))
    seals.write_json(args.trials, found | {seals.MADE: str(made)})
    memory.file.unlink(missing_ok=True)
    Checkpoints(args.checkpoints, {}).clear()
