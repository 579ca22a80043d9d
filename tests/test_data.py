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
from data_fixtures import REAL_RAW, cifar10_batch, idx, images, needs, official, put

from fedlib import data
from fedlib.data import cifar10, cifar_batch, digits, emnist, mnist, synthetic
from fedlib.data import idx as idx_format
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation, Split

ROOT = Path(__file__).resolve().parents[1]

CUT = {
    "partition": {"kind": "iid", "num_clients": 4},
    "train_fraction": 0.8,
    "unseen_fraction": 0.25,
    "seed": 1,
}
PARTITIONED = [
    n for n in data.NAMES if "partition" in inspect.signature(data.load(n).build).parameters
]
SYNTHETIC = {"num_clients": 5, "dim": 4, "test_size": 30}


@pytest.fixture
def federation() -> Federation:
    return data.build({"dataset": "synthetic", "params": {**SYNTHETIC, "val_fraction": 0.2}}, "")


@pytest.fixture
def saved(federation, tmp_path):
    paths = tmp_path / "a.h5", tmp_path / "a.json"
    federation.save(*paths)
    return paths


@pytest.fixture
def raw(tmp_path, monkeypatch) -> Path:
    """Made-up raw files of every data set that needs some, in place of the official ones."""
    folder = tmp_path / "raw"

    def replace(module, name, file, content):
        made_up = official(file.path, content)
        put(folder, made_up, content)
        if isinstance(getattr(module, name), dict):
            key = next(key for key, value in getattr(module, name).items() if value is file)
            monkeypatch.setitem(getattr(module, name), key, made_up)
        else:
            monkeypatch.setattr(module, name, made_up)
        return made_up

    for name, num, first in (("TRAIN", 60, 0), ("TEST", 20, 60)):
        x, y = images(num, first)
        replace(mnist, f"{name}_IMAGES", getattr(mnist, f"{name}_IMAGES"), idx(x))
        replace(mnist, f"{name}_LABELS", getattr(mnist, f"{name}_LABELS"), idx(y))
        x, y = images(num, first, classes=62)
        replace(emnist, "IMAGES", emnist.IMAGES[name.lower()], idx(x))
        replace(emnist, "LABELS", emnist.LABELS[name.lower()], idx(y))
    batches = [cifar10_batch(20, first=20 * i) for i in range(6)]
    files = [official(f.path, b) for f, b in zip(cifar10.BATCHES, batches, strict=True)]
    for file, content in zip(files, batches, strict=True):
        put(folder, file, content)
    monkeypatch.setattr(cifar10, "BATCHES", tuple(files))
    return folder


def numbers(federation: Federation) -> list[int]:
    """The numbers that `images` and `cifar10_batch` wrote into the first two pixels."""
    first = federation.x[:, 0, 0, :2].astype(int)
    return (first[:, 0] + 256 * first[:, 1]).tolist()


# The registry


def test_every_data_set_has_what_the_workflow_asks_of_it():
    for name in data.NAMES:
        module = data.load(name)
        assert module.NUM_CLASSES > 1
        # What is made of another data set's files has that one's name at the end of its own.
        assert all(f"_{name}".endswith(f"_{file.dataset}") for file in module.sources())
    for name in data.WEIGHTS:
        assert all(file.dataset == name for file in data.load(name).sources())


def test_loading_the_registry_loads_no_data_set():
    code = (
        "import sys, fedlib.data; print([m for m in sys.modules if m.startswith('fedlib.data.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("spec", [{"dataset": "mnits", "params": {}}, {"dataset": None}, {}])
def test_a_spec_without_a_known_data_set_is_refused(spec):
    with pytest.raises(
        ConfigError, match="'mnits'; choose one of angled_digits, |the keys dataset"
    ):
        data.build(spec, "")


@pytest.mark.parametrize("name", data.NAMES)
def test_an_unknown_parameter_is_refused_before_a_file_is_read(name):
    taken = inspect.signature(data.load(name).build).parameters
    params = {key: value for key, value in {**CUT, "p": 0.5}.items() if key in taken}
    with pytest.raises(ConfigError, match=f"data set {name}: .*'alphabet'; it takes .*seed"):
        data.build({"dataset": name, "params": {**params, "alphabet": 1}}, "/no/such/folder")


@pytest.mark.parametrize("name", PARTITIONED)
def test_an_unknown_partition_is_refused_before_a_file_is_read(name):
    params = {**CUT, "partition": {"kind": "dirichlett", "num_clients": 3, "alpha": 1.0}}
    with pytest.raises(ConfigError, match="no partition kind 'dirichlett'; choose one of"):
        data.build({"dataset": name, "params": params}, "/no/such/folder")


# Made-up raw files


def test_mnist_is_the_training_set_and_then_the_test_set(raw):
    built = mnist.build(raw, **CUT)
    assert built.x.shape == (80, 1, 28, 28) and built.x.dtype == np.uint8
    assert numbers(built) == list(range(80))
    assert built.y.tolist() == [i % 10 for i in range(80)]


def test_cifar10_is_the_training_batches_and_then_the_test_batch(raw):
    built = cifar10.build(raw, **CUT)
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
    assert numbers(emnist.build(raw, **CUT)) == list(range(80))
    for file in (emnist.IMAGES["train"], emnist.LABELS["train"]):
        (raw / file.path).unlink()
    assert numbers(emnist.build(raw, source="test", **CUT)) == list(range(60, 80))


def test_emnist_asks_only_for_the_files_it_reads():
    assert emnist.sources(source="test", seed=1) == (emnist.IMAGES["test"], emnist.LABELS["test"])
    assert len(emnist.sources()) == 4


@pytest.mark.parametrize("source", ["train", None, ["all"]])
def test_an_unknown_emnist_source_is_refused(source):
    with pytest.raises(ConfigError, match=r"no EMNIST source .*; choose one of all, test"):
        emnist.build(Path("/no/such/folder"), source=source, **CUT)


@pytest.mark.parametrize("module", [mnist, emnist, cifar10])
def test_a_missing_raw_file_is_named(module, raw):
    path = raw / module.sources()[0].path
    path.unlink()
    with pytest.raises(DataError, match=f"{path} does not exist; run the download stage"):
        module.build(raw, **CUT)


@pytest.mark.parametrize("module", [mnist, emnist, cifar10])
def test_a_truncated_raw_file_is_refused(module, raw):
    path = raw / module.sources()[0].path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"{path} has [\d,]+ bytes, the official file has"):
        module.build(raw, **CUT)


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_batch_is_not_unpickled_before_its_checksum_matches(raw, tmp_path, monkeypatch):
    put(raw, cifar10.BATCHES[0], pickle.dumps(Evil(tmp_path / "evil")))
    monkeypatch.setattr(cifar_batch, "parse", lambda *args: pytest.fail("opened"))
    with pytest.raises(DataError, match="data_batch_1 has .* the official file has"):
        cifar10.build(raw, **CUT)


def test_a_batch_that_calls_anything_is_refused(tmp_path):
    content = pickle.dumps({"data": Evil(tmp_path / "evil"), "labels": []})
    with pytest.raises(DataError, match="batch is not a CIFAR batch: it asks for .*touch|getattr"):
        cifar_batch.parse(content, "batch", "labels")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"text", pickle.dumps({"labels": []}), pickle.dumps([1]), cifar10_batch(3)[:-20]],
    ids="empty text no-data list cut".split(),
)
def test_what_is_not_a_batch_is_refused(content):
    with pytest.raises(DataError, match="batch is not a CIFAR batch"):
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

    built = digits.build(Path(""), **CUT)
    assert built.x.shape == (1797, 1, 8, 8) and built.x.dtype == np.uint8
    assert np.abs(built.x[:, 0] - load_digits().images * 255 / 16).max() <= 0.5
    assert built.y.tolist() == load_digits().target.tolist()
    assert built.num_clients == 4 and built.ids("unseen").shape == (1,)


def test_synthetic_sizes_are_the_official_ones():
    sizes = synthetic.train_sizes(np.random.RandomState(12345), 300)  # section 8.1
    assert sizes[:12].tolist() == [86, 192, 69, 67, 1000, 936, 115, 145, 304, 710, 459, 54]
    assert (sizes.sum(), (sizes == 1000).sum()) == (67_758, 17)


def test_synthetic_clients_have_their_training_and_test_examples():
    built = synthetic.build(Path(""), **SYNTHETIC, val_fraction=0.25, unseen_fraction=0.2)
    sizes = synthetic.train_sizes(np.random.RandomState(12345), 5)
    assert (built.train.sizes + built.val.sizes).tolist() == sizes.tolist()
    assert built.train.sizes.tolist() == [int(0.75 * size) for size in sizes]
    assert built.test.sizes.tolist() == [30] * 5
    assert built.x.dtype == np.float32 and built.x.shape[1] == 4
    assert built.ids("unseen").tolist() == [4]


def test_the_last_fifth_of_the_synthetic_clients_is_unseen():
    # FedEM's data script trains on the first int(train_tasks_frac * n) clients (section 3.2).
    params = {"num_clients": 30, "dim": 2, "test_size": 2, "unseen_fraction": 0.2}
    built = synthetic.build(Path(""), **params)
    assert built.ids("seen").tolist() == list(range(24))
    assert built.ids("unseen").tolist() == list(range(24, 30))


def test_synthetic_labels_are_those_of_their_component_without_noise(monkeypatch):
    monkeypatch.setattr(synthetic, "NOISE", 0.0)
    built = synthetic.build(Path(""), **SYNTHETIC, num_components=1, seed=7)
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
    fixed = synthetic.build(Path(""), **params)
    quirk = synthetic.build(Path(""), **params, labels="official")
    assert abs(fixed.y[fixed.test.rows].mean() - 0.5) < 0.02
    assert 0.24 < quirk.y[quirk.test.rows].mean() < 0.49


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": "right"}, "no labels 'right'; choose one of fixed, official"),
        ({"alpha": 0}, "alpha must be a positive number, got 0"),
        ({"num_components": 0}, "num_components must be an integer of at least 1, got 0"),
        ({"test_size": 0}, "test_size must be"),
        ({"val_fraction": 1}, "val_fraction must be"),
    ],
)
def test_synthetic_parameters_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        synthetic.build(Path(""), **{**SYNTHETIC, **change})


# On disk


def test_a_federation_comes_back_from_disk_as_it_was(federation, saved):
    loaded = Federation.load(*saved)
    assert loaded.digests == federation.digests
    assert loaded.manifest() == federation.manifest()
    assert loaded.spec == {"dataset": "synthetic", "params": {**SYNTHETIC, "val_fraction": 0.2}}


def test_a_loaded_federation_is_not_what_is_in_the_file_later(federation, saved, tmp_path):
    loaded = Federation.load(*saved)
    assert loaded.x.flags.writeable  # PyTorch warns of arrays that are not
    before = saved[0].read_bytes()
    loaded.x[:] = 0
    assert saved[0].read_bytes() == before
    loaded, again = Federation.load(*saved), Federation.load(*saved)
    other = data.build({**federation.spec, "params": {**SYNTHETIC, "seed": 9}}, "")
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
    again = data.build(federation.spec, "")
    again.save(tmp_path / "b.h5", tmp_path / "b.json")
    assert [path.read_bytes() for path in saved] == [
        (tmp_path / name).read_bytes() for name in ("b.h5", "b.json")
    ]


def replicate(number, seed=0):
    params = {**SYNTHETIC, "val_fraction": 0.2, "seed": seed}
    return data.build({"dataset": "synthetic", "params": params, "replicate": number}, "")


def test_every_replicate_is_cut_by_a_seed_of_its_own():
    shared = data.build({"dataset": "synthetic", "params": {**SYNTHETIC, "seed": 0}}, "")
    cuts = [shared, *(replicate(number) for number in range(3))]
    assert len({cut.digests["x"] for cut in cuts}) == 4
    assert replicate(1).digests == replicate(1).digests
    assert replicate(1).spec["replicate"] == 1


def test_replicates_of_neighbouring_declared_seeds_are_apart():
    assert replicate(1, seed=0).digests["x"] != replicate(0, seed=1).digests["x"]


def test_what_is_cut_without_a_seed_has_no_replicates():
    with pytest.raises(ConfigError, match="synthetic has no seed, so it has no replicates"):
        data.build({"dataset": "synthetic", "params": SYNTHETIC, "replicate": 0}, "")


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
    spec = {"dataset": "digits", "params": {**CUT, "fraction": 0.5, "val_fraction": 0.25}}
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
    spec = json.dumps({"dataset": "digits", "params": {**CUT, "train_fraction": 2}})
    paths = ("--shards", tmp_path / "d.h5", "--manifest", tmp_path / "d.json")
    done = partition_script("--spec", spec, *paths)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: train_fraction must be in (0, 1), got 2\n"
    assert not list(tmp_path.iterdir())


# The official files, where they are


@needs(*mnist.sources())
def test_the_official_mnist_has_its_known_class_sizes():
    built = mnist.build(REAL_RAW, **CUT)
    assert built.x.shape == (70_000, 1, 28, 28)
    # Of the training set: Y. LeCun's 5,923 zeros, and 980 in the test set.
    assert (built.y == 0).sum() == 5_923 + 980
    assert built.x[:60_000].mean() / 255 == pytest.approx(mnist.MEAN[0], abs=5e-5)
    assert built.x[:60_000].std() / 255 == pytest.approx(mnist.STD[0], abs=5e-5)


@needs(*cifar10.sources())
def test_the_official_cifar10_has_6000_images_of_each_class():
    built = cifar10.build(REAL_RAW, **CUT)
    assert built.x.shape == (60_000, 3, 32, 32)
    assert np.bincount(built.y).tolist() == [6000] * 10
    means = built.x[:50_000].mean(axis=(0, 2, 3)) / 255
    assert means == pytest.approx(cifar10.MEAN, abs=5e-4)


@needs(*emnist.sources(source="test"))
def test_the_official_emnist_test_split_has_116323_images_of_62_classes():
    built = emnist.build(REAL_RAW, source="test", **CUT)
    assert built.x.shape == (116_323, 1, 28, 28)  # section 3.1
    assert (np.bincount(built.y, minlength=62) > 0).all()
