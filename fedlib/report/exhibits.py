"""Shared code of tables and figures: rows of the metrics, titles, settings.

An exhibit is here the specification of its job. Federations that differ in one parameter alone have
the same `family`; that of a single federation is its title.
"""

import functools
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.report.looks import METHODS
from fedlib.run_spec import is_file
from fedlib.spec import Data, ExhibitSpec, Run

PAPER_SCALE, DEMO_SCALE = "full", "demo"
PANELS = {"run": "title", "federation": "family"}  # field that names a sweep's panel, by its `of`
METRIC_TITLES = {"accuracy": "All", "bottom10": "Bottom-10%"}
PARAMETER_TITLES = {
    "num_experts": "Number of experts",
    "partition.alpha": "Dirichlet concentration",
    "partition.classes_per_client": "Classes per client",
    "partition.p": "Majority fraction",
}


def select(exhibit: ExhibitSpec, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a metrics or clients table that belong to the exhibit's runs and seeds.

    Raises:
      DataError: if a run of the exhibit has no rows.
    """
    needed = {(run.federation, run.label, seed) for run in exhibit.runs for seed in exhibit.seeds}
    keys = ["federation", "label", "seed"]
    mine = frame[(frame["paper"] == exhibit.paper) & frame["seed"].isin(exhibit.seeds)]
    present = set(mine[keys].drop_duplicates().itertuples(index=False, name=None))
    if missing := sorted(needed - present):
        federation, label, seed = missing[0]
        raise DataError(
            f"{exhibit.name} needs the run {federation}/{label} with seed {seed}, which the "
            "metrics do not have; run the metrics stage again"
        )
    return mine[pd.MultiIndex.from_frame(mine[keys[:2]]).isin({key[:2] for key in needed})]


def pick(frame: pd.DataFrame, **values: str) -> pd.DataFrame:
    """The rows in which every named column has the given value."""
    keep = pd.Series(True, index=frame.index)
    for column, value in values.items():
        keep &= frame[column] == value
    return frame[keep]


def of_run(frame: pd.DataFrame, run: Run) -> pd.DataFrame:
    """The rows of one run."""
    return pick(frame, federation=run.federation, label=run.label)


def name(run: Run) -> str:
    """The name of a run in errors, FEDERATION/LABEL."""
    return f"{run.federation}/{run.label}"


def titles(exhibit: ExhibitSpec) -> dict[str, str]:
    """Title of every label of the exhibit, in row order."""
    found: dict[str, str] = {}
    for run in exhibit.runs:
        found.setdefault(run.label, run.title)
    return found


def runs_of(exhibit: ExhibitSpec, federation: str) -> list[Run]:
    """The exhibit's runs on one federation, in row order."""
    return [run for run in exhibit.runs if run.federation == federation]


def method_title(method: str, titles: Sequence[str] = ()) -> str:
    """The title of a method in tables and figures; its registry name if it has no title.

    If two or more runs of the method all have one title, it is that title, because a paper may have
    a name of its own ("Standalone"). A method from a user's file, "mine/fedper.py", has the title
    of its runs or, if these differ, the name of its class, if it is in one.

    Args:
      titles: of the method's runs.
    """
    if len(set(titles)) == 1 and (len(titles) > 1 or is_file(method)):
        return titles[0]
    name, words = Path(method).stem, re.findall(r"\w+", " ".join(titles))
    named = [word for word in words if word.lower() == name.replace("_", "").lower()]
    return METHODS[method].title if method in METHODS else [*named, name][0]


def place_runs(exhibit: ExhibitSpec, parameter: str, of: str = "run") -> pd.DataFrame:
    """All runs of a sweep -> DataFrame federation, panel, label, method, setting.

    Args:
      exhibit: has the runs.
      parameter: the varied one, a dotted path into the `params` of the runs ("num_experts") or
        into the declarations of their federations ("partition.alpha").
      of: owner of the parameter, "run" or "federation". The panel of a run is its federation's
        title or, for a parameter of federations, its federation's family.

    Raises:
      ConfigError: if a run does not state the parameter.
    """
    federations = {federation.name: federation for federation in exhibit.federations}
    return pd.DataFrame(
        {
            "federation": run.federation,
            "panel": getattr(federations[run.federation], PANELS[of]),
            "label": run.label,
            "method": run.method,
            "setting": setting(parameter, run if of == "run" else federations[run.federation]),
        }
        for run in exhibit.runs
    )


def check_apart(exhibit: ExhibitSpec, places: pd.DataFrame, *key: str) -> None:
    """Raise ConfigError if two runs of a sweep are at the same place, by the columns `key`."""
    twice = places[places.duplicated([*key, "setting"], keep=False)]
    if len(twice):
        first, other = (twice["federation"] + "/" + twice["label"]).iloc[:2]
        raise ConfigError(
            f"{exhibit.name} has two runs at {twice.iloc[0]['setting']}, {first} and {other}; "
            "leave one out, or tell them apart by variants"
        )


def panels(exhibit: ExhibitSpec, of: str) -> list[str]:
    """Titles of the panels of a sweep, see `place_runs`, in the order of the federations."""
    return list(dict.fromkeys(getattr(one, PANELS[of]) for one in exhibit.federations))


def setting(parameter: str, owner: Run | Data) -> float | str:
    """The value of `parameter`, a dotted path, in a run's params or a federation.

    Raises:
      ConfigError: if the owner lacks it.
    """
    cut = ("partition", "params", "seed")
    stated = owner.params if isinstance(owner, Run) else {x: getattr(owner, x) for x in cut}
    try:
        value = functools.reduce(lambda inner, key: inner[key], parameter.split("."), stated)
    except (KeyError, TypeError):  # no such key, or a path below a number
        value = None
    if isinstance(value, int | float | str):
        return value
    which = f"run {name(owner)}" if isinstance(owner, Run) else f"federation {owner.name}"
    raise ConfigError(
        f"{which} does not state {parameter}; it has {', '.join(stated) or 'no params'}"
    )


def setting_text(setting: float | str) -> str:
    """A parameter's value for a row head or an axis, "3", "0.4" or "1e6"."""
    if isinstance(setting, str):
        return setting
    return re.sub(r"e(-?)\+?0*", r"e\1", f"{setting:g}")  # Python writes 1e6 as 1e+06


def parameter_title(parameter: str, symbol: str) -> str:
    """A parameter as the name of an axis, "Number of experts M"."""
    return f"{PARAMETER_TITLES.get(parameter, parameter)} {symbol}".strip()
