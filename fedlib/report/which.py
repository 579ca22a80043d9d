"""The page "Which method when", generated from the kept tables: no sentence is typed by hand.

Every sentence has its number, its interval and its table. Rules are those of the table `advice`,
with verdicts of `fedlib.report.statistics.verdict`. From six federations on, a difference is the
median with its interval; below six it is the mean with the bootstrap interval over data sets.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from tabulate import tabulate

from fedlib.report import inputs, intervals, packs, tables
from fedlib.report.advice import tagged
from fedlib.report.choices import relative
from fedlib.report.statistics import (
    FEWEST_DATASETS,
    FEWEST_FEDERATIONS,
    LEANING,
    ROPE,
)
from fedlib.report.tables import render

CLIENTS = ("mean", "worst_tenth", "hurt", "unseen")  # results of a method for clients
KINDS = ("standings", "contrasts", "claims", "advice")
LEARNING = "↑"
DECIDED = 0.05  # level of the registered test
COMPARED, LOSERS = "contrasts_over_federations.png", "who_loses.png"
HEAD = """\
# Which method when

<!-- Written by `make which`. -->
"""
TOO_FEW = (
    "**Too few to advise.** {why} This page is written from kept results, and will say more when "
    "they are there."
)
SETUP = """\
Every method had the same models, rounds and number of trials to tune in; test examples chose
nothing ([how](../fedlib/papers/benchmark/README.md)). Numbers are points of accuracy, the mean over
seen clients; intervals are of 95 %: of the median over six federations or more, else of the mean if
data sets were drawn again. Hypotheses, methods, metric and exclusions were fixed in `{file}`, last
changed in {commit}.
"""
NOT = """\
* Small models and few examples per client: nothing here extends to large networks.
* Most federations are of handwriting; data sets drawn again give wider intervals than federations.
* *Equal* means within a point. *Cannot tell* means just that, and not that methods are equal.
* Methods are run as this project has them, in its neutral profile, not as their authors tuned them.
"""


def text(pack: Path, commit: str, folder: str, file: str) -> str:
    """The page.

    Args:
      pack: of the benchmark's kept results.
      commit: last commit that changed the registered file; "" if unknown.
      folder: of the kept results, relative to the page.
      file: the registered one.

    Raises:
      DataError: if the pack is missing or damaged.
    """
    metrics, clients, exhibits = packs.read(pack)
    found = {spec["name"]: spec for _, spec, _ in exhibits if spec["name"] in KINDS}
    why = ""
    if len(found) < len(KINDS):
        why = "The kept results have no real federations yet."
    elif found["advice"]["scale"] not in ("reduced", "full"):
        why = f"These results are of scale {found['advice']['scale']}."
    if why:
        return f"{HEAD}\n{TOO_FEW.format(why=why)}\n"
    sheets = {
        kind: inputs.made(tables.load, spec, metrics, clients, None) for kind, spec in found.items()
    }
    return of_tables(sheets, found["advice"]["params"], commit, folder, file)


def of_tables(
    sheets: dict[str, render.Sheet], params: dict, commit: str, folder: str, file: str
) -> str:
    """The page from the tables, by kind; `params` are of the table of advice."""
    page = _Page(sheets, params, folder)
    named = f"commit {commit[:10]}" if commit else "a commit that is not known here"
    parts = [
        HEAD,
        page.first(),
        SETUP.format(file=file, commit=named),
        "## By how clients differ",
        "\n".join(f"* {sentence}" for sentence in page.rules()),
        "## One method of each family",
        *page.contrasts(),
        "## Every method on every federation",
        page.accuracies(),
        "## What each method takes, and who loses",
        page.requirements(),
        "## What the papers claim",
        page.claims(),
        "## What nobody should conclude",
        NOT,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


class _Page:
    """The sentences of a page.

    Args:
      sheets: the tables, by kind.
      params: of the table of advice.
      folder: of the tables.
    """

    def __init__(self, sheets: dict[str, render.Sheet], params: dict, folder: str):
        self._sheets, self._params, self._folder = sheets, params, folder
        self._base = params["against"]

    def first(self) -> str:
        """Whether following the page would have helped."""
        found = {}  # units left out, by verdict and numbers
        for part, left_out in (("federation", "a federation"), ("dataset", "a data set")):
            for row in self._advice(f"gain, {part}").to_dict("records"):
                how = "beats" if row["low"] > 0 else "does not beat"
                span, number = _span(row["low"], row["high"]), int(row["federations"])
                by = f"{render.points(row['mean'])} points {span} on {number} federations"
                found.setdefault((how, by), []).append(left_out)
        return " ".join(
            f"Tested without {' or '.join(left_out)} each time, **following this page {how} always "
            f"{self._base}**: {by} ({self._table('advice')})."
            for (how, by), left_out in found.items()
        ) or TOO_FEW.format(why="Nothing can be left out.")

    def rules(self) -> Iterator[str]:
        """A sentence for each rule."""
        for row in self._advice("rules").to_dict("records"):
            yield self._rule(row)

    def _rule(self, row: dict) -> str:
        sentence, title, number = row["name"], row["title"], int(row["federations"])
        shown = row["mean"] if pd.isna(row["low"]) else row["median"]
        ahead = f"{render.points(shown)} points {_best_span(row)}"
        link = f"({self._table('advice')})"
        if number < FEWEST_FEDERATIONS or row["datasets"] < FEWEST_DATASETS:
            few = f"{_count(number, 'federation')} of {_count(int(row['datasets']), 'data set')}"
            return (
                f"{sentence}: **these runs cannot tell**, as they have {few}. {title} is at "
                f"{ahead} against {self._base} {link}."
            )
        match row["verdict"]:
            case "clear" | "leaning" as verdict:
                sure = f"take **{title}**" if verdict == "clear" else f"**{title}** may be better"
                near = f" Within a point of it: {row['near']}." if row["near"] else ""
                return (
                    f"{sentence}: {sure}. It is at {ahead} against {self._base}, ahead on "
                    f"{int(row['ahead'])} of {number} federations{self._price(row)} {link}.{near}"
                )
            case "equal":
                return (
                    f"{sentence}: **{self._base} will do**. Nothing tested is reliably more than a "
                    f"point better; {title} comes nearest, at {ahead} {link}."
                )
        if shown < 0:
            return (
                f"{sentence}: **{self._base} has the highest mean**. {title} comes nearest, at "
                f"{ahead}, P(better) {row['better']:.2f}, P(equal) {row['equal']:.2f} {link}."
            )
        more = "" if pd.isna(row["more"]) else f"; about {_count(int(row['more']), 'federation')} "
        more += "more like these would settle a point" * bool(more)
        return (
            f"{sentence}: **these runs cannot tell**. {title} is at {ahead} against {self._base}, "
            f"P(better) {row['better']:.2f}{more} {link}."
        )

    def _price(self, row: dict) -> str:
        """Traffic and clients hurt by a rule's method, on the rule's federations."""
        tag = next(r["tag"] for r in self._params["rules"] if r["sentence"] == row["name"])
        mine = tagged(self._params["tags"], self._numbers("standings"), tag)
        costs = relative(mine, self._base, CLIENTS)
        found = costs.loc[row["title"]]
        hurt = f"{render.percent(found['hurt'])} % of clients worse off than alone"
        return f"; it sends {found['bytes']:.2g} times as many bytes and leaves {hurt}"

    def contrasts(self) -> Iterator[str]:
        """The figure of the registered contrasts, and a table for each method compared with."""
        yield f"![Median differences and their intervals]({self._folder}/{COMPARED})"
        heads = ["Method", "points", "p", "P(better)", "P(equal)", "verdict"]
        for against, part in self._numbers("contrasts").groupby("against", sort=False):
            rows = [
                [
                    render.markdown(row["title"]),
                    f"{render.points(row['median'])} {_best_span(row)}",
                    intervals.p_text(row["p_holm"]).removeprefix("= "),
                    *(f"{row[name]:.2f}" for name in ("better", "equal")),
                    _verdict(row),
                ]
                for row in part.to_dict("records")
            ]
            yield (
                f"Against **{against}**: median difference, p after Holm, and the probabilities of "
                f"more than a point better and of less than a point apart "
                f"({self._table('contrasts')}). Bold: decided by the registered test, p after Holm "
                f"below {DECIDED:g}; *probably* is said by the probabilities alone.\n\n"
                f"{_grid(rows, heads)}"
            )

    def requirements(self) -> str:
        """Traffic and arithmetic relative to fine-tuned FedAvg, and results for clients."""
        found = relative(self._numbers("standings"), self._base, CLIENTS)
        found = found.sort_values("mean", ascending=False, kind="stable")
        heads = ["Method", "accuracy", "worst tenth", "worse off", "unseen", "bytes", "arithmetic"]
        rows = [
            [
                render.markdown(str(title)),
                *(render.percent(row[x]) for x in CLIENTS),
                *(
                    render.ABSENT if np.isnan(row[x]) else f"{row[x]:.2g}"
                    for x in ("bytes", "flops")
                ),
            ]
            for title, row in found.iterrows()
        ]
        return (
            "Means over the federations that all of these methods ran on, in percent; bytes and "
            f"arithmetic as multiples of those of {self._base}. A dash under unseen: nothing for "
            f"newcomers ({self._table('standings')}).\n\n{_grid(rows, heads)}\n\n"
            f"![What each client gains over training alone]({self._folder}/{LOSERS})"
        )

    def accuracies(self) -> str:
        """The accuracy of every method on every federation, the best in bold."""
        shown = self._numbers("standings")
        federations = shown["federation"].unique()
        wide = shown.pivot(index="title", columns="federation", values=["mean", "gain"])
        wide = wide.loc[shown["title"].unique()]
        cells = [
            render.best_cells(
                wide["mean"][name].tolist(), [*map(render.percent, wide["mean"][name])]
            )
            for name in federations
        ]
        rows = [
            [
                render.markdown(str(title)),
                *(
                    (f"**{cell.text}**" if cell.bold else cell.text) + LEARNING * (gain > ROPE)
                    for cell, gain in zip(row, wide["gain"].loc[title, federations], strict=True)
                ),
            ]
            for title, *row in zip(wide.index, *cells, strict=True)
        ]
        return (
            "Mean accuracy over seen clients, in percent; bold: the highest; "
            f"{LEARNING}: validation accuracy still rose by more than a point in the last "
            "quarter of the rounds "
            f"({self._table('standings')}).\n\n{_grid(rows, ['Method', *federations])}"
        )

    def claims(self) -> str:
        """The verdict of these federations on each claim, as in its table."""
        return (
            "A claim holds if the interval of the median difference, as printed, is above 0 "
            f"({self._table('claims')}).\n\n{render.markdown_blocks(self._sheets['claims'])}"
        )

    def _numbers(self, kind: str) -> pd.DataFrame:
        return self._sheets[kind].numbers

    def _advice(self, part: str) -> pd.DataFrame:
        numbers = self._numbers("advice")
        return numbers[numbers["part"] == part].fillna({"near": ""})

    def _table(self, name: str) -> str:
        return f"[{name}]({self._folder}/{name}.csv)"


def _best_span(row: dict) -> str:
    """The interval of the median, or with few federations the bootstrap over data sets."""
    if not pd.isna(row["low"]):
        return _span(row["low"], row["high"])
    return _span(row["datasets_low"], row["datasets_high"])


def _span(low: float, high: float) -> str:
    return intervals.ends(low, high, render.points) or "[no interval]"


def _verdict(row: dict) -> str:
    """The verdict of the registered test in bold, or else of the probabilities."""
    if row["p_holm"] < DECIDED:
        return "**better**" if row["median"] > 0 else "**worse**"
    if row["verdict"] == "unknown" and row["worse"] >= LEANING:
        return "probably worse"
    return {
        "clear": "probably better",
        "leaning": "probably better",
        "equal": "equal",
        "unknown": "cannot tell",
    }[row["verdict"]]


def _grid(rows: list[list[str]], heads: list[str]) -> str:
    """A Markdown table with a column of text, then columns of numbers."""
    align = ["left"] + ["right"] * (len(heads) - 1)
    return tabulate(rows, heads, "pipe", disable_numparse=True, colalign=align)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def commit_in(page: str) -> str:
    """The commit that a page names; "" if it names none."""
    _, _, rest = page.partition("\nchanged in commit ")
    return rest.split(".")[0] if rest else ""
