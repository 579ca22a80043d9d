"""What a cohort tells of its clients' labels and side information, and partial sends."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import cohort_of, tiny_task, toy_federation

from fedlib.errors import DataError
from fedlib.federation import Split

TASK = tiny_task()


def test_shares_have_the_type_of_the_model():
    task = tiny_task(dtype=torch.float32)
    assert cohort_of(task, toy_federation()).shares("label", 3).dtype == torch.float32


def test_a_client_without_training_examples_is_taken_to_be_uniform():
    federation = toy_federation()
    owned = [federation.train.of(client) for client in range(3)]
    federation = replace(federation, train=Split.from_lists([*owned, []]))
    found = cohort_of(TASK, federation, [3]).shares("label", 3)
    torch.testing.assert_close(found, torch.full((1, 3), 1 / 3, dtype=torch.float64))


def test_what_there_is_not_is_refused():
    federation = toy_federation()
    for ask in (lambda c: c.shares("side", 3), lambda c: c.side()):
        with pytest.raises(DataError, match="no side information"):
            ask(cohort_of(TASK, federation))
    sequences = replace(federation, y=np.stack([federation.y, federation.y], axis=1))
    with pytest.raises(DataError, match=r"one number for each example, got shape \(\d+, 2\)"):
        cohort_of(TASK, sequences).shares("label", 3)


def test_side_information_is_in_shard_order():
    federation = toy_federation()
    federation = replace(federation, side=np.arange(len(federation.y)) % 4)
    found = cohort_of(TASK, federation, [1, 2]).side()  # of 12 and 6 examples
    assert found.shape == (2, 12)
    assert found[0].tolist() == federation.side[federation.train.of(1)].tolist()
    assert found[1].tolist() == federation.side[federation.train.of(2)].tolist() + [0] * 6
