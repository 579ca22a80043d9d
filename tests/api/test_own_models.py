"""Models that the clients own, of one architecture or of several."""

from dataclasses import replace

import torch
from support import cohort_of, same_bits, tiny_task, toy_federation
from zoo import deep

from fedlib import tree
from fedlib.methods.parts.own_models import OwnModels
from fedlib.tree import Rows

narrow = tiny_task(hidden=3)
both = OwnModels.among(tiny_task(hidden=5), (narrow, deep))


def test_clients_have_the_architectures_in_turn_and_one_draw_for_each():
    models = both.init(5, seed=7)
    assert isinstance(models, Rows) and len(models) == 5
    for client, model in enumerate(models):
        assert same_bits(model, (narrow, deep)[client % 2].init(7))
    cohort = cohort_of(narrow, toy_federation(), [1, 2])
    assert list(both.of(cohort)) == [deep, narrow]


def test_without_a_list_everybody_has_the_task():
    own = OwnModels.among(narrow, ())
    assert own.tasks == (narrow,)
    assert tree.kinds(own.init(4, seed=0)) is None


def test_class_weights_of_the_task_are_those_of_all_architectures():
    weights = torch.tensor([1.0, 2.0, 3.0]).double()
    own = OwnModels.among(replace(narrow, class_weights=weights), (narrow, deep))
    assert [task.class_weights.tolist() for task in own.tasks] == [[1, 2, 3]] * 2
    assert [task.class_weights for task in both.tasks] == [None] * 2
