"""Fed-MoE against a loop over clients, experts and batches; its identities and its settings."""

from dataclasses import replace

import numpy as np
import pytest
import support
import torch
from reference import Mixture, cross_entropy_of, learn, module_of, owned
from support import assert_close, batch_of, cohort_of, sgd, tiny_task, toy_federation, with_server
from torch.nn.functional import cross_entropy, softplus

from fedlib import methods, tree
from fedlib.errors import DataError
from fedlib.federation import Split
from fedlib.methods.parts import server_mixture
from fedlib.results import SHARED, View
from fedlib.run import evaluate, scoring

SIZES = (7, 12, 6, 10)  # the last client is unseen
SERVER, PROBE = 4, 5
EXPERTS = 3
TRAINED = {"solver": "sgd", "lr": 0.1, "batch_size": 5, "epochs": 2, "momentum": 0.9}
CODE = {"training_gate": "top_k", "combine": "logits", "entropy": "per_expert", "probe": "probe"}
CODE |= {"balance_weight": 0.1, "l2_weight": 1e-3, "label_smoothing": 0.1, "query": "kept"}
RENORM = CODE | {"gate_value": "renorm"}
REDUCED = {"relevance_reduce": "mean", "sync_reduce": "sum", "main_lam": 0.6}
REDUCED |= {"confidence": "logit", "noise_lr_scale": 0.5}
BALANCED = {"balance_weight": 0.1}
FRESH = {"start": "main", "sync_weights": "none"}


def federation(sizes=SIZES, owned=(12, 6, 8)):
    return with_server(toy_federation(sizes), owned, by_rule=True)


def fedmoe(experts=EXPERTS, classes=3, **params):
    gate = tiny_task(classes=experts, hidden=5)
    settings = {"server": TRAINED, "task": tiny_task(classes=classes), "local": sgd()}
    return methods.load("fedmoe")(**settings | {"gate": gate} | params)


def run(method, data=None, rounds=2, **options):
    return support.run(method, data or federation(), rounds, **options)


# -- Algorithm 1, by hand ----------------------------------------------------------------------


class ByHand(Mixture):
    """One round from a state, with modules of PyTorch and loops."""

    def __init__(self, method, data, state):
        super().__init__(method, state.model)
        self.method, self.data = method, data
        self.models = [module_of(method.task, state.models[c]) for c in range(3)]

    def probabilities(self, model, x):
        return model(x).softmax(-1)

    def mixture(self, gates, x):
        said = self.probabilities if self.method.combine == "probabilities" else lambda m, x: m(x)
        mixed = sum(gates[:, [i]] * said(e, x).detach() for i, e in self.routed.items())
        y = self.alpha * mixed + (1 - self.alpha) * said(self.main, x).detach()
        return y.log() if self.method.combine == "probabilities" else y.log_softmax(-1)

    def objective(self, batch):
        x, y, key = batch.x, batch.y, batch.key
        method, clean = self.method, self.gate(x)
        scale = softplus(self.noise(x)) + 0.01
        loud = server_mixture.noisy(clean, scale, key)
        p = loud.softmax(-1)
        unequal = lambda use: use.var() / (use.mean() ** 2 + 1e-10)  # noqa: E731
        if method.training_gate == "soft":
            entropy = -(p * p.log()).sum(-1).mean()
            loss = cross_entropy(self.mixture(p, x), y) + method.entropy_weight * entropy
            return loss + method.balance_weight * unequal(p.sum(0))  # everybody uses every expert
        best, kept = p.max(-1, keepdim=True)
        one = best / best.detach() if method.gate_value != "renorm" else torch.ones_like(best)
        gates = torch.zeros_like(p).scatter(1, kept, one)
        loss = cross_entropy(self.mixture(gates, x), y, label_smoothing=0.1)
        mass = torch.stack([gates[y == label].sum(0) for label in range(3)], dim=1).softmax(-1)
        loss = loss + method.entropy_weight * -(mass * mass.log()).sum(-1).mean()
        load = server_mixture.smooth_load(clean, loud, scale, 1, "canonical")
        for use in (gates.sum(0), load):
            loss = loss + 0.1 * unequal(use)
        return loss + 1e-3 * sum((w**2).sum() for w in self.trained())

    def relevance(self, reduce):
        x, y = owned(self.data, PROBE if self.method.probe == "probe" else SERVER)
        p = self.gate(x).softmax(-1).detach()
        if self.method.query == "kept":
            p = torch.nn.functional.one_hot(p.argmax(-1), EXPERTS).double()
        said = self.probabilities if self.method.confidence == "prob" else lambda m, x: m(x)
        sure = [said(m, x)[torch.arange(len(y)), y].detach() for m in self.models]
        number = len(y) if reduce == "mean" else 1
        return torch.tensor([[sum(p[:, i] * s) / number for s in sure] for i in range(EXPERTS)])

    def round(self):
        method, solver = self.method, self.method.server
        for client, model in enumerate(self.models):
            if method.start == "main":
                model.load_state_dict(self.main.state_dict())
            x, y = owned(self.data, client)
            loss = cross_entropy_of(model)
            learn(model.parameters(), loss, x, y, method.local, 0, "fit", client)
        x, y = owned(self.data, SERVER)
        losses, lam = [], method.lam
        main_lam = lam if method.main_lam is None else method.main_lam
        slow = {"params": self.noise.parameters(), "lr": solver.lr * method.noise_lr_scale}
        optimise = [slow, {"params": [*self.gate.parameters(), self.alpha]}]
        for t in range(method.inner_steps):
            weights = self.relevance(method.relevance_reduce).softmax(1)
            with torch.no_grad():
                for name in self.main.state_dict():
                    values = [m.state_dict()[name] for m in self.models]
                    main = self.main.state_dict()[name]
                    main.mul_(1 - main_lam).add_(main_lam * sum(values) / 3)
                    for expert, row in zip(self.routed.values(), weights, strict=True):
                        new = sum(w * v for w, v in zip(row, values, strict=True))
                        expert.state_dict()[name].mul_(1 - lam).add_(lam * new)
            learn(optimise, self.objective, x, y, solver, 0, f"server/{t}", SERVER)
            losses.append(self.validation_loss())
        if method.sync_weights == "code":
            self.synchronise()
        return losses

    def synchronise(self):
        share, lam = self.relevance(self.method.sync_reduce).softmax(0), self.method.lam
        a = self.alpha.detach()
        share = torch.cat([a * share, (1 - a).expand(1, 3)]).softmax(0)
        with torch.no_grad():
            for model, column in zip(self.models, share.T, strict=True):
                for name, value in model.state_dict().items():
                    experts = [e.state_dict()[name] for e in (*self.routed.values(), self.main)]
                    mixed = sum(w * e for w, e in zip(column, experts, strict=True))
                    value.mul_(lam).add_((1 - lam) * mixed)

    def validation_loss(self):
        x, y = owned(self.data, SERVER, "val")
        gates = torch.nn.functional.one_hot(self.gate(x).argmax(-1), EXPERTS).double()
        return cross_entropy(self.mixture(gates, x), y).item()


@pytest.mark.parametrize(
    "settings",
    [{}, CODE, {"query": "kept"}, FRESH, RENORM, REDUCED, BALANCED],
    ids=["paper", "code", "query", "fresh", "renorm", "reduced", "balanced"],
)
def test_a_round_is_the_papers_algorithm_by_hand(settings):
    # The server's momenta would live on from one inner step to the next, which the loop lacks.
    server = TRAINED | {"keeps": "round"}
    method = fedmoe(init_experts="independent", inner_steps=2, server=server, lam=0.3, **settings)
    data = federation()
    start = method.init(data.num_clients, 0)
    hand = ByHand(method, data, start)
    losses = hand.round()
    after = method.round(start, cohort_of(method.task, data, executor="batched"))
    tolerance = 1e-10  # float64
    for client, model in enumerate(hand.models):
        assert_close(after.models[client], dict(model.state_dict()), tolerance)
    expected = hand.shared() | {"routed": tree.stack([*hand.experts().values()])}
    assert_close({name: after.model[name] for name in expected}, expected, tolerance)
    assert after.best.loss.item() == pytest.approx(min(losses), rel=1e-10)


# -- settings --------------------------------------------------------------------------------------


def test_experts_move_on_the_server_only_where_they_are_trained():
    still = {"local": sgd(lr=0.0), "sync_weights": "none", "init_experts": "shared"}
    start = fedmoe(**still).init(6, 0).model
    for name in ("routed", "main"):
        rates = [{f"{each}_lr_scale": 1.0} for each in ("noise", name)]
        ends = [run(fedmoe(**still | rate), rounds=1).model for rate in rates]
        other = {"routed": "main", "main": "routed"}[name]
        assert_close(ends[0][name], start[name], 1e-12)
        assert_close(ends[1][other], start[other], 1e-12)
        assert any((ends[1][name][key] - x).abs().max() > 1e-3 for key, x in start[name].items())


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_inference_keeps_the_experts_of_largest_gate_and_a_softmax_of_their_values(kept):
    method, data = fedmoe(top_k=kept, init_experts="independent"), federation()
    model = method.init(data.num_clients, 0).model
    x, y = owned(data, SERVER, "test")
    gate = module_of(method.gate, model["gate"])(x).softmax(-1).tolist()
    said = [module_of(method.task, p)(x).softmax(-1) for p in tree.unstack(model["routed"])]
    main = module_of(method.task, tree.take(model["main"], 0))(x).softmax(-1)
    rows = []
    for n, values in enumerate(gate):
        largest = sorted(range(EXPERTS), key=values.__getitem__)[-kept:]
        total = sum(np.exp(values[i]) for i in largest)  # Equation 10
        mixed = sum(np.exp(values[i]) / total * said[i][n] for i in largest)
        rows.append(0.5 * mixed + 0.5 * main[n])  # alpha begins in the middle
    batch = batch_of(x, y)
    torch.testing.assert_close(method.predict(model, batch).exp(), torch.stack(rows).detach())


def test_a_gate_that_is_trained_before_stays_as_it_is_later():
    method = fedmoe(gate_training="before")
    drawn, one, two = (run(method, rounds=rounds).model["gate"] for rounds in (0, 1, 2))
    assert_close(one, two, 0)
    assert not torch.equal(drawn["head.1.bias"], one["head.1.bias"])


def test_main_experts_train_alone_with_a_new_solver_if_asked():
    still = {"local": sgd(lr=0.0), "sync_weights": "none", "main_solver": TRAINED}
    method, data = fedmoe(**still), federation()
    module = module_of(method.task, tree.take(method.init(6, 0).model["main"], 0))
    x, y = owned(data, SERVER)
    solver = method.main_solver
    learn(module.parameters(), cross_entropy_of(module), x, y, solver, 0, "main/0", SERVER)
    state = run(method, data, rounds=1)
    assert_close(tree.take(state.model["main"], 0), dict(module.state_dict()), 1e-12)


@pytest.mark.parametrize("num_main", [0, 2])
def test_everybody_begins_with_the_expert_that_the_server_trained_if_asked(num_main):
    still = {"local": sgd(lr=0.0), "sync_weights": "none", "init_experts": "independent"}
    method = fedmoe(num_main=num_main, warm_start=TRAINED | {"epochs": 3}, **still)
    data, start = federation(), method.init(6, 0).model
    module = module_of(method.task, tree.take(start["main" if num_main else "routed"], 0))
    x, y = owned(data, SERVER)
    solver = method.warm_start
    learn(module.parameters(), cross_entropy_of(module), x, y, solver, 0, "server/warm", SERVER)
    warm = dict(module.state_dict())
    state = method.init(6, 0)
    for number, ids in enumerate([[0], [0, 2]]):  # each round brings a new client
        cohort = cohort_of(method.task, data, ids, round=number)
        state = method.round(state, cohort)
        assert cohort.journal.down == tree.numel(warm)
    for expert in tree.unstack(state.model["routed"]):
        assert_close(expert, warm, 1e-12)
    for expert in tree.unstack(state.model["main"]) if num_main else ():
        assert_close(expert, warm, 1e-12)
    for model in state.models:  # of those who were absent too
        assert_close(model, warm, 1e-12)


def test_the_best_mixture_is_kept_and_nothing_later_touches_it():
    # Rates at which the loss rises again.
    method = fedmoe(server=TRAINED | {"lr": 3.0}, local=sgd(lr=1.0), inner_steps=2)
    data, losses = federation(), []
    state = method.init(data.num_clients, 0)
    for number in range(6):
        state = method.round(state, cohort_of(method.task, data, round=number))
        losses.append(state.best.loss.item())
        if number == int(state.best.round) - 1:
            kept = tree.clone(state.best.params)
        assert_close(state.best.params, kept, 0)
    assert losses == sorted(losses, reverse=True) and int(state.best.round) < 6
    last = run(replace(method, keep="last"), rounds=6)
    assert int(last.best.round) == 6 and last.best.loss > state.best.loss
    assert_close(last.best.params["gate"], last.model["gate"], 0)


def test_further_numbers_of_kept_experts_have_the_results_of_trainings_of_their_own():
    settings = {"server": TRAINED | {"lr": 3.0}, "local": sgd(lr=1.0), "inner_steps": 2}
    settings |= {"experts": 5, "init_experts": "independent"}
    method, data = fedmoe(also_top=(2, 5), **settings), federation()
    state = run(method, data, rounds=4)
    everybody = lambda group: cohort_of(method.task, data, data.ids(group))  # noqa: E731
    found = evaluate.final(method, state, everybody).scores
    rounds = {int(state.best.round)}
    for kept in (1, 2, 5):
        alone = fedmoe(top_k=kept, **settings)
        trained = run(alone, data, rounds=4)
        rounds.add(int(trained.best.round))
        expected = evaluate.final(alone, trained, everybody).scores
        assert_close(state.model, trained.model, 0)
        mine = state.best if kept == 1 else state.others[f"top_{kept}"]
        assert_close(mine, trained.best, 0)
        names = ("default", "last") if kept == 1 else (f"top_{kept}", f"last_top_{kept}")
        for name, theirs in zip(names, ("default", "last"), strict=True):
            both = found[View("server", name, "test")], expected[View("server", theirs, "test")]
            assert both[0].loss == both[1].loss and both[0].correct == both[1].correct
    assert len(rounds) > 1  # each chose for itself


def test_the_last_mixture_and_every_clients_own_model_can_be_asked_at_the_end():
    method = fedmoe(server=TRAINED | {"lr": 3.0}, local=sgd(lr=1.0), inner_steps=2)
    data = federation()
    of_server = [data.test.of(owner) if owner == SERVER else [] for owner in range(PROBE + 1)]
    data = replace(data, test=Split.from_lists(of_server))  # clients have none
    state = run(method, data, rounds=6)
    assert int(state.best.round) < 6  # rates at which the loss rises again
    everybody = lambda group: cohort_of(method.task, data, data.ids(group))  # noqa: E731
    views = [View("server", "last", "test"), View("seen", "own", SHARED)]
    found = evaluate.final(method, state, everybody, views=views).scores
    x, y = owned(data, SERVER, "test")
    for view, models in (
        (View("server", "default", "test"), [state.best.params]),
        (views[0], [{name: state.model[name] for name in state.best.params}]),
        (views[1], [{"own": state.models[c]} for c in range(3)]),
    ):
        said = [method.predict(model, batch_of(x, y)) for model in models]
        assert found[view].correct[0].tolist() == [(p.argmax(-1) == y).sum() for p in said]
        losses = [cross_entropy(p, y).item() for p in said]
        np.testing.assert_allclose(found[view].loss[0], losses, rtol=1e-10)
    assert found[views[0]].loss != found[View("server", "default", "test")].loss


def test_what_is_written_down_is_the_gate_by_class_and_alpha():
    method, data = fedmoe(log_rounds=[2, 3, 9], lam=0.5), federation()
    state = run(method, data, rounds=3, ids=[0, 2])
    said = scoring.as_arrays(method.diagnostics(state))
    assert said["table_rounds"].tolist() == [2, 3]
    x, y = owned(data, SERVER)
    gates = module_of(method.gate, state.model["gate"])(x).softmax(-1).detach()
    for label in range(3):
        expected = gates[y == label].mean(0) if (y == label).any() else torch.zeros(EXPERTS)
        np.testing.assert_allclose(said["tables"][1, label], expected, rtol=1e-6)
    assert said["table_alphas"][1] == pytest.approx(state.model["alpha"].item())


def test_a_single_logit_is_of_two_classes():
    data = federation()
    data = replace(data, y=data.y.clip(max=1), num_classes=2)
    for combine in server_mixture.COMBINATIONS:
        for confidence in ("prob", "logit"):
            method = fedmoe(classes=1, combine=combine, confidence=confidence)
            state = run(method, data, rounds=1)
            x, y = owned(data, SERVER, "test")
            batch = batch_of(x, y)
            second = module_of(method.task, state.models[0])(x)[:, 0].detach()
            sure = torch.where(y == 1, second, -second)
            sure = sure if confidence == "logit" else sure.sigmoid()
            torch.testing.assert_close(method.certainty(state.models[0], batch), sure)
            total = method.predict(state.best.params, batch).exp().sum(-1)
            torch.testing.assert_close(total, torch.ones_like(total))
            assert all(leaf.isfinite().all() for leaf in tree.leaves(state.model))


def test_a_server_without_validation_examples_cannot_choose():
    with pytest.raises(DataError, match="no validation examples, by which its mixture is chosen"):
        run(fedmoe(), federation(owned=(12, 0, 8)))
