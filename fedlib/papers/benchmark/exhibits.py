"""Figures of the benchmark."""

from fedlib.papers._frame import Settings, on
from fedlib.papers.benchmark.settings import DIM, HOMES, METHODS
from fedlib.spec.worlds import PhaseDiagram, Regret

PICKED = ("local", "fedavg", "fedavg-plus")  # ordinary runs, of which a client may pick one


def rows(shown: Settings) -> tuple[dict, ...]:
    """A row for each method that some of the settings have."""
    there = {label for setting in shown for label in setting.labels}
    worlds = {setting.data.name for setting in shown}
    return tuple(
        {
            "title": title,
            "labels": (label,),
            "home": tuple(name for name in HOMES.get(label, ()) if name in worlds),
        }
        for label, (title, _, _) in METHODS.items()
        if label in there
    )


def rows_and_pick(shown: Settings) -> tuple[dict, ...]:
    """The same, after three of them what each client could pick of these without more training."""
    found = [*rows(shown)]
    three = [row for row in found if row["title"] in {METHODS[label][0] for label in PICKED}]
    pick = {
        "title": "Best of the three",
        "labels": tuple(label for row in three for label in row["labels"]),
        "home": (),
        "pick": True,
    }
    last = found.index(three[-1]) + 1
    return (*found[:last], pick, *found[last:])


def threshold(shown: Settings) -> dict[str, float]:
    """By divergence: the examples at which training alone is expected to overtake one model."""
    deltas = {setting.data.params["divergence"] for setting in shown}
    return {f"{delta:g}": DIM / delta for delta in sorted(deltas) if delta > 0}


TABLES: dict = {}
FIGURES = {
    "home_and_away": Regret(
        title="Home and away: regret by method and world",
        caption="Each world is what one family of methods assumes; a frame marks its home. Best of "
        "the three: each client takes Local, FedAvg or fine-tuned FedAvg, by its validation data.",
        labels=tuple(METHODS),
        federations=on("worlds"),
        rows=rows_and_pick,
    ),
    "phase_diagram": PhaseDiagram(
        title="When does federation help? Divergence against examples",
        caption="Clients are mixtures of three concepts that differ by the divergence.",
        labels=tuple(METHODS),
        federations=on("phase"),
        rows=rows,
        x="params.train_examples",
        y="params.divergence",
        names=("Training examples per client n", "Divergence δ of the concepts"),
        theory=threshold,
        law="δ n = dim of x: theory, up to a constant",
    ),
}
