"""Data sets: from raw files to a federation on disk. Section numbers: pFedMM specification."""

import gzip
import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from data_fixtures import (
    NOWHERE,
    REAL_RAW,
    cifar10_batch,
    idx,
    images,
    make_up,
    make_up_cifar10,
    make_up_sent140,
    make_up_yelp,
    needs,
    put,
)
from data_fixtures import federation as federation_of

from fedlib.data import cifar_batch, downloads, partitions, sources
from fedlib.data import idx as idx_format
from fedlib.data.build import build, check
from fedlib.data.examples import FEATURES
from fedlib.data.sources import synthetic
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation, Split

ROOT = Path(__file__).resolve().parents[1]

CUT = {"num_clients": 4, "train_fraction": 0.8, "unseen_fraction": 0.25}
SYNTHETIC = {"num_clients": 5, "dim": 4, "test_size": 30}
MADE_OF = {
    "dataset": "synthetic",
    "params": SYNTHETIC,
    "partition": {"kind": "natural", "val_fraction": 0.2},
    "seed": 12345,
}
DIGITS = {"dataset": "digits", "params": {}, "partition": {"kind": "iid", **CUT}, "seed": 1}


@pytest.fixture
def federation() -> Federation:
    return build(MADE_OF, "")


@pytest.fixture
def saved(federation, tmp_path):
    paths = tmp_path / "a.h5", tmp_path / "a.json"
    federation.save(*paths)
    return paths


@pytest.fixture
def raw(tmp_path, monkeypatch) -> Path:
    """Made-up raw files of every data set that is tested here, in place of the official ones."""
    folder = tmp_path / "raw"
    for name, num, first in (("train", 60, 0), ("test", 20, 60)):
        for dataset, classes in (("mnist", 10), ("emnist", 62)):
            x, y = images(num, first, classes)
            contents = {f"{name}_images": idx(x), f"{name}_labels": idx(y)}
            make_up(monkeypatch, folder, dataset, **contents)
    make_up_cifar10(monkeypatch, folder, 20)
    tweets = [(label, f"i am {label}") for label in "04" for _ in range(60)]
    make_up_sent140(monkeypatch, folder, tweets, tweets[30:90])
    reviews = [(label, f"good {label}") for label in "12345" for _ in range(30)]
    make_up_yelp(monkeypatch, folder, reviews, reviews[::3])
    return folder


def iid(dataset: str, raw: Path, **params) -> Federation:
    """The data set, dealt evenly."""
    return federation_of(dataset, "iid", raw, params=params, **CUT)


def numbers(federation: Federation) -> list[int]:
    """The numbers that `images` and `cifar10_batch` wrote into the first two pixels."""
    first = federation.x[:, 0, 0, :2].astype(int)
    return (first[:, 0] + 256 * first[:, 1]).tolist()


# The registry


def test_every_data_set_has_what_the_workflow_asks_of_it():
    for name in sources.NAMES:
        classes, local = sources.load(name).NUM_CLASSES, downloads.table(name).local
        assert classes is None if local else classes > 1
        for source in downloads.table(name).sources or [None]:
            assert set(sources.has(name, source)) <= set(FEATURES)
            assert all(file.dataset == name for file in downloads.files(name, source).values())
    for name in downloads.weights():
        assert all(file.dataset == name for file in downloads.files(name).values())


def test_every_table_of_files_is_one_of_a_data_set_or_of_weights():
    assert {*downloads.names()} <= {*sources.NAMES, *downloads.weights()}
    for name in downloads.names():
        table = downloads.table(name)
        assert all({*keys} <= {*table.files} for keys in table.sources.values())
        assert bool(table.sources) == bool(table.default)
        assert bool(table.files) != bool(table.local)


def test_every_kind_of_partition_can_be_loaded_and_says_what_it_needs():
    for kind in partitions.PARTITIONS:
        found = partitions.load(kind)
        if kind != "writer":  # whose needs depend on its parameters
            assert set(found.needs) <= set(FEATURES)


def test_loading_the_registries_loads_no_data_set_and_no_partition():
    code = (
        "import sys, fedlib.data.build, fedlib.data.sources as s, fedlib.data.partitions as p\n"
        "print([n for k in (s, p) for n in sys.modules if n.startswith(k.__name__ + '.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "mnits"}, "no data set 'mnits'; choose one of cifar10, "),
        ({"dataset": None}, "no data set None"),
        ({"partition": {"kind": "dirichlett"}}, "no partition kind 'dirichlett'; choose one of"),
        ({"partition": {}}, "no partition kind None; choose one of"),
        ({"partition": "iid"}, "a partition is declared as {'kind': 'iid', ...}, got 'iid'"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"seed": 2**32}, r"seed must be below 2\*\*32"),
        (
            {"more": 1},
            "a data spec has the keys dataset, params, partition, seed, and may have replicate",
        ),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_before_a_file_is_read(change, message):
    with pytest.raises(ConfigError, match=message):
        build(DIGITS | change, NOWHERE)


@pytest.mark.parametrize("name", sources.NAMES)
def test_an_unknown_parameter_is_refused_before_a_file_is_read(name):
    with pytest.raises(ConfigError, match=f"data set {name} has no parameter 'alphabet'; it takes"):
        build(DIGITS | {"dataset": name, "params": {"alphabet": 1}}, NOWHERE)


def test_a_parameter_that_is_missing_is_named():
    with pytest.raises(ConfigError, match="shakespeare needs the parameter 'train_fraction'"):
        build(DIGITS | {"dataset": "shakespeare"}, NOWHERE)


@pytest.mark.parametrize(
    ("dataset", "params", "partition", "message"),
    [
        (
            "cifar10",
            {},
            {"kind": "pachinko", "num_clients": 2, "alpha": 1, "beta": 1, "train_fraction": 0.8},
            "pachinko needs coarse labels, which cifar10 does not have; .* there fit: cifar100$",
        ),
        (
            "femnist",
            {"source": "nist"},
            {"kind": "writer_parts"},
            "needs an official training and test part, which femnist from source nist does not "
            "have; .* there fit: femnist:leaf, femnist:tff, mnist:qmnist",
        ),
        (
            "mnist",
            {},
            {"kind": "writer", "train_fraction": 0.8},
            "writer needs natural clients, such as writers, which mnist does not have; .*qmnist",
        ),
        (
            "cifar100",
            {},
            {"kind": "two_shard", "num_clients": 5},
            "needs ten classes, which cifar100 does not have; .* fit: cifar10, digits, mnist",
        ),
        (
            "synthetic",
            {},
            {"kind": "rotated", "num_clients": 4},
            "partition rotated needs images, which synthetic does not have",
        ),
        (
            "emnist",
            {"source": "test"},
            {"kind": "permuted", "num_clients": 4, "num_clusters": 2},
            "needs an official training and test part, which emnist from source test does not",
        ),
    ],
)
def test_what_a_data_set_lacks_for_a_partition_is_said_before_a_file_is_read(
    dataset, params, partition, message
):
    declared = {"dataset": dataset, "params": params, "partition": partition, "seed": 1}
    with pytest.raises(ConfigError, match=message):
        build(declared, NOWHERE)


RESERVED = {"pool_per_class": 2, "server_per_class": 1, "val_per_class": 1, "probe_per_class": 1}
EVERY_PARTITION = {
    "angled": {"num_clients": 4, "alpha": 1.0, "train_examples": 5, "test_examples": 2},
    "dirichlet": {"num_clients": 3, "alpha": 10.0, "train_fraction": 0.8},
    "hierarchical": {
        **{"num_clients": 2, "alpha": 1.0, "beta": 1.0},
        **{"train_examples": 5, "test_examples": 2},
    },
    "hsu": {"num_clients": 4, "alpha": 1.0, "train_examples": 5, "test_examples": 2},
    "iid": {"num_clients": 3, "train_fraction": 0.8},
    "majority": {"num_clients": 3, "p": 0.0, "train_examples": 8, "test_examples": 4},
    "natural": {},
    "pachinko": {"num_clients": 2, "alpha": 1.0, "beta": 1.0, "train_fraction": 0.8},
    "path_dir": {
        **{"num_clients": 10, "classes_per_client": 2},
        **{"alpha": 10.0, "train_fraction": 0.8},
    },
    "path_line": {"num_clients": 10, "classes_per_client": 2, "train_fraction": 0.8},
    "pathological": {"num_clients": 3, "train_fraction": 0.8},
    "permuted": {"num_clients": 4, "num_clusters": 2},
    "rotated": {"num_clients": 4},
    "server_dirichlet": {"num_clients": 2, "alpha": 100.0, **RESERVED},
    "server_equal": {"num_clients": 2, "train_examples": 2, **RESERVED},
    "server_majority": {"num_clients": 2, "train_examples": 2, "share": 0.5, **RESERVED},
    "server_two_class": {"num_clients": 5, **RESERVED},
    "two_shard": {"num_clients": 5},
    "writer": {"train_fraction": 0.8},
    "writer_groups": {"num_clients": 2, "writers_per_client": 1, "server_writers": 1},
    "writer_parts": {},
}


FITTING = {"digits": 15, "mnist": 15, "emnist": 7, "cifar10": 15, "synthetic": 14}
FITTING |= {"sent140": 10, "yelp": 10}  # neither images nor ten classes


@pytest.mark.parametrize("dataset", FITTING)
def test_any_partition_deals_any_data_set_that_has_what_it_needs(raw, dataset):
    params = SYNTHETIC if dataset == "synthetic" else {}
    fitting = 0
    for kind, fields in EVERY_PARTITION.items():
        declared = {"dataset": dataset, "params": params, "seed": 1}
        declared["partition"] = {"kind": kind, **fields}
        try:
            check(declared)
        except ConfigError as error:
            assert f"partition {kind} needs" in str(error)
            continue
        if dataset == "emnist" and kind.startswith("path_"):
            continue  # 80 images are too few for ten owners of each of 62 classes
        if dataset == "emnist" and kind.startswith("server_"):
            continue  # nor do they suffice for three owners
        if kind == "server_two_class" and dataset in ("sent140", "synthetic", "yelp"):
            continue  # two examples of a class are no five shards, nor five classes pairs
        built = build(declared, raw)
        tested = built.ids("server") if len(built.ids("server")) else built.ids("seen")
        assert built.num_clients > 1 and built.train.sizes.min() and built.test.sizes[tested].min()
        fitting += 1
    assert {*EVERY_PARTITION} == {*partitions.PARTITIONS}
    assert fitting == FITTING[dataset]


def test_what_a_source_says_it_has_is_what_its_examples_come_with(raw):
    for dataset in FITTING:
        read = sources.load(dataset).read
        params = SYNTHETIC if dataset == "synthetic" else {}
        drawn = {"seed": 1} if "seed" in inspect.signature(read).parameters else {}
        examples = read(raw, **drawn, **params)
        found = {
            "classes": examples.y.ndim == 1,
            "coarse": examples.coarse is not None,
            "images": examples.x.dtype == np.uint8 and examples.x.ndim == 4,
            "owner": examples.owner is not None,
            "part": examples.part is not None,
            "ten_classes": examples.num_classes == 10,
        }
        assert {*found} == {*FEATURES}
        assert {name for name, there in found.items() if there} == {*sources.has(dataset)}


# Made-up raw files


def test_mnist_is_the_training_set_and_then_the_test_set(raw):
    built = iid("mnist", raw)
    assert built.x.shape == (80, 1, 28, 28) and built.x.dtype == np.uint8
    assert numbers(built) == list(range(80))
    assert built.y.tolist() == [i % 10 for i in range(80)]


def test_cifar10_is_the_training_batches_and_then_the_test_batch(raw):
    built = iid("cifar10", raw)
    assert built.x.shape == (120, 3, 32, 32) and built.x.dtype == np.uint8
    assert numbers(built) == list(range(120))
    assert built.y.tolist() == [i % 10 for i in range(120)]


def test_cifar10_keeps_channels_rows_and_columns_apart():
    pixels = np.zeros((1, 3, 32, 32), np.uint8)
    pixels[0, 2, 5, 7] = 9  # blue, row 5, column 7
    content = pickle.dumps({"data": pixels.reshape(1, 3072), "labels": [3]}, protocol=3)
    x, y = cifar_batch.parse(content, "batch", "labels")
    assert np.argwhere(x).tolist() == [[0, 2, 5, 7]] and y.tolist() == [3]


def test_emnist_draws_from_both_official_splits_or_from_the_test_split(raw):
    assert numbers(iid("emnist", raw)) == list(range(80))
    for key in ("train_images", "train_labels"):
        (raw / downloads.files("emnist")[key].path).unlink()
    assert numbers(iid("emnist", raw, source="test")) == list(range(60, 80))


def test_emnist_asks_only_for_the_files_it_reads():
    assert list(downloads.files("emnist", "test")) == ["test_images", "test_labels"]
    assert len(downloads.files("emnist")) == 4


@pytest.mark.parametrize("source", ["train", "", ["all"]])
def test_an_unknown_emnist_source_is_refused(source):
    with pytest.raises(ConfigError, match=r"emnist has no source .*; choose one of all, test"):
        iid("emnist", NOWHERE, source=source)


@pytest.mark.parametrize("dataset", ["mnist", "emnist", "cifar10"])
def test_a_missing_raw_file_is_named(dataset, raw):
    path = raw / next(iter(downloads.files(dataset).values())).path
    path.unlink()
    with pytest.raises(DataError, match=f"{path} does not exist; run the download stage"):
        iid(dataset, raw)


@pytest.mark.parametrize("dataset", ["mnist", "emnist", "cifar10"])
def test_a_truncated_raw_file_is_refused(dataset, raw):
    path = raw / next(iter(downloads.files(dataset).values())).path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"{path} has [\d,]+ bytes, the official file has"):
        iid(dataset, raw)


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_batch_is_not_unpickled_before_its_checksum_matches(raw, tmp_path, monkeypatch):
    put(raw, downloads.files("cifar10")["data_batch_1"], pickle.dumps(Evil(tmp_path / "evil")))
    monkeypatch.setattr(cifar_batch, "parse", lambda *args: pytest.fail("opened"))
    with pytest.raises(DataError, match="data_batch_1 has .* the official file has"):
        iid("cifar10", raw)


def test_a_batch_that_calls_anything_is_refused(tmp_path):
    content = pickle.dumps({"data": Evil(tmp_path / "evil"), "labels": []})
    with pytest.raises(DataError, match="batch is not a CIFAR batch: it asks for .*touch|getattr"):
        cifar_batch.parse(content, "batch", "labels")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"text", pickle.dumps({"labels": []}), pickle.dumps([1]), cifar10_batch(3)[:-20]),
        b"\x80\x03K\x01K\x02a.",  # to append to a number, which has no such method
        b"\x80\x02K\x01r\x00\x00\x00\x20.",  # a memo of eight gigabytes
        b"P1\n.",  # an object from elsewhere, upon which Python complains in two lines
    ],
    ids="empty text no-data list cut append memo elsewhere".split(),
)
def test_what_is_not_a_batch_is_refused(content):
    with pytest.raises(DataError, match=r"batch is not a CIFAR batch: .*\Z"):
        cifar_batch.parse(content, "batch", "labels")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(np.zeros((2, 3)))[:-9], "is not a whole gzip file"),
        (b"text", "is not a whole gzip file"),
        (
            gzip.compress(b"\0\0\x0d\1\0\0\0\0"),
            "is not an idx file of bytes or int32: it starts 00000d01",
        ),
        (
            gzip.compress(b"\0\0\x08\2\0\0\0\2\0\0\0\3\0\0"),
            r"announces \(2, 3\), so 6 bytes, but holds 2",
        ),
        (gzip.compress(b"\0\0\x08\2\0\0"), "announces .* holds 0"),
    ],
    ids="cut no-gzip floats too-short no-shape".split(),
)
def test_what_is_not_an_idx_file_is_refused(content, message):
    with pytest.raises(DataError, match=f"t10k {message}"):
        idx_format.parse(content, "t10k")


def test_images_and_labels_must_be_of_the_same_examples():
    with pytest.raises(
        DataError, match=r"MNIST test: images of shape \(3, 28, 28\) do not go with"
    ):
        idx_format.images(idx(np.zeros((3, 28, 28))), idx(np.zeros(2)), "MNIST test")


# Data sets without raw files


def test_digits_are_the_images_of_scikit_learn():
    from sklearn.datasets import load_digits

    built = iid("digits", NOWHERE)
    assert built.x.shape == (1797, 1, 8, 8) and built.x.dtype == np.uint8
    assert np.abs(built.x[:, 0] - load_digits().images * 255 / 16).max() <= 0.5
    assert built.y.tolist() == load_digits().target.tolist()
    assert built.num_clients == 4 and built.ids("unseen").shape == (1,)


def test_synthetic_sizes_are_the_official_ones():
    sizes = synthetic.train_sizes(np.random.RandomState(12345), 300)  # section 8.1
    assert sizes[:12].tolist() == [86, 192, 69, 67, 1000, 936, 115, 145, 304, 710, 459, 54]
    assert (sizes.sum(), (sizes == 1000).sum()) == (67_758, 17)


def made_up(params: dict, seed: int = 12345, **fields) -> Federation:
    """The synthetic data, and who it belongs to."""
    return federation_of("synthetic", "natural", seed=seed, params=params, **fields)


def test_synthetic_clients_have_their_training_and_test_examples():
    built = made_up(SYNTHETIC, val_fraction=0.25, unseen_fraction=0.2)
    sizes = synthetic.train_sizes(np.random.RandomState(12345), 5)
    assert (built.train.sizes + built.val.sizes).tolist() == sizes.tolist()
    assert built.train.sizes.tolist() == [int(0.75 * size) for size in sizes]
    assert built.test.sizes.tolist() == [30] * 5
    assert built.x.dtype == np.float32 and built.x.shape[1] == 4
    assert built.ids("unseen").tolist() == [4]


def test_the_last_fifth_of_the_synthetic_clients_is_unseen():
    # FedEM's data script trains on the first int(train_tasks_frac * n) clients (section 3.2).
    params = {"num_clients": 30, "dim": 2, "test_size": 2}
    built = made_up(params, unseen_fraction=0.2)
    assert built.ids("seen").tolist() == list(range(24))
    assert built.ids("unseen").tolist() == list(range(24, 30))


def test_natural_clients_come_as_given_or_in_random_order():
    given = made_up(SYNTHETIC)
    assert given.client_id.tolist() == list(range(5))
    some = made_up(SYNTHETIC, fraction=0.4)  # the first two
    for client in range(2):
        ours, theirs = (built.x[built.train.of(client)] for built in (some, given))
        assert np.array_equal(ours, theirs)
    assert some.num_clients == 2 and len(some.x) == len(some.train.rows) + len(some.test.rows)
    sizes = made_up(SYNTHETIC, order="random").train.sizes
    assert sorted(sizes) == sorted(given.train.sizes) and any(sizes != given.train.sizes)


def test_a_natural_client_keeps_its_parts_unless_a_validation_part_is_drawn():
    as_given, drawn, held = (
        made_up(SYNTHETIC, val_fraction=fraction) for fraction in (None, 0.0, 0.25)
    )
    for client in range(5):
        rows = as_given.train.of(client)
        assert np.array_equal(rows, np.sort(rows)) and len(drawn.val.of(client)) == 0
        assert np.array_equal(np.sort(drawn.train.of(client)), rows)
        both = np.concatenate([held.train.of(client), held.val.of(client)])
        assert np.array_equal(np.sort(both), rows) and len(held.val.of(client))


def test_synthetic_labels_are_those_of_their_component_without_noise(monkeypatch):
    monkeypatch.setattr(synthetic, "NOISE", 0.0)
    built = made_up({**SYNTHETIC, "num_components": 1}, seed=7)
    draw = np.random.RandomState(7)  # the order of draws of section 3.10
    draw.lognormal(4, 2, 5)
    for _ in range(5):
        draw.dirichlet([0.4])
    theta = draw.uniform(-1, 1, (1, 4))[0]
    sure = np.abs(built.x @ theta) > 1e-5  # float32 inputs, float64 labels
    assert sure.mean() > 0.99
    assert np.array_equal(built.y[sure], (built.x @ theta > 0)[sure])


def test_synthetic_labels_are_balanced_and_with_the_official_quirk_mostly_0():
    # Section 3.10: label-1 rate about 0.24 to 0.49 instead of about 0.5. 26,000 test examples of
    # mixed clients: a standard deviation of 0.5 / sqrt(26,000) = 0.003.
    params = {"num_clients": 26, "dim": 20, "test_size": 1000}
    fixed = made_up(params)
    quirk = made_up({**params, "labels": "official"})
    assert abs(fixed.y[fixed.test.rows].mean() - 0.5) < 0.02
    assert 0.24 < quirk.y[quirk.test.rows].mean() < 0.49


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": "right"}, "no labels 'right'; choose one of fixed, official"),
        ({"alpha": 0}, "alpha must be a positive number, got 0"),
        ({"num_components": 0}, "num_components must be an integer of at least 1, got 0"),
        ({"test_size": 0}, "test_size must be"),
    ],
)
def test_synthetic_parameters_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        made_up({**SYNTHETIC, **change})


# On disk


def test_a_federation_comes_back_from_disk_as_it_was(federation, saved):
    loaded = Federation.load(*saved)
    assert loaded.digests == federation.digests
    assert loaded.manifest() == federation.manifest()
    assert loaded.spec == MADE_OF


def test_a_loaded_federation_is_not_what_is_in_the_file_later(federation, saved, tmp_path):
    loaded = Federation.load(*saved)
    assert loaded.x.flags.writeable  # PyTorch warns of arrays that are not
    before = saved[0].read_bytes()
    loaded.x[:] = 0
    assert saved[0].read_bytes() == before
    loaded, again = Federation.load(*saved), Federation.load(*saved)
    other = build({**federation.spec, "seed": 9}, "")
    other.save(*saved)
    again.x[0] = 7
    assert loaded.digests == federation.digests != other.digests


def test_arrays_that_cannot_be_mapped_are_read(federation, saved):
    with h5py.File(saved[0], "r+") as file:
        del file["x"]
        file.create_dataset("x", data=federation.x, compression="gzip")
    loaded = Federation.load(*saved)
    assert np.array_equal(loaded.x, federation.x)
    empty = Federation(**{**vars_of(federation), "val": Split.from_lists([[]] * 5)})
    empty.save(*saved)
    assert Federation.load(*saved).val.rows.shape == (0,)


def test_building_twice_gives_the_same_bytes(federation, saved, tmp_path):
    again = build(federation.spec, "")
    again.save(tmp_path / "b.h5", tmp_path / "b.json")
    assert [path.read_bytes() for path in saved] == [
        (tmp_path / name).read_bytes() for name in ("b.h5", "b.json")
    ]


def replicate(number, seed=0):
    return build({**MADE_OF, "seed": seed, "replicate": number}, "")


def test_every_replicate_is_cut_by_a_seed_of_its_own():
    shared = build({**MADE_OF, "seed": 0}, "")
    cuts = [shared, *(replicate(number) for number in range(3))]
    assert len({cut.digests["x"] for cut in cuts}) == 4
    assert replicate(1).digests == replicate(1).digests
    assert replicate(1).spec["replicate"] == 1


def test_replicates_of_neighbouring_declared_seeds_are_apart():
    assert replicate(1, seed=0).digests["x"] != replicate(0, seed=1).digests["x"]


def test_a_truncated_shard_file_is_refused(saved):
    saved[0].write_bytes(saved[0].read_bytes()[:-500])
    with pytest.raises(DataError, match=f"{saved[0]} is truncated or corrupted .* delete it"):
        Federation.load(*saved)


def test_a_shard_file_that_lost_an_array_is_refused(saved):
    with h5py.File(saved[0], "r+") as file:
        del file["train/rows"]
    with pytest.raises(DataError, match="is truncated or corrupted"):
        Federation.load(*saved)


def test_a_shard_file_with_other_content_does_not_match_its_manifest(saved):
    with h5py.File(saved[0], "r+") as file:
        file["x"][0, 0] += 1
    with pytest.raises(DataError, match="does not match its manifest: x differ; delete it"):
        Federation.load(*saved)


def test_a_missing_shard_file_is_named(tmp_path):
    with pytest.raises(DataError, match="none.h5 does not exist; run the partition stage first"):
        Federation.load(tmp_path / "none.h5")


def test_a_row_of_two_splits_is_refused(federation):
    test = Split(federation.test.rows.copy(), federation.test.offsets)
    row = test.rows[0] = federation.train.rows[3]
    with pytest.raises(DataError, match=rf"row {row} belongs to clients 0 and 0 .*split test"):
        Federation(**{**vars_of(federation), "test": test})


def vars_of(federation: Federation) -> dict:
    names = ("x", "y", "num_classes", "train", "val", "test", "group", "client_id")
    return {name: getattr(federation, name) for name in names}


def partition_script(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "scripts/partition.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_script_writes_shards_and_says_what_they_are(tmp_path):
    partition = {**DIGITS["partition"], "fraction": 0.5, "val_fraction": 0.25}
    spec = DIGITS | {"partition": partition}
    shards, manifest = tmp_path / "d.h5", tmp_path / "d.json"
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    done = partition_script(
        "--spec", f"@{tmp_path}/spec.json", "--shards", shards, "--manifest", manifest
    )
    assert (done.returncode, done.stderr) == (0, "")
    # int(0.5 * 1797) = 898 = 224 + 224 + 225 + 225. Of 224, 45 are test, 45 validation, 134
    # training (floor(0.8 * 224) = 179, floor(0.75 * 179) = 134); of 225, 45, 45 and 135.
    assert done.stdout.splitlines() == [
        "clients:     3 seen, 1 unseen",
        "examples:    538 train, 180 val, 180 test",
        "client size: min 224, median 224.5, max 225",
    ]
    assert Federation.load(shards, manifest).spec == spec


def test_the_script_explains_a_mistake_and_writes_nothing(tmp_path):
    partition = {**DIGITS["partition"], "train_fraction": 2}
    spec = json.dumps(DIGITS | {"partition": partition})
    paths = ("--shards", tmp_path / "d.h5", "--manifest", tmp_path / "d.json")
    done = partition_script("--spec", spec, *paths)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: train_fraction must be in (0, 1), got 2\n"
    assert not list(tmp_path.iterdir())


# The official files, where they are


@needs("mnist")
def test_the_official_mnist_has_its_known_class_sizes():
    built = iid("mnist", REAL_RAW)
    assert built.x.shape == (70_000, 1, 28, 28)
    # Of the training set: Y. LeCun's 5,923 zeros, and 980 in the test set.
    assert (built.y == 0).sum() == 5_923 + 980
    assert built.x[:60_000].mean() / 255 == pytest.approx(built.mean[0], abs=5e-5)
    assert built.x[:60_000].std() / 255 == pytest.approx(built.std[0], abs=5e-5)


@needs("cifar10")
def test_the_official_cifar10_has_6000_images_of_each_class():
    built = iid("cifar10", REAL_RAW)
    assert built.x.shape == (60_000, 3, 32, 32)
    assert np.bincount(built.y).tolist() == [6000] * 10
    means = built.x[:50_000].mean(axis=(0, 2, 3)) / 255
    assert means == pytest.approx(built.mean, abs=5e-4)


@needs("emnist", "test")
def test_the_official_emnist_test_split_has_116323_images_of_62_classes():
    built = iid("emnist", REAL_RAW, source="test")
    assert built.x.shape == (116_323, 1, 28, 28)  # section 3.1
    assert (np.bincount(built.y, minlength=62) > 0).all()
