"""Measure which executor is fastest here for the runs of a configuration, for `executor: auto`.

Runs without shards are left out: make the shards first (`snakemake partitions`). Runs that take the
same executor, such as the seeds of one run, are measured once. See `fedlib.run.calibrate`.
"""

import argparse
import json
from pathlib import Path

from fedlib.cli import arguments
from fedlib.errors import DataError
from fedlib.workflow import gpu
from fedlib.workflow.plan import Plan


def main(args: argparse.Namespace) -> None:
    """Measure and remember."""
    plan = arguments.plan(args)

    from fedlib.run import calibration  # after what may be wrong: it takes seconds to import

    known = {} if args.again else calibration.remembered()
    with gpu.device(plan.config["device"]) as device:
        for stage, cell in plan.jobs():
            if stage == "train":
                known |= _calibrated(plan, cell, device, known)
    print(f"remembered in {calibration.file()}")


def _calibrated(plan: Plan, cell: dict, device: str, known: dict) -> dict:
    """What was measured of a run, by its key; nothing if it is known or cannot be measured."""
    from fedlib.engine.choice import rule
    from fedlib.federation import Federation
    from fedlib.run import calibrate, calibration
    from fedlib.run.build import build_simulation

    name = "/".join(map(str, cell.values()))
    shards = Path(plan.path("shards", **cell))
    if not shards.exists():
        print(f"{name}: left out, {shards} is not there yet")
        return {}
    receipts = plan.weights(**{key: value for key, value in cell.items() if key != "seed"})
    simulation = build_simulation(
        json.loads(plan.spec("train", **cell)),
        Federation.load(shards),
        device=device,
        executor="loop",
        weights=[Path(receipt) for receipt in receipts],
    )
    run = simulation.method, simulation.data, simulation.course
    key = calibration.key(*run)
    if key in known:
        return {}
    try:
        entry = calibrate.measure(*run)
    except DataError as error:
        print(f"{name}: left out, {error}")
        return {}
    calibrate.remember(key, entry)
    times = ", ".join(f"{found} {1e3 * s:.1f} ms" for found, s in entry["seconds"].items())
    print(f"{name}: {entry['executor']} ({times})", flush=True)
    if reason := calibrate.reason(entry["seconds"], rule(simulation.method.task)):
        print(f"{name}: {reason}", flush=True)
    for reason, shapes in entry.get("not_traced", {}).items():
        print(f"{name}: steps of {shapes} shapes are not traced, {reason}", flush=True)
    return {key: entry}
