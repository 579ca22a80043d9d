"""Derives fedlib/forecast/factors.csv from the kept trainings, and says how right estimates are.

  python -m benchmarks.factors [results/demo ...]    writes the factors
  python -m benchmarks.factors --check               estimates kept trainings, prints the quantiles

A factor is the time of a method divided by FedAvg's for as many examples, in the same federation
and with the same model: the median over federations of the medians over trainings. Where FedAvg was
not run, it is Local's time, divided by Local's factor, or FedAvg's with another model of the same
federation. Times are CPU times in the archives of packs, and in folders of results that are named:
where no pack has a run of a method, the demo may. A method whose times nobody recorded has the
ratio of its operations to the least of the federation, in the packs' metrics.

`--check` leaves out a federation, derives the factors from the others, and estimates its trainings
from FedAvg's time there, and by another seed of the same run.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from fedlib.forecast.estimates import FACTORS, SCORED, START
from fedlib.report import packs
from fedlib.results import RunResult
from fedlib.run.usage import CPU

KEPT = Path("docs/results")
FEDERATION, RUN = ["pack", "federation"], ["pack", "federation", "label"]
LONG = 1.0  # seconds; shorter evaluations are mostly the start of a job
QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]


def main() -> None:
    """Write the factors, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="say how right estimates are")
    parser.add_argument("results", nargs="*", type=Path, help="further folders of results")
    asked = parser.parse_args()
    times = based(pd.DataFrame(trainings(KEPT, asked.results)))
    if asked.check:
        for name, ratio in checked(times).items():
            spread = ", ".join(f"{x:.2f}" for x in ratio.quantile(QUANTILES))
            print(f"{name}: {len(ratio)} trainings; estimated / measured: {spread}")
        return
    found = of_times(times)
    counted = of_operations(KEPT)
    found = pd.concat([found, counted[~counted.index.isin(found.index)]]).sort_index()
    FACTORS.write_text(found.to_csv(lineterminator="\n", float_format="%.2f"), encoding="utf-8")
    print(f"{len(found)} methods: {FACTORS}")


def trainings(kept: Path, further: Iterable[Path] = ()) -> Iterator[dict]:
    """The time of each training with a history, and FedAvg's work for it."""
    for pack in sorted(path.parent for path in kept.rglob(packs.ARCHIVE)):
        with packs.unpack_runs(pack) as place:
            yield from _trainings(place / packs.RUNS, str(pack.parent.relative_to(kept)))
    for folder in further:
        yield from _trainings(folder / packs.RUNS, str(folder))


def _trainings(runs: Path, place: str) -> Iterator[dict]:
    for file in sorted(runs.rglob("evaluation.h5")):
        paper, federation, label, _ = file.relative_to(runs).parts[:4]
        done, evaluation = RunResult.load(file.with_name("history.h5")), RunResult.load(file)
        spec = done.spec
        passes = spec["local"].get("epochs", 1) * spec["participation"].get("rate", 1.0)
        took = [max(x.provenance["spent"][CPU] - START, 0.01) for x in (done, evaluation)]
        yield {
            **{"pack": f"{place} {paper}", "federation": federation, "label": label},
            "method": spec["method"],
            "model": json.dumps([spec["model"], spec["model_params"]], sort_keys=True),
            "experts": spec["params"].get("num_experts", 0),
            **{"rounds": spec["rounds"] * passes, "examples": int(done.examples[-1])},
            "scored": sum(int(x.count.sum()) for x in done.scores.values()),
            **{"evaluations": len(done.round), "train": took[0], "evaluate": took[1]},
        }


def based(times: pd.DataFrame) -> pd.DataFrame:
    """The trainings with FedAvg's time for the same work, `base` and `base_evaluate`."""
    plain = times[times["method"] == "fedavg"]
    shards = (plain["examples"] / plain["rounds"]).groupby([plain[x] for x in FEDERATION]).median()
    times = times.join(shards.rename("shards"), on=FEDERATION)
    own = (times["examples"] / times["rounds"]).where(times["shards"].isna())
    times["shards"] = times["shards"].fillna(own)
    times["work"] = times["rounds"] * times["shards"]
    times["work"] += SCORED * times["evaluations"] * times["scored"]
    speed = (times["train"] / times["work"]).rename("speed")

    def medians(method: str, keys: list[str]) -> pd.Series:
        mine = times["method"] == method
        return speed[mine].groupby([times.loc[mine, key] for key in keys]).median()

    def looked_up(found: pd.Series, keys: list[str]) -> pd.Series:
        return times[keys].join(found, on=keys)["speed"]

    alike = [*FEDERATION, "model"]
    fedavg, local = (looked_up(medians(name, alike), alike) for name in ("fedavg", "local"))
    of_local = (local / fedavg)[times["method"] == "local"].median()
    per_example = fedavg.fillna(local / of_local)
    per_example = per_example.fillna(looked_up(medians("fedavg", FEDERATION), FEDERATION))
    times["base"] = per_example * times["work"]
    times["base_evaluate"] = per_example * (times["shards"] + SCORED * times["scored"])
    return times.dropna(subset=["base"])


def of_times(times: pd.DataFrame) -> pd.DataFrame:
    """The factors of methods with recorded times, by method."""
    ratios = pd.DataFrame(
        {
            **{name: times[name] for name in ("method", *FEDERATION, "experts")},
            "train": times["train"] / times["base"],
            "evaluate": times["evaluate"] / times["base_evaluate"],
        }
    )
    each = ratios.groupby(["method", *FEDERATION])[["train"]].median()
    found = each.groupby("method").median()
    long = ratios[times["evaluate"] > LONG].groupby("method")["evaluate"]
    found["evaluate"] = long.median()[long.size() > 1].reindex(found.index).fillna(1.0)
    found["experts"] = ratios.groupby("method")["experts"].median().astype(int)
    found["federations"] = each.groupby("method").size()
    found["trainings"] = ratios.groupby("method").size()
    return found


def of_operations(kept: Path) -> pd.DataFrame:
    """The ratio of methods' operations to the least of their federation, by method."""
    found = []
    for file in sorted(kept.rglob(packs.METRICS)):
        rows = pd.read_parquet(file)
        rows = rows[(rows["metric"] == "flops") & (rows["value"] > 0)]
        places = rows.groupby("federation")
        rows = rows.assign(ratio=rows["value"] / places["value"].transform("min"))
        found.append(rows[places["method"].transform("nunique") > 1])
    ratio = pd.concat(found).groupby("method")["ratio"].median()
    counted = {"train": ratio, "evaluate": ratio, "experts": 0, "federations": 0, "trainings": 0}
    return pd.DataFrame(counted)


def checked(times: pd.DataFrame) -> dict[str, pd.Series]:
    """Estimated by measured times: of trainings by factors, and by another seed of the same run."""
    ratios = []
    for place, mine in times.groupby(FEDERATION):
        others = times[(times[FEDERATION] != list(place)).any(axis=1)]
        factors = mine["method"].map(of_times(others)["train"]).fillna(1.0)
        estimated = START + mine["base"] * factors
        ratios.append((estimated / (START + mine["train"]))[mine["method"] != "fedavg"])
    before = times.groupby(RUN)["train"].shift(1)
    again = ((START + before) / (START + times["train"])).dropna()
    by_factors = "by FedAvg's time in the same federation, and factors of the others"
    return {by_factors: pd.concat(ratios), "by another seed of the same run": again}


if __name__ == "__main__":
    main()
