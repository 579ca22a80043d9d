#!/usr/bin/env python3
"""Tune one run: shards and a run specification -> every trial, and the chosen values.

After an interruption the same command continues after the finished trials.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.run_spec import TUNING, RunSpec
from fedlib.workflow.command import Stop, hold, json_argument, run, run_parser, tell


def main() -> None:
    """Parse the command line and tune."""
    made = {"trials": "output: every trial, .json", "choice": "output: the choice, .json"}
    parser = run_parser(__doc__, **made, checkpoints="folder of this tuning's checkpoints")
    args = parser.parse_args()
    spec = RunSpec.from_json(json_argument(args.spec), TUNING)
    # After parsing, so that --help is fast and needs no PyTorch.
    from fedlib.workflow import gpu, provenance

    roots = spec.roots("tune")
    code = provenance.check_code(args.code, *roots)
    with gpu.device(args.device, args.gpus) as device:
        from fedlib.run.tune import tune

        with hold(args, args.trials), Stop() as stop:
            tune(args, spec, device, code, tell, stop)
    if args.code:
        provenance.assert_covered(*roots)


if __name__ == "__main__":
    sys.exit(run(main))
