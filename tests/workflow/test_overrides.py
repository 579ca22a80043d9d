"""Other values than those declared, from the configuration: named exactly, checked, and told."""

import json

import pytest
from conftest import toy_paper, toy_run

from fedlib.errors import ConfigError
from fedlib.workflow import overrides
from fedlib.workflow.config import read
from fedlib.workflow.plan import Plan


@pytest.fixture
def toy(declare):
    """Function that plans the toy paper with these overrides, for a further configuration."""

    def make(*given, **config):
        gossip = {"rate": 1.0, "aggregation": "gossip"}
        runs = [
            toy_run(federation, label, params={"num_experts": 3, "rate": 0.5})
            for federation in ("digits", "mnist")
            for label in ("fedem", "fedavg")
        ]
        runs.append(toy_run("digits", "fedem-m0.5", method="fedem", participation=gossip))
        declare(toy=lambda scale: toy_paper(scale, runs=runs))
        return Plan({"tag": "mine", "set": list(given)} | config)

    return make


def changed(plan) -> dict:
    """The entries of every run that are not as declared, by federation/label."""
    declared = Plan({}).runs
    return {
        "/".join(key[1:]): {
            name: value for name, value in vars(run).items() if value != vars(declared[key])[name]
        }
        for key, run in plan.runs.items()
        if run != declared[key]
    }


def test_a_label_means_its_runs_on_all_federations(toy):
    local = toy_run().local | {"lr": 0.3}
    found = changed(toy("fedem.local.lr=0.3"))
    assert found == {"digits/fedem": {"local": local}, "mnist/fedem": {"local": local}}


def test_a_federation_and_a_label_mean_one_run_and_of_names_with_dots_the_longest_counts(toy):
    assert changed(toy("mnist/fedem.rounds=7")) == {"mnist/fedem": {"rounds": 7}}
    assert changed(toy("mnist/fedem.precision=tf32")) == {"mnist/fedem": {"precision": "tf32"}}
    assert [*changed(toy("fedem-m0.5.rounds=7"))] == ["digits/fedem-m0.5"]


def test_a_key_with_a_default_need_not_be_declared_and_null_takes_a_declared_value_away(toy):
    found = changed(toy("mnist/fedem.local.momentum=0.9"))
    assert found["mnist/fedem"]["local"] == toy_run().local | {"momentum": 0.9}
    found = changed(toy("digits/fedavg.params.rate=null"))
    assert found == {"digits/fedavg": {"params": {"num_experts": 3}}}


def test_a_federation_has_other_clients_and_its_runs_keep_their_specification(toy):
    plan = toy("mnist.partition.num_clients=50")
    assert plan.data("toy", "mnist").partition["num_clients"] == 50
    assert plan.data("toy", "digits").partition["num_clients"] == 4
    assert changed(plan) == {}


def test_several_hold_together_and_values_are_json_or_words(toy):
    plan = toy("fedavg.model_params.hidden=[8,16]", "fedavg.model_params.kind=wide")
    assert plan.run("toy", "digits", "fedavg").model_params == {"hidden": [8, 16], "kind": "wide"}
    plan = toy("digits/fedem.rounds=7", "fedem.rounds=5")  # that of one run holds there
    assert [plan.run("toy", x, "fedem").rounds for x in ("digits", "mnist")] == [7, 5]
    with pytest.raises(ConfigError, match="set: 'fedem.rounds' is given 2 times"):
        toy("fedem.rounds=7", "fedem.rounds=5")


@pytest.mark.parametrize(
    "given, config, message",
    [
        ("fedem.local.lr=0.3", {"tag": ""}, r"^set: \['fedem.local.lr=0.3'\] needs a tag, such as"),
        ("fedem.local.lr", {}, r"set: expected NAME.KEY=VALUE, such as set=\[fed.*got 'fedem.loc"),
        ("fedmm.local.lr=1", {}, "no federation or label 'fedmm'; nearest: fedem, fedem-m0"),
        ("mnist.num_clients=5", {}, "no key 'num_clients'; nearest: partition.num_clients$"),
        ("fedem.locl.lr=5", {}, "no key 'locl'; nearest: local"),
        ("fedem.title=5", {}, "no key 'title'; there are: rounds, evaluate_every, local"),
        ("fedem.local.schedul.kind=cosine", {}, "nothing has a key 'schedul' there; there are: "),
        ("fedem.rounds=2.5", {}, r"rounds must be a whole number, got 2.5"),
        ("fedem.rounds=0", {}, r"runs\[digits/fedem\].rounds must be a whole number from 1, got 0"),
        ("mnist.partition=5", {}, r"papers.toy.data\[mnist\].partition must be a dict, got 5"),
        ("mnist.partition.kind=idd", {}, r"data\[mnist\].partition.kind: unknown 'idd'"),
        (
            "mnist.partition.num_clients=5",
            {"federations": ["digits"]},
            "no federation or label 'mnist'",
        ),
    ],
)
def test_an_override_that_makes_no_sense_is_refused(toy, given, config, message):
    with pytest.raises(ConfigError, match=message):
        toy(given, **config)


@pytest.mark.parametrize("text", ["[a.b=1,c.d=[2,3]]", "a.b=1,c.d=[2,3]", "[ a.b=1 , c.d=[2,3] ]"])
def test_commas_part_overrides_and_not_what_is_in_brackets(text):
    assert overrides.split(text) == ["a.b=1", "c.d=[2,3]"]
    assert read([], [f"set={text}"]) == {"set": ["a.b=1", "c.d=[2,3]"]}


def test_commas_in_quotes_part_no_overrides():
    both = ['a.b="x,y]"', r'c.d={"e":"\",f"}']
    assert overrides.split(f"[{','.join(both)}]") == both
    assert [overrides.parse(text).value for text in both] == ["x,y]", {"e": '",f'}]


def test_tables_figures_and_the_report_say_what_is_set(toy):
    plan = toy("fedem.local.lr=0.3", "mnist.partition.num_clients=50", rounds=5)
    note = "set instead of what is declared: fedem.local.lr = 0.3, mnist.partition.num_clients = 50"
    for stage, names in (("table", {"table": "main"}), ("figure", {"figure": "curves"})):
        told = json.loads(plan.spec(stage, paper="toy", **names))["folder_note"]
        assert told.startswith("runs are stopped after") and told.endswith(note)
    assert json.loads(plan.spec("report"))["folder_note"].endswith(note)
