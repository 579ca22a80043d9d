"""Every number that a paper printed is shown by a table or figure, or there is a reason."""

import itertools
import json
from collections.abc import Mapping

import pandas as pd
import pytest
from support import EVERYTHING, REPRODUCED

from fedlib.report import comparisons, printed
from fedlib.report.figures import FigureInputs
from fedlib.report.metrics import definitions
from fedlib.report.metrics.tidy import PARAMETERS, TRAFFIC
from fedlib.report.pages import contents
from fedlib.report.tables.sheets import TableInputs
from fedlib.spec.exhibits import OF_PREDICTIONS, ExhibitSpec
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT

MADE_UP = 0.5
COSTS = ("bytes", "bytes_down", "bytes_up", "client_rounds", "examples", "divergence", "alpha")
NOT_SHOWN = {  # (exhibit, data set, label, metric) by paper, and why
    "adaptive_experts": {
        ("text", "cifar10", "moe", "epsilon"): "an input, whose runs take the 0.81528 of "
        "the official configuration, which the text rounds",
        **{
            ("text", "cifar10", "moe", name): "arithmetic on cells of Table 2, which are shown"
            for name in ("accuracy_gain_over_ifca", "accuracy_gain_over_local")
        },
    },
    "fedmix": {},
    "fedmoe": {},
    "pfedmm": {
        ("abstract-claim", "unspecified", "pfedmm", "gain"): "the lead over FedEM on CIFAR-100 "
        "in the main table, which is shown",
        ("abstract-claim", "unspecified", "pfedmm", "unseen_gain_max"): "names neither data set "
        "nor baseline",
    },
    "pfedmoe": {},
}


class Noted(dict):
    """Published numbers that call `note` of those that are looked up.

    Whoever takes all of them can show those of `runs`, pairs (data set, label), alone.
    """

    def __init__(self, numbers, note, runs):
        super().__init__(numbers)
        self._note, self._runs = note, runs

    def get(self, key, default=None):
        if key in self:
            self._note(key)
        return super().get(key, default)

    def __getitem__(self, key):
        self._note(key)
        return super().__getitem__(key)

    def items(self):
        for key, value in super().items():
            if key in self._runs:
                self._note(key)
            yield key, value


def made_up(exhibit: Mapping) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Invented metrics and clients: 0.5 for everything that an exhibit may read of its runs."""
    named = ("local", "ifca", "top_2", "top_3", "top_5", *comparisons.TITLES)
    told = json.dumps(exhibit)
    protocols = ["default", *(name for name in named if f'"{name}"' in told)]
    views = itertools.product(("seen", "unseen", "server"), protocols, ("val", "test"))
    names = [*(m.__name__ for m in definitions.METRICS), *OF_PREDICTIONS]
    rows = [(*view, name) for view in views for name in names]
    rows += [(*TRAFFIC, cost) for cost in (*COSTS, PARAMETERS)]
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


def looked_up(paper: str, monkeypatch) -> tuple[set[tuple[str, str, str, str]], pd.DataFrame]:
    """What all tables and figures of the full scale look up, and what they put beside ours."""
    plan = Plan({"scale": "full", "papers": [paper], "seeds": [1]})
    seen, pairs, beside = set(), set(), []
    fractions = printed.fractions

    def noting(numbers, exhibit, metric="accuracy"):
        found = fractions(numbers, exhibit, metric)
        return Noted(found, lambda key: seen.add((exhibit, *key, metric)), pairs)

    monkeypatch.setattr(printed, "fractions", noting)
    file = printed.read(ROOT / f"fedlib/papers/{paper}/published.csv")
    for stage, inputs in (("table", TableInputs), ("figure", FigureInputs)):
        for name, declared in getattr(plan.papers[paper], f"{stage}s").items():
            if declared.published is None:
                continue
            exhibit = json.loads(plan.spec(stage, paper=paper, **{stage: name}))
            datasets = {data["name"]: data["dataset"] for data in exhibit["federations"]}
            pairs = {(datasets[run["federation"]], run["label"]) for run in exhibit["runs"]}
            given = inputs(ExhibitSpec.from_json(exhibit), *made_up(exhibit), file)
            made = given.make()
            if stage == "table":
                beside.append(contents.pick_published(made.numbers))
            elif hasattr(given.module, "compared"):
                beside.append(given.module.compared(given))
    return seen, pd.concat(beside)


@pytest.mark.slow
@pytest.mark.parametrize("paper", REPRODUCED if EVERYTHING else ["pfedmm"])
def test_every_published_number_is_shown_at_scale_full_or_there_is_a_reason(paper, monkeypatch):
    file = printed.read(ROOT / f"fedlib/papers/{paper}/published.csv")
    rows = set(file[list(printed.COLUMNS[:4])].itertuples(index=False, name=None))
    shown, beside = looked_up(paper, monkeypatch)
    assert rows - shown == NOT_SHOWN[paper].keys()
    mine = file.loc[beside[printed.ROW]]  # the row that a number came from
    values = (mine["value"] / mine["unit"].map(printed.UNITS)).round(8)
    assert beside["published"].tolist() == values.tolist()
    known = beside["dataset"].fillna("").tolist()
    assert all(ours in ("", of) for ours, of in zip(known, mine["dataset"], strict=True))
