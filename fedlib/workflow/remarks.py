"""Lines for the user about what a configuration selects, and what is left out."""

from collections.abc import Collection, Iterator
from pathlib import Path

from fedlib import seals
from fedlib.spec import Run
from fedlib.spec.exhibits import Exhibit
from fedlib.workflow import config, own_methods
from fedlib.workflow.declarations import declared, readable, trainings_of
from fedlib.workflow.freshness import list_others
from fedlib.workflow.plan import Plan

CLIENTS = ("seen", "unseen")  # as in fedlib.federation, which needs NumPy


def describe(plan: Plan) -> Iterator[str]:
    """Lines about the selection, and about runs and exhibits that are left out."""
    yield from (f"paper {name} is left out: {why}" for name, why in plan.broken.items())
    if _filters(plan):
        whole = sum(len(trainings_of(paper)) for paper in readable(plan.scale)[0].values())
        also = f"; tables also show the {len(plan.finished)} finished there" * bool(plan.finished)
        yield (
            f"{_filters(plan)}: {len(plan.trainings()) - len(plan.finished)} of the {whole} "
            f"trainings that scale {plan.scale} declares, added to results/{plan.folder}{also}"
        )
    if others := list_others(plan):
        yield (
            f"{len(others)} finished trainings are not shown, such as {'/'.join(others[0][:3])}/"
            f"seed{others[0].seed}: they have other settings or data, or not all seeds"
        )
    yield from _without_a_run(plan)
    given = plan.config["methods"] or ()
    yield from own_methods.remarks(plan.papers, given, plan.left_out)
    for name, paper in plan.papers.items():
        for stage in ("table", "figure"):
            there = getattr(paper, stage + "s")
            for key, exhibit in getattr(declared(name, plan.scale), stage + "s").items():
                runs = [run for run in paper.runs if exhibit.shows(run.federation, run.label)]
                for remark in _lacking(exhibit, runs, key in there):
                    yield f"{stage} {name}/{key} is {remark}"


def count_clients(plan: Plan) -> Iterator[str]:
    """Lines about federations with fewer clients than declared."""
    made: dict[str, tuple[int, int]] = {}
    for names in plan.partitions():
        if (path := Path(plan.path("manifest", **names))).exists():
            manifest = seals.read_json(path)
            asked = manifest["spec"]["partition"].get("num_clients", 0)
            number = sum(group in CLIENTS for group in manifest["group"])
            if number < asked:
                name = f"{names['paper']}/{names['federation']}"
                made[name] = min(made.get(name, (number, asked)), (number, asked))
    for name, (number, asked) in made.items():
        yield (
            f"{name}: {number} of {asked} clients; the others would have too few examples to train "
            "and to be tested, and are left out"
        )


def _lacking(exhibit: Exhibit, runs: list[Run], is_there: bool) -> Iterator[str]:
    """Lines about the missing parts of an exhibit with these selected runs."""
    short = [run for run in runs if exhibit.ends_too_early(run)]
    for run in short:
        yield (
            f"without {run.federation}/{run.label}, which ends after {run.rounds} rounds, before "
            "it records what is shown there"
        )
    if runs and not short and not is_there:
        yield "left out: too little is selected of what it compares"


def _without_a_run(plan: Plan) -> Iterator[str]:
    """Lines about names of a filter that have no run, because of the other filters."""
    selected = {*plan.trainings()} - plan.finished
    for key, attribute in (("federations", "federation"), ("labels", "label")):
        there = {getattr(training, attribute) for training in selected}
        for value in plan.config[key] or ():
            if value not in there:
                yield f"{key}: {value} has no run with {_filters(plan, {key})}"


def _filters(plan: Plan, without: Collection[str] = ()) -> str:
    """The selection of the configuration as text: "papers=[fedmix] seeds=[0]"."""
    keys = [key for key in config.FILTERS if key not in without]
    given = [(key, plan.config[key]) for key in keys if plan.config[key]]
    given = [(k, v if k != "runs" or len(v) == 1 else [f"{len(v)} of them"]) for k, v in given]
    return " ".join(f"{key}=[{','.join(map(str, values))}]" for key, values in given)
