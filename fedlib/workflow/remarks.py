"""Lines for the user about what a configuration selects, and what is left out."""

from collections.abc import Iterator

from fedlib import papers, seals
from fedlib.workflow import own_methods
from fedlib.workflow.freshness import list_others
from fedlib.workflow.plan import Plan

CLIENTS = ("seen", "unseen")  # as in fedlib.federation, which needs NumPy


def describe(plan: Plan) -> Iterator[str]:
    """Lines about the selection, and about runs and exhibits that are left out."""
    selected = {*plan.trainings()} - plan.finished
    for key in ("federations", "labels"):
        there = {getattr(training, key.removesuffix("s")) for training in selected}
        for name in sorted({*(plan.config[key] or ())} - there):
            yield f"{key}: {name} has no run that the other keys select"
    if others := list_others(plan):
        yield (
            f"{len(others)} finished trainings are not shown, such as {'/'.join(others[0][:3])}/"
            f"seed{others[0].seed}: they have other settings or data, or not all seeds"
        )
    yield from own_methods.remarks(plan.papers, plan.config["methods"] or (), plan.left_out)
    for name, paper in plan.papers.items():
        there = {(stage, key) for stage, key, _ in paper.exhibits()}
        for stage, key, one in papers.declare(name, plan.scale).exhibits():
            if (stage, key) not in there and any(one.shows(*x) for _, *x in paper.runs_by_name()):
                yield f"{stage} {name}/{key} is left out: too little is selected of it"


def count_clients(plan: Plan) -> Iterator[str]:
    """Lines about federations with fewer clients than declared."""
    told = set()
    for names in plan.partitions():
        if manifest := seals.recall(plan.path("manifest", **names)):  # a damaged one is made again
            number = sum(group in CLIENTS for group in manifest["group"])
            asked = manifest["spec"]["partition"].get("num_clients")
            asked = asked or number + manifest.get("left_out", 0)
            name = f"{names['paper']}/{names['federation']}"
            if number < asked and name not in told:
                told.add(name)
                yield (
                    f"{name}: {number} of {asked} clients; the others would have too few examples "
                    "to train and to be tested, and are left out"
                )
