"""Collects the rows of all runs of a paper."""

from numbers import Real
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib import seals
from fedlib.errors import DataError
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.metrics.tidy import ROW_COLUMNS, client_rows, run_rows
from fedlib.results import CLIENT_COLUMNS, RunResult

RUN_COLUMNS = ("paper", "federation", "dataset", "partition", "label", "method", "seed")
FILES = ("history", "evaluation")  # of a run, each with .h5
COLUMNS = RUN_COLUMNS + ROW_COLUMNS
QUANTITY = ["metric", "of", "index"]
TUNING = "tuning"  # value of the column "at" in rows about a run's trials
CHOSEN = "chosen"  # metric of the values that tuning chose


def collect(spec: dict, runs: str | Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Metrics and clients of all runs of a paper -> frames with COLUMNS, CLIENT_COLUMNS (+ more).

    Args:
      spec: {"paper", "runs": [{"federation", "dataset", "partition", "label", "method",
        "seeds", "specs"}]}, where "specs" has for each seed the digests of the specifications of
        training and evaluation. A tuned run has "tuned", the digests of its tunings by the end of
        their folder, "" or "/seed1".
      runs: folder with {federation}/{label}/seed{seed}/{history,evaluation}.h5; the trials of tuned
        runs are in ../../tuned.

    Raises:
      DataError: if files of a run are missing, corrupted or contradictory, or of another
        specification, or of other shards than another run on the same federation; names the run.
    """
    metrics, clients = [], []
    cut: dict[str, tuple] = {}
    for run in spec["runs"]:
        for part, digest in run.get("tuned", {}).items():
            metrics.append(of_tuning(spec["paper"], run, digest, _trials(run, part, runs)))
        for seed, expected in zip(run["seeds"], run["specs"], strict=True):
            folder = _folder(runs, run, seed)
            names = {name: run[name] for name in ("federation", "dataset", "partition", "label")}
            names |= {"paper": spec["paper"], "method": run["method"], "seed": seed}
            rows, shards = _read_run(folder, expected, cut)
            metrics.append(rows.assign(**names))
            clients.append(shards.assign(**names))
    if not metrics:
        raise DataError(f"the specification of {spec['paper']} lists no run")
    every = pd.concat(clients, ignore_index=True)
    diagnostics = every.columns.difference([*CLIENT_COLUMNS, "partition"], sort=False)
    rows = pd.concat(metrics, ignore_index=True)[list(COLUMNS)]
    return rows, every[[*CLIENT_COLUMNS, *diagnostics]]


def result_files(spec: dict, runs: str | Path) -> list[Path]:
    """The files that `collect` reads: all histories, then all evaluations, then all trials."""
    folders = [_folder(runs, run, seed) for run in spec["runs"] for seed in run["seeds"]]
    trials = [_trials(run, part, runs) for run in spec["runs"] for part in run.get("tuned", ())]
    return [*(folder / f"{name}.h5" for name in FILES for folder in folders), *trials]


def _folder(runs: str | Path, run: dict, seed: int) -> Path:
    """The folder with the results of a run with a seed."""
    return Path(runs) / run["federation"] / run["label"] / f"seed{seed}"


def _trials(run: dict, part: str, runs: str | Path) -> Path:
    """The file with the trials of a tuning, which ends in `part`."""
    paper = Path(runs)
    tuned = paper.parents[1] / "tuned" / paper.name
    return tuned / run["federation"] / f"{run['label']}{part}" / "trials.json"


def of_tuning(paper: str, run: dict, digest: str, file: Path) -> pd.DataFrame:
    """The result of a tuning, as rows at `TUNING`, with the seed that tunes.

    The metric "trial" with an index is the validation accuracy of the trial of this number, NaN if
    it diverged, and without one the number of the chosen trial. "chosen" is the value that it has
    `of` "local.lr" and so on, and "at_edge" the number of values at an edge of their ranges. A
    value that is a word is the index of a NaN; None, for the method's own default, is a NaN.
    """
    found = seals.read_json(file, has=("spec", "trials", "chosen", "values", "at_edge"))
    seals.check_spec(file, seals.spec_digest(found["spec"]), digest)
    values = {("trial", "", ""): found["chosen"], ("at_edge", "", ""): len(found["at_edge"])}
    for name, x in found["values"].items():
        number, word = (x, "") if isinstance(x, Real) else (np.nan, "" if x is None else str(x))
        values[CHOSEN, name, word] = number
    rows = [(found["spec"]["rounds"], *what, value) for what, value in values.items()]
    for number, trial in enumerate(found["trials"]):
        rows += [
            (int(rounds), "trial", "", str(number), np.nan if accuracy is None else accuracy)
            for rounds, accuracy in trial["accuracy"].items()
        ]
    view = PRIMARY._replace(split="val")._asdict()
    names = {name: run[name] for name in ("federation", "dataset", "partition", "label", "method")}
    about = {"paper": paper, "seed": found["spec"]["seed"], "at": TUNING, **names, **view}
    return pd.DataFrame(rows, columns=["round", *QUANTITY, "value"]).assign(**about)


def _read_run(
    folder: Path, expected: list[str], cut: dict[str, tuple]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of a run.

    Args:
      expected: digests of the specifications of its history and its evaluation.
      cut: for each specification of data the first run on it and its manifest; is added to.
    """
    paths = [folder / f"{name}.h5" for name in FILES]
    history, evaluation = map(RunResult.load, paths)
    for path, result, digest in zip(paths, (history, evaluation), expected, strict=True):
        seals.check_spec(path, seals.spec_digest(result.spec), digest)
    for name in ("state_sha256", "manifest_sha256"):
        if history.provenance.get(name) != evaluation.provenance.get(name):
            raise DataError(f"{paths[1]} is not of the training of {paths[0]}; evaluate again")
    manifest = history.provenance.get("manifest_sha256")
    first, other = cut.setdefault(history.spec.get("data", ""), (folder, manifest))
    if manifest != other:
        raise DataError(f"{folder} and {first} were trained on other shards; delete the older one")
    try:
        return run_rows(history, evaluation), client_rows(history, evaluation)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None


def join_names(metrics: pd.DataFrame) -> pd.DataFrame:
    """The frame with one name for `QUANTITY`: "table_0_3", "chosen_local.lr"."""
    names = metrics["metric"]
    for column in QUANTITY[1:]:
        names = names + ("_" + metrics[column]).where(metrics[column] != "", "")
    return metrics.assign(metric=names).drop(columns=QUANTITY[1:])
