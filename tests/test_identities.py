"""Identities between methods: limit cases in which one is another."""

import pytest
import torch
from support import assert_close, cohort_of, run, sgd, tiny_task, toy_federation

from fedlib import methods, tree
from fedlib.methods.fedem import State as MixtureState

ROUNDS = 3


def make(name, **params):
    return methods.load(name)(task=tiny_task(norm=True, dropout=0.3), local=sgd(), **params)


def test_fedprox_without_its_term_is_fedavg():
    federation = toy_federation()
    assert_close(run(make("fedprox", mu=0.0), federation), run(make("fedavg"), federation))


def test_fedem_with_one_expert_is_fedavg():
    federation = toy_federation()
    mixture = run(make("fedem", num_experts=1), federation)
    single = run(make("fedavg"), federation)
    assert_close(tree.take(mixture.experts, 0), single.params)
    assert torch.equal(mixture.pi, torch.ones_like(mixture.pi))


def test_pfedmm_with_one_head_is_fedavg():
    federation = toy_federation()
    trained = run(make("pfedmm", num_experts=1), federation).experts
    single = run(make("fedavg"), federation)
    whole = {**trained["body"], **tree.take(trained["heads"], 0)}
    assert_close({name: whole[name] for name in single.params}, single.params)


def test_pfedmm_without_a_body_is_fedem():
    # A body without parameters leaves nothing to share: E heads are E whole models.
    from fedlib.engine.task import Task
    from fedlib.models.linear import build

    federation = toy_federation()
    task = Task(lambda: build(4, 3), dtype=torch.float64)
    fedem = methods.load("fedem")(task=task, local=sgd(), num_experts=3)
    pfedmm = methods.load("pfedmm")(task=task, local=sgd(), num_experts=3)
    whole, split = run(fedem, federation), run(pfedmm, federation)
    assert_close(whole.experts, split.experts["heads"])
    assert_close(whole.pi, split.pi)


def test_fedavg_of_one_client_is_local_training():
    federation = toy_federation(sizes=(12, 6), unseen=1)
    alone = run(make("local"), federation)
    assert_close(run(make("fedavg"), federation).params, tree.take(alone.models, 0))


def test_fedavg_plus_trains_as_fedavg():
    federation = toy_federation()
    assert_close(run(make("fedavg_plus"), federation).trained, run(make("fedavg"), federation))


def test_a_learning_rate_of_zero_changes_nothing():
    federation = toy_federation()
    method = methods.load("fedavg")(task=tiny_task(), local=sgd(lr=0.0))
    start = method.init(federation.num_clients, 0)
    assert_close(run(method, federation, state=start).params, start.params)


@pytest.mark.parametrize("name", ["fedavg", "fedem", "pfedmm"])
def test_both_aggregations_agree_when_everybody_takes_part(name):
    federation = toy_federation()
    method = make(name, **({} if name == "fedavg" else {"num_experts": 2}))
    damped, renormalised = (
        run(method, federation, aggregation=a) for a in ("damped", "renormalised")
    )
    assert_close(damped, renormalised)


def test_a_constant_added_to_all_losses_of_an_example_leaves_responsibilities_alone():
    from fedlib.engine.experts import responsibilities

    draw = torch.Generator().manual_seed(0)
    losses = torch.rand(2, 5, 3, generator=draw, dtype=torch.float64)
    weights = torch.softmax(torch.rand(2, 3, generator=draw, dtype=torch.float64), -1)
    shift = 100 * torch.rand(2, 5, 1, generator=draw, dtype=torch.float64)
    assert_close(responsibilities(weights, losses), responsibilities(weights, losses + shift))


def test_a_mixture_weight_of_zero_is_absorbing():
    from fedlib.engine.experts import responsibilities

    q = responsibilities(torch.tensor([0.0, 1.0]), torch.tensor([[0.0, 50.0], [1.0, 1.0]]))
    assert torch.equal(q, torch.tensor([[0.0, 1.0], [0.0, 1.0]]))


def test_weights_with_a_uniform_prior_do_not_depend_on_the_weights_before():
    federation = toy_federation()
    method = make("pfedmm", num_experts=3, prior="uniform")
    cohort = cohort_of(method.task, federation)
    state = method.init(federation.num_clients, 0)
    skewed = torch.tensor([0.8, 0.1, 0.1]).double().expand(cohort.size, 3)
    _, from_uniform = method.e_step(state, state.pi[cohort.ids], cohort)
    _, from_skewed = method.e_step(state, skewed, cohort)
    assert_close(from_uniform, from_skewed)


def test_a_dirichlet_prior_adds_its_pseudo_counts():
    # pi is proportional to a - 1 + the examples an expert is responsible for.
    federation, a = toy_federation(), 3.0
    plain, smooth = make("pfedmm", num_experts=2), make("pfedmm", num_experts=2, concentration=a)
    cohort = cohort_of(plain.task, federation)
    state = plain.init(federation.num_clients, 0)
    _, pi = plain.e_step(state, state.pi[cohort.ids], cohort)
    _, smoothed = smooth.e_step(state, state.pi[cohort.ids], cohort)
    counts = cohort.num_examples[:, None]
    assert_close(smoothed, (counts * pi + a - 1) / (counts + 2 * (a - 1)))


def test_unseen_clients_carry_their_weights_from_one_evaluation_to_the_next():
    federation, method = toy_federation(), make("fedem", num_experts=3)
    state: MixtureState = run(method, federation)
    unseen = cohort_of(method.task, federation, federation.ids("unseen"), round=ROUNDS)
    once = method.observe(state, unseen, "unseen")
    twice = method.observe(once, unseen, "unseen")
    # Fresh weights know nothing of earlier evaluations; carried ones sharpen each time.
    fresh = method.welcome(twice, unseen)[1]
    assert_close(fresh, method.welcome(state, unseen)[1])
    assert_close(once.pi[unseen.ids], fresh)
    assert twice.pi[unseen.ids].max() > once.pi[unseen.ids].max()
    assert_close(once.pi[federation.ids("seen")], state.pi[federation.ids("seen")])
