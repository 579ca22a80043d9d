#!/usr/bin/env python3
"""Collect all runs of a paper: raw counts per client -> tidy metrics, and one row per client."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import seals
from fedlib.report import frames
from fedlib.report.metrics.runs import collect, join_names, result_files
from fedlib.workflow import command, provenance


def main() -> None:
    """Parse the command line, collect, write."""
    outputs = {"parquet": "output: tidy metrics", "csv": "output: the same, as text"}
    outputs |= {"clients": "output: clients, .parquet"}
    runs = "results/FOLDER/runs/PAPER, the paper's runs"
    args = command.job_parser(__doc__, "metrics", runs=runs, **outputs).parse_args()

    code = provenance.check_code(args.code, "scripts/metrics.py")
    spec = command.json_argument(args.spec, "paper", "runs")
    read = seals.contents(*result_files(spec, args.runs))
    tidy, clients = collect(spec, args.runs)
    made = seals.Made(seals.spec_digest(spec), code, read, seals.contents())
    frames.write_csv(join_names(tidy), args.csv)
    frames.write_parquet(clients, args.clients, made)
    made = made._replace(beside=seals.contents(args.clients, args.csv))
    frames.write_parquet(tidy, args.parquet, made)
    print(f"{len(tidy)} metrics and {len(clients)} clients' rows: {args.parquet.parent}")
    provenance.assert_covered("scripts/metrics.py")


if __name__ == "__main__":
    sys.exit(command.run(main))
