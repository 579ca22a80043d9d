"""What tables and figures refuse: fields that cannot be shown, and runs that lack what is shown."""

import made_up
import pytest

from fedlib.errors import ConfigError, DataError
from fedlib.spec.exhibits import KINDS

ROWS = {"rows": [{"title": "FedAvg", "labels": ["fedavg"], "home": []}]}
LACKING = [
    ("accuracy_over_bytes", {"protocol": "x"}, "emnist/fedavg was not evaluated with the protocol"),
    ("client_matrices", {}, "emnist/fedavg has no cluster of every client; its method does"),
    ("cluster_usage", {}, "emnist/fedavg has no choice"),
    ("cost_to_target", {"targets": {"emnist": 0.1}}, "emnist/fedavg has no flops until the target"),
    ("expert_weights", {}, "emnist/fedavg has no local_weight_bins_0"),
    ("gate_weights", {}, "emnist/fedavg have no gate_weights_0 to gate_weights_3"),
    ("gradient_divergence", {}, "emnist/fedavg recorded no divergence in any round"),
    ("label_leakage", {}, "emnist/fedavg has no labels_0, labels_1, ..."),
    ("learned_alpha", {}, "emnist/fedavg recorded no alpha in any round"),
    ("protocol_grid", {"protocols": [{"name": "x"}]}, "evaluated with the protocol 'x'"),
    ("regret", ROWS, "emnist/fedavg has no regret"),
    ("representations", {"kinds": ["r"]}, "recorded no representations"),
    ("server_size", {}, "emnist/fedavg has no server_parameters"),
    ("tables_over_time", {}, "emnist/fedavg recorded no table in any round"),
    ("tuning", {}, "emnist/fedavg is not tuned"),
]


@pytest.mark.parametrize(("kind", "params", "lacking"), LACKING)
def test_a_run_that_lacks_what_is_shown_is_named(kind, params, lacking):
    exhibit = made_up.exhibit(["fedavg"], ["emnist"], seeds=[1])
    exhibit["runs"] = [{**run, "params": {"num_experts": 3}} for run in exhibit["runs"]]
    history = made_up.run("fedavg", "fedavg", 1)["history"]
    frames = made_up.collect(exhibit, lambda run, seed: (history,))
    make = made_up.build if kind in KINDS["table"] else made_up.draw
    with pytest.raises(DataError) as error:
        make(kind, exhibit, *frames, None, **params)
    assert lacking in str(error.value)


SERVED = {"federation": "emnist", "title": "M"}
BARS = {
    "pairs": [{"below": "emnist", "above": "cifar10"}],
    "bars": [{"metric": "accuracy", "title": "Accuracy"}],
    "names": ["below", "above"],
}
WAYS = [{"name": "moe"}, {"name": "local"}]
SWEPT = {"parameter": "partition.alpha", "of": "federation", "protocols": WAYS}
SWEPT["variants"] = {"parameter": "method", "values": [{"value": "x", "title": "x"}]}
REFUSED = [
    ("accuracy_over_rounds", {"metric": "loss"}, "or accuracy_client_mean, got 'loss'"),
    ("accuracy_over_rounds", {"group": "probe"}, "group must be seen or unseen or server, got"),
    ("client_accuracy_cdf", {"variants": {}}, "give protocols and variants together"),
    ("cost_to_target", {"targets": {}}, r"number in \(0, 1\] for emnist"),
    ("gain_bars", BARS | {"pairs": [{"below": "x"}]}, "each of pairs has below and above"),
    ("gain_bars", BARS | {"bars": [{"metric": "loss"}]}, "each of bars has metric and title"),
    ("gain_bars", BARS | {"names": ["one"]}, "names are of what is below and above, got"),
    ("views", {"columns": [{"title": "A"}, {"title": "A"}]}, "different ones, got .*A.*A"),
    ("gain_bars", BARS | {"bars": [{"metric": "x", "title": "B"}]}, "metric of a bar must be"),
    ("global_accuracy", {"columns": [{"title": "M"}]}, "each of columns has federation and title"),
    (
        "global_accuracy",
        {"columns": [SERVED | {"metric": "x"}]},
        "metric of the column 'M' must be",
    ),
    ("global_accuracy", {"columns": [SERVED], "rows": [{"title": "A"}]}, "each of rows has label"),
    ("protocol_grid", {"protocols": [{"title": "x"}]}, "has name, maybe key, title; got {'title'"),
    ("protocol_grid", {"protocols": ["moe"]}, "has name, maybe key, title; got 'moe'"),
    ("protocol_sweep", SWEPT | {"panels": "run"}, "panels must be federation or variant, got"),
    ("protocol_sweep", SWEPT, "does not state method"),
    ("protocol_sweep", SWEPT | {"of": "data"}, "of must be run or federation, got 'data'"),
    ("views", {"columns": [{"title": "A", "group": "x"}]}, "group of the column 'A' must be seen"),
]


@pytest.mark.parametrize(("kind", "params", "complaint"), REFUSED)
def test_fields_that_cannot_be_shown_are_refused_before_anything_is_read(kind, params, complaint):
    exhibit = made_up.exhibit(["fedavg"])
    make = made_up.build if kind in KINDS["table"] else made_up.draw
    with pytest.raises(ConfigError, match=complaint):
        make(kind, exhibit, None, None, None, **params)
