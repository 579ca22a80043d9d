"""The choice of an executor: by measurement, but only one that was asked for and is remembered."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from support import cohort_of, same_bits, sgd, tiny_task, toy_federation
from test_stages import SPEC, options, run_here, shards

from fedlib import methods, seals
from fedlib.engine.choice import rule
from fedlib.engine.device import DeviceData
from fedlib.engine.rewriting import available
from fedlib.errors import DataError
from fedlib.results import RunResult
from fedlib.run import calibrate, calibration
from fedlib.run.calibrate import MARGIN, decide
from fedlib.run.checkpoint import Checkpoints
from fedlib.run.simulate import Course

UNEVEN = (7, 12, 6, 10, 3)
OTHERS = {f"traced:{way}": 1.0 for way in available()}  # seconds that no choice depends on


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fedlib" / "executors.json"


def a_run(name="fedavg", sizes=UNEVEN, local=None, course=None, params=None, **network):
    """(method, data, course) of a small run."""
    task, federation = tiny_task(**network), toy_federation(sizes, unseen=0)
    method = methods.load(name)(task=task, local=local or sgd(), **(params or {}))
    data = DeviceData(federation, task.dtype, task.device)
    return method, data, course or Course(rounds=3, seed=0)


def test_the_rule_looks_at_all_modules_of_a_method():
    method, data, course = a_run("moe_fedavg", params={"gate": tiny_task(classes=2, hidden=30_000)})
    assert rule([method.task]) == "batched"
    assert calibration.chosen("auto", method, data, course).setting == "traced"


# -- the decision -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "prior", "expected"),
    [
        ({"loop": 1.0, "batched": 0.9}, "loop", "loop"),  # faster, but within noise
        ({"loop": MARGIN, "batched": 1.0}, "loop", "loop"),  # just not more than the margin
        ({"loop": MARGIN * 1.01, "batched": 1.0}, "loop", "batched"),
        ({"loop": 1.0, "batched": 1.01 * MARGIN}, "batched", "loop"),
        ({"loop": 9.0, "batched": 3.0, "batched:32": 2.0}, "loop", "batched:32"),
        ({"loop": 0.0, "batched": 0.0}, "loop", "loop"),  # nothing was trained
        ({"loop": 1.2, "traced": 1.0}, "loop", "traced"),  # the same bits need a smaller one
        ({"loop": 1.05, "traced": 1.0}, "loop", "loop"),
        ({"loop": 1.2, "traced": 1.0, "batched": 0.95}, "loop", "traced"),
        ({"batched": 1.2, "traced": 1.0}, "batched", "batched"),
        ({"traced": 1.2, "traced:onednn": 1.0}, "traced", "traced:onednn"),
        ({"traced": 1.05, "traced:fused": 1.0}, "traced", "traced"),
    ],
)
def test_another_executor_than_the_rules_must_be_faster_by_a_margin(seconds, prior, expected):
    assert decide(seconds, prior) == expected


def scripted(monkeypatch, seconds):
    """Make the time of a measured round depend on its executor alone -> executors, as timed"""
    real, timed = calibrate.Rounds._round, []

    def named(self, name, clients):
        run = real(self, name, clients)
        run.executor = name
        return run

    def time_of(run, device):
        run()
        timed.append(run.executor)
        return seconds[run.executor]

    monkeypatch.setattr(calibrate.Rounds, "_round", named)
    monkeypatch.setattr(calibrate, "_timed", time_of)
    return timed


def test_a_measurement_tells_the_times_and_the_winner(monkeypatch):
    times = {"loop": 0.01, "traced": 0.009, "batched": 0.02} | OTHERS
    scripted(monkeypatch, times)
    found = calibrate.measure(*a_run())
    # The rule says batched for a model this small; 0.02 is more than 1.3 times 0.009. There are
    # only 5 clients, so blocks of 32 would be the same as one.
    assert found == {"executor": "traced", "seconds": times}


def test_a_hopeless_executor_is_tried_once(monkeypatch):
    slow = 1.0 * calibrate.HOPELESS + 0.1
    timed = scripted(monkeypatch, {"loop": 1.0, "traced": 1.0, "batched": slow} | OTHERS)
    monkeypatch.setattr(calibrate, "rule", lambda task: "loop")
    monkeypatch.setattr(calibrate, "SHORT", 10.0)  # no step is too long for clients together
    calibrate.measure(*a_run())
    assert timed.count("batched") == 1


def test_steps_that_take_long_are_measured_one_by_one_with_one_client(monkeypatch):
    asked = []
    real = calibrate.Rounds.timed
    monkeypatch.setattr(
        calibrate.Rounds, "timed", lambda self, names: asked.append(self) or real(self, names)
    )
    monkeypatch.setattr(calibrate, "rule", lambda task: "loop")
    scripted(monkeypatch, {"loop": 5.0, "traced": 4.0} | OTHERS)
    found = calibrate.measure(*a_run())
    assert found["executor"] == "traced:fused"
    assert found["seconds"].keys() == {"loop", "traced", *OTHERS}
    assert len(asked[0].clients) == 1


def test_an_executor_that_cannot_do_the_round_is_left_out(monkeypatch):
    def breaks(run, device):
        if run.executor == "traced":
            raise RuntimeError("this layer cannot be traced")
        return 0.01

    scripted(monkeypatch, {})
    monkeypatch.setattr(calibrate, "_timed", breaks)
    assert calibrate.measure(*a_run())["seconds"].keys() == {"loop", "batched", *OTHERS}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("clustered", {}),
        ("l2sgd", {"params": {"p": 0.3, "lam": 0.1}}),
        ("fedavg", {"course": Course(rounds=1, seed=0, aggregation="gossip")}),
    ],
)
def test_methods_of_every_kind_are_measured_for_real(name, options):
    run = a_run(name, **options)
    found = calibrate.measure(*run)
    assert set(found["seconds"]) == {"loop", "traced", "batched", *OTHERS}
    assert all(seconds >= 0 for seconds in found["seconds"].values())
    assert found["executor"] == decide(found["seconds"], "batched")


def test_measuring_changes_neither_the_threads_nor_what_a_round_gives():
    method, data, course = a_run()
    before = torch.get_num_threads()

    def trained():
        state = method.init(len(UNEVEN), 0)
        return method.round(state, replace(cohort_of(method.task, data.federation), data=data))

    first = trained()
    torch.set_num_threads(2)
    try:
        calibrate.measure(method, data, course)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert same_bits(first, trained())


# -- long runs ----------------------------------------------------------------------------


def long_run(rounds=10_000):
    """(method, data, course) of a run of five clients, who do 11 local steps a round together."""
    return a_run(local=sgd(batch_size=4, epochs=1), course=Course(rounds=rounds, seed=0))


@pytest.mark.parametrize(
    # Three clients with two steps each are timed: 0.006 s are a millisecond a step, of which
    # 10,000 rounds have 110,000. Fewer than 600 steps are not timed.
    ("rounds", "seconds", "measures"),
    [(10_000, 0.033, True), (10_000, 0.032, False), (55, 9.9, True), (54, 99.0, False)],
)
def test_only_runs_of_more_than_ten_minutes_are_measured(monkeypatch, rounds, seconds, measures):
    timed = scripted(monkeypatch, dict.fromkeys(("loop", "traced", "batched", *OTHERS), seconds))
    lines = []
    entry = calibrate.known(long_run(rounds), lines.append)
    assert (entry is not None, len(lines) == 1, len(timed) > 1) == (measures,) * 3


def test_a_training_measures_once_and_its_record_names_the_executor(tmp_path, monkeypatch, capsys):
    """Another seed takes the same, and an executor that is asked for overrides what is measured."""
    monkeypatch.setattr(calibrate, "LONG", 0.0)
    times = {"loop": 1.0, "traced": 0.5, "batched": 1.0} | OTHERS
    timed = scripted(monkeypatch, times)
    root, found = shards(tmp_path), []
    for name, seed, more in (("a", 3, {}), ("b", 4, {}), ("c", 3, {"executor": "loop"})):
        spec = SPEC | {"rounds": 4, "seed": seed}
        assert run_here("train", options(root / name, spec, **more)) == 0
        told = RunResult.load(root / name / "history.h5").provenance
        found.append((told["executor"], told["execution"]["chosen_by"], len(timed)))
    measured = ("traced", "calibration", found[0][2])
    assert found == [measured, measured, ("loop", "force", found[0][2])]
    told = "fastest executor here: traced (loop 1000.0 ms, traced 500.0 ms, "
    assert capsys.readouterr().out.count(told) == 1


def test_a_cache_that_cannot_be_written_leaves_a_run_to_the_rule(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(calibrate, "LONG", 0.0)
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    folder = shards(tmp_path) / "run"
    assert run_here("train", options(folder, SPEC | {"rounds": 1})) == 0
    told = RunResult.load(folder / "history.h5").provenance
    assert told["execution"]["chosen_by"] == "rule"
    assert "executors are not measured: " in capsys.readouterr().out


# -- what is remembered -------------------------------------------------------------------


def remember(name, entry):
    """As if `entry` had been measured for the runs of that key."""
    seals.write_json(calibration.file(), calibration.remembered() | {name: entry})


def test_auto_follows_the_rule_until_something_was_measured(cache):
    executor = calibration.chosen("auto", *a_run())
    assert (executor.name, executor.notes["chosen_by"]) == ("batched", "rule")
    assert not cache.exists()  # asking measures nothing


def test_auto_takes_what_was_remembered_for_this_run_and_no_other(cache):
    run, other = a_run(), a_run(local=sgd(batch_size=8))
    remember(calibration.key(*run), {"executor": "batched:2", "seconds": {}})
    executor = calibration.chosen("auto", *run)
    assert (executor.setting, executor.notes["chosen_by"]) == ("batched:2", "calibration")
    assert calibration.chosen("auto", *other).notes["chosen_by"] == "rule"
    remember(calibration.key(*other), {"executor": "loop", "seconds": {}})
    assert calibration.chosen("auto", *other).name == "loop"
    assert len(seals.read_json(cache)) == 2


def test_a_damaged_file_is_named(cache):
    cache.parent.mkdir()
    cache.write_text("{")
    with pytest.raises(DataError, match=r"executors\.json is truncated or corrupted"):
        calibration.chosen("auto", *a_run())


def test_the_key_is_of_model_batches_cohort_and_machine(monkeypatch):
    reference = calibration.key(*a_run())
    other_runs = [
        a_run(hidden=7),
        a_run(norm=True),
        a_run("fedprox", params={"mu": 0.5}),
        a_run("fedem", params={"num_experts": 2}),
        a_run(local=sgd(batch_size=3)),
        a_run(local=sgd(epochs=4)),  # many more steps
        a_run(course=Course(rounds=3, seed=0, rate=0.4)),  # 2 of 5 clients
        a_run(sizes=UNEVEN * 4),
    ]
    keys = [calibration.key(*run) for run in other_runs]
    assert len({reference, *keys}) == 1 + len(other_runs)
    # A run of another seed and length, on as many threads as one likes, takes the same executor.
    assert calibration.key(*a_run(course=Course(rounds=9, seed=5))) == reference
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert calibration.key(*a_run()) == reference
    monkeypatch.setattr(calibration, "device_name", lambda device: "another machine")
    assert calibration.key(*a_run()) != reference


@pytest.mark.parametrize(("number", "expected"), [(1, 1), (2, 2), (3, 4), (10, 16), (16, 16)])
def test_cohorts_of_similar_size_share_a_measurement(number, expected):
    assert calibration._size_class(number) == expected  # the next power of two


# -- a run that was interrupted -----------------------------------------------------------


def test_a_resumed_run_keeps_its_executor_whatever_was_measured_since(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_THREADS", "2")
    # A run whose last checkpoint is left behind goes on from there when started again.
    monkeypatch.setattr(Checkpoints, "clear", lambda self, last: None)
    folder, spec = shards(tmp_path) / "run", SPEC | {"rounds": 4, "evaluate_every": 2}
    found = []
    for measured in ("loop", "batched:2"):
        # The same entry for every run.
        entries = SimpleNamespace(get=lambda key, m=measured: {"executor": m, "seconds": {}})
        monkeypatch.setattr(calibration, "remembered", lambda e=entries: e)
        assert run_here("train", options(folder, spec)) == 0
        told = RunResult.load(folder / "history.h5").provenance
        found.append((told["executor"], told["execution"], (folder / "state.pt").read_bytes()))
    (first, began, state), (second, resumed, again) = found
    assert (first, began["chosen_by"]) == ("loop", "calibration")
    assert (second, resumed["chosen_by"]) == ("loop", "checkpoint")
    assert began["workers"] == resumed["workers"] == 2
    assert state == again
