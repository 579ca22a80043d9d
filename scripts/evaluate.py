#!/usr/bin/env python3
"""Evaluate one trained run: its final state under the chosen protocols -> counts.

After an interruption the same command goes on with the long training of a protocol where it was.
"""

import shutil
import sys
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.run_spec import EVALUATED, RunSpec
from fedlib.workflow.command import hold, json_argument, run, run_parser, tell


def main() -> None:
    """Parse the command line and evaluate."""
    read = {"state": "final state, .pt", "history": "history of the run, .h5"}
    folder = "folder of this run's checkpoints, which are deleted at the end"
    parser = run_parser(__doc__, **read, checkpoints=folder, out="output: scores, .h5")
    args = parser.parse_args()
    spec = RunSpec.from_json(json_argument(args.spec), *EVALUATED)
    from fedlib import files, seals
    from fedlib.workflow import gpu, provenance

    roots = spec.roots("evaluate")
    code = provenance.check_code(args.code, *roots)
    with gpu.device(args.device, args.gpus) as device:
        from fedlib.run import job
        from fedlib.run.checkpoint import Checkpoints
        from fedlib.run.evaluate import evaluate_state
        from fedlib.run.operations import measure
        from fedlib.run.predictions import summarise
        from fedlib.run.usage import WALL, Usage

        inputs = seals.contents(args.manifest, *args.weights, args.history)
        simulation = job.simulation(args, job.training_spec(spec, args.history), device)
        record = job.record(args, simulation, device, code, inputs)
        stamp = job.stamp(args, spec, code) | {"history": files.digest(args.history)}
        own = args.checkpoints / "evaluation"
        with hold(args, args.out):
            earlier = [Checkpoints(folder, stamp).usage() for folder in own.glob("*")]
            spent = Usage(max(earlier, key=lambda used: used.get(WALL, 0), default={}))
            about = {"spent": spent, "report": tell}
            checkpoints = (Checkpoints(own / str(number), stamp, **about) for number in count())
            result = evaluate_state(
                simulation,
                spec,
                record,
                state_file=args.state,
                history_file=args.history,
                measure=measure,
                spent=spent,
                report=tell,
                checkpoints=lambda: next(checkpoints),
            )
            result = summarise(result, spec.predictions)
            result.save(args.out)
            print(f"{len(result.scores)} views are scored: {args.out}")
            shutil.rmtree(own, ignore_errors=True)
            Checkpoints(args.checkpoints, {}).clear()
    if args.code:
        provenance.assert_covered(*roots)


if __name__ == "__main__":
    sys.exit(run(main))
