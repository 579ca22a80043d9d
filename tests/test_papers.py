"""The papers' declarations: everything declared constructs, and means what the paper says."""

import functools
import string
from types import SimpleNamespace

import pytest

from fedlib import methods, models, papers, tree
from fedlib.data import downloads, sources
from fedlib.data.build import check
from fedlib.engine.task import Task
from fedlib.errors import ConfigError
from fedlib.files import canonical_json
from fedlib.papers._frame import at_scale, everything, on
from fedlib.report.exhibits import setting
from fedlib.report.printed import read
from fedlib.run import buildable
from fedlib.run.build import build_method, build_task
from fedlib.spec import SCALES, tables
from fedlib.workflow.provenance import ROOT

DECLARED = [(name, scale) for name in papers.names() for scale in SCALES]
every_scale = pytest.mark.parametrize(("name", "scale"), DECLARED)


def declare(name, scale):
    return papers.load(name).declare(scale)


@every_scale
def test_every_run_constructs(name, scale):
    for run in declare(name, scale).runs:
        spec = run.spec(0)
        canonical_json(spec)
        buildable.check(spec)


@every_scale
def test_every_federation_names_a_data_set_and_a_partition_that_fits_it(name, scale):
    for declared in declare(name, scale).data:
        assert check(declared.spec()).needs is not None


@every_scale
def test_models_fit_their_data_sets(name, scale):
    paper = declare(name, scale)
    for run in paper.runs:
        dataset = sources.load(paper.federation(run.federation).dataset)
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
def test_what_a_table_or_figure_varies_is_stated_by_all_that_it_shows(name, scale):
    paper = declare(name, scale)
    for exhibit in (*paper.tables.values(), *paper.figures.values()):
        parameter = exhibit.params.get("parameter")
        if parameter is None:
            continue
        of_grids = "federation" if exhibit.kind == "protocol_grid" else "run"
        if exhibit.params.get("of", of_grids) == "federation":
            shown = [paper.federation(federation) for federation in exhibit.federations]
        else:
            cells = [(label, where) for label in exhibit.labels for where in exhibit.federations]
            shown = [run for run in paper.runs if (run.label, run.federation) in cells]
        assert shown
        for owner in shown:
            assert setting(parameter, owner.describe()) is not None  # else ConfigError


@every_scale
def test_a_label_means_the_same_method_and_title_in_every_federation(name, scale):
    meanings = {}
    for run in declare(name, scale).runs:
        meanings.setdefault(run.label, set()).add((run.title, run.method))
    assert all(len(meaning) == 1 for meaning in meanings.values())


@every_scale
def test_only_the_full_scale_is_without_a_word_on_its_differences(name, scale):
    paper = declare(name, scale)
    assert paper.scale_note
    for declared in paper.data:
        own = [note for note in declared.notes if not note.startswith("Clients that draw too few")]
        assert bool(own) == (scale != "full"), declared.name


def test_the_demo_needs_no_download():
    for name in papers.names():
        for declared in declare(name, "demo").data:
            assert not downloads.files(declared.dataset)


@pytest.mark.parametrize("name", papers.names())
def test_the_demo_is_a_part_of_demo_all_and_shows_as_much_once(name):
    small, large = declare(name, "demo"), declare(name, "demo-all")
    for run in small.runs:
        whole = large.run(run.federation, run.label)
        assert (whole.method, whole.model_params) == (run.method, run.model_params)
        assert run.rounds <= whole.rounds
        assert {*small.seeds_of(run)} <= {*large.seeds_of(run)}
    for data in small.data:
        assert large.federation(data.name) == data
    assert {run.method for run in small.runs} == {run.method for run in large.runs}
    for stage in ("tables", "figures"):
        shown, all_ = ({k: x.kind for k, x in getattr(p, stage).items()} for p in (small, large))
        assert shown == all_
    assert small.scale_note.partition(":")[2] == large.scale_note.partition(":")[2]
    assert small.scale_note.startswith("demo: ")
    assert large.scale_note.startswith("demo-all: ")


def test_an_unknown_scale_names_the_choices():
    for name in papers.names():
        with pytest.raises(ConfigError, match="demo, demo-all, reduced, full, got 'huge'"):
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


def test_an_unknown_run_names_the_choices():
    paper = declare("pfedmm", "demo")
    with pytest.raises(KeyError, match="no run digits/fedm; .* declares digits/local"):
        paper.run("digits", "fedm")


def published(paper):
    return read(ROOT / f"fedlib/papers/{paper}/published.csv").to_dict("records")


def test_every_number_of_the_main_table_has_a_run():
    paper = declare("pfedmm", "full")
    declared = {(paper.federation(run.federation).dataset, run.label) for run in paper.runs}
    main = {(r["dataset"], r["label"]) for r in published("pfedmm") if r["exhibit"] == "main"}
    assert len(main) == 9 * 3
    assert main <= declared


def test_every_number_of_fedem_s_readme_has_a_run_on_the_data_that_only_fedem_reports():
    paper = declare("pfedmm", "full")
    table = paper.tables["fedem_data"]
    readme = [r for r in published("pfedmm") if r["exhibit"] == table.published]
    ours = {paper.federation(name).dataset: name for name in table.federations}
    there = {(r["dataset"], r["label"]) for r in readme if r["dataset"] in ours}
    assert {dataset for dataset, _ in there} == {"femnist", "shakespeare"}
    for dataset, label in there:
        assert paper.run(ours[dataset], label)


# Section 6.2: learning rates of FedEM's scripts, and the strengths of FedProx and pFedMe.
FEDEM_SCRIPTS = {
    "femnist": {
        **{"fedavg": 0.03, "fedavg-plus": 0.03, "local": 0.01, "clustered": 0.01},
        **{"fedprox": 0.05, "pfedme": 0.03, "fedem": 0.03},
    },
    "shakespeare": {
        **{"fedavg": 0.01, "fedavg-plus": 0.01, "local": 0.01, "clustered": 0.01},
        **{"fedprox": 0.01, "pfedme": 0.01, "fedem": 0.05},
    },
}


@pytest.mark.parametrize(
    ("federation", "fedprox_mu", "pfedme_mu"), [("femnist", 0.05, 10), ("shakespeare", 0.1, 1)]
)
def test_the_full_scale_has_the_settings_of_fedem_s_scripts(federation, fedprox_mu, pfedme_mu):
    paper = declare("pfedmm", "full")
    for label, rate in FEDEM_SCRIPTS[federation].items():
        run = paper.run(federation, label)
        assert (run.local["lr"], run.local["batch_size"]) == (rate, 128)
        assert (run.rounds, run.evaluate_every) == (201, 5)
    assert paper.run(federation, "fedprox").params == {"mu": fedprox_mu}
    assert paper.run(federation, "pfedme").params == {"mu": pfedme_mu}
    assert paper.run(federation, "fedem").params == {"num_experts": 3}


def test_methods_without_a_published_number_say_so_on_fedem_s_data():
    paper = declare("pfedmm", "full")
    for federation in paper.tables["fedem_data"].federations:
        notes = " ".join(paper.run(federation, "pfedmm").notes)
        assert "no number is published" in notes or "no paper runs it" in notes


def test_only_shakespeare_weighs_the_characters_in_the_training_loss():
    paper = declare("pfedmm", "full")
    for run in paper.runs:
        dataset = paper.federation(run.federation).dataset
        assert (run.class_weights is not None) == (dataset == "shakespeare")
    spec = paper.run("shakespeare", "fedavg").spec(0)
    task = build_task(spec)
    weights = dict(zip(string.printable, task.class_weights.tolist(), strict=True))
    # Section 3.9; in float32.
    assert weights["e"] == pytest.approx(8 * 0.134556)
    assert weights[" "] == pytest.approx(8 * 0.042501)
    assert weights["z"] == weights["E"] == weights["\t"] == 8
    assert sum(weight != 8 for weight in weights.values()) == 23


def test_class_weights_must_be_as_many_as_the_classes():
    spec = declare("pfedmm", "full").run("shakespeare", "fedavg").spec(0)
    with pytest.raises(ConfigError, match="99 class_weights for 100 classes"):
        build_task(spec | {"class_weights": spec["class_weights"][1:]})


@pytest.mark.parametrize(("scale", "alphas"), [("full", 6), ("demo", 3)])
def test_heterogeneity_varies_nothing_but_the_concentration(scale, alphas):
    paper = declare("pfedmm", scale)
    sweep = paper.tables["heterogeneity"]
    families = {}
    for name in sweep.federations:
        described = paper.federation(name).describe()
        families.setdefault(described["family"], []).append(described["partition"]["alpha"])
        base = paper.federation(name.split("-alpha")[0]).spec()
        partition = {**base["partition"], "alpha": described["partition"]["alpha"]}
        assert paper.federation(name).spec() == {**base, "partition": partition}
    assert all(sorted(set(found)) == sorted(found) for found in families.values())
    assert {len(found) for found in families.values()} == {alphas}


# Section 6.1 of the specification: R, learning rates and mu at alpha = 0.4.
ORDER = (
    *("local", "fedavg", "fedprox", "fedavg-plus", "clustered"),
    *("pfedme", "fedem", "gated-experts", "pfedmm"),
)
RATES = {
    "emnist": (0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.03, 0.03, 0.03),
    "cifar10": (0.03, 0.01, 0.01, 0.001, 0.003, 0.001, 0.03, 0.03, 0.03),
    "cifar100": (0.01, 0.01, 0.01, 0.001, 0.01, 0.001, 0.03, 0.03, 0.03),
}


@pytest.mark.parametrize(
    ("federation", "rounds", "mu"),
    [("emnist", 100, 0.1), ("cifar10", 200, 1), ("cifar100", 200, 0.1)],
)
def test_the_full_scale_of_pfedmm_has_the_scripts_settings(federation, rounds, mu):
    paper = declare("pfedmm", "full")
    runs = {label: paper.run(federation, label) for label in ORDER}
    assert tuple(run.local["lr"] for run in runs.values()) == RATES[federation]
    for label, run in runs.items():
        assert run.rounds == rounds + 1
        assert run.local["batch_size"] == 128
        assert run.local["schedule"]["milestones"] == [rounds // 2, 3 * rounds // 4]
        assert run.local["momentum"] == (0 if label in ("fedprox", "pfedme") else 0.9)
        assert run.local["weight_decay"] == 5e-4
        assert run.local["drop_last"] == (federation != "emnist")
        assert (run.weights is not None) == (federation != "emnist")
    assert runs["fedprox"].params == {"mu": mu}
    assert runs["pfedme"].params == {"mu": 1.0}
    assert runs["gated-experts"].params["num_experts"] == 2
    assert runs["fedem"].params == {"num_experts": 3}
    assert runs["pfedmm"].params == {"num_experts": 3, "relu_logits": federation == "emnist"}
    assert 1234 in paper.seeds


def test_the_reduced_scale_of_pfedmm_is_the_beginning_of_the_papers_runs():
    reduced, full = declare("pfedmm", "reduced"), declare("pfedmm", "full")
    for run in reduced.runs:
        whole = full.run(run.federation, run.label)
        assert run.rounds < whole.rounds and run.params == whole.params
        sizes = {"batch_size": run.local["batch_size"]}
        assert run.local == whole.local | (sizes if run.federation == "cifar10" else {})


# Section 7: float parameters per client and direction and round, batch statistics not counted.
SENT = {
    ("emnist", "fedavg"): 2_278_334,
    ("emnist", "fedem"): 3 * 2_278_334,
    ("emnist", "pfedmm"): 2_151_296 + 3 * 127_038,
    ("cifar10", "fedavg"): 2_236_682,
    ("cifar10", "fedem"): 3 * 2_236_682,
    ("cifar10", "pfedmm"): 2_223_872 + 3 * 12_810,
    ("cifar100", "pfedmm"): 2_223_872 + 3 * 128_100,
    ("emnist", "gated-experts"): 2_278_334,
    ("cifar10", "gated-experts"): 2_236_682,
}


@pytest.mark.parametrize(("federation", "label"), SENT)
def test_what_the_paper_s_models_send_is_what_the_specification_counts(federation, label):
    run = declare("pfedmm", "full").run(federation, label)
    model = models.load(run.model)
    task = Task(lambda: model.build(**run.model_params))
    method = build_method(run.spec(0), task)
    [shared] = method.shared
    state = method.init(1, 0)
    assert tree.numel(task.trainable(getattr(state, shared))) == SENT[federation, label]


def test_registries_and_folders_agree():
    assert set(methods.METHODS) == {p.stem for p in (ROOT / "fedlib/methods").glob("*.py")} - {
        "__init__",
        "base",
        "class_statistics",
        "gated_mixture",
        "pooled_mixture",
        "table_mixture",
        "trained_mixture",
    }
    assert set(models.MODELS) == {p.stem for p in (ROOT / "fedlib/models").glob("*.py")} - {
        "__init__",
    }
