"""The figure of who owns what: from manifests, with the clients that a partition left out."""

import json
from pathlib import Path

import commands
import made_up
import numpy as np
import pytest
from made_up import footer
from pictures import faults

from fedlib.errors import DataError
from fedlib.federation import GROUPS, Federation, Split
from fedlib.report.figures import saving
from fedlib.workflow import freshness
from fedlib.workflow.plan import Plan

NUMBERS = {"paper": "adaptive_experts", "figure": "client_labels"}


def manifest(owned, groups, classes=3, **partition) -> dict:
    """Of clients with these labels to train on and to be tested on: [(train, test), ...]"""
    labels = [x for client in owned for part in client for x in part]
    rows = iter(
        np.split(np.arange(len(labels)), np.cumsum([len(p) for c in owned for p in c])[:-1])
    )
    train, test = zip(*[(next(rows), next(rows)) for _ in owned], strict=True)
    return Federation(
        x=np.zeros((len(labels), 1), np.uint8),
        y=np.array(labels),
        num_classes=classes,
        train=Split.from_lists(train),
        val=Split.from_lists([[]] * len(owned)),
        test=Split.from_lists(test),
        group=np.array([GROUPS.index(x) for x in groups], np.uint8),
        client_id=np.arange(len(owned)),
        spec={"partition": partition},
    ).manifest()


def draw(*manifests, **changes):
    names = ("emnist", "cifar10", "cifar100")[: len(manifests)]
    exhibit = made_up.exhibit(["fedavg"], names, **changes)
    return made_up.draw("client_labels", exhibit, None, None, None, manifests)


OWNED = [([2, 2, 2], [2]), ([0, 0, 1], [1]), ([0, 0, 0], [0, 0]), ([1, 1], [1]), ([0] * 5, [1] * 7)]
SEEN = ["unseen", "seen", "seen", "seen", "server"]


def test_clients_are_in_the_order_of_their_commonest_class_and_unseen_ones_last():
    figure = draw(manifest(OWNED, SEEN, num_clients=4))
    sizes, shares = figure.axes
    [image] = shares.images
    expected = [[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]
    assert np.allclose(image.get_array(), np.transpose(expected))
    train, _, test = (
        np.diff([p.get_data().baseline, p.get_data().values], axis=0)[0] for p in sizes.patches
    )
    assert (train.tolist(), test.tolist()) == ([3, 3, 2, 3], [2, 1, 1, 1])
    assert [line.get_xdata()[0] for line in shares.lines] == [3.5]
    assert "Right of the upright line: clients that take no part in training." in footer(figure)


def test_a_few_clients_are_called_by_their_numbers_from_0_or_by_their_names():
    found = manifest(OWNED, SEEN, num_clients=4)
    named = found | {"client_name": ["e", "d", "c$", "b", "server"]}
    named["class_name"] = ["no", "perhaps", "yes"]
    for given, names in ((found, ["2", "1", "3", "0"]), (named, [r"c\$", "d", "b", "e"])):
        shares = draw(given).axes[1]
        assert shares.get_xticks().tolist() == [1, 2, 3, 4]
        assert [tick.get_text() for tick in shares.get_xticklabels()] == names
    assert [tick.get_text() for tick in shares.get_yticklabels()] == named["class_name"]


def test_clients_that_were_left_out_and_what_the_server_has_are_counted():
    whole, part = (manifest(OWNED, SEEN, num_clients=n) for n in (4, 9))
    figure = draw(whole, part)
    titles = [axes.get_title() for axes in figure.axes[:2]]
    assert titles[0] == "EMNIST\n4 clients; server: 12 examples"
    assert titles[1] == "CIFAR-10\n4 of 9 clients; server: 12 examples"
    assert "clients left without examples" in footer(figure)
    assert "clients left without examples" not in footer(draw(whole))


@pytest.mark.parametrize(("clients", "classes"), [(1, 2), (10, 10), (500, 62)])
def test_nothing_covers_anything_with_few_clients_and_with_many(tmp_path, clients, classes):
    rng = np.random.default_rng(0)
    owned = [(rng.integers(0, classes, n), [0]) for n in rng.integers(1, 90, clients)]
    one = manifest(owned, ["seen"] * clients, classes, num_clients=600)
    for number in (1, 3):
        figure = draw(*[one] * number)
        saving.save(figure, tmp_path / "x.png")
        assert not [*faults(figure)]


def test_the_figure_is_given_the_manifest_of_each_federation_of_its_first_seed():
    plan = Plan({"scale": "demo", "seeds": [3, 4]})
    spec = json.loads(plan.spec("figure", **NUMBERS))
    found = plan.shown_data(**NUMBERS)
    assert all(federation["per_seed"] for federation in spec["federations"])
    assert [Path(x).parent.name for x in found] == [x["name"] for x in spec["federations"]]
    assert {Path(path).name for path in found} == {"seed3.json"}
    assert f"--manifests {' '.join(found)}" in commands.command(plan, "figure", **NUMBERS)
    assert freshness.list_inputs(plan, "figure", NUMBERS)[-len(found) :] == found
    other = NUMBERS | {"figure": "gate_weights"}
    assert plan.shown_data(**other) == [] and "--manifests" not in commands.command(
        plan, "figure", **other
    )


def test_without_its_manifests_the_figure_says_what_it_lacks():
    with pytest.raises(DataError, match="a manifest of each of its 2 federations, got 0"):
        made_up.draw(
            "client_labels", made_up.exhibit(["fedavg"], ("emnist", "cifar10")), *[None] * 3
        )
