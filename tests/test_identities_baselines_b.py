"""Identities of APFL, q-FFL, AFL and gated experts: limit cases in which one is another."""

import pytest
import torch
from support import EXECUTORS, assert_close, cohort_of, run, sgd, tiny_task, toy_federation

from fedlib import methods, tree
from fedlib.errors import DataError

ROUNDS = 3
EQUAL = (8, 8, 8, 5)  # the last one is unseen


def make(name, local=None, norm=True, dropout=0.3, **params):
    task = tiny_task(norm=norm, dropout=dropout)
    return methods.load(name)(task=task, local=local or sgd(), **params)


# -- APFL ---------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_the_shared_model_of_apfl_is_that_of_fedavg_whatever_alpha(alpha):
    federation = toy_federation()
    shared = run(make("apfl", alpha=alpha), federation).params
    assert_close(shared, run(make("fedavg"), federation).params)


def test_apfl_that_predicts_with_the_own_model_alone_is_local():
    federation, method = toy_federation(), make("apfl", alpha=1.0)
    state, local = run(method, federation), run(make("local"), federation)
    assert_close(state.models, tree.together(local.models))
    personal = method.personalise(state, cohort_of(method.task, federation))
    assert_close(personal, tree.together(tree.take(local.models, slice(3))))


def test_apfl_that_predicts_with_the_shared_model_alone_is_fedavg():
    # All but batch statistics, which are always those that the client has seen.
    federation, method = toy_federation(), make("apfl", alpha=0.0)
    cohort = cohort_of(method.task, federation)
    personal = method.personalise(run(method, federation), cohort)
    fedavg = make("fedavg")
    shared = fedavg.personalise(run(fedavg, federation), cohort)
    trainable = method.task.trainable
    assert_close(trainable(personal), trainable(shared))


def test_own_models_that_nothing_is_predicted_with_are_not_trained():
    federation, method = toy_federation(), make("apfl", sgd(weight_decay=0.0), alpha=0.0)
    state = run(method, federation)
    start = tree.repeat(method.task.init(0), federation.num_clients)
    assert_close(method.task.trainable(state.models), method.task.trainable(start), 0)


def test_unseen_clients_get_the_shared_model_of_apfl():
    federation, method = toy_federation(), make("apfl")
    state = run(method, federation)
    unseen = cohort_of(method.task, federation, federation.ids("unseen"))
    assert_close(tree.take(method.welcome(state, unseen), 0), state.params, 0)


# -- q-FFL --------------------------------------------------------------------------------


def test_qffl_without_fairness_is_fedavg_of_clients_of_one_size():
    federation = toy_federation(sizes=EQUAL)
    assert_close(
        run(make("qffl", q=0.0), federation).params, run(make("fedavg"), federation).params
    )


def test_qffl_without_fairness_gives_every_client_the_same_weight():
    method = make("qffl", q=0.0)
    w, v = {"w": torch.ones(()).double()}, {"w": torch.tensor([0.9, 0.7, 0.2]).double()}
    losses = torch.tensor([1.0, 0.5, 3.0]).double()
    sent = torch.func.vmap(lambda v, loss: method.report(w, v, loss))(v, losses)
    torch.testing.assert_close(method.update(w, *sent)["w"], v["w"].mean())


def test_qffl_never_damps_the_clients_that_take_part():
    federation, trainable = toy_federation(sizes=EQUAL), tiny_task(norm=True).trainable
    fair = run(make("qffl", q=0.0), federation, ids=[1], aggregation="damped")
    average = run(make("fedavg"), federation, ids=[1], aggregation="renormalised")
    assert_close(trainable(fair.params), trainable(average.params))


@pytest.mark.parametrize("q", [0.5, 1.0, 5.0])
def test_a_client_with_a_higher_loss_pulls_harder(q):
    # Two clients that pull equally far in opposite directions.
    method = make("qffl", q=q)
    w, v = {"w": torch.zeros(()).double()}, {"w": torch.tensor([1.0, -1.0]).double()}
    losses = torch.tensor([2.0, 1.0]).double()
    sent = torch.func.vmap(lambda v, loss: method.report(w, v, loss))(v, losses)
    assert 0 < method.update(w, *sent)["w"] < 1


def test_qffl_needs_a_rate_with_an_inverse():
    with pytest.raises(ValueError, match="lr must be above 0, as L is 1 / lr, got 0.0"):
        make("qffl", sgd(lr=0.0))


# -- AFL ----------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
def test_afl_with_fixed_weights_is_fedavg_of_single_steps(executor):
    # Momenta are linear in the gradients: averaged over clients, they are the server's.
    federation = toy_federation()
    agnostic = run(make("afl", lr_lambda=0.0), federation, executor=executor)
    average = run(make("fedavg", sgd(steps=1)), federation, executor=executor)
    assert_close(agnostic.params, average.params)
    shares = torch.tensor([7, 12, 6, 0]).double() / 25
    assert_close(agnostic.lambdas, shares)


def test_weights_of_afl_stay_on_the_simplex_and_are_zero_for_the_unseen():
    lambdas = run(make("afl", lr_lambda=0.05), toy_federation()).lambdas
    assert float(lambdas.sum()) == pytest.approx(1)
    assert lambdas.min() >= 0
    assert lambdas[3] == 0
    assert not torch.allclose(lambdas[:3], torch.tensor([7, 12, 6]).double() / 25)


def test_a_large_rate_gives_the_client_with_the_highest_loss_all_weight():
    federation, method = toy_federation(), make("afl", lr_lambda=1e6)
    cohort = cohort_of(method.task, federation)
    lambdas = method.round(method.init(4, 0), cohort).lambdas
    expected = torch.zeros(4).double()
    expected[cohort.journal.losses[0].argmax()] = 1
    assert_close(lambdas, expected)


def test_clients_outside_the_cohort_keep_their_weight_in_afl():
    federation, method = toy_federation(), make("afl", lr_lambda=0.05)
    lambdas = method.round(method.init(4, 0), cohort_of(method.task, federation, [0, 2])).lambdas
    assert lambdas[1] == pytest.approx(12 / 25)
    assert float(lambdas.sum()) == pytest.approx(1)
    assert lambdas[0] != pytest.approx(7 / 25)


@pytest.mark.parametrize("changes", [{"epochs": 2}, {"steps": 3}, {"keeps": "round"}])
def test_afl_refuses_local_training_that_it_does_not_do(changes):
    with pytest.raises(ValueError, match="one step per round"):
        make("afl", sgd(**changes))


# -- gated experts --------------------------------------------------------------------------------


def mixture(**options):
    return make("gated_experts", **{"num_experts": 2, "gate_features": 4} | options)


def test_gated_experts_with_one_expert_is_local():
    federation, method = toy_federation(), mixture(num_experts=1)
    state, local = run(method, federation), run(make("local"), federation)
    assert_close(state.models["expert"], tree.together(local.models))
    cohort = cohort_of(method.task, federation)
    predicted = cohort.score(method.predict, method.personalise(state, cohort), split="test")
    alone = cohort.score(method.task.log_probs, tree.take(local.models, cohort.ids), split="test")
    assert_close(predicted, alone)
    assert cohort.journal.down == 0


def test_the_first_experts_are_shared_and_the_last_and_the_gate_are_not():
    federation, method = toy_federation(), mixture(num_experts=3)
    state = run(method, federation)
    cohort = cohort_of(method.task, federation)
    one, other, _ = tree.unstack(method.personalise(state, cohort))
    for a, b in zip(*(tree.leaves(x["experts"]) for x in (one, other)), strict=True):
        assert torch.equal(a[:-1], b[:-1])
        assert not torch.equal(a[-1], b[-1])
    for a, b in zip(*(tree.leaves(x["gate"]) for x in (one, other)), strict=True):
        assert not torch.equal(a, b)


def test_unseen_clients_get_the_averages_of_private_experts_and_gates():
    federation, method = toy_federation(), mixture()
    state = run(method, federation)
    unseen = cohort_of(method.task, federation, federation.ids("unseen"))
    given = tree.take(method.welcome(state, unseen), 0)
    seen, sizes = slice(3), torch.tensor([7, 12, 6])
    average = tree.mean(tree.take(state.models, seen), sizes.double())
    assert_close(tree.take(given["experts"], -1), average["expert"])
    assert_close(given["gate"], average["gate"])


def test_private_modules_of_an_absent_client_count_as_it_has_them():
    federation, method = toy_federation(), mixture()
    state = run(method, federation)
    present = cohort_of(method.task, federation, [1, 2], round=2)
    state = method.round(state, present)
    unseen = cohort_of(method.task, federation, federation.ids("unseen"))
    given = tree.take(method.welcome(state, unseen), 0)
    sizes = torch.tensor([7, 12, 6]).double()  # client 0 has stayed away, and weighs 7 of 25
    average = tree.mean(tree.take(state.models, slice(3)), sizes)
    assert_close(tree.take(given["experts"], -1), average["expert"])
    assert_close(given["gate"], average["gate"])


def test_a_gate_takes_training_batches_of_one_example_and_experts_that_normalise_do_not():
    # Batches of 4 leave one example of the first client alone.
    federation = toy_federation(sizes=(9, 12, 6, 10))
    loop, batched = (run(mixture(norm=False), federation, executor=e) for e in EXECUTORS)
    assert_close(loop, batched, 1e-10)
    with pytest.raises(DataError, match="client 0 has 9 training examples"):
        run(mixture(norm=True), federation)
