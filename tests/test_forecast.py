"""What a run will cost: sizes, operations and arithmetic, each against what is counted or known."""

import json
import math
import statistics
import time

import pytest
import torch
from test_stages import SPEC

from fedlib.data import build, sizes
from fedlib.data.sizes import Sizes
from fedlib.engine import scratch
from fedlib.engine.executors import Loop
from fedlib.engine.task import Task
from fedlib.forecast import costs, counting, rates, rehearsal
from fedlib.forecast.rates import Rate
from fedlib.forecast.rehearsed import Kind, Load, Part, Phase, Rehearsed
from fedlib.run.build import build_simulation

IID = {"kind": "iid", "num_clients": 8, "train_fraction": 0.75}
DIGITS = {"dataset": "digits", "params": {}, "partition": IID, "seed": 3}
MLP = {"model": "mlp", "model_params": {"in_features": 64, "hidden": [8], "num_classes": 10}}
FIRST, SECOND = 64 * 8, 8 * 10  # multiply-adds of the layers
FORWARD, STEP = 2 * (FIRST + SECOND), 2 * (3 * (FIRST + SECOND) - FIRST)


def run(method="fedavg", rounds=10, batch_size=16, **changes) -> dict:
    local = {"solver": "sgd", "lr": 0.1, "batch_size": batch_size}
    return {**SPEC, **MLP, "method": method, "rounds": rounds, "local": local, "params": {}} | {
        "modules": {},
        "participation": {"rate": 0.5},
        "evaluate_every": 5,
        **changes,
    }


owned = sizes.sizes


# -- sizes --------------------------------------------------------------------------------


WORLD = {"seed": 1, "partition": {"kind": "natural"}, "dataset": "worlds"}


@pytest.mark.parametrize("world", ["regions", "heads"])
def test_a_world_has_inputs_that_are_long_enough_for_its_concepts(world):
    of_two = {"world": world, "num_clients": 2, "train_examples": 5}
    assert sizes.sizes({**WORLD, "params": of_two}).shape == [20]


def test_the_sizes_of_a_federation_are_those_of_the_federation():
    federation, expected = build.build(DIGITS, "."), sizes.sizes(DIGITS)
    for split in ("train", "val", "test"):
        assert getattr(expected, split) == federation.split(split).sizes.tolist()
    assert expected.shape == list(federation.x.shape[1:])
    assert expected.group == ["seen"] * 8


@pytest.mark.parametrize("dataset", ["cifar10", "mnist"])
def test_what_is_not_there_is_dealt_as_many_examples_as_it_has(dataset):
    stand_in = owned({**DIGITS, "dataset": dataset})
    total = {"cifar10": 60_000, "mnist": 70_000}[dataset]
    assert sum(stand_in.train) + sum(stand_in.test) == total
    assert sum(stand_in.train) == pytest.approx(0.75 * total, abs=8)


def test_texts_have_the_vocabulary_and_length_of_their_tokeniser():
    texts = {"dataset": "yelp", "params": {"train_per_class": 100, "test_per_class": 10}}
    found = owned({**DIGITS, **texts})
    assert (found.shape, found.tokens, found.dtype) == ([64], [50_257, 50_256], "int32")
    assert sum(found.train) + sum(found.test) == 5 * 110


def test_a_manifest_knows_better_than_the_declaration():
    declared = sizes.sizes(DIGITS)
    counts = {"train": [5, 6], "val": [0, 0], "test": [1, 2]}
    found = sizes.of_manifest({"sizes": counts, "group": ["seen", "unseen"]}, declared)
    assert (found.train, found.test, found.group) == ([5, 6], [1, 2], ["seen", "unseen"])
    assert found.shape == declared.shape


# -- rehearsals ---------------------------------------------------------------------------


def loads(spec: dict, phase: Phase) -> dict[Part, Load]:
    found = rehearsal.rehearse(spec, [], owned(DIGITS)).loads
    return {part: load for part, load in found.items() if part.phase == phase}


def test_a_round_of_fedavg_is_an_epoch_of_everybody():
    [(part, load)] = loads(run(), Phase.ROUND).items()
    assert (part.kind, part.group, part.epochs) == (Kind.FOLD, "seen", 1)
    assert (load.share, load.flops) == (1, STEP)


def test_fedem_scores_all_training_examples_besides_and_does_so_for_every_expert():
    found = loads(run("fedem", params={"num_experts": 3}), Phase.ROUND)
    flops = {(part.kind, part.split): load.flops for part, load in found.items()}
    assert flops[Kind.SCORE, "train"] == 3 * FORWARD
    assert flops[Kind.FOLD, "train"] == 3 * STEP


def test_an_evaluation_scores_the_test_examples_once():
    [(part, load)] = loads(run(), Phase.EVALUATION).items()
    assert (part.kind, part.split, load.flops) == (Kind.SCORE, "test", FORWARD)


def test_a_fixed_number_of_steps_is_told_from_epochs():
    local = {"solver": "sgd", "lr": 0.1, "batch_size": 16, "steps": 7}
    [part] = loads(run(local=local), Phase.ROUND)
    assert (part.epochs, part.steps) == (0, 7)


def test_a_rehearsal_is_the_same_after_it_was_kept():
    known = rehearsal.rehearse(run(), [("seen", "default", "test")], owned(DIGITS))
    assert Rehearsed.unpacked(json.loads(json.dumps(known.packed()))) == known


@pytest.mark.parametrize("method", ["fedem", "clustered", "fedavg_plus"])
def test_a_rehearsal_without_the_numbers_of_large_tensors_counts_the_same(method, monkeypatch):
    views = [("seen", "*", "train")]

    def counted(large: float) -> Rehearsed:
        monkeypatch.setattr(counting, "LARGE", large)
        spec = run(method, params={"num_experts": 3} if method == "fedem" else {})
        return rehearsal.rehearse(spec, views, owned(DIGITS))

    assert counted(FIRST) == counted(math.inf)


def test_a_model_too_large_to_be_tried_on_inputs_is_rehearsed(monkeypatch):
    monkeypatch.setattr(Task, "is_heavy", True)
    monkeypatch.setattr(rehearsal, "_BUILT", {})  # not built in another test
    assert loads(run(), Phase.ROUND)


def test_what_a_mask_chooses_of_a_large_tensor_is_computed():
    with counting.Unreal():
        x = torch.arange(2 * counting.LARGE)
        assert x[torch.zeros(len(x), dtype=torch.bool)].shape == (0,)


def test_large_tensors_have_the_shape_and_strides_of_results_and_zeros(monkeypatch):
    monkeypatch.setattr(counting, "LARGE", 100)
    x = torch.ones(10, 10)
    with counting.Unreal():
        x.add_(1)
        product = x.t() @ x
        made, small = x.new_full((2,), 0.5), x[0] + 1
        drawn = torch.empty(10, 10).normal_()
    assert x.eq(1).all() and small.eq(2).all() and made.eq(0.5).all()
    for zeros in (product, drawn):
        assert zeros.shape == (10, 10) and zeros.eq(0).all()


def test_the_state_of_clients_is_told_from_what_they_share():
    parameters = FIRST + 8 + SECOND + 10
    shared = rehearsal.rehearse(run(), [], owned(DIGITS))
    # Of each owner: its epochs so far.
    assert (shared.shared, shared.each["seen"], shared.sent) == (parameters, 1, parameters)
    assert shared.carried == parameters + 2  # and the sum and number of its losses
    own = rehearsal.rehearse(run("apfl", params={"alpha": 0.5}), [], owned(DIGITS))
    assert own.each["seen"] >= parameters
    # All have the same tensors until they have trained.
    alone = rehearsal.rehearse(run("local"), [], owned(DIGITS))
    assert (alone.shared, alone.each["seen"], alone.sent) == (0, parameters + 1, 0)


VAE = {"model": "vae", "params": {"in_features": 64, "hidden": [8], "latent": 2}}
VALIDATED = {**DIGITS, "partition": {**IID, "val_fraction": 0.25}}


def with_autoencoders(split: str = "test") -> dict[Part, Load]:
    spec = run("fedmix_vae", params={"num_experts": 1}, modules={"vae": VAE})
    views = [("seen", "new_shard_vae", split)]
    found = rehearsal.rehearse(spec, views, owned(VALIDATED))
    assert found.brief == 200  # epochs for one
    return {part: load for part, load in found.loads.items() if part.phase == Phase.FINAL}


def test_what_clients_train_for_the_end_is_in_epochs_whatever_the_batch_size():
    [(fold, load)] = [(t, x) for t, x in with_autoencoders().items() if t.kind == Kind.FOLD]
    assert (fold.batch, load.share, fold.epochs, fold.steps) == (10, 1, 1, 0)


def test_models_of_all_clients_that_are_asked_together_cost_more_with_more_clients():
    found = with_autoencoders()
    [tested] = [x for t, x in found.items() if (t.kind, t.split) == (Kind.SCORE, "test")]
    autoencoder = 2 * (64 * 8 + 8 * (2 + 2) + 2 * 8 + 8 * 64)
    # Every second test is by autoencoders, the other one (the default) by the experts alone; each
    # client has a gate for one expert besides.
    assert tested.share == 2
    assert tested.growth >= autoencoder / 2
    assert tested.growth == pytest.approx(autoencoder / 2, rel=0.05)
    assert tested.flops == pytest.approx(FORWARD, rel=0.05)


def test_clients_who_train_alone_do_so_for_as_many_rounds_as_others_did(monkeypatch):
    """Two rounds are rehearsed, whatever their number; and no step is computed twice."""
    steps, fold = [], Loop.fold
    monkeypatch.setattr(Loop, "fold", lambda *args: steps.append(1) or fold(*args))
    few = owned(DIGITS)
    some = few._replace(group=["seen"] * 4 + ["unseen"] * 4)
    found = rehearsal.rehearse(run("local"), [("unseen", "*", "test")], some)
    [(_, load)] = found.of(Phase.FINAL, Kind.FOLD)
    assert (load.share, load.lasting, len(steps)) == (1, 1, 1)


def test_what_is_held_out_is_counted_as_the_part_that_it_is():
    found = rehearsal.rehearse(run("fedapen", params={"holdout": 0.05}), [], owned(DIGITS))
    shares = {part.epochs: load.share for part, load in found.of(Phase.ROUND, Kind.FOLD)}
    assert shares == {10: pytest.approx(0.05, abs=0.01), 1: pytest.approx(0.95, abs=0.01)}


def test_a_mixture_has_the_experts_of_all_clients_and_not_of_those_rehearsed():
    gate = {"model": "mlp", "params": {"in_features": 64, "hidden": [8], "num_classes": 5}}
    params = {"num_experts": 4, "local_lr": 0.1, "gate_lr": 0.1, "cluster_init": "full"}
    expert = {"model": MLP["model"], "params": MLP["model_params"]}
    modules = {"gate": gate, "expert": expert}
    spec = run("adaptive_experts", params=params, modules=modules)
    found = rehearsal.rehearse(spec, [("seen", "ensemble", "test")], owned(VALIDATED))
    [tested] = [x for t, x in found.of(Phase.FINAL, Kind.SCORE) if t.split == "test"]
    # The default, when to stop training the own expert, and all four experts beside that one.
    assert tested.flops * tested.share == (1 + 1 + 5) * FORWARD


def test_nothing_grows_where_clients_are_asked_for_themselves():
    found = rehearsal.rehearse(run(), [("seen", "default", "train")], owned(DIGITS))
    assert {load.growth for load in found.loads.values()} == {0}


def test_who_is_scored_on_everybody_is_prepared_for_it():
    assert [part for part in with_autoencoders("shared") if part.kind == Kind.FOLD]


# -- arithmetic ---------------------------------------------------------------------------

RATE = Rate(fold=1e6, score=2e6, client=0.5)
FEW = Sizes(
    **{"shape": [4], "labels": [], "dtype": "float32", "num_classes": 2, "tokens": None},
    **{"side": 0, "clusters": 0, "group": ["seen"] * 4},
    **{"train": [10, 20, 30, 40], "val": [0] * 4, "test": [8] * 4},
)


def rehearsed(*done: tuple[Part, Load], **changes) -> Rehearsed:
    facts = {"shared": 10, "each": {"seen": 5}, "carried": 5, "sent": 5, "largest": 5}
    facts |= {"personal": 0, "shared_test": 0}
    facts |= {"whole": True, "busy": 1, "brief": 1, "finalists": 0}
    return Rehearsed(loads=dict(done), **facts | changes)


def part(
    phase: str, kind: str, split: str, epochs=1, steps=0, flops=1000.0, growth=0.0
) -> tuple[Part, Load]:
    which = Part(Phase(phase), Kind(kind), "seen", split, epochs, steps, batch=0)
    return which, Load(share=1, flops=flops, numbers=7, growth=growth)


def cost(*parts, spec=None, **changes):
    return costs.costs(spec or run(), FEW, rehearsed(*parts, **changes), RATE, batched=False)


def test_training_is_rounds_and_evaluations_and_what_each_client_takes():
    found = cost(part("round", "fold", "train"), part("evaluation", "score", "test"))
    # Two of four clients in each of 10 rounds with 25 examples on average; evaluations after 0, 5
    # and 10 rounds, of 32 test examples.
    steps, scored = 10 * 2 * 25 * 1000, 3 * 32 * 1000
    assert found["train"].flops == steps + scored
    expected = costs.START + steps / 1e6 + scored / 2e6 + 10 * 2 * 0.5
    assert found["train"].seconds == pytest.approx(expected)
    assert found["evaluate"].seconds == costs.START


def test_a_fixed_number_of_steps_has_full_batches_where_a_client_has_the_examples():
    found = cost(part("round", "fold", "train", epochs=0, steps=3))
    mean = 3 * (10 + 16 + 16 + 16) / 4
    assert found["train"].flops == pytest.approx(10 * 2 * mean * 1000)


def test_short_last_batches_that_are_dropped_cost_nothing():
    local = run()["local"] | {"drop_last": True}
    found = cost(part("round", "fold", "train"), spec=run(local=local))
    mean = (10 + 16 + 16 + 32) / 4  # a client's only batch is never dropped
    assert found["train"].flops == pytest.approx(10 * 2 * mean * 1000)


def test_final_protocols_of_few_clients_are_counted_for_these():
    found = cost(part("final", "fold", "train"), finalists=1)
    assert found["evaluate"].flops == pytest.approx(1 * 25 * 1000)


def test_clients_who_may_train_for_long_stop_early():
    epochs = {
        brief: cost(part("final", "fold", "train"), brief=brief)["evaluate"].flops / (100 * 1000)
        for brief in (4, 200)
    }
    assert epochs == {4: 4, 200: costs.STOPS_AFTER}


def test_operations_that_grow_with_the_clients_are_those_of_all_of_them():
    found = cost(part("final", "score", "test", flops=1000, growth=10))
    assert found["evaluate"].flops == 32 * (1000 + 4 * 10)


def test_training_once_for_each_round_lasts_as_long_as_there_are_rounds():
    which, load = part("final", "fold", "train")
    found = cost((which, load._replace(lasting=1.0)))
    assert found["evaluate"].flops == 10 * 100 * 1000


def test_memory_at_the_end_is_that_of_clients_who_train_for_it():
    def further(what, personal):
        with_them, without = (
            cost(part("final", what, "train"), personal=n)["evaluate"].mb for n in (personal, 0)
        )
        return pytest.approx(with_them - without)

    assert further("fold", 1e6) == 4 * 4
    assert further("fold", 1e9) == costs.FINAL_BYTES / 1e6
    assert further("score", 1e6) == 0


@pytest.mark.parametrize(
    ("whole", "room", "kept"),
    [
        (True, math.inf, 4),  # of four clients; those of a round become new ones as they train
        (False, math.inf, 4 + 2),  # old and new ones of the two of a round
        (True, 0, 0),  # in a file
    ],
)
def test_memory_grows_with_what_clients_keep_unless_it_is_in_a_file(whole, room, kept, monkeypatch):
    monkeypatch.setattr(scratch, "ROOM_SHARE", room)
    small, large = (
        cost(part("round", "fold", "train"), each={"seen": n}, largest=n, whole=whole)
        for n in (0, 1e6)
    )
    assert large["train"].mb - small["train"].mb == pytest.approx(4 * kept)
    assert large["evaluate"].mb == small["evaluate"].mb  # mapped from the state's file


def test_a_cohort_that_trains_part_by_part_has_the_models_of_one_part():
    many = {"carried": 1e7, "sent": 1e7}
    whole, parts = (
        cost(part("round", "fold", "train"), **many, whole=whole)["train"].mb
        for whole in (True, False)
    )
    copies = 2 * (1 + costs.COPIES_SENT) - costs.COPIES  # of two clients, and of one
    assert whole - parts == pytest.approx(copies * 4 * 10)  # of 40 MB each


@pytest.mark.parametrize(("method", "whole"), [("fedavg", False), ("clustered", True)])
def test_a_rehearsal_sees_whether_all_models_of_a_round_exist_at_once(method, whole):
    spec = run(method, participation={"rate": 1.0})
    assert rehearsal.rehearse(spec, [], owned(DIGITS)).whole == whole


# -- rates --------------------------------------------------------------------------------


def test_a_rate_is_positive_and_of_its_method_where_steps_are_short(monkeypatch):
    spec, few = run(), owned(DIGITS)
    known = rehearsal.rehearse(spec, [], few)
    found = rates.measure(spec, few, known, device="cpu", executor="batched")
    assert found.fold > 0 and found.score > 0 and found.client >= 0
    machine = rates.machine("cpu")

    def differ() -> bool:
        both = (rates.typical(x, few, known) or x for x in (spec, run("fedprox")))
        facts = [rates.facts(x, few, "batched", machine) for x in both]
        return facts[0] != facts[1]

    assert differ()
    monkeypatch.setattr(rates, "LONG_STEP", 0)
    assert not differ()


def test_a_model_too_large_to_be_tried_out_has_the_rate_of_a_product(monkeypatch):
    monkeypatch.setattr(rates, "WIDE", 64)
    found = rates.of_products("cpu")
    assert found.fold == found.score > 1e6 and 0 < found.client < 1e-4


def test_a_rehearsal_computes_one_batch_of_each_kind_of_clients(monkeypatch):
    """However many clients there are and however many steps they do, it counts all of them."""
    sizes, fold = [], Loop.fold

    def counted(loop, work, *args):
        sizes.append(len(work.ids))
        return fold(loop, work, *args)

    monkeypatch.setattr(Loop, "fold", counted)
    known = rehearsal.rehearse(run(local=run()["local"] | {"epochs": 3}), [], owned(DIGITS))
    assert sizes == [1]
    [(part, _)] = known.of(Phase.ROUND, Kind.FOLD)
    assert part.epochs == 3


@pytest.mark.slow
def test_the_estimated_time_of_training_is_about_what_training_takes():
    """Of a run that takes half a second: within a factor of 3, as the machine may be busy.

    Other work makes a moment three times as slow as the next one. So the rate is measured before
    each of three trainings, and the medians are compared.
    """
    spec, few = run(rounds=40, participation={"rate": 1.0}), owned(DIGITS)
    known = rehearsal.rehearse(spec, [], few)

    def expected() -> float:
        rate = rates.measure(spec, few, known, device="cpu", executor="loop")
        found = costs.costs(spec, few, known, rate, batched=False)
        return found["train"].seconds - costs.START

    def spent() -> float:
        simulation = build_simulation(spec, build.build(DIGITS, "."), executor="loop")
        begun = time.process_time()
        simulation.run(report=lambda line: None)
        return time.process_time() - begun

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured = [(expected(), spent()) for _ in range(3)]
    finally:
        torch.set_num_threads(before)
    forecast, took = map(statistics.median, zip(*measured, strict=True))
    assert 1 / 3 < forecast / took < 3, measured
