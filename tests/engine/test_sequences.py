"""Labels in sequences: losses, mixtures, scores and the LSTM, the same in both executors."""

import numpy as np
import pytest
import torch
from support import clients_with, cohort_of, executors, sgd
from torch import nn
from torch.func import functional_call

from fedlib import methods
from fedlib.engine import ambient
from fedlib.engine.experts import expert_seed, mixture_log_probs
from fedlib.engine.task import Batch, Task, nll
from fedlib.federation import Federation
from fedlib.models import char_lstm
from fedlib.models.char_lstm import LSTM
from fedlib.run import scoring

LETTERS, LENGTH = 7, 5
WEIGHTS = torch.arange(1.0, LETTERS + 1, dtype=torch.float64)
SIZES = (5, 3, 6)  # training examples; batches of 4 need padding

# Float64 keeps 16 digits; a few hundred operations in another order cost three or four.
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def lstm_task(**options) -> Task:
    def build():
        return char_lstm.build(LETTERS, embedding=3, hidden=4, num_layers=2)

    return Task(build, dtype=torch.float64, **options)


def text_federation() -> Federation:
    """Clients with windows of made-up texts: bytes, as the Shakespeare data set has them."""
    ends = np.cumsum([n + 2 for n in SIZES])  # two examples of each to test on
    text = np.random.default_rng(0).integers(0, LETTERS, (ends[-1], LENGTH + 1)).astype(np.uint8)
    owned = [(r[:-2], r[-2:]) for r in np.split(np.arange(ends[-1]), ends[:-1])]
    return clients_with(text[:, :-1], text[:, 1:], owned, LETTERS)


def log_probs_of(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).log_softmax(-1)


def labels_of(*shape: int) -> torch.Tensor:
    return torch.randint(0, LETTERS, shape, generator=torch.Generator().manual_seed(1))


# -- losses -------------------------------------------------------------------------------


def test_the_loss_of_a_sequence_is_the_mean_over_its_labels():
    log_probs, y = log_probs_of(2, 3, LETTERS), labels_of(2, 3)
    expected = [-sum(log_probs[i, t, y[i, t]].item() for t in range(3)) / 3 for i in range(2)]
    torch.testing.assert_close(nll(log_probs, y).tolist(), expected, **CLOSE)
    assert torch.equal(nll(log_probs, y.to(torch.uint8)), nll(log_probs, y))


@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_class_weights_multiply_the_losses_and_are_not_divided_out(shape):
    log_probs, y = log_probs_of(*shape, LETTERS), labels_of(*shape)
    flat = log_probs.reshape(-1, LETTERS), y.reshape(-1)
    expected = nn.functional.nll_loss(*flat, weight=WEIGHTS, reduction="none").reshape(4, -1)
    torch.testing.assert_close(nll(log_probs, y, WEIGHTS), expected.mean(1), **CLOSE)


@pytest.mark.parametrize("per_example", [False, True])
def test_a_mixture_of_sequences_is_mixed_label_by_label(per_example):
    log_probs = log_probs_of(4, 2, 3, LETTERS)
    pi = torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5], [0.7, 0.3]], dtype=torch.float64)
    mixed = mixture_log_probs((pi if per_example else pi[0]).log(), log_probs)
    assert mixed.shape == (4, 3, LETTERS)
    for i in range(4):
        own = pi[i] if per_example else pi[0]
        expected = own[0] * log_probs[i, 0].exp() + own[1] * log_probs[i, 1].exp()
        torch.testing.assert_close(mixed[i].exp(), expected, **CLOSE)


def test_a_task_trains_with_class_weights():
    weighted, plain = lstm_task(class_weights=WEIGHTS.float()), lstm_task()
    x = torch.from_numpy(text_federation().x[:3].astype(np.float64))
    batch = Batch(x, labels_of(3, LENGTH), torch.arange(3))
    params = plain.init(0)
    log_probs = plain.log_probs(params, batch)
    assert log_probs.shape == (3, LENGTH, LETTERS)
    expected = nll(log_probs, batch.y, WEIGHTS).mean()
    torch.testing.assert_close(weighted.loss(params, batch), expected, **CLOSE)
    torch.testing.assert_close(plain.loss(params, batch), nll(log_probs, batch.y).mean(), **CLOSE)


# -- scores -------------------------------------------------------------------------------


@executors
@pytest.mark.parametrize(("name", "params"), [("fedavg", {}), ("fedem", {"num_experts": 2})])
def test_scores_count_labels_and_know_nothing_of_class_weights(name, params, executor):
    task, federation = lstm_task(class_weights=WEIGHTS), text_federation()
    method = methods.load(name)(task=task, local=sgd(), **params)
    state = method.init(len(SIZES), 0)
    cohort = cohort_of(task, federation, executor=executor)
    scores = scoring.score(method, method.personalise(state, cohort), cohort, "test")
    models = [task.init(expert_seed(0, e)) for e in range(params.get("num_experts", 1))]
    assert scores.count.tolist() == [2 * LENGTH] * len(SIZES)
    for client in range(len(SIZES)):
        rows = federation.test.of(client)
        x, y = (torch.from_numpy(a[rows].astype(np.int64)) for a in (federation.x, federation.y))
        module = task.build().double()
        probs = [functional_call(module, model, (x,)).softmax(-1) for model in models]
        mixed = torch.stack(probs).mean(0)
        assert scores.correct[client] == (mixed.argmax(-1) == y).sum()
        expected = nn.functional.nll_loss(mixed.log().flatten(0, 1), y.flatten()).item()
        assert scores.loss[client] == pytest.approx(expected, rel=1e-12)


# -- the LSTM -----------------------------------------------------------------------------


def test_the_lstm_has_the_names_values_and_outputs_of_torchs():
    torch.manual_seed(0)
    ours = LSTM(3, 4, 2)
    torch.manual_seed(0)
    published = nn.LSTM(3, 4, 2, batch_first=True)
    mine, theirs = ours.state_dict(), published.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    x = log_probs_of(6, LENGTH, 3).float()
    assert torch.equal(ours(x), published(x)[0])


def test_the_spelled_out_lstm_is_the_fused_one():
    module, x = LSTM(3, 4, 2).double(), log_probs_of(6, LENGTH, 3)
    fused = module(x)
    with ambient.stack_experts(True):
        spelled_out = module(x)
    torch.testing.assert_close(spelled_out, fused, **CLOSE)
    parameters = list(module.parameters())
    grads = [torch.autograd.grad(y.square().sum(), parameters) for y in (fused, spelled_out)]
    torch.testing.assert_close(*grads, **CLOSE)
