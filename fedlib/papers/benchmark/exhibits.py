"""Tables and figures of the benchmark."""

from fedlib.papers._frame import Settings, everything, on
from fedlib.papers.benchmark import registered, registered_tunings
from fedlib.papers.benchmark.federations import SERVED
from fedlib.papers.benchmark.settings import AGAIN, DIM, METHODS, Setting
from fedlib.spec import server, tables
from fedlib.spec.contrasts import Claims, ContrastPoints, Contrasts, Standings
from fedlib.spec.luck import BestOfTrials, RankIntervals, Survival, TuningLuck
from fedlib.spec.worlds import PhaseDiagram, Regret

PICK = "Best of the three"
FEWEST = 3  # federations for a statement over federations
BEST = f"{PICK}: each client takes Local, FedAvg or fine-tuned FedAvg, by its validation data."
PICKED = ("local", "fedavg", "fedavg-plus")  # ordinary runs, from which a client may pick


def rows(shown: Settings) -> tuple[dict, ...]:
    """A row for each method in some of the settings, with the worlds that meet its assumption."""
    worlds = {setting.data.name for setting in shown}
    return tuple(
        {
            "title": variant.title,
            "labels": (label,),
            "home": tuple(name for name in variant.home if name in worlds),
            **({} if variant.protocol == "default" else {"protocol": variant.protocol}),
        }
        for label, variant in METHODS.items()
        if label in everything(shown)
    )


def rows_and_pick(shown: Settings) -> tuple[dict, ...]:
    """The same, with a row for each client's own pick among `PICKED` after these."""
    found = [*rows(shown)]
    three = [row for row in found if row["title"] in {METHODS[label].title for label in PICKED}]
    pick = {
        "title": PICK,
        "labels": tuple(label for row in three for label in row["labels"]),
        "home": (),
        "pick": True,
    }
    last = found.index(three[-1]) + 1
    return (*found[:last], pick, *found[last:])


def twice(shown: Settings) -> tuple[dict, ...]:
    """Two rows of each method that has a run with a tuning for each seed, this run's first."""
    there = everything(shown)
    both = [(row, row["labels"][0] + AGAIN) for row in rows(shown)]
    both = [(row, again) for row, again in both if again in there]
    retuned = tuple({**row, "labels": (again,), "again": True} for row, again in both)
    return (*retuned, *(row for row, _ in both))


def several(settings: Settings) -> list[Setting]:
    """The real federations, if there are at least `FEWEST`."""
    found = on("real")(settings)
    return found if len(found) >= FEWEST else []


def threshold(shown: Settings) -> dict[str, float]:
    """By divergence: the examples at which local training is expected to overtake one model."""
    deltas = {setting.data.params["divergence"] for setting in shown}
    return {f"{delta:g}": DIM / delta for delta in sorted(deltas) if delta > 0}


def titles(*labels: str):
    """A function that gives the titles of those of these methods that run; "pick" always does."""
    return lambda shown: tuple(title_of(x) for x in labels if x in (*everything(shown), "pick"))


def title_of(label: str) -> str:
    """The title of a method."""
    return PICK if label == "pick" else METHODS[label].title


def claims() -> tuple[dict, ...]:
    """The registered claims with titles in place of labels."""
    return tuple(
        {name: title_of(x) if name in ("better", "worse") else x for name, x in claim.items()}
        for claim in registered.CLAIMS
    )


REAL = {"labels": tuple(METHODS), "federations": on("real"), "rows": rows_and_pick}
TWICE = {
    "labels": lambda shown: tuple(label for row in twice(shown) for label in row["labels"]),
    "federations": on("real"),
    "rows": twice,
}
AGAINST_TUNED = METHODS[registered_tunings.REFERENCE].title
OF_TUNING = (
    f"{registered_tunings.TRIALS} trials on a split of its own for each method, federation and "
    "seed, at scale reduced."
)
REGISTERED = f"Methods, comparisons and metric were registered on {registered.DATE}."
COMPARED = {
    "title": "One method of each family against two simple ones",
    "caption": "Which methods speak for their families was fixed beforehand.",
    "of": titles(*registered.REPRESENTATIVES),
    "against": titles(*registered.REFERENCES),
}
TABLES = {
    "standings": Standings(
        title="Methods by federation", caption=BEST, alone=title_of("local"), **REAL
    ),
    "standings_of_unlike_models": Standings(
        title="Methods for clients whose models differ in size",
        caption="Five architectures in turn. Nothing here is ranked against methods that need the "
        "same model everywhere.",
        alone=title_of("local"),
        labels=tuple(METHODS),
        federations=on("zoo"),
        rows=rows,
    ),
    "standings_on_a_server": server.GlobalAccuracy(
        title="Methods that train one model with a server's own data",
        caption="Tuned by the clients' validation examples, and tested on those of the server. "
        "Nothing here is ranked against methods that are judged by each client's own examples.",
        labels=SERVED,
        federations=on("server"),
        columns=lambda shown: tuple(
            {"federation": setting.data.name, "title": setting.data.title} for setting in shown
        ),
    ),
    "contrasts": Contrasts(
        registered=" ".join([REGISTERED, *registered.AMENDMENTS]), **COMPARED, **REAL
    ),
    "claims": Claims(
        title="The papers' orders of methods, on clients that they did not choose",
        caption="Models, sizes and federations are ours, so a claim that does not hold here may "
        f"hold where its paper tested it. {registered.LOOKS}",
        claims=claims(),
        **REAL | {"federations": several},
    ),
    "tuning_luck": TuningLuck(
        title="What tuning and training add to a method's accuracy",
        caption=OF_TUNING,
        against=AGAINST_TUNED,
        **TWICE,
    ),
    "survival": Survival(
        title="Which differences survive other tunings",
        caption=OF_TUNING,
        of=titles(*registered.REPRESENTATIVES),
        against=AGAINST_TUNED,
        registered=f"Registered on {registered_tunings.DATE}.",
        **TWICE,
    ),
    "tuning": tables.Tuning(
        title="What tuning chose",
        caption="Every method has the same number of trials, of which the first is the default.",
        labels=tuple(METHODS),
        federations=on("real", "zoo", "server", "worlds", "phase"),
    ),
}
FIGURES = {
    "rank_intervals": RankIntervals(
        title="Ranks of methods, with the luck of their tuning", caption=OF_TUNING, **TWICE
    ),
    "best_of_trials": BestOfTrials(
        title="How many trials a method needs", caption=OF_TUNING, **TWICE
    ),
    "home_and_away": Regret(
        title="Home and away: regret by method and world",
        caption="Each world is what one family of methods assumes, and a frame marks its home. In "
        "own each client has a concept of its own; in one all have the same; in clusters each has "
        "one of three, in mixtures each example; in regions it depends on the input; in priors "
        f"only the classes differ in frequency; in heads clients share a representation. {BEST}",
        labels=tuple(METHODS),
        federations=on("worlds"),
        rows=rows_and_pick,
    ),
    "phase_diagram": PhaseDiagram(
        title="When does federation help? Divergence against examples",
        caption="Clients are mixtures of three concepts that differ by the divergence.",
        labels=tuple(METHODS),
        federations=on("phase"),
        rows=rows,
        x="params.train_examples",
        y="params.divergence",
        names=("Training examples per client n", "Divergence δ of the concepts"),
        theory=threshold,
        law="δ n = dim of x: theory, up to a constant",
    ),
    "contrasts_over_federations": ContrastPoints(**COMPARED, **REAL | {"federations": several}),
}
