"""Methods by federation: accuracy, worst tenth, who is worse off, newcomers, calibration, costs."""

import numpy as np
import pandas as pd

from fedlib.report import contrasts, notes
from fedlib.report.choices import Choice, choices, costs, of_clients, rows_of
from fedlib.report.comparisons import MEAN
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.metrics.seeds import summary
from fedlib.report.tables import render
from fedlib.report.tables.render import Cell, Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, means, texts

CHANCE = 0.16  # share of a normal distribution more than one deviation below its mean
GAIN_NOTE = (
    "Gain: of validation accuracy in the last quarter of the rounds, as the method predicts by "
    "default; of more than a point, longer training would help. A dash: not evaluated then."
)


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row for each federation and method."""
    exhibit, kind, alone = given.exhibit, given.kind, given.kind.alone
    picked = next((len(row["labels"]) for row in kind.rows if row.get("pick")), 3)
    every = {2: "both", 3: "all three"}.get(picked, f"all {picked}")
    hurt = contrasts.hurt_share(given, kind.rows, alone)
    numbers = pd.DataFrame(_row(given, choice, hurt) for choice in choices(given, kind.rows))
    return given.sheet(
        numbers,
        given.blocks(numbers, _columns),
        f"{notes.measurement(exhibit)} Accuracy is the mean over seen clients after the last "
        "round; worst tenth, that of the lowest tenth of them.",
        f"Worse off: clients below {alone} by more than a standard error of the difference; of two "
        f"equal methods with independent errors these would be {CHANCE:.0%}.",
        "Unseen: clients who took no part, as the method predicts for them by itself; gap: that "
        "less the accuracy of seen clients. A dash: the method has nothing for them.",
        "NLL and Brier: scores of predicted probabilities, means over seen clients. ECE: how far "
        "confidence is from accuracy, in percent, in 15 bins of all predictions, and in brackets "
        "what chance makes of perfect calibration. Less is better; a dash: not recorded.",
        GAIN_NOTE if numbers["gain"].notna().any() else "",
        "Traffic and arithmetic are of training, both directions and all clients; where clients "
        f"pick, of {every} runs.",
    )


def _row(given: TableInputs, choice: Choice, hurt: pd.Series) -> dict:
    """The numbers of a method on a federation, means over seeds."""
    seen = of_clients(given, choice)
    by_seed = seen.groupby("seed")["accuracy"]
    unseen = np.nan
    if not choice.picks:
        unseen = of_clients(given, choice, "unseen").groupby("seed")["accuracy"].mean().mean()
    mean = summary(by_seed.mean()) if len(seen) else {"mean": np.nan}
    return {
        **choice.about,
        "label": choice.label,
        **mean,
        "worst_tenth": by_seed.apply(contrasts.worst_tenth).mean(),
        "hurt": hurt.get((choice.about["federation"], choice.about["title"]), np.nan),
        "unseen": unseen,
        "gap": unseen - mean["mean"],
        "gain": _gain(given, choice),
        **_calibration(given, choice, seen),
        **costs(given, choice),
    }


def _gain(given: TableInputs, choice: Choice) -> float:
    """Gain in validation accuracy over the last quarter of the rounds, mean over seeds."""
    view = PRIMARY._replace(split="val")._asdict()
    rows = rows_of(given, choice, at="round", metric=MEAN, **view)
    by_round = rows.groupby("round")["value"].mean()
    last = by_round.index.max()
    before = by_round[(by_round.index >= last / 2) & (by_round.index <= 3 * last / 4)]
    return by_round[last] - before.iloc[-1] if len(before) else np.nan


def _calibration(given: TableInputs, choice: Choice, seen: pd.DataFrame) -> dict[str, float]:
    """Calibration of predicted probabilities, means over seeds; NaN where not recorded."""
    by_seed = seen.reindex(columns=["seed", "loss", "brier"]).groupby("seed").mean()
    found = {"nll": by_seed["loss"].mean(), "brier": by_seed["brier"].mean()}
    view = PRIMARY._replace(protocol=choice.protocol)
    rows = rows_of(given, choice, at="last", **view._asdict())
    pooled = rows.groupby("metric")["value"].mean()
    return found | {name: pooled.get(name, np.nan) for name in ("ece", "ece_by_chance")}


def _columns(part: pd.DataFrame) -> Columns:
    """The columns of a federation's block."""
    yield Column("Method"), texts(part["title"])
    yield Column("accuracy"), means(part)
    yield Column("worst tenth"), texts(map(render.percent, part["worst_tenth"]))
    yield Column("worse off"), texts(map(render.percent, part["hurt"]))
    yield Column("unseen"), texts(map(render.percent, part["unseen"]))
    yield Column("gap"), texts(map(render.points, part["gap"]))
    yield Column("gain"), texts(map(render.points, part["gain"]))
    yield Column("NLL"), _numbers(part["nll"])
    yield Column("Brier"), _numbers(part["brier"])
    yield Column("ECE (chance)"), texts(map(_beside_chance, part["ece"], part["ece_by_chance"]))
    yield Column("MB sent"), _numbers(part["bytes"] / 1e6)
    yield Column("GFLOPs"), _numbers(part["flops"] / 1e9)


def _numbers(values: pd.Series) -> list[Cell]:
    """Numbers with three digits."""
    return texts(render.ABSENT if np.isnan(x) else f"{float(f'{x:.3g}'):,g}" for x in values)


def _beside_chance(error: float, chance: float) -> str:
    """A calibration error beside that of chance, "4.2 (1.1)"."""
    if np.isnan(error):
        return render.ABSENT
    return f"{render.percent(error)} ({render.percent(chance)})"
