"""Texts: tokens in memory, on disk and on the device; made-up ones; weights of each module."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from conftest import toy_run
from data_fixtures import made_up_texts
from safetensors.torch import save_file
from support import tiny_task, toy_federation
from test_transformer import official, tiny  # noqa: F401

from fedlib import files, seals
from fedlib.engine.device import DeviceData
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation, Tokens
from fedlib.run.build import build_method, build_simulation, build_task, weight_files
from fedlib.run_spec import RunSpec

CPU = torch.device("cpu")
SMALL = {"num_clients": 3, "train_examples": 9, "test_examples": 4, "server_train": 12}
SMALL |= {"server_val": 5, "server_test": 6, "probe": 4}


def texts(**changes) -> Federation:
    return made_up_texts(**{**SMALL, **changes})


# -- tokens -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_tokens_stay_integers_on_the_device(kind):
    federation = replace(texts(), x=texts().x.astype(kind))
    found = DeviceData(federation, torch.float64, CPU).inputs(torch.tensor([[3, 1], [0, 3]]))
    assert found.dtype == torch.from_numpy(np.zeros(0, kind)).dtype
    assert np.array_equal(found.numpy(), federation.x[[[3, 1], [0, 3]]])


def test_bytes_are_numbers_where_no_scale_says_that_they_are_pixels():
    x = np.random.default_rng(0).integers(0, 256, (51, 1, 2, 2)).astype(np.uint8)
    data = DeviceData(replace(toy_federation(), x=x), torch.float64, CPU)
    assert np.array_equal(data.inputs(torch.arange(3)).numpy(), x[:3].astype(np.float64))


def test_texts_come_back_from_disk_with_their_vocabulary(tmp_path):
    made = texts()
    made.save(tmp_path / "a.h5", tmp_path / "a.json")
    read = Federation.load(tmp_path / "a.h5", tmp_path / "a.json")
    assert read.tokens == made.tokens == Tokens(200, 0)
    assert read.x.dtype == np.int32 and read.digests == made.digests
    assert json.loads((tmp_path / "a.json").read_text())["tokens"] == {"vocabulary": 200, "pad": 0}
    with h5py.File(tmp_path / "a.h5", "a") as file:
        del file.attrs["tokens"]
    with pytest.raises(DataError, match="does not match its manifest: tokens differ"):
        Federation.load(tmp_path / "a.h5", tmp_path / "a.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": Tokens(199, 0)}, r"tokens must be in \[0, 199\), got 0 to 199"),
        ({"tokens": Tokens(200, 200)}, r"tokens must be in \[0, 200\), got 0 to 200"),
        ({"x": texts().x.astype(np.float32)}, "tokens must be int32 or int64, got float32"),
    ],
)
def test_tokens_outside_their_vocabulary_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        replace(texts(), **change)


# -- made-up texts -------------------------------------------------------------------------------


def test_a_word_of_a_class_is_in_the_texts_of_no_other():
    built = texts(server_train=2000)
    words = built.x - (200 - 5 * 20)  # of class c from 20 c on; common ones are below 0
    own = words // 20 == built.y[:, None]
    assert ((words < 0) | own).all()
    # 30 percent of the 10 words or so of 2,000 texts: a deviation of 0.3 percent.
    assert own.sum() / (built.x > 0).sum() == pytest.approx(0.3, abs=0.015)
    server = built.y[built.train.of(built.ids("server")[0])]
    # A fifth of 2,000 each: a deviation of 18.
    assert (np.bincount(server) > 400 - 90).all()


# -- declared models, and weights of each module ---------------------------------------------------


MODEL = {"num_classes": 5, "size": "tiny-bert", "vocabulary": 30}
GATE = {"model": "transformer", "params": {"num_classes": 3, "size": "tiny-gpt2"}}


def declared(**changes) -> RunSpec:
    return toy_run(**{"model": "transformer", "model_params": MODEL, "rounds": 1} | changes).spec(0)


@pytest.fixture
def receipts(tmp_path):
    """Receipts of two downloads, by name, as the workflow leaves them behind."""
    made = {}
    for name, layout in (("encoder_weights", "bert"), ("decoder_weights", "gpt2")):
        (tmp_path / name).mkdir()
        save_file(official(layout), tmp_path / name / "model")
        entry = {"path": f"{name}/model", "sha256": files.digest(tmp_path / name / "model")}
        made[name] = tmp_path / f"{name}.json"
        seals.write_json(made[name], {"dataset": name, "files": [entry]})
    return made


def test_a_model_and_a_module_start_from_weights_of_their_own(receipts):
    listed = [{**GATE, "weights": "decoder_weights"}, GATE]
    spec = declared(method="local", weights="encoder_weights", modules={"large": listed})
    # In another order than the run names them.
    found = weight_files(spec, [receipts["decoder_weights"], receipts["encoder_weights"]])
    task = build_task(spec, weights=found)
    module, alone = build_method(spec, task, weights=found).large
    ours, theirs = task.init(3)["body.words.weight"], official("bert")
    assert torch.equal(ours, theirs["bert.embeddings.word_embeddings.weight"].float())
    assert torch.equal(module.init(3)["body.words.weight"], official("gpt2")["wte.weight"].float())
    assert not torch.equal(alone.init(3)["body.words.weight"], official("gpt2")["wte.weight"])


@pytest.mark.parametrize(
    ("given", "asked", "message"),
    [
        ([], "encoder_weights", r"weights must be of \['encoder_weights'\], got \[\]"),
        (["encoder_weights"], None, r"weights must be of \[\], got \['encoder_weights'\]"),
    ],
)
def test_other_receipts_than_those_of_the_run_are_refused(given, asked, message, receipts):
    with pytest.raises(ConfigError, match=message):
        weights = [receipts[name] for name in given]
        build_simulation(declared(weights=asked), texts(), weights=weights)


def test_a_module_without_a_name_map_cannot_have_weights(receipts):
    spec = declared(modules={"gate": {"model": "mlp", "params": {}, "weights": "encoder_weights"}})
    found = weight_files(spec, [receipts["encoder_weights"]])
    with pytest.raises(ConfigError, match="module gate: mlp: it cannot start from the weights"):
        build_method(spec, tiny_task(), weights=found)


@pytest.mark.parametrize(
    ("params", "federation", "found"),
    [
        ({"vocabulary": 199}, texts(), "have 200 tokens, padding 0"),
        ({"vocabulary": 200, "pad": 3}, texts(), "have 200 tokens, padding 0"),
        ({"vocabulary": 200}, toy_federation(), "have no tokens"),
    ],
)
def test_a_model_of_other_texts_than_the_federations_is_refused(params, federation, found):
    spec = declared(model_params={"num_classes": 5, "size": "bert-lite", **params})
    with pytest.raises(ConfigError, match=f"the model reads texts of up to .*{found}; set the"):
        build_simulation(spec, federation)
