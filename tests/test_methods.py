"""The contract, on every method: what the engine, the evaluation and the workflow rely on."""

import re
from dataclasses import dataclass, fields, replace
from math import inf
from typing import ClassVar

import pytest
import torch
from support import (
    EXECUTORS,
    cohort_of,
    federation_for,
    modules_of,
    sgd,
    solver_of,
    tiny_task,
)

from fedlib import methods, tree
from fedlib.engine.solvers import Memory
from fedlib.methods.base import Method, Range
from fedlib.run import evaluate
from fedlib.run.scoring import during_training, score

# To add a method: its registry name and hyper-parameters, and what it sends per client and round
# as a function of the sizes of a whole model, its body and its head: (down, up) if these differ.
IFCA = {"num_experts": 3, "cluster_init": "full", "exploration": "eps", "epsilon": 0.3}
# The server's Adam moves a number by this much in a round: few rounds are to show something.
SERVER = {"server_lr": 0.1, "horizon": 2}
METHODS = {
    "adaptive_experts": (
        IFCA
        | {"stop_every": 1, "local_lr": 0.002, "gate_lr": 0.002, "both_mixtures": True}
        | {"local_epochs": 3, "local_check_every": 1, "gate_epochs": 3, "member": "last"},
        lambda model, body, head: (3 * model, model),
    ),
    "afl": ({"lr_lambda": 0.1}, lambda model, body, head: (model, model + 1)),
    "apfl": ({}, lambda model, body, head: model),
    # Of the head its bias is private, of the body its first layer of 4 x 6 weights and 6 biases.
    "biased_fedavg": (SERVER | {"private": "head.1.bias"}, lambda model, body, head: model - 3),
    "centmoe": ({}, lambda model, body, head: 0),
    "clustered": ({}, lambda model, body, head: model),
    "ensemble": ({}, lambda model, body, head: (0, model)),
    # The three clients hold 2, 3 and 3 classes; in the first round there is nothing to send them.
    "fd": ({}, lambda model, body, head: (0, 3 * 8 / 3)),
    # No hold-out of this size leaves one example alone in a batch.
    "fedapen": ({"holdout": 0.4, "lam_lr": 0.1}, lambda model, body, head: model),
    "fedavg": ({}, lambda model, body, head: model),
    "fedavg_adam": (SERVER, lambda model, body, head: model),
    "fedavg_plus": ({}, lambda model, body, head: model),
    "fedem": ({"num_experts": 3}, lambda model, body, head: 3 * model),
    "fedgh": ({}, lambda model, body, head: (head, 6 * 8 / 3)),
    # Three anchors of an expert each; gate and noise network as those of "moe_fedavg", and alpha.
    "fedjets": ({}, lambda model, body, head: model + 2 * (15 + 12 + 12) + 1),
    # Factors of matrices this small are more numbers; tests/test_mutual.py has larger ones.
    "fedkd": ({"horizon": 3}, lambda model, body, head: model),
    "fedmix": (SERVER | {"num_experts": 3}, lambda model, body, head: 3 * model + 3 * 3),
    "fedmix_clients": (
        SERVER | {"num_experts": 3, "gate_epochs": 2},
        lambda model, body, head: 3 * model,
    ),
    "fedmix_vae": (
        SERVER | {"num_experts": 3, "gate_epochs": 2, "vae_epochs": 2, "stop_split": "test"},
        lambda model, body, head: 3 * model + 3 * 3,
    ),
    "fedmoe": (
        {"server": {"solver": "sgd", "lr": 0.1, "batch_size": 5}, "lam": 0.5, "log_rounds": [1, 2]},
        lambda model, body, head: model,
    ),
    "fedprox": ({"mu": 0.5}, lambda model, body, head: model),
    "fedrep": ({}, lambda model, body, head: body),
    # A hidden layer of 4 of 6 units: its weights, normalisation and outputs.
    "fedrolex": ({}, lambda model, body, head: 4 * 4 + 4 + 4 * 4 + 4 * 3 + 3),
    "fedproto": ({"curves": ["nearest"]}, lambda model, body, head: (0, 6 * 8 / 3)),
    "fedtgp": ({"server_epochs": 2}, lambda model, body, head: (0, 6 * 8 / 3)),
    "fml": ({}, lambda model, body, head: model),
    "ifca": (IFCA | {"stop": "never", "horizon": 2}, lambda model, body, head: (3 * model, model)),
    "l2sgd": ({"p": 0.3, "lam": 0.1}, lambda model, body, head: model),
    "label_leakage": ({}, lambda model, body, head: model),
    "lg_fedavg": ({}, lambda model, body, head: head),
    "local": ({}, lambda model, body, head: 0),
    "local_experts": (
        {"max_epochs": 3, "check_every": 1, "keep": ["best", "last"], "at_once": 2},
        lambda model, body, head: 0,
    ),
    "local_global": (SERVER, lambda model, body, head: model - (4 * 6 + 6)),
    # Gate and noise network of 4 x 3 weights and 3 biases, batch normalisation of 4 x 3, then
    # 3 x 3 weights and 3 biases; alpha.
    "moe_fedavg": ({}, lambda model, body, head: 3 * model + 2 * (15 + 12 + 12) + 1),
    "pfedme": ({"mu": 0.5}, lambda model, body, head: model),
    "pfedme_moreau": ({"lam": 5.0, "inner_lr": 0.1}, lambda model, body, head: model),
    "pfedmm": ({"num_experts": 3}, lambda model, body, head: body + 3 * head),
    "pfedmoe": ({}, lambda model, body, head: body),
    "gated_experts": (
        {"num_experts": 3, "gate_features": 4},
        lambda model, body, head: 2 * model,
    ),
    # The gate sees the 6 features of the experts.
    "plain_mixture": (
        {"num_experts": 3, "table_rounds": [0, 2], "table_split": "train"},
        lambda model, body, head: 3 * model + (6 * 3 + 3),
    ),
    "qffl": ({"q": 0.1}, lambda model, body, head: (model, model + 1)),
    "server_finetuning": (
        {"server": {"solver": "sgd", "lr": 0.1, "batch_size": 5}},
        lambda model, body, head: model,
    ),
    "uniform_mixture": (
        {"server": {"solver": "sgd", "lr": 0.1, "batch_size": 5}, "lam": 0.5},
        lambda model, body, head: model,
    ),
}
NETWORKS = {"plain": {}, "norm and dropout": {"norm": True, "dropout": 0.3}}
# AdamW divides gradients by their size: of those that are 0 but for rounding, rounding decides.
LOOSER = {"adaptive_experts": 1e-7}
# Methods in which it is not the round's cohort that trains: all clients, or those who have yet to.
EVERYBODY = {"clustered", "local_experts"}
every_method = pytest.mark.parametrize("name", METHODS)


def make(name, **network):
    params = METHODS[name][0]
    modules = modules_of(name, params.get("num_experts", 1), **network)
    task, local = tiny_task(**network), solver_of(name)
    return methods.load(name)(task=task, local=local, **params, **modules)


def run(method, federation, *, executor="loop", rounds=2, ids=None, seed=0):
    state = method.init(federation.num_clients, seed)
    for number in range(rounds):
        cohort = cohort_of(method.task, federation, ids, executor=executor, round=number, seed=seed)
        state = method.round(state, cohort)
    return state


def prepared(method, state, federation, group, executor="loop"):
    """Every protocol of a group and its clients' predictors, after one evaluation."""
    cohort = cohort_of(method.task, federation, federation.ids(group), executor=executor, round=2)
    state = method.observe(state, cohort, group)
    return dict(evaluate.prepared(method, state, cohort, group))


def assert_close(a, b, tolerance):
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        if isinstance(x, torch.Tensor):
            torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)
        else:  # such as a client's task
            assert x is y


def same_bits(a, b):
    pairs = zip(tree.leaves(a), tree.leaves(b), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def test_every_registered_method_is_in_this_list():
    assert sorted(METHODS) == sorted(methods.METHODS)


def test_an_unknown_method_names_the_choices():
    with pytest.raises(KeyError, match="no method 'fedem2'; there are .*fedavg"):
        methods.load("fedem2")


@every_method
@pytest.mark.parametrize("network", NETWORKS)
def test_both_executors_give_the_same_state_and_predictors(name, network):
    # Float64: the executors sum in different orders, and batch normalisation amplifies that.
    method, federation = make(name, **NETWORKS[network]), federation_for(name)
    loop, batched = (run(method, federation, executor=e, rounds=3) for e in EXECUTORS)
    assert_close(loop, batched, 1e-10)
    for group in ("seen", "unseen"):
        assert_close(
            prepared(method, loop, federation, group, "loop"),
            prepared(method, loop, federation, group, "batched"),
            LOOSER.get(name, 1e-10),
        )


@every_method
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(name):
    method, federation = make(name, dropout=0.3), federation_for(name)
    first, again = run(method, federation), run(method, federation)
    assert all(
        torch.equal(a, b) for a, b in zip(tree.leaves(first), tree.leaves(again), strict=True)
    )
    other = run(method, federation, seed=100)
    assert any(
        not torch.equal(a, b) for a, b in zip(tree.leaves(first), tree.leaves(other), strict=True)
    )


@every_method
def test_the_order_of_the_cohort_does_not_matter(name):
    method, federation = make(name), federation_for(name)
    forwards = run(method, federation, ids=[0, 1, 2])
    backwards = run(method, federation, ids=[2, 1, 0])
    assert_close(forwards, backwards, 1e-12)


@every_method
def test_a_round_leaves_the_state_it_was_given_alone(name):
    method, federation = make(name, norm=True), federation_for(name)
    state = method.init(federation.num_clients, 0)
    before = tree.map(torch.clone, state)
    method.round(state, cohort_of(method.task, federation))
    assert all(
        torch.equal(a, b) for a, b in zip(tree.leaves(before), tree.leaves(state), strict=True)
    )


@every_method
def test_a_round_keeps_the_structure_shapes_and_types_of_the_state(name):
    method, federation = make(name, norm=True), federation_for(name)
    state = method.init(federation.num_clients, 0)
    after = run(method, federation)
    assert tree.flatten_with_structure(state)[1] == tree.flatten_with_structure(after)[1]
    for a, b in zip(tree.leaves(state), tree.leaves(after), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


@every_method
@pytest.mark.parametrize("group", ["seen", "unseen"])
def test_log_probabilities_are_normalised_under_every_protocol(name, group):
    method, federation = make(name), federation_for(name)
    state = run(method, federation)
    cohort = cohort_of(method.task, federation, federation.ids(group))
    for personal in prepared(method, state, federation, group).values():
        log_probs = cohort.score(method.predict, personal, split="test")
        total = log_probs.exp().sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("name", [name for name in METHODS if name not in EVERYBODY])
def test_partial_participation_leaves_the_others_private_state_alone(name):
    method, federation = make(name), federation_for(name, sizes=(7, 12, 6, 10, 9))
    state = method.init(federation.num_clients, 0)
    after = method.round(state, cohort_of(method.task, federation, [1, 3]))
    absent = torch.tensor([0, 2, 4])
    for field, value in state._asdict().items():
        if field in ("models", "private", "pi", "lam", "memory", "tuned", "tuning"):
            rows = Memory.of if isinstance(value, Memory) else tree.take
            assert_close(rows(value, absent), rows(getattr(after, field), absent), 0)


@every_method
def test_unseen_clients_never_influence_what_the_others_get(name):
    method, federation = make(name), federation_for(name)
    state = run(method, federation)
    unseen = cohort_of(method.task, federation, federation.ids("unseen"), round=2)
    observed = method.observe(state, unseen, "unseen")
    seen = cohort_of(method.task, federation, round=2)
    assert_close(method.personalise(state, seen), method.personalise(observed, seen), 0)


@every_method
def test_what_is_sent_is_what_the_paper_says(name):
    method, federation = make(name, norm=True), federation_for(name)
    cohort = cohort_of(method.task, federation)
    method.round(method.init(federation.num_clients, 0), cohort)
    body, head = method.task.split(method.task.init(0))
    sent = METHODS[name][1](tree.numel({**body, **head}), tree.numel(body), tree.numel(head))
    down, up = sent if isinstance(sent, tuple) else (sent, sent)
    assert (cohort.journal.down, cohort.journal.up) == (down, up)


@every_method
def test_training_lowers_the_loss(name):
    method, federation = make(name), federation_for(name, sizes=(20, 30, 25, 15))
    cohort = cohort_of(method.task, federation, executor="batched", round=8)

    def loss(state):
        return score(method, method.personalise(state, cohort), cohort, "train").loss.mean()

    start, _ = during_training(
        method,
        method.init(federation.num_clients, 0),
        lambda group: cohort if group == "seen" else None,
    )
    end = run(method, federation, executor="batched", rounds=8)
    end, _ = during_training(method, end, lambda group: cohort if group == "seen" else None)
    assert loss(end) < 0.8 * loss(start)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("fedprox", {"mu": -1.0}, "mu must be at least 0, got -1.0"),
        ("clustered", {"eps2": -1.6}, "eps2 must be at least 0, got -1.6"),
        ("clustered", {"variant": "mine"}, "variant must be one of .* got 'mine'"),
        ("fedem", {"num_experts": 0}, "num_experts must be at least 1, got 0"),
        ("l2sgd", {"p": 1.0}, r"p must be in \(0, 1\), got 1.0"),
        ("l2sgd", {"p": 0.1, "lam": 0.2}, r"lam must be in \[0, p\] = \[0, 0.1\], got 0.2"),
        ("pfedme", {"mu": -0.5}, "mu must be at least 0, got -0.5"),
        ("pfedme_moreau", {"lam": -1.0, "inner_lr": 0.1}, "lam must be at least 0, got -1.0"),
        ("pfedme_moreau", {"lam": 1.0, "inner_lr": 0.1, "inner_steps": 0}, "at least 1, got 0"),
        ("pfedmm", {"num_experts": 0}, "num_experts must be at least 1, got 0"),
        ("pfedmm", {"num_experts": 2, "prior": "flat"}, "prior must be one of .* got 'flat'"),
        ("pfedmm", {"num_experts": 2, "concentration": 0.5}, "at least 1, got 0.5"),
        ("pfedmm", {"num_experts": 2, "body_lr_scale": -1.0}, "at least 0, got -1.0"),
        ("apfl", {"alpha": 1.5}, r"alpha must be in \[0, 1\], got 1.5"),
        ("qffl", {"q": -1.0}, "q must be at least 0, got -1.0"),
        ("fd", {"lam": -1.0}, "lam must be at least 0, got -1.0"),
        ("fd", {"distillation": "kl"}, "distillation must be one of .* got 'kl'"),
        ("fedproto", {"lam": -1.0}, "lam must be at least 0, got -1.0"),
        ("fedproto", {"curves": ["mine"]}, r"curves must be of \['nearest'\], got \['mine'\]"),
        ("fedgh", {"server_lr": -0.1}, "lr must be at least 0, got -0.1"),
        ("fedgh", {"server_epochs": 0}, "epochs must be at least 1, got 0"),
        ("fedtgp", {"server_batch_size": 0}, "batch_size must be at least 1, got 0"),
        ("fedtgp", {"cap": -1.0}, "cap must be at least 0, got -1.0"),
        ("afl", {"lr_lambda": -1.0}, "lr_lambda must be at least 0, got -1.0"),
        ("fml", {"alpha": 1.5}, r"alpha must be in \[0, 1\], got 1.5"),
        ("fml", {"beta": -0.5}, r"beta must be in \[0, 1\], got -0.5"),
        ("fedkd", {"horizon": 0}, "horizon must be at least 1, got 0"),
        ("fedkd", {"horizon": 1, "first_energy": 0.0}, r"first_energy .* \(0, 1\], got 0.0"),
        ("fedkd", {"horizon": 1, "last_energy": 1.5}, r"last_energy .* \(0, 1\], got 1.5"),
        ("fedapen", {"holdout": 0.0}, r"holdout must be in \(0, 1\), got 0.0"),
        ("fedapen", {"holdout": 1.0}, r"holdout must be in \(0, 1\), got 1.0"),
        ("fedapen", {"lam_lr": -1.0}, "lr must be at least 0, got -1.0"),
        ("fedapen", {"lam_epochs": 0}, "epochs must be at least 1, got 0"),
        ("fedavg_adam", {"server_lr": -0.1}, "server's lr must be at least 0, got -0.1"),
        ("fedavg_adam", {"horizon": -1}, "horizon must be at least 0, got -1"),
        ("fedavg_adam", {"curves": ["new"]}, r"of \['finetuned', 'new_shard'\], got \['new'\]"),
        ("biased_fedavg", {}, r"bias of the head, \['head.1.bias'\], got 'head.bias'"),
        (
            "biased_fedavg",
            {"private": "head.1.bias", "new_client_epochs": 0},
            "new_client_epochs must be at least 1, got 0",
        ),
        ("local_global", {"private": "head"}, r"\['body.0', 'body.1'\], got 'head'"),
        ("local_global", {"new_client_epochs": 0}, "new_client_epochs must be at least 1, got 0"),
        ("fedmix_clients", {"num_experts": 0}, "num_experts must be at least 1, got 0"),
        ("fedmix_clients", {"num_experts": 2, "beta": 0.0}, "beta must be above 0, got 0.0"),
        ("fedmix_clients", {"num_experts": 2, "damping": 0.0}, r"in \(0, 1\], got 0.0"),
        ("fedmix_clients", {"num_experts": 2, "gate_epochs": 0}, "gate_epochs .* got 0"),
        ("plain_mixture", {"num_experts": 0}, "num_experts must be at least 1, got 0"),
        (
            "plain_mixture",
            {"num_experts": 2, "table_rounds": [2, 1]},
            r"must ascend from 0 or more, got \[2, 1\]",
        ),
        ("plain_mixture", {"num_experts": 2, "table_split": "test"}, "table_split .* got 'test'"),
        ("gated_experts", {"num_experts": 0, "gate_features": 4}, "num_experts .* got 0"),
        ("gated_experts", {"num_experts": 2, "gate_features": 0}, "gate_features .* got 0"),
    ],
)
def test_hyper_parameters_that_mean_nothing_are_refused_at_construction(name, params, message):
    with pytest.raises(ValueError, match=message):
        methods.load(name)(task=tiny_task(), local=sgd(), **params)


@dataclass(frozen=True, kw_only=True)
class Declaring(Method):
    mode: str = "fast"
    count: int = 1
    scale: float = 1.0
    share: float = 0.5
    decay: float | None = None

    choices: ClassVar = {"mode": ("fast", "slow")}
    ranges: ClassVar = {
        "count": Range(1),
        "scale": Range(0, ends="(]"),
        "share": Range(0, 1, "(]"),
        "decay": Range(0, 1, "[)"),
    }


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"mode": "mine"}, "mode must be one of ('fast', 'slow'), got 'mine'"),
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"count": None}, "count must be at least 1, got None"),
        ({"count": "two"}, "count must be at least 1, got 'two'"),
        ({"scale": 0}, "scale must be above 0, got 0"),
        ({"scale": float("nan")}, "scale must be above 0, got nan"),
        ({"share": 0.0}, "share must be in (0, 1], got 0.0"),
        ({"share": 1.2}, "share must be in (0, 1], got 1.2"),
        ({"decay": -0.1}, "decay must be in [0, 1), got -0.1"),
        ({"decay": 1}, "decay must be in [0, 1), got 1"),
    ],
)
def test_a_message_says_the_declared_choices_or_range_and_the_value(params, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Declaring(task=tiny_task(), **params)


def test_the_ends_of_a_range_belong_to_it_if_it_says_so():
    Declaring(task=tiny_task(), mode="slow", count=1, scale=inf, share=1, decay=0)


@every_method
def test_a_method_refuses_what_it_and_its_bases_declare_to_be_senseless(name):
    method = make(name)
    known = {field.name for field in fields(method)}
    for base in type(method).__mro__:
        assert vars(base).get("choices", {}).keys() <= method.choices.keys() & known
        assert vars(base).get("ranges", {}).keys() <= method.ranges.keys()
    for field in method.choices:
        with pytest.raises(ValueError, match=f"^{field} must be one of .* got 'mine'$"):
            replace(method, **{field: "mine"})
    for field in method.ranges.keys() & known:
        with pytest.raises(ValueError, match=f"^{field} must be .* got -1$"):
            replace(method, **{field: -1})
