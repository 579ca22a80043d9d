"""Why a job would run again is said by module and by field."""

import json

import numpy as np
import pytest
from conftest import toy_run

from fedlib.results import RunResult
from fedlib.seals import contents
from fedlib.workflow import freshness, provenance

JOB = {"paper": "toy", "federation": "digits", "label": "fedavg", "seed": 3}


@pytest.fixture
def plan(toy):
    """Function that plans a toy paper whose run has these other values."""
    return lambda **changes: toy(federations=("digits",), runs=[toy_run(**changes)])


@pytest.fixture
def done(plan, tmp_path, monkeypatch):
    """A folder in which the run is done."""
    monkeypatch.chdir(tmp_path)
    made = plan()
    freshness.record_modules(made)
    manifest = tmp_path / made.path("manifest", **JOB)
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    history, state = (tmp_path / made.path(name, **JOB) for name in ("history", "state"))
    history.parent.mkdir(parents=True)
    state.write_bytes(b"")
    nothing = np.array([0])
    RunResult(
        *(nothing, {}, nothing, nothing, nothing, nothing, np.array([])),
        spec=json.loads(made.spec("train", **JOB)),
        provenance={"code": made.code("train", **JOB), "inputs_sha256": contents(manifest)},
    ).save(history, state)
    return tmp_path


def told(plan):
    def specification(path):
        return RunResult.load(path).spec

    return list(freshness.explain(plan, "train", JOB, specification))


def test_what_is_done_is_up_to_date(plan, done):
    assert told(plan()) == ["results/demo/runs/toy/digits/fedavg/seed3/history.h5 is up to date"]


def test_a_field_of_the_specification_is_named_with_its_values(plan, done):
    local = {"solver": "sgd", "lr": 0.2, "batch_size": 32, "momentum": 0.9}
    assert told(plan(local=local)) == [
        "local.lr changed: 0.1 before, 0.2 now",
        "local.momentum is new: null before, 0.9 now",
    ]


def test_a_module_of_the_code_is_named(plan, done, monkeypatch):
    made = plan()
    then, meant = provenance.code_digest(*made.roots("train", **JOB)), provenance._contribution

    def edited(base, name):
        return "other" if name == "fedlib.engine.cohort" else meant(base, name)

    monkeypatch.setattr(provenance, "_contribution", edited)
    provenance._code_digest.cache_clear()
    try:
        assert provenance.code_digest(*made.roots("train", **JOB)) != then
        assert told(made) == ["fedlib.engine.cohort changed"]
        (done / made.path("code")).unlink()
        (line,) = told(made)
        assert line.startswith("code changed; results/demo/code.json does not have the modules")
    finally:
        provenance._code_digest.cache_clear()


def test_an_input_with_other_content_is_named(plan, done):
    made = plan()
    manifest = made.path("manifest", **JOB)
    (done / manifest).write_text("{ }")
    assert told(made) == [f"an input has other content: {manifest}"]
    (done / manifest).unlink()
    assert told(made) == [f"{manifest} is missing"]


def test_a_job_that_was_not_done_says_so(plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (line,) = told(plan())
    assert line.endswith("history.h5 is not there yet, or is of an older version")
    (line,) = freshness.explain(plan(), "download", {"dataset": "mnist"}, dict)
    assert line == "a download job keeps no record of what it was made of"
