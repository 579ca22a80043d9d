"""Whom pFedMM's runs train on, and that published numbers stand beside what they were printed for.

Populations are those of section 3.2, golden values those of section 8.1.
"""

import numpy as np
import pytest
from data_fixtures import REAL_RAW, needs

from fedlib.data.build import build
from fedlib.data.examples import Examples
from fedlib.data.partitions import parse
from fedlib.papers import load


def declare(scale):
    return load("pfedmm").declare(scale)


def cut_as_declared(federation, num_examples, num_classes):
    """The federation of scale full, of made-up examples with as many of every class."""
    declared = declare("full").federation(federation)
    labels = np.repeat(np.arange(num_classes), num_examples // num_classes)
    examples = Examples(np.zeros((len(labels), 1), np.float32), labels, num_classes)
    return parse(declared.partition).deal(examples, declared.seed).federation()


def test_the_main_table_of_cifar10_trains_80_clients_on_349_batches():
    made = cut_as_declared("cifar10", 60_000, 10)
    assert len(made.ids("seen")) == made.num_clients == 80
    sizes = made.train.sizes
    assert (sizes.sum(), made.test.sizes.sum()) == (47_965, 12_035)
    # Batches of 128; the last, smaller one is left out unless it is the only one.
    assert sum(max(1, size // 128) for size in sizes) == 349


def test_every_client_of_emnist_and_cifar100_is_seen():
    assert len(cut_as_declared("emnist", 62 * 2_000, 62).ids("seen")) == 100
    partition = declare("full").federation("cifar100").partition
    assert partition["num_clients"] == 100
    assert "unseen_fraction" not in partition


@pytest.mark.slow
@needs("cifar10")
def test_cifar10_itself_is_cut_as_its_counts_say():
    declared = declare("full").federation("cifar10")
    built = build(declared.spec(), REAL_RAW)
    made = cut_as_declared("cifar10", 60_000, 10)
    assert built.train.sizes.tolist() == made.train.sizes.tolist()
    assert built.test.sizes.tolist() == made.test.sizes.tolist()
    assert len(built.ids("unseen")) == 0


@pytest.mark.slow
@needs("emnist", "test")
def test_emnist_at_scale_reduced_trains_all_clients_on_all_images():
    paper = declare("reduced")
    built = build(paper.federation("emnist").spec(), REAL_RAW)
    assert len(built.ids("seen")) == built.num_clients == 100
    # floor(0.8 n) of every client is for training.
    assert built.train.sizes.sum() + built.test.sizes.sum() == 81_425
    apart = build(paper.federation("emnist-unseen").spec(), REAL_RAW)
    assert (len(apart.ids("seen")), len(apart.ids("unseen"))) == (80, 20)
    assert apart.train.sizes.tolist() == built.train.sizes.tolist()
