"""What is kept of a gate and its experts: bins of weights, some examples of some clients."""

import numpy as np
import torch
from support import cohort_of, tiny_task, toy_federation

from fedlib.methods.parts import recording


def test_weights_fall_into_bins_of_equal_width():
    bins = recording.in_bins(torch.tensor([0.0, 0.049, 0.05, 0.5, 1.0], dtype=torch.float64))
    assert bins.shape == (5, recording.BINS)
    assert bins.argmax(1).tolist() == [0, 0, 1, 10, 19]
    assert bins.sum(1).tolist() == [1.0] * 5


def kept(number, clients):
    """Of clients with four test examples; an example's vector is its client and its place."""
    federation = toy_federation(unseen=0)
    cohort = cohort_of(tiny_task(), federation, [2, 0, 1])
    places = np.stack(np.meshgrid([2, 0, 1], range(4), indexing="ij"), axis=-1)  # [3, 4, 2]
    vectors = torch.from_numpy(places[:, :, None].astype(float))  # one kind of two features
    return federation, recording.some_examples(vectors, cohort, number, clients)


def test_examples_stand_at_even_distances_with_their_classes():
    federation, found = kept(number=2, clients=2)
    vectors, labels = found["representations"], found["representation_labels"]
    assert vectors.shape == (3, 2, 1, 2)
    assert vectors[1, :, 0].tolist() == [[0, 0], [0, 3]]  # client 0: the first and the last
    assert labels[1].tolist() == federation.y[federation.test.of(0)[[0, 3]]].tolist()


def test_of_later_clients_nothing_is_kept():
    _, found = kept(number=2, clients=2)
    assert all(kept[0].isnan().all() for kept in found.values())
    assert not found["representations"][1:].isnan().any()


def test_a_client_with_fewer_examples_has_each_of_them_once():
    _, found = kept(number=7, clients=3)
    assert found["representations"][0, :4, 0, 1].tolist() == [0, 1, 2, 3]
    assert found["representations"][0, 4:].isnan().all()
    assert found["representation_labels"].isnan().sum(1).tolist() == [3, 3, 3]
