"""The words below tables and figures: measurement, scale, seeds, data and cautions."""

from collections.abc import Sequence

from fedlib.report.exhibits import PAPER_SCALE, runs_of
from fedlib.report.metrics.seeds import INTERVAL_SEEDS
from fedlib.spec import ExhibitSpec

PARAMETERS = {  # explanations of parameters' values
    "partition.alpha": "Small {0}: the clients' data differ much. Large {0}: they are alike.",
    "partition.p": "Majority fraction: share of a client's data that is of its two majority "
    "classes; 0.2 of ten classes is close to IID.",
}
SPREADS = {  # from `INTERVAL_SEEDS` seeds on
    "interval": "the mean ± half-width of its 95 % interval (Student's t)",
    "deviation": "± the standard deviation over trials (n - 1)",
}
BEST = (
    "Best: at the round with the highest accuracy pooled over the test examples of all clients, "
    "each seed its own round; this is a selection on the test set and flatters every method."
)


def of_table(exhibit: ExhibitSpec, *said: str) -> list[str]:
    """All notes of a table: the scale, `said` without "", and particulars of data and runs."""
    particulars = *seeds_differ(exhibit), *of_data(exhibit), *of_runs(exhibit)
    first = scale(exhibit.scale, exhibit.scale_note, exhibit.folder_note)
    return [first, *filter(None, (*said, rates(exhibit))), *particulars]


def measurement(exhibit: ExhibitSpec, unit: str = "Percent; ", what: str = "interval") -> str:
    """The unit, seeds, the meaning of the number beside a mean, `what` of `SPREADS`, and rounds."""
    return f"{unit}{seeds(exhibit)}: {_spread(exhibit, what)}. {rounds(exhibit)}"


def _spread(exhibit: ExhibitSpec, what: str) -> str:
    number = len(exhibit.seeds)
    if number >= INTERVAL_SEEDS:
        return SPREADS[what]
    if number > 1:
        return f"the mean (smallest to largest seed); so few give no {what}"
    return f"one run each, so no {what} can be given"


def seeds_differ(exhibit: ExhibitSpec) -> list[str]:
    """A sentence about what an exhibit's seeds draw anew and what they share; none for one seed."""
    if len(exhibit.seeds) == 1:
        return []
    kept = [data.title for data in exhibit.federations if not data.per_seed]
    redrawn = len(kept) < len(exhibit.federations)
    cohorts = any(run.participation.get("rate", 1) < 1 for run in exhibit.runs)
    differ = [*["partition"] * redrawn, "initial parameters", *["cohorts"] * cohorts]
    of = f" of {' and '.join(kept)}" if redrawn else ""
    same = [f"partition into clients{of}"] if kept else []
    same += [] if cohorts else ["cohorts (everybody trains in every round)"]
    drawn = f"Seeds differ in {', '.join(differ)} and order of the batches"
    return [f"{drawn}; they share the {' and the '.join(same)}." if same else f"{drawn}."]


def parameter(name: str | None, symbol: str = "") -> str:
    """An explanation of a parameter's values, with the paper's `symbol`; "" if none is needed."""
    return PARAMETERS.get(name or "", "").format(symbol or "α")


def seeds(exhibit: ExhibitSpec) -> str:
    """The number of seeds and their values, "3 seeds (1, 2, 3)"."""
    numbers = exhibit.seeds
    return f"{len(numbers)} seed{'s' * (len(numbers) > 1)} ({', '.join(map(str, numbers))})"


def sources(exhibit: ExhibitSpec) -> list[str]:
    """The notes of data whose raw files are from another source than declared."""
    notes = [note for data in exhibit.federations for note in data.notes]
    return list(dict.fromkeys(note for note in notes if "from the raw files of source" in note))


def scale(name: str, note: str, folder_note: str) -> str:
    """The scale and its meaning, in one or two sentences, with the note of the folder."""
    parts = [f"Scale {name}", note.removeprefix(f"{name}:"), folder_note]
    first, *rest = [part.strip().rstrip(".") for part in parts if part.strip()]
    return f"{first}: {'; '.join(rest)}." if rest else f"{first}."


def rounds(exhibit: ExhibitSpec) -> str:
    """Communication rounds of the runs, per family if several; "40 to 100" where runs differ."""
    every: dict[str, set[int]] = {}
    for federation in exhibit.federations:
        of_family = every.setdefault(federation.family, set())
        of_family.update(run.rounds for run in runs_of(exhibit, federation.name))
    parts = [
        f"{min(found)}"
        + (f" to {max(found)}" if len(found) > 1 else "")
        + (f" on {family}" if len(every) > 1 else "")
        for family, found in every.items()
        if found
    ]
    return f"Communication rounds: {'; '.join(parts)}."


def rates(exhibit: ExhibitSpec) -> str:
    """The learning rates of local steps where they differ between methods that nobody tuned."""
    where: dict[str, list[str]] = {}
    for federation in exhibit.federations:
        every: dict[float, list[str]] = {}
        for run in runs_of(exhibit, federation.name):
            if not run.tuning and "lr" in run.local:
                every.setdefault(run.local["lr"], []).append(run.title)
        text = "; ".join(f"{lr:g} ({', '.join(every[lr])})" for lr in sorted(every))
        if len(every) > 1:
            where.setdefault(text, []).append(federation.title)
    return " ".join(f"Learning rates on {', '.join(on)}: {text}." for text, on in where.items())


def of_data(exhibit: ExhibitSpec) -> list[str]:
    """Differences of the data from the paper's; a note of a whole family appears once."""
    families: dict[str, dict[str, list[str]]] = {}  # family, text, titles of its federations
    for federation in exhibit.federations:
        texts = families.setdefault(federation.family, {})
        text = of_federation(federation.notes, federation.title, federation.family)
        texts.setdefault(text, []).append(federation.title)
    return [
        f"{family if len(texts) == 1 else '; '.join(titles)}: {text}"
        for family, texts in families.items()
        for text, titles in texts.items()
        if text
    ]


def of_federation(notes: Sequence[str], *titles: str) -> str:
    """The notes of a federation as sentences, without its titles at their beginning."""
    for title in titles:
        notes = [note.removeprefix(f"{title}:") for note in notes]
    return _sentences(notes)


def of_runs(exhibit: ExhibitSpec) -> list[str]:
    """Notes of the runs; a note that several runs share appears once."""
    who: dict[str, list[str]] = {}
    for run in exhibit.runs:
        for note in run.notes:
            named = who.setdefault(_sentences([note]), [])
            if run.title not in named:
                named.append(run.title)
    return [f"{', '.join(named)}: {note}" for note, named in who.items()]


def comparison(exhibit: ExhibitSpec, shown: bool) -> list[str]:
    """Why published and reproduced numbers differ, or why no published number is `shown`."""
    if exhibit.published is None:
        return []
    if not shown:
        return ["The paper prints none of these numbers."]
    if exhibit.scale == PAPER_SCALE:
        changed = " These runs have its settings, except those named after the scale."
        return [f"Published numbers are the paper's own.{changed * bool(exhibit.folder_note)}"]
    return [
        "Published numbers are of the paper's own data, rounds and seeds; these runs are at scale "
        f"{exhibit.scale}, so their difference is no test of the paper."
    ]


def _sentences(notes: Sequence[str]) -> str:
    return " ".join(note if note.endswith(".") else f"{note}." for note in map(str.strip, notes))
