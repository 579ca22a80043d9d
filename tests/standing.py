"""Where each paper stands: how many published cells were run, how near, and its main claim.

All of it is read from what is kept below docs/results, so that a page which says so can be checked.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from tabulate import tabulate

from fedlib.report import exhibits, packs
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.pages.contents import NEAR
from fedlib.report.tables.criteria import VERDICTS
from fedlib.report.tables.render import ABSENT, points
from fedlib.report.wall import pairs

HEAD = ("paper", "published", "printed by the paper", "from elsewhere", "cannot be run")
HEAD += ("run", "within two points")
CLAIM_HEAD = ("paper", "its main claim", "published lead", "ours", "verdict")
CLAIMS = {
    "adaptive_experts": "MoE with exploration above IFCA without",
    "fedmix": "FedMix above FedAvg on CIFAR-10",
    "fedmoe": "Fed-MoE above all others that were run",
    "pfedmm": "pFedMM above FedEM",
    "pfedmoe": "pFedMoE above seven baselines",
}
# Words in the sources of numbers that a paper does not print: they are of other papers, or computed
# from those; and of numbers that were read off its figure.
ELSEWHERE, READ_OFF = "FedEM README|pFedES|inferred:", "digitised by us"
# What does not hold at equal learning rates: page and label of the better method, and of the other
# one at its rate.
EQUAL_RATES = {
    "pfedmm": (
        "FedEM is not above FedAvg",
        (("pfedmm/reduced", "fedem"), ("pfedmm/full/rates", "fedavg-heads-rate")),
    )
}
REMARKS = {  # on a verdict, from the paper's page
    "adaptive_experts": "at p = 0.6 and p = 1",
    "fedmix": "with 4 experts, in bfloat16, and 2",
    "pfedmm": "0.0 to 1.2 if clients are resampled",
}
ORDERS = {"descending": min, "highest": min, "ascending": max, "lowest": max}  # the wrong end


class Paper(NamedTuple):
    """A paper as the table names it.

    Attributes:
      title: what its row is called; numbers: file of its published numbers.
      claims: titles of the criteria that are its main claim.
      never: labels of published methods that the project lacks, and metrics that it does not show.
    """

    title: str
    numbers: Path
    claims: tuple[str, ...]
    never: frozenset[str]


def counts(paper: Paper, folder: Path) -> pd.Series:
    """How many published numbers there are, by what they are, and how many were run and are near.

    "more" are near only if names are exchanged, see `fedlib.report.wall.pairs.pick_exchanged`.

    Args:
      folder: of kept results.
    """
    every = pairs.of_packs(paper.numbers, sorted(folder.rglob(packs.FOLDER)))
    elsewhere = every["source"].str.contains(ELSEWHERE)
    read_off = every["source"].str.contains(READ_OFF)
    is_printed, is_run = ~elsewhere & ~read_off, every["seeds"] > 0
    near = is_run & (every["difference"].abs() <= NEAR)
    other = pairs.pick_exchanged(every.assign(paper=paper.numbers.parent.name))
    more = (other["difference"].abs() <= NEAR) & (other["as_printed"].abs() > NEAR)
    never = every["label"].isin(paper.never) | every["metric"].isin(paper.never)
    return pd.Series(
        {
            "published": len(every),
            "printed": is_printed.sum(),
            "read_off": read_off.sum(),
            "elsewhere": elsewhere.sum(),
            "never": never.sum(),
            "run": is_run.sum(),
            "near": near.sum(),
            "printed_run": (is_run & is_printed).sum(),
            "printed_near": (near & is_printed).sum(),
            "more": more.sum(),
            "printed_more": (more & ~other["source"].str.contains(READ_OFF)).sum(),
        }
    )


def all_counts(papers: Mapping[str, Paper], folder: Path) -> pd.DataFrame:
    """`counts` of each paper at scale full: a row for each, and one for all."""
    found = {name: counts(x, folder / name / "full") for name, x in papers.items()}
    table = pd.DataFrame(found).T
    return pd.concat([table, table.sum().to_frame("all").T])


def numbers(papers: Mapping[str, Paper], folder: Path) -> str:
    """How many numbers of each paper, and of all, are published, were run and are near: Markdown.

    Published are accuracies and the like, in percent; run are those of scale full.

    Args:
      papers: by name.
      folder: docs/results.
    """
    rows = []
    for name, found in all_counts(papers, folder).iterrows():
        of_figure = f" + {found['read_off']}" if found["read_off"] else ""
        what = found["published"], f"{found['printed']}{of_figure}", found["elsewhere"]
        title = papers[name].title if name in papers else "all"
        rows.append([title, *what, *found[["never", "run", "near"]]])
    align = ["left", *["right"] * 6]
    return tabulate(rows, HEAD, tablefmt="pipe", disable_numparse=True, colalign=align)


def claims(papers: Mapping[str, Paper], folder: Path) -> str:
    """The main claim of each paper: by how much it is ahead, published and ours: Markdown.

    It is judged at scale full where it was tested there, else at scale reduced.
    """
    rows = []
    for name, paper in papers.items():
        found, scale = judged(name, paper.claims, folder)
        both = [", ".join(map(_ahead, found[x])) for x in ("published", "value")]
        page = f"[{paper.title}](docs/results/{name}/README.md)"
        rows.append([page, CLAIMS[name], *both, claim(name, paper.claims, folder)])
    align = ["left", "left", "right", "right", "left"]
    return tabulate(rows, CLAIM_HEAD, tablefmt="pipe", disable_numparse=True, colalign=align)


def _ahead(text: str) -> str:
    """By how much the first of some values is above the highest other; a difference as it is."""
    first, *others = [float(x.replace("−", "-")) for x in text.split(", ") if x != ABSENT] or [None]
    return text if not others else points((first - max(others)) / 100)


def judged(name: str, titles: Iterable[str], folder: Path) -> tuple[pd.DataFrame, str]:
    """The criteria of these titles that were decided, and the scale: full, if there are any."""
    for scale in ("full", "reduced"):
        files = sorted((folder / name / scale).rglob("criteria.csv"))
        found = pd.concat([pd.read_csv(file) for file in files]) if files else pd.DataFrame()
        if len(found):
            mine = found[found["criterion"].isin(list(titles))]
            decided = mine[mine["reached"].isin([VERDICTS[True], VERDICTS[False]])]
            if len(decided):
                return decided.drop_duplicates("criterion"), scale
    return pd.DataFrame({"published": [], "value": []}), ""


def claim(name: str, titles: Iterable[str], folder: Path) -> str:
    """What became of the criteria of these titles: "shown", "opposite", "not shown", "in part".

    Opposite is an order of which every one is reversed: what was to be highest is lowest.
    """
    found, scale = judged(name, titles, folder)
    if found.empty:
        return ABSENT
    seeds = ", one seed" if "seeds" in found and (found["seeds"] == 1).all() else ""
    remark = f"; {REMARKS[name]}" if name in REMARKS else ""
    return f"{_verdict(found)}, at scale {scale}{seeds}{remark}{_at_equal_rates(name, folder)}"


def _at_equal_rates(name: str, folder: Path) -> str:
    """What does not hold at equal rates: one method above another in the last round of both."""
    if name not in EQUAL_RATES:
        return ""
    told, methods = EQUAL_RATES[name]
    curves = []
    for page, label in methods:
        rows = pd.read_parquet(folder / page / packs.FOLDER / packs.METRICS)
        where = {"label": label, "at": "round", "metric": "accuracy", **PRIMARY._asdict()}
        curves.append(exhibits.pick(rows, **where).groupby("round")["value"].mean())
    better, other = curves
    last = min(better.index[-1], other.index[-1])
    return "" if better[last] > other[last] else f"; at equal learning rates {told}"


def _verdict(judged: pd.DataFrame) -> str:
    reached = int((judged["reached"] == VERDICTS[True]).sum())
    if reached == len(judged):
        return "shown"
    if reached:
        return f"in part ({reached} of {len(judged)})"
    return "opposite" if all(map(_is_reversed, judged.to_dict("records"))) else "not shown"


def _is_reversed(row: dict) -> bool:
    """Whether the first of the values of an order is at the wrong end."""
    values = [float(text.replace("−", "-")) for text in row["value"].split(", ")]
    return row["kind"] in ORDERS and values[0] == ORDERS[row["kind"]](values)
