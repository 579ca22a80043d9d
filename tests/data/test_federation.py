"""The federation: what it refuses, and that it comes back from disk as it was, or not at all."""

import dataclasses
import hashlib

import h5py
import numpy as np
import pytest
from support import toy_federation

from fedlib.data.build import build
from fedlib.errors import DataError
from fedlib.federation import Federation, Split

MADE_OF = {
    "dataset": "synthetic",
    "params": {"num_clients": 5, "dim": 4, "test_size": 30},
    "partition": {"kind": "natural", "val_fraction": 0.2},
    "seed": 12345,
}
NUM = (7 + 12 + 6 + 10) + 4 * 4  # examples of `plain`


@pytest.fixture(scope="module")
def made() -> Federation:
    return build(MADE_OF, "")


@pytest.fixture
def plain() -> Federation:
    return toy_federation((7, 12, 6, 10))


@pytest.fixture
def full(plain) -> Federation:
    """With side information of examples and true clusters of clients, which most lack."""
    return dataclasses.replace(plain, side=np.arange(NUM) % 8, cluster=np.array([0, 3, 3, 1]))


@pytest.fixture
def saved(made, tmp_path):
    return save(made, tmp_path)


def save(federation, folder):
    paths = folder / "a.h5", folder / "a.json"
    federation.save(*paths)
    return paths


def test_a_federation_comes_back_from_disk_as_it_was(made, saved, tmp_path):
    loaded = Federation.load(*saved)
    assert loaded.digests == made.digests
    assert loaded.manifest() == made.manifest()
    assert loaded.spec == MADE_OF
    before = [path.read_bytes() for path in saved]
    assert before == [path.read_bytes() for path in save(build(MADE_OF, ""), tmp_path)]


def test_a_loaded_federation_is_not_what_is_in_the_file_later(made, saved):
    loaded = Federation.load(*saved)
    assert loaded.x.flags.writeable  # PyTorch warns of arrays that are not
    before = saved[0].read_bytes()
    loaded.x[:] = 0
    assert saved[0].read_bytes() == before
    loaded, again = Federation.load(*saved), Federation.load(*saved)
    other = build({**MADE_OF, "seed": 9}, "")
    other.save(*saved)
    again.x[0] = 7
    assert loaded.digests == made.digests != other.digests


def test_every_replicate_is_cut_by_a_seed_of_its_own():
    def replicate(number, seed=0):
        return build({**MADE_OF, "seed": seed, "replicate": number}, "")

    cuts = [build({**MADE_OF, "seed": 0}, ""), *map(replicate, range(3)), replicate(0, seed=1)]
    assert len({cut.digests["x"] for cut in cuts}) == 5
    assert replicate(1).digests == cuts[2].digests
    assert replicate(1).spec["replicate"] == 1


# What is not as it was written


def test_a_shard_file_that_is_missing_truncated_or_changed_is_refused(saved, tmp_path):
    with pytest.raises(DataError, match="none.h5 does not exist; run the partition stage first"):
        Federation.load(tmp_path / "none.h5")
    with h5py.File(saved[0], "r+") as file:
        file["x"][0, 0] += 1
    with pytest.raises(DataError, match="does not match its manifest: x differ; delete it"):
        Federation.load(*saved)
    with h5py.File(saved[0], "r+") as file:
        del file["train/rows"]
    for _ in range(2):
        with pytest.raises(DataError, match=f"{saved[0]} is truncated or corrupted .* delete it"):
            Federation.load(*saved)
        saved[0].write_bytes(saved[0].read_bytes()[:-500])


def test_side_information_and_clusters_come_back(full, tmp_path):
    loaded = Federation.load(*save(full, tmp_path))
    assert loaded.digests == full.digests and {"side", "cluster"} <= {*full.digests}
    assert np.array_equal(loaded.side, full.side) and np.array_equal(loaded.cluster, full.cluster)


def test_a_digest_is_that_of_type_shape_and_content(full):
    content = b"<i8(4,)" + np.array([0, 3, 3, 1], "<i8").tobytes()
    assert full.digests["cluster"] == hashlib.sha256(content).hexdigest()


# What makes no sense


def test_a_row_of_two_splits_is_refused(made):
    test = Split(made.test.rows.copy(), made.test.offsets)
    row = test.rows[0] = made.train.rows[3]
    with pytest.raises(DataError, match=f"row {row} must have one owner and one split, got 2"):
        dataclasses.replace(made, test=test)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"side": np.arange(3)}, "side must have 51 rows of numbers from 0, got 3, from 0"),
        ({"side": np.full(51, -1)}, "side must have 51 rows .* got 51, from -1"),
        ({"cluster": np.zeros(5, int)}, "cluster must have 4 rows .* got 5"),
        ({"group": np.full(4, 4, np.uint8)}, "group must be below 4, got 4"),
    ],
)
def test_numbers_that_fit_nothing_are_refused(plain, change, message):
    assert len(plain.x) == NUM == 51
    with pytest.raises(DataError, match=message):
        dataclasses.replace(plain, **change)
