"""How long runs will take, and how much memory: sizes, arithmetic and FedAvg's speed here."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stages import SPEC

from fedlib import hdf5, seals
from fedlib.data import build, sizes
from fedlib.engine import scratch
from fedlib.errors import ConfigError, DataError
from fedlib.forecast import estimates, own_trial, speed
from fedlib.forecast.estimates import DataSize, Factor, Request, Speed
from fedlib.methods import METHODS
from fedlib.run.usage import CPU, MEMORY, WALL
from fedlib.run_spec import RunSpec

IID = {"kind": "iid", "num_clients": 8, "train_fraction": 0.75}
DIGITS = {"dataset": "digits", "params": {}, "partition": IID, "seed": 3}
MLP = {"model": "mlp", "model_params": {"in_features": 64, "hidden": [8], "num_classes": 10}}
FIRST, SECOND = 64 * 8, 8 * 10  # multiply-adds of the layers
STEP = 2 * (3 * (FIRST + SECOND) - FIRST)


def run(method="fedavg", rounds=10, batch_size=16, **changes) -> RunSpec:
    local = {"solver": "sgd", "lr": 0.1, "batch_size": batch_size}
    given = {"method": method, "rounds": rounds, "local": local, "params": {}, "modules": {}}
    given |= {"participation": {"rate": 0.5}, "evaluate_every": 5, **MLP, **changes}
    return replace(RunSpec(**SPEC), **given)


# -- sizes --------------------------------------------------------------------------------


def test_the_sizes_of_a_federation_are_those_of_the_federation():
    federation, expected = build.build(DIGITS, "."), sizes.sizes(DIGITS)
    for split in ("train", "val", "test"):
        assert getattr(expected, split) == federation.split(split).sizes.tolist()
    assert expected.shape == list(federation.x.shape[1:]) and expected.group == ["seen"] * 8
    stand_in = sizes.sizes({**DIGITS, "dataset": "mnist"})
    assert sum(stand_in.train) + sum(stand_in.test) == 70_000
    assert sum(stand_in.train) == pytest.approx(0.75 * 70_000, abs=8)


def test_numbers_made_up_for_ones_own_data_are_from_the_range_of_their_column(tmp_path):
    (tmp_path / "own/mine").mkdir(parents=True)
    x = np.array([[18, -0.5], [19, -0.5]] * 20)  # a category, and a number
    np.savez(tmp_path / "own/mine/all.npz", x=x, y=np.arange(40) % 2)
    own = {"dataset": "own", "params": {"source": "mine", "scaling": "none"}}
    found = own_trial.make_up(sizes.sizes(DIGITS | own, tmp_path), ["seen"], {"train": [99]}).x
    assert (found >= [18, -0.5]).all() and (found <= [19, -0.5]).all()


# -- arithmetic ---------------------------------------------------------------------------

# 20 of 25 owners are clients that train, on 50 examples each; 300 examples are scored.
FEW = DataSize(
    [64], [], "float32", 10, None, None, owners=25, clients=20, trained=1000, scored=300, size=1e6
)
FAST = Speed(seconds=0.001, numbers=1000)


def seconds(spec: RunSpec, size: DataSize = FEW) -> tuple[float, float]:
    """Of training and evaluation, besides the start of their jobs."""
    found = estimates.estimate(spec, size, FAST)
    return tuple(pytest.approx(found[stage].seconds - estimates.START) for stage in estimates.TIMED)


@pytest.fixture
def factors(monkeypatch):
    """Factors that are easy to multiply."""
    known = {"fedavg": Factor(1.0, 0.5, 0), "fedem": Factor(2.5, 3.0, 3), "ditto": Factor(2, 1, 0)}
    monkeypatch.setattr(estimates, "factors", lambda: known)


def test_fedavg_takes_its_time_per_example_for_rounds_and_evaluations(factors):
    # Ten of 20 clients in each of 10 rounds; a scored example is a third of one in training, and
    # evaluations come after 0, 5 and 10 rounds.
    assert seconds(run()) == (0.001 * (10 * 500 + 3 * 100), 0.5 * 0.001 * (1000 + 100))
    assert seconds(run(rounds=11))[0] == 0.001 * (11 * 500 + 4 * 100)
    whole = {"participation": {}, "local": run().local | {"epochs": 3}}
    assert seconds(run(**whole))[0] == 0.001 * (10 * 3000 + 3 * 100)


def test_a_method_has_its_factor_and_one_without_kept_trainings_counts_as_fedavg(factors):
    train, evaluate = 0.001 * 5300, 0.001 * 1100
    assert seconds(run("ditto")) == (2 * train, evaluate)
    assert seconds(run("mine/fedper.py")) == (train, evaluate)


def test_local_experts_train_a_few_clients_in_a_round_until_they_stop():
    # Clients with 50 examples, each once: ten in a round for up to 200 epochs, four for up to 30.
    spec = run("local_experts", rounds=2, params={})
    assert seconds(spec)[0] == 0.001 * (2 * 10 * 50 * 200 + 2 * 100)
    spec = run("local_experts", rounds=5, params={"at_once": 4, "max_epochs": 30})
    assert seconds(spec)[0] == 0.001 * (5 * 4 * 50 * 30 + 2 * 100)


@pytest.mark.parametrize(("experts", "factor"), [(1, 1.0), (2, 1.75), (3, 2.5), (9, 7.0)])
def test_a_mixture_of_one_expert_is_fedavg_and_each_further_one_adds(factors, experts, factor):
    assert seconds(run("fedem", params={"num_experts": experts}))[0] == factor * 0.001 * 5300


def test_memory_is_that_of_data_models_and_what_clients_keep_unless_it_goes_to_a_file(monkeypatch):
    def more(numbers: int, **params) -> float:
        found = estimates.megabytes(run(params=params), FEW, Speed(1, numbers))
        return found - estimates.BASE_MB - 1  # the data are 1 MB

    monkeypatch.setattr(estimates, "memory", lambda: 1e15)
    million = 10**6
    assert more(0) == 0
    assert more(million) == pytest.approx(6 * 4 + 2 * 4 * 25)
    assert more(million, num_experts=3) == pytest.approx(3 * 6 * 4 + 2 * 4 * 25)
    assert more(million, num_experts=[2, 4]) == more(million)  # of a user's own method
    monkeypatch.setattr(estimates, "memory", lambda: 0)
    assert more(million) == pytest.approx(6 * 4)


def test_limits_of_memory_are_those_of_the_engine():
    assert estimates.ROOM_SHARE == scratch.ROOM_SHARE


def test_the_kept_factors_are_of_methods_that_there_are_and_fedavg_s_is_one():
    found = estimates.factors()
    assert found.keys() <= {*METHODS} and len(found) > 30
    assert found["fedavg"].train == 1.0
    assert all(0.3 < x.train < 30 and x.evaluate > 0 for x in found.values())


# -- speed --------------------------------------------------------------------------------


def size_of(**changes) -> DataSize:
    return speed.size_of(DIGITS, Path("nowhere"), ".")._replace(**changes)


def test_the_size_of_a_federation_is_that_of_its_clients_and_examples(tmp_path):
    found = size_of()
    assert (found.owners, found.clients, found.trained + found.scored) == (8, 8, 1797)
    assert found.size == 1797 * (64 + 8)
    counts = {"train": [5, 6], "val": [1, 0], "test": [1, 2]}
    manifest = tmp_path / "manifest.json"
    seals.write_json(manifest, {"sizes": counts, "group": ["seen", "unseen"]})
    cut = speed.size_of(DIGITS, manifest, ".")
    assert (cut.owners, cut.clients, cut.trained, cut.scored) == (2, 1, 5, 4)
    assert cut.size == 15 * (64 + 8)


def test_a_round_grows_until_it_takes_long_enough_to_be_measured():
    tried = []

    def took(clients: int, each: int) -> float:
        tried.append((clients, each))
        return 0.001 * clients * each

    assert speed.round_of(run(), FEW) == (8, 64)  # of 10 and 50; at most four batches of 16
    assert speed._time_example(took, 8, 16, batch=16) == pytest.approx(0.001)
    assert tried == [(1, 2), (1, 8), (1, 16), (4, 16), (8, 16)]
    tried.clear()
    speed._time_example(took, 8, 1000, batch=100)
    assert tried == [(1, 2), (1, 8), (1, 32), (1, 128)]  # 0.13 s


def test_a_model_too_large_to_be_tried_takes_its_operations(monkeypatch):
    how = {"device": "cpu", "executor": "auto"}
    tried = speed.speed_of(run("fedem"), size_of(), **how)
    assert tried.numbers == FIRST + 8 + SECOND + 10 and 1e-7 < tried.seconds < 1e-2
    monkeypatch.setattr(speed, "LARGEST", 0)
    monkeypatch.setattr(speed, "_rate_of_products", lambda device: 1e9)
    assert speed.speed_of(run(), size_of(), **how).seconds == STEP / 1e9


# -- the file of estimates ----------------------------------------------------------------


@pytest.fixture
def asked(tmp_path):
    """Function that estimates requests into a file; returns what the file has."""

    def write(*requests: Request) -> dict:
        speed.write(tmp_path / "estimates.json", requests, "cpu", ".")
        return seals.read_json(tmp_path / "estimates.json")

    return write


def request(name="toy/digits/fedavg", spec=None, finished=None, **data) -> Request:
    return Request(name, spec or run(), DIGITS | data, Path("nowhere"), "auto", finished or {})


def test_what_was_measured_is_kept_beside_the_estimates_and_not_measured_again(asked, monkeypatch):
    first = asked(request())
    assert {*first["runs"]["toy/digits/fedavg"]} == {"train", "evaluate"}
    for name in ("size_of", "speed_of"):
        monkeypatch.setattr(speed, name, lambda *args, **how: 1 / 0)
    again = asked(request("toy/digits/ditto", run("ditto", rounds=99)))
    assert again["speeds"] == first["speeds"] and again["sizes"] == first["sizes"]
    assert {*again["runs"]} == {"toy/digits/fedavg", "toy/digits/ditto"}
    with pytest.raises(ZeroDivisionError):
        asked(request(spec=run(batch_size=1)))
    monkeypatch.setattr(speed.downloads, "state", lambda *data: "a user's other files")
    with pytest.raises(ZeroDivisionError):
        asked(request())
    monkeypatch.setattr(speed, "environment", lambda: {"cpu": "another machine"})
    assert asked()["runs"] == {}


def test_another_seed_that_is_finished_counts_first(asked, tmp_path):
    path, spent = tmp_path / "history.h5", {CPU: 1234.5, WALL: 2469.0, MEMORY: 7e8}
    with hdf5.create(path, userblock_size=seals.USERBLOCK) as file:
        made = json.dumps({"spent": spent, "device": "cpu"})
        file.attrs.update({"format": 3, "provenance": made})
    seals.close_hdf5(path)
    found = asked(request(finished={"train": path}))["runs"]["toy/digits/fedavg"]
    assert (found["train"]["seconds"], found["train"]["mb"]) == (1234.5, 700.0)
    assert found["evaluate"]["seconds"] < 60
    assert speed.read_cost(path, "cuda") is None  # a core's time says nothing of a GPU's


def test_a_run_that_cannot_be_estimated_is_told_once_and_has_no_estimate(
    asked, monkeypatch, capsys
):
    asked(request("a"), request("b"))

    def missing(data, manifest, raw):
        raise DataError("no such file")

    monkeypatch.setattr(speed, "size_of", missing)
    misfit = run(model_params={"in_features": 3, "hidden": [8], "num_classes": 10})
    left = asked(request("b", seed=4), request("c", seed=4), request("d", misfit))
    told = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1].strip() for line in told] == ["b and 1 more", "d"]
    assert told[0].startswith("time unknown: b and 1 more: no such file")
    assert {*left["runs"]} == {"a"}


def test_a_federation_that_cannot_be_dealt_is_no_plan(asked):
    with pytest.raises(ConfigError, match="toy/digits/fedavg: .* 100000 clients"):
        asked(request(partition={**IID, "num_clients": 100_000}))
