"""pFedMM whose clients keep the body's batch normalisation for themselves."""

import pytest
import torch
from reference import SOLVER, assert_params, average, mixed, module_of
from support import (
    cohort_of,
    run,
    sgd,
    toy_federation,
)
from test_by_hand import PFedMM
from torch import nn

from fedlib import methods, tree
from fedlib.engine.experts import expert_seed
from fedlib.engine.task import Task

ROUNDS, EXPERTS = 3, 3
SIZES = (7, 12, 6, 10, 9)  # the last client is unseen; no batch of 4 leaves one alone
EVERYBODY = [[0, 1, 2, 3]] * ROUNDS
SAMPLED = [[0, 2], [2], [0, 1]]  # client 3 never takes part


class NormedNet(nn.Module):
    """Two layers of batch normalisation in the body, nested, and one in the head."""

    def __init__(self):
        super().__init__()
        first = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh())
        self.body = nn.Sequential(first, nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh())
        self.head = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

    def forward(self, x):
        return self.head(self.body(x))


BODY_NORMS = {  # by hand: the paths of the modules above
    f"body.{layer}.{entry}"
    for layer in ("0.1", "2")
    for entry in ("weight", "bias", "running_mean", "running_var")
}


def make(task=None, private=True, **params):
    task = task or Task(NormedNet, dtype=torch.float64)
    settings = {"num_experts": EXPERTS, "local": sgd()} | params
    return methods.load("pfedmm")(task=task, private_norms=private, **settings)


def client_norms(state, client):
    return tree.take(state.norms, client)


# -- by hand ------------------------------------------------------------------------------


class PrivateByHand(PFedMM):
    """Algorithm 1; the norms of each client's body are never loaded."""

    def __init__(self, federation, method, cohorts, aggregation):
        task = method.task
        heads = [task.split(task.init(expert_seed(0, e)))[1] for e in range(EXPERTS)]
        body, _ = task.split(task.init(0))
        super().__init__(federation, method, body, heads, private=BODY_NORMS)
        self.aggregation = aggregation
        self.rounds(self.client, self.server, cohorts)

    def server(self, ids):
        """Section 1.4: absent clients count with the previous model, or not at all."""
        before = [self.body, *self.heads]
        super().server(ids)
        if self.aggregation == "damped":
            share = sum(self.sizes[c] for c in ids) / sum(self.sizes.values())
            self.body, *self.heads = (
                {n: share * new[n] + (1 - share) * v for n, v in old.items()}
                for old, new in zip(before, (self.body, *self.heads), strict=True)
            )

    def norms(self, c):
        state = self.own[c][0][0].state_dict()
        return {n: state[n] for n in BODY_NORMS}

    def mean_norms(self):
        return average([self.norms(c) for c in self.seen], self.weights)

    def nets_with(self, norms):
        return [module_of(self.task, {**self.body, **norms, **head}) for head in self.heads]


@pytest.mark.parametrize(
    ("cohorts", "aggregation"),
    [(EVERYBODY, "damped"), (SAMPLED, "damped"), (SAMPLED, "renormalised")],
    ids=["everybody", "damped", "renormalised"],
)
def test_rounds_and_predictions_by_hand(cohorts, aggregation):
    federation, method = toy_federation(SIZES), make(local=SOLVER)
    state = run(method, federation, cohorts, executor="batched", aggregation=aggregation)
    hand = PrivateByHand(federation, method, cohorts, aggregation)
    assert_params(state.experts["body"], hand.body)
    for e in range(EXPERTS):
        assert_params(tree.take(state.experts["heads"], e), hand.heads[e])
    uniform = torch.full((EXPERTS,), 1 / EXPERTS).double()
    for c in range(len(SIZES)):
        cohort = cohort_of(method.task, federation, [c])
        x, _ = hand.shard(c, "test")
        if c in hand.seen:
            assert_params(client_norms(state, c), hand.norms(c))
            torch.testing.assert_close(state.pi[c], hand.pi[c])
            nets, prior, prepare = hand.nets_with(hand.norms(c)), hand.pi[c], method.refresh
            personal = method.personalise(state, cohort)
            predicted = cohort.score(method.predict, personal, split="test")
            torch.testing.assert_close(predicted[0].exp(), mixed(nets, hand.pi[c], x))
        else:
            nets, prior, prepare = hand.nets_with(hand.mean_norms()), uniform, method.welcome
        # One E-step with the model as it is now.
        pi = hand.responsibilities(nets, prior, *hand.shard(c)).mean(1)
        predicted = cohort.score(method.predict, prepare(state, cohort), split="test")
        torch.testing.assert_close(predicted[0].exp(), mixed(nets, pi, x))


def test_traffic_leaves_the_norms_out():
    method, federation = make(), toy_federation(SIZES)
    cohort = cohort_of(method.task, federation)
    method.round(method.init(federation.num_clients, 0), cohort)
    # Two linear layers; E heads of two linear layers and a norm (four entries) between them.
    body = (4 * 6 + 6) + (6 * 5 + 5)
    heads = EXPERTS * ((5 * 4 + 4) + 4 * 4 + (4 * 3 + 3))
    assert (cohort.journal.down, cohort.journal.up) == (body + heads, body + heads)
