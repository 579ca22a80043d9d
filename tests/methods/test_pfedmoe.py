"""pFedMoE: what its specification says of a step and of traffic, and an independent loop.

Golden values of the gate and of its normalisation are in test_models_of_experts.py, numbers of
parameters in test_models.py.
"""

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from reference import Reference, assert_params, assert_predicts, descend, descent, module_of
from support import batch_of, clients_with, sgd, tiny_task, toy_federation
from torch.nn.functional import cross_entropy
from zoo import COHORTS, LOCAL, SIZES, cohort, deep, run

from fedlib import methods, models, tree
from fedlib.engine.experts import expert_seed
from fedlib.engine.task import Task

GATE_SCALE = 0.5

wide = tiny_task(hidden=5, norm=True)  # five features, as `deep`
small = tiny_task(hidden=5)


def gate_task(**params):
    """The gate of the paper, for inputs of four numbers."""
    params = {"hidden": 3, "in_channels": 4, "side": 1} | params
    return Task(lambda: models.load("pfedmoe_gate").build(2, **params), dtype=torch.float64)


def make(local=LOCAL, large=(wide, deep), gate=None, **params):
    return methods.load("pfedmoe")(
        task=small, local=local, large=large, gate=gate or gate_task(), **params
    )


# -- what the specification says ------------------------------------------------------------


def groups(row):
    """theta, the extractor and the header of omega, and phi of one client."""
    body, head = wide.split(row["large"])
    return {"theta": row["small"], "extractor": body, "header": head, "phi": row["gate"]}


@pytest.mark.parametrize("x", [torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.long)])
def test_fixed_weights_are_the_same_for_numbers_and_tokens(x):
    assert make(gate_mode="fixed:0.3").weights({}, batch_of(x)).tolist() == [[0.3, 0.7]] * 3


@pytest.mark.parametrize(
    ("mode", "idle"),
    [("learned", set()), ("global_only", {"extractor", "phi"}), ("local_only", {"theta", "phi"})],
)
def test_a_step_changes_what_the_prediction_depends_on_as_in_p7(mode, idle):
    # Without decay, so that what has no gradient stays as it is; no norms, which move anyhow.
    local = sgd(batch_size=100, weight_decay=0.0)
    gate = gate_task(input_norm="none")
    method = make(local, large=(tiny_task(hidden=5),), gate=gate, gate_mode=mode)
    federation = toy_federation()
    start = method.init(federation.num_clients, 0)
    after = method.round(start, cohort(method, federation, [1]))
    before, now = (groups(tree.take(state.models, 1)) for state in (start, after))
    for group, was in before.items():
        changed = [not torch.equal(was[name], now[group][name]) for name in was]
        assert (not any(changed)) if group in idle else all(changed), group


def test_the_papers_clients_send_eight_tensors_the_extractor_of_the_smallest_network():
    cnn5, cnn4 = (
        Task(partial(models.load("pfedmoe_cnn").build, 10, size=f"cnn{n}")) for n in (5, 4)
    )
    gate = Task(models.load("pfedmoe_gate").build)
    x = np.random.default_rng(0).normal(size=(4, 3, 32, 32)).astype(np.float32)
    federation = clients_with(x, np.arange(4), [([0, 1], [2, 3])], classes=10)
    method = methods.load("pfedmoe")(task=cnn5, local=sgd(), large=(cnn4,), gate=gate)
    seen = cohort(method, federation)
    state = method.round(method.init(1, 0), seen)
    assert (len(state.small), tree.numel(state.small)) == (8, 665_048)
    assert seen.journal.up == seen.journal.down == 665_048


# -- an independent loop ----------------------------------------------------------------------


def drawn(task, seed):
    return module_of(task, task.init(seed))


class Client:
    """Three modules of one client, trained by a torch.optim loop."""

    def __init__(self, number):
        self.large = drawn((wide, deep)[number % 2], 0)
        self.small, self.gate = (
            drawn(task, expert_seed(0, position))
            for position, task in enumerate((small, gate_task()), 1)
        )

    def logits(self, x):
        weights = self.gate(x).softmax(1)
        shared, own = self.small.body(x), self.large.body(x)
        return self.large.head(weights[:, [0]] * shared + weights[:, [1]] * own)

    def predict(self, x):
        for module in (self.small, self.large, self.gate):
            module.eval()
        return self.logits(x).softmax(1).detach()

    def train(self, batches):
        modules = self.small, self.large, self.gate
        rates = 1.0, 1.0, GATE_SCALE
        solvers = [
            descent(module.train().parameters(), replace(LOCAL, lr=rate * LOCAL.lr))
            for module, rate in zip(modules, rates, strict=True)
        ]
        loss = lambda b: cross_entropy(self.logits(b.x), b.y)  # noqa: E731
        descend(solvers, batches, loss, LOCAL.clip_norm)


def test_pfedmoe_is_an_independent_loop_of_modules_and_optimisers():
    federation = toy_federation(SIZES)
    hand = Reference(federation, solver=LOCAL)
    clients = [Client(number) for number in range(4)]
    shared = copy.deepcopy(clients[0].small.body.state_dict())

    def client(c, number):
        clients[c].small.body.load_state_dict(shared)
        clients[c].train(hand.batches(c, number))

    def server(ids):
        shared.update(hand.average({c: clients[c].small.body for c in ids}))

    hand.rounds(client, server, COHORTS)
    method = make(gate_lr_scale=GATE_SCALE)
    state = run(method, federation, executor="batched")
    assert_params(state.small, {f"body.{name}": value for name, value in shared.items()})
    for c, own in enumerate(clients[:3]):
        ours = tree.take(state.models, c)
        assert_params(ours["gate"], own.gate.state_dict())
        assert_params(ours["large"], own.large.state_dict())
    # Client 3 never took part: it has the server's extractor, and all else as it was drawn.
    clients[3].small.body.load_state_dict(shared)
    assert_predicts(method, state, hand, lambda c, x: clients[c].predict(x))
    for own in clients:
        own.small.body.load_state_dict(shared)
    assert_predicts(method, state, hand, lambda c, x: clients[c].predict(x), way="aggregate")


# -- evaluation -------------------------------------------------------------------------------


def test_weights_are_measured_by_client_by_label_and_in_bins():
    method, federation = make(), toy_federation(SIZES)
    state = run(method, federation)
    seen = cohort(method, federation, executor="batched")
    found = method.measure("default", method.personalise(state, seen), seen)
    for c in range(4):
        rows = federation.test.of(c)
        x, y = (torch.from_numpy(a[rows]) for a in (federation.x, federation.y))
        weights = method.weights(state.models["gate"][c], batch_of(x))
        torch.testing.assert_close(found["gate_weights"][c], weights.mean(0))
        for label in range(3):
            own = weights[:, 1][y == label]
            expected = own.mean() if len(own) else torch.tensor(torch.nan).double()
            torch.testing.assert_close(found["local_weights"][c, label], expected, equal_nan=True)
        counts, _ = np.histogram(weights[:, 1], bins=20, range=(0, 1))
        assert found["local_weight_bins"][c].tolist() == counts.tolist()
    assert "representations" not in found
    assert method.measure("aggregated", method.aggregate(state, seen), seen) == {}


def test_representations_of_some_examples_are_kept_if_asked_for():
    method, federation = make(recorded=2), toy_federation(SIZES)  # of 4 the first and the last
    state = run(method, federation)
    seen = cohort(method, federation, executor="batched")
    found = method.measure("default", method.personalise(state, seen), seen)
    assert found["representations"].shape == (4, 2, 3, 5)
    for c in (0, 1, 2):  # who has trained, so has a small extractor of its own
        rows = federation.test.of(c)[[0, 3]]
        batch = batch_of(torch.from_numpy(federation.x[rows]))
        model, task = tree.take(state.models, c), (wide, deep)[c % 2]
        shared = small.features(model["small"], batch)
        own = task.features(task.split(model["large"])[0], batch)
        share = method.weights(model["gate"], batch)[:, :1]
        expected = torch.stack([shared, own, share * shared + (1 - share) * own], 1)
        torch.testing.assert_close(found["representations"][c], expected, rtol=1e-9, atol=1e-11)
        assert found["representation_labels"][c].tolist() == federation.y[rows].tolist()
