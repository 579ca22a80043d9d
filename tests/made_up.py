"""Runs, metrics and exhibits that nobody trained, for the tests of metrics, tables and figures."""

from dataclasses import fields, replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.report.figures import FigureInputs
from fedlib.report.metrics.tidy import client_rows, run_rows
from fedlib.report.tables.render import Sheet
from fedlib.report.tables.sheets import TableInputs
from fedlib.results import TOTALS, RunResult, Scores, View
from fedlib.seals import spec_digest
from fedlib.spec import ExhibitSpec, Run

TITLES = {
    "local": "Local",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedavg-plus": "FedAvg+",
    "clustered": "Clustered FL",
    "pfedme": "pFedMe",
    "fedem": "FedEM",
    "gated-experts": "MoE (pFedMM's)",
    "pfedmm": "pFedMM",
}
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
    first = Scores(*(a[..., :seen] for a in vars(every).values()))
    others = Scores(*(a[..., seen:] for a in vars(every).values()))
    done = np.arange(rounds + 1)
    sent = done * (0 if method == "local" else 4_000_000 + 300_000 * len(label))
    flops = {"flops_per_example": np.array([3e6 if method in MIXTURES else 1e6])}
    pi = {"pi": rng.dirichlet(np.full(3, 0.4), seen + unseen)} if method in MIXTURES else {}
    final = {View("seen", "default", "test"): last(first)}
    if method == "local":
        final[View("unseen", "trained", "test")] = last(others)
    else:
        final[View("unseen", "default", "test")] = last(others)
        final[View("unseen", "carry", "test")] = last(others)
    history = RunResult(
        round=done,
        scores={View("seen", "default", "test"): first},
        bytes_down=sent,
        bytes_up=sent,
        examples=1000 * done,
        client_rounds=seen * done,
        train_loss=np.exp(-0.1 * np.arange(rounds)),
        diagnostics=pi,
        spec={"method": method, "seed": seed},
        provenance={"device": "cpu", "seconds": 1.5, "torch": "2.14.1"},
    )
    end = replace(evaluation(history), scores=final, diagnostics=pi | flops)
    return {"history": history, "evaluation": end}


MIXTURES = ("fedem", "pfedmm")


def majority(*fractions: float, dataset="cifar10") -> list[dict]:
    """Federations whose clients have this share of their data from two classes."""
    return [
        federation(
            f"cifar10-p{p:.1f}",
            f"CIFAR-10, p = {p:g}",
            dataset=dataset,
            partition={"kind": "majority", "p": p},
            family="CIFAR-10",
            partition_label=f"majority{p:g}",
        )
        for p in fractions
    ]


def result(scores: dict, rounds, **changes) -> RunResult:
    """A result at these rounds; a round has 1000 bytes each way, 1000 examples and 1000 clients."""
    done = np.asarray(rounds)
    totals = {name: 1000 * done for name in TOTALS}
    return RunResult(done, scores, **{**totals, "train_loss": np.ones(done[-1]), **changes})


def last(scores: Scores) -> Scores:
    return Scores(scores.clients, scores.count, scores.correct[-1:], scores.loss[-1:])


def evaluation(history: RunResult) -> RunResult:
    """The evaluation that goes with a history."""
    scores = {view: last(scores) for view, scores in history.scores.items()}
    totals = {name: getattr(history, name)[-1:] for name in ("round", *TOTALS)}
    return replace(history, scores=scores, **totals, train_loss=np.empty(0))


def describe(federation, label, rounds=30, **changes) -> dict:
    """What `Run.describe()` gives for a made-up run."""
    base = label.split("-m")[0]
    return {
        "federation": federation,
        "label": label,
        "title": TITLES[base] + label[len(base) :].replace("-m", ", M = "),
        "method": base.replace("-", "_"),
        **{"rounds": rounds, "model": "mlp", "local": {}},
        "params": {"num_experts": int(label[-1])} if label[-1].isdigit() else {},
        "notes": [],
        **changes,
    }


def federation(name: str, title: str, **changes) -> dict:
    """A federation, as exhibits describe it."""
    about = {"dataset": name, "params": {}, "partition": {}, "seed": 1, "family": title}
    about["partition_label"] = ""
    return {"name": name, "title": title, **about, "notes": [], **changes}


def cut(alpha: float) -> dict:
    """What a federation says of its Dirichlet partition."""
    partition = {"kind": "dirichlet", "alpha": alpha}
    return {"partition": partition, "partition_label": f"dirichlet{alpha:g}"}


def exhibit(labels, names=("emnist", "cifar10"), seeds=(1, 2), **changes) -> dict:
    """An exhibit of those runs, as `fedlib.workflow.plan` would give it to a script."""
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
        "federations": [federation(name, FEDERATIONS[name], **cut(0.4)) for name in names],
        "runs": [describe(name, label) for label in labels for name in names],
        "published": None,
        **changes,
    }


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
                "partition": datasets[run["federation"]]["partition_label"],
                "seeds": exhibit["seeds"],
                "specs": [
                    [spec_digest({"method": run["method"], "seed": seed})] * 2
                    for seed in exhibit["seeds"]
                ],
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


def runs(labels, where, rounds: int, methods=None, params=None) -> list[dict]:
    """Runs of these labels on each of the federations `where`, as exhibits describe them."""
    return [
        {
            "federation": one["name"],
            "label": label,
            "title": label.upper(),
            "method": (methods or {}).get(label, label),
            "rounds": rounds,
            "params": params or {},
            "notes": [],
        }
        for label in labels
        for one in where
    ]


def collect(exhibit, make) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Metrics and clients of every run and seed, whose results are `make(run, seed)`."""
    frames = ([], [])
    for run in exhibit["runs"]:
        for seed in exhibit["seeds"]:
            names = {"paper": exhibit["paper"], "seed": seed, "dataset": run["federation"]}
            names |= {name: run[name] for name in ("federation", "label", "method")}
            results = make(run, seed)
            for frame, of in zip(frames, (run_rows, client_rows), strict=True):
                frame.append(of(*results).assign(partition="", **names))
    return tuple(pd.concat(frame, ignore_index=True) for frame in frames)


def read(given: dict) -> ExhibitSpec:
    """The record of an exhibit, which may lack what is not looked at."""
    about = exhibit([], ()) | given
    run = {"model": "mlp", "rounds": 1, "local": {}, "federation": "", "label": ""}
    names = {field.name for field in fields(Run)}
    runs = [{**run, **{k: v for k, v in one.items() if k in names}} for one in about["runs"]]
    return ExhibitSpec.from_json({**about, "runs": runs})


def build(kind: str, exhibit: dict, tidy, clients, published=None, **params) -> Sheet:
    """A table of this kind, whatever that of the exhibit is."""
    exhibit = read(exhibit | {"kind": kind, "params": params})
    return TableInputs(exhibit, tidy, clients, published).make()


def draw(kind: str, exhibit: dict, tidy, clients, published=None, **params) -> Figure:
    """A figure of this kind."""
    exhibit = read(exhibit | {"kind": kind, "params": params})
    return FigureInputs(exhibit, tidy, clients, published).make()


def texts(block) -> list[list[str]]:
    """The words in the cells of a table's block."""
    return [[cell.text for cell in row] for row in block.rows]
