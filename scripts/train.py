#!/usr/bin/env python3
"""Train one run: shards and a run specification -> final state and history of evaluations.

After an interruption the same command continues from the last checkpoint. On a CPU its results are
bit-identical to those of an uninterrupted run, with any number of threads.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.run_spec import RunSpec
from fedlib.workflow.command import Stop, hold, json_argument, run, run_parser, tell


def main() -> None:
    """Parse the command line and train."""
    made = {"state": "output: final state, .pt", "history": "output: evaluations, .h5"}
    parser = run_parser(__doc__, **made, checkpoints="folder of this run's checkpoints")
    parser.add_argument("--choice", type=Path, help="what was chosen for a tuned run, .json")
    often = "save after every so many rounds (default: when 20 s have passed)"
    parser.add_argument("--checkpoint-every", type=int, metavar="ROUNDS", help=often)
    args = parser.parse_args()
    spec = RunSpec.from_json(json_argument(args.spec))
    # After parsing, so that --help is fast and needs no PyTorch.
    from fedlib import seals
    from fedlib.workflow import gpu, provenance

    roots = spec.roots("train")
    code = provenance.check_code(args.code, *roots)
    with gpu.device(args.device, args.gpus) as device:
        from fedlib.run import job
        from fedlib.run.checkpoint import Checkpoints
        from fedlib.run.train import train
        from fedlib.run.usage import Usage

        chosen = [args.choice] if args.choice else []
        inputs = seals.contents(args.manifest, *args.weights, *chosen)
        ran = job.apply_choice(spec, args.choice)
        simulation = job.simulation(args, ran, device)
        stamp = job.stamp(args, ran, code)
        checkpoints = Checkpoints(args.checkpoints, stamp, every=args.checkpoint_every)
        with hold(args, args.history), Stop() as stop:
            checkpoints.spent = Usage(checkpoints.usage())  # an orphan has saved its last one now
            started = time.monotonic()
            where = f"{device}, {simulation.executor.name}, pid {os.getpid()}"
            tell(f"{ran.method} on {args.shards}, {where}")
            record = job.record(args, simulation, device, code, inputs)
            record |= {job.RAN: ran.to_json()} if chosen else {}

            checked = 0  # modules

            def ends() -> bool:
                nonlocal checked
                if args.code and len(sys.modules) != checked:  # a round has imported some
                    provenance.assert_covered(*roots)
                    checked = len(sys.modules)
                return stop()

            train(
                simulation,
                spec,
                record,
                state_file=args.state,
                history_file=args.history,
                checkpoints=checkpoints,
                report=tell,
                stop=ends,
            )
            print(f"done in {time.monotonic() - started:.1f} s: {args.history}", flush=True)
    if args.code:
        provenance.assert_covered(*roots)


if __name__ == "__main__":
    sys.exit(run(main))
