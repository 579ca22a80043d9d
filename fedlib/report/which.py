"""The page "Which method when", generated from the kept tables: no sentence is typed by hand.

Its words are in `pages/templates/which.md.j2`; every sentence has its number, its interval and its
table. Rules are those of the table `advice`, with verdicts of `fedlib.report.statistics.verdict`.
From six federations on, a difference is the median with its interval; below six it is the mean with
the bootstrap interval over data sets.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.report import intervals, packs
from fedlib.report.advice import WINNERS, tagged
from fedlib.report.choices import relative
from fedlib.report.pages import filling
from fedlib.report.statistics import FEWEST_DATASETS, FEWEST_FEDERATIONS, LEANING, ROPE
from fedlib.report.tables import render
from fedlib.report.tables.sheets import TableInputs

CLIENTS = ("mean", "worst_tenth", "hurt", "unseen")  # results of a method for clients
KINDS = ("standings", "contrasts", "claims", "advice")
LEARNING = "↑"
DECIDED = 0.05  # level of the registered test
LEFT_OUT = {"federation": "a federation", "dataset": "a data set"}


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
        return filling.markdown("which.md.j2", {}, why=why)
    sheets = {
        kind: TableInputs.read(spec, metrics, clients, None).made() for kind, spec in found.items()
    }
    return of_tables(sheets, found["advice"]["params"], commit, folder, file)


def of_tables(
    sheets: dict[str, render.Sheet], params: dict, commit: str, folder: str, file: str
) -> str:
    """The page from the tables, by kind; `params` are of the table of advice."""
    advice, standings = (sheets[kind].numbers for kind in ("advice", "standings"))
    return filling.markdown(
        "which.md.j2",
        {"points": render.points},
        why="",
        base=params["against"],
        commit=commit,
        folder=folder,
        file=file,
        decided=f"{DECIDED:g}",
        learning=LEARNING,
        gains=_gains(advice),
        rules=[*_rules(advice, standings, params)],
        contrasts=[*_contrasts(sheets["contrasts"].numbers)],
        accuracies=_accuracies(standings),
        requirements=_requirements(standings, params["against"]),
        claims=render.markdown_blocks(sheets["claims"]),
    )


def _gains(advice: pd.DataFrame) -> dict[tuple[str, str], list[str]]:
    """Whether following the page would have helped: units left out, by verdict and numbers."""
    found: dict[tuple[str, str], list[str]] = {}
    for part, left_out in LEFT_OUT.items():
        for row in advice[advice["part"] == f"gain, {part}"].to_dict("records"):
            how = "better" if row["low"] > 0 else "no better"
            span, number = _span(row["low"], row["high"]), int(row["federations"])
            by = f"{render.points(row['mean'])} points {span} on {number} federations"
            found.setdefault((how, by), []).append(left_out)
    return found


def _rules(advice: pd.DataFrame, standings: pd.DataFrame, params: dict) -> Iterator[dict]:
    """The rows of the rules, with their numbers as the page says them.

    "few" are the federations and data sets if these are too few, "price" what a method costs that
    is recommended, and "more" the federations that would settle a point; "" where it says nothing.
    """
    tags = {rule["sentence"]: rule["tag"] for rule in params["rules"]}
    for row in advice[advice["part"] == "rules"].fillna({"near": ""}).to_dict("records"):
        counts = [int(row[name]) for name in ("federations", "datasets", "ahead")]
        row |= dict(zip(("federations", "datasets", "ahead"), counts, strict=True))
        few = row["federations"] < FEWEST_FEDERATIONS or row["datasets"] < FEWEST_DATASETS
        of = f"{_count(counts[0], 'federation')} of {_count(counts[1], 'data set')}"
        mine = tagged(params["tags"], standings, tags[row["name"]])
        yield row | {
            "shown": row["mean"] if pd.isna(row["low"]) else row["median"],
            "span": _best_span(row),
            "few": of if few else "",
            "price": _price(mine, params["against"], row) if row["verdict"] in WINNERS else "",
            "more": "" if pd.isna(row["more"]) else _count(int(row["more"]), "federation"),
        }


def _price(standings: pd.DataFrame, base: str, row: dict) -> str:
    """Traffic and clients hurt by a rule's method, on the rule's federations."""
    found = relative(standings, base, CLIENTS).loc[row["title"]]
    hurt = f"{render.percent(found['hurt'])} % of clients worse off than alone"
    return f"it sends {found['bytes']:.2g} times as many bytes and leaves {hurt}"


def _contrasts(numbers: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Each method compared with, and the table of the others."""
    heads = ["Method", "points", "p", "P(better)", "P(equal)", "verdict"]
    for against, part in numbers.groupby("against", sort=False):
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
        yield str(against), render.markdown_table(rows, heads)


def _requirements(standings: pd.DataFrame, base: str) -> str:
    """Traffic and arithmetic relative to fine-tuned FedAvg, and results for clients."""
    found = relative(standings, base, CLIENTS)
    found = found.sort_values("mean", ascending=False, kind="stable")
    heads = ["Method", "accuracy", "worst tenth", "worse off", "unseen", "bytes", "arithmetic"]
    rows = [
        [
            render.markdown(str(title)),
            *(render.percent(row[x]) for x in CLIENTS),
            *(render.ABSENT if np.isnan(row[x]) else f"{row[x]:.2g}" for x in ("bytes", "flops")),
        ]
        for title, row in found.iterrows()
    ]
    return render.markdown_table(rows, heads)


def _accuracies(standings: pd.DataFrame) -> str:
    """The accuracy of every method on every federation, the best in bold."""
    federations = standings["federation"].unique()
    wide = standings.pivot(index="title", columns="federation", values=["mean", "gain"])
    wide = wide.loc[standings["title"].unique()]
    cells = [
        render.best_cells(wide["mean"][name].tolist(), [*map(render.percent, wide["mean"][name])])
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
    return render.markdown_table(rows, ["Method", *federations])


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


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def commit_in(page: str) -> str:
    """The commit that a page names; "" if it names none."""
    _, _, rest = page.partition("\nchanged in commit ")
    return rest.split(".")[0] if rest else ""
