"""Identities between methods: limit cases in which one is another, or two ways are one."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from support import assert_close, run, sgd, tiny_task, toy_federation, with_server
from zoo import deep

from fedlib import methods, tree
from fedlib.engine.task import Task
from fedlib.models import linear

NORMED = tiny_task(norm=True, dropout=0.3)
PLAIN = tiny_task()
LINEAR = Task(lambda: linear.build(4, 3), dtype=torch.float64)  # a head and no body
EQUAL = (8, 8, 8, 5)  # the last one is unseen
NO_BATCH_OF_ONE = (7, 12, 6, 10, 11, 8)
ROUNDED = 1e-10  # of float64, after the logarithm of a mixed probability


def first(name):
    """The first of several models in a state; `name` may be of a part of its `model`."""
    return lambda s: tree.take(getattr(s, name) if hasattr(s, name) else s.model[name], 0)


def parts(*names):
    return lambda s: [getattr(s, name) for name in names]


def models(s):
    """Of Local, stacked as other methods have them; and its memory."""
    return [tree.together(s.models), s.memory]


def by_name(params):
    """In one order, whatever the order of their parts."""
    return dict(sorted(params.items()))


class Case(NamedTuple):
    """Rounds of two methods, by name and hyper-parameters, that end with the same.

    Attributes:
      of, of_other: what of their states is compared, a function or the name of a part.
      how, other_how: options of their rounds.
    """

    method: str
    params: dict
    other: str
    other_params: dict
    of: str | Callable = lambda s: s
    of_other: str | Callable = lambda s: s
    task: Task = NORMED
    sizes: tuple = (7, 12, 6, 10)
    how: dict = {}
    other_how: dict | None = None
    tolerance: float = 1e-12


SERVER = {"server": {"solver": "sgd", "lr": 0.1, "batch_size": 5}}
GATE = {"gate": tiny_task(classes=1, hidden=5)}
ALONE = {"lam": 1.0, "alpha": 0.0, "alpha_lr_scale": 0.0} | GATE | SERVER
OWN = {"large": (tiny_task(hidden=5, norm=True), deep), "local": sgd(clip_norm=0.4)}
MOE = OWN | {"gate": tiny_task(classes=2, hidden=3)}
ROUND = {"local": sgd(keeps="round")}
MIXTURE = {"gate": tiny_task(classes=3, hidden=5)} | ROUND
ADAM = {"server_lr": 0.05, "horizon": 3}
IFCA = {"cluster_init": "full"} | ROUND
TOGETHER = {"ids": [3, 4], "aggregation": "renormalised"}
RENORMALISED = {"aggregation": "renormalised"}

CASES = {
    "FedProx without its term is FedAvg": Case("fedprox", {"mu": 0.0}, "fedavg", {}),
    "FedAvg of one client is local training": Case(
        "fedavg", {}, "local", {}, "params", first("models"), sizes=(12, 6)
    ),
    "FedEM with one expert is FedAvg": Case(
        "fedem", {"num_experts": 1}, "fedavg", {}, first("experts"), "params"
    ),
    "pFedMM with one head is FedAvg": Case(
        *("pfedmm", {"num_experts": 1}, "fedavg", {}),
        lambda s: by_name(s.experts["body"] | tree.take(s.experts["heads"], 0)),
        lambda s: by_name(s.params),
    ),
    "pFedMM without a body is FedEM": Case(
        *("pfedmm", {"num_experts": 3}, "fedem", {"num_experts": 3}),
        lambda s: [s.experts["heads"], s.pi],
        parts("experts", "pi"),
        task=LINEAR,
    ),
    "Clustered FL without a split is FedAvg": Case(
        *("clustered", {"eps1": 0.0}, "fedavg", {}),
        lambda s: [tree.take(s.models, 0), s.memory],
        parts("params", "memory"),
    ),
    "pFedMe without its term is local training": Case(
        "pfedme", {"mu": 0.0}, "local", {}, parts("models", "memory"), models
    ),
    # theta = w - r grad f(w), so lam (w - theta) = grad f(w) when lam = 1 / r. Running statistics
    # differ: the client's model is run twice per step.
    "pFedMe with one inner step at its inverse lambda is FedAvg": Case(
        *("pfedme_moreau", {"lam": 20.0, "inner_lr": 0.05, "inner_steps": 1}, "fedavg", {}),
        lambda s: [NORMED.trainable(s.params), s.memory],
        lambda s: [NORMED.trainable(s.params), s.memory],
    ),
    "L2SGD with the whole pull leaves one model": Case(
        *("l2sgd", {"p": 0.3, "lam": 0.3}, "l2sgd", {"p": 0.3, "lam": 0.3}),
        lambda s: tree.take(s.models, slice(3)),
        lambda s: tree.broadcast(s.average, 3),
    ),
    "APFL that predicts with the own model alone is local training": Case(
        "apfl", {"alpha": 1.0}, "local", {}, "models", lambda s: tree.together(s.models)
    ),
    "Ditto without its term is local training": Case(
        "ditto", {"lam": 0.0}, "local", {}, "models", lambda s: tree.together(s.models)
    ),
    "q-FFL without fairness is FedAvg of clients of one size": Case(
        "qffl", {"q": 0.0}, "fedavg", {}, "params", "params", sizes=EQUAL
    ),
    "q-FFL never damps the clients that take part": Case(
        *("qffl", {"q": 0.0}, "fedavg", {}),
        *[lambda s: NORMED.trainable(s.params)] * 2,
        sizes=EQUAL,
        how={"ids": [1]},
        other_how={"ids": [1]} | RENORMALISED,
    ),
    # Momenta are linear in the gradients: averaged over clients, they are the server's.
    "AFL with fixed weights is FedAvg of single steps": Case(
        "afl", {"lr_lambda": 0.0}, "fedavg", {"local": sgd(steps=1)}, "params", "params"
    ),
    "gated experts with one expert are local models": Case(
        *("gated_experts", {"num_experts": 1, "gate_features": 4}, "local", {}),
        lambda s: s.models["expert"],
        lambda s: tree.together(s.models),
    ),
    "IFCA of one model is FedAvg": Case(
        *("ifca", {"num_experts": 1, "stop": "never"} | IFCA, "fedavg", ROUND),
        *(first("experts"), "params"),
        how=RENORMALISED,
        tolerance=0,
    ),
    "exploring with probability 0 is not exploring": Case(
        *("ifca", {"num_experts": 3} | IFCA),
        *("ifca", {"num_experts": 3, "exploration": "eps", "epsilon": 0.0} | IFCA),
        tolerance=0,
    ),
    "FedMix of one expert is FedAvg with Adam": Case(
        *("fedmix", {"num_experts": 1, "pruning": 1.0} | ADAM, "fedavg_adam", ADAM),
        lambda s: [tree.take(s.experts, 0), s.divergence],
        parts("params", "divergence"),
        task=PLAIN,
        tolerance=1e-6,  # of the specification; sums are taken in another order
    ),
    "FedMix that prunes nothing does not prune": Case(
        *("fedmix", {"num_experts": 3}, "fedmix", {"num_experts": 3, "pruning": 1e-9}),
        tolerance=1e-9,  # renormalising by a sum of 1 rounds; Adam magnifies it
    ),
    "autoencoders change nothing of FedMix's training": Case(
        *("fedmix_vae", {"num_experts": 3, "vae": PLAIN}, "fedmix", {"num_experts": 3}), tolerance=0
    ),
    "FedMix that sorts clients to one expert is FedAvg with Adam": Case(
        *("fedmix_clients", {"num_experts": 1} | ADAM, "fedavg_adam", ADAM),
        lambda s: [tree.take(s.experts, 0), s.divergence],
        parts("params", "divergence"),
    ),
    "the plain mixture of one expert is FedAvg": Case(
        "plain_mixture", {"num_experts": 1}, "fedavg", {}, first("experts"), "params"
    ),
    "a mixture of one expert by FedAvg is FedAvg": Case(
        *("moe_fedavg", GATE, "fedavg", {}, first("routed"), "params"),
        task=PLAIN,
        tolerance=ROUNDED,
    ),
    "FedJETs with one expert is FedAvg": Case(
        *("fedjets", {"per_client": 1} | GATE | ROUND, "fedavg", ROUND, first("routed"), "params"),
        task=PLAIN,
        tolerance=ROUNDED,
    ),
    "clients of FedJETs who have all experts do what FedAvg of mixtures does": Case(
        *("fedjets", {"per_client": 3} | MIXTURE, "moe_fedavg", MIXTURE),
        *[lambda s: {n: s.model[n] for n in ("routed", "main", "gate", "noise", "alpha")}] * 2,
        task=PLAIN,
        sizes=NO_BATCH_OF_ONE,
        how=TOGETHER,
        tolerance=ROUNDED,
    ),
    "FedRolex of clients as wide as the server is FedAvg": Case(
        "fedrolex", {"small": NORMED} | ROUND, "fedavg", ROUND, "params", "params"
    ),
    "Fed-MoE without a say of its routed experts is FedAvg of equal clients": Case(
        *("fedmoe", ALONE | {"client_lam": 0.0, "sync_weights": "convex"}, "fedavg", {}),
        *(first("main"), "params"),
        task=PLAIN,
        sizes=EQUAL,
    ),
    "FML without distillation trains the own models alone": Case(
        *("fml", {"alpha": 1.0, "beta": 1.0} | OWN, "local", OWN),
        lambda s: s.models["large"],
        "models",
        sizes=NO_BATCH_OF_ONE,
    ),
    "pFedMoE with the local expert alone is local training": Case(
        *("pfedmoe", {"gate_mode": "local_only"} | MOE, "local", OWN),
        lambda s: s.models["large"],
        "models",
        task=tiny_task(hidden=5),
        sizes=NO_BATCH_OF_ONE,
    ),
    **{
        f"the {kind} expert of pFedMoE alone has the fixed weight 1": Case(
            *("pfedmoe", {"gate_mode": f"{kind}_only"} | MOE),
            *("pfedmoe", {"gate_mode": f"fixed:{weight}"} | MOE, "models", "models"),
            task=tiny_task(hidden=5),
            sizes=NO_BATCH_OF_ONE,
            tolerance=0,
        )
        for kind, weight in (("global", 1), ("local", 0.0))
    },
    "LG-FedAvg of a model that is all header is FedAvg": Case(
        "lg_fedavg", {}, "fedavg", {}, "head", "params", task=LINEAR
    ),
    "FedProto without its term is local training": Case(
        "fedproto", {"lam": 0.0}, "local", {}, "models", "models"
    ),
    "reading labels aside it is FedAvg": Case(
        *("label_leakage", {"local": sgd(momentum=0.0, weight_decay=0.0)}),
        *("fedavg", {"local": sgd(momentum=0.0, weight_decay=0.0)}, "params", "params"),
        tolerance=0,
    ),
}


def trained(name, params, case, how):
    """A method's state after its rounds."""
    method = methods.load(name)(**{"task": case.task, "local": sgd()} | params)
    federation = toy_federation(case.sizes)
    federation = with_server(federation) if case.method == "fedmoe" else federation
    return run(method, federation, **{"rounds": 3} | case.how | how)


@pytest.mark.parametrize("name", CASES)
def test_limit_cases(name):
    case = CASES[name]
    ours = trained(case.method, case.params, case, {})
    theirs = trained(case.other, case.other_params, case, case.other_how or {})
    pick = lambda of, s: getattr(s, of) if isinstance(of, str) else of(s)  # noqa: E731
    assert_close(pick(case.of, ours), pick(case.of_other, theirs), case.tolerance)
