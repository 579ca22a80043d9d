"""What tables and figures share: their rows of the metrics, their titles, their honest notes.

An exhibit is the JSON object that `fedlib.plan` makes of a declared table or figure: {"paper",
"name", "kind", "title", "caption", "params", "scale", "scale_note", "folder_note", "seeds",
"federations": [{"name", "dataset", "title", "partition", "notes"}], "runs": [Run.describe()],
"published"}.
"""

import pandas as pd

from fedlib.errors import ConfigError, DataError

PAPER_SCALE = "full"
METRIC_TITLES = {"accuracy": "All", "bottom10": "Bottom-10%"}
PARAMETER_TITLES = {"num_experts": "Number of experts"}
METHOD_TITLES = {  # where the method is meant rather than one of its runs
    "local": "Local",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedavg_plus": "FedAvg+",
    "clustered": "Clustered FL",
    "pfedme": "pFedMe",
    "l2sgd": "L2SGD",
    "apfl": "APFL",
    "qffl": "q-FFL",
    "afl": "AFL",
    "fedem": "FedEM",
    "pfedmoe": "pFedMoE",
    "pfedmm": "pFedMM",
}


def select(exhibit: dict, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a metrics or clients table that belong to the exhibit's runs and seeds.

    Raises:
      DataError: if a run of the exhibit has no rows.
    """
    needed = {
        (run["federation"], run["label"], seed)
        for run in exhibit["runs"]
        for seed in exhibit["seeds"]
    }
    keys = ["federation", "label", "seed"]
    mine = frame[(frame["paper"] == exhibit["paper"]) & frame["seed"].isin(exhibit["seeds"])]
    present = set(mine[keys].drop_duplicates().itertuples(index=False, name=None))
    missing = sorted(needed - present)
    if missing:
        federation, label, seed = missing[0]
        raise DataError(
            f"{exhibit['name']} needs the run {federation}/{label} with seed {seed}, which the "
            "metrics do not have; run the metrics stage again"
        )
    runs = {key[:2] for key in needed}
    index = pd.MultiIndex.from_frame(mine[keys[:2]])
    return mine[index.isin(runs)]


def pick(frame: pd.DataFrame, **values: str) -> pd.DataFrame:
    """The rows in which every named column has the given value."""
    keep = pd.Series(True, index=frame.index)
    for column, value in values.items():
        keep &= frame[column] == value
    return frame[keep]


def titles(exhibit: dict) -> dict[str, str]:
    """Title of every label of the exhibit, in row order."""
    found: dict[str, str] = {}
    for run in exhibit["runs"]:
        found.setdefault(run["label"], run["title"])
    return found


def runs_of(exhibit: dict, federation: str) -> list[dict]:
    """The exhibit's runs on one federation, in row order."""
    return [run for run in exhibit["runs"] if run["federation"] == federation]


def method_title(method: str) -> str:
    """How tables and figures call a method; its registry name if it has no title here."""
    return METHOD_TITLES.get(method, method)


def swept(exhibit: dict, parameter: str, methods: list[str]) -> pd.DataFrame:
    """The runs of a sweep -> DataFrame federation, dataset, label, method, setting.

    Raises:
      ConfigError: if a run of these methods does not state the parameter, or two runs of a method
        and federation have the same value.
    """
    datasets = {f["name"]: f["dataset"] for f in exhibit["federations"]}
    rows = []
    for run in exhibit["runs"]:
        if run["method"] not in methods:
            continue
        if parameter not in run["params"]:
            raise ConfigError(
                f"run {run['federation']}/{run['label']} does not state {parameter}; "
                f"it has {', '.join(run['params']) or 'no params'}"
            )
        names = {name: run[name] for name in ("federation", "label", "method")}
        dataset = datasets[run["federation"]]
        rows.append({**names, "dataset": dataset, "setting": run["params"][parameter]})
    table = pd.DataFrame(rows, columns=["federation", "dataset", "label", "method", "setting"])
    twice = table[table.duplicated(["federation", "method", "setting"])]
    if len(twice):
        first = twice.iloc[0]
        raise ConfigError(
            f"{exhibit['name']} has two runs of {first['method']} on {first['federation']} with "
            f"{parameter} = {first['setting']}"
        )
    return table


def setting_text(setting: object) -> str:
    """A hyper-parameter's value for a row head or an axis, "3" or "0.4"."""
    return f"{setting:g}" if isinstance(setting, int | float) else str(setting)


def parameter_title(parameter: str, symbol: str) -> str:
    """A hyper-parameter as the name of an axis, "Number of experts M"."""
    return f"{PARAMETER_TITLES.get(parameter, parameter)} {symbol}".strip()


def seeds_text(exhibit: dict) -> str:
    """The number of seeds and their values, "3 seeds (1, 2, 3)"."""
    seeds = exhibit["seeds"]
    return f"{len(seeds)} seed{'s' * (len(seeds) > 1)} ({', '.join(map(str, seeds))})"


def scale_text(exhibit: dict) -> str:
    """The scale and what it is, in one or two sentences, with the note of the folder."""
    about = exhibit["scale_note"].removeprefix(f"{exhibit['scale']}:")
    parts = [f"Scale {exhibit['scale']}", about, exhibit["folder_note"]]
    first, *rest = [part.strip().rstrip(".") for part in parts if part.strip()]
    return f"{first}: {'; '.join(rest)}." if rest else f"{first}."


def rounds_text(exhibit: dict) -> str:
    """Communication rounds of the runs, per federation; "40 to 100" where its runs differ."""
    parts = []
    for federation in exhibit["federations"]:
        rounds = sorted({run["rounds"] for run in runs_of(exhibit, federation["name"])})
        if rounds:
            span = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"{rounds[0]}"
            parts.append(f"{federation['title']} {span}")
    return f"Communication rounds: {', '.join(parts)}."


def data_notes(exhibit: dict) -> list[str]:
    """What differs from the paper in the data, one note per federation that has any."""
    return [
        f"{federation['title']}: {federation_text(federation)}"
        for federation in exhibit["federations"]
        if federation["notes"]
    ]


def federation_text(federation: dict) -> str:
    """The notes of a federation as sentences, without its title should they begin with it."""
    return _sentences(
        [note.removeprefix(f"{federation['title']}:") for note in federation["notes"]]
    )


def run_notes(exhibit: dict) -> list[str]:
    """What a reader must know of the runs; a note that several runs share is given once."""
    who: dict[str, list[str]] = {}
    for run in exhibit["runs"]:
        for note in run["notes"]:
            named = who.setdefault(_sentences([note]), [])
            if run["title"] not in named:
                named.append(run["title"])
    return [f"{', '.join(named)}: {note}" for note, named in who.items()]


def published_note(exhibit: dict, shown: bool) -> list[str]:
    """Why published and reproduced numbers differ, or why none of the published is `shown`."""
    if exhibit["published"] is None:
        return []
    if not shown:
        return ["The paper prints no numbers for these data sets."]
    if exhibit["scale"] == PAPER_SCALE and not exhibit["folder_note"]:
        return ["Published numbers are as the paper prints them."]
    return [
        "Published numbers are of the paper's own data, rounds and seeds; these runs are at scale "
        f"{exhibit['scale']}, so their difference is no test of the paper."
    ]


def _sentences(notes: list[str]) -> str:
    return " ".join(note if note.endswith(".") else f"{note}." for note in map(str.strip, notes))
