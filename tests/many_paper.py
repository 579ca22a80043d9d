"""A made-up paper of 10,016 jobs for `test_large`, which copies this file to fedlib/papers/many.py.

Ten federations, of 20 runs with 25 seeds each: 5,000 trainings and as many evaluations; and 10
partitions, one download, a table, a figure, the metrics, the report,
and the rule that asks for all.
"""

from fedlib.spec import Data, Paper, Run, figures, tables

METHODS = {"fedavg": {}, "fedprox": {"mu": 0.1}, "fedem": {"num_experts": 3}, "local": {}}
RATES = (0.3, 0.1, 0.03, 0.01, 0.003)
CLIENTS = range(10, 20)


def declare(scale: str) -> Paper:
    """Of each method a run for every learning rate."""
    data = tuple(
        Data(
            f"digits-{number}",
            "digits",
            {"kind": "iid", "num_clients": number, "train_fraction": 0.8},
            1,
            f"Digits, {number} clients",
            "iid",
        )
        for number in CLIENTS
    )
    runs = tuple(
        Run(
            federation=federation.name,
            label=f"{method}-{place}",
            title=f"{method} at {rate}",
            method=method,
            model="linear",
            model_params={"in_features": 64, "num_classes": 10},
            rounds=10,
            local={"solver": "sgd", "lr": rate, "batch_size": 32},
            params=params,
        )
        for federation in data
        for method, params in METHODS.items()
        for place, rate in enumerate(RATES)
    )
    shown = {
        "labels": tuple(dict.fromkeys(run.label for run in runs)),
        "federations": tuple(federation.name for federation in data),
        "caption": "All.",
    }
    return Paper(
        name="many",
        title="Many runs",
        citation="unpublished",
        scale=scale,
        scale_note=f"{scale}: made up",
        seeds=tuple(range(25)),
        data=data,
        runs=runs,
        tables={"all": tables.Accuracy("All", **shown)},
        figures={"all": figures.AccuracyOverRounds("All", **shown)},
    )
