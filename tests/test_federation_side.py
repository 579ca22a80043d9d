"""Side information of examples and true clusters of clients, which most federations lack."""

import dataclasses
import hashlib

import h5py
import numpy as np
import pytest
from support import toy_federation

from fedlib.errors import DataError
from fedlib.federation import Federation

SIZES = (7, 12, 6, 10)
ROWS = ("rows", "offsets")


@pytest.fixture
def plain() -> Federation:
    return toy_federation(SIZES)


@pytest.fixture
def full(plain) -> Federation:
    side = np.arange(len(plain.x)) % 8
    return dataclasses.replace(plain, side=side, cluster=np.array([0, 3, 3, 1]))


def save(federation, folder):
    paths = folder / "a.h5", folder / "a.json"
    federation.save(*paths)
    return paths


def test_both_come_back_from_disk_as_they_were(full, tmp_path):
    loaded = Federation.load(*save(full, tmp_path))
    assert np.array_equal(loaded.side, full.side) and loaded.side.dtype == np.int64
    assert loaded.cluster.tolist() == [0, 3, 3, 1]
    assert loaded.digests == full.digests


def test_each_may_be_there_without_the_other(plain, full, tmp_path):
    loaded = Federation.load(*save(dataclasses.replace(plain, side=full.side), tmp_path))
    assert loaded.cluster is None and np.array_equal(loaded.side, full.side)
    loaded = Federation.load(*save(dataclasses.replace(plain, cluster=full.cluster), tmp_path))
    assert loaded.side is None and np.array_equal(loaded.cluster, full.cluster)


def test_a_federation_without_them_has_the_file_that_it_always_had(plain, tmp_path):
    shards, manifest = save(plain, tmp_path)
    splits = {f"{name}/{array}" for name in ("train", "val", "test") for array in ROWS}
    with h5py.File(shards) as file:
        found = []
        file.visititems(lambda name, item: found.append(name) if hasattr(item, "dtype") else None)
        assert set(found) == {"x", "y", "group", "client_id"} | splits
    assert set(plain.digests) == set(found)
    assert "side" not in manifest.read_text() and "cluster" not in manifest.read_text()
    loaded = Federation.load(shards, manifest)
    assert loaded.side is None and loaded.cluster is None


def test_their_digests_are_those_of_their_content_and_change_no_other(plain, full):
    assert {name: full.digests[name] for name in plain.digests} == plain.digests
    assert set(full.digests) - set(plain.digests) == {"side", "cluster"}
    content = b"<i8(4,)" + np.array([0, 3, 3, 1], "<i8").tobytes()
    assert full.digests["cluster"] == hashlib.sha256(content).hexdigest()


def test_a_shard_file_that_lost_them_does_not_match_its_manifest(full, tmp_path):
    shards, manifest = save(full, tmp_path)
    with h5py.File(shards, "r+") as file:
        del file["side"], file["cluster"]
    with pytest.raises(DataError, match="does not match its manifest: cluster, side differ"):
        Federation.load(shards, manifest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"side": np.arange(3)}, r"side must be an int64 for each of the 51 inputs, got int64 of"),
        ({"side": np.zeros(51)}, "side must be an int64 for each .* got float64 of shape"),
        ({"side": np.full(51, -1)}, "side must not be negative, got -1"),
        ({"cluster": np.zeros(5, int)}, r"cluster must be .* of the 4 clients, got .* \(5,\)"),
        ({"cluster": np.array([0, 1, -2, 0])}, "cluster must not be negative, got -2"),
    ],
)
def test_numbers_that_fit_nothing_are_refused(plain, change, message):
    assert len(plain.x) == sum(SIZES) + 4 * len(SIZES) == 51
    with pytest.raises(DataError, match=message):
        dataclasses.replace(plain, **change)
