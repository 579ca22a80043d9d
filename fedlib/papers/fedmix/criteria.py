"""Acceptance criteria of FedMix: the targets of section 9 of its specification, `README.md`.

For the paper's "clearly" and "the same" the rows of `criteria.csv` have 2 points, for its 3.2
points on FEMNIST 5, and for most clients of a permutation half of them (section 7.2): all ours. At
scale demo, digits replace the paper's data sets.
"""

from fedlib.papers._criteria import Acceptance, Case, cell
from fedlib.papers._frame import Settings
from fedlib.papers.fedmix.settings import AVERAGED

MEAN = {"metric": "accuracy_client_mean"}
NEW_SHARD = {"protocol": "new_shard"}  # pooled: all examples of the shard have equal weights
NUMBERS = {  # other names of numbers are metrics
    "table1": MEAN,
    "known": MEAN,
    "finetuned": {**MEAN, "protocol": "finetuned"},
    "new_shard": NEW_SHARD,
    "f-known": {**MEAN, "split": "val"},
    "f-new_shard": {"metric": "accuracy", **NEW_SHARD},
    "f-new_shard_vae": {"metric": "accuracy", "protocol": "new_shard_vae"},
}
STAND_INS = {
    **{"cifar10": "digits", "angled-mnist-labels": "angled-digits-labels"},
    **{"permuted-cifar10": "permuted-digits", "two-shard-mnist": "two-shard-digits"},
}


def cases(settings: Settings, of: str) -> list[Case]:
    """The paper's federation, or its stand-in if the scale has that one alone."""
    names = {setting.data.name for setting in settings}
    stand_in = STAND_INS.get(of, of)
    return [Case(stand_in if stand_in in names and of not in names else of)]


def number(_: object, federation: str, label: str, name: str) -> dict:
    """A number with the published one, if it is in Table 1 or appendix F."""
    about = NUMBERS.get(name, {"metric": name})
    printed = None
    if name == "table1" and federation in AVERAGED:
        about = {**about, "at": "round", "averaged": AVERAGED[federation]}
    if name == "table1" and federation in ("cifar10", "cifar100", "femnist"):
        printed = ("table1", federation, label, MEAN["metric"])
    elif name.startswith("f-") and federation == "two-shard-mnist":
        printed = (f"appendix-f-{label}", "mnist", name.removeprefix("f-"), about["metric"])
    return cell(federation, label, printed, **about)


ACCEPTANCE = Acceptance(cases, number, published="table1")
