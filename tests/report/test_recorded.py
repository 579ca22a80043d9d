"""Kinds that show what only some methods record: a run that lacks it is named, and not drawn."""

import made_up
import pytest

from fedlib.errors import DataError

REGRET = {"rows": [{"title": "FedAvg", "labels": ["fedavg"], "home": []}]}
LACKING = {
    "client_matrices": ({}, "emnist/fedavg has no cluster of every client; its method does"),
    "cluster_recovery": ({}, "emnist/fedavg has no pi_0, pi_1, ... of every client"),
    "cluster_usage": ({}, "emnist/fedavg has no choice"),
    "expert_weights": ({}, "emnist/fedavg has no local_weight_bins_0"),
    "gate_weights": ({}, "emnist/fedavg have no gate_weights_0 to gate_weights_3"),
    "gradient_divergence": ({}, "emnist/fedavg recorded no divergence in any round"),
    "label_leakage": ({}, "emnist/fedavg has no labels_0, labels_1, ..."),
    "learned_alpha": ({}, "emnist/fedavg recorded no alpha in any round"),
    "regret": (REGRET, "emnist/fedavg has no regret"),
    "representations": ({"kinds": ["r"]}, "recorded no representations"),
    "server_size": ({}, "emnist/fedavg has no server_parameters"),
    "tables_over_time": ({}, "emnist/fedavg recorded no table in any round"),
    "tuning": ({}, "emnist/fedavg is not tuned"),
}
TABLES = ("cluster_recovery", "learned_alpha", "server_size", "tuning")


@pytest.mark.parametrize("kind", LACKING)
def test_a_run_that_lacks_what_is_shown_is_named(kind):
    params, lacking = LACKING[kind]
    exhibit = made_up.exhibit(["fedavg"], ["emnist"], seeds=[1])
    exhibit["runs"] = [{**run, "params": {"num_experts": 3}} for run in exhibit["runs"]]
    frames = made_up.collect(exhibit, lambda run, seed: made_up.run("fedavg", "fedavg", 1).values())
    make = made_up.build if kind in TABLES else made_up.draw
    with pytest.raises(DataError) as error:
        make(kind, exhibit, *frames, None, **params)
    assert lacking in str(error.value)
