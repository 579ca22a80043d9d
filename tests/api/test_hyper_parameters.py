"""Hyper-parameters that mean nothing, and solvers and models that fit no method, are refused."""

import pydoc
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from math import inf
from typing import Literal

import numpy as np
import pytest
import torch
from every_method import every_method, make
from support import sgd, tiny_task
from torch import nn

from fedlib.engine.schedules import Schedule
from fedlib.engine.solvers import SGD, Adam, Solver
from fedlib.engine.task import Task
from fedlib.errors import ConfigError
from fedlib.methods.base import Method
from fedlib.models import leaf_cnn, linear, mlp, transformer
from fedlib.run.simulate import Course

# A value that means nothing to any method, by type; where ranges are bounded, what is beyond, too.
WRONG = {str: "mine", tuple[str, ...]: ["mine"], tuple[int, ...]: [-1]}
WRONG |= dict.fromkeys((int, float, int | None, float | None), -1)
UNBOUNDED = {"alpha"}  # of mixtures, which learn it


def senseless(method):
    """Hyper-parameters, each with a value."""
    known = {field.name: field.type for field in fields(method)}
    for name in known.keys() & method.ranges.keys():
        low, high, ends = method.ranges[name]
        yield name, low if ends[0] == "(" else low - 1
        yield from [(name, high if ends[1] == ")" else high + 1)] if high < inf else []
    for name, kind in known.items():
        if kind in WRONG and name not in UNBOUNDED - method.ranges.keys():
            yield name, WRONG[kind]


@every_method
def test_hyper_parameters_that_mean_nothing_are_refused(name):
    method = make(name)
    for field, value in senseless(method):
        shown = value[0] if isinstance(value, list) else value
        with pytest.raises(ValueError, match=f"got .*{re.escape(repr(shown))}"):
            replace(method, **{field: value})
    for base in type(method).__mro__:  # and what its bases declare it declares
        assert vars(base).get("choices", {}).keys() <= method.choices.keys()
        assert vars(base).get("ranges", {}).keys() <= method.ranges.keys()


@every_method
def test_the_help_of_a_method_has_all_its_settings(name):
    kind = type(make(name))
    told = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    assert all(f"* {field.name}: " in told for field in fields(kind) if field.name != "task")
    assert all(f", {limits}" in told for limits in kind.ranges.values())


def flat(channels):
    """A network whose convolution's output is the hidden layer's input."""
    return Task(partial(leaf_cnn.build, 3, conv1=4, conv2=channels, hidden=6, dropout=0.0))


def without_bias():
    net = nn.Module()
    net.body, net.head = nn.Linear(4, 2), nn.Linear(2, 3, bias=False)
    return net


LINEAR = Task(partial(linear.build, 4, 2))
TEXTS = Task(partial(transformer.build, 2, "bert-lite", vocabulary=20))
FIVE_AND_SIX = tiny_task(hidden=5), tiny_task(hidden=6)
COSINE, DECAY = sgd(schedule=Schedule("cosine")), {"exploration": "eps_decay_b"}
WEIGHTED = replace(tiny_task(), class_weights=torch.ones(3))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("l2sgd", {"p": 0.1, "lam": 0.2}, r"lam must be in \[0, p\] = \[0, 0.1\], got 0.2"),
        ("l2sgd", {"local": sgd(steps=3)}, "epochs must be 1 and steps absent, got 1 and 3"),
        ("qffl", {"local": sgd(lr=0.0)}, "lr must be above 0, as L is 1 / lr, got 0.0"),
        ("afl", {"local": sgd(epochs=2)}, "AFL takes one step per round"),
        ("fd", {"local": sgd(steps=2)}, "FD averages over whole epochs"),
        ("fd", {"large": (tiny_task(), tiny_task(classes=4))}, r"number of outputs, got \[3, 4\]"),
        ("fedproto", {"large": FIVE_AND_SIX}, r"same number of features, got \[5, 6\]"),
        ("fedgh", {"large": FIVE_AND_SIX}, r"same shapes .*'head.1.weight': \(3, 5\)"),
        ("lg_fedavg", {"large": FIVE_AND_SIX}, r"same shapes .*'head.1.weight': \(3, 5\)"),
        ("pfedmoe", {"large": (tiny_task(hidden=5),)}, r"as many features, got \[6, 5\]"),
        ("pfedmoe", {"gate": tiny_task()}, "needs 2 outputs, got 3"),
        ("pfedmoe", {"task": LINEAR}, "extractor has no trained parameters to share"),
        ("fedrep", {"task": LINEAR}, "extractor has no trained parameters to share"),
        ("pfedmoe", {"gate_mode": "fixed:1.5"}, "gate_mode must be one of .*got 'fixed:1.5'"),
        ("ifca", {"cluster_init": "conv_only"}, "equal models of a network without convolutions"),
        ("ifca", DECAY | {"horizon": 0}, "above 0, got 0.3 and 0"),
        ("ifca", {"lr_decay": True, "local": COSINE}, "schedule that is constant, got 'cosine'"),
        ("adaptive_experts", {"gate": tiny_task(classes=7)}, "one needs 4 outputs, got 7"),
        ("local_experts", {"keep": ["last"]}, "keep must have 'best'"),
        ("local_global", {"task": Task(lambda: mlp.build(4, 3, 2))}, "'body.0' trains nothing"),
        ("fedmix", {"condition": "side"}, "num_sides must be at least 1 .* got 0 for 'side'"),
        ("fedmix", {"table_rounds": [5, 2]}, r"must ascend from 0 or more, got \[5, 2\]"),
        ("fedmix", {"private_bias": True, "task": Task(without_bias)}, "one bias, got none"),
        ("label_leakage", {"local": Adam(lr=0.1)}, "steps of SGD with a constant lr above 0"),
        ("label_leakage", {"task": WEIGHTED}, "without .* or class weights"),
        ("label_leakage", {"task": LINEAR}, r"a number for each label, got \[1\]"),
        ("fedjets", {"per_client": 4}, r"per_client must be in \[1, 3\], got 4"),
        ("fedmoe", {"top_k": 4}, r"top_k must be in \[1, 3\], got 4"),
        ("fedmoe", {"also_top": [5]}, r"also_top must be of .*, at most the 3 experts.*\(5,\)"),
        ("fedmoe", {"also_top": [2], "top_k": 2}, r"and not top_k, 2; got \(2,\)"),
        ("fedmoe", {"log_rounds": [0, 2]}, r"must ascend from 1 or more, got \[0, 2\]"),
        ("fedmoe", {"start": "main"}, r"takes the place of sync.* 'none', got 'code'"),
        ("fedmoe", {"server": {"solver": "adagrad", "lr": 0.1}}, "solver must be .* got 'adagrad'"),
        ("fedrolex", {"small": tiny_task(norm=True)}, "small must have the same layers"),
        ("fedrolex", {"small": tiny_task(hidden=9)}, "not be wider .*; body.0.weight: "),
        ("fedrolex", {"small": tiny_task(classes=2)}, "as many outputs as the model"),
        ("fedrolex", {"task": flat(8), "small": flat(4)}, "not one per unit of a layer"),
        ("fedrolex", {"task": TEXTS, "small": TEXTS}, "units of transformers .* cannot roll"),
    ],
)
def test_what_does_not_fit_a_method_is_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        replace(make(name), **changes)


@dataclass(frozen=True, kw_only=True)
class Typed(Method):
    count: int = 1
    scale: float = 1.0
    mode: str = "fast"
    flag: bool = False
    size: int | Literal["all"] | None = None
    rounds: tuple[int, ...] = ()
    gate: Task | None = None
    server: Solver | Mapping | None = None
    odd: float = inf


@pytest.mark.parametrize(
    ("params", "must"),
    [
        *(({"count": x}, "a whole number, got") for x in (1.5, 2.0, True, "2", None, [1])),
        *(({"scale": x}, "a finite number, got") for x in (float("nan"), inf, "0.1", None, True)),
        *(({"mode": x}, "a word, got") for x in (1, None, ["fast"])),
        *(({"flag": x}, "True or False, got") for x in (0, 1, "no", None)),
        *(({"size": x}, "a whole number or one of ('all',) or None, got") for x in (1.5, "x")),
        *(({"rounds": x}, "a list, each of it a whole number, got") for x in (3, "12", [1.5])),
        ({"gate": 3}, "a Task or None, got 3"),
        ({"server": "sgd"}, "a Solver or a dict or None, got 'sgd'"),
    ],
)
def test_a_value_of_another_type_than_the_annotated_one_is_refused(params, must):
    [name] = params
    with pytest.raises(ConfigError, match=f"^{name} must be {re.escape(must)}"):
        Typed(task=tiny_task(), local=sgd(), **params)


def test_numbers_of_numpy_are_pythons_and_a_default_is_always_allowed():
    given = {"count": np.int64(3), "scale": np.float32(0.5), "flag": np.bool_(True)}
    made = Typed(task=tiny_task(), local=sgd(), **given, rounds=np.arange(2), size=np.uint8(4))
    values = made.count, made.scale, made.flag, made.size, made.rounds
    assert values == (3, 0.5, True, 4, (0, 1)) and made.odd == inf
    assert [type(x) for x in values] == [int, float, bool, int, tuple]
    assert type(made.rounds[0]) is int
    assert type(Typed(task=tiny_task(), local=sgd(), scale=1).scale) is int


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (SGD, {"lr": "0.1"}, "lr must be a finite number, got '0.1'"),
        (SGD, {"schedule": "cosine"}, "schedule must be a Schedule, got 'cosine'"),
        (Schedule, {"kind": "multi_step"}, r"milestones must be one or more .* got \(\)"),
        (Schedule, {"milestones": 3}, "milestones must be a list, .* got 3"),
        (Schedule, {"factor": -1}, "factor must be at least 0, got -1"),
        (Course, {"seed": 2**64}, f"seed must be in .* got {2**64}"),
        (Course, {"rounds": True}, "rounds must be a whole number, got True"),
    ],
)
def test_solvers_schedules_and_courses_say_what_their_fields_must_be(kind, fields, message):
    needed = {SGD: {"lr": 0.1}, Course: {"rounds": 1, "seed": 0}}.get(kind, {})
    with pytest.raises(ConfigError, match=f"^{message}"):
        kind(**needed | fields)
