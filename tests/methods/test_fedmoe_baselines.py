"""Mixtures that are trained by their examples, against loops and the methods they extend."""

from dataclasses import replace

import every_method
import pytest
import torch
from reference import Mixture, batches, cross_entropy_of, descend, descent, learn, module_of, owned
from support import assert_close, cohort_of, sgd, tiny_task
from test_fedmoe import federation, run
from torch.nn.functional import cross_entropy

from fedlib import methods, tree
from fedlib.errors import DataError
from fedlib.methods.fedavg import FedAvg

SERVER = 4
SOLVER = {"solver": "sgd", "lr": 0.1, "batch_size": 5}


def make(name, experts, **params):
    gate = tiny_task(classes=experts, hidden=5)
    return methods.load(name)(task=tiny_task(), gate=gate, local=sgd(), **params)


@pytest.mark.parametrize("name", ["centmoe", "moe_fedavg"])
def test_experts_and_gate_learn_together_as_in_a_loop(name):
    method = make(name, 2, num_main=1, training_gate="soft", entropy_weight=0.1)
    data = federation()
    cohort = cohort_of(method.task, data, executor="batched")
    if name == "moe_fedavg":  # of one client, whose average it is
        cohort = replace(cohort.some([1]), aggregation="renormalised")
    after = method.round(method.init(data.num_clients, 0), cohort).model
    owner, stream = (SERVER, "server") if name == "centmoe" else (1, "fit")
    hand = Mixture(method, method.init(data.num_clients, 0).model)
    hand.learn(*owned(data, owner), method.local, 0, stream, owner)
    expected = hand.shared() | {"routed": tree.stack([*hand.experts().values()])}
    assert_close({key: after[key] for key in expected}, expected, 1e-10)  # float64


def test_a_server_alone_learns_the_same_from_any_clients():
    method, data = make("centmoe", 3), federation()
    states = [run(method, data, ids=ids, rounds=3) for ids in ([0], [1, 2])]
    assert_close(*states, 0)
    assert int(states[0].best.round) >= 1


def test_experts_of_a_mixture_begin_apart_and_the_first_one_where_fedavg_does():
    method = make("moe_fedavg", 2)
    model = method.init(6, 5).model
    first, second = tree.unstack(model["routed"])
    assert_close(first, method.task.init(5), 0)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(model["gate"][name], model["noise"][name]) for name in model["gate"])


def test_experts_of_a_uniform_mixture_take_from_all_clients_alike():
    method = make("uniform_mixture", 3, server=SOLVER, init_experts="independent", lam=0.25)
    data = federation()
    cohort = cohort_of(method.task, data)
    state = method.init(data.num_clients, 0)
    start = tree.take(state.models, cohort.host_ids)
    trained, _ = cohort.fit(method.task.loss, start, local=method.local, memory=state.memory)
    after = method.round(state, cohort).model["routed"]
    for name, old in state.model["routed"].items():
        mean = sum(model[name] for model in trained) / 3
        torch.testing.assert_close(after[name], 0.75 * old + 0.25 * mean, rtol=1e-12, atol=1e-12)


def test_a_copy_of_the_average_learns_on_the_server_and_clients_never_hear_of_it():
    method = methods.load("server_finetuning")(task=tiny_task(), local=sgd(), server=SOLVER)
    fedavg, data = FedAvg(task=method.task, local=method.local), federation()
    cohort = cohort_of(method.task, data)
    state = method.round(method.init(data.num_clients, 0), cohort)
    average = fedavg.round(fedavg.init(data.num_clients, 0), cohort).params
    assert_close(state.params, average, 0)
    module = module_of(method.task, average)
    examples = owned(data, SERVER)
    loss = cross_entropy_of(module)
    learn(module.parameters(), loss, *examples, method.server, 0, "server", SERVER)
    assert_close(state.best.params, dict(module.state_dict()), 1e-12)
    x, y = owned(data, SERVER, "val")
    assert state.best.loss.item() == pytest.approx(cross_entropy(module(x), y).item(), rel=1e-12)
    assert int(state.best.round) == 1


def test_a_tuned_copy_is_chosen_by_the_loss_of_evaluations_whatever_the_class_weights():
    task, data = replace(tiny_task(), class_weights=torch.tensor([0.1, 6.0, 0.1])), federation()
    method = methods.load("server_finetuning")(task=task, local=sgd(), server=SOLVER)
    best = run(method, data).best
    x, y = owned(data, SERVER, "val")
    expected = cross_entropy(module_of(task, best.params)(x), y).item()
    assert best.loss.item() == pytest.approx(expected, rel=1e-12)


def test_a_tuned_copy_needs_validation_examples_too():
    method = methods.load("server_finetuning")(task=tiny_task(), local=sgd(), server=SOLVER)
    with pytest.raises(DataError, match="no validation examples, by which its model is chosen"):
        run(method, federation(owned=(12, 0, 8)))


def test_an_ensemble_is_the_mean_of_what_clients_say_who_learned_alone():
    method, data = methods.load("ensemble")(task=tiny_task(), local=sgd()), federation()
    x, _ = owned(data, SERVER, "test")
    said = []
    for client in (0, 2):  # of whom the second takes part in two rounds
        module = module_of(method.task, method.task.init(0))
        solvers = [descent(module.parameters(), method.local)]
        for number in range(1 + (client == 2)):
            steps = batches(*owned(data, client), method.local, number, "fit", client)
            descend(solvers, steps, cross_entropy_of(module))
        said.append(module(x).softmax(-1))
    state = run(method, data, [[0, 2], [2]], executor="batched")
    server = cohort_of(method.task, data, [SERVER])
    found = server.score(method.predict, method.personalise(state, server), split="test")[0]
    assert_close(found, (sum(said) / 2).log().detach(), 1e-12)


# What a server keeps

# Of 4 features, 6 or 3 hidden units and 3 outputs, a scale and a shift of each unit included.
ONE = (4 * 6 + 6) + 2 * 6 + (6 * 3 + 3)
GATE = (4 * 3 + 3) + 2 * 3 + (3 * 3 + 3)


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("fedavg", {}, ONE),
        ("fedrolex", {}, ONE),
        ("server_finetuning", {}, 2 * ONE),
        ("ensemble", {}, 6 * ONE),  # of all owners
        ("moe_fedavg", {}, 3 * ONE + 2 * GATE),  # experts, gate and noise network
        ("fedjets", {}, 3 * ONE + 2 * GATE),
        ("centmoe", {}, 3 * ONE + 2 * GATE),
        ("fedmoe", {}, (3 + 1) * ONE + 2 * GATE + 1),  # and alpha
        ("fedmoe", {"num_main": 0}, 3 * ONE + 2 * GATE),
        ("local", {}, None),
    ],
)
def test_a_server_keeps_as_many_numbers_as_are_trained_of_its_models(name, params, expected):
    method = replace(every_method.make(name, norm=True), **params)
    assert method.server_parameters(method.init(6, 0)) == expected
