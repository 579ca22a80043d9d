"""Published numbers by table, and ours from packs of kept results.

A cell is a number of a run that a table shows beside a published number. Making the tables from
invented metrics finds all cells.
"""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from fedlib.report import comparisons, inputs, metrics, packs, printed, tables
from fedlib.report.pages import origin
from fedlib.report.pages.contents import METRICS, compared
from fedlib.spec.exhibits import OF_PREDICTIONS

# Columns that identify the rows of a table; a kind of table has some of them.
KEY = ("table", "federation", "label", "title", "metric", "protocol", "column", "key")
OURS = ("published", "reproduced", "difference", "seeds")
COSTS = ("bytes", "bytes_down", "bytes_up", "client_rounds", "examples", "divergence_0", "alpha")
RESULTS = ("history", "evaluation")  # files of a run
MADE_UP = 0.5


def declared(exhibits: Iterable[dict], published: Path) -> pd.DataFrame:
    """The cells of tables -> DataFrame with `KEY`, data, head, table_title, published.

    Args:
      exhibits: see `fedlib.report.exhibits`.
      published: file of the paper's numbers.
    """
    found = []
    for exhibit in exhibits:
        exhibit = {**exhibit, "seeds": exhibit["seeds"][:1]}
        frames = made_up(exhibit)
        load = tables.load(exhibit["kind"])
        sheet = load(exhibit, *frames, printed.read(published), **exhibit["params"])
        titles = {data["name"]: data["title"] for data in exhibit["federations"]}
        rows = _rows(exhibit, sheet.numbers)
        shown = rows["metric"].map(lambda metric: METRICS.get(metric, metric))
        heads = rows["column"].where(rows["column"] != "", shown)
        several = heads.groupby(rows["federation"]).transform("nunique") > 1
        data = rows["federation"].map(titles)
        heads = data.where(~several, data + ", " + heads)
        found.append(rows.assign(data=data, head=heads, table_title=exhibit["title"]))
    return pd.concat(found, ignore_index=True).drop(columns=[*OURS[1:]])


def reproduced(pack: Path, published: Path) -> pd.DataFrame:
    """The cells of a pack beside a published number -> DataFrame with `KEY`, `OURS`."""
    metrics_file, clients, exhibits = packs.read(pack)
    found = [pd.DataFrame(columns=[*KEY, *OURS])]
    for stage, spec, has_published in exhibits:
        if stage == "table" and has_published:
            sheet = inputs.made(tables.load, spec, metrics_file, clients, published)
            found.append(_rows(spec, sheet.numbers))
    return pd.concat([frame for frame in found if len(frame)] or found, ignore_index=True)


def made(pack: Path) -> dict[tuple[str, ...], tuple[str, float]]:
    """The machines of packed runs, and core-hours per seed, by paper, federation and label."""
    if not (pack / packs.ARCHIVE).exists():
        return {}
    runs: dict[tuple[str, ...], list[list[dict]]] = {}
    with packs.opened(pack) as place:
        for folder in sorted((place / packs.RUNS).glob("*/*/*/*")):
            found = [origin.attributes(folder / f"{of}.h5")[0] for of in RESULTS]
            runs.setdefault(folder.relative_to(place / packs.RUNS).parts[:3], []).append(found)
    return {run: _spent(seeds) for run, seeds in runs.items()}


def _spent(seeds: list[list[dict]]) -> tuple[str, float]:
    """Machines, and core-hours of a seed, in the provenance of a run's results."""
    found = [provenance for seed in seeds for provenance in seed]
    machines = dict.fromkeys(one.get("gpu") or one["cpu"] for one in found)
    return ", ".join(machines), origin.spent(found).cpu / 3600 / len(seeds)


def made_up(exhibit: Mapping) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Invented metrics and clients: 0.5 for everything that an exhibit may read of its runs."""
    protocols = ("default", "local", "ifca", *comparisons.TITLES)
    views = itertools.product(("seen", "unseen", "server"), protocols, ("val", "test"))
    names = [*(m.__name__ for m in metrics.METRICS), *OF_PREDICTIONS]
    rows = [(*view, name) for view in views for name in names]
    rows += [(*metrics.TRAFFIC, cost) for cost in (*COSTS, metrics.PARAMETERS)]
    of_view = pd.DataFrame(rows, columns=["group", "protocol", "split", "metric"])
    evaluated = pd.concat(of_view.assign(at=at) for at in ("round", "last", "best", "chosen"))
    everybody = pd.DataFrame(
        [("last", "seen", protocol, "test", client) for protocol in protocols for client in (0, 1)],
        columns=["at", "group", "protocol", "split", "client"],
    ).assign(count=4, correct=2.0, accuracy=MADE_UP, loss=1.0, choice=0, cluster=0)
    runs, owners = [], []
    data = {one["name"]: one for one in exhibit["federations"]}
    for run, seed in itertools.product(exhibit["runs"], exhibit["seeds"]):
        federation = data[run["federation"]]
        about = {name: run[name] for name in ("federation", "label", "method")}
        about |= {"paper": exhibit["paper"], "seed": seed, "dataset": federation["dataset"]}
        about |= {"partition": federation["partition_label"]}
        runs.append(evaluated.assign(**about, round=run["rounds"], value=MADE_UP))
        owners.append(everybody.assign(**about))
    return pd.concat(runs, ignore_index=True), pd.concat(owners, ignore_index=True)


def _rows(exhibit: Mapping, numbers: pd.DataFrame) -> pd.DataFrame:
    """Compared rows of a table: `KEY`, "" for columns it lacks, and `OURS`."""
    rows = compared(numbers).assign(table=exhibit["name"]).reindex(columns=[*KEY, *OURS])
    return rows.assign(**{name: rows[name].astype(object).fillna("").astype(str) for name in KEY})
