"""pFedMoE: golden values of its specification, an independent loop, identities, what leaves whom.

The golden values of the networks alone (P2 without the method, P3, P6) are in
test_models_pfedmoe.py.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import support
import torch
from reference import (
    SOLVER,
    Reference,
    assert_params,
    descend,
    descent,
    executors,
    module_of,
)
from support import assert_close, cohort_of, sgd, tiny_task, toy_federation
from torch import nn
from torch.nn.functional import cross_entropy
from zoo import Deep

from fedlib import methods, models, tree
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Loop
from fedlib.engine.experts import expert_seed
from fedlib.engine.task import Batch, Task
from fedlib.federation import Split
from fedlib.methods.parts.own_models import OwnModels
from fedlib.methods.pfedmoe import mix
from fedlib.models.layers.augment import erased
from fedlib.run import cost
from fedlib.run.build import build_method
from fedlib.run.simulate import Course, Simulation
from fedlib.tree import Rows

GOLDEN = 1e-6  # the specification prints six decimals
# No batch of 4 leaves one alone, which the deep architecture cannot train on; the last is unseen.
SIZES = (7, 12, 6, 10, 11)
COHORTS = [[0, 1, 2], [1, 2], [0, 2]]  # client 3 never takes part
ROUNDS = len(COHORTS)
LOCAL = replace(SOLVER, clip_norm=0.4, keeps="round", schedule=sgd().schedule)
GATE_SCALE = 0.5

wide = tiny_task(hidden=5, norm=True)
deep = Task(Deep, dtype=torch.float64)  # five features, too
small = tiny_task(hidden=5)


def gate_task(**params):
    """The gate of the paper, for inputs of four numbers."""
    params = {"hidden": 3, "in_channels": 4, "side": 1} | params
    return Task(lambda: models.load("pfedmoe_gate").build(2, **params), dtype=torch.float64)


def make(local=LOCAL, large=(wide, deep), gate=None, **params):
    return methods.load("pfedmoe")(
        task=small, local=local, large=large, gate=gate or gate_task(), **params
    )


def cohort(method, federation, ids=None, **options):
    return cohort_of(method.task, federation, ids, aggregation="renormalised", **options)


def run(method, federation, rounds=COHORTS, executor="loop"):
    options = {"executor": executor, "aggregation": "renormalised"}
    return support.run(method, federation, rounds, **options)


def same_bits(a, b):
    pairs = zip(tree.leaves(a), tree.leaves(b), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def batch_of(x, y=None, **options):
    y = torch.zeros(len(x), dtype=torch.long) if y is None else y
    return Batch(x, y, torch.arange(len(x)), **options)


def equal_clients(count):
    """Clients with the same examples, which are rows of their own in the pool."""
    one = toy_federation((12,), unseen=0)
    rows = [np.arange(client * len(one.x), (client + 1) * len(one.x)) for client in range(count)]
    return replace(
        one,
        x=np.tile(one.x, (count, 1)),
        y=np.tile(one.y, count),
        train=Split.from_lists([own[one.train.of(0)] for own in rows]),
        val=Split.from_lists([[]] * count),
        test=Split.from_lists([own[one.test.of(0)] for own in rows]),
        group=np.zeros(count, np.uint8),
        client_id=np.arange(count),
    )


# -- golden values --------------------------------------------------------------------------


def test_representations_are_mixed_as_in_p1():
    shares = torch.tensor([0.25, 0.6])
    weights = torch.stack([shares, 1 - shares], dim=1)
    shared, own = torch.tensor([[1.0, 2], [0, 4]]), torch.tensor([[3.0, -2], [10, 0]])
    expected = torch.tensor([[2.5, -1.0], [4.0, 2.4]])
    torch.testing.assert_close(mix(weights, shared, own), expected)


def test_the_gate_says_global_first_as_in_p2():
    gate = gate_task(hidden=2, input_norm="none", in_channels=2)
    names = ("body.1.weight", "body.1.bias", "head.0.weight", "head.0.bias")
    values = ([[1, -1], [0.5, 2]], [0, 0.1], [[1, 0], [-1, 2]], [0, -0.5])
    params = {n: torch.tensor(v).double() for n, v in zip(names, values, strict=True)}
    method = make(gate=gate)
    x = torch.tensor([[0.2, 0.4]], dtype=torch.float64)
    weights = method.weights(params, batch_of(x))
    expected = torch.tensor([[0.484559, 0.515441]], dtype=torch.float64)
    torch.testing.assert_close(weights, expected, rtol=0, atol=GOLDEN)


def test_participants_are_averaged_by_their_examples_as_in_p5():
    federation = toy_federation((100, 300, 600, 50), unseen=0)
    rows = Rows({"w": torch.tensor(x).double()} for x in (1.0, 2.0, -1.0))
    found = cohort(make(), federation, [0, 1, 2]).average(rows, {"w": torch.tensor(7.0)})
    assert found["w"].item() == pytest.approx(0.1)  # (100 + 600 - 600) / 1000


def groups(row):
    """theta, the extractor and the header of omega, and phi of one client."""
    body, head = wide.split(row["large"])
    return {"theta": row["small"], "extractor": body, "header": head, "phi": row["gate"]}


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


def pictures(sizes=(4, 4, 2), classes=10):
    """Clients with images of 3 x 32 x 32, the last one unseen."""
    federation = toy_federation(sizes, features=1, classes=classes, test=1)
    x = np.random.default_rng(0).normal(size=(len(federation.x), 3, 32, 32)).astype(np.float32)
    return replace(federation, x=x)


def cnn(size, num_classes=10):
    return Task(lambda: models.load("pfedmoe_cnn").build(num_classes, size))


# Method, its model or its small one, classes; numbers up, and as many down (section 7).
SENT = [
    ("pfedmoe", "cnn5", 10, 665_048),
    ("pfedmoe", "cnn5", 100, 665_048),
    ("lg_fedavg", "cnn5", 10, 5_010),
    ("lg_fedavg", "cnn5", 100, 50_100),
    ("fedrep", "cnn5", 10, 665_048),
    ("fedavg", "cnn1", 10, 2_621_558),
    ("local", "cnn5", 10, 0),
]


@pytest.mark.parametrize(("name", "size", "num_classes", "numbers"), SENT)
def test_what_is_sent_is_what_section_7_counts(name, size, num_classes, numbers):
    federation, task = pictures(), cnn(size, num_classes)
    more = {"large": (cnn("cnn4", num_classes), task)} if name in HETEROGENEOUS else {}
    if name == "pfedmoe":
        more["gate"] = Task(lambda: models.load("pfedmoe_gate").build())
    method = methods.load(name)(task=task, local=sgd(), **more)
    both = cohort_of(task, federation)
    state = method.round(method.init(federation.num_clients, 0), both)
    assert (both.journal.down, both.journal.up) == (numbers, numbers)
    if name == "pfedmoe":  # P8: two convolutions and two hidden layers, weights and biases
        assert len(state.small) == 8 and tree.numel(state.small) == numbers


HETEROGENEOUS = ("pfedmoe", "lg_fedavg", "local")


def test_a_step_costs_three_times_the_forward_pass_of_section_7():
    gate = Task(lambda: models.load("pfedmoe_gate").build())
    method = methods.load("pfedmoe")(
        task=cnn("cnn5"), large=(cnn("cnn1"),), gate=gate, local=sgd(batch_size=4)
    )
    data = DeviceData(pictures(), torch.float32, torch.device("cpu"))
    simulation = Simulation(method, data, Course(rounds=1, seed=0), Loop())
    # Nobody needs the gradient of the image, from the first convolutions of both extractors; the
    # norm before the gate's first layer does need one.
    first = 28 * 28 * 16 * 3 * 25
    flops = cost.flops_per_example(simulation, simulation.init())
    assert flops == 2 * (3 * 7_893_336 - 2 * first)


@pytest.mark.parametrize("hidden_norm", ["none", "batch"])
@pytest.mark.parametrize("training", [False, True])
def test_weights_are_shares_as_in_p9(hidden_norm, training):
    method = make(gate=gate_task(hidden_norm=hidden_norm))
    federation = toy_federation(SIZES)
    gate = run(method, federation).models["gate"][1]
    x = 3 * torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = method.weights(tree.clone(gate), batch_of(x, train=training))
    assert weights.shape == (9, 2)
    assert ((weights > 0) & (weights < 1)).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(9).double(), rtol=0, atol=1e-6)


def test_without_training_the_shared_extractor_stays_as_in_p11():
    method, federation = make(replace(LOCAL, lr=0.0)), toy_federation(SIZES)
    start = method.init(federation.num_clients, 0)
    after = run(method, federation, [[0, 1, 2, 3]] * 2)
    assert_close(after.small, start.small, 1e-6)


def test_the_average_of_equal_clients_is_each_of_them_as_in_p12():
    method = make(sgd(batch_size=100, momentum=0.0), large=(deep,))
    federation = equal_clients(3)
    state = run(method, federation, [[0, 1, 2]] * 3)
    for client in range(3):
        assert_close(state.small, state.models["small"][client])
    assert not same_bits(state.small, method.init(3, 0).small)


@executors
@pytest.mark.parametrize("norms", [{"input_norm": "switch1d"}, {"hidden_norm": "batch"}])
def test_a_batch_of_one_trains_and_a_prediction_knows_no_batch_as_in_p13(executor, norms):
    method = make(large=(small,), gate=gate_task(**norms))
    federation = toy_federation((5, 9, 1, 6))  # batches of 4 leave one alone
    state = run(method, federation, [[0, 1, 2]] * 2, executor)
    assert all(x.isfinite().all() for x in tree.leaves(state.models))
    personal = tree.take(method.personalise(state, cohort(method, federation, [1])), 0)
    x = torch.from_numpy(federation.x[:6])
    together = method.predict(personal, batch_of(x))
    alone = [method.predict(personal, batch_of(x[i : i + 1])) for i in range(6)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-12, atol=1e-12)


# -- an independent loop ----------------------------------------------------------------------


def drawn(task, seed):
    return module_of(task, task.init(seed))


class Client:
    """Three modules of one client, trained by a torch.optim loop."""

    def __init__(self, number):
        self.large = drawn((wide, deep)[number % 2], 0)
        self.small, self.gate = (
            drawn(task, expert_seed(0, position, "independent"))
            for position, task in enumerate((small, gate_task()), 1)
        )

    def logits(self, x):
        weights = self.gate(x).softmax(1)
        shared, own = self.small.body(x), self.large.body(x)
        return self.large.head(weights[:, [0]] * shared + weights[:, [1]] * own)

    def train(self, batches):
        modules = self.small, self.large, self.gate
        rates = 1.0, 1.0, GATE_SCALE
        solvers = [
            descent(module.train().parameters(), replace(LOCAL, lr=rate * LOCAL.lr))
            for module, rate in zip(modules, rates, strict=True)
        ]
        loss = lambda b: cross_entropy(self.logits(b.x), b.y)  # noqa: E731
        descend(solvers, batches, loss, LOCAL.clip_norm)


@executors
def test_pfedmoe_is_an_independent_loop_of_modules_and_optimisers(executor):
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
    state = run(method, federation, executor=executor)
    assert_params(state.small, {f"body.{name}": value for name, value in shared.items()})
    for c, own in enumerate(clients[:3]):
        ours = tree.take(state.models, c)
        assert_params(ours["gate"], own.gate.state_dict())
        assert_params(ours["large"], own.large.state_dict())
    # Client 3 never took part: it has the server's extractor, and all else as it was drawn.
    clients[3].small.body.load_state_dict(shared)
    everybody = cohort(method, federation, range(4), executor=executor)
    for protocol in ("default", "aggregated"):
        personal = getattr(method, method.protocols["seen"][protocol])(state, everybody)
        predicted = everybody.score(method.predict, personal, split="test")
        for c, own in enumerate(clients):
            if protocol == "aggregated":
                own.small.body.load_state_dict(shared)
            for module in (own.small, own.large, own.gate):
                module.eval()
            with torch.no_grad():
                expected = own.logits(hand.shard(c, "test")[0]).log_softmax(1)
            torch.testing.assert_close(predicted[c], expected, rtol=1e-9, atol=1e-11)


# -- identities -------------------------------------------------------------------------------


def test_the_local_expert_alone_is_local_training():
    federation = toy_federation(SIZES)
    state = run(make(gate_mode="local_only"), federation)
    local = methods.load("local")(task=small, local=LOCAL, large=(wide, deep))
    assert_close(state.models["large"], run(local, federation).models)


@pytest.mark.parametrize(("name", "weight"), [("global_only", 1), ("local_only", 0.0)])
def test_an_expert_alone_has_the_fixed_weight_1(name, weight):
    federation = toy_federation(SIZES)
    found, expected = (run(make(gate_mode=m), federation) for m in (name, f"fixed:{weight}"))
    assert same_bits(found.models, expected.models)


def test_a_gate_that_trusts_both_and_never_learns_is_a_fixed_one():
    federation = toy_federation(SIZES)
    zeros = {
        "head.0.weight": torch.zeros(2, 3).double(),
        "head.0.bias": torch.zeros(2).double(),
    }
    even = replace(gate_task(), pretrained=zeros)
    # Clipping is by module, so the gate's gradient has no say in the others' steps.
    still = run(make(gate=even, gate_lr_scale=0.0), federation)
    fixed = run(make(gate_mode="fixed:0.5"), federation)
    for part in ("small", "large"):
        assert_close(still.models[part], fixed.models[part])
    drawn = make().init(5, 0)
    assert not same_bits(fixed.models["small"][0], drawn.models["small"][0])


def test_without_a_list_clients_own_models_like_the_small_one():
    method = make(large=())
    assert method.own == OwnModels((small,))
    state = method.init(3, 0)
    assert_close(state.models["large"], Rows([small.init(0)] * 3))
    # Equal extractors would leave the gate nothing to choose from, nor any gradient.
    assert not any(torch.equal(small.init(0)[name], x) for name, x in state.small.items())


# -- what leaves a client -----------------------------------------------------------------------


def test_nothing_of_a_client_reaches_another_but_through_the_shared_extractor():
    """Client 2 is another one altogether; what the others have depends on nothing of it.

    After each round the server's extractor is made the same, so whatever else differed came
    another way.
    """
    method = make()
    federation = toy_federation(SIZES)
    x = federation.x.copy()
    x[federation.train.of(2)] *= -3
    other_data = replace(federation, x=x)
    one = method.init(5, 0)
    changed = {
        part: tree.put(
            rows, np.array([2]), tree.map(lambda v: v + 1.0, tree.take(rows, slice(2, 3)))
        )
        for part, rows in one.models.items()
    }
    other = one._replace(models=changed)
    for number in range(3):
        one = method.round(one, cohort(method, federation, [0, 1, 2], round=number))
        other = method.round(other, cohort(method, other_data, [0, 1, 2], round=number))
        assert not same_bits(one.small, other.small)
        other = other._replace(small=one.small)
        for client in (0, 1, 3, 4):
            assert same_bits(tree.take(one.models, client), tree.take(other.models, client))
            assert same_bits(one.memory.buffers[client], other.memory.buffers[client])
    assert not same_bits(tree.take(one.models, 2), tree.take(other.models, 2))


def test_the_only_thing_uploaded_is_the_body_of_the_task(monkeypatch):
    method, federation = make(), toy_federation(SIZES)
    both = cohort(method, federation, [1, 2])
    uploaded = []
    average = type(both).average

    def watched(self, trained, previous):
        uploaded.append(trained)
        return average(self, trained, previous)

    monkeypatch.setattr(type(both), "average", watched)
    state = method.round(method.init(5, 0), both)
    [sent] = uploaded
    names = ["body.0.bias", "body.0.weight"]
    assert [sorted(row) for row in sent] == [names, names]
    assert both.journal.up == 4 * 5 + 5  # and nothing by another way
    assert sorted(state.small) == names and method.shared == ("small",)


def test_clients_outside_the_cohort_keep_the_very_same_tensors():
    method, federation = make(), toy_federation(SIZES)
    before = method.init(5, 0)
    after = method.round(before, cohort(method, federation, [1, 2]))
    for part, rows in before.models.items():
        for client in (0, 3, 4):
            assert after.models[part][client] is rows[client]


# -- evaluation -------------------------------------------------------------------------------


@executors
def test_weights_are_measured_by_client_by_label_and_in_bins(executor):
    method, federation = make(), toy_federation(SIZES)
    state = run(method, federation)
    seen = cohort(method, federation, executor=executor)
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


@executors
def test_representations_of_some_examples_are_kept_if_asked_for(executor):
    method, federation = make(recorded=4), toy_federation(SIZES)  # all 4 test examples
    state = run(method, federation)
    seen = cohort(method, federation, executor=executor)
    found = method.measure("default", method.personalise(state, seen), seen)
    assert found["representations"].shape == (4, 4, 3, 5)
    for c in (0, 1, 2):  # who has trained, so has a small extractor of its own
        rows = federation.test.of(c)
        batch = batch_of(torch.from_numpy(federation.x[rows]))
        model, task = tree.take(state.models, c), (wide, deep)[c % 2]
        shared = small.features(model["small"], batch)
        own = task.features(task.split(model["large"])[0], batch)
        share = method.weights(model["gate"], batch)[:, :1]
        expected = torch.stack([shared, own, share * shared + (1 - share) * own], 1)
        torch.testing.assert_close(found["representations"][c], expected, rtol=1e-9, atol=1e-11)
        assert found["representation_labels"][c].tolist() == federation.y[rows].tolist()


def test_all_three_networks_see_the_same_augmented_image():
    class Seen(nn.Module):
        def __init__(self, outputs):
            super().__init__()
            self.body = nn.Sequential(*erased(True), nn.Flatten())
            self.head = nn.Linear(3 * 8 * 8, outputs)

        def forward(self, x):
            return self.head(self.body(x))

    x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    batch = batch_of(x, key=torch.tensor(5), train=True)
    one, other = (Task(lambda n=n: Seen(n)).features({}, batch) for n in (2, 10))
    assert torch.equal(one, other) and not torch.equal(one, x.flatten(1))


# -- declarations -----------------------------------------------------------------------------


def test_a_declared_run_has_a_gate_and_five_architectures():
    size = {"in_channels": 1, "side": 8, "padding": 2, "channels": [4, 4]}
    architectures = [
        {"model": "pfedmoe_cnn", "params": {"num_classes": 10, "hidden": [width, 6]} | size}
        for width in (20, 16, 12, 10, 8)
    ]
    gate = {"model": "pfedmoe_gate", "params": {"hidden": 5, "in_channels": 1, "side": 8}}
    spec = {
        "method": "pfedmoe",
        "modules": {"gate": gate, "large": architectures},
        "params": {"gate_mode": "fixed:0.3", "gate_lr_scale": 10.0},
        "local": {"solver": "sgd", "lr": 0.01, "clip_norm": 50, "keeps": "round"},
    }
    task = Task(lambda: models.load("pfedmoe_cnn").build(**architectures[4]["params"]))
    method = build_method(spec, task)
    assert len(method.own.tasks) == 5 and method.fixed_weight == 0.3
    widths = [len(row["body.7.bias"]) for row in method.init(6, 0).models["large"]]
    assert widths == [20, 16, 12, 10, 8, 20]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"gate_mode": "fixed:1.5"}, r"gate_mode must be one of .*fixed:<.*got 'fixed:1.5'"),
        ({"gate_mode": "fixed:half"}, "gate_mode must be one of .*got 'fixed:half'"),
        ({"gate_mode": "0.5"}, "gate_mode must be one of .*got '0.5'"),
        ({"gate_mode": "fixed:nan"}, "gate_mode must be one of .*got 'fixed:nan'"),
        ({"gate_lr_scale": -1.0}, "gate_lr_scale must be at least 0, got -1.0"),
        ({"recorded": -1}, "recorded must be at least 0, got -1"),
        ({"gate": tiny_task(classes=3)}, "needs 2 outputs, got 3"),
        ({"large": (tiny_task(hidden=6),)}, r"as many features, got \[5, 6\]"),
    ],
)
def test_settings_that_mean_nothing_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        make(**params)
