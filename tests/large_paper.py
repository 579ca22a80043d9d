"""A made-up paper for `test_large`, which copies this file to fedlib/papers/large.py."""

from fedlib.spec import Data, Paper, Run, experts, figures, tables

METHODS = {"fedavg": ("FedAvg", {}), "fedem": ("FedEM", {"num_experts": 3})}
FEDERATIONS = {"femnist-sized": "FEMNIST's size", "ten-thousand": "Many clients"}
TABLES = {
    tables.Accuracy: {},
    tables.Cost: {},
    tables.Views: {"columns": [{"title": "Seen"}, {"title": "Unseen", "group": "unseen"}]},
}
FIGURES = {
    figures.AccuracyOverRounds: {},
    figures.ClientAccuracyCdf: {},
    figures.ClientDifferences: {"of": "fedem"},
    experts.MixtureWeights: {},
}


def declare(scale: str) -> Paper:
    """One client in a hundred a round; all are evaluated, a tenth of them unseen."""
    writers = {"kind": "writer", "train_fraction": 0.8, "unseen_fraction": 0.1}
    data = tuple(
        Data(name, "own", writers, 1, title, "writers", params={"source": name})
        for name, title in FEDERATIONS.items()
    )
    runs = tuple(
        Run(
            federation=federation,
            label=label,
            title=title,
            method=label,
            model="linear",
            model_params={"in_features": 28 * 28, "num_classes": 62},
            rounds=20,
            participation={"rate": 0.01, "aggregation": "renormalised"},
            evaluate_every=10,
            local={"solver": "sgd", "lr": 0.1, "batch_size": 32},
            params=params,
        )
        for federation in FEDERATIONS
        for label, (title, params) in METHODS.items()
    )
    shown = {"labels": tuple(METHODS), "federations": tuple(FEDERATIONS), "caption": "All."}
    return Paper(
        name="large",
        title="Large federations",
        citation="unpublished",
        scale=scale,
        scale_note=f"{scale}: made up",
        seeds=(0,),
        data=data,
        runs=runs,
        tables={x.kind: x(x.kind, **shown, **own) for x, own in TABLES.items()},
        figures={x.kind: x(x.kind, **shown, **own) for x, own in FIGURES.items()},
    )
