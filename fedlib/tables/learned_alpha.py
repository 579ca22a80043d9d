"""What alpha has become: the share of the routed experts, as learned here and as printed."""

import numpy as np
import pandas as pd

from fedlib.exhibits import published as printed
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.alphas import ALPHA, recorded
from fedlib.exhibits.metrics import over_seeds
from fedlib.tables import notes
from fedlib.tables.render import ABSENT, Block, Cell, Column, Sheet, with_spread
from fedlib.tables.summary import STATISTICS, identity

RATE = "alpha_lr_scale"  # hyper-parameter: its rate, over that of the server's solver
EXPLAINED = (
    "Learned: in the last round at which it was written down. Rate: of its solver, of which a step "
    "of Adam is about as long; so alpha moves no further than rate times steps."
)


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
) -> Sheet:
    """The table; its numbers have one row per federation and run.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.

    Raises:
      DataError: if a run did not record its alpha.
    """
    theirs = printed.fractions(published, exhibit["published"], ALPHA)
    num_seeds = len(exhibit["seeds"])
    numbers = pd.DataFrame(_row(*found, theirs, num_seeds) for found in recorded(exhibit, metrics))
    compared = bool(numbers["published"].notna().any())
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[_block(exhibit, numbers, compared)],
        notes=[
            exhibits.scale_text(exhibit),
            f"Plain numbers; {exhibits.seeds_text(exhibit)}: {notes.spread(exhibit)}. "
            f"{exhibits.rounds_text(exhibit)}",
            EXPLAINED,
            *exhibits.published_note(exhibit, shown=compared),
            *notes.particulars(exhibit),
        ],
        numbers=notes.with_scale(exhibit, numbers),
    )


def _row(federation: dict, run: dict, alphas: pd.DataFrame, theirs: dict, num_seeds: int) -> dict:
    """What is known of one run's alpha."""
    last = alphas[alphas["round"] == alphas["round"].max()]
    (found,) = over_seeds(last.assign(run=0), ["run"]).to_dict("records")
    rate = run["params"].get(RATE, 1.0) * run["params"]["server"]["lr"]
    return {
        **identity(federation, run),
        "data": federation["title"],
        "start": exhibits.setting(ALPHA, run),
        "rate": rate,
        "published": theirs.get((federation["dataset"], run["label"]), np.nan),
        **{name: found[name] for name in STATISTICS},
        "round": int(last["round"].iloc[0]),
        "seeds": num_seeds,
    }


def _block(exhibit: dict, numbers: pd.DataFrame, compared: bool) -> Block:
    """A row per federation and run."""
    learned = [
        with_spread(row, "ci95", lambda value: f"{value:.3f}")
        for row in numbers[["seeds", *STATISTICS]].to_dict("records")
    ]
    columns = [
        (Column("Data"), numbers["data"]),
        (Column("Method"), numbers["title"]),
        (Column("start"), [f"{value:.2g}" for value in numbers["start"]]),
        (Column("rate"), [f"{value:.0e}".replace("e-0", "e-") for value in numbers["rate"]]),
    ]
    if compared:
        printed_ = [ABSENT if np.isnan(v) else f"{v:.2f}" for v in numbers["published"]]
        columns.append((Column("published"), printed_))
    columns.append((Column("learned"), learned))
    cells = [list(map(Cell, texts)) for _, texts in columns]
    rows = [list(row) for row in zip(*cells, strict=True)]
    return Block("", [column for column, _ in columns], rows, num_keys=2)
