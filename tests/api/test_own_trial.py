"""A user's method in the workflow: tried before anything runs, and left out where it fails."""

from contextlib import nullcontext

import pytest
import torch
from conftest import IID, toy_paper, toy_run
from sklearn.datasets import load_digits
from torch import nn
from torch.func import grad

import fedlib
from fedlib import spec, tree
from fedlib.engine import parts
from fedlib.errors import ConfigError
from fedlib.forecast import own_trial
from fedlib.methods.fedavg import FedAvg
from fedlib.models.mlp import Network
from fedlib.run.check import check as build
from fedlib.workflow import preflight, provenance, remarks
from fedlib.workflow.freshness import make_plan
from fedlib.workflow.plan import Plan

OWN = """
import numpy as np
import torch
from fedlib.methods.fedavg import FedAvg

class MyWay(FedAvg):
    def round(self, state, cohort):
        after = super().round(state, cohort)
        return after._replace(params={k: v + NOISE for k, v in after.params.items()})

    def predict(self, personal, batch):
        return super().predict(personal, batch) + LOG

    def diagnostics(self, state):
        return {"mine": RECORDED}
"""
DIGITS = spec.Data("digits", "digits", IID, 0, "Digits", "iid")
HALVES = """
import fedlib.methods.fedavg

class MyWay(fedlib.methods.fedavg.FedAvg):
    def __post_init__(self):
        super().__post_init__()
        fedlib.Adam(lr=1.0).memory({}, 3)  # of a body without parameters
        CHECK

    def round(self, state, cohort):
        body, head = self.task.split(state.params)
        loss = lambda body, head, batch: self.task.loss(body | head, batch)
        given = cohort.broadcast(body), cohort.held(head)
        bodies, _ = cohort.fit(loss, *given, local=self.local)
        return state._replace(params=cohort.average(bodies, body) | head)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Function that writes my_way.py, as a new process would read it -> its path"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def write(text):
        for found in (provenance._scan, provenance._code_digest, provenance._closure):
            found.cache_clear()
        (tmp_path / "my_way.py").write_text(text)
        return str(tmp_path / "my_way.py")

    return write


def try_method(method, **more):
    """Try a method, perhaps of a file, as a plan does."""
    run = toy_run(method=method, model_params={"hidden": [3]}, **more).spec(0)
    own_trial.check(run, build(run), DIGITS.spec(0), "data/raw")


def test_memory_that_is_not_of_all_clients_is_refused(mine):
    text = "num_clients, seed):\n        return super().init(num_clients, seed)._replace(memory="
    text = f"    def init(self, {text}self.local.memory({{}}, 1))"
    path = mine("from fedlib.methods.fedavg import FedAvg\nclass MyWay(FedAvg):\n" + text)
    with pytest.raises(ConfigError, match="memory must be of all . clients, .*, got one of 1"):
        try_method(path)


def test_what_it_records_must_be_of_every_client_or_of_rounds(mine):
    quiet = OWN.replace("NOISE", "0").replace("LOG", "0")
    with pytest.raises(ConfigError, match="mine must have a row for each of the . clients, got"):
        try_method(mine(quiet.replace("RECORDED", "torch.ones(200)")))
    rounds = quiet.replace("def diagnostics", "def by_round")
    try_method(mine(rounds.replace("RECORDED", "torch.ones(200, 2)")))
    try_method(mine(rounds.replace("RECORDED", "[0.5, 0.25]")))
    with pytest.raises(ConfigError, match=r"by_round: mine must be .rounds. or .rounds, experts."):
        try_method(mine(rounds.replace("RECORDED", "torch.ones(2, 2, 2)")))
    for name in ("examples_hard", "train_loss", "cluster"):  # a cost of preparing, and of a round
        with pytest.raises(ConfigError, match=f"may not be called '{name}'; avoid"):
            try_method(mine(rounds.replace("mine", name).replace("RECORDED", "torch.ones(200)")))


@pytest.mark.parametrize(
    ("noise", "log", "told"),
    [
        ("0", "0", None),
        ("0", "torch.rand(()) * 1e-5", "global generator of PyTorch"),
        ("(setattr(self, 'last', 0) or 0)", "0", "sets self.last; a checkpoint"),
        ("0", "1 / 0", "my_way.py, line 12: ZeroDivisionError.* of two clients"),
    ],
)
def test_it_is_tried_on_made_up_examples_as_simulate_does(mine, noise, log, told):
    recorded = "torch.ones(len(state.memory.epochs))"
    path = mine(OWN.replace("NOISE", noise).replace("LOG", log).replace("RECORDED", recorded))
    with pytest.raises(ConfigError, match=told) if told else nullcontext():
        try_method(path)


def test_a_built_in_method_is_tried_where_the_model_has_frozen_weights(monkeypatch):
    frozen = lambda body, head: Network(body, head.requires_grad_(False))  # noqa: E731
    monkeypatch.setattr("fedlib.models.mlp.Network", frozen)
    monkeypatch.setattr("fedlib.run.check.TASKS", {})  # which other tests built
    try_method("fedavg", precision="tf32")  # of GPUs alone
    with pytest.raises(ConfigError, match="^pfedmm cannot train a model with these frozen weights"):
        try_method("pfedmm", params={"num_experts": 2})


@pytest.fixture
def paper(declare):
    """A paper with models that have a body, or none, on two federations each."""
    labels = {"digits": ("fedavg", "fedrep"), "mnist": ("fedavg",)}
    model = {"digits": {"model_params": {"hidden": [3]}}, "mnist": {"model": "linear"}}
    runs = [
        toy_run(federation, label, **model[federation])
        for federation, found in labels.items()
        for label in found
    ]
    data = [
        spec.Data(name, "digits", IID, 0, *how)
        for name, how in (("digits", ("Digits", "iid")), ("mnist", ("Others", "iid")))
    ]
    declare(toy=toy_paper(runs=runs, data=tuple(data)))


@pytest.mark.usefixtures("paper", "in_this_process")
@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("", "nothing to train; the body of a linear model has no parameters"),
        ("if not self.task.split(self.task.init(0))[0]: raise ValueError('no body')", "no body"),
    ],
)
def test_it_is_left_out_where_it_cannot_run_and_the_rest_is_planned(mine, check, told):
    path = mine(HALVES.replace("CHECK", check))
    plan = preflight.check(Plan({"methods": [path]}))
    assert [name.federation for name in plan.runs if name.label == "own-my-way"] == ["digits"]
    assert all("own-my-way" in x.labels for x in plan.papers["toy"].tables.values())
    [line] = [line for line in remarks.describe(plan) if "left out" in line]
    assert line.startswith("MyWay is left out of toy/mnist: ") and told in line
    assert make_plan({"methods": [path]}).runs.keys() == plan.runs.keys()  # as every process does
    with pytest.raises(ConfigError, match=f"MyWay is left out of toy/mnist: .*{told}"):
        preflight.check(Plan({"methods": [path], "federations": ["mnist"]}))
    mine(HALVES.replace("CHECK", "").replace("self.task.split(state.params)", "state.params, {}"))
    assert len(preflight.check(Plan({"methods": [path]})).runs) == len(plan.runs) + 1


@pytest.mark.usefixtures("paper")
def test_a_method_that_can_run_nowhere_is_an_error(mine, monkeypatch):
    config = {"methods": [mine(HALVES.replace("CHECK", ""))]}
    answers = lambda wanted: [("no way" * ("my_way" in str(each)), True) for each in wanted]  # noqa: E731
    monkeypatch.setattr(preflight, "_answers", answers)
    for _ in range(2):  # asked, and known
        with pytest.raises(ConfigError, match="MyWay is left out of toy/digits, toy/mnist: no way"):
            preflight.check(make_plan(config))


@pytest.mark.usefixtures("paper", "in_this_process")
def test_a_missing_file_is_an_error_until_it_is_there(mine, tmp_path):
    needed = tmp_path / "needed.txt"
    loss = f"open({str(needed)!r}).close()\n        loss ="
    config = {"methods": [mine(HALVES.replace("CHECK", "").replace("loss =", loss))]}
    for _ in range(2):
        with pytest.raises(ConfigError, match="my_way.py, line .*No such file"):
            preflight.check(make_plan(config))
    needed.touch()
    assert "own-my-way" in {name.label for name in preflight.check(make_plan(config)).runs}


@pytest.mark.usefixtures("paper", "in_this_process")
def test_a_wrong_value_that_is_set_is_told_and_not_that_no_run_is_left_to_set_it_for(mine):
    text = "from fedlib.methods.fedprox import FedProx\nclass MyWay(FedProx): ...\n"
    config = {"methods": [mine(text)], "set": ["own-my-way.params.mu=-1"], "tag": "odd"}
    for _ in range(2):  # asked, and known
        with pytest.raises(ConfigError, match="MyWay is left out of toy/digits.*: mu must be .*-1"):
            preflight.check(make_plan(config))


class Maml(FedAvg):
    """The loss after a step, whose gradient has a second derivative."""

    def round(self, state, cohort):
        def loss(weights, batch):
            step = grad(self.task.loss)(weights, batch)
            return self.task.loss(tree.add(weights, step, -0.1), batch)

        trained, _ = cohort.fit(loss, cohort.broadcast(state.params), local=self.local)
        return state._replace(params=cohort.average(trained, state.params))


class Counting(FedAvg):
    """Adds how many examples of some classes a scan saw to the weights; `heeds` batch.mask."""

    heeds = True

    def round(self, state, cohort):
        def count(carry, batch):
            ones = (batch.y < 5).to(carry)
            if self.heeds and batch.mask is not None:
                ones = ones * batch.mask
            return carry + ones.sum()

        state = super().round(state, cohort)
        zeros = state.params["body.0.bias"].new_zeros(cohort.size)
        counts = cohort.scan(count, zeros, local=self.local)
        return state._replace(params=tree.map(lambda x: x + 0.01 * counts.mean(), state.params))


class Forgetting(Counting):
    heeds = False


class Teaching(FedAvg):
    """Its loss closes over a model in training mode, whose statistics a forward pass changes."""

    def round(self, state, cohort):
        def loss(weights, batch):
            taught = self.task.log_probs(state.params, batch)
            return batch.mean((self.task.log_probs(weights, batch) - taught).square().sum(-1))

        trained, _ = cohort.fit(loss, cohort.broadcast(state.params), local=self.local)
        return state._replace(params=cohort.average(trained, state.params))


class Some(FedAvg):
    """Half of the clients train once more, and all send their models one by one."""

    def round(self, state, cohort):
        half, start = cohort.some(slice(cohort.size // 2)), cohort.held(state.params)
        half.fit(self.task.loss, half.held(state.params), local=self.local, stream="again")
        send = lambda part, trained: part.total(part.collect(trained))  # noqa: E731
        sent, _ = cohort.fit(self.task.loss, start, local=self.local, returns=send)
        return state._replace(params=sent.mean())


SPARSE = torch.eye(2).to_sparse_csr()  # it has no strides to ask for


class Near(FedAvg):
    """Each client stays near a vector of its own, which it is given in one of four ways."""

    way = "argument"

    def round(self, state, cohort):
        own = tree.repeat(state.params["head.bias"], cohort.size)
        far = lambda w, own: (w["head.bias"] - own).square().sum()  # noqa: E731
        loss = lambda w, own, batch: self.task.loss(w, batch) + far(w, own)  # noqa: E731
        if self.way == "argument":
            return self.minimise(loss, state, cohort, own)
        if self.way == "all":
            return self.minimise(lambda *x, _=SPARSE: loss(*x), state, cohort, cohort.held(own))
        if self.way == "score":
            cohort.score(lambda batch: batch.y + cohort.round + own.sum(), split="train")
            return super().round(state, cohort)
        return self.minimise(lambda w, batch: loss(w, own, batch), state, cohort)


def tried(method, executor, normal=True, **changes):
    x, y = (array[:120] for array in load_digits(return_X_y=True))
    clients = fedlib.partition(x / 16, y, "dirichlet", num_clients=5, alpha=1.0)
    layers = nn.Linear(64, 8), nn.LayerNorm(8) if normal else nn.Tanh(), nn.Linear(8, 10)
    settings = {"local": fedlib.SGD(lr=0.1, batch_size=8), "rounds": 1, "progress": None}
    model = nn.Sequential(*layers)
    return fedlib.simulate(clients, model, method, executor=executor, **settings | changes)


def test_an_executor_that_leaves_a_derivative_out_is_refused():
    for executor, normal in (("loop", True), ("traced", True), ("batched", False)):
        tried(Maml, executor, normal)
    with pytest.raises(ConfigError, match="Maml has other results with executor batched:160 than"):
        tried(Maml, "batched")


def test_a_loss_that_reads_a_value_is_refused_where_clients_train_together():
    loss = lambda w, batch: w["head.bias"].sum() * w["head.bias"].sum().item()  # noqa: E731
    reads = type("Reads", (FedAvg,), {"round": lambda self, *now: self.minimise(loss, *now)})
    with pytest.raises(ConfigError, match=r"Reads, line \d+: RuntimeError: vmap: .* \.item"):
        tried(reads, "batched")


def test_a_scan_that_counts_what_only_fills_a_batch_up_is_refused():
    tried(Counting, "batched", normal=False)
    for batch_size in (4, 10, 32):
        with pytest.raises(ConfigError, match="of cohort.scan must leave out what batch.mask"):
            solver = fedlib.SGD(lr=0.1, batch_size=batch_size)
            tried(Forgetting, "batched", normal=False, local=solver)


@pytest.mark.parametrize("executor", ["loop", "batched", "traced"])
def test_a_function_of_one_client_that_closes_over_the_rows_of_all_is_refused(executor):
    for way in ("argument", "all", "score", "closure"):
        refused = way in ("score", "closure")
        told = r"Near: a function of one client closes over a tensor of shape \[2, 10\], a row for"
        with pytest.raises(ConfigError, match=told) if refused else nullcontext():
            tried(type("Near", (Near,), {"way": way}), executor)


@pytest.mark.parametrize("executor", ["loop", "batched"])
def test_a_round_that_changes_the_state_it_was_given_is_refused(executor, monkeypatch):
    monkeypatch.setattr(nn, "LayerNorm", nn.BatchNorm1d)
    with pytest.raises(ConfigError, match="Teaching.round changes .*mean'] of the state that it"):
        tried(Teaching, executor, local=fedlib.SGD(lr=0.1, batch_size=8, drop_last=True))


@pytest.mark.parametrize("limit", [1, 1 << 30])
def test_what_parts_of_a_cohort_send_and_lose_is_counted_once(limit, monkeypatch, threads_of_torch):
    monkeypatch.setattr(parts, "PART_BYTES", {"cpu": limit})
    torch.set_num_threads(1)  # several threads train more clients at a time
    found = tried(Some, "loop", normal=False).history
    numbers = 64 * 8 + 8 + 8 * 10 + 10
    assert (found.bytes_up[-1], found.bytes_down[-1]) == (4 * 5 * numbers, 0)
    assert found.train_loss[-1] > 0
