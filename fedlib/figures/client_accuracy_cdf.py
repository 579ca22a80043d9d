"""How accuracy is spread over clients: the fraction of clients at or below each accuracy."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib import exhibit as exhibits
from fedlib.figures import style
from fedlib.metrics import PRIMARY


@style.styled
def draw(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    unseen: bool = False,
) -> Figure:
    """The figure, after the last round; the clients of all seeds are pooled.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibit`, `fedlib.metrics`,
        `fedlib.published`.
      unseen: also show the unseen clients (default protocol), dashed.
    """
    default = {"at": "last", "protocol": PRIMARY.protocol, "split": PRIMARY.split}
    shown = exhibits.pick(exhibits.select(exhibit, clients), **default)
    shown = shown[shown["count"] > 0]
    looks = style.looks(exhibit["runs"])
    figure, grid = style.panels(exhibit)
    for axes, federation in zip(grid, exhibit["federations"], strict=True):
        for run in exhibits.runs_of(exhibit, federation["name"]):
            mine = exhibits.pick(shown, federation=federation["name"], label=run["label"])
            look = looks[run["label"]]
            seen = exhibits.pick(mine, group="seen")["accuracy"]
            first, every = style.markers(exhibit["runs"], run["label"], len(seen), count=5)
            # The first point of the steps is at zero, on the edge of the panel.
            solid = {"linestyle": "-", "markevery": (first + 1, every)}
            _draw_steps(axes, seen, look.curve() | solid)
            if unseen:
                others = exhibits.pick(mine, group="unseen")["accuracy"]
                thin = {"linestyle": style.DASHED, "linewidth": 1.0, "marker": ""}
                _draw_steps(axes, others, look.curve() | thin)
        axes.set(
            title=federation["title"],
            xlabel="Test accuracy of a client (%)",
            ylabel="Fraction of clients at or below",
            ylim=(0, 1.02),
        )
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}")
    style.legend(figure, _handles(exhibit, unseen))
    seeds = "Clients of all seeds together. " if len(exhibit["seeds"]) > 1 else ""
    style.footer(figure, exhibit, f"After the last round. {seeds}".strip())
    return figure


def _draw_steps(axes: Axes, values: pd.Series, curve: dict) -> None:
    if values.empty:
        return
    x = np.sort(values.to_numpy())
    y = np.arange(1, len(x) + 1) / len(x)
    axes.plot(np.r_[x[0], x], np.r_[0, y], drawstyle="steps-post", **curve)


def _handles(exhibit: dict, unseen: bool) -> list[Line2D]:
    handles = style.method_handles(exhibit)
    for handle in handles:
        handle.set_linestyle("-")
    if unseen:
        grey = {"color": style.GREY, "linewidth": 1.2}
        handles.append(Line2D([], [], linestyle="-", label="seen clients", **grey))
        handles.append(Line2D([], [], linestyle=style.DASHED, label="unseen clients", **grey))
    return handles
