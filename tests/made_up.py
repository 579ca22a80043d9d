"""Runs, metrics and exhibits that nobody trained, for the tests of metrics, tables and figures."""

import numpy as np

from fedlib.results import RunResult, Scores, View

TITLES = {
    "local": "Local",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedavg-plus": "FedAvg+",
    "clustered": "Clustered FL",
    "pfedme": "pFedMe",
    "fedem": "FedEM",
    "pfedmoe": "pFedMoE",
    "pfedmm": "pFedMM",
}
METHODS = {"pfedmoe": "pfedmoe_baseline"}  # of labels that are called otherwise
FEDERATIONS = {"emnist": "EMNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def scores(accuracies, count, loss=None) -> Scores:
    """Scores with the given accuracies [T, C] and counts [C]; correct is rounded to integers."""
    accuracies, count = np.atleast_2d(np.asarray(accuracies, float)), np.asarray(count)
    correct = np.round(accuracies * count)
    loss = 1 - accuracies if loss is None else np.atleast_2d(np.asarray(loss, float))
    return Scores(np.arange(len(count)), count, correct, loss)


def curve(label: str, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """A plausible learning curve of a method -> [T]"""
    rank = list(TITLES).index(label.split("-m")[0]) if label.split("-m")[0] in TITLES else 4
    top, speed = 0.62 + 0.028 * rank, 0.12 + 0.01 * rank
    rise = top * (1 - np.exp(-speed * np.arange(rounds + 1)))
    return np.clip(rise + 0.06 * np.exp(-np.arange(rounds + 1)) + rng.normal(0, 0.006), 0.01, 0.99)


def run(label, method, seed, rounds=30, seen=16, unseen=4, shift=0.0) -> dict[str, RunResult]:
    """History and evaluation of one run, the views of seen and unseen clients included."""
    rng = np.random.default_rng([seed, *label.encode()])
    offset = rng.normal(0, 0.08, seen + unseen) + shift
    accuracies = np.clip(curve(label, rounds, rng)[:, None] + offset, 0, 1)
    accuracies += rng.normal(0, 0.004, accuracies.shape)
    accuracies = np.clip(accuracies, 0, 1)
    count = rng.integers(40, 200, seen + unseen)
    every = scores(accuracies, count)
    first = Scores(*(a[..., :seen] for a in vars_of(every)))
    others = Scores(*(a[..., seen:] for a in vars_of(every)))
    sent = np.arange(rounds + 1) * (0 if method == "local" else 4_000_000 + 300_000 * len(label))
    rounds_done = np.arange(rounds + 1)
    work = {"examples": 1000 * rounds_done, "client_rounds": seen * rounds_done}
    flops = {"flops_per_example": np.array([3e6 if method in MIXTURES else 1e6])}
    pi = {"pi": rng.dirichlet(np.full(3, 0.4), seen + unseen)} if method in MIXTURES else {}
    spec = {"method": method, "seed": seed}
    final = {View("seen", "default", "test"): last(first)}
    if method == "local":
        final[View("unseen", "trained", "test")] = last(others)
    else:
        final[View("unseen", "default", "test")] = last(others)
        final[View("unseen", "carry", "test")] = last(others)
    common = {"spec": spec, "provenance": {"device": "cpu", "seconds": 1.5, "torch": "2.14.1"}}
    history = RunResult(
        round=np.arange(rounds + 1),
        scores={View("seen", "default", "test"): first},
        bytes_down=sent,
        bytes_up=sent,
        **work,
        train_loss=np.exp(-0.1 * np.arange(rounds)),
        diagnostics=pi,
        **common,
    )
    evaluation = RunResult(
        round=np.array([rounds]),
        scores=final,
        bytes_down=sent[-1:],
        bytes_up=sent[-1:],
        **{name: array[-1:] for name, array in work.items()},
        train_loss=np.empty(0),
        diagnostics=pi | flops,
        **common,
    )
    return {"history": history, "evaluation": evaluation}


MIXTURES = ("fedem", "pfedmm")


def vars_of(scores: Scores):
    return scores.clients, scores.count, scores.correct, scores.loss


def last(scores: Scores) -> Scores:
    return Scores(scores.clients, scores.count, scores.correct[-1:], scores.loss[-1:])


def describe(federation, label, rounds=30, **changes) -> dict:
    """What `Run.describe()` gives for a made-up run."""
    base = label.split("-m")[0]
    return {
        "federation": federation,
        "label": label,
        "title": TITLES[base] + label[len(base) :].replace("-m", ", M = "),
        "method": METHODS.get(base, base.replace("-", "_")),
        "rounds": rounds,
        "params": {"num_experts": int(label[-1])} if label[-1].isdigit() else {},
        "notes": [],
        **changes,
    }


def exhibit(labels, names=("emnist", "cifar10"), seeds=(1, 2), **changes) -> dict:
    """An exhibit of those runs, as `fedlib.plan` would give it to a script."""
    return {
        "paper": "pfedmm",
        "name": "main",
        "kind": "accuracy",
        "title": "Personalised test accuracy",
        "caption": "Accuracy of every method.",
        "params": {},
        "scale": "demo",
        "scale_note": "embedded data, 20 clients, 30 rounds",
        "folder_note": "",
        "seeds": list(seeds),
        "federations": [
            {
                "name": name,
                "dataset": name,
                "params": {"partition": {"kind": "dirichlet", "alpha": 0.4}},
                "title": FEDERATIONS[name],
                "family": FEDERATIONS[name],
                "partition": "dirichlet0.4",
                "notes": [],
            }
            for name in names
        ],
        "runs": [describe(name, label) for label in labels for name in names],
        "published": None,
        **changes,
    }


def alphas(dataset: str, *values: float) -> list[dict]:
    """The federations of one family, cut with these Dirichlet concentrations."""
    family = FEDERATIONS[dataset]
    return [
        {
            "name": f"{dataset}-alpha{value:g}",
            "dataset": dataset,
            "params": {"partition": {"kind": "dirichlet", "alpha": value}},
            "title": f"{family}, alpha = {value:g}",
            "family": family,
            "partition": f"dirichlet{value:g}",
            "notes": [],
        }
        for value in values
    ]


def heterogeneity(labels, federations: list[dict], **changes) -> dict:
    """An exhibit of those runs on federations such as those of `alphas`."""
    runs = [describe(federation["name"], label) for label in labels for federation in federations]
    return exhibit([], (), federations=federations, runs=runs, **changes)


def metrics_spec(exhibit: dict) -> dict:
    """The specification of the metrics stage that covers an exhibit."""
    names = ("federation", "label", "method")
    datasets = {federation["name"]: federation for federation in exhibit["federations"]}
    return {
        "paper": exhibit["paper"],
        "runs": [
            {
                **{name: run[name] for name in names},
                "dataset": datasets[run["federation"]]["dataset"],
                "partition": datasets[run["federation"]]["partition"],
                "seeds": exhibit["seeds"],
            }
            for run in exhibit["runs"]
        ],
    }


def save_runs(exhibit: dict, folder) -> None:
    """The files of every run of an exhibit, under `folder`."""
    for described in exhibit["runs"]:
        dataset = described["federation"].partition("-")[0]
        shift = -0.12 * list(FEDERATIONS).index(dataset)
        for seed in exhibit["seeds"]:
            results = run(described["label"], described["method"], seed, shift=shift)
            where = folder / described["federation"] / described["label"] / f"seed{seed}"
            for name, result in results.items():
                result.save(where / f"{name}.h5")
