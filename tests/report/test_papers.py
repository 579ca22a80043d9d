"""The papers' declarations: everything declared constructs, and means what the paper says."""

import functools
import json
import string
from dataclasses import replace
from types import SimpleNamespace

import large_paper
import pytest
import same
from support import run_of

from fedlib import papers, tree
from fedlib.data import downloads, sources
from fedlib.data.build import build, check
from fedlib.errors import ConfigError
from fedlib.papers._frame import at_scale, everything, on
from fedlib.report.exhibits import setting
from fedlib.report.printed import read
from fedlib.run.build import build_method, build_task
from fedlib.spec import SCALES, tables
from fedlib.workflow.provenance import ROOT

DECLARED = [(name, scale) for name in papers.names() for scale in SCALES]
KEPT = json.loads((ROOT / "tests/kept.json").read_bytes())["declared"]
every_scale = pytest.mark.parametrize(("name", "scale"), DECLARED)


@functools.cache
def declare(name, scale):
    return papers.load(name).declare(scale)


def data_of(paper):
    return {data.name: data for data in paper.data}


def test_the_paper_of_slow_tests_is_declared_as_others_are():
    assert large_paper.declare("demo").runs


@every_scale
def test_every_federation_names_a_data_set_and_a_partition_that_fits_it(name, scale):
    for declared in declare(name, scale).data:
        assert check(declared.spec()).needs is not None


@every_scale
def test_models_fit_their_data_sets(name, scale):
    paper = declare(name, scale)
    for run in paper.runs:
        dataset = sources.load(data_of(paper)[run.federation].dataset)
        if dataset.NUM_CLASSES is not None:  # of own data, files decide
            assert run.model_params["num_classes"] == dataset.NUM_CLASSES


@every_scale
def test_runs_are_unique_and_exhibits_name_runs_that_exist(name, scale):
    paper = declare(name, scale)
    names = [(run.federation, run.label) for run in paper.runs]
    assert len(names) == len(set(names))
    for exhibit in (*paper.tables.values(), *paper.figures.values()):
        shown = {
            (federation, label)
            for federation in exhibit.federations
            for label in exhibit.labels
            if (federation, label) in names
        }
        assert {federation for federation, _ in shown} == set(exhibit.federations)
        assert {label for _, label in shown} == set(exhibit.labels)


@every_scale
def test_every_run_is_shown_somewhere(name, scale):
    paper = declare(name, scale)
    for run in paper.runs:
        assert paper.exhibits_of(run.federation, run.label), run


@every_scale
def test_what_is_declared_is_as_ever(name, scale):
    """Where it is meant to change, `tests/same.py` writes the digests again."""
    assert {**KEPT, **dict(same.declared_by(declare(name, scale)))} == KEPT


def test_what_is_published_is_as_ever():
    assert dict(same.published()).items() <= KEPT.items()


@every_scale
def test_what_a_table_or_figure_varies_is_stated_by_all_that_it_shows(name, scale):
    paper = declare(name, scale)
    for exhibit in (*paper.tables.values(), *paper.figures.values()):
        parameter = exhibit.params.get("parameter")
        if parameter is None:
            continue
        of_grids = "federation" if exhibit.kind == "protocol_grid" else "run"
        if exhibit.params.get("of", of_grids) == "federation":
            shown = [data_of(paper)[name] for name in exhibit.federations]
        else:
            cells = [(label, where) for label in exhibit.labels for where in exhibit.federations]
            shown = [run for run in paper.runs if (run.label, run.federation) in cells]
        assert shown
        for owner in shown:
            assert setting(parameter, owner) is not None  # else ConfigError


@every_scale
def test_a_label_means_the_same_method_and_title_in_every_federation(name, scale):
    meanings = {}
    for run in declare(name, scale).runs:
        meanings.setdefault(run.label, set()).add((run.title, run.method))
    assert all(len(meaning) == 1 for meaning in meanings.values())


@every_scale
def test_only_the_full_scale_is_without_a_word_on_its_differences(name, scale):
    paper = declare(name, scale)
    assert paper.scale_note.startswith(f"{scale}: ")
    if not papers.count_printed(name):
        return  # there is nothing to differ from
    for declared in paper.data:
        assert bool(declared.notes) == (scale != "full"), declared.name


def test_two_trials_with_a_partition_each_have_other_clients_of_the_same_kind():
    for declared in declare("adaptive_experts", "demo").data:
        one, again, other = (build(declared.spec(seed), "data/raw") for seed in (0, 0, 1))
        assert one.digests == again.digests
        assert one.digests["train/rows"] != other.digests["train/rows"]
        assert one.train.sizes.tolist() == other.train.sizes.tolist()


def test_the_demo_needs_no_download():
    for name in papers.names():
        for declared in declare(name, "demo").data:
            assert not downloads.files(declared.dataset)


def test_an_unknown_scale_names_the_choices():
    for name in papers.names():
        with pytest.raises(ConfigError, match="demo, reduced, full, got 'huge'"):
            declare(name, "huge")


def test_an_exhibit_of_a_scale_shows_what_is_run_there_of_the_settings_it_is_for():
    def made(name, role, *labels):
        return SimpleNamespace(data=SimpleNamespace(name=name), roles=(role,), labels=labels)

    settings = [made("a", "main", "x", "y"), made("b", "other", "z"), made("c", "main", "u")]
    runs = [SimpleNamespace(federation=s.data.name, label=x) for s in settings for x in s.labels]
    cost = functools.partial(tables.Cost, "Cost", "What it costs.")
    shown = {
        "all": cost(everything, on("main")),
        "some": cost(("v", "y", "z", "x"), on("main"), personal=lambda shown: len(shown) == 2),
        "none": cost(everything, on("main", where=lambda setting: "z" in setting.labels)),
    }
    assert at_scale(shown, settings, runs) == {
        "all": cost(("x", "y", "u"), ("a", "c")),
        "some": cost(("y", "x"), ("a",), personal=True),
    }


def test_only_shakespeare_weighs_the_characters_in_the_training_loss():
    paper = declare("pfedmm", "full")
    for run in paper.runs:
        dataset = data_of(paper)[run.federation].dataset
        assert (run.class_weights is not None) == (dataset == "shakespeare")
    spec = run_of(paper, "shakespeare", "fedavg").spec(0)
    task = build_task(spec)
    weights = dict(zip(string.printable, task.class_weights.tolist(), strict=True))
    # Section 3.9; in float32.
    assert weights["e"] == pytest.approx(8 * 0.134556)
    assert weights[" "] == pytest.approx(8 * 0.042501)
    assert weights["z"] == weights["E"] == weights["\t"] == 8
    assert sum(weight != 8 for weight in weights.values()) == 23


def test_class_weights_must_be_as_many_as_the_classes():
    spec = run_of(declare("pfedmm", "full"), "shakespeare", "fedavg").spec(0)
    with pytest.raises(ConfigError, match="class_weights must be 100 numbers "):
        build_task(replace(spec, class_weights=spec.class_weights[1:]))


MESSAGES = {  # numbers in a message, FedMix's README, section 8
    "cifar10": (878_538, 878_528, 876_106, 1_757_096, 3_514_192, 8_785_480),
    "cifar100": (275_572, 275_472, 261_092, 551_344, 1_102_688, 2_756_720),
    "femnist": (608_702, 608_640, 607_870, 1_218_554, 2_437_108, 6_092_770),
}
OFF = {  # rows of Table 1 whose traffic is not by the rule, and published over by rule
    ("cifar10", "fedavg"): 1.0488,
    ("cifar10", "local-global"): 0.9953,
    **dict.fromkeys([("cifar100", "fedmix-k2"), ("cifar100", "fedmix-k10")], 0.917),
    ("cifar100", "fedavg"): 0.9871,
    **{("cifar10", f"fedmix-k{k}"): x for k, x in ((2, 0.9984), (4, 0.9978), (10, 0.9962))},
}


def test_messages_of_fedmix_have_the_sizes_that_its_table_of_traffic_implies():
    paper = declare("fedmix", "full")
    known = read(ROOT / "fedlib/papers/fedmix/published.csv").query("metric == 'gb'")
    printed = known.set_index(["dataset", "label"])["value"].to_dict()
    labels = "fedavg", "biased-fedavg", "local-global", "fedmix-k2", "fedmix-k4", "fedmix-k10"
    for federation, sizes in MESSAGES.items():
        for label, size in zip(labels, sizes, strict=True):
            run = run_of(paper, federation, label)
            spec = run.spec(0)
            state = build_method(spec, build_task(spec)).init(1, 0)
            sent = [getattr(state, name, {}) for name in ("params", "experts", "phi", "gate")]
            assert tree.numel(sent) == size
            gb = 2 * 10 * 4 * size * run.rounds / 2**30
            ratio = printed.pop((federation, label)) / gb
            assert ratio == pytest.approx(OFF.get((federation, label), 1), abs=1e-3)
    assert not printed
