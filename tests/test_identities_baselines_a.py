"""Limit cases and behaviour of Clustered FL, L2SGD, pFedMe and pFedMe on Moreau envelopes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import assert_close, cohort_of, run, sgd, tiny_task, toy_federation

from fedlib import methods, tree
from fedlib.engine.task import Task
from fedlib.errors import ConfigError
from fedlib.federation import Federation, Split
from fedlib.models.linear import build
from fedlib.run import checkpoint

ROUNDS = 3


def make(name, local=None, **params):
    task = tiny_task(norm=True, dropout=0.3)
    return methods.load(name)(task=task, local=local or sgd(), **params)


# -- Clustered FL -----------------------------------------------------------------------------


def test_clustered_fl_without_a_split_is_fedavg():
    federation = toy_federation()
    clustered, single = (
        run(make("clustered", eps1=0.0), federation),
        run(make("fedavg"), federation),
    )
    assert_close(tree.take(clustered.models, 0), single.params)
    assert_close(clustered.memory, single.memory)


def test_clustered_fl_may_not_split_before_its_first_round_to_do_so():
    # With these bounds every cluster of more than two clients disagrees.
    federation, bounds = toy_federation(), {"eps1": 1e9, "eps2": 0.0}
    sizes = [
        len(tree.leaves(run(make("clustered", **bounds, min_round=2), federation, rounds=r))[0])
        for r in (2, 3)
    ]
    assert sizes == [1, 2]


def populations(of, examples=30, seed=0):
    """Clients with the same inputs and, in each population, other labels; the last are unseen.

    Args:
      of: population of each client; as many unseen ones as there are populations are added.
    """
    kinds = len(set(of))
    of = [*of, *range(kinds)]
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(len(of) * examples, 4))
    best = (x @ draw.normal(size=(4, 3))).argmax(1)
    owner = np.arange(len(x)) // examples
    rows = [np.flatnonzero(owner == client) for client in range(len(of))]
    group = np.zeros(len(of), np.uint8)
    group[-kinds:] = 1
    return Federation(
        x=x,
        y=((best + np.array(of)[owner]) % 3).astype(np.int64),
        num_classes=3,
        train=Split.from_lists([r[:-5] for r in rows]),
        val=Split.from_lists([[] for _ in of]),
        test=Split.from_lists([r[-5:] for r in rows]),
        group=group,
        client_id=np.arange(len(of)),
    )


def clustering():
    task = Task(lambda: build(4, 3), dtype=torch.float64)
    # Where populations contradict each other their mean stands still before the clients do.
    return methods.load("clustered")(task=task, local=sgd(lr=0.1, momentum=0.0), eps1=0.1, eps2=0.4)


def as_sets(cluster):
    return {frozenset(np.flatnonzero(cluster.numpy() == c).tolist()) for c in set(cluster.tolist())}


def test_two_populations_become_two_clusters():
    federation = populations([0, 1, 1, 0, 1, 0, 0])
    state = run(clustering(), federation, rounds=12)
    assert as_sets(state.cluster[:7]) == {frozenset({0, 3, 5, 6}), frozenset({1, 2, 4})}
    assert state.cluster[0] == 0
    assert len(tree.leaves(state.models)[0]) == 2


@pytest.mark.parametrize("executor", ["loop", "batched"])
def test_a_second_split_still_knows_who_is_who(executor):
    federation, method = populations([2, 0, 1, 0, 2, 1, 1, 2, 0, 0]), clustering()
    state, sizes = method.init(federation.num_clients, 0), []
    for number in range(30):
        cohort = cohort_of(method.task, federation, executor=executor, round=number)
        state = method.round(state, cohort)
        sizes.append(len(tree.leaves(state.models)[0]))
    assert sorted(set(sizes)) == [1, 2, 3]  # one split, then one of a part
    expected = {frozenset({1, 3, 8, 9}), frozenset({2, 5, 6}), frozenset({0, 4, 7})}
    assert as_sets(state.cluster[:10]) == expected
    unseen = cohort_of(method.task, federation, federation.ids("unseen"), round=30)
    # Unseen clients 10, 11 and 12 are of populations 0, 1 and 2, as clients 1, 2 and 0 are.
    alike = cohort_of(method.task, federation, [1, 2, 0], round=30)
    assert_close(method.assign(state, unseen), method.personalise(state, alike), 0)


def test_the_clusters_do_not_depend_on_the_order_of_the_cohort():
    federation, method = populations([0, 1, 1, 0, 1]), clustering()
    forwards = run(method, federation, rounds=12)
    backwards = run(method, federation, rounds=12, ids=[4, 3, 2, 1, 0])
    assert torch.equal(forwards.cluster, backwards.cluster)
    assert_close(forwards.models, backwards.models)


def test_a_grown_state_survives_a_checkpoint():
    federation, method = populations([0, 1, 1, 0, 1]), clustering()
    state = run(method, federation, rounds=12)
    template = method.init(federation.num_clients, 0)
    restored = checkpoint.restore(template, checkpoint.flatten(state))
    assert len(tree.leaves(restored.models)[0]) == 2
    again = cohort_of(method.task, federation, round=12)
    assert_close(method.round(restored, again), method.round(state, again), 0)


def test_after_a_split_a_client_still_gets_and_sends_one_model():
    federation, method = populations([0, 1, 1, 0, 1]), clustering()
    state = run(method, federation, rounds=12)
    cohort = cohort_of(method.task, federation, round=12)
    method.round(state, cohort)
    size = tree.numel(method.task.init(0))
    assert (cohort.journal.down, cohort.journal.up) == (size, size)


def test_clustered_fl_refuses_a_part_of_the_clients():
    federation, method = toy_federation(), make("clustered")
    state = method.init(federation.num_clients, 0)
    with pytest.raises(ConfigError, match=r"participation rate 1\), got 2 of 3"):
        method.round(state, cohort_of(method.task, federation, [0, 2]))


# -- pFedMe -----------------------------------------------------------------------------------


def test_pfedme_without_its_term_is_local_training():
    federation = toy_federation()
    pfedme, alone = run(make("pfedme", mu=0.0), federation), run(make("local"), federation)
    assert_close((pfedme.models, pfedme.memory), (tree.together(alone.models), alone.memory))


@pytest.mark.parametrize("cohorts", [[[0, 1, 2, 3]] * 3, [[0, 2], [3, 1], [2, 3]]])
def test_the_reference_of_pfedme_is_the_average_of_all_personal_models(cohorts):
    # Also of those that were absent.
    federation, method = toy_federation(unseen=0), make("pfedme", mu=0.5)
    state = method.init(federation.num_clients, 0)
    for number, ids in enumerate(cohorts):
        state = method.round(state, cohort_of(method.task, federation, ids, round=number))
    sizes = torch.from_numpy(federation.train.sizes).double()
    assert_close(state.reference, tree.mean(state.models, sizes))


def test_a_stronger_pull_keeps_personal_models_together():
    def spread(mu):
        task, solver = tiny_task(), sgd(lr=0.05, momentum=0.0)
        method = methods.load("pfedme")(task=task, local=solver, mu=mu)
        state = run(method, toy_federation(unseen=0), rounds=10)
        return tree.sqnorm(tree.sub(state.models, tree.broadcast(state.reference, 4)))

    assert spread(10.0) < 0.5 * spread(1.0) < 0.5 * spread(0.0)


# -- pFedMe on Moreau envelopes ---------------------------------------------------------------


def test_one_inner_step_with_its_inverse_rate_as_lambda_is_fedavg():
    # theta = w - r grad f(w), so lam (w - theta) = grad f(w) when lam = 1 / r. Running statistics
    # differ: the client's model is run twice per step.
    federation, rate = toy_federation(), 0.05
    moreau = make("pfedme_moreau", lam=1 / rate, inner_lr=rate, inner_steps=1)
    ours, single = run(moreau, federation), run(make("fedavg"), federation)
    trainable = moreau.task.trainable
    assert_close(trainable(ours.params), trainable(single.params))
    assert_close(ours.memory, single.memory)


@pytest.mark.parametrize("beta", [0.0, 0.5, 2.0])
def test_the_server_goes_beta_of_the_way_to_the_average(beta):
    federation, params = toy_federation(), {"lam": 5.0, "inner_lr": 0.1}
    method = make("pfedme_moreau", **params, beta=beta)
    start = method.init(federation.num_clients, 0)
    whole = run(make("pfedme_moreau", **params), federation, rounds=1).params
    ours = run(method, federation, rounds=1).params
    for name, value in whole.items():
        part = 1 if name in method.task.statistics else beta  # statistics are averaged
        expected = (1 - part) * start.params[name] + part * value
        torch.testing.assert_close(ours[name], expected, rtol=1e-12, atol=1e-12)


def test_theta_minimises_the_proximal_loss():
    # At the minimum of h the gradient of f is lam (w - theta): the gradient of the envelope.
    federation = toy_federation()
    task = tiny_task()
    method = methods.load("pfedme_moreau")(
        task=task, local=sgd(), lam=2.0, inner_lr=0.2, inner_steps=100
    )
    cohort = cohort_of(task, federation)
    w = task.init(0)

    def step(carry, batch):
        theta = method.prox(w, w, batch)
        return cohort.gradient(lambda x: method.h(x, w, batch), theta)

    slopes = cohort.scan(step, cohort.held(w), local=sgd(batch_size=12))
    assert tree.sqnorm(slopes) < 1e-16


# -- L2SGD ------------------------------------------------------------------------------------


def test_l2sgd_without_a_pull_is_local_training_of_as_many_steps():
    federation, method = toy_federation(), make("l2sgd", p=0.3, lam=0.0)
    state = run(method, federation)
    alone = make("local").init(federation.num_clients, 0)
    for number in range(ROUNDS):
        cohort = cohort_of(method.task, federation, round=number)
        if steps := method.local_steps(cohort):
            local = make("local", replace(sgd(), steps=steps))
            alone = local.round(alone, cohort)
    assert_close((state.models, state.memory), (tree.together(alone.models), alone.memory))


def test_l2sgd_with_the_whole_pull_leaves_one_model():
    federation = toy_federation(unseen=0)
    state = run(make("l2sgd", p=0.3, lam=0.3), federation)
    assert_close(state.models, tree.broadcast(state.average, 4))


def test_averaging_moves_the_models_and_not_their_average():
    federation = toy_federation(unseen=0)
    state = run(make("l2sgd", p=0.3, lam=0.1), federation)
    sizes = torch.from_numpy(federation.train.sizes).double()
    assert_close(state.average, tree.mean(state.models, sizes))


def test_the_number_of_local_steps_is_geometric():
    federation, method = toy_federation(), make("l2sgd", p=0.25, lam=0.1)
    cohort = cohort_of(method.task, federation)
    steps = np.array([method.local_steps(cohort.in_round(number)) for number in range(2000)])
    # P(k) = (1 - p)^k p; four standard errors of 2000 draws.
    for k in range(4):
        probability = 0.75**k * 0.25
        error = 4 * np.sqrt(probability * (1 - probability) / 2000)
        assert np.mean(steps == k) == pytest.approx(probability, abs=error)
    assert steps.tolist() != [
        method.local_steps(replace(cohort, round=n, seed=1)) for n in range(2000)
    ]


def test_a_round_without_local_steps_has_a_training_loss_too():
    federation, method = toy_federation(), make("l2sgd", p=0.5, lam=0.1)
    cohort = cohort_of(method.task, federation)
    idle = next(n for n in range(100) if method.local_steps(cohort.in_round(n)) == 0)
    state = method.init(federation.num_clients, 0)
    after = method.round(state, cohort.in_round(idle))
    expected = cohort.example_mean(cohort.score(method.task.losses, cohort.held(state.average)))
    assert_close(cohort.journal.losses, [expected])
    assert_close(after, state)  # everybody is where the average is


def test_l2sgd_refuses_a_solver_that_says_how_many_steps():
    with pytest.raises(ValueError, match="epochs must be 1 and steps absent, got 1 and 3"):
        make("l2sgd", sgd(steps=3))
