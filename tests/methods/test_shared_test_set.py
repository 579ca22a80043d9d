"""Test examples of all clients together, which a final evaluation scores only where asked to."""

import numpy as np
import pytest
import torch
from support import everybody_of, federation_for, run, sgd, tiny_task, toy_federation

from fedlib.engine.task import Batch, nll
from fedlib.methods.local import Local
from fedlib.results import SHARED, View
from fedlib.run import evaluate

VIEW = View("seen", "default", SHARED)
SIZES = (7, 12, 6, 10)


@pytest.fixture(scope="module")
def trained():
    """A method whose clients have models of their own, its state, and its cohorts by group."""
    federation, task = toy_federation(SIZES, unseen=0), tiny_task()
    method = Local(task=task, local=sgd())
    return method, run(method, federation), everybody_of(task, federation), federation


def test_every_client_is_scored_on_the_test_examples_of_all(trained):
    method, state, everybody, federation = trained
    found = evaluate.final(method, state, everybody, views=[VIEW]).scores[VIEW]
    rows = np.concatenate([federation.test.of(client) for client in range(len(SIZES))])
    x, y = (torch.from_numpy(pool[rows]) for pool in (federation.x, federation.y))
    everything = Batch(x, y, torch.from_numpy(rows))

    def judge(personal, batch):
        """Right predictions on all examples and the mean loss, whatever the batch."""
        log_probs = method.predict(personal, everything)
        right = (log_probs.argmax(-1) == y).to(log_probs.dtype).sum()
        return torch.stack([right, nll(log_probs, y).mean()]).expand(len(batch.x), 2)

    cohort = everybody("seen")
    expected = cohort.score(judge, method.personalise(state, cohort), split="test")[:, 0]
    assert found.count.tolist() == [len(rows)] * len(SIZES)
    assert found.correct[0].tolist() == expected[:, 0].tolist()
    assert found.loss[0] == pytest.approx(expected[:, 1].numpy())


def test_clients_that_are_evaluated_in_parts_have_the_same_scores(trained):
    method, state, everybody, _ = trained
    whole = evaluate.final(method, state, everybody, views=[VIEW]).scores[VIEW]
    part = everybody("seen").some(np.array([1, 3]))
    found = evaluate.score_shared(method, method.personalise(state, part), part, everybody("seen"))
    assert found.correct.tolist() == whole.correct[0, [1, 3]].tolist()


def test_without_views_all_but_the_shared_examples_are_scored_and_with_them_validation_ones_too():
    method = Local(task=tiny_task(), local=sgd())
    federation = federation_for("plain_mixture", SIZES, unseen=0)  # has a validation part

    def splits(views):
        return evaluate.choose_splits(views, method, federation, "seen")

    own = {"default": ["val", "test"]}
    assert splits(None) == {"default": ["train", "val", "test"]}
    assert splits([]) == splits([View("unseen", "default", "train")]) == own
    assert splits([VIEW]) == {"default": ["val", "test", SHARED]}
