"""Published numbers, and ours from packs of kept results.

A published number is a row in percent of a paper's `published.csv`. It is reproduced if a kept
table shows a number of ours beside it, or a kept figure a curve of ours.
"""

import math
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fedlib.report import packs, printed
from fedlib.report.figures import FigureInputs
from fedlib.report.pages import origin
from fedlib.report.pages.contents import METRICS, pick_published
from fedlib.report.tables.sheets import TableInputs

RESULTS = ("history", "evaluation")  # files of a run
TEXTS = ("federation", "label", "title", "metric", "column")
NUMBERS = (printed.ROW, "published", "reproduced", "difference", "seeds")
# Of ours: name of the data, of what is measured; whether the images are those of EMNIST's test
# split alone; the pack.
MORE = ("data", "measured", "is_split", "pack")
NONE = pd.DataFrame(columns=[*TEXTS, *MORE, *NUMBERS], dtype=object)
NONE = NONE.astype(dict.fromkeys(NUMBERS, float))


def read_published(file: Path) -> pd.DataFrame:
    """The published numbers of a paper, as fractions.

    Returns:
      DataFrame by row of the file: exhibit, dataset, label, metric, source, published.
    """
    table = printed.read(file)
    table = table[table["unit"] == "percent"]
    fractions = (table["value"] / printed.UNITS["percent"]).round(8)
    return table.drop(columns=["value", "unit"]).assign(published=fractions)


def collect_ours(pack: Path, file: Path) -> pd.DataFrame:
    """Our numbers in a pack's tables and curves that are beside a published one.

    Returns:
      DataFrame of the columns of `NONE`; titles name a precision other than float32.
    """
    metrics, clients, exhibits = packs.read(pack, file.parent.name)
    every = [NONE]
    for stage, spec, _ in (exhibit for exhibit in exhibits if exhibit.published):
        rows = _pick_rows(stage, spec, metrics, clients, file).reindex(columns=[*TEXTS, *NUMBERS])
        rows[[*TEXTS]] = rows[[*TEXTS]].astype(object).fillna("").astype(str)
        known = {one["name"]: one for one in spec["federations"]}
        data = [known.get(name, {"title": "all", "params": {}}) for name in rows["federation"]]
        precision = {(x["federation"], x["label"]): x["precision"] for x in spec["runs"]}
        how = [precision.get((x.federation, x.label), "float32") for x in rows.itertuples()]
        named = zip(rows["title"], how, strict=True)
        more = {
            "title": [f"{title} ({x})".removesuffix(" (float32)") for title, x in named],
            "data": [one["title"] for one in data],
            "measured": [x.column or METRICS.get(x.metric, x.metric) for x in rows.itertuples()],
            # Whether clients have the images of EMNIST's test split alone.
            "is_split": [one["params"].get("source") == "test" for one in data],
            "pack": str(pack),
        }
        every.append(rows.assign(**more))
    return pd.concat(every, ignore_index=True)


def _pick_rows(stage: str, spec: dict, *files: Path) -> pd.DataFrame:
    """The rows of a table or figure that have a published number, possibly none."""
    if stage == "table":
        return pick_published(TableInputs.read(spec, *files).make().numbers)
    given = FigureInputs.read(spec, *files)
    return given.module.compared(given) if hasattr(given.module, "compared") else NONE


def of_packs(file: Path, places: Iterable[Path]) -> pd.DataFrame:
    """The published numbers of a file, with ours from packs beside them, see `beside`."""
    ours = [NONE, *(collect_ours(pack, file) for pack in places)]
    return beside(read_published(file), pd.concat(ours, ignore_index=True))


def beside(numbers: pd.DataFrame, ours: pd.DataFrame) -> pd.DataFrame:
    """Published numbers with ours of the same row beside them, and 0 seeds where there is none."""
    ours = ours.rename(columns={"label": "run", "metric": "measure"})
    ours = ours.drop_duplicates(printed.ROW).set_index(printed.ROW).drop(columns="published")
    found = numbers.join(ours)
    return found.assign(seeds=found["seeds"].fillna(0).astype(int))


def pick_exchanged(numbers: pd.DataFrame) -> pd.DataFrame:
    """Those of the numbers of `beside` that were run and whose names are exchanged.

    Args:
      numbers: with the column paper.

    Returns:
      These rows. `published` is the number printed under the other name, `difference` is ours minus
      that, and `as_printed` is ours minus the number printed under their own name.
    """
    other = {
        (*place, name): pair[1 - i]
        for place, pair in printed.EXCHANGED.items()
        for i, name in enumerate(pair)
    }
    key = ["paper", "dataset", "label"]
    names = [other.get(row, "") for row in numbers[key].itertuples(index=False, name=None)]
    mine = numbers.assign(other=names)[numbers["seeds"] > 0].query("other != ''")
    place = ["paper", "dataset", "exhibit", "metric"]
    theirs = mine[[*place, "label", "published"]].rename(columns={"label": "other"})
    both = mine.drop(columns="published").merge(theirs, on=[*place, "other"])
    off = [*map(printed.difference, both["reproduced"], both["published"])]
    return both.assign(as_printed=both["difference"], difference=off)


def read_costs(pack: Path) -> dict[tuple[str, ...], tuple[str, float]]:
    """The machines of packed runs, and core-hours per seed, by paper, federation and label."""
    if not (pack / packs.ARCHIVE).exists():
        return {}
    runs: dict[tuple[str, ...], list[list[dict]]] = {}
    with packs.unpack_runs(pack) as place:
        for folder in sorted((place / packs.RUNS).glob("*/*/*/*")):
            found = [origin.attributes(folder / f"{of}.h5")[0] for of in RESULTS]
            runs.setdefault(folder.relative_to(place / packs.RUNS).parts[:3], []).append(found)
    return {run: _costs(seeds) for run, seeds in runs.items()}


def _costs(seeds: list[list[dict]]) -> tuple[str, float]:
    """Machines, and core-hours of a seed, in the provenance of a run's results.

    Of the seeds whose results all recorded them; NaN if there are none.
    """
    machines = dict.fromkeys(one.get("gpu") or one["cpu"] for seed in seeds for one in seed)
    known = [origin.resources(seed).cpu for seed in seeds if all(one.get("spent") for one in seed)]
    return ", ".join(machines), sum(known) / 3600 / len(known) if known else math.nan
