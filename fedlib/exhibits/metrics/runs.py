"""The rows of all runs of a paper, and where they are written."""

from pathlib import Path

import pandas as pd

from fedlib.errors import DataError
from fedlib.exhibits import frames
from fedlib.exhibits.metrics.tidy import CLIENT_COLUMNS, ROW_COLUMNS, client_rows, run_rows
from fedlib.results import RunResult

RUN_COLUMNS = ("paper", "federation", "dataset", "partition", "label", "method", "seed")
COLUMNS = RUN_COLUMNS + ROW_COLUMNS


def collect(spec: dict, runs: str | Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Metrics and clients of all runs of a paper -> frames with COLUMNS, CLIENT_COLUMNS (+ more).

    Args:
      spec: {"paper", "runs": [{"federation", "dataset", "partition", "label", "method",
        "seeds"}]}.
      runs: folder with {federation}/{label}/seed{seed}/{history,evaluation}.h5.

    Raises:
      DataError: naming the run whose files are missing, corrupted or contradictory.
    """
    metrics, clients = [], []
    for run in spec["runs"]:
        for seed in run["seeds"]:
            folder = Path(runs) / run["federation"] / run["label"] / f"seed{seed}"
            names = {name: run[name] for name in ("federation", "dataset", "partition", "label")}
            names |= {"paper": spec["paper"], "method": run["method"], "seed": seed}
            rows, shards = _read_run(folder, run["method"], seed)
            metrics.append(rows.assign(**names))
            clients.append(shards.assign(**names))
    if not metrics:
        raise DataError(f"the specification of {spec['paper']} lists no run")
    every = pd.concat(clients, ignore_index=True)
    diagnostics = sorted(set(every) - {*CLIENT_COLUMNS, "partition"}, key=_numbered)
    return (
        pd.concat(metrics, ignore_index=True)[list(COLUMNS)],
        every[[*CLIENT_COLUMNS, *diagnostics]],
    )


def _read_run(folder: Path, method: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    history = RunResult.load(folder / "history.h5")
    evaluation = RunResult.load(folder / "evaluation.h5")
    for result, name in ((history, "history.h5"), (evaluation, "evaluation.h5")):
        found = (result.spec.get("method", method), result.spec.get("seed", seed))
        if found != (method, seed):
            raise DataError(
                f"{folder / name} is of method {found[0]}, seed {found[1]}, "
                f"not of {method}, seed {seed}; delete the folder and run again"
            )
    try:
        return run_rows(history, evaluation), client_rows(history, evaluation)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None


def write(frame: pd.DataFrame, *paths: str | Path) -> None:
    """Write a frame to each path, atomically; the suffix (.parquet or .csv) chooses the format."""
    for path in paths:
        save = frames.write_csv if Path(path).suffix == ".csv" else frames.write_parquet
        save(frame, path)


def _numbered(column: str) -> tuple[str, int]:
    """Name and number of a column such as "pi_10", by which such columns are sorted."""
    name, _, number = column.rpartition("_")
    return (name, int(number)) if name and number.isdigit() else (column, -1)
