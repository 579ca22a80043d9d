"""The public API: it computes what the workflow computes, and refuses bad input before that."""

import copy
import itertools
import json
import math
import pickle
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from every_method import METHODS, a_fourth
from scipy import sparse
from sklearn.datasets import load_digits
from support import TinyNet, assert_same_result, federation_for, modules_of, same_bits, solver_of
from torch import nn
from workflow import python

import fedlib
from fedlib import tree
from fedlib.api import federation, runs
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation
from fedlib.methods.fedavg import FedAvg
from fedlib.methods.fedem import FedEM
from fedlib.models import mlp
from fedlib.seals import spec_digest
from fedlib.spec import Data, Run
from fedlib.workflow import provenance
from fedlib.workflow.provenance import ROOT

X, Y = load_digits(return_X_y=True)
X = (X / 16)[:400].astype(np.float32)
Y = Y[:400]
CUT = {"num_clients": 5, "alpha": 0.5, "train_fraction": 0.75, "val_fraction": 0.2}
CUT |= {"unseen_fraction": 0.2}
SOLVER = {"lr": 0.2, "batch_size": 16, "momentum": 0.5}
WEIGHTS = [1.0 + label / 10 for label in range(10)]
BUILD = partial(mlp.build, in_features=64, hidden=8, num_classes=10)
quiet = partial(runs.simulate, progress=None)


def cut(**changes):
    return fedlib.partition(X, Y, "dirichlet", seed=3, **CUT | changes)


# -- the same as the workflow ------------------------------------------------------


def script(folder, name, *arguments):
    """Run a stage's script as the workflow does."""
    done = python(ROOT / f"scripts/{name}.py", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run that the workflow's scripts made of the same arrays."""
    top = tmp_path_factory.mktemp("workflow")
    (top / "raw/own/digits").mkdir(parents=True)
    np.savez(top / "raw/own/digits/all.npz", x=X, y=Y)
    params = {"source": "digits", "scaling": "none"}
    data = Data("digits", "own", {"kind": "dirichlet", **CUT}, 3, "", "", params).spec()
    cutting = top / "results/demo/shards/mine/digits"
    shards = "--shards", f"{cutting}.h5", "--manifest", f"{cutting}.json"
    script(top, "partition", "--spec", json.dumps(data), "--raw", "raw", *shards)
    run = (
        Run(
            *("digits", "fedem", ""),
            method="fedem",
            model="mlp",
            rounds=3,
            local={"solver": "sgd", **SOLVER},
            model_params={"hidden": 8},
            params={"num_experts": 2},
            participation={"rate": 0.5, "aggregation": "damped"},
            evaluate_every=2,
            class_weights=WEIGHTS,
        )
        .spec(7, spec_digest(data))
        .to_json()
    )
    folder = top / "results/demo/runs/mine/digits/fedem/seed7"
    files = "--state", folder / "state.pt", "--history", folder / "history.h5"
    more = "--checkpoints", top / "checkpoints", "--device", "cpu", "--threads", "1"
    script(top, "train", "--spec", json.dumps(run), *shards, *files, *more)
    return folder


@pytest.fixture(scope="module")
def both(trained):
    """The result of the same run without files, and that of the workflow."""
    course = {"rounds": 3, "seed": 7, "rate": 0.5, "evaluate_every": 2}
    course |= {"local": fedlib.SGD(**SOLVER), "class_weights": WEIGHTS}
    course |= {"course": {"aggregation": "damped"}}
    ours = quiet(cut(), BUILD, FedEM, num_experts=2, **course)
    return ours, fedlib.open_run(trained, device="auto" if not torch.cuda.is_available() else "cpu")


@pytest.mark.slow
def test_a_run_computes_every_bit_of_the_workflows(both):
    ours, theirs = both
    arrays = [(x.digests, x.num_classes) for x in (run.simulation.federation for run in both)]
    assert arrays[0] == arrays[1] and same_bits(ours.state, theirs.state)
    assert_same_result(*(run.history for run in both))
    assert ours.history.diagnostics["pi"].shape == (ours.simulation.federation.num_clients, 2)
    assert ours.evaluate().equals(theirs.evaluate())


@pytest.mark.slow
def test_a_finished_run_is_not_opened_with_other_shards(trained, tmp_path):
    folder = tmp_path / "demo/runs/mine/digits/fedem/seed7"
    folder.mkdir(parents=True)
    for name in ("state.pt", "history.h5"):
        (folder / name).write_bytes((trained / name).read_bytes())
    other = tmp_path / "demo/shards/mine/digits.json"
    other.parent.mkdir(parents=True)
    other.write_text("{}")
    with pytest.raises(DataError, match="digits.json is not what .* was trained on"):
        fedlib.open_run(folder)
    with pytest.raises(ConfigError, match="device must be one of auto, cpu, cuda"):
        fedlib.open_run(trained, device="tpu")
    with pytest.raises(DataError, match="is a run of the workflow"):
        fedlib.load(folder)


def test_a_module_is_drawn_like_the_function_that_made_it():
    module = BUILD()
    nn.init.zeros_(module.head.weight)  # what it has does not count
    course = {"local": fedlib.SGD(lr=0.1), "rounds": 1, "seed": 5}
    done = quiet(cut(), BUILD, **course), quiet(cut(), module, **course)
    assert same_bits(*(run.state for run in done))
    assert not module.head.weight.any()


def test_a_round_of_a_part_of_the_clients_averages_what_these_return():
    course = {"local": fedlib.SGD(lr=0.1), "rounds": 1, "rate": 0.5}
    ways = [{}, {"course": {"aggregation": "renormalised"}}, {"course": {"aggregation": "damped"}}]
    usual, alone, damped = (quiet(cut(), BUILD, **course | way).state.params for way in ways)
    assert same_bits(usual, alone) and not same_bits(usual, damped)


def test_what_a_function_returns_is_used_as_it_is_and_left_alone():
    body, course = nn.Linear(64, 8), {"local": fedlib.SGD(lr=0.1), "rounds": 1}
    whole = nn.Sequential(body, nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 10))
    before = copy.deepcopy(whole)
    for model in (lambda: whole, lambda: nn.Sequential(body, nn.Linear(8, 10))):
        result = quiet(cut(), model, **course)
        assert torch.equal(result.simulation.method.task.init(0)["body.0.weight"], body.weight)
    assert str(whole) == str(before) and same_bits(whole.state_dict(), before.state_dict())


def test_a_run_leaves_pytorchs_threads_and_generator_as_they_are(threads_of_torch):
    torch.set_num_threads(3)
    state = torch.get_rng_state()
    result = quiet(cut(), BUILD, "local", local=fedlib.SGD(lr=0.1), rounds=1)
    _ = result.client_model(0).network
    assert torch.get_num_threads() == 3 and torch.equal(state, torch.get_rng_state())


@pytest.mark.slow
def test_the_tutorial_runs(trained, tmp_path, monkeypatch):
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = "\n".join(blocks).replace("results/demo/runs/pfedmm/digits/fedem/seed1234", str(trained))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    network, predict = names["network"], names["fedavg"].client_model(7)
    x = torch.from_numpy(names["clients"].x[:4])
    saved = names["Net"]().eval()
    saved.load_state_dict(safetensors.torch.load_file("client7.safetensors"))
    assert torch.equal(saved(x), network(x))
    torch.testing.assert_close(network(x).softmax(1), predict(x))


# -- results -----------------------------------------------------------------------


MIXTURES = {"centmoe", "ensemble", "fedapen", "fedem", "fedjets", "fedmix", "fedmix_clients"}
MIXTURES |= {"fedmix_vae", "fedmoe", "gated_experts", "moe_fedavg", "pfedmm", "pfedmoe"}
MIXTURES |= {"plain_mixture", "uniform_mixture"}


def network_of(predict):
    try:
        return predict.network
    except ConfigError:
        return None


@a_fourth
def test_a_clients_module_predicts_as_the_client_does(name):
    federation, params = federation_for(name), METHODS[name][0]
    tasks = modules_of(name, params.get("num_experts", 1))
    built = lambda task: tuple(map(built, task)) if isinstance(task, tuple) else task.build()  # noqa: E731
    more = params | {field: built(task) for field, task in tasks.items()}
    result = quiet(federation, TinyNet(4, 3), name, local=solver_of(name), rounds=1, **more)
    found = result.evaluate()
    found = found[(found.split == "test") & found.group.isin(["seen", "unseen"])]
    found = found.groupby(["group", "protocol"]).tail(1)  # their last client
    for row in found.itertuples():
        own = federation.test.of(row.client)
        x, y = torch.from_numpy(federation.x[own]), torch.from_numpy(federation.y[own])
        predict = result.client_model(row.client, row.protocol)
        probabilities, network = predict(x), network_of(predict)
        if network is not None:
            scaled = predict._batch(x).x
            torch.testing.assert_close(network(scaled).softmax(1), probabilities)
        if (row.group, row.protocol) == ("seen", "default"):
            assert (network is None) == (name in MIXTURES)
        assert (probabilities.argmax(1) == y).double().mean() == pytest.approx(row.accuracy)
        loss = -probabilities.log().gather(1, y[:, None]).mean()
        # Of seven digits some are lost, as products of other sizes are added up in other orders.
        assert loss.item() == pytest.approx(row.loss, rel=1e-4, abs=1e-5)


class Net(nn.Module):
    """As in a model zoo: its last layer is called fc, inside of a sequence."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Sequential(nn.Dropout(0.3), nn.Linear(4 * 36, 10))

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).relu().flatten(1))


def images():
    x = np.rint(X * 255).astype(np.uint8).reshape(-1, 8, 8)
    return fedlib.partition(x, Y, "iid", num_clients=3, train_fraction=0.75)


def test_the_network_of_a_client_is_the_users_own():
    predict = quiet(images(), Net(), local=fedlib.SGD(lr=0.1), rounds=2).client_model(1)
    network, x = Net().eval(), torch.from_numpy(images().x[:6])
    network.load_state_dict(predict.network.state_dict())
    for same in (network, predict.network):
        torch.testing.assert_close(same(x / 255).softmax(1), predict(x))
    assert predict._data.x is None  # the examples stay behind
    assert torch.equal(pickle.loads(pickle.dumps(predict))(x), predict(x))
    assert torch.equal(predict.state_dict()["client/head/weight"], predict.network.fc[1].weight)
    assert type(predict.network.fc[0]) is nn.Dropout
    assert torch.equal(predict(images().x[:6, 0]), predict(x))  # as `partition` takes them
    for odd in (x / 255, x[:, :, :7]):
        with pytest.raises(ConfigError, match="inputs must be torch.uint8"):
            predict(odd)
    again = quiet(images(), Net(), local=fedlib.SGD(lr=0.1), rounds=2)
    assert torch.equal(again.client_model(1)(x), predict(x))  # masks of dropout are repeated


def test_a_clients_module_takes_numbers_in_any_form():
    predict = quiet(cut(), BUILD, local=fedlib.SGD(lr=0.1), rounds=1).client_model(0)
    x = np.rint(X[:3] * 16)
    expected = predict(torch.from_numpy(x))
    for given in (*map(x.astype, (int, float, np.uint8)), x.tolist(), pd.DataFrame(x)):
        assert torch.equal(predict(given), expected)
    huge = x + np.float64(1e39)  # infinite in float32
    for given in (x.astype(str), pd.DataFrame(x).astype(str), None, x[0], huge, pd.DataFrame(huge)):
        with pytest.raises(ConfigError, match="inputs must be"):
            predict(given)


def test_a_clients_module_scales_numbers_as_the_federations_were_when_they_were_read():
    scales = np.arange(64.0), np.arange(1.0, 65.0)
    federation = replace(cut(), mean=tuple(scales[0]), std=tuple(scales[1]))
    scaled = quiet(federation, BUILD, local=fedlib.SGD(lr=0.1), rounds=1)
    as_given = quiet(cut(), BUILD, local=fedlib.SGD(lr=0.1), rounds=1)
    raw = cut().x[:5] * scales[1] + scales[0]
    expected = as_given.client_model(0)(cut().x[:5])  # trained on the same numbers
    torch.testing.assert_close(scaled.client_model(0)(raw.astype("f4")), expected)
    network = scaled.client_model(0).network
    torch.testing.assert_close(network(torch.from_numpy(cut().x[:5])).softmax(1), expected)


def test_a_clients_module_can_be_moved():
    predict = quiet(images(), Net(), local=fedlib.SGD(lr=0.1), rounds=1).client_model(1)
    x = torch.from_numpy(images().x[:6])
    expected = predict(x)
    torch.testing.assert_close(predict.double()(x), expected.double())
    assert predict.network.norm.weight.dtype == torch.float64
    rounded = quiet(images(), Net(), local=fedlib.SGD(lr=0.1), rounds=1, precision="bfloat16")
    assert rounded.client_model(1).double()(x).dtype == torch.float64  # which bfloat16 is not of
    elsewhere = predict.to("meta")
    assert elsewhere(x).device.type == elsewhere._batch(x).x.device.type == "meta"


def test_an_accuracy_is_the_share_of_right_answers_by_client_and_round():
    few = cut(num_clients=40, alpha=0.1)  # which leaves some clients without examples
    result = quiet(few, BUILD, "local", local=fedlib.SGD(lr=0.1), rounds=3, evaluate_every=2)
    accuracy, federation = result.accuracy(), result.simulation.federation
    assert accuracy.index.tolist() == [0, 2, 3]
    assert accuracy.columns.tolist() == federation.client_id[federation.ids("seen")].tolist()
    sizes = federation.test.sizes[federation.ids("seen")]
    pooled = (accuracy * sizes).sum(axis=1) / sizes.sum()
    assert pooled.tolist() == pytest.approx(result.pooled_accuracy().tolist())
    assert f"{pooled[3]:.1%} seen" in repr(result)
    result.history.by_round["alpha"] = np.zeros((3, 2))
    assert "train_loss [3], alpha [3, 2]" in repr(result.history)
    last = accuracy.columns[-1]
    own = federation.test.of(federation.called.index(last))
    right = result.client_model(last)(federation.x[own]).argmax(1).numpy() == federation.y[own]
    assert last >= federation.num_clients and right.mean() == accuracy[last][3]


def test_a_plot_has_a_line_for_each_run_of_the_pooled_accuracy():
    result = quiet(cut(), BUILD, local=fedlib.SGD(lr=0.1), rounds=2)
    ax = result.plot(result.plot(label="once"), label="twice")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["once", "twice"]
    assert ax.yaxis.get_major_formatter()(0.5) == "50"  # percent
    assert result.plot().get_legend().get_texts()[0].get_text() == "FedAvg"
    assert ax.lines[0].get_ydata().tolist() == result.pooled_accuracy().tolist()
    shaded = ax.collections[0].get_paths()[0].vertices[:, 1]
    low, high = (result.accuracy().quantile(q, axis=1) for q in (0.1, 0.9))
    assert (shaded.min(), shaded.max()) == pytest.approx((low.min(), high.max()))


@pytest.mark.parametrize("gate", [mlp.build(64, 4, 2), lambda: nn.Linear(64, 2)])
def test_architectures_are_given_as_modules_or_as_what_makes_them(gate):
    large = [mlp.build(64, [8, 4], 10), lambda: mlp.build(64, [6, 4], 10)]
    course = {"local": fedlib.SGD(lr=0.1), "rounds": 1, "device": "auto", "gate": gate}
    result = quiet(cut(), mlp.build(64, 4, 10), "pfedmoe", large=large, **course)
    assert result.client_model(0)(X[:2]).sum(1).tolist() == pytest.approx([1, 1])
    with pytest.raises(ConfigError, match="PFedMoE predicts with more than one model"):
        _ = result.client_model(0).network
    ran = [quiet(cut(), large[1], "pfedmoe", large=x, **course) for x in (large[0], large[:1])]
    assert ran[0].accuracy().equals(ran[1].accuracy())


# -- federations -------------------------------------------------------------------


def test_arrays_of_clients_are_theirs():
    pairs = [(X[:10], Y[:10]), (X[10:30], Y[10:30]), (X[30:35], Y[30:35])]
    held_out = [(X[40:42], Y[40:42]), (X[42:45], Y[42:45]), (X[45:46], Y[45:46])]
    val = [held_out[2], (X[:0], Y[:0]), held_out[0]]  # a small client may have none
    made = fedlib.Federation.from_arrays(pairs, held_out, val, unseen=[1], num_classes=10)
    assert isinstance(made, Federation) and made.called == [0, 1, 2]
    assert made.ids("unseen").tolist() == [1]
    for split, given in ((made.train, pairs), (made.val, val), (made.test, held_out)):
        for client, (x, y) in enumerate(given):
            assert np.array_equal(made.x[split.of(client)], x)
            assert np.array_equal(made.y[split.of(client)], y)


def test_clients_who_are_left_out_are_counted():
    own = np.repeat(["big", "small", "tiny"], [380, 19, 1])
    clients, lines = fedlib.partition(X[:400], Y[:400], "natural", client=own), []
    assert clients.left_out == clients.manifest()["left_out"] == 1
    assert fedlib.partition(X[:60], Y[:60], "writer", client=np.arange(60) // 3).num_clients == 20
    assert "clients 2 seen, 1 left out, who lack training or test examples;" in repr(clients)
    quiet(clients, BUILD, local=fedlib.SGD(lr=0.1), rounds=0, progress=lines.append)
    assert "left out, for lack of training or test examples: 1 of the clients" in lines


def test_clients_and_classes_keep_the_names_that_a_user_gave():
    who = np.array(["clinic 3", "clinic 1", "clinic 2"])[np.arange(400) % 3]
    clients = fedlib.partition(X, [f"digit {y}" for y in Y], "natural", client=who)
    names = ["clinic 1", "clinic 2", "clinic 3"]
    assert clients.called == names and clients.class_name[7] == "digit 7"
    own = torch.nn.Linear(64, 10)  # of a user's, which is tried on two of the clients first
    result = quiet(clients, own, local=fedlib.SGD(lr=0.1), rounds=1)
    accuracy = result.accuracy()
    assert accuracy.columns.tolist() == names
    found = result.evaluate().query("split == 'test'")
    assert found["client"].tolist() == names and result.history is not None
    share = result.client_model("clinic 3")(clients.x[clients.test.of(2)]).argmax(1).numpy()
    right = (share == clients.y[clients.test.of(2)]).mean()
    assert right == pytest.approx(accuracy["clinic 3"].iloc[-1])
    for unknown in ("clinic 4", 0, [0, 1], np.array([0, 1])):
        with pytest.raises(ConfigError, match="no client .*; there are 'clinic 1', 'clinic 2'"):
            result.client_model(unknown)


@pytest.mark.parametrize("far", [2**60, 2**63])
def test_clients_are_told_apart_by_all_digits_of_their_numbers(far):
    who = np.array([5, far, far + 1], np.uint64)[np.arange(400) % 3]
    test = X[::3], Y[::3], np.full(134, 5)  # signed, as those of most arrays
    clients = fedlib.partition(X, Y, "natural", client=who, test=test)
    assert (clients.called, clients.left_out) == ([5] if far < 2**63 else ["5"], 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [np.copy, torch.tensor])
def test_arrays_are_copied(make):
    pixels = (X * 255).astype(np.uint8).reshape(-1, 1, 8, 8)
    pixels.setflags(write=False)
    given = make(pixels) if make is torch.tensor else pixels
    made = deal(given)
    before = made.x.copy()
    torch.as_tensor(made.x)  # warns of an array that is read-only
    if make is torch.tensor:
        given[:] = 0
    assert np.array_equal(made.x, before) and made.x.flags.writeable


def test_columns_of_flags_and_of_whole_numbers_without_gaps_are_numbers():
    frame = pd.DataFrame({"a": X[:, 3], "b": X[:, 3] > 0.5, "c": pd.array(Y, "Int64")})
    made = deal(frame, pd.Series(Y > 4, dtype="boolean"))
    rows = np.column_stack([X[:, 3], X[:, 3] > 0.5, Y])
    assert np.array_equal(made.x, rows) and made.class_name.tolist() == ["False", "True"]


def test_columns_are_matched_by_name_where_the_first_client_has_none():
    frame = pd.DataFrame(X[:, :3], columns=[*"abc"])
    made = own([(X[:, :3], Y), (frame, Y), (frame[[*"cab"]], Y)], [(frame, Y)] * 3)
    assert np.array_equal(made.x[made.train.of(2)], X[:, :3]) and [*made.column_name] == [*"abc"]


# -- bad input ---------------------------------------------------------------------


LAST = nn.Linear(64, 10)
MODELS = {
    "model must be a torch.nn.Module, or a function that makes one, got 3": 3,
    "model gives NaN before its first step": nn.Sequential(nn.Threshold(2, math.nan), LAST),
    "model gives 3 numbers for an input, and must give 10": nn.Linear(64, 3),
    "model gives 64x10 numbers": nn.Sequential(nn.Unflatten(1, (64, 1)), nn.Linear(1, 10)),
    "model: all of its parameters are frozen": lambda: BUILD().requires_grad_(False),
    "model has weights of torch.float64; give model.float": nn.Linear(64, 10).double(),
    "model: body.0.weight has no shape yet; run the model once first": nn.ModuleDict(
        {"body": nn.Sequential(nn.LazyLinear(8)), "head": nn.Linear(8, 10)}
    ),
    "MultiheadAttention 'out' has weights and no reset": nn.ModuleDict(
        {"out": nn.MultiheadAttention(8, 2)}
    ),
}


@pytest.mark.parametrize("told", MODELS)
def test_a_model_that_cannot_be_trained_is_refused_before_any_round(told):
    with pytest.raises(ConfigError, match=told):
        quiet(cut(), MODELS[told], local=fedlib.SGD(lr=0.1), rounds=10**9)


SETTINGS = {
    "no method 'fedawg'; nearest: fedavg": {"method": "fedawg"},
    "fedem has no num_expert; nearest: num_experts": {"num_expert": 3, "method": "fedem"},
    "fedavg has no checkpont; nearest: checkpoint": {"checkpont": "here"},
    "fedavg has no zzz; there are: callbacks, .* model, precision": {"zzz": 1},
    "num_experts must be .* got 1000000000000": {"num_experts": 10**12, "method": "fedem"},
    "rounds must be at least 0, got -1": {"rounds": -1},
    "seed must be a whole number, got None": {"seed": None},
    "gate_features must be 64, .* got 8": {
        **{"method": "gated_experts", "num_experts": 2, "gate_features": 8}
    },
    "progress must be a function, such as print, or None, got True": {"progress": True},
    "course has no agregation; nearest: aggregation": {"course": {"agregation": "gossip"}},
    "local must be a solver, .* got a torch.optim.sgd.SGD": {
        "local": torch.optim.SGD(nn.Linear(1, 1).parameters())
    },
    "the first argument must be a federation, .* got Net": {"federation": Net()},
    r"lr belongs to the solver: local=fedlib.SGD\(lr=...\)": {"lr": 0.1},
    "fedem needs num_experts; see help": {"method": "fedem"},
    "device must be one of auto, cpu, cuda, cuda:1, got 'gpu'": {"device": "gpu"},
    "gate must be a torch.nn.Module, or a function": {"method": "pfedmoe", "gate": 3},
    r"class_weights must be 10 numbers .*, got \[1, 2\]": {"class_weights": [1, 2]},
    "pfedmoe needs .*gate": {"method": "pfedmoe"},
}


@pytest.mark.parametrize("told", SETTINGS)
def test_a_setting_that_makes_no_sense_is_refused_in_one_line(told):
    given = {"federation": cut(), "model": BUILD, "method": "fedavg"}
    given |= {"local": fedlib.SGD(lr=0.1), "rounds": 1, "progress": None}
    with pytest.raises(ConfigError, match=told) as caught:
        fedlib.simulate(**given | SETTINGS[told])
    assert "\n" not in str(caught.value)


COUNTER = itertools.count()


def noisy(draw):
    class Noisy(FedAvg):
        def round(self, state, cohort):
            after = super().round(state, cohort)
            return after._replace(params=tree.map(lambda x: x + draw(x), after.params))

    return Noisy


def fitting(name, loss):
    """FedAvg by another loss, which is made of its task."""

    def round(self, state, cohort):
        start = cohort.broadcast(state.params)
        fitted, _ = cohort.fit(loss(self.task), start, local=self.local)
        return state._replace(params=cohort.average(fitted, state.params))

    return type(name, (FedAvg,), {"round": round})


class Counting(FedAvg):
    def init(self, *args):
        return super().init(*args), 0

    def round(self, state, cohort):
        return super().round(state[0], cohort), state[1] + 1


class Becoming(Counting):
    def round(self, state, cohort):
        return super().round(state, cohort)[0], torch.ones(1)


def returning(name, value):
    """FedAvg with a function that makes something else of what FedAvg's returns."""
    own = {name: lambda self, *args: value(getattr(FedAvg, name)(self, *args))}
    return type("Wrong", (FedAvg,), own)


ONE = torch.ones(1)


def adding(name, value=ONE):
    """FedAvg whose rounds add a parameter, or change it."""
    return returning("round", lambda s: s._replace(params={**s.params, name: value}))


class Bare(FedAvg):
    eta: float = 0.1


RAISE = "raise ValueError"
Silent = type("Silent", (), {"__array__": lambda *_, **__: exec(RAISE)})
METHODS_OF_USERS = {
    r"Bare is not a dataclass; write @dataclass\(frozen=True, kw_only=True\) above it": Bare,
    r"Wrong.round must return a state like init's, got None": returning("round", lambda s: None),
    r"a state like init's, got one that differs, .* in .params\['new'\]": adding("new"),
    r"\['body.1.bias'\] was \(torch.float32, \[8\]\) and is \(torch.float64, ": adding(
        "body.1.bias", torch.zeros(8).double()
    ),
    r"Summed: the loss must be a scalar, got shape \[14\]": fitting("Summed", lambda x: x.losses),
    r"Averaging: the loss depends on examples that only fill a batch up; average": fitting(
        "Averaging", lambda task: lambda *given: task.losses(*given).mean()
    ),
    r"Becoming.round must return a state .* or has no tensor, in \[1\]": Becoming,
    r"Counting.round must return a state .* or has no tensor, in \[1\]": Counting,
    r"return log-probabilities; the probabilities of an example sum to 10": returning(
        "predict", torch.zeros_like
    ),
    r"predict must return log-probabilities of shape \[21, 10\], got \[21\]": returning(
        "predict", lambda log_probs: log_probs[:, 0]
    ),
    "Wrong: ValueError: .* one has 8 rows for a cohort of 2 clients; give .* first of": returning(
        "personalise", lambda models: tree.take(models, 0)
    ),
    "Wrong: .* one is None .*; is a return missing": returning("personalise", lambda models: None),
    "Wrong: AttributeError: 'dict' object has no .* 'params'": returning("init", lambda s: {}),
    "Wrong, line .*: AttributeError: .* 'nothing'": returning("round", lambda s: s.nothing),
    r"Wrong, line .* dtype = None.* = None\) \(in": returning("round", lambda s: torch.sum(s, x=1)),
    "^Wrong: KeyError: 'b'$": type("Wrong", (FedAvg,), {"__post_init__": lambda self: {}["b"]}),
    "^Wrong: ValueError$": type("Wrong", (FedAvg,), {"__post_init__": lambda _: exec(RAISE)}),
    "protocols of Wrong must be like": type("Wrong", (FedAvg,), {"protocols": {"all": {}}}),
    "classifiers of Wrong must be a": type("Wrong", (FedAvg,), {"classifiers": frozenset("ab")}),
    "Wrong must be like .*a/b": type("Wrong", (FedAvg,), {"protocols": {"seen": {"a/b": "round"}}}),
    "Wrong: final_protocols must add to 'seen' of protocols, not 'default'": type(
        "Wrong", (FedAvg,), {"final_protocols": {"seen": {"default": "personalise"}}}
    ),
    "final_protocols of Wrong must": type("Wrong", (FedAvg,), {"final_protocols": {"seen": "x"}}),
    "Noisy draws from the global generator of PyTorch": noisy(torch.randn_like),
    r"Noisy gives another .params.* when a round": noisy(lambda x: next(COUNTER)),
}


@pytest.mark.parametrize("told", METHODS_OF_USERS)
def test_what_a_users_method_returns_is_checked_before_the_run(told):
    with pytest.raises(ConfigError, match=told):
        quiet(cut(), BUILD, METHODS_OF_USERS[told], local=fedlib.SGD(lr=0.1), rounds=10**9)


own = federation.Federation.from_arrays
FIVE, THREE = {"num_clients": 5}, [(X, Y)] * 3


def deal(x=X, y=Y, **more):
    return fedlib.partition(x, y, "iid", **FIVE, **more)


def words(fourth, values=("cat", "dog") * 200):
    """These values with another one in fourth place."""
    return [*values[:3], fourth, *values[4:]]


FEDERATIONS = {
    "has no parameter 'alfa'; it takes num_clients, alpha": lambda: cut(alfa=1),
    "no partition 'iidd'; nearest: iid": lambda: fedlib.partition(X, Y, "iidd"),
    "partition iid needs the parameter 'num_clients'": lambda: fedlib.partition(X, Y, "iid"),
    r"data of client 0 must be \(inputs, labels\), got nd": lambda: own([X, X], [X, X]),
    "train must be a list, a pair for each client, got an empty list": lambda: own([], []),
    "train must be a list, a pair for each client, got dict": lambda: own({0: (X, Y)}, [(X, Y)]),
    "y must have 400 values as x": lambda: fedlib.partition(X, Y[1:], "natural"),
    "got 0.5; regression is not supported": lambda: fedlib.partition(X, Y + 0.5, "natural"),
    "train data of client 1 is empty": lambda: own([(X, Y), (X[:0], Y[:0])], [(X, Y)] * 2),
    "same clients, got train of 2, test of 1": lambda: own([(X, Y)] * 2, [(X, Y)]),
    "unseen must be some of the clients": lambda: own([(X, Y)], [(X, Y)], unseen=[0]),
    r"unseen must be .*got array\(\[False": lambda: own(THREE, THREE, unseen=np.arange(3) > 1),
    r"unseen must be .*got \[False, True": lambda: own(THREE, THREE, unseen=[False, True, 0]),
    "test must be a list, .* got NoneType": lambda: own([(X, Y)], None),
    r"test must be \(inputs, labels, clients\), got ndarray": lambda: cut(test=X),
    "the data: x cannot become an array": lambda: fedlib.partition([[1], [1, 2]], Y, "iid", **FIVE),
    "an array of NumPy: ValueError$": lambda: fedlib.partition(Silent(), Y, "iid", **FIVE),
    "deals regardless of clients; leave client": lambda: cut(client=Y),
    "data: y of example 3 is missing": lambda: deal(y=words(float("nan"))),
    r"the data: y of example 3 is missing": lambda: deal(y=pd.Series(words(pd.NA), dtype="string")),
    "got csr_matrix; take toarray": lambda: deal(sparse.csr_matrix(X)),
    "x has masked values": lambda: deal(np.ma.masked_greater(X, 0.9)),
    "column 'b' must be numbers, got": lambda: deal(pd.DataFrame({"a": Y, "b": "u"})),
    "column 'a' has no value for example 3": lambda: deal(
        pd.DataFrame({"a": pd.array(words(None, Y.tolist()), "Int64")})
    ),
    "several columns have the same name": lambda: deal(
        pd.DataFrame(X[:, :3], columns=[*"aab"]), test=(pd.DataFrame(X[:, :3], columns=[*"aba"]), Y)
    ),
    "y is also the column 'k' of x": lambda: deal(pd.DataFrame({"k": Y}), pd.Series(Y, name="k")),
    "indexes of x, y or client": lambda: deal(pd.DataFrame(X), pd.Series(Y).sample(frac=1)),
    "num_classes must be .* got nan": lambda: deal(num_classes=float("nan")),
}


@pytest.mark.parametrize("told", FEDERATIONS)
def test_a_federation_that_makes_no_sense_is_refused(told):
    with pytest.raises((ConfigError, DataError), match=told):
        FEDERATIONS[told]()


def test_a_client_tests_on_a_fifth_unless_another_fraction_is_given():
    frame, words = pd.DataFrame(X), pd.Series([f"digit {y}" for y in Y])
    clients = fedlib.partition(frame, words, "iid", **FIVE)
    assert clients.test.sizes.tolist() == [16] * 5 and clients.num_classes == 10
    assert fedlib.partition(X, Y, "iid", train_fraction=0.5, **FIVE).test.sizes[0] == 40


def test_weights_of_classes_by_name_are_in_the_order_of_the_classes():
    words, course = np.array([f"digit {y}" for y in Y]), {"local": fedlib.SGD(lr=0.1), "rounds": 0}
    for labels in (Y, words, Y < 6):
        weights = 1 / pd.Series(labels).value_counts()  # in the order of frequencies
        assert not weights.index.is_monotonic_increasing
        clients = fedlib.partition(X, labels, "iid", num_clients=4)
        train = partial(quiet, clients, nn.Linear(64, len(weights)), **course)
        for given in (weights, weights.to_dict(), weights.sort_index().to_numpy()):
            found = train(class_weights=given).simulation.method.task.class_weights
            np.testing.assert_allclose(found.double(), weights.sort_index(), 1e-6)  # of float32
        odd = weights.index[-1]
        with pytest.raises(ConfigError, match=rf"must be of all classes; \['?{odd}'?\] differ"):
            train(class_weights=weights[:-1])


def test_what_a_result_does_not_have_is_told_with_what_it_has():
    result = quiet(cut(num_clients=7), BUILD, local=fedlib.SGD(lr=0.1), rounds=1)
    for group in ("server", 7):
        with pytest.raises(ConfigError, match=f"no accuracies of {group}/default/test; there are "):
            result.accuracy(group)
    with pytest.raises(TypeError, match="unexpected keyword argument 'groups'"):
        result.plot(groups="unseen")
    with pytest.raises(ConfigError, match=r"no client 99; there are 0, 1, 2, 3, 4, 5, \.\.\.$"):
        result.client_model(99)
    told = "FedAvg has no protocol 'best' for seen clients; it has 'default'"
    with pytest.raises(ConfigError, match=told):
        result.client_model(result.accuracy().columns[0], "best")
    with pytest.raises(ConfigError, match=r"inputs must be torch.float32 of shape \[B, 64\]"):
        result.client_model(0)(torch.zeros(2, 8, 8))


@pytest.mark.parametrize("folder", ["nothing", "a_file/history.h5"])
def test_what_is_no_folder_of_a_run_is_refused(folder, tmp_path):
    (tmp_path / "a_file").write_text("")
    with pytest.raises(DataError, match="must be the folder of a finished run, such as results"):
        fedlib.open_run(tmp_path / folder)


# -- what an import brings ---------------------------------------------------------


def test_every_public_name_is_there():
    assert all(getattr(fedlib, name) is not None for name in fedlib.__all__)
    assert {*fedlib.__all__} <= {*dir(fedlib)}
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        _ = fedlib.simulat


def test_no_job_depends_on_the_public_names():
    scripts = [f"scripts/{file.name}" for file in (ROOT / "scripts").glob("*.py")]
    assert not [name for name in provenance.closure(*scripts) if name.startswith("fedlib.api")]
