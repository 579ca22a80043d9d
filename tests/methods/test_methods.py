"""The contract, on every method: what the engine, the evaluation and the workflow rely on.

`make check-method FILE=mine/fedper.py` has it on a method of a user's instead.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from every_method import (
    EVERYBODY,
    LOOSER,
    METHODS,
    NETWORK,
    OWN,
    ROUNDING,
    contract,
    every_method,
    in_turn,
    make,
)
from support import EXECUTORS, assert_close, cohort_of, federation_for, run, same_bits
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_structure

from fedlib import methods, tree
from fedlib.engine.executors import Batched
from fedlib.engine.graphs import Graphs
from fedlib.engine.traced import Traced
from fedlib.run import checkpoint, evaluate
from fedlib.run.contract import by_round, diagnostics
from fedlib.run.scoring import during_training, score


@cache
def after_two_rounds(name):
    """A method with batch statistics and dropout, its federation, and its state then."""
    method, federation = make(name, **NETWORK), federation_for(name)
    return method, federation, run(method, federation, 2)


def prepared(method, state, federation, group, executor="loop"):
    """Every protocol of a group and its clients' predictors, after one evaluation."""
    cohort = cohort_of(method.task, federation, federation.ids(group), executor=executor, round=2)
    state = method.observe(state, cohort, group)
    return dict(evaluate.prepare(method, state, cohort, group))


def predictions(method, state, federation, group, predict=None):
    """Probabilities of the labels of test examples, protocol by protocol."""
    cohort = cohort_of(method.task, federation, federation.ids(group), round=2)
    return {
        protocol: cohort.score(predict or method.predict, personal, split="test").exp()
        for protocol, personal in prepared(method, state, federation, group).items()
    }


def of_clients(state, num_clients):
    """What a state has of each client, by its path: `Rows`, and leaves [num_clients, ...]."""
    leaves, _ = tree_flatten_with_path(state, is_leaf=lambda x: type(x) is tree.Rows)
    several = ((keystr(path), x) for path, x in leaves if type(x) is tree.Rows or x.ndim)
    return {path: x for path, x in several if len(x) == num_clients}  # the server's have 1 row


def in_order(state):
    """A state with the entries of its dictionaries in the order of their names."""
    if isinstance(state, dict):
        return {name: in_order(state[name]) for name in sorted(state)}
    if not isinstance(state, list | tuple):
        return state
    inner = [in_order(value) for value in state]
    return type(state)(*inner) if hasattr(state, "_fields") else type(state)(inner)


def test_every_registered_method_is_in_this_list():
    assert sorted(METHODS) == sorted(methods.METHODS)


@every_method
def test_a_round_keeps_the_structure_shapes_and_types_of_the_state(name):  # the others rely on it
    method, federation = make(name, **NETWORK), federation_for(name)
    state = method.init(federation.num_clients, 0)
    forms = {n: (x.shape, x.dtype) for n, x in checkpoint.flatten(state).items()}
    for rounds in (1, 2):
        after = run(method, federation, rounds)
        same = type(after) is type(state)
        assert same, f"round returns {after!r:.80}, and not a state like init's"
        found = {n: (x.shape, x.dtype) for n, x in checkpoint.flatten(after).items()}
        changed = sorted(n for n in forms | found if forms.get(n) != found.get(n))
        assert not changed, f"round returns other entries, shapes or types: {', '.join(changed)}"
        same = tree_structure(in_order(state)) == tree_structure(in_order(after))
        assert same, "round returns containers of other kinds than init"


@pytest.mark.usefixtures("threads_of_torch")
@every_method
def test_every_executor_gives_the_state_and_predictors_of_the_loop(name):
    method, federation = make(name, **NETWORK), federation_for(name)

    def rounds(executor, numbers=(0, 1), state=None, method=method):
        state = state or method.init(federation.num_clients, 0)
        cohort = cohort_of(method.task, federation, executor=executor)
        for number in numbers:
            state = method.round(state, cohort.in_round(number))
        return state

    loop, batched = rounds("loop"), rounds("batched")
    assert_close(loop, batched, ROUNDING)
    for group in ("seen", "unseen"):
        found = (prepared(method, loop, federation, group, executor) for executor in EXECUTORS)
        assert_close(*found, LOOSER.get(name, ROUNDING))

    def in_blocks():  # three clients in blocks of two and one, in three threads
        assert_close(batched, rounds(Batched(2, 3)), ROUNDING)

    def captured():
        executor = Graphs(2)
        third = rounds("batched", [2], batched)
        assert_close(third, rounds(executor, range(3)), ROUNDING)
        assert executor.notes["replays"] > 0

    def traced():
        executor = Traced()
        assert_close(loop, rounds(executor), 0)
        assert executor.notes["traced_shapes"] > 0
        prepared(method, loop, federation, "seen", executor)
        assert OWN or not executor.notes["not_traced"]  # a user's may go on as in the loop

    def padded():  # without batch statistics examples fill batches up, which batch.mask tells
        plain = make(name, dropout=0.3)
        assert_close(rounds("loop", method=plain), rounds("batched", method=plain), ROUNDING)

    for check in in_turn(name, [in_blocks, captured, traced, padded]):
        check()


@every_method
def test_another_seed_gives_other_bits(name):
    # The same one gives the same: see test_simulate.py.
    method, federation, _ = after_two_rounds(name)
    start = method.init(federation.num_clients, 0)
    cohorts = (cohort_of(method.task, federation, seed=seed) for seed in (0, 100))
    assert not same_bits(*(method.round(start, cohort) for cohort in cohorts))


@contract
@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"label_leakage"}))  # which refuses them
def test_class_weights_change_what_is_trained(name):
    method, federation = make(name), federation_for(name)
    weights = torch.tensor([0.2, 1.0, 3.0])
    other = replace(method, task=replace(method.task, class_weights=weights))
    found = [prepared(x, run(x, federation, 2), federation, "seen") for x in (method, other)]
    same = [protocol for protocol in found[0] if same_bits(*(x[protocol] for x in found))]
    assert not same, f"class weights change nothing of {', '.join(same)}"


@every_method
def test_the_order_of_the_cohort_does_not_matter(name):
    method, federation = make(name), federation_for(name)
    assert_close(*(run(method, federation, 2, ids=ids) for ids in ([0, 1, 2], [2, 1, 0])))


@every_method
def test_rounds_and_evaluations_leave_the_state_they_were_given_alone(name):
    method, federation, state = after_two_rounds(name)
    before = checkpoint.flatten(tree.map(torch.clone, state))

    def left_alone(by):
        changed = [n for n, x in checkpoint.flatten(state).items() if not torch.equal(x, before[n])]
        assert not changed, f"{by} changes the state it was given: {', '.join(changed)}"

    method.round(state, cohort_of(method.task, federation, round=2))
    left_alone("round")
    for group in ("seen", "unseen"):
        prepared(method, state, federation, group)
        left_alone(f"the evaluation of {group} clients")


@every_method
def test_what_is_recorded_is_of_every_client_or_of_rounds(name):
    method, federation, state = after_two_rounds(name)
    diagnostics(method, state, federation.num_clients)
    by_round(method, state)


@every_method
def test_predictions_are_probabilities_whatever_the_batch_and_the_labels(name):
    method, federation, state = after_two_rounds(name)

    def one_by_one(personal, batch):
        """Of test examples that all have the label 0."""
        x, y, index = batch.x, torch.zeros_like(batch.y), batch.index
        alone = (batch._replace(x=x[[i]], y=y[[i]], index=index[[i]]) for i in range(len(y)))
        return torch.cat([method.predict(personal, each) for each in alone])

    for group in ("seen", "unseen"):
        whole = predictions(method, state, federation, group)
        alone = predictions(method, state, federation, group, one_by_one)
        for protocol, found in whole.items():
            torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))
            torch.testing.assert_close(found, alone[protocol])


@contract
@pytest.mark.parametrize("name", [name for name in METHODS if name not in EVERYBODY])
def test_partial_participation_leaves_what_is_of_absent_clients_alone(name):
    # So many clients that nothing else has this length; a server and its probe are two more.
    sizes = (7, 6, 5, 10, 9, 7, 6, 5, 6, 7, 5)
    method, federation = make(name), federation_for(name, sizes=sizes)
    state = run(method, federation, 2, executor="batched")  # so that nothing is 0 any more
    after = method.round(state, cohort_of(method.task, federation, [1, 3], round=2))
    clients = np.concatenate([federation.ids(group) for group in ("seen", "unseen")])
    theirs = (of_clients(x, federation.num_clients) for x in (state, after))
    assert_close(*(tree.take(x, np.setdiff1d(clients, [1, 3])) for x in theirs), 0)


@every_method
def test_a_client_with_a_single_example_takes_part(name):
    federation = federation_for(name, sizes=(1, 9, 5, 10))  # batches of four leave one alone
    state = run(make(name), federation, 2)
    undefined = [name for name, x in checkpoint.flatten(state).items() if x.isnan().any()]
    assert not undefined, f"not a number: {', '.join(undefined)}"


@every_method
def test_unseen_clients_never_influence_what_the_others_get(name):
    method, federation, state = after_two_rounds(name)
    unseen = cohort_of(method.task, federation, federation.ids("unseen"), round=2)
    observed = method.observe(state, unseen, "unseen")
    seen = cohort_of(method.task, federation, round=2)
    way = getattr(method, method.protocols["seen"]["default"])
    assert_close(way(state, seen), way(observed, seen), 0)


@every_method
def test_test_examples_never_influence_training(name):
    method, federation, state = after_two_rounds(name)
    x, y, rows = federation.x.copy(), federation.y.copy(), federation.test.rows
    x[rows], y[rows] = 0, (y[rows] + 1) % federation.num_classes
    assert same_bits(state, run(method, replace(federation, x=x, y=y), 2))


@every_method
def test_what_is_sent_is_what_the_paper_says(name, capsys):
    method, federation = make(name, norm=True), federation_for(name)
    cohort = cohort_of(method.task, federation)
    method.round(method.init(federation.num_clients, 0), cohort)
    per_client = cohort.journal.down / cohort.size, cohort.journal.up / cohort.size
    if OWN:  # only its author knows what it sends
        sent = "{:g} numbers down and {:g} up".format(*per_client)
        with capsys.disabled():
            print(f"\n{type(method).__name__} sends {sent} per client and round")
        counted = cohort.journal.down or not cohort.journal.up
        assert counted, "nothing is sent down: cohort.broadcast counts, tree.broadcast does not"
        return
    sent = METHODS[name][1]
    down, up = sent if isinstance(sent, tuple) else (sent, sent)
    assert per_client == (down, up)


@every_method
def test_training_lowers_the_loss(name):
    method, federation = make(name), federation_for(name, sizes=(20, 30, 25, 15))
    cohort = cohort_of(method.task, federation, executor="batched", round=5)

    def loss(state):
        state, _ = during_training(method, state, lambda group: cohort if group == "seen" else None)
        way = getattr(method, method.protocols["seen"]["default"])
        return score(method, way(state, cohort), cohort, "train").loss.mean()

    start = method.init(federation.num_clients, 0)
    assert loss(run(method, federation, 5, executor="batched")) < 0.9 * loss(start)


@pytest.mark.parametrize("name", [name for name in METHODS if hasattr(methods.load(name), "ways")])
def test_a_protocol_is_evaluated_at_the_end_or_as_a_curve(name):
    method = make(name)
    for group, ways in method.ways.items():
        assert {**method.protocols[group], **method.final_protocols[group]} == ways
        during = {"default", *method.curves} & {*ways}
        assert {*method.protocols[group]} == during
        for way in {*ways} - {"default"}:
            assert way in replace(method, curves=[way]).protocols[group]
