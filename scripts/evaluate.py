#!/usr/bin/env python3
"""Evaluate one trained run: its final state under the chosen protocols -> counts."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.run_spec import EVALUATED, RunSpec
from fedlib.workflow.command import json_argument, run, run_parser, tell


def arguments() -> argparse.Namespace:
    """The command line."""
    files = {"state": "final state, .pt", "history": "history of the run, .h5"}
    parser = run_parser(__doc__, **files, out="output: scores, .h5")
    parser.add_argument("--checkpoints", type=Path, help="folder of checkpoints, to be cleared")
    return parser.parse_args()


def main() -> None:
    """Parse the command line and evaluate."""
    args = arguments()
    spec = RunSpec.from_json(json_argument(args.spec), *EVALUATED)
    from fedlib.workflow import gpu, provenance

    roots = spec.roots("evaluate")
    code = provenance.check_code(args.code, *roots)
    with gpu.device(args.device, args.gpus) as device:
        from fedlib.run import job
        from fedlib.run.checkpoint import Checkpoints
        from fedlib.run.evaluate import evaluate_state
        from fedlib.run.operations import measure
        from fedlib.run.predictions import summarise
        from fedlib.run.usage import Usage

        spent = Usage()
        simulation = job.simulation(args, job.trained(spec, args.history), device)
        result = evaluate_state(
            simulation,
            spec,
            job.record(args, simulation, device, code, args.history),
            state_file=args.state,
            history_file=args.history,
            measure=measure,
            spent=spent,
            report=tell,
        )
        result = summarise(result, spec.predictions)
        result.save(args.out)
        print(f"{len(result.scores)} views are scored: {args.out}")
        if args.checkpoints:
            Checkpoints(args.checkpoints, {}).clear()
    if args.code:
        provenance.assert_covered(*roots)


if __name__ == "__main__":
    sys.exit(run(main))
