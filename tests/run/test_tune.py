"""Tuning: what is tried and chosen, and that no test example and no reported seed has a say."""

import json
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import RULES
from conftest import toy_run
from every_method import METHODS, make
from stages import SPEC, assert_one_line, options, run_here
from support import silently, simulation_of, toy_federation

from fedlib import methods, papers, seals
from fedlib.cli import take
from fedlib.cli.run import steps
from fedlib.data import partitions
from fedlib.data.joined import Joined
from fedlib.engine.task import Task
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Split
from fedlib.methods.fedprox import FedProx
from fedlib.methods.parts.settings import LogUniform, OneOf, Uniform
from fedlib.results import RunResult, View
from fedlib.run import check, tune
from fedlib.run.build import build_simulation
from fedlib.run.evaluate import final
from fedlib.run.job import RAN
from fedlib.run_spec import RunSpec, Tuning
from fedlib.spec import SCALES, tables
from fedlib.workflow import freshness

TUNING = {"trials": 4, "rates": [0.01, 3.0]}
TO_TUNE = {**SPEC, "rounds": 6, "evaluate_every": 3, "seed": 9, "tuning": TUNING}
TUNED = RunSpec(**TO_TUNE)


def federation():
    """Clients of whom each has every third of its training examples for validation."""
    made = toy_federation(sizes=(18, 24, 15, 12))
    rows = [made.train.of(client) for client in range(made.num_clients)]
    train, val = ([own[np.arange(len(own)) % 3 != 0] for own in rows], [x[::3] for x in rows])
    return replace(made, train=Split.from_lists(train), val=Split.from_lists(val))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder beside shards, with a finished tuning. Read it only."""
    base = tmp_path_factory.mktemp("tuned")
    federation().save(base / "toy.h5", base / "toy.json")
    assert run_here("tune", asked(base / "whole")) == 0
    return base


def asked(folder, spec=TO_TUNE):
    """Arguments of tune.py."""
    outputs = {"trials": folder / "trials.json", "choice": folder / "choice.json"}
    absent = dict.fromkeys(("state", "history", "checkpoint-every"))
    return options(folder, spec, **outputs, **absent)


def write_choice(path, values, digest):
    seals.write_json(path, {"values": values, "tuning": digest})


def found(folder):
    return seals.read_json(folder / "trials.json")


def trained(spec, whole=True):
    """The record of an ordinary training."""
    data = federation() if whole else tune.drop_test(federation())
    _, result = build_simulation(spec, data).run(report=lambda line: None)
    return result


# -- how it is scored ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "protocol"), [("adaptive_experts", "moe"), ("pfedmoe", "default")]
)
def test_a_method_that_measures_test_examples_can_be_tuned_by_a_final_protocol(name, protocol):
    method = make(name)
    run = simulation_of(method, tune.drop_test(federation()), rounds=1)
    state, _ = silently(run)
    view = View("seen", protocol, "val")
    found = final(method, state, lambda group: run.everyone(group, 1), views=[view])
    assert 0 < tune.accuracy(found, view) <= 1


# -- what is tried ---------------------------------------------------------------------------------


def test_points_depend_on_the_seed_alone_and_stay_what_they_are():
    # As PyTorch 2.14 draws them: other points would be another experiment.
    np.testing.assert_allclose(tune.points(3, 100)[:, :2], GOLDEN, atol=1e-8)
    np.testing.assert_array_equal(tune.points(2, 100), tune.points(30, 100)[:2])
    assert tune.points(0, 100).shape == (0, tune.DIMENSIONS)
    # A power of two of them has one in every slice.
    slices = np.sort(np.floor(16 * tune.points(16, 5)), axis=0)
    np.testing.assert_array_equal(slices, np.arange(16)[:, None].repeat(tune.DIMENSIONS, 1))


GOLDEN = [[0.85861653, 0.09135267], [0.00258473, 0.94702516], [0.36681114, 0.34118142]]


def test_the_first_trial_is_as_declared_and_all_methods_try_the_same_rates():
    other = replace(TUNED, method="fedprox", params={"mu": 0.5})
    ours, theirs = tune.settings(TUNED), tune.settings(other)
    assert ours[0] == {"local.lr": 0.05, "params.num_experts": 2}
    assert theirs[0] == {"local.lr": 0.05, "params.mu": 0.5}
    rates = [trial["local.lr"] for trial in ours]
    assert rates == [trial["local.lr"] for trial in theirs] and len({*rates}) == 4
    assert all(0.01 <= rate <= 3 for rate in rates[1:])


def test_what_is_fixed_is_not_tried():
    fixed = replace(TUNED, tuning={**TUNING, "fixed": ["local.lr"]})
    assert {trial["local.lr"] for trial in tune.settings(fixed) if len(trial) == 2} == set()
    tried = [trial["params.num_experts"] for trial in tune.settings(fixed)]
    assert tried == [trial["params.num_experts"] for trial in tune.settings(TUNED)]
    assert tune.settings(replace(fixed, method="fedavg", params={})) == [{}]


def test_several_values_of_one_entry_are_all_set():
    ran = TUNED.set({"local.lr": 0.3, "local.momentum": 0.1, "params.num_experts": 5})
    assert ran.local == TUNED.local | {"lr": 0.3, "momentum": 0.1}
    assert ran.params == {"num_experts": 5} and ran.tuning is None


def test_ranges_are_gone_through_evenly_and_their_outer_tenths_are_edges():
    tried = LogUniform(1e-2, 1)
    assert [tried.at(x) for x in (0, 0.5, 1)] == [0.01, 0.1, 1.0]
    assert [Uniform(1, 3).at(x) for x in (0, 0.25)] == [1.0, 1.5]
    assert [OneOf((2, 3, 4)).at(x) for x in (0, 0.34, 0.999)] == [2, 3, 4]
    edges = {0.012: True, 0.02: False, 0.5: False, 0.9: True, 5.0: True}
    assert {value: tune.at_edge(tried, value) for value in edges} == edges
    assert not tune.at_edge(OneOf((2, 3)), 2)


@pytest.mark.parametrize("name", [name for name in METHODS if methods.load(name).SPACE])
def test_a_space_has_hyper_parameters_that_the_method_takes(name):
    method = make(name)
    assert {*method.SPACE} <= {field.name for field in fields(method)} - {"task", "local"}
    for where, tried in method.SPACE.items():
        for value in (tried.at(0), tried.at(0.5), tried.at(1 - 1e-9)):
            assert getattr(replace(method, **{where: value}), where) == value


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"nu": OneOf((1,))}, "SPACE of Mine: nu is none of its fields"),
        ({"mu": LogUniform(0, 1)}, "mu must go from a lower to a higher number"),
        ({"mu": Uniform(-1, 1)}, "mu must be at least 0, got -1"),
        ({"mu": (0, 1)}, "mu must be Uniform, LogUniform or OneOf"),
    ],
)
def test_a_space_that_leaves_what_a_field_may_be_is_refused_with_its_class(space, message):
    with pytest.raises(ValueError, match=message):
        type("Mine", (FedProx,), {"SPACE": space})


# -- what is chosen --------------------------------------------------------------------------------


def test_the_choice_is_that_of_a_loop_of_ordinary_trainings(folder):
    view, means = View("seen", "default", "val"), []
    for values in tune.settings(TUNED):
        local = {**SPEC["local"], "lr": values["local.lr"]}
        params = {"num_experts": values["params.num_experts"]}
        scores = trained(replace(TUNED, tuning=None, local=local, params=params)).scores[view]
        means.append((scores.correct[-1] / scores.count).mean())
    made = found(folder / "whole")
    assert [trial["accuracy"]["6"] for trial in made["trials"]] == pytest.approx(means, abs=0)
    assert made["chosen"] == int(np.argmax(means)) and len({*means}) > 1
    chosen = seals.read_json(folder / "whole" / "choice.json")
    assert chosen["values"] == tune.settings(TUNED)[made["chosen"]] == made["values"]


def test_without_validation_examples_nothing_is_tried(tmp_path, capsys, monkeypatch):
    tried = []
    monkeypatch.setattr(tune.Tuner, "_train", lambda *given: tried.append(given))
    toy_federation(sizes=(18, 24)).save(tmp_path / "toy.h5", tmp_path / "toy.json")
    assert run_here("tune", asked(tmp_path / "whole")) == 1
    told = capsys.readouterr().err
    assert "there are none: choose a partition with a validation part" in told and not tried


def test_nothing_of_a_trial_can_see_a_test_example():
    known = federation()
    known = replace(known, truth=np.full((len(known.x), 3), 1 / 3, np.float32))
    seen = tune.drop_test(known)
    assert not seen.test.sizes.any() and seen.truth is None
    assert {view.split for view in trained(TUNED.set({}), whole=False).scores} == {"val"}


def test_a_killed_job_goes_on_with_its_trials_and_writes_the_same_bytes(
    folder, tmp_path, monkeypatch
):
    begun, train = [], tune.Tuner._train

    def counted(self, values, rounds, name):
        begun.append(name)
        if name == "2/6" and begun.count(name) == 1:
            raise KeyboardInterrupt
        return train(self, values, rounds, name)

    monkeypatch.setattr(tune.Tuner, "_train", counted)
    words = [word.replace(str(folder / "whole"), str(tmp_path)) for word in asked(folder / "whole")]
    assert run_here("tune", words) == 130
    assert not (tmp_path / "choice.json").exists()
    assert run_here("tune", words) == 0
    assert begun == ["0/6", "1/6", "2/6", "2/6", "3/6"]
    for file in ("trials.json", "choice.json"):
        assert (tmp_path / file).read_bytes() == (folder / "whole" / file).read_bytes()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["lock"]


def test_of_trials_that_stop_early_the_best_quarter_goes_on(folder, tmp_path):
    tuning = {**TUNING, "trials": 8, "rung": True}
    spec = {**TO_TUNE, "method": "fedavg", "params": {}, "tuning": tuning, "rounds": 8}
    words = [word.replace(str(tmp_path), str(folder)) for word in asked(tmp_path / "rung", spec)]
    assert run_here("tune", words) == 0
    made = found(folder / "rung")["trials"]
    early = [trial["accuracy"]["2"] for trial in made]
    further = [n for n, trial in enumerate(made) if "8" in trial["accuracy"]]
    assert further == sorted(sorted(range(8), key=lambda n: -early[n])[:2])
    assert found(folder / "rung")["chosen"] in further


def test_a_rung_saves_trainings_where_there_are_more_trials_than_it_leaves():
    cost = {n: Tuning(trials=n, rates=(0.1,), rung=True).trainings for n in (4, 8)}
    assert cost == {4: 4, 8: 8 / 4 + 2}


def test_a_diverged_trial_cannot_be_chosen_and_without_another_there_is_an_error(folder, capsys):
    spec = {**TO_TUNE, "method": "fedavg", "params": {}, "tuning": {**TUNING, "trials": 2}}
    wild = {"solver": "sgd", "lr": 1e38, "batch_size": 4}
    assert run_here("tune", asked(folder / "wild", {**spec, "local": wild})) == 0
    made = found(folder / "wild")
    assert [trial["diverged"] for trial in made["trials"]] == [True, False]
    assert made["chosen"] == 1
    capsys.readouterr()
    spec |= {"local": wild, "tuning": {**TUNING, "trials": 1}}
    called = run_here("tune", asked(folder / "none", spec)), *capsys.readouterr()
    assert_one_line(called, "all 1 trials of fedavg diverged")


# -- runs that are tuned ---------------------------------------------------------------------------


def test_a_run_is_trained_by_what_was_chosen_and_its_history_says_so(folder, capsys):
    declared = {**TO_TUNE, "seed": 3}
    tuned = declared.pop("tuning") and {**declared, "tuned": seals.spec_digest(TO_TUNE)}
    place, values = folder / "run", found(folder / "whole")["values"]
    assert run_here("train", options(place, tuned, choice=folder / "whole" / "choice.json")) == 0
    history = RunResult.load(place / "history.h5")
    assert history.spec == tuned
    ran = RunSpec(**declared).set(values)
    assert history.provenance[RAN] == ran.to_json() != declared
    np.testing.assert_array_equal(history.train_loss, trained(ran).train_loss)
    asked_for = {"views": [["*", "*", "*"]], "predictions": [], **tuned}
    absent = {"checkpoint-every": None, "out": place / "evaluation.h5"}
    assert run_here("evaluate", options(place, asked_for, **absent)) == 0
    capsys.readouterr()
    write_choice(folder / "another.json", values, seals.spec_digest({**TO_TUNE, "seed": 8}))
    for choice, message in (
        (folder / "another.json", "another.json was made from specification"),
        (None, "the run is tuned: give what was chosen for it as --choice"),
    ):
        called = run_here("train", options(folder / "no", tuned, choice=choice))
        assert_one_line((called, *capsys.readouterr()), message)


def tuned_run(**tuning):
    return toy_run(tuning={"seed": 9, "trials": 3, "rates": [0.01, 1.0]} | tuning)


NAMES = {"paper": "toy", "federation": "digits", "label": "fedavg"}


@pytest.fixture
def tuned_alone(toy):
    """Function that plans a paper of one tuned run, for a configuration."""

    def make(config=(), **tuning):
        return toy(config, runs=(tuned_run(**tuning),), tables={}, figures={})

    return make


def test_a_plan_tunes_before_it_trains_and_only_the_choice_counts(toy):
    made = toy(runs=(tuned_run(), toy_run("mnist")), tables={}, figures={})
    stages = [stage for stage, job in made.jobs() if job.get("federation") == "digits"]
    assert stages[:3] == ["partition", "tune", "train"]
    spec = json.loads(made.spec("tune", **NAMES))
    assert (spec["seed"], spec["tuning"]) == (9, {"trials": 3, "rates": [0.01, 1.0]})
    assert json.loads(made.spec("train", **NAMES, seed=3))["tuned"] == seals.spec_digest(spec)
    assert "tuned" not in json.loads(made.spec("train", **NAMES | {"federation": "mnist"}, seed=3))
    read = freshness.list_inputs(made, "train", {**NAMES, "seed": 3})
    assert made.path("choice", **NAMES) in read and made.path("trials", **NAMES) not in read


def test_a_step_tunes_before_that_of_trainings_which_it_may_leave_as_they_are(
    tuned_alone, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    made, given = tuned_alone(), SimpleNamespace(config=[], configfile=[], options=[])
    assert [step[3:] for step in steps(given, made)] == [["partitions"], []]
    seals.write_json(made.files("history")[0], {})  # the files of its tuning were deleted
    assert [step[3:] for step in steps(given, made)] == [["partitions"], ["tunings"], []]
    assert 'PLAN.files("choice", "trials"),' in RULES


def test_every_seed_may_have_a_tuning_of_its_own(tuned_alone):
    made = tuned_alone(seed=200, per_seed=True)
    jobs = made.tunings()
    assert jobs == [{**NAMES, "for_seed": f"/seed{seed}"} for seed in (3, 4)]
    specs = [json.loads(made.spec("tune", **job)) for job in jobs]
    assert [spec["seed"] for spec in specs] == [203, 204] and "per_seed" not in str(specs)
    for seed, job in zip((3, 4), jobs, strict=True):
        assert made.choice(**NAMES, seed=seed) == [made.path("choice", **job)]
        training = json.loads(made.spec("train", **NAMES, seed=seed))
        assert training["tuned"] == made.digest("tune", **job)
        assert made.digest("tune", **job) == seals.spec_digest(json.loads(made.spec("tune", **job)))
    assert "tuned/toy/digits/fedavg/seed3/choice.json" in made.path("choice", **NAMES, seed=3)


@pytest.fixture
def elsewhere(tuned_alone, tmp_path, monkeypatch):
    """A plan with one tuning, that tuning in a pack, and a function that tunes it elsewhere."""
    monkeypatch.chdir(tmp_path)
    plan = tuned_alone()
    result = next(x for x in take.results(plan, Path("there")) if x.stages == ("tune",))
    seals.write_json(plan.path("manifest", **NAMES), {})

    def tuned(**changes):
        write_choice(result.theirs["choice"], {"local.lr": 0.1}, seals.spec_digest({}))
        spec, code = plan.digest("tune", **NAMES), plan.code("tune", **NAMES)
        read = seals.contents(*freshness.list_inputs(plan, "tune", NAMES))
        beside = seals.contents(result.theirs["choice"])
        made = seals.Made(spec, code, read, beside)._replace(**changes)
        seals.write_json(result.theirs["trials"], {seals.MADE: str(made)})

    return plan, result, tuned


def test_a_tuning_is_taken_once_whatever_its_code_and_counts_as_done(elsewhere):
    plan, result, tuned = elsewhere
    tuned(code="0" * 16)
    assert [take.take(plan, result) for _ in range(2)] == ["taken", "here already"]
    assert {*map(str, result.ours.values())} == freshness.check(plan).current
    result.ours["trials"].unlink()
    result.theirs["choice"].write_text("{}")
    with pytest.raises(DataError, match="choice.json is truncated or corrupted"):
        take.take(plan, result)


@pytest.mark.parametrize("rate", ["fedavg.local.lr=0.3", 'fedavg.local={"lr": 0.3}'])
@pytest.mark.parametrize(
    "trials", ["tuning.trials=7", 'tuning={"trials": 7, "rates": [0.01, 1.0]}']
)
def test_a_value_that_is_set_is_not_tuned(tuned_alone, rate, trials):
    made = tuned_alone({"tag": "t", "set": [rate, f"fedavg.{trials}"]})
    spec = json.loads(made.spec("tune", **NAMES))
    assert spec["local"]["lr"] == 0.3
    assert spec["tuning"] == {"trials": 7, "rates": [0.01, 1.0], "fixed": ["local.lr"]}


@pytest.mark.parametrize(
    ("tuning", "message"),
    [
        ({"seed": 3}, "tuning.seed must be none of the seeds of the run, 3, 4, got 3"),
        ({"seed": 1, "per_seed": True}, "tuning.seed must be none .* 3, 4, got 4, 5"),
        ({"seed": -5, "per_seed": True}, r"tuning.seed must be in .*, got \[-2, -1\]"),
        ({"trials": 0}, "tuning.trials"),
        ({"rates": [1.0, 0.1]}, "two rates above 0, the lower first"),
        ({"rounds": 3}, "tuning.*rounds"),
    ],
)
def test_a_way_of_tuning_that_makes_no_sense_is_refused(tuned_alone, tuning, message):
    with pytest.raises(ConfigError, match=message):
        tuned_alone(**tuning)


def test_a_selection_cannot_report_the_seed_that_tunes(tuned_alone):
    with pytest.raises(ConfigError, match="what tunes a run is not reported"):
        tuned_alone({"seeds": [9]})


# -- the benchmark ---------------------------------------------------------------------------------


# Kinds that show the round with the highest test accuracy.
AT_BEST = tables.Accuracy | tables.BesidePublished | tables.Gains


def cheats(paper):
    """What in a paper lets test examples, or the seed that tunes, have a say."""
    for run in paper.runs:
        method = check.check(run.spec(0))
        own = {name: x for name, x in vars(method).items() if not isinstance(x, Task)}
        yield from (f"{run.label}.{name}" for name, value in own.items() if value == "test")
        if run.tuning is None or run.tuning["seed"] in paper.seeds_of(run):
            yield f"{run.label}.tuning"
    for name, exhibit in {**paper.tables, **paper.figures}.items():
        if '"at": "best"' in json.dumps(exhibit.params) or isinstance(exhibit, AT_BEST):
            yield f"{name}.at"
    for data in paper.data:
        kind = partitions.load(data.partition["kind"])
        if data.per_seed and issubclass(kind, Joined):  # it mixes training and test examples
            yield f"{data.name}.per_seed"


@pytest.mark.parametrize("scale", SCALES)
def test_no_test_example_has_a_say_in_the_benchmark(scale):
    assert [*cheats(papers.declare("benchmark", scale))] == []


def test_planted_cheats_are_found():
    paper = papers.declare("benchmark", "demo")
    run = next(run for run in paper.runs if run.label == "fedem")
    params = {"num_experts": 2, "stop_split": "test"}
    stops = replace(run, label="ifca", method="ifca", params=params)
    seed = {**run.tuning, "seed": paper.seeds[0]}
    runs = (stops, replace(run, tuning=seed), replace(run, label="untuned", tuning=None))
    best = {"best": tables.Accuracy("T", "C.", ("fedem",), (run.federation,))}
    planted = [*cheats(replace(paper, runs=runs, tables=best))]
    assert planted == ["ifca.stop_split", "fedem.tuning", "untuned.tuning", "best.at"]
