"""What a run costs: counted examples, measured operations, and the table of both."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import toy_run
from support import sgd, silently, simulation_of, toy_federation
from test_simulate import simulation
from torch import nn

from fedlib import methods, tree
from fedlib.engine.task import Task
from fedlib.errors import DataError
from fedlib.models import char_lstm, linear, mlp
from fedlib.models.layers.network import Network
from fedlib.report.metrics.tidy import run_rows
from fedlib.results import RunResult
from fedlib.run import evaluate, operations
from fedlib.run.build import build_simulation
from fedlib.run.checkpoint import Checkpoints
from fedlib.run.evaluate import evaluate_state
from fedlib.run.simulate import Course
from fedlib.run.train import train

FEATURES, HIDDEN, CLASSES = 4, 6, 3
BODY, HEAD = FEATURES * HIDDEN, HIDDEN * CLASSES  # multiply-adds of the layers of the MLP
FORWARD = BODY + HEAD
STEP = 3 * FORWARD - BODY  # forward, both gradients of the head, the weights' of the first layer


def small(name, model="mlp", sizes=(7, 12, 6, 10), federation=None, local=None, **params):
    """A run of a method with an MLP or a linear model, two rounds."""
    builds = {
        "mlp": lambda: mlp.build(FEATURES, HIDDEN, CLASSES),
        "linear": lambda: linear.build(FEATURES, CLASSES),
    }
    task = Task(builds.get(model, model))
    method = methods.load(name)(task=task, local=local or sgd(), **params)
    return simulation_of(method, federation or toy_federation(sizes), rounds=2)


def measured(run) -> float:
    """Multiply-adds per example of a run's first state."""
    return operations.flops_per_example(run, run.init()) / 2


# -- examples -----------------------------------------------------------------------------


def test_a_round_counts_the_examples_of_everybodys_local_steps():
    _, result = silently(small("fedavg", local=sgd(batch_size=4, epochs=3, drop_last=True)))
    # Clients of 7, 12 and 6 examples train; of each, whole batches of 4 in each of 3 epochs.
    a_round = 3 * (4 + 12 + 4)
    assert result.examples.tolist() == [0, a_round, 2 * a_round]
    assert result.client_rounds.tolist() == [0, 3, 6]


# -- operations ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedavg", "local", "fedavg_plus", "clustered"])
def test_plain_training_costs_a_step(name):
    assert measured(small(name)) == STEP
    assert measured(small(name, "linear")) == 2 * FEATURES * CLASSES  # no input gradient at all


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("fedprox", {"mu": 0.5}, STEP),
        ("pfedme", {"mu": 0.5}, STEP),
        ("l2sgd", {"p": 0.5, "lam": 0.1}, STEP),
        ("qffl", {}, STEP + FORWARD),  # the loss of the received model
        ("apfl", {}, 2 * STEP),
        ("afl", {}, STEP),
        ("fedem", {"num_experts": 3}, 3 * (STEP + FORWARD)),
        # The E-step of one body and three heads; then as STEP.
        ("pfedmm", {"num_experts": 3}, (BODY + 3 * HEAD) + 2 * BODY + 3 * 3 * HEAD),
        *(  # the choice among all models, if there is one; the check is an evaluation
            ("ifca", {"num_experts": n, "stop_every": 1, "cluster_init": "full"}, expected)
            for n, expected in ((1, STEP), (2, STEP + 2 * FORWARD), (3, STEP + 3 * FORWARD))
        ),
        ("pfedme_moreau", {"lam": 5.0, "inner_lr": 0.1, "inner_steps": 2}, 2 * STEP + FORWARD),
        ("fd", {}, STEP + CLASSES**2),  # to add the logits to those of the example's class
        ("fedproto", {}, STEP + BODY),  # the representations, once more after training
        ("fedgh", {}, STEP + BODY),
        ("fedtgp", {"server_epochs": 1}, STEP + BODY),  # the server's work is not counted
    ],
)
def test_what_methods_add_to_a_step(name, params, expected):
    assert measured(small(name, **params)) == expected


def test_a_decentralised_run_is_measured_whatever_its_graph():
    run = small("fedavg", sizes=(7, 12, 6, 10, 9, 8))
    gossip = Course(rounds=2, seed=0, aggregation="gossip", edge_probability=0.6)
    assert measured(replace(run, course=gossip)) == STEP


def test_a_cluster_without_one_of_the_measured_clients_costs_nothing():
    run = small("clustered")
    start = run.init()
    models = tree.map(lambda x: x.expand(3, *x.shape[1:]), start.models)
    # The smallest seen clients are the third and the first.
    for cluster in ([0, 1, 2, 0], [2, 1, 0, 0], [1, 0, 2, 0]):
        state = start._replace(models=models, cluster=torch.tensor(cluster))
        assert operations.flops_per_example(run, state) / 2 == STEP


def test_an_evaluation_stores_what_was_measured(tmp_path):
    model = {"in_features": FEATURES, "hidden": HIDDEN, "num_classes": CLASSES}
    local = {"solver": "sgd", "lr": 0.05, "batch_size": 4}
    fedem = {"label": "fedem", "params": {"num_experts": 2}}
    declared = toy_run(**fedem, model_params=model, rounds=2, local=local).spec(seed=3)
    run = build_simulation(declared, toy_federation())
    files = {"state_file": tmp_path / "state.pt", "history_file": tmp_path / "history.h5"}
    checkpoints = Checkpoints(tmp_path / "checkpoints", {}, every=60)
    train(run, declared, {}, **files, checkpoints=checkpoints, report=lambda line: None)
    asked = replace(declared, views=[], predictions=[])
    evaluate_state(run, asked, {}, **files, measure=operations.measure).save(
        tmp_path / "evaluation.h5"
    )
    stored = RunResult.load(tmp_path / "evaluation.h5").diagnostics
    assert stored["flops_per_example"].tolist() == [2 * 2 * (STEP + FORWARD)]
    assert stored["pi"].shape == (4, 2)
    rows = run_rows(*(RunResult.load(tmp_path / f"{n}.h5") for n in ("history", "evaluation")))
    total = rows[rows["metric"] == "flops"]["value"].item()
    assert total == 2 * (7 + 12 + 6) * stored["flops_per_example"][0]  # two rounds, three clients


def test_the_personal_stage_costs_its_examples_times_what_was_measured_of_one_client():
    """Linear models of D inputs and L outputs: a step is forward and the gradient of the weights.

    Nobody needs the inputs' gradient. A mixture has J = 2 shared experts and a local one, and a
    gate of 3 outputs. Frozen experts predict with their heads, which is all of a linear one.
    """
    linear_task = Task(lambda: linear.build(FEATURES, CLASSES))
    gate = Task(lambda: linear.build(FEATURES, 3))
    experts = methods.load("adaptive_experts")(
        **{"task": linear_task, "expert": linear_task, "gate": gate, "local": sgd(batch_size=4)},
        **{"num_experts": 2, "cluster_init": "full", "gate_only": True, "personal_clients": 2},
        **{"stop_split": "test"},
        **{"local_lr": 0.1, "gate_lr": 0.1, "local_epochs": 3, "local_check_every": 1},
        **{"gate_epochs": 2, "gate_check_every": 1, "expert_set": "all"},
    )
    run = simulation_of(experts, toy_federation((7, 12, 6, 10)), rounds=2)
    state, history = silently(run)
    views = [("seen", "moe", "test"), ("seen", "finetuned", "test")]
    found = evaluate.final(experts, state, lambda group: run.everyone(group, 2), views=views)
    shards = 7 + 12
    examples = {"settle": 3 * shards, "finetuned": 3 * shards, "moe": 2 * shards}
    trained = {n.removeprefix("examples_"): a.tolist() for n, a in found.diagnostics.items()
               if n.startswith("examples_")}  # fmt: skip
    assert trained == {name: [number] for name, number in examples.items()}
    measured = operations.measure(run, state, found)
    forward, of_gate = FEATURES * CLASSES, FEATURES * 3
    flops = {"settle": 4 * forward, "finetuned": 4 * forward, "moe": 4 * of_gate + 3 * 2 * forward}
    assert {name: measured[f"flops_per_example_{name}"] for name in flops} == flops
    arrays = {name: np.array([number]) for name, number in measured.items()}
    rows = run_rows(history, replace(found, diagnostics=found.diagnostics | arrays))
    rows = rows.set_index("metric")["value"]
    assert rows["personal_examples"] == sum(examples.values())
    assert rows["personal_flops"] == sum(examples[name] * flops[name] for name in flops)
    nothing = evaluate.final(experts, state, lambda group: run.everyone(group, 2), views=[])
    assert not {"personal_examples", "personal_flops"} & {*run_rows(history, nothing).metric}


def test_a_fine_tuning_is_measured_as_it_is():
    run = small("fedavg_plus")
    views, (state, _) = [("seen", "fresh", "test")], silently(run)
    found = evaluate.final(run.method, state, lambda group: run.everyone(group, 2), views=views)
    assert operations.measure(run, state, found)["flops_per_example_fresh"] == 2 * STEP


def test_clients_that_cannot_train_are_passed_over():
    run = small("fedavg", sizes=(0, 5, 7, 12, 6))  # nothing to train on
    assert measured(run) == STEP
    run = simulation(federation=toy_federation((5, 9, 8, 6)))  # batches of 4 leave one alone
    assert operations.flops_per_example(run, run.init()) > 0
    lonely = simulation(federation=toy_federation((5, 9, 6)))
    with pytest.raises(DataError, match="none of the 2 seen clients has the examples"):
        operations.flops_per_example(lonely, lonely.init())


# -- the counter --------------------------------------------------------------------------


def counted(module, x) -> int:
    """Operations of a forward and backward pass; `x` needs no gradient."""
    with operations.Operations() as counter:
        module(x).sum().backward()
    return counter.flops


@pytest.mark.parametrize(
    ("channels", "groups", "stride"), [(8, 1, 1), (8, 1, 2), (8, 8, 1), (12, 4, 2)]
)
def test_convolutions_cost_the_same_in_each_of_three_passes(channels, groups, stride):
    first = nn.Conv2d(5, 8, 1)
    second = nn.Conv2d(8, channels, 3, groups=groups, stride=stride, padding=1)
    side = 6 // stride
    macs = 2 * 36 * 8 * 5, 2 * side**2 * channels * (8 // groups) * 9  # of a batch of 2
    x = torch.randn(2, 5, 6, 6)
    assert counted(nn.Sequential(first, second), x) == 2 * (2 * macs[0] + 3 * macs[1])


def test_fused_attention_is_counted():
    class Attention(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(*[x[:, None]] * 3)[:, 0]

    def build():
        return Network([nn.Linear(FEATURES, HIDDEN), Attention()], nn.Linear(HIDDEN, CLASSES))

    # Two products of a text of one token, each with two gradients.
    assert measured(small("fedavg", build)) == STEP + 3 * 2 * HIDDEN


class Recurrent(nn.LSTM):
    def forward(self, x):
        return super().forward(x)[0]


SQUARE = FEATURES**2  # multiply-adds of a square layer
FUSED = [  # its forward pass, and what nobody needs: the gradient of what it is given
    (Recurrent, (FEATURES, FEATURES), 8 * SQUARE, 0),  # which this one computes
    # Projections, two products of one token, and two layers.
    (nn.TransformerEncoderLayer, (FEATURES, 2, FEATURES), 6 * SQUARE + 2 * FEATURES, 3 * SQUARE),
]


@pytest.mark.parametrize(("layer", "sizes", "forward", "spared"), FUSED)
def test_torchs_fused_layers_are_counted_in_training_and_in_scoring(layer, sizes, forward, spared):
    def build():
        fused = layer(*sizes, dropout=0.0, batch_first=True)
        body = [nn.Unflatten(1, (1, FEATURES)), fused, nn.Flatten()]
        return Network(body, nn.Linear(FEATURES, CLASSES))

    forward += FEATURES * CLASSES
    assert measured(small("fedavg", build)) == 3 * forward - spared
    assert measured(small("qffl", build)) == 4 * forward - spared  # the loss of the received model


def test_recurrent_layers_are_counted():
    length, embedding, hidden = 5, 3, 4
    federation = toy_federation((4, 6, 5), features=1)
    draw = np.random.default_rng(0)
    x, y = (draw.integers(0, CLASSES, (len(federation.x), length)) for _ in range(2))
    federation = replace(federation, x=x.astype(np.float32), y=y)
    run = small(
        "fedavg", lambda: char_lstm.build(CLASSES, embedding, hidden, 2), federation=federation
    )
    gates = 4 * hidden
    inputs, recurrent = gates * embedding + gates * hidden, 2 * gates * hidden  # of two layers
    forward = length * (inputs + recurrent + hidden * CLASSES)
    # Of the gradients, nobody needs that of the zeros that both layers start from. That of the
    # embedding is needed: it is trained.
    assert measured(run) == 3 * forward - recurrent
