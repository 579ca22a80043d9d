"""Costs of every run: bytes, training examples and floating-point operations, per federation.

Factors are relative to FedAvg on the same federation; a table without FedAvg has no factors.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from fedlib.report import exhibits, notes
from fedlib.report.metrics.tidy import FLOPS
from fedlib.report.tables.render import ABSENT, Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, texts
from fedlib.spec import Data, Run

REFERENCE = "fedavg"  # a method, and also the label to prefer where it has several runs
NEEDED = ("bytes_down", "bytes_up", "bytes", "examples", "client_rounds", FLOPS, "flops")
RATIOS = ("bytes", "examples", FLOPS, "flops")
PERSONAL = ("personal_examples", "personal_flops")  # of runs whose evaluation trained clients
PERSONAL_NOTE = (
    "Personal stage: what clients train on their own after the last round for the protocols that "
    "tables and figures show; examples counting repeats, and FLOPs of the local steps without the "
    "checks of when to stop, measured in one epoch of a small client. A dash: nothing is trained."
)
PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation and run, means over the seeds."""
    exhibit, kind = given.exhibit, given.kind
    numbers = _numbers(given)
    compared = bool(numbers[[f"{name}_ratio" for name in RATIOS]].notna().any(axis=None))
    return given.sheet(
        numbers,
        given.blocks(numbers, partial(_columns, personal=kind.personal, compared=compared)),
        f"Means over {notes.seeds(exhibit)}. {notes.rounds(exhibit)}",
        "Sent: bytes that a client receives and sends in a round, and the whole run with all "
        "clients together; four bytes per number. Without a server, what clients send each "
        "other is counted once, as up.",
        "Examples: training examples in local steps, counting repeats, all clients of a round "
        "together.",
        "FLOPs: measured in a round of a few small clients; a multiplication and an addition "
        "are two. Matrix products and convolutions of all forward and backward passes of the "
        "clients, E-steps included, over the examples of the local steps; no elementwise work, "
        "batch normalisation, optimiser, server or evaluation. Run: times all examples.",
        PERSONAL_NOTE if kind.personal else "",
        "×: relative to FedAvg on the same federation." if compared else "",
        "k, M, G, T: thousands, millions, ...",
    )


def _numbers(given: TableInputs) -> pd.DataFrame:
    """All numbers of the table -> one row per federation and run."""
    means = given.costs.reindex(columns=[*NEEDED, *PERSONAL])
    sent = exhibits.pick(given.rows, at="last", metric="bytes")
    rounds = sent.groupby(["federation", "label"])["round"].first()

    def of_run(federation: Data, run: Run) -> Iterator[dict]:
        where = (federation.name, run.label)
        reference = _reference(exhibits.runs_of(given.exhibit, federation.name))
        found, done = means.loc[where], int(rounds[where])
        base = means.loc[(federation.name, reference)] if reference else found * np.nan
        yield {
            "rounds": done,
            "down_per_client_round": _ratio(found["bytes_down"], found["client_rounds"]),
            "up_per_client_round": _ratio(found["bytes_up"], found["client_rounds"]),
            "examples_per_round": _ratio(found["examples"], done),
            **{name: found[name] for name in (*RATIOS, *PERSONAL)},
            **{f"{name}_ratio": _ratio(found[name], base[name]) for name in RATIOS},
            "seeds": len(given.exhibit.seeds),
        }

    return given.numbers(of_run)


def _reference(runs: list[Run]) -> str | None:
    """Label of the run that other runs are compared with, or None."""
    labels = [run.label for run in runs if run.method == REFERENCE]
    if REFERENCE in labels:
        return REFERENCE
    return labels[0] if len(labels) == 1 else None


def _ratio(value: float, base: float) -> float:
    """value / base; NaN where `base` is 0 or unknown."""
    return value / base if base else np.nan


def _columns(mine: pd.DataFrame, personal: bool, compared: bool) -> Columns:
    """A row per run; with factors if `compared`, with clients' own training if `personal`."""
    yield Column("Method"), texts(mine["title"])
    for title, name, factors in (
        (("down", "Sent (bytes)"), "down_per_client_round", None),
        (("up", "Sent (bytes)"), "up_per_client_round", None),
        (("run", "Sent (bytes)"), "bytes", "bytes_ratio"),
        (("round", "Examples"), "examples_per_round", "examples_ratio"),
        (("number", "FLOPs per example"), FLOPS, f"{FLOPS}_ratio"),
        (("number", "FLOPs of the run"), "flops", "flops_ratio"),
    ):
        alone = title[0] == "number" and not compared
        yield Column(title[1]) if alone else Column(*title), texts(map(quantity, mine[name]))
        if factors and compared:
            yield Column("×", title[1]), texts(map(factor, mine[factors]))
    if personal:
        for title, name in zip(("examples", "FLOPs"), PERSONAL, strict=True):
            yield Column(title, "Personal stage"), texts(map(quantity, mine[name]))


def quantity(value: float) -> str:
    """A number from 0 on, with three digits and a prefix, "34.8 M"."""
    if np.isnan(value):
        return ABSENT
    value = float(f"{value:.3g}")  # round first, because 999.9 becomes 1 k
    power = min(int(math.log10(value)) // 3, len(PREFIXES) - 1) if value >= 1 else 0
    text = f"{value / 1000**power:#.3g}".removesuffix(".") if value else "0"
    return f"{text} {PREFIXES[power]}".strip()


def in_bytes(value: float) -> str:
    """A number of bytes with its unit, "523 MB"."""
    text = quantity(value)
    return f"{text}{'' if text[-1].isalpha() else ' '}B"


def factor(ratio: float) -> str:
    """A ratio with two decimals, "4.03×"."""
    return ABSENT if np.isnan(ratio) else f"{ratio:.2f}×"
