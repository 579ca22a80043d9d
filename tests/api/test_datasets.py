"""Federations of data sets that clients already have."""

from collections import UserDict

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import fedlib
from fedlib.errors import ConfigError, DataError

X = np.arange(48).reshape(12, 4).astype(np.float32)
Y = np.arange(12) % 2
PARTS = (slice(0, 6), slice(6, 12))


class Pairs(Dataset):
    """Pairs without an end for loops, as PyTorch allows."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i % len(self.x)], int(self.y[i % len(self.y)])


class Stream(IterableDataset):
    def __init__(self, x, y):
        self.pairs = [*zip(x, y, strict=True)]

    def __iter__(self):
        return iter(self.pairs)


def tensors(x, y):
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


lists = lambda pairs: ([x for x, _ in pairs], torch.stack([y for _, y in pairs]))  # noqa: E731
KINDS = {
    "pairs": Pairs,
    "stream": Stream,
    "tensors": tensors,
    "loader": lambda x, y: DataLoader(tensors(x, y), batch_size=4),
    "loader of single pairs": lambda x, y: DataLoader(tensors(x, y), batch_size=None),
    "lists": lambda x, y: DataLoader(tensors(x, y), 4, collate_fn=lambda b: [*zip(*b, strict=1)]),
    "lists with labels in one": lambda x, y: DataLoader(tensors(x, y), 5, collate_fn=lists),
}
GIVEN = [tensors(X[part], Y[part]) for part in PARTS]


@pytest.mark.parametrize("kind", KINDS)
def test_data_sets_of_pytorch_become_a_federation(kind):
    given = [KINDS[kind](X[part], Y[part]) for part in PARTS]
    pairs = [(X[part], Y[part]) for part in PARTS]
    expected = fedlib.Federation.from_arrays(pairs, pairs)
    assert fedlib.Federation.from_datasets(given, given).digests == expected.digests


def test_without_a_test_part_a_fraction_of_each_client_tests():
    made = fedlib.Federation.from_datasets(GIVEN, test_fraction=1 / 3, unseen=[1])
    assert made.train.sizes.tolist() == [4, 4] and made.test.sizes.tolist() == [2, 2]
    assert len(made.ids("unseen")) == 1
    assert {*made.x[:, 0].tolist()} == {*X[:, 0].tolist()}


def test_a_loader_that_gives_examples_twice_is_refused():
    drawn = DataLoader(tensors(X, Y), sampler=torch.utils.data.RandomSampler(Y, replacement=True))
    with pytest.raises(ConfigError, match="client 1: a loader that draws with replacement"):
        fedlib.Federation.from_datasets([DataLoader(tensors(X, Y), shuffle=True), drawn])


class Columns(UserDict):
    """What is asked of a data set of Hugging Face."""

    column_names = ("image", "label")

    def with_format(self, kind):
        return self


def test_columns_of_hugging_face_are_read_and_channels_come_first():
    images = np.arange(12 * 75).reshape(12, 5, 5, 3)
    given = [Columns(image=images[part], label=Y[part]) for part in PARTS]
    made = fedlib.Federation.from_datasets(given, given)
    assert np.array_equal(made.x[made.train.of(1)], images[PARTS[1]].transpose(0, 3, 1, 2))
    with pytest.raises(ConfigError, match="no column 'img'"):
        fedlib.Federation.from_datasets(given, x="img")


IMPOSSIBLE = {r"test_fraction must be in \[0, 1\), got 1.5": {"test_fraction": 1.5}}
IMPOSSIBLE |= {"test_fraction must be a finite number, got 'a'": {"test_fraction": "a"}}
IMPOSSIBLE |= {"seed must be in .*, got -1": {"seed": -1}}
IMPOSSIBLE |= {"client 0: none of 6 examples tests at test_fraction 0;": {"test_fraction": 0}}
IMPOSSIBLE |= {"client 0: none of 6 examples trains at test_fraction 0.9": {"test_fraction": 0.9}}


@pytest.mark.parametrize("told", IMPOSSIBLE)
def test_a_draw_that_cannot_be_is_refused(told):
    with pytest.raises(ConfigError, match=told):
        fedlib.Federation.from_datasets(GIVEN, **IMPOSSIBLE[told])


@pytest.mark.parametrize("shape", [(16, 4, 4), (22, 30, 1)])
def test_maps_of_features_and_signals_are_no_images_with_channels_last(shape):
    maps = np.zeros((12, *shape), np.float32)
    given = [Columns(image=maps[part], label=Y[part]) for part in PARTS]
    with pytest.raises(DataError, match=rf"channels come first .* \[\d+, {str(shape)[1:-1]}\]"):
        fedlib.Federation.from_datasets(given, given)


ODD = {"number": 3, "array": X, "word": "abc", "list": [1, 2, 3], "dicts": [{"x": X[0], "y": 1}]}
ODD |= {"frame": pd.DataFrame(X), "of bfloat16": [(torch.ones(2).bfloat16(), 0)]}
TWO = [((X[0], X[1]), 0), ((X[2], X[3]), 1)]  # of which PyTorch's batches have two arrays, too
ODD |= {"two inputs": TWO, "batches of two inputs": DataLoader(TWO, batch_size=2)}


@pytest.mark.parametrize("odd", ODD)
def test_what_gives_no_pairs_is_refused(odd):
    told = ": an input must be one" if "inputs" in odd else " (must be a data set or|cannot become)"
    with pytest.raises(ConfigError, match="data of client 0" + told):
        fedlib.Federation.from_datasets([ODD[odd]])
    with pytest.raises(DataError, match="data of client 0 is empty"):
        fedlib.Federation.from_datasets([[]])


def test_the_error_of_a_data_set_is_told():
    with pytest.raises(ConfigError, match="got DataLoader: invalid literal .*'cut short'"):
        fedlib.Federation.from_datasets([DataLoader(X, collate_fn=lambda _: int("cut short"))])


def test_one_data_set_is_no_list_of_them():
    for given in ((ODD["array"], None), ([[(X[0], 1)]], 3)):
        with pytest.raises(ConfigError, match="must be a list, a data set for each client, got"):
            fedlib.Federation.from_datasets(*given)
