"""Shared code of figures with curves of accuracy."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from fedlib.errors import DataError
from fedlib.report import comparisons, exhibits
from fedlib.report.figures import style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY, SERVER
from fedlib.report.metrics.seeds import over_seeds
from fedlib.spec import ExhibitSpec, Run
from fedlib.spec.figures import Curves

METRICS = {
    "accuracy": "all clients",
    "bottom10": "bottom-10% client",
    "accuracy_client_mean": "mean of clients",
}
CROWD = 5  # with this many curves in a panel or more, the y axis shows where they end
FLAT = 0.1  # fewer curves without bands do, too, where all that is shown then is at most so high
# Methods that predict with their best check, each with its default `stop`.
CHECKED = {"adaptive_experts": "all", "ifca": "never"}
# Methods that predict with the state that a server's validation examples have chosen.
CHOSEN = ("centmoe", "fedmoe", "server_finetuning", "uniform_mixture")
SPLITS = {"test": "Test", "val": "Validation", "train": "Training"}


def axis(kind: Curves) -> str:
    """The name of an accuracy on the y axis, without default protocol and test examples."""
    split, metric = SPLITS[kind.split], METRICS[kind.metric]
    if kind.group == SERVER.group:
        return f"{split} accuracy, server (%)"
    if (kind.protocol, kind.split) == (PRIMARY.protocol, PRIMARY.split):
        return f"{split} accuracy, {metric} (%)"
    accuracy = f"{split} accuracy (%)\n{metric}"  # on several lines, to fit beside a panel
    if kind.protocol == PRIMARY.protocol:
        return accuracy
    return f"{comparisons.protocol_title(kind.protocol)}\n{accuracy}"


def over_rounds(given: Inputs) -> pd.DataFrame:
    """`over_seeds` of the accuracy of every run at every evaluated round.

    Raises:
      DataError: if a run has no such accuracy from evaluations during training.
    """
    shown = given.kind
    view = {"group": shown.group, "protocol": shown.protocol, "split": shown.split}
    mine = exhibits.pick(given.rows, at="round", metric=shown.metric, **view)
    for run in given.exhibit.runs:
        if exhibits.of_run(mine, run).empty:
            raise DataError(
                f"{exhibits.name(run)} was not evaluated with the protocol {shown.protocol!r} on "
                f"{shown.split} examples during training; its `curves` name the protocols that are"
            )
    return over_seeds(mine, ["federation", "label", "round"])


def scores(shown: pd.DataFrame) -> dict[str, float]:
    """Last accuracies of the curves of `over_rounds`, less the highest; means over federations."""
    ends = shown.sort_values("round").groupby(["federation", "label"])["mean"].last()
    return (ends - ends.groupby("federation").transform("max")).groupby("label").mean().to_dict()


def draw_curve(
    axes: Axes, curve: pd.DataFrame, look: style.Look, runs: list[Run], x: str = "round"
) -> None:
    """Draw a run's mean over seeds along `x`, with marks, and a band from least to most."""
    label = curve["label"].iloc[0]
    marked = style.markers(runs, label, len(curve))
    title = next(run.title for run in runs if run.label == label)
    axes.plot(curve[x], curve["mean"], markevery=marked, label=title, **look.curve())
    if (curve["seeds"] > 1).any():
        axes.fill_between(curve[x], curve["low"], curve["high"], **style.band(look, runs))


def focus(axes: Axes, drawn: Sequence[pd.Series], levels: Sequence[float] = ()) -> str:
    """Cut low first accuracies off the y axis of a crowded or flat panel -> a note of it, or ""

    Args:
      drawn: the curves, as fractions; three quarters of each stay in sight, and so do the peaks. A
        curve that is in sight stays there.
      levels: other accuracies that must stay in sight.
    """
    bottom, top = axes.get_ylim()
    ends = [*(curve.iloc[-1] for curve in drawn), *levels]
    room = max(ends) - min(ends)
    margin = max(0.15 * room, 0.01)
    start = min(*ends, *(curve.quantile(0.25) for curve in drawn)) - margin
    while (least := min(curve[(curve >= start).cummax()].min() for curve in drawn)) < start:
        start = least - margin
    peak = max([*levels, *(curve.max() for curve in drawn)])
    crowded = len(ends) >= CROWD or peak - start <= FLAT and not axes.collections
    if not crowded or start - bottom < (top - bottom) / 3:
        return ""
    axes.set_ylim(start, min(peak + max(0.1 * room, 0.01), 1.005))
    return "The lowest accuracies, with which curves begin, are not shown."


def checks_note(exhibit: ExhibitSpec) -> str:
    """A note that curves show what was best so far, at rare checks or by validation, if any do."""
    stopping = {
        run.title: run.params.get("stop_every", 10)  # as the methods declare it
        for run in exhibit.runs
        if run.method in CHECKED and run.params.get("stop", CHECKED[run.method]) != "never"
    }
    mine = [run for run in exhibit.runs if run.method in CHOSEN]
    chosen = dict.fromkeys(run.title for run in mine if run.params.get("keep") != "last")
    told = []
    if chosen:
        what = "each point shows the state that validation has chosen so far."
        told.append(f"{'; '.join(chosen)}: {what}")
    if stopping:
        every = " or ".join(map(str, sorted({*stopping.values()})))
        told.append(
            f"{', '.join(stopping)}: each point shows the models of the best check so far, and "
            f"there is a check every {every} rounds. So these are steps, not learning curves."
        )
    return " ".join(told)
