"""FedMix: limiting cases, what is sent, what is kept, and how clients predict."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import support
import torch
from support import cohort_of, sgd, tiny_task, toy_federation

from fedlib import methods, tree
from fedlib.engine.task import Batch
from fedlib.errors import DataError
from fedlib.methods.fedmix import FedMix
from fedlib.methods.parts import variational
from fedlib.run import scoring

SOLVER = sgd(momentum=0.0, weight_decay=0.0)  # plain SGD, as in the paper
R, E = 3, 3  # of `mix`, where nothing else is said
BIAS = "head.1.bias"  # of TinyNet


def mix(**params) -> FedMix:
    return FedMix(
        **{"task": tiny_task(), "local": SOLVER, "num_experts": E, "server_lr": 0.1} | params
    )


def run(method, federation, rounds=2, **options):
    return support.run(method, federation, rounds, **options)


def shuffled_gates(state):
    """The state with gates and table that are not uniform."""
    draw = torch.Generator().manual_seed(7)

    def noise(x):
        return torch.randn(x.shape, generator=draw, dtype=x.dtype)

    return state._replace(
        phi=noise(state.phi),
        gate=tree.map(noise, state.gate),
        private=tree.map(noise, state.private),
    )


def everybody(federation, group="seen"):
    return cohort_of(tiny_task(), federation, federation.ids(group))


def probabilities(method, personal, cohort):
    return cohort.score(method.predict, personal, split="test").exp()


def examples(federation, client, split="train"):
    rows = federation.split(split).of(client)
    x, y = torch.from_numpy(federation.x[rows]), torch.from_numpy(federation.y[rows])
    return Batch(x, y, torch.arange(len(rows)))


def shares_of(federation, client, num=R):
    counts = np.bincount(federation.y[federation.train.of(client)], minlength=num)
    return torch.from_numpy(counts / counts.sum())


# -- limiting cases ---------------------------------------------------------------------------


@pytest.mark.parametrize("pruning", [0.0, 1.0])
@pytest.mark.parametrize("gates", ["private", "shared"])
def test_one_expert_is_fedavg_with_adam(pruning, gates):
    federation = toy_federation()
    mine = mix(num_experts=1, pruning=pruning, gates=gates, horizon=3)
    theirs = methods.load("fedavg_adam")(
        task=mine.task, local=SOLVER, server_lr=mine.server_lr, horizon=3
    )
    state, expected = (run(method, federation, rounds=3) for method in (mine, theirs))
    for name, value in expected.params.items():
        # The specification's tolerance; sums are taken in another order.
        torch.testing.assert_close(state.experts[name][0], value, rtol=0, atol=1e-6)
    torch.testing.assert_close(state.divergence, expected.divergence)
    cohort = everybody(federation)
    for way in ("personalise", "finetune"):
        found, wanted = (
            probabilities(m, getattr(m, way)(s, cohort), cohort)
            for m, s in ((mine, state), (theirs, expected))
        )
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


def test_experts_that_no_label_uses_do_not_change():
    method, federation = mix(), toy_federation()
    start = method.init(federation.num_clients, 0)
    certain = torch.zeros(R, E, dtype=torch.float64)
    certain[:, 0] = 1000.0  # so certain that the others' probabilities are 0, and slopes too
    after = run(method, federation, rounds=3, state=start._replace(phi=certain))
    for name, value in start.experts.items():
        assert torch.equal(after.experts[name][1:], value[1:])
        assert not torch.equal(after.experts[name][0], value[0])
    assert torch.equal(after.phi.softmax(-1)[:, 1:], torch.zeros(R, 2, dtype=torch.float64))


def test_pruning_nothing_is_no_pruning():
    federation = toy_federation()
    without, hardly = (run(mix(pruning=eta), federation, rounds=3) for eta in (0.0, 1e-9))
    for a, b in zip(tree.leaves(without), tree.leaves(hardly), strict=True):
        # Renormalising by a sum of 1 rounds; Adam magnifies it.
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_the_first_round_with_eta_1_sends_and_pools_everything():
    method, federation = mix(pruning=1.0), toy_federation()
    cohort = cohort_of(method.task, federation)
    state = method.init(federation.num_clients, 0)
    personal = method.personalise(state, cohort)
    assert personal.keep.all()
    assert cohort.journal.down == E * tree.numel(method.task.init(0)) + R * E


# -- the server -------------------------------------------------------------------------------


def nothing_learnt(state, cohort, **changes):
    """An upload of what was sent, but for `changes`."""
    sent = {"experts": cohort.held(state.experts), "phi": cohort.held(state.phi)}
    return sent | changes


def server_update(method, state, cohort, uploaded):
    q = variational.marginal(cohort.shares("label", R), uploaded["phi"])
    return method.server_update(state, uploaded, q, torch.ones_like(q, dtype=torch.bool), cohort)


@pytest.mark.parametrize("prior", ["uniform", "empirical"])
def test_the_server_raises_the_entropy_when_nothing_was_learnt(prior):
    method, federation = mix(prior=prior, server_lr=1e-3), toy_federation()
    cohort = cohort_of(method.task, federation)
    draw = torch.Generator().manual_seed(0)
    phi = 2 * torch.randn(R, E, generator=draw, dtype=torch.float64)
    state = method.init(federation.num_clients, 0)._replace(phi=phi)
    after = server_update(method, state, cohort, nothing_learnt(state, cohort))
    p = method.prior_of(cohort)
    before, now = (variational.entropy((p @ x.softmax(-1)).log()) for x in (phi, after.phi))
    assert now > before
    assert all(torch.equal(after.experts[name], x) for name, x in state.experts.items())


def test_without_its_weight_the_entropy_is_left_alone():
    method, federation = mix(entropy_weight=0.0), toy_federation()
    cohort = cohort_of(method.task, federation)
    state = shuffled_gates(method.init(federation.num_clients, 0))
    after = server_update(method, state, cohort, nothing_learnt(state, cohort))
    assert torch.equal(after.phi, state.phi)


def test_a_uniform_table_stays_as_it_is_when_nothing_was_learnt():
    method, federation = mix(), toy_federation()
    cohort = cohort_of(method.task, federation)
    state = method.init(federation.num_clients, 0)
    after = server_update(method, state, cohort, nothing_learnt(state, cohort))
    # The slope of the entropy is 0 but for rounding, which Adam weighs against its epsilon.
    torch.testing.assert_close(after.phi, state.phi, rtol=0, atol=1e-8)


def test_the_prior_is_uniform_or_that_of_the_seen_clients_examples():
    federation = toy_federation()
    cohort = cohort_of(tiny_task(), federation, [1])  # whoever takes part
    uniform = mix().prior_of(cohort)
    torch.testing.assert_close(uniform, torch.full((R,), 1 / R, dtype=torch.float64))
    rows = np.concatenate([federation.train.of(client) for client in federation.ids("seen")])
    expected = np.bincount(federation.y[rows], minlength=R) / len(rows)
    found = mix(prior="empirical").prior_of(cohort)
    torch.testing.assert_close(found, torch.from_numpy(expected))


def assert_sharpest(phi, t):
    grown = math.exp(0.002 * t)
    expected = torch.full((R,), grown / (grown + 3), dtype=torch.float64)
    # Adam's epsilon of 1e-8, beside differences of 0.1, in up to 1000 steps.
    torch.testing.assert_close(phi.softmax(-1).diagonal(), expected, rtol=1e-5, atol=0)


def test_the_table_sharpens_at_the_speed_of_adam():
    # All clients always want expert 0 for label 0, 1 for 1, ...: every logit moves by the rate.
    method = mix(num_experts=4, server_lr=1e-3, entropy_weight=0.0)
    federation = toy_federation()
    cohort = cohort_of(method.task, federation)
    state = method.init(federation.num_clients, 0)
    wanted = 0.2 * torch.eye(R, 4, dtype=torch.float64) - 0.1
    for _ in range(200):
        phi = cohort.held(state.phi + wanted)
        state = server_update(method, state, cohort, nothing_learnt(state, cohort, phi=phi))
    assert_sharpest(state.phi, 200)
    phi, memory = state.phi, state.adam["phi"]
    for _ in range(800):
        phi, memory = method.server.step(phi, -wanted, memory)
    assert_sharpest(phi, 1000)
    assert float(phi.softmax(-1)[0, 0]) == pytest.approx(0.71, abs=0.005)  # specification 2


def test_without_reweighting_experts_are_averaged_by_examples():
    method, federation = mix(reweight=False), toy_federation()
    cohort = cohort_of(method.task, federation)
    seen = []
    original = variational.expert_step

    def spy(server, task, experts, returned, weights, memory):
        seen.append(weights)
        return original(server, task, experts, returned, weights, memory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variational, "expert_step", spy)
        method.round(method.init(federation.num_clients, 0), cohort)
    p = torch.tensor([7, 12, 6], dtype=torch.float64) / 25
    torch.testing.assert_close(seen[0], p[:, None].expand(3, E))


def test_a_shared_gate_takes_steps_of_adam_by_examples():
    method, federation = mix(gates="shared"), toy_federation()
    cohort = cohort_of(method.task, federation)
    state = method.init(federation.num_clients, 0)
    shift = torch.tensor([[1.0], [-1.0], [0.5]], dtype=torch.float64)  # by 7, 12 and 6 of 25
    gate = {
        "A": cohort.held(state.gate["A"]) + shift[:, :, None],
        "b": cohort.held(state.gate["b"]) - shift,
    }
    after = server_update(method, state, cohort, nothing_learnt(state, cohort, gate=gate))
    # (7 - 12 + 3) / 25 < 0: A goes down by the rate, b up.
    for name, sign in (("A", -1), ("b", 1)):
        expected = torch.full_like(state.gate[name], sign * method.server_lr)
        torch.testing.assert_close(after.gate[name], expected, rtol=1e-5, atol=0)


def test_the_divergence_of_a_round_is_recorded_by_expert():
    method, federation = mix(horizon=2), toy_federation()
    state = method.init(federation.num_clients, 0)
    cohort = cohort_of(method.task, federation)
    trained, _ = method.train(state, cohort, method.facts(state, cohort))
    shares = torch.stack([shares_of(federation, c) for c in range(3)])
    mass = (shares.unsqueeze(-1) * trained["phi"].softmax(-1)).sum(1)
    mass = mass * torch.tensor([[7.0], [12.0], [6.0]], dtype=torch.float64)
    for e in range(E):
        p, expected = mass[:, e] / mass[:, e].sum(), 0.0
        for name, value in state.experts.items():
            d = [(value[e] - trained["experts"][name][c, e]).flatten() for c in range(3)]
            expected += sum(
                p[i] * p[j] * 0.5 * (1 - torch.cosine_similarity(d[i], d[j], dim=0))
                for i in range(3)
                for j in range(3)
            )
        found = method.round(state, cohort).divergence
        torch.testing.assert_close(found[0, e], expected)
        assert found[1, e] == 0
    assert "divergence" not in mix().diagnostics(state)


# -- the local objective ----------------------------------------------------------------------


def local_loss(method, federation, client=1, received=(True, True, True)):
    """(model of one client, function of it)"""
    state = shuffled_gates(method.init(federation.num_clients, 0))
    cohort = cohort_of(method.task, federation, [client])
    facts = {**method.facts(state, cohort), "received": torch.tensor([received])}
    model = tree.take(method.download(state, cohort, facts["received"]), 0)
    return model, lambda m: method.loss(m, tree.take(facts, 0), examples(federation, client))


def slope(loss, model, *path):
    """Gradient of `loss` at `model` with respect to one of its entries."""
    model = tree.map(lambda x: x.clone().requires_grad_(), model)
    leaf = model
    for key in path:
        leaf = leaf[key]
    return torch.autograd.grad(loss(model), leaf)[0]


def measured_slope(loss, model, row, expert, step=1e-6):
    """The same with respect to one number of the table, by differences."""
    values = []
    for sign in (1, -1):
        phi = model["phi"].clone()
        phi[row, expert] += sign * step
        values.append(float(loss({**model, "phi": phi})))
    return (values[0] - values[1]) / (2 * step)


def test_pooling_weights_train_the_table_only_if_asked():
    federation = toy_federation()
    model, loss = local_loss(mix(grad_to_marginal=True), federation)
    full = slope(loss, model, "phi")
    for row in range(R):
        for expert in range(E):
            # The error of central differences is about the step squared, and rounding 1e-10.
            expected = measured_slope(loss, model, row, expert)
            assert float(full[row, expert]) == pytest.approx(expected, abs=1e-8)
    model, loss = local_loss(mix(), federation)
    assert not torch.allclose(slope(loss, model, "phi"), full, atol=1e-6)


def test_the_gate_trains_the_features_unless_told_not_to():
    federation, path = toy_federation(), ("experts", "body.0.weight")
    with_gate, without = mix(), mix(grad_to_features=False)
    found = []
    for method in (with_gate, without):
        model, loss = local_loss(method, federation)
        flat = {**model, "gate": tree.map(torch.zeros_like, model["gate"])}
        found.append([slope(loss, m, *path) for m in (model, flat)])
    (full, of_experts), (cut, same) = found
    torch.testing.assert_close(cut, of_experts)  # a uniform gate passes nothing on
    torch.testing.assert_close(same, of_experts)
    assert not torch.allclose(full, cut, atol=1e-6)


def test_the_local_entropy_is_that_of_the_labels_rows():
    federation = toy_federation()
    (model, without), (_, with_it) = (
        local_loss(mix(local_entropy=on), federation) for on in (False, True)
    )
    q = model["phi"].softmax(-1)[examples(federation, 1).y]
    entropy = -(q * q.log()).sum(1).mean()
    torch.testing.assert_close(with_it(model), without(model) - entropy)


def test_an_expert_that_was_not_received_neither_counts_nor_learns():
    federation = toy_federation()
    model, loss = local_loss(mix(pruning=1e-9), federation, received=(True, False, True))
    path = ("experts", "body.0.weight")
    found = slope(loss, model, *path)
    assert not found[1].any()
    assert found[0].any() and found[2].any()
    other = tree.map(torch.clone, model)
    for value in other["experts"].values():
        value[1] += 5.0
    torch.testing.assert_close(loss(other), loss(model), rtol=0, atol=0)


# -- what is sent, and what is kept -----------------------------------------------------------


def sent(method, federation, state=None):
    cohort = cohort_of(method.task, federation)
    method.round(state or method.init(federation.num_clients, 0), cohort)
    return cohort.journal.down, cohort.journal.up


def test_numbers_that_are_sent():
    federation = toy_federation()
    model = tree.numel(tiny_task().init(0))
    gate = 6 * E + E  # of 6 features
    assert sent(mix(), federation) == (E * model + R * E,) * 2
    assert sent(mix(gates="shared"), federation) == (E * model + R * E + gate,) * 2
    assert sent(mix(private_bias=True), federation) == (E * (model - 3) + R * E,) * 2


def test_pruned_experts_are_not_counted():
    method, federation = mix(pruning=0.9), toy_federation()
    state = method.init(federation.num_clients, 0)
    stored = state.marginal.clone()
    stored[:2] = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.2, 0.7]])  # 0.27 is sent, 0.3 is used
    phi = torch.tensor([[-5.0, -5.0, 5.0]] * R, dtype=torch.float64)
    down, up = sent(method, federation, state._replace(marginal=stored, phi=phi))
    model = tree.numel(tiny_task().init(0))
    # Sent are 2, 1 and 3 experts to three clients; all of them return but the last expert.
    assert down == pytest.approx((2 + 1 + 3) / 3 * model + R * E, rel=1e-12)
    assert up == pytest.approx(model + R * E, rel=1e-12)


def test_pruned_experts_come_back_when_the_table_wants_them():
    # Stored is what the client reported, pruned or not.
    method, federation = mix(pruning=1.0, server_lr=1e-3), toy_federation()
    state = method.init(federation.num_clients, 0)
    stored = state.marginal.clone()
    stored[0] = torch.tensor([0.1, 0.2, 0.7])
    cohort = cohort_of(method.task, federation)
    after = method.round(state._replace(marginal=stored), cohort)
    assert method.facts(state._replace(marginal=stored), cohort)["received"][0].tolist() == [
        False,
        False,
        True,
    ]
    # Its table hardly moved from uniform, so next time it is sent everything.
    assert method.facts(after, cohort)["received"][0].all()
    torch.testing.assert_close(after.marginal[0].sum(), torch.ones((), dtype=torch.float64))


def test_gates_and_biases_stay_with_their_clients():
    method, federation = mix(private_bias=True), toy_federation()
    first = run(method, federation, rounds=1, ids=[0, 1])
    second = run(method, federation, rounds=1, ids=[1, 2], state=first)
    start = method.init(federation.num_clients, 0)
    for name in ("gate", "bias"):
        for before, one, two in zip(
            *(tree.leaves(s.private[name]) for s in (start, first, second)), strict=True
        ):
            assert not before.any()
            assert one[0].any() and one[1].any() and not one[2].any()
            assert torch.equal(one[0], two[0])
            assert not torch.equal(one[1], two[1]) and two[2].any()
            assert not two[3].any()  # unseen
    assert BIAS not in second.experts


def test_uploads_have_nothing_private():
    federation = toy_federation()
    for gates, names in (("private", {"experts", "phi"}), ("shared", {"experts", "phi", "gate"})):
        method = mix(gates=gates, private_bias=True)
        state, cohort = method.init(federation.num_clients, 0), cohort_of(method.task, federation)
        trained, _ = method.train(state, cohort, method.facts(state, cohort))
        uploaded = method.upload(trained, torch.ones(3, E, dtype=torch.bool), cohort)
        assert uploaded.keys() == names
        assert BIAS not in uploaded["experts"]


def test_all_experts_of_a_client_have_its_bias():
    method, federation = mix(private_bias=True), toy_federation()
    state = run(method, federation)
    personal = method.personalise(state, everybody(federation))
    for client in range(3):
        for e in range(E):
            assert torch.equal(personal.experts[BIAS][client, e], state.private["bias"][client])


def test_marginals_are_reported_by_those_who_take_part():
    method, federation = mix(), toy_federation()
    state = method.init(federation.num_clients, 0)
    cohort = cohort_of(method.task, federation, [1])
    trained, _ = method.train(state, cohort, method.facts(state, cohort))
    after = method.round(state, cohort)
    expected = shares_of(federation, 1) @ trained["phi"][0].softmax(-1)
    torch.testing.assert_close(after.marginal[1], expected)
    uniform = torch.full((E,), 1 / E, dtype=torch.float64)
    for other in (0, 2, 3):
        torch.testing.assert_close(after.marginal[other], uniform)
    assert torch.equal(method.diagnostics(after)["marginal"], after.marginal)


def test_tables_are_recorded_after_their_rounds():
    method = mix(table_rounds=json.loads("[0, 2, 9]"))
    federation = toy_federation()
    uniform = torch.full((R, E), 1 / E, dtype=torch.float64)
    state = run(method, federation, rounds=3)
    second = run(method, federation, rounds=2)
    found = method.diagnostics(state)
    assert found["table_rounds"].tolist() == [0, 2]  # round 9 never came
    torch.testing.assert_close(found["tables"][0], uniform)
    torch.testing.assert_close(found["tables"][1], second.phi.softmax(-1))
    assert "tables" not in mix().diagnostics(state)


# -- prediction -------------------------------------------------------------------------------


def gate_of(state, client):
    return state.gate or {name: value[client] for name, value in state.private["gate"].items()}


def gate_by_hand(task, state, gate, q, batch, keep=(0, 1, 2)):
    """p(e|x) -> [B, E], and the experts' probabilities [B, E, L]"""
    features, experts = [], []
    for e in range(E):
        body, head = task.split(tree.take(state.experts, e))
        features.append(task.features(body, batch))
        experts.append(task.head_logits(head, features[-1], batch).softmax(-1))
    total = sum(q[e] for e in keep)
    pooled = sum(q[e] / total * features[e] for e in keep)
    raw = (pooled @ gate["A"] + gate["b"]).exp()
    return raw, torch.stack(experts, dim=1)


@pytest.mark.parametrize("gates", ["private", "shared"])
def test_a_known_client_mixes_probabilities_by_its_gate(gates):
    method, federation = mix(gates=gates), toy_federation()
    state, cohort = shuffled_gates(run(method, federation)), everybody(federation)
    found = probabilities(method, method.personalise(state, cohort), cohort)
    for client in range(3):
        q = shares_of(federation, client) @ state.phi.softmax(-1)
        batch = examples(federation, client, "test")
        raw, experts = gate_by_hand(method.task, state, gate_of(state, client), q, batch)
        expected = ((raw / raw.sum(1, keepdim=True)).unsqueeze(-1) * experts).sum(1)
        torch.testing.assert_close(found[client], expected)


def test_a_client_without_some_experts_trusts_the_others_only():
    method, federation = mix(pruning=0.9), toy_federation()
    state = shuffled_gates(method.init(federation.num_clients, 0))
    phi = torch.tensor([[0.0, -2.0, 0.5]] * R, dtype=torch.float64)  # q is about (.36, .05, .59)
    state, cohort = state._replace(phi=phi), everybody(federation)
    personal = method.personalise(state, cohort)
    assert personal.keep.tolist() == [[True, False, True]] * 3
    found = probabilities(method, personal, cohort)
    for client in range(3):
        batch = examples(federation, client, "test")
        q = phi[0].softmax(-1)
        raw, experts = gate_by_hand(method.task, state, gate_of(state, client), q, batch, (0, 2))
        raw[:, 1] = 0
        expected = ((raw / raw.sum(1, keepdim=True)).unsqueeze(-1) * experts).sum(1)
        torch.testing.assert_close(found[client], expected)
        torch.testing.assert_close(found[client].sum(1), torch.ones(4, dtype=torch.float64))


def test_the_label_of_an_example_is_not_asked_for():
    method, federation = mix(), toy_federation()
    state = shuffled_gates(run(method, federation))
    test = np.concatenate([federation.test.of(c) for c in range(4)])
    y = federation.y.copy()
    y[test] = (y[test] + 1) % R
    for way in ("personalise", "anybody", "finetune"):
        found = []
        for data in (federation, replace(federation, y=y)):
            cohort = everybody(data)
            found.append(probabilities(method, getattr(method, way)(state, cohort), cohort))
        assert torch.equal(*found)


@pytest.mark.parametrize("group", ["seen", "unseen"])
@pytest.mark.parametrize("eta", [0.0, 0.9])
@pytest.mark.parametrize("gates", ["private", "shared"])
def test_anybody_averages_the_gates_of_all_seen_clients(group, eta, gates):
    method, federation = mix(pruning=eta, gates=gates), toy_federation()
    state, cohort = shuffled_gates(run(method, federation)), everybody(federation, group)
    found = probabilities(method, method.anybody(state, cohort), cohort)
    prior = {0: 7 / 25, 1: 12 / 25, 2: 6 / 25}
    for row, client in enumerate(federation.ids(group)):
        batch = examples(federation, client, "test")
        gate = 0
        for s, p in prior.items():
            q = shares_of(federation, s) @ state.phi.softmax(-1)
            sent = [e for e in range(E) if state.marginal[s, e] >= 0.9 * eta / E]
            keep = [e for e in sent if q[e] >= eta / E]
            keep = keep or [max(sent, key=lambda e: q[e])]
            raw, experts = gate_by_hand(method.task, state, gate_of(state, s), q, batch, keep)
            gate = gate + p * raw / raw.sum(1, keepdim=True)
        torch.testing.assert_close(found[row], (gate.unsqueeze(-1) * experts).sum(1))


def test_anybody_has_the_mean_bias():
    method, federation = mix(private_bias=True), toy_federation()
    state = shuffled_gates(run(method, federation))
    personal = method.anybody(state, everybody(federation, "unseen"))
    mean = state.private["bias"][:3].mean(0)  # of the seen clients, each the same
    for e in range(E):
        torch.testing.assert_close(personal.experts[BIAS][0, e], mean)


def test_fine_tuned_clients_are_those_before_their_upload():
    method, federation = mix(private_bias=True), toy_federation()
    state = run(method, federation)
    cohort = cohort_of(method.task, federation, round=2)
    tuned, after = method.finetune(state, cohort), method.round(state, cohort)
    for name, value in tuned.gate.items():
        assert torch.equal(value, after.private["gate"][name][:3])
    torch.testing.assert_close(tuned.pooling, after.marginal[:3])
    assert torch.equal(tuned.experts[BIAS][:, 1], after.private["bias"][:3])
    name = "body.0.weight"
    assert not torch.equal(tuned.experts[name][0], tuned.experts[name][1])


# -- new clients ------------------------------------------------------------------------------


def clustered_federation():
    """Two kinds of clients: labels 0 and 1 on one side of the inputs, 2 and 3 on the other."""
    federation = toy_federation(sizes=(40, 40, 40, 40, 40, 40), unseen=2, classes=4, test=20)
    x, y = federation.x.copy(), federation.y.copy()
    for client in range(6):
        rows = np.concatenate([federation.split(s).of(client) for s in ("train", "test")])
        y[rows] = 2 * (client % 2) + (x[rows, 1] > 0)
    return replace(federation, x=x, y=y)


def test_a_new_client_with_labels_does_better_than_with_a_uniform_gate():
    federation = clustered_federation()
    task = tiny_task(classes=4)
    # What is inside a client decides, not the input: the gate's bias has to find the right expert.
    method = mix(task=task, num_experts=2, server_lr=0.1, gate_epochs=20)
    state = method.init(federation.num_clients, 0)
    phi = torch.tensor([[3.0, -3.0]] * 2 + [[-3.0, 3.0]] * 2, dtype=torch.float64)
    state = run(method, federation, 12, state=state._replace(phi=phi), executor="batched")
    cohort = cohort_of(task, federation, federation.ids("unseen"), executor="batched")
    personal = method.welcome(state, cohort)
    uniform = personal._replace(gate=tree.map(torch.zeros_like, personal.gate))
    fitted, flat = (scoring.score(method, p, cohort, "test") for p in (personal, uniform))
    assert (fitted.loss < flat.loss - 0.2).all()
    assert (fitted.correct > flat.correct).all() or (fitted.correct == fitted.count).all()


@pytest.mark.parametrize("gates", ["private", "shared"])
@pytest.mark.parametrize("private_bias", [False, True])
def test_a_new_client_fits_nothing_but_what_is_private(gates, private_bias):
    method = mix(gates=gates, private_bias=private_bias)
    federation = toy_federation()
    state = run(method, federation)
    before = tree.map(torch.clone, state)
    personal = method.welcome(state, everybody(federation, "unseen"))
    assert all(
        torch.equal(a, b) for a, b in zip(tree.leaves(before), tree.leaves(state), strict=True)
    )
    for name, value in state.experts.items():
        assert torch.equal(personal.experts[name][0], value)
    learnt = personal.gate["b"][0]
    assert torch.equal(learnt, state.gate["b"]) if gates == "shared" else learnt.any()
    if private_bias:
        assert personal.experts[BIAS].any()
    expected = shares_of(federation, 3) @ state.phi.softmax(-1)
    torch.testing.assert_close(personal.pooling[0], expected)


# -- side information, settings ---------------------------------------------------------------


def test_a_label_and_an_angle_are_looked_up_in_their_own_tables():
    federation = toy_federation()
    side = np.arange(len(federation.y)) % 5
    method = mix(condition="side", num_sides=5)
    assert method.num_rows == 5
    model, loss = local_loss(method, replace(federation, side=side))
    rows = federation.train.of(1)
    used = slope(loss, model, "phi").any(1).nonzero().flatten().tolist()
    assert used == sorted(set(side[rows].tolist()))


def test_side_information_has_to_be_there():
    federation = toy_federation()
    method = mix(condition="side", num_sides=5)
    with pytest.raises(DataError, match="no side information; condition on labels instead"):
        run(method, federation)
    side = np.arange(len(federation.y)) % 6
    with pytest.raises(DataError, match="side must be below 5, got 5"):
        run(method, replace(federation, side=side))


def test_curves_are_what_is_evaluated_during_training():
    plain, curves = mix(), mix(curves=json.loads('["new_shard"]'))
    assert plain.protocols == {
        "seen": {"default": "personalise"},
        "unseen": {"default": "welcome"},
    }
    assert set(curves.protocols["seen"]) == {"default", "new_shard"}
    assert set(curves.final_protocols["seen"]) == {"finetuned"}
    assert set(curves.final_protocols["unseen"]) == set()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"num_experts": 0}, "num_experts must be at least 1, got 0"),
        ({"condition": "angle"}, "condition must be one of .* got 'angle'"),
        ({"prior": "flat"}, "prior must be one of .* got 'flat'"),
        ({"gates": "own"}, "gates must be one of .* got 'own'"),
        ({"condition": "side"}, "num_sides must be at least 1 .* got 0 for 'side'"),
        ({"num_sides": 8}, "0 for 'label', got 8 for 'label'"),
        ({"pruning": 1.1}, r"pruning must be in \[0, 1\], got 1.1"),
        ({"entropy_weight": -1.0}, "entropy_weight must be at least 0, got -1.0"),
        ({"gate_epochs": 0}, "gate_epochs must be at least 1, got 0"),
        ({"horizon": -1}, "horizon must be at least 0, got -1"),
        ({"table_rounds": [5, 2]}, r"must ascend from 0 or more, got \[5, 2\]"),
        ({"table_rounds": [-1]}, r"must ascend from 0 or more, got \[-1\]"),
        ({"curves": ["other"]}, r"curves must be of .* got \['other'\]"),
        ({"server_lr": -1.0}, "lr must be at least 0, got -1.0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        mix(**params)


def test_a_private_bias_has_to_be_there():
    def build():
        net = torch.nn.Module()
        net.body, net.head = torch.nn.Linear(4, 2), torch.nn.Linear(2, 3, bias=False)
        return net

    task = replace(tiny_task(), build=build)
    with pytest.raises(ValueError, match="needs a head with one bias, got none"):
        mix(task=task, private_bias=True)
