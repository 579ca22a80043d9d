"""IFCA with exploration and early stopping: against a loop of torch.optim, and rule by rule."""

import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from reference import ROUNDS, SOLVER, Reference, assert_params, cross_entropy_of, module_of
from support import TinyNet, cohort_of, run, sgd, simulation_of, tiny_task, toy_federation
from torch.nn.functional import cross_entropy

from fedlib import methods, streams, tree
from fedlib.engine.experts import expert_seed
from fedlib.engine.task import Task
from fedlib.errors import DataError
from fedlib.federation import Split
from fedlib.methods import ifca
from fedlib.models import leaf_cnn
from fedlib.run import scoring
from fedlib.run.simulate import Simulation


def make(num_experts=3, task=None, local=None, **params):
    params = {"stop": "all", "stop_split": "test"} | params
    local = local or sgd(keeps="round")
    return methods.load("ifca")(
        task=task or tiny_task(), local=local, num_experts=num_experts, **params
    )


# -- exploration ----------------------------------------------------------------------------


def probability(name, t, num_models=3):
    return make(num_models, exploration=name, epsilon=0.2, horizon=40).probability(t)


def test_schedules_of_exploration():
    assert [probability("none", t) for t in (0, 5)] == [0, 0]
    assert [probability("eps", t) for t in (0, 5)] == [0.2, 0.2]
    assert [probability("eps_decay", t) for t in (0, 4)] == [1, 1 / 5]
    # (t + 1)^-b with b = -ln(eps) / ln(T / 8 + 1): eps at t = T / 8 = 5, eps^2 at 6^2 - 1.
    assert probability("eps_decay_b", 0) == 1
    assert probability("eps_decay_b", 40 / 8) == pytest.approx(0.2)
    assert probability("eps_decay_b", 35) == pytest.approx(0.2**2)
    for t in range(4):
        two = probability("eps_decay_k", t, num_models=2)
        assert two == probability("eps_decay", t)
    assert probability("eps_decay_k", 7, num_models=6) == pytest.approx(8 ** (-1 / 3))


def test_ties_are_drawn_evenly():
    losses = torch.tensor([0.2, 0.1, 0.1]).double().expand(10_000, -1)  # of as many clients
    counts = Counter(ifca.pick_models(losses, 0.0, np.arange(10_000), 0, "test").tolist())
    assert counts.keys() == {1, 2} and counts.total() == 10_000
    assert abs(counts[1] - 5000) <= 4 * math.sqrt(10_000 / 4)  # four standard deviations


# -- the whole method by hand ----------------------------------------------------------------


def by_hand(federation, method, task):
    """Rounds of real modules and optimisers; state dicts of the models and of the best of each."""
    hand, num = Reference(federation, solver=method.local), method.num_experts
    shared = [task.init(expert_seed(0, e)) for e in range(num)]
    if method.shares_body:
        shared = [own | task.split(shared[0])[0] for own in shared]
    best, least, failed, picks = [None] * num, [math.inf] * num, [0] * num, []
    held_out, chosen = {}, {}

    def losses(client, split):
        x, y = hand.shard(client, split)
        with torch.no_grad():
            return [cross_entropy(module_of(task, s).eval()(x), y).item() for s in shared]

    def client(c, number):
        draws = streams.generator(0, number, "explore").random((federation.num_clients, 2))[c]
        explored = draws[0] < method.epsilon
        j = int(draws[1] * num) if explored else int(np.argmin(losses(c, "train")))
        held_out.setdefault(j, []).append(losses(c, "test")[j])
        net = chosen.setdefault(j, {})[c] = module_of(task, shared[j])
        hand.fit(c, number, hand.solvers_of(net), cross_entropy_of(net))

    def server(ids):
        checks = len(picks) % method.stop_every == 0
        picks.append([len(chosen.get(j, ())) for j in range(num)])
        for j in range(num):
            if j in chosen:
                shared[j] = hand.average(chosen[j])
        if method.shares_body:
            every = hand.average({c: net for nets in chosen.values() for c, net in nets.items()})
            body, _ = task.split(every)
            shared[:] = [own | body for own in shared]
        for j in range(num):
            if checks and j in held_out and np.mean(held_out[j]) < least[j]:
                best[j], least[j], failed[j] = shared[j], np.mean(held_out[j]), 0
            elif checks:
                failed[j] += 1
        held_out.clear(), chosen.clear()

    hand.rounds(client, server)
    final = list(shared)
    shared = [final[j] if best[j] is None else best[j] for j in range(num)]
    choice = [int(np.argmin(losses(c, "train"))) for c in hand.seen]
    return final, shared, least, failed, picks, choice


@pytest.mark.parametrize("shares_body", [False, True])
def test_rounds_are_those_of_torch_optim(shares_body):
    federation, task = toy_federation((7, 12, 6, 10, 9)), tiny_task(norm=True)
    # Schedule and momenta begin anew in every round. At this rate the last check is not the best.
    local = replace(SOLVER, keeps="round", lr=0.8)
    params = {"exploration": "eps", "epsilon": 0.8, "stop_every": 2}
    method = make(3, task, local, **params, shares_body=shares_body)
    final, restored, least, failed, picks, choice = by_hand(federation, method, task)
    assert shares_body or any(final[j] is not restored[j] for j in choice)
    state = run(method, federation, executor="batched")
    for j in range(3):
        assert_params(tree.take(state.experts, j), final[j])
        assert_params(tree.take(method.best_experts(state), j), restored[j])
    torch.testing.assert_close(state.best_loss.tolist(), least, rtol=1e-9, atol=0)
    assert state.failed.tolist() == failed
    everyone = cohort_of(task, federation, executor="batched", round=ROUNDS)
    state = method.observe(state, everyone, "seen")
    assert state.choice[everyone.ids].tolist() == choice
    personal = method.personalise(state, everyone)
    for row, j in enumerate(choice):
        assert_params(tree.take(personal, row), restored[j])
    # There was a choice, and a model that nobody made.
    assert any(max(row) < 4 for row in picks) and any(0 in row for row in picks)


@pytest.mark.parametrize("shares_body", [False, True])
def test_a_body_that_models_share_is_sent_once(shares_body):
    task, federation = tiny_task(), toy_federation()
    cohort = cohort_of(task, federation)
    method = make(3, task, shares_body=shares_body)
    method.round(method.init(federation.num_clients, 0), cohort)
    body, head = map(tree.numel, task.split(task.init(0)))
    assert cohort.journal.down == cohort.size * ((1 if shares_body else 3) * body + 3 * head)
    assert cohort.journal.up == cohort.size * (body + head)


# -- one rule at a time ----------------------------------------------------------------------


def test_clusters_share_at_first_all_but_the_weights_of_convolutions():
    images = Task(partial(leaf_cnn.build, 3, 2, 3, 5, 0.0, in_channels=1, side=16))
    experts = make(3, images, cluster_init="conv_only").init(4, 0).experts
    for name, x in experts.items():
        equal = [torch.equal(x[0], x[j]) for j in (1, 2)]
        assert equal == [name not in ("body.0.weight", "body.3.weight")] * 2, name
    whole = make(3, images, cluster_init="full").init(4, 0).experts
    assert not torch.equal(whole["head.1.weight"][0], whole["head.1.weight"][1])


def test_the_learning_rate_may_fall_within_a_round_and_starts_again_in_the_next():
    method = make(local=sgd(epochs=3, lr=5.86e-3, keeps="round"), lr_decay=True)
    rates = method.solver.rates(torch.zeros(1, dtype=torch.int64), 9)[0]
    # Specification, section 2.4: (eta - eta / 100) 0.9999^e + eta / 100.
    torch.testing.assert_close(rates.tolist(), [5.86e-3, 5.8594199e-3, 5.8588398e-3])
    federation = toy_federation()
    both = (run(each, federation).experts for each in (method, replace(method, lr_decay=False)))
    assert not torch.equal(*(experts["head.1.bias"] for experts in both))


# -- early stopping --------------------------------------------------------------------------


def checked(method, state, choice, losses, number):
    """The state after a check in round `number` at which clients had these held-out losses."""
    method = said(method)
    federation = toy_federation((4,) * (len(losses) + 1))
    cohort = cohort_of(method.task, federation, range(len(losses)), round=number)
    start = {"loss": torch.tensor(losses, dtype=torch.float64)[:, None]}
    return method.check(state, start, torch.tensor(choice), cohort)


def said(method):
    """The method, with a task whose loss is the parameter itself."""

    class Said(Task):
        def losses(self, params, batch):
            return params["loss"].expand(len(batch.y))

    return replace(method, task=Said(lambda: TinyNet(4, 3), dtype=torch.float64))


def state_of(method, values):
    state = method.init(2, 0)
    experts = {"loss": torch.tensor(values, dtype=torch.float64)[:, None]}
    return state._replace(experts=experts, best=experts)


def test_an_equal_loss_is_a_failure():
    method = make(2)
    state = checked(method, state_of(method, [1.0, 2.0]), [0, 1], [0.5, 0.6], 0)
    assert checked(method, state, [0, 1], [0.5, 0.59], 10).failed.tolist() == [1, 0]


def fails_on(scope, patience, seldom=None, rounds=200):
    """Round after which training is over, when no loss ever improves but that of round 0.

    seldom: of model 1, which nobody chooses but every so many rounds, to improve then.
    """
    method = make(2, stop=scope, patience=patience)
    state = state_of(method, [1.0, 2.0])
    for number in range(rounds):
        if method.stopped(state):
            return number
        picks = seldom and number % seldom == 0
        choice, losses = ([0, 1], [0.5, 1 / (1 + number)]) if picks else ([0, 0], [0.5, 0.5])
        state = checked(method, state, choice, losses, number)
    return rounds


def test_training_stops_after_ten_failed_checks_and_no_earlier():
    # Checks in rounds 0 (which sets the best of model 0), 10, ..., 100: the tenth failure in a row.
    assert fails_on("all", 10) == 101
    assert fails_on("all", 1) == 11
    assert fails_on("all", 3, 30, rounds=70) == fails_on("never", 1, rounds=70) == 70


def test_each_model_may_stop_by_itself_and_is_then_neither_sent_nor_chosen():
    federation = toy_federation()
    method = make(3, stop="each", patience=2, exploration="eps", epsilon=1.0)
    state = method.init(federation.num_clients, 0)._replace(failed=torch.tensor([0, 2, 1]))
    cohort = cohort_of(method.task, federation, round=1, executor="batched")  # without a check
    after = method.round(state, cohort)
    # By hand: the loop of the others alone, which a federation of two models is.
    two = replace(method, num_experts=2)
    others = tree.take(state.experts, torch.tensor([0, 2]))
    state_of_two = two.init(federation.num_clients, 0)._replace(experts=others)
    expected = two.round(state_of_two, again := cohort_of(method.task, federation, round=1))
    for mine, number in enumerate((0, 2)):
        assert_params(tree.take(after.experts, number), tree.take(expected.experts, mine))
    assert_params(tree.take(after.experts, 1), tree.take(state.experts, 1))
    assert cohort.journal.down == again.journal.down > 0
    assert not method.stopped(state)
    assert method.stopped(state._replace(failed=torch.tensor([2, 2, 3])))


def test_a_round_after_the_end_changes_and_costs_nothing():
    method, federation = make(3), toy_federation()
    state = method.init(federation.num_clients, 0)._replace(failed=torch.tensor([10, 12, 10]))
    cohort = cohort_of(method.task, federation, round=120)
    assert method.round(state, cohort) is state
    journal = cohort.journal
    assert (journal.down, journal.up, journal.examples, journal.losses) == (0, 0, 0, [])


def stopping(rounds=6, **course) -> Simulation:
    """A run at a rate that leads away: the first check is the last that improves."""
    method, federation = make(2, stop_every=1, patience=1), toy_federation()
    method = replace(method, local=sgd(lr=3.0, momentum=0.0))
    return simulation_of(method, federation, rounds=rounds, **course)


@pytest.mark.parametrize("every", [1, 4])
def test_a_run_that_stopped_computes_one_more_evaluation_and_repeats_it(monkeypatch, every):
    simulation = stopping(12, evaluate_every=every)
    computed, once = [], scoring.during_training

    def counted(method, state, cohort_of):
        computed.append(cohort_of("seen").round)
        return once(method, state, cohort_of)

    monkeypatch.setattr(scoring, "during_training", counted)
    state, result = simulation.run(report=lambda line: None)
    trained = len(result.train_loss)
    assert 0 < trained < 8
    evaluated = list(range(0, 13, every))
    assert result.round.tolist() == evaluated
    first = min(round for round in evaluated if round >= trained)
    assert computed == [round for round in evaluated if round <= first]
    for view, scores in result.scores.items():
        # As if every evaluation were computed from the last state.
        _, found = once(simulation.method, state, lambda group: simulation.everyone(group, 12))
        for at in range(evaluated.index(first), len(evaluated)):
            assert scores.correct[at].tolist() == found[view].correct.tolist()
            assert scores.loss[at].tolist() == found[view].loss.tolist()
    cohort = len(simulation.federation.ids("seen"))
    assert result.client_rounds[-1] == trained * cohort  # nobody takes part any more


def test_without_early_stopping_nothing_is_remembered_and_no_held_out_data_are_needed():
    federation = toy_federation()
    empty = Split.from_lists([[]] * federation.num_clients)
    federation = replace(federation, test=empty)
    state = run(make(stop="never"), federation)
    assert state.best == {} and state.best_loss.tolist() == [math.inf] * 3
    message = "client 0 has no test examples, on which training is stopped; use a partition"
    with pytest.raises(DataError, match=message):
        run(make(stop="all"), federation)


def test_checks_on_validation_data_do_not_look_at_the_test_data():
    federation = toy_federation()
    swapped = replace(federation, val=federation.test, test=federation.val)
    on_test, on_val = run(make(), federation), run(make(stop_split="val"), swapped)
    assert torch.equal(on_test.best_loss, on_val.best_loss)
    assert on_test.best_loss.isfinite().any()
