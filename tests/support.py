"""Small federations, models and cohorts for the tests of methods and engine; how much is tested."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedlib import papers, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Batched, Loop
from fedlib.engine.solvers import SGD
from fedlib.engine.task import Batch, Task
from fedlib.federation import Federation, Split
from fedlib.models import vae
from fedlib.models.layers.random import Dropout
from fedlib.results import TOTALS, RunResult
from fedlib.run import checkpoint
from fedlib.run.simulate import Course, Simulation

# CI tests everything; `make test` leaves out what is much like something else that it tests.
EVERYTHING = os.environ.get("FEDLIB_TESTS") == "all"
only_in_ci = pytest.mark.skipif(not EVERYTHING, reason="FEDLIB_TESTS=all makes it")
REPRODUCED = [*filter(papers.count_printed, papers.names())]  # all but comparisons of our own
EXECUTORS = {"loop": Loop, "batched": Batched}
executors = pytest.mark.parametrize("executor", EXECUTORS)
MIXTURES = ("centmoe", "fedjets", "fedmoe", "moe_fedavg", "uniform_mixture")  # methods with a gate
# Methods that need a server with data of its own.
WITH_SERVER = ("centmoe", "fedmoe", "server_finetuning", "uniform_mixture")


class TinyNet(nn.Module):
    """A two-layer network with everything that needs care: batch statistics and dropout."""

    def __init__(
        self, features: int, classes: int, hidden: int = 6, norm=False, dropout=0.0, bend=nn.Tanh
    ):
        super().__init__()
        layers = [nn.Linear(features, hidden)]
        layers += [nn.BatchNorm1d(hidden)] if norm else []
        self.body = nn.Sequential(*layers, bend())
        self.head = nn.Sequential(Dropout(dropout), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.head(self.body(x))


def run_of(paper, federation, label):
    """A declared run."""
    [found] = [x for x in paper.runs if (x.federation, x.label) == (federation, label)]
    return found


def tiny_task(features=4, classes=3, dtype=torch.float64, **options) -> Task:
    return Task(lambda: TinyNet(features, classes, **options), dtype=dtype)


def toy_federation(sizes=(7, 12, 6, 10), test=4, features=4, classes=3, unseen=1, seed=0):
    """Clients of these training sizes; the last `unseen` of them do not take part in training."""
    draw = np.random.default_rng(seed)
    total = sum(sizes) + test * len(sizes)
    x = draw.normal(size=(total, features))
    y = (x @ draw.normal(size=(features, classes))).argmax(1)
    rows = np.split(draw.permutation(total), np.cumsum([n + test for n in sizes])[:-1])
    return clients_with(x, y, [(r[:-test], r[-test:]) for r in rows], classes, unseen)


def clients_with(x, y, rows, classes, unseen=0, **known):
    """Clients who own these (training rows, test rows); the last `unseen` of them are unseen."""
    train, test = (Split.from_lists(list(lists)) for lists in zip(*rows, strict=True))
    return Federation(
        x=x,
        y=y,
        num_classes=classes,
        train=train,
        val=Split.from_lists([[] for _ in rows]),
        test=test,
        group=(np.arange(len(rows)) >= len(rows) - unseen).astype(np.uint8),
        client_id=np.arange(len(rows)),
        **known,
    )


def seeded(make):
    """A function that makes the same model each time, whatever `make` draws."""

    def build():
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return make()

    return build


def with_validation(federation, sizes):
    """The federation, of whose clients' test examples the first so many are for validation."""
    own = [federation.test.of(client) for client in range(len(sizes))]
    parts = [(rows[:n], rows[n:]) for rows, n in zip(own, sizes, strict=True)]
    val, test = (Split.from_lists(rows) for rows in zip(*parts, strict=True))
    return replace(federation, val=val, test=test)


def batch_of(x, y=None, **fields) -> Batch:
    """All of these examples as one batch, with labels 0 unless they have others."""
    y = torch.zeros(len(x), dtype=torch.long) if y is None else y
    return Batch(x, y, torch.arange(len(x)), **fields)


def cohort_of(
    task, federation, ids=None, *, executor="loop", round=0, seed=0, aggregation="damped"
):
    """A cohort of the clients `ids` (all seen ones if absent)."""
    seen = federation.ids("seen")
    return Cohort(
        task=task,
        data=DeviceData(federation, task.dtype, task.device),
        ids=torch.as_tensor(seen if ids is None else np.asarray(ids)),
        round=round,
        seed=seed,
        executor=EXECUTORS[executor]() if isinstance(executor, str) else executor,
        aggregation=aggregation,
    )


def everybody_of(task, federation):
    """Function that gives the cohort of a whole group; None where nobody is in it."""

    def cohort(group):
        ids = federation.ids(group)
        return cohort_of(task, federation, ids) if len(ids) else None

    return cohort


def run(method, federation, rounds=3, *, ids=None, state=None, seed=0, **options):
    """The state after so many rounds with the clients `ids`, or one with each of these cohorts."""
    state = method.init(federation.num_clients, seed) if state is None else state
    cohorts = [ids] * rounds if isinstance(rounds, int) else rounds
    for number, ids in enumerate(cohorts):
        cohort = cohort_of(method.task, federation, ids, round=number, seed=seed, **options)
        state = method.round(state, cohort)
    return state


def simulation_of(method, federation, executor="loop", **course) -> Simulation:
    """A run of the method, with this course and the seed 0 unless it has another."""
    data = DeviceData(federation, method.task.dtype, method.task.device)
    return Simulation(method, data, Course(**{"seed": 0} | course), EXECUTORS[executor]())


def dying(saves: int) -> type[checkpoint.Checkpoints]:
    """Checkpoints that are interrupted once they have been saved so many times."""

    class Dying(checkpoint.Checkpoints):
        left = saves

        def save_state(self, *done_and_state):
            super().save_state(*done_and_state)
            Dying.left -= 1
            if not Dying.left:
                raise KeyboardInterrupt

    return Dying


def silently(run, *args, **options):
    """State and result of a run, which reports no progress."""
    return run.run(*args, report=lambda line: None, **options)


def assert_close(one, other, tolerance=1e-12):
    """Trees whose tensors are close, and whose other leaves, such as a client's task, are the same.

    Float64 keeps 16 digits; a few hundred operations in another order cost three or four.
    """
    pairs = zip(checkpoint.flatten(one).items(), tree.leaves(other), strict=True)
    for (name, x), y in pairs:
        if isinstance(x, torch.Tensor):
            named = f"{name} differs:\n{{}}".format
            torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance, msg=named)
        else:
            assert x is y, name


class Payload:
    """What an attacker would put into a file: unpickling it creates a file of this path."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def same_bits(one, other):
    """Whether two trees of tensors are the same, bit by bit."""
    pairs = zip(tree.leaves(one), tree.leaves(other), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def assert_same_tensors(one, other):
    """Two dicts of tensors, equal in every bit and type."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype and torch.equal(value, other[name]), name


def assert_same_result(one: RunResult, other: RunResult):
    """Two results of a run, equal in every number."""
    for name in ("round", *TOTALS, "train_loss", "server_examples"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    numbers = [
        result.diagnostics
        | {(v, n): x for v, s in result.scores.items() for n, x in vars(s).items()}
        for result in (one, other)
    ]
    assert numbers[0].keys() == numbers[1].keys()
    for name, array in numbers[0].items():
        np.testing.assert_array_equal(array, numbers[1][name], err_msg=str(name))


def modules_of(name: str, num_experts: int, dtype=torch.float64, **network) -> dict:
    """The further architectures that the method `name` needs, by the name of its field.

    In "fml" the clients' own models have one of two, so all that holds of every method is tested
    with clients of different shapes, too.
    """
    if name == "fml":
        return {"large": tuple(tiny_task(dtype=dtype, hidden=n, **network) for n in (9, 5))}
    if name == "pfedmoe":
        return {"gate": tiny_task(classes=2, dtype=dtype, hidden=3, **network)}
    if name == "fedmix_vae":
        return {"vae": Task(lambda: vae.build(4, hidden=(5,), latent=2), dtype=dtype)}
    if name == "fedrolex":
        return {"small": tiny_task(dtype=dtype, hidden=4, **network)}
    if name in MIXTURES:
        return {"gate": tiny_task(classes=3, dtype=dtype, hidden=3, **network)}
    if name != "adaptive_experts":
        return {}
    outputs = 1 if num_experts == 1 else num_experts + 1
    return {
        "expert": tiny_task(dtype=dtype, hidden=5, **network),
        "gate": tiny_task(classes=outputs, dtype=dtype, hidden=3, **network),
    }


def solver_of(name: str, **changes) -> SGD:
    """`sgd`, but what "label_leakage" can do with: it reads steps of plain SGD at one rate."""
    return SGD(lr=0.1, batch_size=4) if name == "label_leakage" else sgd(**changes)


def sgd(**changes) -> SGD:
    """A solver with momentum and weight decay, so that both are always exercised."""
    return SGD(**{"lr": 0.1, "batch_size": 4, "momentum": 0.9, "weight_decay": 5e-4} | changes)


def federation_for(name: str, *args, **options) -> Federation:
    """`toy_federation`, with what a method needs.

    Validation examples; true clusters; a server, labelled by the rule.
    """
    made = toy_federation(*args, **options)
    if name in ("adaptive_experts", "fedmix_vae", "local_experts", "plain_mixture"):
        return with_validation(made, (made.test.sizes + 1) // 2)
    if name == "oracle_clusters":
        return replace(made, cluster=np.arange(made.num_clients) % 2)
    return with_server(made, by_rule=True) if name in WITH_SERVER else made


def with_server(
    federation: Federation, server=(12, 6, 8), probe=9, seed=1, by_rule=False
) -> Federation:
    """The federation with a server of these training, validation and test examples, and a probe.

    Labels are drawn; or `by_rule` they are those of the clients' nearest example.
    """
    draw = np.random.default_rng(seed)
    total, parts = len(federation.x), np.split(np.arange(sum(server) + probe), np.cumsum(server))
    x = draw.normal(size=(sum(server) + probe, *federation.x.shape[1:]))
    y = draw.integers(0, federation.num_classes, len(x))
    if by_rule:
        y = federation.y[((x[:, None] - federation.x) ** 2).sum(-1).argmin(1)]
    train, val, test, measured = (part + total for part in parts)

    def more(split: Split, of_server, of_probe=()) -> Split:
        owned = [split.of(client) for client in range(federation.num_clients)]
        return Split.from_lists([*owned, of_server, of_probe])

    return replace(
        federation,
        x=np.concatenate([federation.x, x]),
        y=np.concatenate([federation.y, y]),
        train=more(federation.train, train, measured),
        val=more(federation.val, val),
        test=more(federation.test, test),
        group=np.append(federation.group, [2, 3]).astype(np.uint8),
        client_id=np.append(federation.client_id, [len(federation.group) + i for i in (0, 1)]),
    )
