"""What a cohort tells of its clients' labels and side information, and partial sends."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import cohort_of, tiny_task, toy_federation

from fedlib.errors import DataError
from fedlib.federation import Split

TASK = tiny_task()


def with_side(federation):
    return replace(federation, side=np.arange(len(federation.y)) % 4)


@pytest.mark.parametrize(("of", "num"), [("label", 3), ("side", 4), ("label", 5)])
def test_shares_are_counted_on_the_training_split(of, num):
    federation = with_side(toy_federation())
    values = federation.y if of == "label" else federation.side
    found = cohort_of(TASK, federation, [2, 0]).shares(of, num)
    assert found.dtype == torch.float64
    for row, client in zip(found, (2, 0), strict=True):
        rows = federation.train.of(client)
        expected = [(values[rows] == c).sum() / len(rows) for c in range(num)]
        torch.testing.assert_close(row, torch.tensor(expected, dtype=torch.float64))


def test_shares_have_the_type_of_the_model():
    task = tiny_task(dtype=torch.float32)
    assert cohort_of(task, toy_federation()).shares("label", 3).dtype == torch.float32


def test_a_client_without_training_examples_is_taken_to_be_uniform():
    federation = toy_federation()
    owned = [federation.train.of(client) for client in range(3)]
    federation = replace(federation, train=Split.from_lists([*owned, []]))
    found = cohort_of(TASK, federation, [3]).shares("label", 3)
    torch.testing.assert_close(found, torch.full((1, 3), 1 / 3, dtype=torch.float64))


def test_values_out_of_range_are_refused():
    federation = with_side(toy_federation())
    with pytest.raises(DataError, match="side must be below 3, got 3"):
        cohort_of(TASK, federation).shares("side", 3)


def test_what_there_is_not_is_refused():
    federation = toy_federation()
    for ask in (lambda c: c.shares("side", 3), lambda c: c.side()):
        with pytest.raises(DataError, match="no side information"):
            ask(cohort_of(TASK, federation))
    with pytest.raises(ValueError, match="of must be 'label' or 'side', got 'angle'"):
        cohort_of(TASK, federation).shares("angle", 3)
    sequences = replace(federation, y=np.stack([federation.y, federation.y], axis=1))
    with pytest.raises(DataError, match=r"one number for each example, got shape \(\d+, 2\)"):
        cohort_of(TASK, sequences).shares("label", 3)


def test_side_information_is_in_shard_order():
    federation = with_side(toy_federation())
    found = cohort_of(TASK, federation, [1, 2]).side()  # of 12 and 6 examples
    assert found.shape == (2, 12)
    assert found[0].tolist() == federation.side[federation.train.of(1)].tolist()
    assert found[1].tolist() == federation.side[federation.train.of(2)].tolist() + [0] * 6


def test_the_seen_clients_of_any_cohort():
    federation = toy_federation()
    seen = cohort_of(TASK, federation, [3]).seen()
    assert seen.ids.tolist() == seen.host_ids.tolist() == [0, 1, 2]
    assert seen.num_examples.tolist() == [7, 12, 6]


def test_partial_sends_count_the_mean_over_clients():
    cohort = cohort_of(TASK, toy_federation())
    experts = {"w": torch.randn(2, 5), "b": torch.randn(2)}  # 6 numbers each
    chosen = torch.tensor([[True, True], [False, True], [False, True]])
    received = cohort.broadcast_some(experts, chosen)
    assert received["w"].shape == (3, 2, 5)
    assert cohort.journal.down == pytest.approx((12 + 6 + 6) / 3)
    assert cohort.collect_some(received, chosen) is received
    assert cohort.journal.up == pytest.approx(8)


def test_sending_everything_counts_everything():
    cohort = cohort_of(TASK, toy_federation())
    experts = {"w": torch.randn(2, 5)}
    cohort.collect_some(cohort.broadcast_some(experts, None), None)
    assert (cohort.journal.down, cohort.journal.up) == (10, 10)
