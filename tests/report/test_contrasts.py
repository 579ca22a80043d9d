"""Tables of methods that choose by validation, over several federations: what they show."""

import made_up
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import footer
from matplotlib.transforms import Bbox
from pictures import faults

from fedlib.report.figures import labels, who_loses
from fedlib.report.metrics import TRAFFIC
from fedlib.report.tables import claims

NAMES = ("a", "b", "c", "d")
DATASETS = {"a": "digits", "b": "digits", "c": "mnist", "d": "mnist"}
TITLES = {"local": "Local", "fedavg": "FedAvg", "plus": "Plus", "moe": "MoE"}
ROWS = [
    *({"title": TITLES[label], "labels": [label]} for label in ("local", "fedavg", "plus")),
    {"title": "Pick", "labels": ["local", "fedavg", "plus"], "pick": True},
    {"title": "MoE", "labels": ["moe"], "protocol": "moe"},
]
LABELS = ("local", "fedavg", "plus", "moe")
# Test accuracies of the two clients of a federation, by run; validation is as the number of errors.
TEST = {"local": (0.6, 0.9), "fedavg": (0.7, 0.5), "plus": (0.8, 0.7), "moe": (0.9, 0.9)}
VAL = {"local": (0.1, 0.9), "fedavg": (0.2, 0.1), "plus": (0.9, 0.2), "moe": (0.9, 0.9)}


def frames(shift=0.0):
    """Metrics and clients; every federation is like the others, but for `shift` by its number."""
    rows, clients = [], []
    for number, name in enumerate(NAMES):
        for label in LABELS:
            protocol = "moe" if label == "moe" else "default"
            for seed in (1, 2):
                about = {"paper": "p", "federation": name, "label": label, "seed": seed, "round": 2}
                seen = {**about, "at": "last", "group": "seen", "protocol": protocol}
                value = float(np.mean(VAL[label]))
                rows.append({**seen, "split": "val", "metric": "accuracy", "value": value})
                sent = {**about, "at": "last", "metric": "bytes", "value": 2e6, **TRAFFIC._asdict()}
                rows += [sent, {**sent, "metric": "flops", "value": 3e9}]
                for split, found in (("test", TEST), ("val", VAL)):
                    if split == "test" and label != "fedavg":  # which was evaluated long ago
                        errors = {"ece": 0.042, "ece_by_chance": 0.011}
                        rows += [
                            {**seen, "split": split, "metric": name, "value": value}
                            for name, value in errors.items()
                        ]
                    for client, accuracy in enumerate(found[label]):
                        more = shift * number * (label == "plus") * (split == "test")
                        one = {"split": split, "client": client, "accuracy": accuracy + more}
                        scores = {"count": 100, "loss": 2 * accuracy, "brier": accuracy}
                        clients.append({**seen, **one, **scores})
    return pd.DataFrame(rows), pd.DataFrame(clients)


def exhibit(**changes):
    data = [
        made_up.federation(name, f"Title {name}", family=name, dataset=DATASETS[name])
        for name in NAMES
    ]
    runs = made_up.runs(LABELS, data, 2, dict.fromkeys(LABELS, "fedavg"))
    about = {"paper": "p", "name": "x", "federations": data, "runs": runs}
    return made_up.exhibit([], (), **about | changes)


def built(kind, made=None, **fields):
    made = frames() if made is None else made
    return made_up.build(kind, exhibit(), *made, None, rows=ROWS, **fields)


def test_a_method_shows_its_run_and_clients_pick_for_themselves():
    numbers = built("standings", alone="Local").numbers
    found = numbers[numbers["federation"] == "a"].set_index("title")
    # The first client picks Plus, the second Local: 0.8 and 0.9.
    assert found["mean"].round(6).to_dict() == {
        **{"Local": 0.75, "FedAvg": 0.6, "Plus": 0.75, "Pick": 0.85, "MoE": 0.9}
    }
    assert found["bytes"].tolist() == [2e6, 2e6, 2e6, 6e6, 2e6]
    assert found["worst_tenth"].round(6).tolist() == [0.6, 0.5, 0.7, 0.8, 0.9]


def test_a_client_is_hurt_if_it_is_below_local_by_more_than_chance():
    numbers = built("standings", alone="Local").numbers
    found = numbers[numbers["federation"] == "a"].set_index("title")["hurt"]
    # The second client has 0.9 alone, 0.5 and 0.7 otherwise; an error is 0.06 of 100 examples.
    assert found.to_dict() == {"Local": 0, "FedAvg": 0.5, "Plus": 0.5, "Pick": 0, "MoE": 0}


def test_contrasts_are_of_federations_and_have_a_row_for_each_pair():
    fields = {"of": ["MoE", "Local"], "against": ["Plus", "Pick"], "registered": "Fixed."}
    sheet = built("contrasts", **fields)
    assert [block.heading for block in sheet.blocks] == ["Against Plus", "Against Pick"]
    found = sheet.numbers.set_index(["against", "title"])
    assert found["federations"].tolist() == [4] * 4
    assert found["median"].round(6).tolist() == [0.15, 0, 0.05, -0.1]
    # Four federations that all agree: better, but of no interval.
    assert found.loc[("Plus", "MoE"), "verdict"] == "clear"
    assert found.loc[("Plus", "Local"), "verdict"] == "equal"
    assert found["low"].isna().all()
    figure = made_up.draw(
        "contrast_points",
        exhibit(),
        *frames(),
        None,
        rows=ROWS,
        of=fields["of"],
        against=fields["against"],
    )
    assert [axes.get_title() for axes in figure.axes] == ["Against Plus", "Against Pick"]
    assert "fewer than six federations" in footer(figure)


def test_claims_are_judged_together():
    medians, ps = [0.1, -0.1, 0.1, 0.1, np.nan], [0.01, 0.012, 0.03, 0.04, np.nan]
    found = claims.judged(pd.DataFrame({"median": medians, "p": ps}))
    assert found["p_holm"][:4].tolist() == pytest.approx([0.04, 0.04, 0.06, 0.06])
    verdicts = ["holds", "reversed", "undecided", "undecided", "not tested"]
    assert found["verdict"].tolist() == verdicts


# -- accuracy against costs ------------------------------------------------------------------------

SENT = {"local": 0.0, "fedavg": 2e6, "plus": 4e6, "moe": 4e6}


def pareto(sent=None, **changes):
    """The figure if every run has sent so much."""
    rows, clients = frames()
    bytes_of = rows["label"].map(SENT if sent is None else sent)
    rows["value"] = rows["value"].where(rows["metric"] != "bytes", bytes_of)
    fields = {"rows": ROWS, "against": "FedAvg", **changes}
    return made_up.draw("pareto", exhibit(), rows, clients, None, **fields)


def test_the_front_joins_what_nobody_beats_at_the_same_cost_or_less():
    figure = pareto()
    sent, computed = figure.axes
    points = {line.get_label(): line.get_xydata()[0] for line in sent.get_lines()}
    # MoE sends twice as much as FedAvg, and where clients pick both are sent.
    assert points["MoE"] == pytest.approx([2, 0.9])
    assert points["Pick"] == pytest.approx([3, 0.85])
    bold = {text.get_text() for text in sent.texts if text.get_fontweight() == "bold"}
    assert bold == {"MoE"}  # FedAvg and Plus are below Local, which sends nothing
    assert "Dotted: the best that sends nothing (Local)" in footer(figure)
    bold = {text.get_text() for text in computed.texts if text.get_fontweight() == "bold"}
    assert bold == {"MoE"}  # of equal costs the best
    assert faults(figure) == []


def test_costs_are_multiples_of_another_method_where_that_one_was_not_run():
    assert "multiples of those of FedAvg" in footer(pareto(against="Ditto"))
    assert not pareto(dict.fromkeys(SENT, 0.0)).axes[0].texts  # nobody sends anything


@settings(deadline=None)  # of a wall clock, which other work makes slow
@given(st.lists(st.tuples(st.floats(0, 475), st.floats(0, 176)), min_size=1, max_size=5))
def test_names_lie_on_no_point_and_on_no_other_name_if_there_is_room(points):
    size, name = (475, 176), "FedAvg"
    panel = Bbox([(0, 0), size])
    found = labels.places(np.array(points), [name] * len(points), size)
    boxes = []
    for number, offset in found.items():
        free = dict(labels.candidates(np.array(points[number]), name))[offset]
        assert labels.inside(panel, free) and not free.count_overlaps(boxes)
        boxes.append(free)


# -- who loses -------------------------------------------------------------------------------------


def test_slices_are_means_of_equal_parts_of_the_sorted_gains():
    found = who_loses.sliced(pd.Series(np.arange(40.0)[::-1]))
    assert found[:-1].tolist() == [2 * number + 0.5 for number in range(20)]
    assert np.isnan(found[-1])  # the gap
    # Of 30 clients a slice has one and a half.
    assert who_loses.sliced(pd.Series(np.arange(30.0)))[:2] == pytest.approx([1 / 3, 5 / 3])


def test_heads_are_turned_where_there_are_too_many_for_their_words():
    shown = exhibit()
    for federation in shown["federations"]:
        federation["title"] = "EMNIST, incomprehensibilities-everywhere"
    figure = made_up.draw("who_loses", shown, *frames(), None, rows=ROWS, alone="Local")
    assert {label.get_rotation() for label in figure.axes[0].get_xticklabels()} == {90}
    assert faults(figure) == []
