#!/usr/bin/env python3
"""Train one run: shards and a run specification -> final state and history of evaluations.

After an interruption the same command continues from the last checkpoint. Its results are
bit-identical to those of an uninterrupted run on one CPU thread.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.run_spec import run_roots
from fedlib.workflow.command import described, run, run_argument, run_parser


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = run_parser(described(__doc__), "train")
    parser.add_argument("--state", type=Path, required=True, help="output: final state, .pt")
    parser.add_argument("--history", type=Path, required=True, help="output: evaluations, .h5")
    parser.add_argument(
        "--checkpoints", type=Path, required=True, help="folder of this run's checkpoints"
    )
    parser.add_argument(
        "--checkpoint-every",
        type=int,
        metavar="ROUNDS",
        help="save after every so many rounds (default: when 20 s have passed)",
    )
    return parser.parse_args()


def main() -> None:
    """Parse the command line and train."""
    args = arguments()
    spec = run_argument(args.spec)
    # After parsing, so that --help needs neither PyTorch nor a second of patience.
    from fedlib import files, locks
    from fedlib.workflow import gpu, provenance

    roots = run_roots("train", spec)
    provenance.check_code(args.code, *roots)
    with gpu.device(args.device, args.gpus) as device:
        from fedlib.run import job
        from fedlib.run.calibration import settled
        from fedlib.run.checkpoint import Checkpoints
        from fedlib.run.spent import Spent
        from fedlib.run.train import train

        simulation = job.simulation(args, spec, device)
        manifest = files.digest(args.manifest)
        stamp = {"spec": spec, "code": provenance.code_digest(*roots), "manifest": manifest}
        stamp["weights"] = job.weights(args)
        checkpoints = Checkpoints(args.checkpoints, stamp, every=args.checkpoint_every)
        noted = checkpoints.noted()
        checkpoints.spent = Spent(noted.get("spent", {}))
        if args.executor == "auto":
            simulation = settled(simulation, noted.get("executor"), tell)
        checkpoints.notes["executor"] = simulation.executor.setting
        lock = args.checkpoints / "lock"
        what, succeed = str(args.history.parent), args.code is not None
        # A job of the workflow may succeed one that a workflow left behind when it was killed.
        with locks.exclusive(lock, what, succeed=succeed, report=tell), Stop() as stop:
            started = time.monotonic()
            print(_headline(args, spec, simulation, device), flush=True)
            record = job.record(args, simulation, device, stamp["code"])
            train(
                simulation,
                spec,
                record,
                state_file=args.state,
                history_file=args.history,
                checkpoints=checkpoints,
                report=tell,
                stop=stop,
            )
            print(f"done in {time.monotonic() - started:.1f} s: {args.history}", flush=True)
    if args.code:
        provenance.assert_covered(*roots)


def _headline(args: argparse.Namespace, spec: dict, simulation, device: str) -> str:
    seen, unseen = (len(simulation.federation.ids(group)) for group in ("seen", "unseen"))
    return (
        f"{spec['method']} on {args.shards}: {spec['model']}, "
        f"{seen} seen and {unseen} unseen clients, {spec['rounds']} rounds, "
        f"seed {spec['seed']}, {device}, {simulation.executor.name}, pid {os.getpid()}"
    )


def tell(line: str) -> None:
    """A line of progress."""
    print(line, flush=True)


class Stop:
    """Says whether this process has been asked to stop: by SIGTERM, or by Ctrl-C or a terminal.

    A terminal that is closed sends SIGHUP, which nohup has ignored.

    It is asked after every round. A second Ctrl-C ends the process at once.
    """

    def __init__(self):
        """Listen from now on."""
        self.signal = 0
        signal.signal(signal.SIGTERM, self._arrived)
        for number in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C is ignored in the background
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._arrived)

    def __call__(self) -> bool:
        """Whether a signal has arrived."""
        return bool(self.signal)

    def __enter__(self) -> "Stop":
        """Itself."""
        return self

    def __exit__(self, kind, *_):
        """A process that was stopped exits with 128 and the number of the signal."""
        if kind is SystemExit and self.signal:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is saved: it cannot end any sooner
            raise SystemExit(128 + self.signal) from None

    def _arrived(self, number: int, _) -> None:
        self.signal = number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.write(1, b"stopping after this round; press Ctrl-C once more to stop at once\n")


if __name__ == "__main__":
    sys.exit(run(main))
