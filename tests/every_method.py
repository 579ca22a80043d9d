"""Every method, small: its hyper-parameters, and the numbers that it sends."""

import os
from dataclasses import MISSING, fields

import pytest
from support import EVERYTHING, modules_of, solver_of, tiny_task

from fedlib import methods
from fedlib.workflow import own_methods

# Numbers of a model of 4 features, 6 hidden units with four numbers of their normalisation each,
# and 3 classes.
BODY, HEAD = (4 * 6 + 6) + 4 * 6, 6 * 3 + 3
MODEL = BODY + HEAD
# To add a method: its registry name and hyper-parameters, and the numbers that it sends per client
# and round, as a sum: (down, up) if these differ.
IFCA = {"num_experts": 3, "cluster_init": "full", "exploration": "eps", "epsilon": 0.3}
# The server's Adam moves a number by this much in a round: few rounds are to show something.
SERVER = {"server_lr": 0.1, "horizon": 2}
ON_SERVER = {"solver": "sgd", "lr": 0.1, "batch_size": 5}
METHODS = {
    "adaptive_experts": (
        IFCA
        | {"stop_every": 1, "local_lr": 0.002, "gate_lr": 0.002, "both_mixtures": True}
        | {"local_epochs": 3, "local_check_every": 1, "gate_epochs": 3, "member": "last"},
        (3 * MODEL, MODEL),
    ),
    "afl": ({"lr_lambda": 0.1}, (MODEL, MODEL + 1)),
    "apfl": ({}, MODEL),
    # Of the head its bias is private, of the body its first layer of 4 x 6 weights and 6 biases.
    "biased_fedavg": (SERVER, MODEL - 3),
    "centmoe": ({}, 0),
    "clustered": ({}, MODEL),
    "ditto": ({"lam": 0.1}, MODEL),
    "ensemble": ({}, (0, MODEL)),
    # The three clients hold 2, 3 and 3 classes; in the first round there is nothing to send them.
    "fd": ({}, (0, 3 * 8 / 3)),
    # No hold-out of this size leaves one example alone in a batch.
    "fedapen": ({"holdout": 0.4, "lam_lr": 0.1}, MODEL),
    "fedavg": ({}, MODEL),
    "fedavg_adam": (SERVER, MODEL),
    "fedavg_plus": ({}, MODEL),
    "fedem": ({"num_experts": 3}, 3 * MODEL),
    "fedgh": ({}, (HEAD, 6 * 8 / 3)),
    # Three anchors of an expert each; gate and noise network as those of "moe_fedavg", and alpha.
    "fedjets": ({}, MODEL + 2 * (15 + 12 + 12) + 1),
    # Factors of matrices this small are more numbers; tests/methods/test_mutual.py has larger ones.
    "fedkd": ({"horizon": 3}, MODEL),
    "fedmix": (SERVER | {"num_experts": 3}, 3 * MODEL + 3 * 3),
    "fedmix_clients": (SERVER | {"num_experts": 3, "gate_epochs": 2}, 3 * MODEL),
    "fedmix_vae": (
        SERVER | {"num_experts": 3, "gate_epochs": 2, "vae_epochs": 2},
        3 * MODEL + 3 * 3,
    ),
    "fedmoe": ({"server": ON_SERVER, "lam": 0.5, "log_rounds": [1, 2]}, MODEL),
    "fedprox": ({"mu": 0.5}, MODEL),
    "fedrep": ({}, BODY),
    # A hidden layer of 4 of 6 units: its weights, normalisation and outputs.
    "fedrolex": ({}, 4 * 4 + 4 + 4 * 4 + 4 * 3 + 3),
    "fedproto": ({}, (0, 6 * 8 / 3)),
    "fedtgp": ({"server_epochs": 2}, (0, 6 * 8 / 3)),
    "fml": ({}, MODEL),
    "ifca": (IFCA | {"stop": "never"}, (3 * MODEL, MODEL)),
    "l2sgd": ({"p": 0.3, "lam": 0.1}, MODEL),
    "label_leakage": ({}, MODEL),
    "lg_fedavg": ({}, HEAD),
    "local": ({}, 0),
    "local_experts": (
        {"max_epochs": 3, "check_every": 1, "keep": ["best", "last"], "at_once": 2},
        0,
    ),
    "local_global": (SERVER, MODEL - (4 * 6 + 6)),
    # Gate and noise network of 4 x 3 weights and 3 biases, batch normalisation of 4 x 3, then
    # 3 x 3 weights and 3 biases; alpha.
    "moe_fedavg": ({}, 3 * MODEL + 2 * (15 + 12 + 12) + 1),
    "oracle_clusters": ({"num_clusters": 2}, MODEL),
    "pfedme": ({"mu": 0.5}, MODEL),
    "pfedme_moreau": ({"lam": 5.0, "inner_lr": 0.1}, MODEL),
    "pfedmm": ({"num_experts": 3}, BODY + 3 * HEAD),
    "pfedmoe": ({}, BODY),
    "gated_experts": ({"num_experts": 3, "gate_features": 4}, 2 * MODEL),
    # The gate sees the 6 features of the experts.
    "plain_mixture": ({"num_experts": 3, "table_rounds": [0, 2]}, 3 * MODEL + (6 * 3 + 3)),
    "pooled": ({}, 0),
    "qffl": ({"q": 0.1}, (MODEL, MODEL + 1)),
    "server_finetuning": ({"server": ON_SERVER}, MODEL),
    "uniform_mixture": ({"server": ON_SERVER, "lam": 0.5}, MODEL),
}
# What a method of a user's sends, nobody has said; what it must be given is of its `SPACE`.
if OWN := os.environ.get("FEDLIB_METHOD"):
    OWN = own_methods.parse(OWN).path
    known = methods.load(OWN)
    needed = {x.name for x in fields(known) if x.default is MISSING and x.name in known.SPACE}
    METHODS = {OWN: ({name: known.SPACE[name].at(0.5) for name in needed}, None)}
NETWORK = {"norm": True, "dropout": 0.3}
# Float64: executors sum in different orders, and batch normalisation amplifies that.
ROUNDING = 1e-10
# AdamW divides gradients by their size: of those that are 0 but for rounding, rounding decides.
LOOSER = {"adaptive_experts": 1e-7}
# Methods in which it is not the round's cohort that trains: all clients, or those who have yet to.
EVERYBODY = {"clustered", "local_experts", "pooled"}
contract = pytest.mark.contract
a_fourth = pytest.mark.parametrize("name", METHODS if EVERYTHING else [*METHODS][::4])


def in_turn(name, checks):
    """Checks of a method: all of them in CI and of a user's method, else one, in turn."""
    return checks if EVERYTHING or OWN else [checks[[*METHODS].index(name) % len(checks)]]


def every_method(test):
    return contract(pytest.mark.parametrize("name", METHODS)(test))


def make(name, **network):
    params = METHODS[name][0]
    modules = modules_of(name, params.get("num_experts", 1), **network)
    task, local = tiny_task(**network), solver_of(name)
    return methods.load(name)(task=task, local=local, **params, **modules)
