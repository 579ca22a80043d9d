"""Every number that a paper printed is shown beside a reproduced one, or there is a reason."""

import functools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from fedlib import exhibit as exhibits
from fedlib import figures, metrics, papers, published, tables
from fedlib.metrics import COLUMNS, PRIMARY, TRAFFIC
from fedlib.plan import Plan

ROOT = Path(__file__).resolve().parents[1]
COUNTED = "table1, ours has the rule by which the others were counted"
NOT_SHOWN = {  # (paper, exhibit, data set, label, metric): why
    ("adaptive_experts", "text", "rotated_cifar10", "moe", "epsilon"): "an input; the runs take "
    "the 0.81528 of the official configuration, which the paper rounds",
}
TRAFFIC_METRICS = ("bytes", "bytes_down", "bytes_up", "client_rounds", "examples")


def made_up_metrics(plan: Plan, paper: str) -> pd.DataFrame:
    """A number for everything that a declared run could be asked for, all the same."""
    blocks = []
    for run in plan.papers[paper].runs:
        data = plan.data(paper, run.federation)
        views = [(g, p, s) for g in ("seen", "unseen") for p in protocols(run) for s in ("val", "test")]
        cells = [(*view, m.__name__) for view in views for m in metrics.METRICS]
        cells += [(*TRAFFIC_ORDER, m) for m in TRAFFIC_METRICS]
        cells += [(*TRAFFIC_ORDER, "divergence_0")]
        for seed in plan.papers[paper].seeds_of(run):
            for at in ("round", "last", "best"):
                frame = pd.DataFrame(cells, columns=["group", "protocol", "split", "metric"])
                blocks.append(
                    frame.assign(
                        **{"paper": paper, "federation": run.federation, "label": run.label},
                        **{"dataset": data.dataset, "partition": data.partition},
                        **{"method": run.method, "seed": seed, "at": at, "round": run.rounds},
                        value=0.5,
                    )
                )
    return pd.concat(blocks, ignore_index=True)[list(COLUMNS)]
