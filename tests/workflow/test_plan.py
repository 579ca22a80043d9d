import json
import os
import sys
from dataclasses import replace

import commands
import pytest
from conftest import toy_paper, toy_run

from fedlib import papers
from fedlib.cli import spec
from fedlib.data import downloads
from fedlib.errors import ConfigError
from fedlib.report import notes
from fedlib.spec import ExhibitSpec, tables
from fedlib.spec.figures import ClientDifferences, CostToTarget
from fedlib.workflow import config, declarations, provenance
from fedlib.workflow.config import normalise
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import Plan, Training
from fedlib.workflow.provenance import ROOT


def test_every_paper_is_planned_unless_some_are_named(declare):
    declare(one=toy_paper(name="one"), two=toy_paper(name="two"))
    assert list(Plan({}).papers) == ["one", "two"]
    assert list(Plan({"papers": ["two"]}).papers) == ["two"]
    assert {cell.paper for cell in Plan({}).trainings()} == {"one", "two"}


def test_the_paper_with_the_least_training_comes_first(declare):
    shown = {"tables": {}, "figures": {}}
    long = toy_paper(name="long", runs=(toy_run(rounds=9), toy_run("mnist", rounds=8)), **shown)
    short = toy_paper(name="short", runs=(toy_run(rounds=8), toy_run("mnist", rounds=8)), **shown)
    declare(long=long, short=short)
    assert list(Plan({}).papers) == ["long", "short"]
    assert Plan({}).turns() == ["short", "long"]


def test_jobs_come_after_what_they_read(toy):
    stages = [stage for stage, _ in toy().jobs()]
    assert list(dict.fromkeys(stages)) == [stage for stage in STAGES if stage != "tune"]
    counts = {"download": 2, "partition": 2, "train": 8, "evaluate": 8, "metrics": 1}
    counts |= {"table": 1, "figure": 1, "report": 1}
    assert {stage: stages.count(stage) for stage in {*stages}} == counts


# --- Paths ----------------------------------------------------------------------------------------


def test_a_tag_gives_a_folder_of_its_own_and_raw_files_may_be_elsewhere(toy):
    for raw in ("~/raw", "~//raw/", "~/./raw"):
        assert toy({"raw": raw}).config["raw"] == os.path.expanduser("~/raw")
    made = toy({"scale": "reduced", "tag": "quick", "raw": "/shared/raw"})
    assert made.path("report") == "results/reduced-quick/REPORT.md"
    assert made.path("figure_pdf", paper="toy", figure="f") == "figures/reduced-quick/toy/f.pdf"
    assert made.files("receipt") == ["/shared/raw/digits.json", "/shared/raw/mnist.json"]


def test_each_module_of_a_run_may_have_weights_and_none_is_downloaded_twice(toy):
    weights, other = downloads.weights()[:2]
    gate = {"model": "mlp", "params": {}}
    modules = {
        "gate": {**gate, "weights": other},
        "noise": {**gate, "weights": other},
        "plain": gate,
    }
    made = toy(runs=[toy_run(), toy_run(label="fedem", weights=weights, modules=modules)])
    assert {weights, other} <= {*made.downloads()}
    receipts = [f"data/raw/{name}.json" for name in (weights, other)]
    assert made.weights("toy", "digits", "fedem") == receipts
    run = {"paper": "toy", "federation": "digits", "label": "fedem", "seed": 3}
    assert f" --weights {' '.join(receipts)} " in commands.command(made, "train", **run)
    assert made.weights("toy", "digits", "fedavg") == []
    modules["gate"]["weights"] = "imagenet"
    with pytest.raises(ConfigError, match=r"modules\[gate\].weights: unknown 'imagenet'"):
        toy(runs=[toy_run(modules=modules)])


# --- Partitions -----------------------------------------------------------------------------------


@pytest.fixture
def recut(toy):
    """Function that plans the toy paper with a partition of its own for every seed of digits."""

    def make(config=(), **changes):
        digits, mnist = toy_paper().data
        return toy(config, data=(replace(digits, per_seed=True), mnist), **changes)

    return make


def test_every_seed_has_a_partition_of_its_own_where_the_declaration_says_so(recut):
    made = recut()
    assert made.partitions() == [
        {"paper": "toy", "federation": "digits", "replicate": "/seed3"},
        {"paper": "toy", "federation": "digits", "replicate": "/seed4"},
        {"paper": "toy", "federation": "mnist"},
    ]
    assert made.files("manifest") == [
        f"results/demo/shards/toy/{name}.json" for name in ("digits/seed3", "digits/seed4", "mnist")
    ]
    for seed in (3, 4):
        cell = Training("toy", "digits", "fedem", seed)._asdict()
        assert made.path("shards", **cell) == f"results/demo/shards/toy/digits/seed{seed}.h5"
        told = json.loads(made.spec("partition", **cell))
        assert (told["dataset"], told["seed"], told["replicate"]) == ("digits", 0, seed)


def test_there_is_a_partition_for_the_seeds_of_every_run_on_it(recut):
    runs = [toy_run(), toy_run(label="fedem", seeds=(4, 11, 9))]
    found = [job["replicate"] for job in recut(runs=runs, federations=("digits",)).partitions()]
    assert found == ["/seed3", "/seed4", "/seed11", "/seed9"]
    asked = recut({"seeds": [7]}, runs=runs, federations=("digits",)).partitions()
    assert [job["replicate"] for job in asked] == ["/seed7"]


def test_jobs_of_one_seed_are_named_by_it(recut):
    made = recut()
    wildcards = spec.jobs_of(made, "partition")["toy/digits/seed4"]
    assert made.path("shards", **wildcards) == "results/demo/shards/toy/digits/seed4.h5"
    assert '"replicate":4' in commands.command(made, "partition", **wildcards)
    train = commands.command(made, "train", **spec.jobs_of(made, "train")["toy/digits/fedem/seed4"])
    assert " --shards results/demo/shards/toy/digits/seed4.h5 " in train
    assert [*spec.jobs_of(made, "report")] == [""]


@pytest.mark.parametrize(
    "stage, wildcards, message",
    [
        ("train", {"federation": "digits", "label": "fedm", "seed": 3}, "no run toy/digits/fedm; "),
        ("train", {"federation": "digits", "label": "fedem", "seed": 7}, "no run .*/seed7; it is"),
        ("table", {"table": "nope"}, "no table nope; toy at scale demo has main"),
        ("report", {}, "no job of stage 'report' has the wildcards {'paper': 'toy'}"),
        ("partition", {"seed": 3}, "no job of stage 'partition' has the wildcards"),
    ],
)
def test_a_job_that_is_not_planned_is_named_with_the_choices(recut, stage, wildcards, message):
    with pytest.raises(ValueError, match=message):
        recut().spec(stage, paper="toy", **wildcards)


# --- Specifications and code ----------------------------------------------------------------------


def test_a_training_specification_is_the_run_s_and_the_seed_s(toy):
    made = toy()
    job = {"paper": "toy", "federation": "digits", "label": "fedem"}
    data = {"data": made.digest("partition", paper="toy", federation="digits")}
    expected = toy_run(label="fedem").spec(4).to_json() | data
    assert json.loads(made.spec("train", **job, seed="4")) == expected
    assert json.loads(made.spec("evaluate", **job, seed=4)) == expected | {
        "views": [],
        "predictions": [],
    }


def test_what_is_only_shown_is_in_the_exhibits_and_not_in_the_training(toy):
    plain, shown = toy(), toy(runs=[toy_run(title="Shown", notes=("odd",)), toy_run(label="fedem")])
    job = {"paper": "toy", "federation": "digits", "label": "fedavg", "seed": 3}
    assert shown.spec("train", **job) == plain.spec("train", **job)
    assert '"Shown"' in shown.spec("table", paper="toy", table="main")


def test_a_run_may_have_seeds_of_its_own_and_exhibits_show_those_that_all_have(toy):
    runs = [toy_run(), toy_run(label="fedem", seeds=(4, 5, 6))]
    made = toy(runs=runs, federations=("digits",))
    assert [(cell.label, cell.seed) for cell in made.trainings()] == [
        *(("fedavg", seed) for seed in (3, 4)),
        *(("fedem", seed) for seed in (4, 5, 6)),
    ]
    assert json.loads(made.spec("table", paper="toy", table="main"))["seeds"] == [4]
    told = json.loads(made.spec("metrics", paper="toy"))["runs"]
    assert [run["seeds"] for run in told] == [[3, 4], [4, 5, 6]]
    job = {"paper": "toy", "federation": "digits", "label": "fedem", "seed": 4}
    plain = toy(runs=[toy_run(), toy_run(label="fedem")], federations=("digits",))
    assert made.spec("train", **job) == plain.spec("train", **job)
    asked = toy({"seeds": [7]}, runs=runs, federations=("digits",))
    assert {cell.seed for cell in asked.trainings()} == {7}


def test_a_figure_reads_the_curves_beside_the_published_numbers_and_a_table_does_not():
    plan = Plan({"scale": "reduced", "papers": ["pfedmm"]})
    numbers = "fedlib/papers/pfedmm/published.csv"
    assert plan.published_files("table", "pfedmm", "main") == [numbers]
    curves = [numbers, "fedlib/papers/pfedmm/curves.csv"]
    assert plan.published_files("figure", "pfedmm", "accuracy_over_rounds") == curves


def test_a_download_depends_on_what_is_downloaded_and_on_no_reader(toy, monkeypatch):
    made = toy()
    roots = made.roots("download", dataset="mnist")
    assert not [m for m in provenance.closure(*roots) if m.startswith("fedlib.data.sources.")]
    assert made.code("download", dataset="mnist") == made.code("download", dataset="digits")
    before = made.spec("download", dataset="mnist"), made.spec("download", dataset="digits")
    files = downloads.table("mnist").files
    moved = replace(files["train_images"], urls=("https://elsewhere/train.gz",))
    monkeypatch.setitem(files, "train_images", moved)
    after = made.spec("download", dataset="mnist"), made.spec("download", dataset="digits")
    assert after[0] != before[0] and after[1] == before[1]
    assert "elsewhere" not in made.spec("partition", **{"paper": "toy", "federation": "mnist"})


# --- Selection ------------------------------------------------------------------------------------


def test_filters_shrink_what_is_trained_and_shown(toy):
    made = toy({"federations": ["mnist"], "labels": ["fedem"]})
    assert {cell[:3] for cell in made.trainings()} == {("toy", "mnist", "fedem")}
    assert made.downloads() == ["mnist"]
    spec = json.loads(made.spec("table", paper="toy", table="main"))
    assert [run["label"] for run in spec["runs"]] == ["fedem"]
    assert [federation["name"] for federation in spec["federations"]] == ["mnist"]


def test_capped_rounds_are_in_the_specifications_and_in_every_exhibit(toy):
    runs = [toy_run(), toy_run(label="fedem", rounds=3)]
    made = toy({"rounds": 5, "tag": "quick"}, runs=runs)
    assert [run.rounds for run in made.papers["toy"].runs] == [5, 3]
    for stage, name in (("table", "main"), ("figure", "curves")):
        spec = json.loads(made.spec(stage, paper="toy", **{stage: name}))
        assert "after at most 5 communication rounds" in spec["folder_note"]
        assert "schedules are not shortened" in spec["folder_note"]
    assert toy().folder_note == ""


def test_a_limit_of_rounds_that_no_run_reaches_is_refused(toy):
    runs = [toy_run(rounds=11), toy_run(label="fedem", rounds=30)]
    toy({"rounds": 20, "tag": "quick"}, runs=runs)
    with pytest.raises(ConfigError, match=r"rounds: 20 .* than 11; .*set=\[LABEL.rounds=20\]"):
        toy({"rounds": 20, "tag": "quick", "labels": ["fedavg"]}, runs=runs)


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, message",
    [
        ({"paper": ["toy"]}, "config: unknown 'paper'; known: scale, papers, "),
        ({"device": "gpu"}, "device: unknown 'gpu'; known: auto, cpu, cuda"),
        ({"executor": "vmap"}, "executor: unknown 'vmap'; known: auto, loop, traced"),
        ({"papers": []}, "papers is empty"),
        ({"labels": ["fedm"]}, "labels: unknown 'fedm'; toy at scale demo: fedavg, fedem"),
        ({"federations": "emnist"}, "federations: unknown 'emnist'; toy .*: digits, mnist"),
        ({"seeds": ["one"]}, r"seeds must be .* whole numbers, got \['one'\]"),
        ({"seeds": "9" * 5000}, "seeds must be .* whole numbers, got .'999"),
        ({"seeds": [-1]}, r"seeds must be in \[0, 4294967295\], got \[-1\]"),
        ({"seeds": [1, 1]}, "seeds: 1 is given 2 times"),
        ({"rounds": 5}, "rounds: 5 needs a tag, such as tag: mine"),
        ({"rounds": 0, "tag": "a"}, "rounds must be a whole number from 1, got 0"),
        ({"raw": 3}, "raw must be a path, got 3"),
        ({"federations": ["digits"], "labels": ["local"]}, "federations and labels: no paper has"),
    ],
)
def test_a_wrong_configuration_is_named_with_the_choices(toy, given, message):
    with pytest.raises(ConfigError, match=message):
        toy(given, runs=[toy_run(), toy_run(label="fedem"), toy_run("mnist", "local")])


def test_raw_files_may_come_from_another_source_which_is_noted(declare):
    paper = toy_paper()
    digits, mnist = paper.data
    declared = replace(mnist, params={**mnist.params, "source": "mnist"})
    declare(toy=replace(paper, data=(digits, declared)))
    plain, other = Plan({}), Plan({"sources": "mnist:qmnist"})
    assert other.data("toy", "digits") == plain.data("toy", "digits")
    given = other.data("toy", "mnist")
    assert given.params == {**declared.params, "source": "qmnist"}
    assert given.notes[-1].endswith("raw files of source qmnist instead of mnist.")
    figure = json.loads(other.spec("figure", paper="toy", figure="curves"))
    assert notes.sources(ExhibitSpec.from_json(figure)) == [given.notes[-1]]
    # A receipt of its own: a choice of papers or sources does not change what others were cut from.
    assert other.files("receipt") == ["data/raw/digits.json", "data/raw/mnist-qmnist.json"]
    assert plain.files("receipt") == ["data/raw/digits.json", "data/raw/mnist.json"]
    told, before = (x.spec("download", dataset=x.downloads()[1]) for x in (other, plain))
    assert json.loads(told)["files"] != json.loads(before)["files"]
    assert Plan({"sources": ["mnist:mnist"]}).data("toy", "mnist") == declared
    with pytest.raises(ConfigError, match="sources: unknown 'digits'; .*: mnist"):
        Plan({"sources": ["digits:other"]})
    for half in ("mnist", "mnist:"):
        said = f"'{half}' is not DATASET:SOURCE, such as femnist:leaf"
        with pytest.raises(ConfigError, match=said):
            Plan({"sources": [half]})
    with pytest.raises(ConfigError, match="sources: 'mnist' is given 2 times"):
        Plan({"sources": ["mnist:qmnist", "mnist:mnist"]})


def test_filters_leave_out_a_paper_without_such_runs_unless_it_is_named(declare):
    declare(one=toy_paper(name="one"), two=toy_paper(name="two", runs=[toy_run("digits", "local")]))
    assert list(Plan({"labels": ["fedem"]}).papers) == ["one"]
    with pytest.raises(ConfigError, match="papers: two has no run left"):
        Plan({"labels": ["fedem"], "papers": ["one", "two"]})


MAIN, DATA = toy_paper().tables["main"], toy_paper().data
SHOWN = "T", "C.", MAIN.labels, MAIN.federations
GROUP = {"title": "others", "labels": ["local"], "gain": "gain"}


def wrong(**changes):
    """Data of which the second has these changes."""
    return {"data": (DATA[0], replace(DATA[1], **changes))}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"name": "tiy"}, r"papers.toy: declare\('demo'\) returned the paper 'tiy' at 'demo'"),
        ({"seeds": (1, 1)}, r"papers.toy.seeds: 1 is given 2 times"),
        ({"seeds": (0, -1)}, r"papers.toy.seeds must be in \[0, 4294967295\], got \(0, -1\)"),
        ({"seeds": (0, "a")}, "papers.toy.seeds must be a list, each of it a whole number, got"),
        ({"runs": [toy_run(), toy_run()]}, "papers.toy.runs: 'digits/fedavg' is given 2 times"),
        ({"runs": [toy_run(label="a/b", method="fedavg")]}, "toy.runs: the name 'a/b' must match"),
        ({"runs": [toy_run(label="..", method="fedavg")]}, "toy.runs: the name '..' must match"),
        ({"runs": [toy_run(method="fedm")]}, r"\[digits/fedavg\].method: unknown 'fedm'; .*fedem"),
        ({"runs": [toy_run(model="cnn")]}, r"\[digits/fedavg\].model: unknown 'cnn'; .*mlp"),
        ({"runs": [toy_run(weights="imagenet")]}, r"avg\].weights: unknown 'imagenet'"),
        ({"runs": [toy_run("emnist")]}, r"federation: unknown 'emnist'; known: digits, mnist"),
        ({"runs": [toy_run(modules={"gate": "mlp"})]}, r"modules must be .*, got {'gate': 'mlp'}"),
        ({"runs": [toy_run(params={"mu": float("inf")})]}, "params must be JSON, got {'mu': inf}"),
        (wrong(params={"x": b""}), r"data\[mnist\].params must be JSON, got {'x': b''}"),
        ({"runs": [toy_run(), toy_run(label="fedem", seeds=(5,))]}, r"main\].labels: .* no seed"),
        (wrong(partition={"kind": "idd"}), r"data\[mnist\].partition.kind: unknown 'idd'"),
        ({"federations": ("digits", "minst")}, r"data\[minst\].dataset: unknown 'minst'"),
        ({"tables": {"main": replace(MAIN, labels=("fedavg", "fedm"))}}, "labels: unknown 'fedm'"),
        ({"tables": {"main": replace(MAIN, federations=("emnist",))}}, "unknown 'emnist'"),
        ({"tables": {"a/b": MAIN}}, "papers.toy.tables: the name 'a/b' must match"),
        ({"figures": {"x": ClientDifferences(*SHOWN, of="fedm")}}, "labels: unknown 'fedm'; .*em"),
        ({"figures": {"x": CostToTarget(*SHOWN, targets={"emnist": 0.5})}}, "targets: unknown 'em"),
        ({"tables": {"x": tables.Gains(*SHOWN, of="fedem", groups=[GROUP])}}, "unknown 'local'"),
    ],
)
def test_a_wrong_declaration_is_named_with_the_choices(toy, changes, message):
    with pytest.raises(ConfigError, match=message):
        toy(**changes)


def test_a_declaration_returns_a_paper_with_a_name_that_paths_and_rules_can_have():
    for name in ("Shapes2", "my-paper"):
        with pytest.raises(ConfigError, match=f"papers: the name '{name}' must match"):
            declarations.check_paper(replace(toy_paper("demo"), name=name), name, "demo")
    with pytest.raises(ConfigError, match=r"declare\('demo'\) returned the paper None"):
        declarations.check_paper(None, "toy", "demo")


# --- Configuration --------------------------------------------------------------------------------


def test_config_yaml_has_the_defaults():
    assert config.read([ROOT / "config.yaml"]) == config.DEFAULTS


@pytest.mark.parametrize(
    "given, meant",
    [
        ({"papers": "pfedmm, fedmix"}, {"papers": ["pfedmm", "fedmix"]}),
        ({"labels": "[fedem, fedavg-plus]"}, {"labels": ["fedem", "fedavg-plus"]}),
        ({"seeds": 0}, {"seeds": [0]}),
        ({"seeds": "0 1"}, {"seeds": [0, 1]}),
        ({"seeds": "null", "rounds": "5"}, {"seeds": None, "rounds": 5}),
        ({"tag": 5, "mirror": ""}, {"tag": "5", "mirror": None}),
        ({"tag": None}, {"tag": ""}),
    ],
)
def test_values_of_the_command_line_are_read_as_yaml_would(given, meant):
    assert normalise(given) == meant


def test_later_files_and_the_command_line_win(tmp_path):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    one.write_text('{"scale": "demo", "tag": "a", "rounds": 4}')
    two.write_text('{"tag": "b", "seeds": [1]}')
    made = config.read([one, two], ["rounds=7", "labels=fedem"])
    assert made == {"scale": "demo", "tag": "b", "rounds": 7, "seeds": [1], "labels": ["fedem"]}


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.json", "{", "a.json is not valid YAML"),
        ("a.yaml", "a: [", "a.yaml is not valid YAML"),
        ("a.yaml", "tag: a\ntag: b", "a.yaml: 'tag' is given 2 times"),
        ("a.json", "[1]", "a.json must hold keys and values, got list"),
        ("a.json", None, "cannot read .*a.json: No such file"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message):
        config.read([tmp_path / name])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def declare(scale:", "broken.py, line 1: SyntaxError"),
        ("import nowhere_at_all", "broken.py, line 1: ModuleNotFoundError"),
        ("x = 1", "broken.py has no function declare"),
        ("def declare(scale):\n    return 1 / 0", "broken.py, line 2: ZeroDivisionError: "),
    ],
)
def test_a_paper_that_cannot_be_read_is_one_line_unless_others_are_named(
    tmp_path, monkeypatch, text, told
):
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "fedlib.papers.broken", raising=False)
    for given in ({}, {"papers": ["broken"]}):
        with pytest.raises(ConfigError, match=f"fedlib/papers/{told}"):
            Plan(given)
    assert [*Plan({"papers": ["pfedmm"]}).papers] == ["pfedmm"]


def test_named_runs_may_leave_a_named_paper_without_any():
    """As those of a budget do."""
    plan = Plan({"papers": ["pfedmm", "fedmix"], "runs": ["fedmix/digits/fedavg"]})
    assert {one.paper for one in plan.trainings()} == {"fedmix"}
    with pytest.raises(ConfigError, match="pfedmm has no run left"):
        Plan({"papers": ["pfedmm", "fedmix"], "labels": ["fedmix-k4"]})
