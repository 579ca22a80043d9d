"""Local experts: the same bits, trained in a run of their own or by every evaluation for itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import command
from conftest import toy_paper, toy_run
from stages import assert_one_line, evaluation, options, run_here, shards
from support import (
    assert_same_result,
    cohort_of,
    run_of,
    same_bits,
    sgd,
    silently,
    simulation_of,
    tiny_task,
    toy_federation,
)

from fedlib import methods, papers, tree
from fedlib.engine.task import Task
from fedlib.errors import ConfigError
from fedlib.methods.parts import early_stopping
from fedlib.methods.parts.own_experts import Networks
from fedlib.results import RunResult
from fedlib.run.build import build_method, build_task
from fedlib.run.evaluate import settles
from fedlib.run_spec import RunSpec
from fedlib.seals import spec_digest
from fedlib.spec import SCALES
from fedlib.workflow.plan import Plan

NETWORK = {"in_features": 4, "hidden": 6, "num_classes": 3}
EXPERT = NETWORK | {"hidden": 5}


def mixture(**changes):
    """A run of Adaptive Experts with `params`, and the entries of its specification, changed."""
    params = {
        **{"num_experts": 2, "cluster_init": "full", "member": "last", "lr_decay": True},
        **{"local_lr": 0.01, "local_epochs": 13, "local_patience": 2, "gate_lr": 0.01},
        **{"gate_epochs": 2, "local_weight_decay": 0.1},
    }
    networks = {"expert": EXPERT, "gate": NETWORK}
    run = toy_run(
        *("toy", "moe"),
        method="adaptive_experts",
        model_params=NETWORK,
        modules={name: {"model": "mlp", "params": each} for name, each in networks.items()},
        rounds=2,
        local={"solver": "sgd", "lr": 0.05, "batch_size": 4},
        params=params | changes.pop("params", {}),
    )
    return run.spec(3, spec_digest({})).to_json() | changes


def locals_of(**changes):
    """The run of its local experts."""
    params = {"lr_decay": True, "max_epochs": 13, "patience": 2, "keep": ["best", "last"]}
    run = toy_run(
        *("toy", "local"),
        method="local_experts",
        model_params=EXPERT,
        rounds=2,
        local={"solver": "adamw", "lr": 0.01, "batch_size": 4, "weight_decay": 0.1},
        params=params | {"at_once": 3} | changes.pop("params", {}),
    )
    return run.spec(3, spec_digest({})).to_json() | changes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained mixture, its local experts and its evaluation without them. Read it only."""
    base = shards(tmp_path_factory.mktemp("locals"))
    assert run_here("train", options(base / "moe", mixture())) == 0
    assert run_here("evaluate", evaluation(base / "moe", mixture())) == 0
    assert run_here("train", options(base / "local", locals_of())) == 0
    return base


@pytest.fixture
def call(capsys):
    """Function that runs a stage in this process: (exit code, stdout, stderr)."""
    return lambda stage, arguments: (run_here(stage, arguments), *capsys.readouterr())


def settled(base, name="local"):
    return ["--settled", *(str(base / name / file) for file in ("state.pt", "history.h5"))]


def evaluated(call, folder, out, *given):
    """The evaluation of the mixture that is given a run of local experts."""
    code, _, stderr = call("evaluate", [*evaluation(folder / "moe", mixture(), out=out), *given])
    assert (code, stderr) == (0, "")
    return RunResult.load(out)


def assert_equal(one, other):
    """Every score and diagnostic, bit by bit."""
    assert one.spec == other.spec
    assert_same_result(one, other)


# -- the same bits, from a run of their own --------------------------------------------------


def test_an_evaluation_with_given_local_experts_trains_none_and_has_the_same_bits(
    folder, tmp_path, call, monkeypatch
):
    alone = RunResult.load(folder / "moe" / "evaluation.h5")
    assert alone.diagnostics["examples_settle"].item() > 0  # counted whoever trained on them
    streams, fit = [], early_stopping.fit

    def noted(*args, stream, **options):
        streams.append(stream)
        return fit(*args, stream=stream, **options)

    monkeypatch.setattr(early_stopping, "fit", noted)
    # What an example costs is measured by training: with a client of each group, for an epoch.
    monkeypatch.setattr("fedlib.run.operations.measure", lambda *args: {})
    found = evaluated(call, folder, tmp_path / "out.h5", *settled(folder))
    assert set(streams) == {"finetune", "mixture"}
    flops = {name for name in alone.diagnostics if name.startswith("flops")}
    rest = {k: v for k, v in alone.diagnostics.items() if k not in flops}
    assert_equal(replace(alone, diagnostics=rest), found)
    state = RunResult.load(folder / "local" / "history.h5").provenance["state_sha256"]
    assert found.provenance["settled_sha256"] == state
    assert "settled_sha256" not in alone.provenance


def test_a_run_in_which_not_all_have_trained_is_no_help_and_no_harm(folder, tmp_path, call):
    # As where the configuration caps rounds: three of the four clients have trained.
    shards(tmp_path)
    assert run_here("train", options(tmp_path / "local", locals_of(rounds=1))) == 0
    found = evaluated(call, folder, tmp_path / "out.h5", *settled(tmp_path))
    assert_equal(RunResult.load(folder / "moe" / "evaluation.h5"), found)


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 4},
        {"model_params": EXPERT | {"hidden": 6}},
        {"precision": "bfloat16"},
        {"params": {"max_epochs": 12}},
        {"params": {"keep": ["best"]}},
        {"params": {"personal_clients": 2}},
        {"local": {"solver": "adamw", "lr": 0.02, "batch_size": 4, "weight_decay": 0.1}},
    ],
)
def test_what_would_not_be_trained_likewise_is_not_settled(changes):
    spec = RunSpec(**mixture())
    ours = build_method(spec, build_task(spec))
    assert settles(ours, spec, RunSpec(**locals_of()))
    assert not settles(ours, spec, RunSpec(**locals_of(**changes)))


def test_another_run_is_refused_in_one_line(folder, tmp_path, call):
    arguments = evaluation(folder / "moe", mixture(), out=tmp_path / "out.h5")
    message = "history.h5 is not of a run that settles what adaptive_experts would with seed 3"
    assert_one_line(call("evaluate", [*arguments, *settled(folder, "moe")]), message)  # itself
    # The same run on the shards of others.
    toy_federation((7, 12, 6, 9)).save(tmp_path / "toy.h5", tmp_path / "toy.json")
    assert run_here("train", options(tmp_path / "local", locals_of())) == 0
    assert_one_line(call("evaluate", [*arguments, *settled(tmp_path)]), message)
    missing = [*arguments, *settled(tmp_path, "nobody")]
    assert_one_line(call("evaluate", missing), "nobody/history.h5 does not exist")
    assert not (tmp_path / "out.h5").exists()


# -- the method --------------------------------------------------------------------------------


def make(**params):
    method = methods.load("local_experts")
    return method(task=tiny_task(), local=sgd(momentum=0.0), max_epochs=3, check_every=1, **params)


@pytest.mark.parametrize("at_once", [1, 2, 10])
def test_every_client_trains_once_and_alike_in_however_many_rounds(at_once):
    federation = toy_federation((7, 12, 6, 10, 9))  # the last one is unseen
    method = make(at_once=at_once)
    state, result = silently(simulation_of(method, federation, rounds=7))
    assert state.epochs.tolist() == [3] * 5
    assert result.examples[-1] == 3 * (7 + 12 + 6 + 10 + 9)
    rounds = {1: [1] * 5, 2: [2, 2, 1], 10: [4, 1]}[at_once]  # group by group
    done = np.cumsum(rounds).tolist()
    sizes = np.cumsum([0, 7, 12, 6, 10, 9])
    trained = ([0, *done] + [5] * 7)[:8]  # clients, round by round
    assert result.examples.tolist() == (3 * sizes[trained]).tolist()
    for group in ("seen", "unseen"):
        cohort = cohort_of(method.task, federation, federation.ids(group), round=4)
        trained = method.train(cohort).models["best"]
        own = method.trained(state, cohort)["best"]
        assert all(torch.equal(own[name], value) for name, value in trained.items())


@pytest.mark.parametrize(
    ("stopping", "epochs"),
    [
        ({"max_epochs": 10, "patience": 2}, 5),  # checks after epochs 1, 3 and 5, of which two fail
        ({"max_epochs": 10, "patience": 9}, 9),  # the tenth is of no use to the best
        ({"max_epochs": 10, "patience": 9, "keep": ["best", "last"]}, 10),
    ],
)
def test_an_equal_loss_is_no_better(stopping, epochs):
    method = methods.load("local_experts")
    method = method(task=tiny_task(), local=sgd(lr=0.0), check_every=2, **stopping)
    fitted = method.train(cohort_of(method.task, toy_federation()))
    assert fitted.epochs.tolist() == [epochs] * 3


def test_who_does_not_train_keeps_the_start():
    federation = toy_federation((7, 12, 6, 10, 9))
    method = make(personal_clients=2, groups=["seen"])
    state = method.init(5, 0)
    for number in range(3):
        state = method.round(state, cohort_of(method.task, federation, round=number))
    assert state.epochs.tolist() == [3, 3, 0, 0, 0]
    start = method.start(0)
    same = [same_bits(row, start) for row in state.models["best"]]
    assert same == [False, False, True, True, True]
    everybody = cohort_of(method.task, federation)
    assert method.trained(state, everybody) is None
    assert method.trained(state, everybody.some(np.arange(2))) is not None


# -- the plan ------------------------------------------------------------------------------------


def toy(declare, **config):
    runs = [toy_run(label=x, method="fedavg", settled_by="local") for x in ("eps", "none")]
    runs.append(toy_run(label="local", seeds=(3,)))
    declare(toy=toy_paper(federations=["digits"], runs=runs, tables={}, figures={}))
    return Plan({"papers": ["toy"], **config})


def test_an_evaluation_reads_only_a_run_that_there_is(declare):
    job = {"paper": "toy", "federation": "digits", "label": "eps"}
    plan = toy(declare)
    state, history = plan.settled_files(**job, seed=3)
    assert f" --settled {state} {history} " in command(plan, "evaluate", **job, seed=3)
    assert "--settled" not in command(plan, "train", **job, seed=3)
    assert plan.settled_files(**job, seed=4) == []  # of that seed nobody trains them
    assert "--settled" not in command(plan, "evaluate", **job, seed=4)
    few = toy(declare, labels=["eps"])
    assert few.settled_files(**job, seed=3) == []
    assert few.spec("evaluate", **job, seed=3) == plan.spec("evaluate", **job, seed=3)


def test_a_run_that_is_settled_by_nobody_is_refused(declare):
    runs = [toy_run(label="fedavg", settled_by="fedavg"), toy_run(label="fedem")]
    declare(toy=toy_paper(federations=["digits"], runs=runs, tables={}, figures={}))
    with pytest.raises(ConfigError, match=r"settled_by.*'fedavg'"):
        Plan({"papers": ["toy"]})


@pytest.mark.parametrize("scale", SCALES)
def test_declared_local_experts_are_what_the_runs_would_train(scale, monkeypatch):
    monkeypatch.setattr(Task, "__post_init__", lambda task: None)  # to build no network
    monkeypatch.setattr(Networks, "__post_init__", lambda networks: None)
    monkeypatch.setattr(methods.load("adaptive_experts"), "_redrawn", {"body"})
    paper, checked = papers.load("adaptive_experts").declare(scale), 0
    for run in paper.runs:
        if run.settled_by:
            spec, other = run.spec(0), run_of(paper, run.federation, run.settled_by).spec(0)
            method = build_method(spec, build_task(spec))
            assert settles(method, spec, other), (run.federation, run.label)
            shown = {x for t in paper.tables.values() for x in t.labels}
            assert other.params["groups"] in (["seen"], ["unseen"]) and run.settled_by in shown
            checked += 1
    assert checked >= 5


def test_the_models_of_a_run_are_taken_in_the_cohort_s_order():
    method = make()
    rows = tree.Rows({"w": torch.full((2,), float(k))} for k in range(3))
    state = method.init(3, 0)._replace(models={"best": rows}, epochs=torch.ones(3).long())
    found = method.trained(state, cohort_of(method.task, toy_federation(), [2, 0]))
    assert found["best"]["w"].tolist() == [[2, 2], [0, 0]]
