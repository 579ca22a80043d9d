"""FD, FedProto, FedGH and FedTGP: executors, settings, limits, what they send; means by class."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from class_nets import DEEP, TASKS, Clients, L, train
from reference import assert_predicts, module_of, says
from support import clients_with, cohort_of, sgd, tiny_task, toy_federation

from fedlib import methods
from fedlib.engine.journal import Journal
from fedlib.engine.solvers import SGD
from fedlib.errors import DataError
from fedlib.methods.fedproto import nearest
from fedlib.methods.parts import class_means, server_sgd
from fedlib.methods.parts.class_means import ClassMeans
from fedlib.run import evaluate

# -- executors and settings -----------------------------------------------------------------


def test_fd_needs_no_common_width():
    method = methods.load("fd")(task=DEEP, local=sgd(), large=(DEEP, tiny_task(hidden=6)))
    state = method.round(method.init(4, 0), cohort_of(DEEP, toy_federation()))
    assert state.logits.values.shape == (L, L) and state.logits.known.all()


def test_without_two_classes_there_is_no_distance_but_the_largest_margin():
    method, known = methods.load("fedtgp")(task=DEEP, local=sgd()), torch.tensor([True] * 3)
    means = ClassMeans(torch.tensor([[0.0, 0], [3, 4], [0, 1]]), known)
    for present, margin in (([True, False, False], 100), ([False] * 3, 0)):
        assert method.margin(means, torch.tensor(present)).item() == margin


# -- predictions ------------------------------------------------------------------------------


def test_the_nearest_of_the_known_prototypes_is_predicted():
    features = torch.tensor([[0.0, 0.0], [4.0, 3.0]])
    values = torch.tensor([[0.0, 0.0], [0.0, 3.0], [4.0, 3.0]])
    found = nearest(features, ClassMeans(values, torch.tensor([True, True, False])))
    # Squared distances 0 and 9; 25 and 16. Nobody knows the third: one beyond the farthest.
    expected = torch.tensor([[0.0, -9, -10], [-25, -16, -26]]).log_softmax(-1)
    torch.testing.assert_close(found, expected)
    everything = nearest(features, ClassMeans(values, torch.ones(3, dtype=torch.bool)))
    assert everything.argmax(-1).tolist() == [0, 2]


def test_without_any_prototype_all_classes_are_alike():
    unknown = class_means.empty(3, 2, tiny_task(dtype=torch.float32))
    found = nearest(torch.randn(4, 2), unknown)
    torch.testing.assert_close(found.exp(), torch.full((4, 3), 1 / 3))


def test_clients_predict_with_their_classifier_or_with_all_prototypes():
    method, state = train("fedproto")
    cohort = cohort_of(DEEP, toy_federation())
    prepared = dict(evaluate.prepare(method, state, cohort, "seen"))
    assert sorted(prepared) == ["default", "nearest"]
    found = cohort.score(method.predict, prepared["nearest"], split="test")
    hand = Clients()
    nets = {c: module_of(TASKS[c % 2], state.models[c]) for c in hand.seen}
    assert_predicts(method, state, hand, lambda c, x: says(nets[c], x))
    for c, net in nets.items():
        apart = torch.cdist(net.body(hand.shard(c, "test")[0]), state.prototypes.values)
        assert torch.equal(found[c].argmax(-1), apart.argmin(-1))
    assert cohort.journal.down == 0


def test_clients_of_fedgh_predict_with_their_header_or_with_the_global_one():
    method, state = train("fedgh", rounds=[[0, 2]])
    cohort = cohort_of(DEEP, toy_federation())
    prepared = dict(evaluate.prepare(method, state, cohort, "seen"))
    assert sorted(prepared) == ["aggregated", "default"]
    for client in range(3):
        header, own = state.header["head.weight"], state.models[client]["head.weight"]
        has = {way: p.model[client]["head.weight"] for way, p in prepared.items()}
        assert torch.equal(has["aggregated"], header) and not torch.equal(header, own)
        # Client 1 has never taken part: it would start from the global header.
        assert torch.equal(has["default"], header if client == 1 else own)
        for personal in prepared.values():
            body = personal.model[client]["body.0.weight"]
            assert torch.equal(body, state.models[client]["body.0.weight"])
    assert cohort.journal.down == 0


# -- what is sent -------------------------------------------------------------------------------


HELD_CLASSES = torch.tensor([[True, False, True], [True, True, False]])


def two_clients(**options):
    """Client 0 has the labels 2 0 0 2 2 and client 1 the label 1 once; inputs are 0, 1, 2, ..."""
    x, y = np.arange(8.0)[:, None].repeat(4, 1), np.array([2, 0, 0, 2, 2, 1, 0, 0])
    return cohort_of(tiny_task(), clients_with(x, y, [(range(5), [6]), ([5], [7])], 3), **options)


# -- clients ------------------------------------------------------------------------------


def test_sequences_have_no_class():
    cohort = two_clients()
    cohort.data.federation = replace(cohort.data.federation, y=np.zeros((8, 5), np.int64))
    with pytest.raises(DataError, match=r"one number for each example, got shape \(8, 5\)"):
        class_means.counts(cohort, 3)


def test_means_are_over_a_clients_own_examples_of_a_class(monkeypatch):
    monkeypatch.setattr(class_means, "EXAMPLES", 1)  # one by one
    cohort = two_clients(executor="batched")
    scale = torch.tensor([1.0, 10.0]).double()
    found = class_means.of_clients(
        cohort,
        lambda scale, batch: scale * batch.x[:, :2],
        scale,
        counts=class_means.counts(cohort, 3),
    )
    # Of client 0 the inputs 1, 2 have label 0 and 0, 3, 4 label 2; client 1 has 5 with label 1.
    expected = [[1.5, 0, 7 / 3], [0, 50, 0]]
    torch.testing.assert_close(found, torch.tensor(expected).double()[..., None].expand(2, 3, 2))


def test_only_vectors_of_classes_that_are_held_and_known_are_sent_and_counted():
    cohort = two_clients()
    server = ClassMeans(torch.arange(6.0).reshape(3, 2), torch.tensor([True, True, False]))
    sent = class_means.send(cohort, server, HELD_CLASSES)
    assert sent.known.tolist() == [[True, False, False], [True, True, False]]
    assert sent.values.shape == (2, 3, 2) and sent.values.stride(0) == 0
    assert cohort.journal.down == 2 * 3  # three vectors of two numbers
    vectors, known = ClassMeans(sent.values[0], sent.known[0]).of(torch.tensor([2, 0, 0]))
    assert vectors.tolist() == [[4, 5], [0, 1], [0, 1]] and known.tolist() == [False, True, True]


# -- server -------------------------------------------------------------------------------


ROUND = SimpleNamespace(seed=5, round=0, journal=Journal())  # what a server asks of a cohort


def test_a_class_that_nobody_sent_keeps_what_it_had():
    before = ClassMeans(torch.tensor([[1.0], [2], [3]]), torch.tensor([False, True, False]))
    held = torch.tensor([[True, False, False]])
    after = class_means.average(before, torch.tensor([[[9.0], [9], [9]]]), held)
    assert after.values.tolist() == [[9], [2], [3]]
    assert after.known.tolist() == [True, True, False]


def test_a_server_that_was_sent_nothing_trains_nothing():
    params = {"w": torch.ones(2)}
    nothing, sgd = (torch.zeros(0, 2),), SGD(lr=1.0)
    found = server_sgd.train(lambda *args: 1 / 0, params, nothing, sgd, ROUND, "server")
    assert torch.equal(found["w"], params["w"])


def test_a_servers_solver_has_the_clients_rate_unless_told_otherwise():
    local = sgd(clip_norm=50.0)
    found = server_sgd.solver(local, None, 2, 3)
    assert found == SGD(lr=0.1, epochs=2, batch_size=3, clip_norm=50.0)
    assert server_sgd.solver(local, 0.5, 1, 9) == SGD(lr=0.5, batch_size=9, clip_norm=50.0)
