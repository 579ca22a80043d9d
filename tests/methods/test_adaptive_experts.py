"""Adaptive Expert Models: what clients do on their own, against a loop of torch.optim, and mixtures
worked out on paper."""

import copy
import math
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from reference import Reference, assert_params, assert_rows, batches, descend, module_of, owned
from support import (
    batch_of,
    clients_with,
    cohort_of,
    dying,
    run,
    same_bits,
    sgd,
    silently,
    simulation_of,
    tiny_task,
    toy_federation,
)
from torch import nn
from torch.nn.functional import nll_loss

from fedlib import methods, streams, tree
from fedlib.engine.task import Batch, Task
from fedlib.errors import DataError, DivergedError
from fedlib.methods.adaptive_experts import AdaptiveExperts, Ensemble, Mixture
from fedlib.methods.parts.own_experts import Cache, Features
from fedlib.run import evaluate
from fedlib.run.build import build_method, build_task
from fedlib.run.checkpoint import Checkpoints
from fedlib.seals import spec_digest
from fedlib.spec import Run

BATCH = 4
LOCAL, FINETUNE, GATE = 0.03, 0.02, 0.05  # learning rates
SIZES = (7, 12, 6, 10, 9)


def make(num_experts=3, **params):
    outputs = 1 if num_experts == 1 else num_experts + 1
    settings = {
        **{"cluster_init": "full", "stop_every": 1, "lr_decay": True, "stop_split": "test"},
        **{"local_lr": LOCAL, "local_weight_decay": 0.1, "local_epochs": 9},
        **{"local_check_every": 2, "local_patience": 2, "finetune_lr": FINETUNE},
        **{"finetune_weight_decay": 0.15},
        **{"gate_lr": GATE, "gate_weight_decay": 0.2, "gate_epochs": 8, "gate_patience": 2},
    }
    return methods.load("adaptive_experts")(
        task=tiny_task(),
        local=sgd(momentum=0.0, batch_size=BATCH),
        num_experts=num_experts,
        expert=tiny_task(hidden=5),
        gate=tiny_task(classes=outputs, hidden=3),
        **settings | params,
    )


def trained(method, federation):
    """State after two rounds and an evaluation of everybody, and the cohort of that."""
    state = run(method, federation, 2, executor="batched")
    for group in ("unseen", "seen"):
        ids = federation.ids(group)
        cohort = cohort_of(method.task, federation, ids, executor="batched", round=2)
        state = method.observe(state, cohort, group)
    return state, cohort


def all_finals(method, state, cohort):
    return dict(evaluate.prepare(method, state, cohort, "seen"))


# -- by hand -------------------------------------------------------------------------------


class OnItsOwn(Reference):
    """One client with real modules, AdamW, LambdaLR and the official code's early stopping."""

    def __init__(self, federation, client, round):
        super().__init__(federation)
        self.client, self.round = client, round

    def shard(self, split):
        return owned(self.federation, self.client, split)

    def train(
        self, nets, trained, log_probs, stream, *, lr, decay, decays, epochs, every, patience
    ):
        """State dicts of `nets` at the best check and at the end."""
        parameters = [p for net in trained for p in net.parameters()]
        optimiser = torch.optim.AdamW(parameters, lr=lr, weight_decay=decay)

        def rate(epoch):
            return ((lr - lr / 100) * 0.9999**epoch + lr / 100) / lr if decays else 1.0

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
        best, least, counter, done, checks = None, math.inf, 0, 0, 0
        while done < epochs and counter < patience:
            # The engine shuffles from one check to the next.
            solver = sgd(batch_size=BATCH, epochs=min(every, epochs - done) if done else 1)
            for net in nets:
                net.train()
            between = f"{stream}/{checks}"
            drawn = batches(*self.shard("train"), solver, self.round, between, self.client)
            loss = lambda b: nll_loss(log_probs(nets, b.x), b.y)  # noqa: E731
            descend([(optimiser, scheduler)], drawn, loss)
            done += solver.epochs
            if (done - 1) % every:
                break  # too few epochs are left for a check
            for net in nets:
                net.eval()
            x, y = self.shard("test")
            with torch.no_grad():
                loss = nll_loss(log_probs(nets, x), y).item()
            counter, checks = counter + 1, checks + 1
            if loss < least:
                least, counter = loss, 0
                best = [copy.deepcopy(net.state_dict()) for net in nets]
        return best, [net.state_dict() for net in nets]


def gate_weights(gate, x, outputs):
    """Of the experts with these outputs of the gate; of two, only the local one has an output."""
    logits = gate(x)[:, outputs]
    if len(outputs) > 1:
        return torch.softmax(logits, dim=1)
    local = torch.sigmoid(logits)
    return torch.cat([1 - local, local], dim=1)


def moe(gate, experts, x, outputs):
    """Equation 5, with probabilities."""
    weights = gate_weights(gate, x, outputs)
    return torch.log(sum(weights[:, [e]] * f(x).softmax(1) for e, f in enumerate(experts)))


@pytest.mark.parametrize(
    ("gate_only", "member", "choices"),
    [(True, "last", (0, 2, 2, 0, 1)), (False, "best", (1, 1, 1, 1, 0))],  # several, one of them
)
def test_the_personal_stage_is_that_of_torch_optim(gate_only, member, choices):
    # The last client is unseen: its choice makes no expert a member.
    federation, num = toy_federation(SIZES), 3
    method = make(num, member=member, gate_only=gate_only, both_mixtures=True)
    state, cohort = trained(method, federation)
    state = state._replace(choice=torch.tensor(choices))
    finals = all_finals(method, state, cohort)
    used = sorted(set(choices[:-1]))
    outputs = [*used, num] if len(used) > 1 else [num]
    models = [tree.take(method.best_experts(state), j) for j in range(num)]
    keys = streams.keys(federation.num_clients, 0, "gate")
    stops, patient = [], {"epochs": 9, "every": 2, "patience": 2}
    for row, client in enumerate(federation.ids("seen").tolist()):
        alone = OnItsOwn(federation, client, round=2)

        own = method.expert.init(int(streams.keys(1, 0, "local")[0]))
        own = module_of(method.expert, own)
        best, last = OnItsOwn(federation, client, round=0).train(
            [own], [own], lambda nets, x: nets[0](x).log_softmax(1), "local", lr=LOCAL, decay=0.1,
            decays=True, **patient,
        )  # fmt: skip
        assert_params(tree.take(finals["local"].own, row), best[0])
        stops.append(any(not torch.equal(best[0][n], last[0][n]) for n in best[0]))
        member_params = {"best": best, "last": last}[member][0]

        tuned = module_of(method.task, models[choices[client]])
        best, _ = alone.train(
            [tuned], [tuned], lambda nets, x: nets[0](x).log_softmax(1), "finetune",
            lr=FINETUNE, decay=0.15, decays=True, **patient,
        )  # fmt: skip
        assert_params(tree.take(finals["finetuned"], row), best[0])

        ensemble = tree.take(finals["ensemble"], row)
        assert_params(ensemble.own, member_params)
        assert_rows(ensemble.experts, [models[j] for j in used])

        other = "moe_joint" if gate_only else "moe_gate"
        for protocol, alone_trained in (("moe", gate_only), (other, not gate_only)):
            gate = module_of(method.gate, method.gate.init(int(keys[client])))
            experts = [module_of(method.task, models[j]) for j in used]
            experts.append(module_of(method.expert, member_params))
            best, _ = alone.train(
                [*experts, gate], [gate] if alone_trained else [*experts, gate],
                lambda nets, x: moe(nets[-1], nets[:-1], x, outputs), "mixture", lr=GATE,
                decay=0.2, decays=False, epochs=8, every=2, patience=2,
            )  # fmt: skip
            mixture = tree.take(finals[protocol], row)
            assert mixture.members.tolist() == used
            assert_params(mixture.gate, best[-1])
            assert_params(mixture.own, best[-2])
            assert_rows(mixture.experts, best[: len(used)])
            x, _ = alone.shard("test")
            batch = batch_of(x)
            for module, params in zip([*experts, gate], best, strict=True):
                module.load_state_dict(params)
            expected = moe(gate, experts, x, outputs)
            torch.testing.assert_close(method.predict(mixture, batch), expected)
    assert any(stops) or member == "best"  # some client's best was not its last


# -- worked examples -------------------------------------------------------------------------

LOGITS = torch.tensor([[2.0, 0, 1], [0, 1.5, 0], [0.5, 0, 2.5]], dtype=torch.float64)


class Bias(nn.Module):
    """A model whose logits are its bias, whatever the input."""

    def __init__(self, outputs=3):
        super().__init__()
        self.body, self.head = nn.Flatten(), nn.Linear(1, outputs)

    def forward(self, x):
        return self.head(self.body(x) * 0)


def says(logits):
    """Parameters of a `Bias` model with these logits [..., L]."""
    bias = torch.as_tensor(logits, dtype=torch.float64)
    return {"head.weight": torch.zeros(*bias.shape, 1, dtype=torch.float64), "head.bias": bias}


def speakers(num_experts=2, **params):
    outputs = 1 if num_experts == 1 else num_experts + 1
    task, gate = (Task(lambda n=n: Bias(n), dtype=torch.float64) for n in (3, outputs))
    return replace(make(num_experts), task=task, expert=task, gate=gate, **params)


ONE = Batch(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1), torch.zeros(1).long())


def test_an_ensemble_of_three():
    ensemble = Ensemble(says(LOGITS[:2]), says(LOGITS[2]))
    found = speakers().predict(ensemble, ONE).exp()[0]
    expected = [0.244728, 0.090031, 0.665241]  # specification, section 3.4
    torch.testing.assert_close(found.tolist(), expected, rtol=0, atol=5e-7)  # six digits given


@pytest.mark.parametrize(("num_experts", "gate"), [(1, [0.7]), (2, [5.0, -4.0, 0.7])])
def test_of_two_experts_a_sigmoid_weighs_the_local_one(num_experts, gate):
    # One cluster, or two of which one is in use: then only the last output counts.
    method = speakers(num_experts)
    assert method.networks.outputs(torch.tensor([0])).tolist() == [len(gate) - 1]
    mixture = Mixture(says(LOGITS[:1]), says(LOGITS[2]), says(gate), torch.tensor([0]))
    g = 1 / (1 + math.exp(-0.7))
    f = np.exp(LOGITS.numpy()) / np.exp(LOGITS.numpy()).sum(1, keepdims=True)
    found = method.predict(mixture, ONE).exp()[0]
    torch.testing.assert_close(found.numpy(), (1 - g) * f[0] + g * f[2])


def test_a_certain_gate_has_a_finite_loss_and_gradient():
    # Weight e^-800 is no number above 0: mixed as probabilities its logarithm would be infinite.
    method = speakers()
    gate = torch.tensor([800.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    right_only = says([[-900.0, 0, 0], [0.0, 0, 0]])
    mixture = Mixture(right_only, says(LOGITS[2]), says(gate), torch.arange(2))
    loss = -method.predict(mixture, ONE)[0, 0]
    loss.backward()
    assert loss.isfinite() and gate.grad.isfinite().all()


# -- experts in use --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, [0, 1, 2]),  # of the seen clients
        ({"personal_clients": 2}, [0, 2]),  # Main_fed.py: of its evaluation clients, 0 and 1
        ({"personal_clients": 2, "expert_set": "all"}, [0, 1, 2]),
    ],
)
def test_the_experts_in_use_are_those_of_the_clients_that_train_on_their_own(params, expected):
    federation, method = toy_federation(SIZES), make(3, **params)
    state = method.init(5, 0)._replace(choice=torch.tensor([2, 0, 1, 1, 0]))
    for group in ("seen", "unseen"):
        cohort = cohort_of(method.task, federation, federation.ids(group))
        assert method.members(state, cohort).tolist() == expected


def test_only_the_first_clients_train_on_their_own(monkeypatch):
    federation = toy_federation(SIZES)
    few, everybody = make(2, personal_clients=2), make(2)
    simulated = simulation_of(few, federation, rounds=2)
    state, _ = silently(simulated)
    state = state._replace(choice=torch.tensor([0, 1, 1, 0, 1]))  # both in use either way
    everyone = lambda group: simulated.everyone(group, 2)  # noqa: E731
    monkeypatch.setattr(evaluate, "FINAL_BYTES", 8 * few.personal_numbers())
    found = evaluate.final(few, state, everyone)
    whole = evaluate.final(everybody, state, everyone)
    for view, scores in whole.scores.items():
        own = found.scores[view]
        size = len(scores.clients) if view.protocol == "default" else 2
        np.testing.assert_array_equal(own.clients, scores.clients[:size])
        np.testing.assert_array_equal(own.correct, scores.correct[:, :size])
        # Float64; kernels round by where in a stack a client's numbers lie.
        np.testing.assert_allclose(own.loss, scores.loss[:, :size], rtol=1e-9)
    weights = found.diagnostics["gate_weights"]
    unseen = federation.ids("unseen")
    assert np.isnan(weights).all(axis=1).tolist() == [
        client not in (0, 1, *unseen) for client in range(federation.num_clients)
    ]


# -- early stopping --------------------------------------------------------------------------


@pytest.mark.parametrize("saves", [1, 4, 9, 14])  # in each of the three trainings, and at an end
def test_a_killed_evaluation_goes_on_to_the_same_bits(saves, tmp_path):
    method = make(gate_epochs=6, gate_check_every=1, both_mixtures=True)
    state, cohort = trained(method, toy_federation(SIZES))
    journal = cohort.journal
    whole, examples, journal.examples = all_finals(method, state, cohort), journal.examples, 0

    def saved(kind):
        numbers = count()
        return lambda: kind(tmp_path / str(next(numbers)), {}, every=1)

    with pytest.raises(KeyboardInterrupt):
        all_finals(method, state, replace(cohort, checkpoints=saved(dying(saves))))
    journal.examples = 0
    again = all_finals(method, state, replace(cohort, checkpoints=saved(Checkpoints)))
    assert same_bits(again, whole) and journal.examples == examples


def test_a_client_whose_loss_is_not_finite_is_named():
    method, federation = make(local_lr=1e300), toy_federation()
    with pytest.raises(DivergedError, match="client . diverged by epoch 1 of 'local'"):
        method.settle(method.init(4, 0), cohort_of(method.task, federation))


def test_a_client_with_nothing_to_stop_on_is_named():
    method = make(stop_split="val")
    with pytest.raises(DataError, match="client 0 has no val examples, on which"):
        method.settle(method.init(4, 0), cohort_of(method.task, toy_federation()))


# -- evaluation in parts ---------------------------------------------------------------------


def test_gates_are_recorded_by_client_and_expert(monkeypatch):
    method, federation, choices = make(3), toy_federation(SIZES), (0, 2, 2, 0, 1)
    simulated = simulation_of(method, federation, rounds=2)
    state, _ = silently(simulated)
    state = state._replace(choice=torch.tensor(choices))
    monkeypatch.setattr(evaluate, "FINAL_BYTES", 3 * 8 * method.personal_numbers())
    mix, sizes = AdaptiveExperts.mix, []
    noting = lambda *a: sizes.append(a[-1].size) or mix(*a)  # noqa: E731
    monkeypatch.setattr(AdaptiveExperts, "mix", noting)
    final = evaluate.final(method, state, lambda group: simulated.everyone(group, 2))
    assert sizes == [3, 1, 1]  # of four seen clients, and one unseen one
    found = final.diagnostics["gate_weights"]
    assert found.shape == (len(SIZES), 4)
    np.testing.assert_allclose(found.sum(1), 1)  # the unseen client's too
    everyone = simulated.everyone("seen", 2)
    mixtures = all_finals(method, state, everyone)["moe"]
    used = sorted(set(choices[:-1]))
    for row, client in enumerate(everyone.ids.tolist()):
        gate = module_of(method.gate, tree.take(mixtures.gate, row)).eval()
        x, _ = owned(federation, client, "test")
        weights = gate_weights(gate, x, [*used, 3])
        expected = np.zeros(4)
        expected[[*used, 3]] = weights.mean(0).detach().numpy()
        np.testing.assert_allclose(found[client], expected, rtol=1e-9)  # float64, in two parts
    trained = {f"examples_{name}" for name in ("settle", "finetuned", "moe")}
    assert set(final.diagnostics) == {"choice", "gate_weights"} | trained


# -- declarations ----------------------------------------------------------------------------

CNN = {"num_classes": 3, "conv1": 2, "conv2": 2, "hidden": 4, "dropout": 0.5}
IMAGE = {"in_channels": 1, "side": 16}
DECLARED = Run(
    federation="toy",
    label="moe",
    title="MoE",
    method="adaptive_experts",
    model="leaf_cnn",
    model_params=CNN | IMAGE,
    modules={
        "expert": {"model": "leaf_cnn", "params": CNN | IMAGE | {"conv1": 3}},
        "gate": {"model": "gate_cnn", "params": CNN | IMAGE},
    },
    rounds=3,
    local={"solver": "sgd", "lr": 0.05, "batch_size": 5},
    params={
        **{"num_experts": 2, "exploration": "eps", "epsilon": 0.33, "local_lr": 1e-3},
        **{"gate_lr": 1e-3, "local_epochs": 7, "gate_epochs": 4, "stop_split": "test"},
    },
).spec(1, spec_digest({}))


def images():
    """Four clients with 10 grey images of 16 x 16 pixels to train on and 5 to test on."""
    draw = np.random.default_rng(0)
    rows = np.arange(60).reshape(4, 15)
    x, y = draw.integers(0, 256, (60, 1, 16, 16)).astype(np.uint8), draw.integers(0, 3, 60)
    return clients_with(x, y, [(own[:10], own[10:]) for own in rows], 3, mean=(0.5,), std=(0.5,))


# -- experts that nobody trains ------------------------------------------------------------------

NETWORKS = ("task", "expert", "gate")
FROZEN = {  # what is known of training examples
    "nothing random": ("leaf_cnn", {"hidden": 4, "dropout": 0.0}, Features),
    "dropout in the head": ("leaf_cnn", {"hidden": 4, "dropout": 0.5}, Features),
    "dropout in the body": ("ifca_cnn", {"hidden1": 4, "hidden2": 3, "dropout": 0.5}, tuple),
}


@pytest.mark.parametrize("name", FROZEN)
def test_what_is_known_of_experts_trains_the_gates_that_whole_ones_do(name, monkeypatch):
    model, network, kind = FROZEN[name]
    network |= {"num_classes": 3, "conv1": 2, "conv2": 2} | IMAGE
    modules = DECLARED.modules | {"expert": {"model": model, "params": network | {"conv1": 3}}}
    spec = replace(DECLARED, model=model, model_params=network, modules=modules)
    method = build_method(spec, build_task(spec))
    tasks = {name: replace(getattr(method, name), dtype=torch.float64) for name in NETWORKS}
    method = replace(method, **tasks, gate_only=True, gate_lr=0.1)
    cohort = cohort_of(method.task, images(), executor="batched")
    settled = method.settle(method.init(4, 0)._replace(choice=torch.tensor([0, 1, 1, 0])), cohort)
    frozen = method.networks.freeze(*method.assemble(settled, cohort), cohort, "test")
    assert type(frozen.features) is kind and type(frozen.stop_logits) is torch.Tensor
    found = method.mix(settled, cohort)
    unknown = lambda networks, experts, own, *_: Cache(experts, own)  # noqa: E731
    monkeypatch.setattr(type(method.networks), "freeze", unknown)
    whole = method.mix(settled, cohort)
    start = method.draw_gates(cohort)
    for key, value in whole.gate.items():
        # Float64, a few dozen steps of Adam; features are computed in other batches.
        torch.testing.assert_close(found.gate[key], value, rtol=1e-7, atol=1e-9)
        assert not torch.equal(value, start[key])
    for field in ("experts", "own"):
        mine, theirs = getattr(found, field), getattr(whole, field)
        assert all(torch.equal(mine[key], theirs[key]) for key in theirs)
