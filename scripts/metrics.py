#!/usr/bin/env python3
"""Collect all runs of a paper: raw counts per client -> tidy metrics, and one row per client."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import seals
from fedlib.report import metrics
from fedlib.workflow import command, provenance


def main() -> None:
    """Parse the command line, collect, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="metrics specification, JSON or @path")
    parser.add_argument(
        "--runs", type=Path, required=True, help="results/FOLDER/runs/PAPER, the paper's runs"
    )
    parser.add_argument("--parquet", type=Path, required=True, help="output: tidy metrics")
    parser.add_argument("--csv", type=Path, required=True, help="output: the same, as text")
    parser.add_argument("--clients", type=Path, required=True, help="output: clients, .parquet")
    parser.add_argument("--code", help="digest of the code this job was planned with")
    args = parser.parse_args()

    provenance.check_code(args.code, "scripts/metrics.py")
    spec = command.json_argument(args.spec)
    tidy, clients = metrics.collect(spec, args.runs)
    made = seals.Made(
        seals.spec_digest(spec),
        provenance.code_digest("scripts/metrics.py"),
        seals.contents(*metrics.result_files(spec, args.runs)),
        seals.contents(),
    )
    metrics.write(tidy, args.csv)
    metrics.write(clients, args.clients, made=made)
    made = made._replace(beside=seals.contents(args.clients))
    metrics.write(tidy, args.parquet, made=made)
    print(f"{len(tidy)} metrics and {len(clients)} clients' rows: {args.parquet.parent}")
    provenance.assert_covered("scripts/metrics.py")


if __name__ == "__main__":
    sys.exit(command.run(main))
