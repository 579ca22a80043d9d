"""Differences of methods over federations, with their statistics."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from fedlib.report import statistics
from fedlib.report.choices import choices, of_clients
from fedlib.report.inputs import Inputs

NUMBERS = (
    *("federations", "datasets", "mean", "median", "low", "high", "p", "p_holm"),
    *("better", "equal", "worse", "ahead", "seeds_low", "seeds_high"),
    *("datasets_low", "datasets_high", "verdict"),
)


def accuracies(given: Inputs, rows: Sequence[Mapping]) -> pd.DataFrame:
    """Mean test accuracy of the seen clients: columns federation, dataset, title, seed, value."""
    found = []
    for choice in choices(given, rows):
        by_seed = of_clients(given, choice).groupby("seed")["accuracy"].mean()
        found.append(by_seed.rename("value").reset_index().assign(**choice.about))
    return pd.concat(found, ignore_index=True)


def subtract(values: pd.DataFrame, better: str, worse: str) -> pd.DataFrame:
    """The first title's values less the second's: columns federation, dataset, seed, value."""
    key = ["federation", "dataset", "seed"]
    ours, theirs = (values[values["title"] == title] for title in (better, worse))
    both = ours.merge(theirs, on=key, suffixes=("", "_other"))
    return both.assign(value=both["value"] - both["value_other"])[[*key, "value"]]


def contrast(differences: pd.DataFrame) -> dict:
    """Statistics of the differences of `subtract`: `NUMBERS` without p_holm."""
    found = statistics.by_federation(differences)
    values = found["value"].to_numpy()
    shift, posterior = statistics.hodges_lehmann(values), statistics.signed_rank(values)
    seeds_low, seeds_high = statistics.bootstrap(differences, "seed")
    datasets_low, datasets_high = statistics.bootstrap(differences, "dataset")
    return {
        "federations": len(found),
        "datasets": found["dataset"].nunique(),
        "mean": float(values.mean()),
        **shift._asdict(),
        **posterior._asdict(),
        "ahead": int((values > 0).sum()),
        "seeds_low": seeds_low,
        "seeds_high": seeds_high,
        "datasets_low": datasets_low,
        "datasets_high": datasets_high,
        "verdict": statistics.verdict(found, posterior),
    }


def all_contrasts(values: pd.DataFrame, of: Iterable[str], against: Sequence[str]) -> pd.DataFrame:
    """A row for each pair of methods that share a federation: "against", "title", `NUMBERS`.

    The p values of all pairs with the same second method are adjusted together.
    """
    found = []
    for other in against:
        mine = []
        for title in of:
            differences = subtract(values, title, other)
            if title != other and len(differences):
                mine.append({"against": other, "title": title, **contrast(differences)})
        adjusted = statistics.holm([row["p"] for row in mine])
        found += [row | {"p_holm": p} for row, p in zip(mine, adjusted.tolist(), strict=True)]
    return pd.DataFrame(found, columns=["against", "title", *NUMBERS])


def hurt_share(given: Inputs, rows: Sequence[Mapping], alone: str) -> pd.Series:
    """Share of clients hurt, mean over seeds, by federation and title.

    A client is hurt if its accuracy is below that of the title `alone` by more than a standard
    error of the difference of two independent shares of its test examples.
    """
    every = pd.concat(of_clients(given, x).assign(**x.about) for x in choices(given, rows))
    key = ["federation", "seed", "client"]
    both = every.merge(every[every["title"] == alone], on=key, suffixes=("", "_alone"))
    p, q, n = both["accuracy"], both["accuracy_alone"], both["count"]
    error = np.sqrt((p * (1 - p) + q * (1 - q)) / n)
    by_seed = both.assign(hurt=q - p > error).groupby(["federation", "title", "seed"])["hurt"]
    return by_seed.mean().groupby(["federation", "title"]).mean()


def worst_tenth(accuracy: pd.Series) -> float:
    """Mean of the floor(C / 10) lowest of C accuracies, at least one."""
    return float(np.sort(accuracy)[: max(1, len(accuracy) // 10)].mean())
