"""How unlike the updates of a round's clients are, over the rounds, one panel per federation.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, appendix D; specification
section 7.3. The paper's window is unknown.
"""

import pandas as pd
from matplotlib.figure import Figure

from fedlib.errors import ConfigError, DataError
from fedlib.report import exhibits
from fedlib.report.figures import curves, layout, style
from fedlib.report.metrics import DIVERGENCE, TRAFFIC, over_seeds

EXPERTS = {
    "mean": "Averaged over the experts of a run.",
    "sum": "Added up over the experts of a run.",
}


@style.styled()
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    window: int = 50,
    experts: str = "mean",
    until: dict[str, float] | None = None,
    shaded: str | None = None,
) -> Figure:
    """The figure: mean over seeds, and a band over seeds.

    Args:
      window: rounds, up to the one on the axis, over which the mean is taken; 1 smooths nothing.
      experts: "mean" or "sum" over the experts of a run; the same for runs of one model.
      until: the last round that is shown of a federation; all of them if it is not named.
      shaded: method whose runs are shades of its colour, see `fedlib.report.figures.style.looks`.

    Raises:
      ConfigError: for another choice of `experts`, a window below 1 or an unknown federation.
      DataError: if a run did not record its divergence.
    """
    if experts not in EXPERTS:
        raise ConfigError(f"experts must be {' or '.join(EXPERTS)}, got {experts!r}")
    if window < 1:
        raise ConfigError(f"window must be at least 1 round, got {window}")
    curves.check_until(exhibit, until)
    shown = exhibits.pick(exhibits.select(exhibit, metrics), at="round", **TRAFFIC._asdict())
    shown = shown[shown["metric"].str.startswith(f"{DIVERGENCE}_")]
    looks = style.looks(exhibit, shaded)
    figure, grid = layout.by_federation(exhibit, "Communication round", "Gradient divergence")
    for axes, federation in grid:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            windowed = _windowed(_recorded(shown, run), window, experts)
            curve = curves.cut(windowed, "round", until)
            curves.draw_curve(axes, curve, looks[run["label"]], exhibit["runs"])
        layout.rounds_axis(axes)
        axes.set_ylim(bottom=0)
    smoothed = f"Means over the last {window} rounds, fewer at the start." if window > 1 else ""
    meaning = (
        "0: all clients of a round change a tensor alike; the tensors of a model are added up."
    )
    band = layout.spread_text(exhibit, "band")
    handles = style.method_handles(exhibit, looks)
    layout.finish(figure, exhibit, handles, EXPERTS[experts], smoothed, meaning, band)
    return figure


def _recorded(rows: pd.DataFrame, run: dict) -> pd.DataFrame:
    """The rows of a run's divergence; DataError if it has none."""
    mine = exhibits.pick(rows, federation=run["federation"], label=run["label"])
    if mine.empty:
        raise DataError(
            f"{run['federation']}/{run['label']} has no {DIVERGENCE}_0, ... among its metrics: its "
            "method does not record it, or its horizon is 0"
        )
    return mine


def _windowed(rows: pd.DataFrame, window: int, experts: str) -> pd.DataFrame:
    """One run's divergence by round, over its experts and the window, `over_seeds`."""
    key = ["federation", "label", "seed", "round"]
    by_round = rows.groupby(key, sort=True)["value"].agg(experts)
    sliding = by_round.groupby(level=key[:3]).transform(
        lambda values: values.rolling(window, min_periods=1).mean()
    )
    return over_seeds(sliding.rename("value").reset_index(), ["federation", "label", "round"])
