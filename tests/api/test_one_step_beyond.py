"""What other people's models, data and methods do that ours do not."""

import os
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from support import assert_close
from torch import nn

import fedlib
from fedlib.api import following
from fedlib.engine import executors
from fedlib.errors import ConfigError
from fedlib.methods.apfl import APFL
from fedlib.methods.fedavg import FedAvg

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(80, 6)).astype("f4"), np.arange(80) % 3
LOCAL = fedlib.SGD(lr=0.1, batch_size=4)


def flat() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def quiet(clients: fedlib.Federation, model: Any, method: Any = "fedavg", **more: Any):
    return fedlib.simulate(
        clients, model, method, **{"local": LOCAL, "rounds": 1, "progress": None} | more
    )


def cut(x: Any = X, kind: str = "iid", **more: Any) -> fedlib.Federation:
    return fedlib.partition(x, Y, kind, **{"num_clients": 4} | more)


class View(nn.Module):
    """A network that flattens as in many tutorials; `view` needs channels first."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 5 * 5, 3)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).view(-1, 4 * 5 * 5))


@pytest.mark.parametrize("executor", ["auto", "loop", "batched"])
def test_a_network_may_flatten_by_view(executor):
    images = DRAW.normal(size=(80, 3, 5, 5)).astype("f4")
    result = quiet(cut(images), View, executor=executor)
    torch.manual_seed(0)
    assert result.client_model(0)(images[:2]).shape == (2, 3)
    assert not result.simulation.method.task.channels_last


def test_one_of_several_networks_may_flatten_by_view():
    images = DRAW.normal(size=(80, 3, 5, 5)).astype("f4")
    other = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(18, 3))
    result = quiet(cut(images), other, "fml", executor="loop", large=[View(), other])
    assert result.client_model(0)(images[:2]).shape == (2, 3)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts, self.gate = nn.Linear(6, 6), nn.Linear(6, 2)  # the last matrix has two rows

    def forward(self, x):
        return (self.experts(x).view(-1, 3, 2) * self.gate(x)[:, None]).sum(-1)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 6), Experts()

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize("own", [{"method": "fedavg"}, {"method": "local", "large": [Mixed()]}])
def test_classes_are_counted_by_logits_and_not_by_the_last_matrix(own):
    assert quiet(cut(), Mixed(), **own).client_model(0)(X[:2]).shape == (2, 3)


def test_a_run_is_independent_of_what_its_model_becomes():
    model = flat()
    model[0].requires_grad_(False)
    predict = quiet(cut(), model, start="given").client_model(0)
    before = predict(X[:3])
    with torch.no_grad():
        model[0].weight.zero_()
    model[0].requires_grad_(True)
    assert torch.equal(predict(X[:3]), before)
    assert torch.allclose(predict.network(torch.from_numpy(X[:3])).softmax(-1), before)
    assert torch.allclose(predict.double()(X[:3]).float(), before)


@pytest.mark.parametrize("executor", ["loop", "traced", "batched"])
def test_a_client_without_examples_of_a_split_gives_no_model_an_empty_batch(executor):
    class Reshape(nn.Module):
        def forward(self, x):
            return x.reshape(x.size(0), -1)  # ambiguous for no examples

    clients, model = some_without_validation(), nn.Sequential(Reshape(), nn.Linear(6, 10))
    assert quiet(clients, model, "local", executor=executor).history.round.tolist() == [0, 1]


def some_without_validation():
    x, labels = DRAW.normal(size=(195, 6)).astype("f4"), np.arange(195) % 10
    clients = fedlib.partition(x, labels, "two_shard", num_clients=20, val_fraction=0.07)
    assert 0 in clients.val.sizes and clients.val.sizes.any()
    return clients


def test_a_client_without_examples_of_a_split_has_no_loss_of_zero():
    clients = some_without_validation()
    found = quiet(clients, nn.Linear(6, 10)).evaluate().query("split == 'val'")
    lack = found.set_index("client")[["accuracy", "loss"]].isna()
    assert all((lack[name] == (clients.val.sizes == 0)).all() for name in lack)


@dataclass(frozen=True, kw_only=True)
class Rated(FedAvg):
    rate: float = 0.9


@dataclass(frozen=True, kw_only=True)
class Rests(FedAvg):
    """Trains in every other round."""

    def round(self, state: Any, cohort: Any) -> Any:
        return state if cohort.round % 2 else super().round(state, cohort)


class Mild(APFL):
    alpha = 0.9


Milder = dataclass(frozen=True, kw_only=True)(type("Milder", (Mild,), {}))


REFUSED = {
    "Rated.rate is an argument of simulate, too": Rated,
    "Mild.alpha has no type, so it would be ignored": Mild,
    "Milder.alpha has no type, so it would be ignored": Milder,
}


@pytest.mark.parametrize(("message", "kind"), REFUSED.items())
def test_a_field_that_a_call_could_not_set_is_refused(message, kind):
    with pytest.raises(ConfigError, match=message):
        quiet(cut(), flat(), kind)


def test_the_start_of_fedmoe_is_reached_through_simulate():
    server = {"solver": "sgd", "lr": 0.1, "batch_size": 5}
    with pytest.raises(ConfigError, match="start 'main' needs a main expert"):
        quiet(cut(), flat(), "fedmoe", start="main", gate=nn.Linear(6, 4), server=server)
    with pytest.raises(ConfigError, match="start must be one of drawn, given, got 'main'"):
        quiet(cut(), flat(), start="main")


def test_an_embedding_must_have_all_tokens_before_the_run():
    tokens = np.arange(80)[:, None] % 20 + np.zeros((80, 5), np.int64)
    tokens[17, 2] = 60
    model = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(ConfigError, match="model cannot read inputs of 5 numbers: IndexError"):
        quiet(cut(tokens), model)


def test_a_kept_model_takes_bytes_and_tables_as_partition_did(tmp_path):
    table = pd.DataFrame(X, columns=[*"abcdef"]).assign(f=X[:, 5] > 0)
    result = quiet(cut(table), flat())
    predict = result.client_model(0)
    assert torch.equal(predict(table[:3]), predict(table[:3].to_numpy("f4")))
    expected, other_order = predict(table[:3]), table[[*"fbdaec"]][:3]
    assert torch.equal(predict(other_order), expected)  # by name
    result.save(tmp_path / "kept", clients=[0])
    kept = fedlib.load(tmp_path / "kept").client_model(0)
    torch.testing.assert_close(kept(other_order), expected)
    assert torch.equal(predict(table[:3].set_axis(range(6), axis=1)), expected)  # by position
    odd = {"'a', 'g'": table.rename(columns={"a": "g"}), "'g'": table.assign(g=1)}
    for names, other in odd.items():
        with pytest.raises(ConfigError, match=rf"the columns \[{names}\] are in one alone"):
            predict(other[:3])
    with pytest.raises(ConfigError, match="inputs and the federation: several columns have the"):
        predict(table[[*"aabcdef"]][:3])
    numbered = table.set_axis([1, 0, *range(2, 6)], axis=1)
    by_number = quiet(cut(numbered), flat()).client_model(0)
    assert torch.equal(by_number(numbered[[*range(6)]][:3]), expected)
    whole = (X[:, :6] * 20 + 100).astype(np.uint8)
    assert quiet(cut(whole), flat()).client_model(0)(whole[:3]).shape == (3, 3)


def test_kept_results_share_their_threads_and_a_fork_has_its_own():
    before = threading.active_count()
    kept = [executors.Workers(2) for _ in range(5)]
    for workers in kept:
        workers.visit(lambda number: None, range(4))
    assert threading.active_count() <= before + 2
    child = os.fork()
    if not child:
        executors.Workers(2).visit(lambda number: None, range(4))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_data_sets_of_unlike_inputs_and_unlike_clients_are_refused_and_fractions_are_whole():
    ragged = [(np.zeros((1, n, 4), "f4"), n % 2) for n in (4, 5, 4, 4, 4)]
    with pytest.raises(ConfigError, match="data of client 0: inputs must all have one shape"):
        fedlib.Federation.from_datasets([ragged])
    ten = [(np.full(3, n, "f4"), n % 2) for n in range(10)]
    clients = fedlib.Federation.from_datasets([ten, ten], test_fraction=0.9)
    assert (clients.train.sizes.tolist(), clients.test.sizes.tolist()) == ([1, 1], [9, 9])
    with pytest.raises(ConfigError, match="unseen must be some of the clients 0 to 1"):
        fedlib.Federation.from_datasets([ten, ten], unseen=[[1]])
    Own = type("Own", (torch.utils.data.DataLoader,), {})
    assert len(fedlib.Federation.from_datasets([Own(ten, batch_size=3)] * 2).x) == 20
    with pytest.raises(ConfigError, match="data of client 0: a loader with drop_last loses"):
        fedlib.Federation.from_datasets([Own(ten, batch_size=3, drop_last=True)] * 2)


def test_a_resumed_run_tells_the_loss_of_the_last_round_with_training(tmp_path):
    told = [[], []]
    for heard, last in zip(told, (3, 9), strict=True):
        call = lambda e: heard.append(e.train_loss) or e.round == last  # noqa: B023, E731
        quiet(cut(), flat(), Rests, rounds=4, checkpoint=tmp_path / "run", callbacks=[call])
    assert told[1][:4] == told[0] and told[0][0] is None and told[0][1] == told[0][2]


def test_a_checkpoint_knows_functions_by_what_they_compute_in_any_process():
    assert following._meaning(torch.zeros_like) == "zeros_like"  # its repr has an address
    less, much = (lambda x: x * 0.9), (lambda x: x * 0.1)
    assert following._text(less) == following._text(lambda x: x * 0.9) != following._text(much)


class Embedded(nn.Module):
    """A classifier of five tokens, whose embedding, buffers and first layer can be odd."""

    def __init__(self, odd: str = "", **embedding: Any):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 4, **embedding), nn.Linear(20, 3)
        if odd == "hook":
            self.embed.weight.register_hook(torch.zeros_like)
        if odd == "complex":
            self.register_buffer("turns", torch.ones(4, dtype=torch.complex64))
        if odd == "weights":
            self.turn = nn.Parameter(torch.ones(4, dtype=torch.complex64))

    def forward(self, x):
        self.cache = self.embed(x).flatten(1)
        return self.head(self.cache)


TOKENS = np.arange(400).reshape(80, 5) % 20


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: Embedded("hook"), "its weights have hooks on gradients, which copies lose"),
        (Embedded("hook"), "its weights have hooks on gradients, which copies lose"),
        (lambda: Embedded(max_norm=1.0), "embed must have neither max_norm, which changes weights"),
        (lambda: Embedded(sparse=True), "embed must have neither max_norm, .* nor sparse grad"),
        (lambda: Embedded("complex"), "turns is complex; keep torch.view_as_real of it"),
        (lambda: Embedded("weights"), "weights of torch.complex64; give torch.view_as_complex"),
        (lambda: nn.utils.weight_norm(nn.Linear(5, 3)), "it keeps an output, as weight_norm does"),
        (lambda: Embedded(_weight=torch.full((20, 4), torch.nan)), "model gives NaN before its"),
        (nn.Linear(5, 3, device="meta"), "cannot be made: .* Cannot copy out of meta tensor"),
        (nn.Sequential(nn.SyncBatchNorm(5), nn.Linear(5, 3)), "model: 0 joins several processes"),
    ],
)
def test_what_the_engine_would_train_otherwise_is_refused_with_a_remedy(model, message):
    with pytest.raises(ConfigError, match=message):
        quiet(cut(TOKENS), model)


def test_a_module_that_keeps_an_earlier_output_is_refused_by_its_name():
    model = Embedded()
    model(torch.from_numpy(TOKENS[:2]))
    told = "model cannot be made: it keeps an output, .* in cache: keep x.detach"
    with pytest.raises(ConfigError, match=told):
        quiet(cut(TOKENS), model)


def test_operations_that_read_values_without_saying_so_are_not_traced():
    class Split(Embedded):
        def forward(self, x):
            ends = (x > 0).sum(1).max()[None]
            first, _ = torch.tensor_split(self.embed(x), ends, dim=1)
            return self.head(nn.functional.pad(first.flatten(1), (0, 20))[:, :20])

    given = cut(TOKENS * (TOKENS > 9)), Split
    loop, traced = (quiet(*given, executor=x, rounds=2) for x in ("loop", "traced"))
    assert_close(loop.state, traced.state, 0)
    [told] = traced.simulation.executor.notes["not_traced"]
    assert told == "Tensor.tensor_split gives numbers to other code"
