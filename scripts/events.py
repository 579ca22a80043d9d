#!/usr/bin/env python3
"""Write the curves of one run as an event file for TensorBoard."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.errors import DataError
from fedlib.report import events
from fedlib.results import RunResult
from fedlib.workflow import command, provenance


def main() -> None:
    """Parse the command line, read, write."""
    parser = command.spec_parser(__doc__, "events")
    parser.add_argument("--history", type=Path, required=True, help="history of the run, .h5")
    parser.add_argument("--evaluation", type=Path, required=True, help="its final scores, .h5")
    parser.add_argument("--out", type=Path, required=True, help="output: *tfevents*")
    args = parser.parse_args()

    spec = command.run_argument(args.spec)
    provenance.check_code(args.code, "scripts/events.py")
    history, evaluation = RunResult.load(args.history), RunResult.load(args.evaluation)
    if history.spec != spec:
        raise DataError(
            f"{args.history} was written for another run specification; train again, "
            "or give the specification it was trained with"
        )
    try:
        count = events.write(history, evaluation, args.out)
    except DataError as error:
        raise DataError(f"{args.history.parent}: {error}") from None
    print(f"{count} scalars: {args.out}")
    provenance.assert_covered("scripts/events.py")


if __name__ == "__main__":
    sys.exit(command.run(main))
