"""What a run tells while it goes on, how it is ended and resumed, and what is kept of it."""

import contextlib
import signal
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import fedlib
from fedlib.api.callbacks import Evaluation
from fedlib.errors import ConfigError, DataError
from fedlib.methods.fedavg import FedAvg

X, Y = load_digits(return_X_y=True)
X, Y = (X / 16)[:300].astype(np.float32), Y[:300]
CUT = {"num_clients": 4, "alpha": 0.5, "val_fraction": 0.2, "unseen_fraction": 0.25, "seed": 3}
ROUNDS = 5


def simulate(method="fedavg", width=6, federation=None, dropout=0.0, **changes):
    """A small run, always with the same model."""
    torch.manual_seed(0)
    layers = [nn.Linear(64, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 10)]
    model = changes.pop("model", nn.Sequential(*layers))
    local = fedlib.SGD(lr=0.2, batch_size=16, momentum=0.5)
    settings = {"rounds": ROUNDS, "local": local, "progress": None}
    federation = federation or fedlib.partition(X, Y, "dirichlet", **CUT)
    return fedlib.simulate(federation, model, method, **settings | changes)


def same(one, other):
    """Whether two results have the same scores and states, bit for bit."""
    frames = [(x.accuracy(), x.accuracy(split="val"), x.pooled_accuracy()) for x in (one, other)]
    tensors = [torch.cat([t.ravel() for t in x.client_model(1).buffers()]) for x in (one, other)]
    return all(a.equals(b) for a, b in zip(*frames, strict=True)) and torch.equal(*tensors)


def test_an_evaluation_tells_what_the_result_has():
    told = []
    result = simulate("fedem", num_experts=2, evaluate_every=2, callbacks=[told.append])
    assert [e.round for e in told] == [0, 2, 4, 5] == result.history.round.tolist()
    assert told[0].train_loss is None and {e.rounds for e in told} == {ROUNDS}
    for row, evaluation in enumerate(told):
        for view in result.history.scores:
            expected = result.accuracy(*view).iloc[row]
            assert evaluation.accuracy(*view).equals(expected.rename("accuracy"))
            assert evaluation.pooled_accuracy(*view) == result.pooled_accuracy(*view).iloc[row]
        numbers = evaluation.numbers()  # for a logger
        for name in ("bytes_down", "bytes_up"):
            assert numbers[name] == getattr(result.history, name)[row]
        assert numbers["accuracy/seen/default/test"] == result.pooled_accuracy().iloc[row]
    assert [e.train_loss for e in told[1:]] == result.history.train_loss[[1, 3, 4]].tolist()
    with pytest.raises(ConfigError, match="seen/default/train.*there are seen/default/val"):
        told[0].accuracy(split="train")


def test_names_are_listed_once_for_an_evaluation_and_not_for_each_client(monkeypatch):
    read, names = [], fedlib.Federation.called.fget
    monkeypatch.setattr(fedlib.Federation, "called", property(lambda x: read.append(x) or names(x)))
    result = simulate(rounds=2, callbacks=[lambda e: None])
    assert len(read) == 1 + len(result.history.round)
    assert result._clients is result._clients  # which `save` asks for every client


@pytest.mark.parametrize("every", [1, 2])
def test_a_callback_ends_the_run_after_its_round(every):
    callbacks = [lambda e: None, lambda e: np.bool_(e.round >= 2)]  # as of comparisons of NumPy
    result = simulate(evaluate_every=every, callbacks=callbacks)
    assert result.history.round.tolist() == [*range(0, 3, every)]
    assert same(result, simulate(rounds=2, evaluate_every=every))


def test_early_stopping_counts_evaluations_without_a_rise():
    values, stop = [0.1, 0.3, 0.2, 0.3, 0.4, 0.4, 0.4], fedlib.callbacks.EarlyStopping(patience=2)
    view = ("seen", "default", "val")
    told = [Evaluation(i, 9, None, 0, 0, {}, {view: v}) for i, v in enumerate(values)]
    for _ in range(2):  # runs
        assert [*map(stop, told)] == [False, False, False, True, False, False, True]
    with pytest.raises(ConfigError, match="patience must be"):
        fedlib.callbacks.EarlyStopping(patience=0)


@pytest.mark.parametrize("odd", [fedlib.callbacks.EarlyStopping, 3, "print"])
def test_what_is_no_callback_is_refused_before_the_run(odd):
    with pytest.raises(ConfigError, match="callbacks must be functions"):
        simulate(callbacks=[odd])
    with pytest.raises(ConfigError, match="callbacks must be a list"):
        simulate(callbacks=print)


# -- checkpoints --------------------------------------------------------------------------


def test_a_run_goes_on_with_the_same_bits(tmp_path):
    more = {"method": "fedem", "num_experts": 2, "rate": 0.7, "evaluate_every": 2}
    folder, told = tmp_path / "new/run", []
    simulate(checkpoint=folder, callbacks=[lambda e: e.round == 2], **more)
    lines: list[str] = []
    resumed = simulate(checkpoint=folder, callbacks=[told.append], progress=lines.append, **more)
    assert lines[0] == "resuming after round 2"
    assert [e.round for e in told] == [0, 2, 4, 5]  # those before the checkpoint, too
    assert not [*folder.glob("*.*")]
    assert same(resumed, simulate(**more))


@pytest.mark.parametrize(
    ("odd", "changes"),
    [
        ("initial weights", {"width": 7}),
        ("model", {"dropout": 0.3}),
        ("settings", {"rate": 0.5}),
        ("class weights", {"class_weights": np.arange(1.0, 1 + len(np.unique(Y)))}),
        ("federation", {"federation": fedlib.partition(X, Y, "dirichlet", **CUT | {"seed": 4})}),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(tmp_path, odd, changes):
    simulate(checkpoint=tmp_path, callbacks=[lambda e: e.round == 2])
    with pytest.raises(ConfigError, match=f"a run that differs in .*{odd}"):
        simulate(checkpoint=tmp_path, **changes)


def own(factor, setting, **places):
    """A method with a factor in a cell; or in its class, a property, a default or a function."""

    found, default = places.get("helper", 1), places.get("default", 1)

    class Table:
        entry = places.get("table", 1)

    def helper():
        return found * Table.entry

    @dataclass(frozen=True, kw_only=True)
    class Own(FedAvg):
        value: Any = None
        FACTOR: ClassVar = places.get("class", 1)

        def __post_init__(self, scale=default):
            FedAvg.__post_init__(self)

        @property
        def scale(self):
            return helper()

        def round(self, state, cohort):
            after = FedAvg.round(self, state, cohort)
            return after._replace(params={x: factor * y for x, y in after.params.items()})

    return {"method": Own, "value": setting}


def test_the_checkpoint_of_another_method_of_that_name_or_of_another_setting_is_refused(tmp_path):
    long = np.arange(2000.0)
    for kept in (long, np.mean):
        folder = tmp_path / str(id(kept))
        simulate(checkpoint=folder, callbacks=[lambda e: e.round == 2], **own(0.9, kept))
    for odd, changes in (
        ("code", own(0.8, long)),
        ("code", own(0.9, long, **{"class": 2})),
        ("code", own(0.9, long, default=2)),
        ("code", own(0.9, long, helper=2)),
        ("code", own(0.9, long, table=2)),
        ("settings", own(0.9, np.where(long == 1000, -1, long))),
    ):
        with pytest.raises(ConfigError, match=f"a run that differs in {odd}"):
            simulate(checkpoint=tmp_path / str(id(long)), **changes)
    for kept in (long, np.mean):
        simulate(checkpoint=tmp_path / str(id(kept)), **own(0.9, kept))


def moving(factor, plus=0):
    """A module that shifts its inputs in training, and a solver with a factor in its code."""

    class Moved(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.factor = nn.Linear(64, 10), factor

        def forward(self, x):
            return self.linear(self.factor * x + plus if self.training else x)

    class Own(fedlib.SGD):
        def step_(self, params, grads, buffers, lr, scale):
            super().step_(params, grads, buffers, lr / factor, scale)

    return Moved, Own(lr=0.1)


def test_the_checkpoint_of_a_run_that_only_trains_otherwise_is_refused(tmp_path):
    (model, local), (other, faster), (further, _) = moving(2), moving(3), moving(2, plus=1)
    simulate(checkpoint=tmp_path, callbacks=[lambda e: e.round == 2], model=model, local=local)
    for odd, changes in (
        ("model", {"model": other, "local": local}),
        ("code", {"model": further, "local": local}),
        ("code", {"model": model, "local": faster}),
    ):
        with pytest.raises(ConfigError, match=f"a run that differs in .*{odd}"):
            simulate(checkpoint=tmp_path, **changes)
    simulate(checkpoint=tmp_path, model=model, local=local)


def test_the_checkpoint_of_another_precision_is_refused_if_first_losses_are_the_same(tmp_path):
    model = nn.Linear(64, 10)
    for weights in model.parameters():
        nn.init.zeros_(weights)
    alike = {"checkpoint": tmp_path, "model": model, "start": "given"}
    simulate(callbacks=[lambda e: e.round == 2], **alike)
    with pytest.raises(ConfigError, match="a run that differs in precision;"):
        simulate(precision="bfloat16", **alike)
    simulate(**alike)


def test_labels_that_are_changed_in_place_are_another_federation(tmp_path):
    federation = fedlib.partition(X, Y, "dirichlet", **CUT)
    before = federation.class_histogram
    simulate(checkpoint=tmp_path, callbacks=[lambda e: e.round == 2], federation=federation)
    federation.y[federation.train.of(0)] = 3
    assert federation.class_histogram[0, 3] > before[0, 3]
    with pytest.raises(ConfigError, match="a run that differs in federation"):
        simulate(checkpoint=tmp_path, federation=federation)


def test_a_longer_checkpoint_is_not_replaced_by_a_shorter_run(tmp_path):
    simulate(checkpoint=tmp_path, callbacks=[lambda e: e.round == 2])
    with pytest.raises(ConfigError, match="round 2: rounds must be at least as many, got 1; or"):
        simulate(checkpoint=tmp_path, rounds=1)
    assert same(simulate(checkpoint=tmp_path, rounds=3), simulate(rounds=3))


def test_a_checkpoint_is_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for odd in (tmp_path / "file", True):
        with pytest.raises(ConfigError, match="checkpoint must be a folder, got"):
            simulate(checkpoint=odd)


# -- Ctrl-C -------------------------------------------------------------------------------


def press(evaluation):
    if evaluation.round == 2:
        signal.raise_signal(signal.SIGINT)


class Pressed(FedAvg):
    """Somebody presses Ctrl-C in the second round."""

    def round(self, state, cohort):
        if cohort.round == 1:
            signal.raise_signal(signal.SIGINT)
        return FedAvg.round(self, state, cohort)


def test_callbacks_hear_of_the_last_evaluation_of_a_run_that_ends_early(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    told: list[int] = []
    result = simulate(Pressed, evaluate_every=3, callbacks=[lambda e: told.append(e.round)])
    assert told == result.history.round.tolist() == [0, 2]


@pytest.mark.parametrize("notebook", [True, False])
def test_ctrl_c_ends_a_run_in_a_notebook_and_interrupts_a_script(monkeypatch, notebook):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    if not notebook:
        monkeypatch.delattr(sys, "ps1")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with contextlib.nullcontext() if notebook else pytest.raises(KeyboardInterrupt):
            assert same(simulate(callbacks=[press]), simulate(rounds=2))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# -- kept results -------------------------------------------------------------------------


@pytest.mark.slow  # torch.export takes seconds for the first model
def test_a_result_is_kept_whatever_the_number_of_threads(tmp_path, threads_of_torch):
    torch.set_num_threads(2)
    result = simulate("fedrep", rounds=1)  # which has no predictor of unseen clients
    result.save(tmp_path)
    kept, x = fedlib.load(tmp_path), X[:3]
    for client in result.accuracy():
        assert torch.equal(kept.client_model(client)(x), result.client_model(client)(x))
    with pytest.raises(ConfigError, match="no predictor of client 3"):
        kept.client_model(3)
    with pytest.raises(ConfigError, match=r"inputs must be torch.float32 of shape \[B, 64\], as"):
        kept.client_model(0)(X[:3, :9])
    shared = simulate("fedavg", rounds=1)  # by all clients: in one file
    shared.save(tmp_path / "shared")
    assert [len([*x.glob("*.pt2")]) for x in (tmp_path, tmp_path / "shared")] == [3, 1]
    kept = fedlib.load(tmp_path / "shared")
    assert torch.equal(kept.client_model(3)(x), shared.client_model(0)(x))


class ByLength(nn.Module):
    def forward(self, x):
        return x * (len(x) / len(x))


@pytest.mark.slow  # torch.export takes seconds for the first model
def test_a_model_that_cannot_be_kept_is_told_the_reason(tmp_path):
    result = simulate(model=nn.Sequential(ByLength(), nn.Linear(64, 10)), rounds=0)
    told = r"cannot follow .*specialized it to be a constant .*x.shape\[0\] and not len\(x\)"
    with pytest.raises(ConfigError, match=told):
        result.save(tmp_path / "kept")


def test_a_result_comes_back_without_code_of_the_users(tmp_path):
    result = simulate("fedem", num_experts=2)
    result.save(tmp_path / "kept", clients=np.array([2]))
    kept = fedlib.load(tmp_path / "kept")
    assert str(kept) == str(result).replace("Result", "SavedResult")
    assert kept.accuracy("unseen").equals(result.accuracy("unseen"))
    x = torch.from_numpy(X[:7])
    expected = result.client_model(2)(x)
    for inputs in (x, x.double().numpy(), x.tolist()):
        assert torch.equal(kept.client_model(2)(inputs), expected)
    whole = (X[:7] * 16).round().astype(int).tolist()
    assert torch.equal(kept.client_model(2)(whole), result.client_model(2)(whole))
    with pytest.raises(ConfigError, match=r"no predictor of client \[2\]; there are 2$"):
        kept.client_model([2])
    with pytest.raises(DataError, match="written by Result.save"):
        fedlib.open_run(tmp_path / "kept")
    with pytest.raises(ConfigError, match="no client 'two'; there are 0, 1, 2, 3"):
        result.save(tmp_path / "other", [2, "two"])  # before a minute of work
    with pytest.raises(ConfigError, match="not empty"):
        result.save(tmp_path / "kept")
    (tmp_path / "kept/0.pt2").write_bytes(b"damaged")
    with pytest.raises(DataError, match="missing or damaged"):
        kept.client_model(2)
    with pytest.raises(DataError, match="no history.h5"):
        fedlib.load(tmp_path)
