"""A server with data of its own, a probe, and the contract of a method that trains on them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import batches, cross_entropy_of, descend, descent, module_of, owned, values_of
from support import (
    assert_close,
    cohort_of,
    same_bits,
    sgd,
    silently,
    simulation_of,
    tiny_task,
    toy_federation,
    with_server,
)
from torch.nn.functional import cross_entropy

from fedlib import methods, tree
from fedlib.errors import DataError
from fedlib.federation import SPLITS, Federation, Split
from fedlib.methods.fedavg import FedAvg
from fedlib.methods.parts import chosen
from fedlib.report.metrics import definitions
from fedlib.report.metrics.tidy import client_rows, run_rows
from fedlib.results import RunResult, View
from fedlib.run import evaluate
from fedlib.run.simulate import Simulation

SIZES = (7, 12, 6, 10)  # training examples; the last client is unseen
SERVER, PROBE = len(SIZES), len(SIZES) + 1  # their positions in the federation
OWNED = (12, 6, 8)  # the server's training, validation and test examples
NETWORK = {"norm": True, "dropout": 0.3}


def federation(**parts) -> Federation:
    return with_server(toy_federation(SIZES), OWNED, **parts)


def tuned(**network):
    """FedAvg of which the server trains a copy, two epochs a round."""
    task, server = tiny_task(**network), sgd(epochs=2, batch_size=6)
    return methods.load("server_finetuning")(task=task, local=sgd(), server=server)


def simulation(method=None, data=None, **course) -> Simulation:
    course = {"rounds": 4, "seed": 3, "rate": 0.5} | course
    return simulation_of(method or tuned(**NETWORK), data or federation(), **course)


# -- cohorts ---------------------------------------------------------------------------------


def test_everyone_of_a_group_has_a_journal_of_their_own_and_counts_as_a_population():
    cohort = cohort_of(tiny_task(), federation())
    server = cohort.everyone("server")
    assert (server.host_ids.tolist(), server.size, server.population) == ([SERVER], 1, 1)
    assert server.population_examples == OWNED[0]
    assert server.round == cohort.round and server.seed == cohort.seed
    params = server.broadcast(cohort.task.init(0))
    trained, _ = server.fit(cohort.task.loss, params, local=sgd(epochs=3), stream="server/0")
    server.average(trained, cohort.task.init(0))
    assert (cohort.journal.down, cohort.journal.up, cohort.journal.examples) == (0, 0, 0)
    assert not cohort.journal.losses
    # The same journal, however often the round asks.
    assert cohort.everyone("server").journal.examples == 3 * OWNED[0]


def test_a_method_that_needs_a_server_says_so_where_there_is_none():
    run = simulation(data=toy_federation(SIZES))
    with pytest.raises(DataError, match="the federation has no server, which the method needs"):
        silently(run)


def test_a_server_changes_nothing_for_clients_who_do_not_hear_from_it():
    method = FedAvg(task=tiny_task(**NETWORK), local=sgd())
    (alone, without), (beside, with_one) = (
        silently(simulation(method, data)) for data in (toy_federation(SIZES), federation())
    )
    assert same_bits(alone.params, beside.params)
    for view, scores in without.scores.items():
        assert np.array_equal(scores.loss, with_one.scores[view].loss)
    assert np.array_equal(without.bytes_up, with_one.bytes_up)


# -- the contract of a method with a server's cohort -------------------------------------------


def test_two_fits_of_a_server_are_those_of_one_optimiser_and_the_probe_measures_their_model():
    task, data, solver = tiny_task(), federation(), sgd(epochs=2, batch_size=6)
    cohort, module = cohort_of(task, data), module_of(task, task.init(0))
    server, trained = cohort.everyone("server"), tree.broadcast(task.init(0), 1)
    memory, optimiser = solver.memory(task.init(0), PROBE + 1), descent(module.parameters(), solver)
    for stream in ("server/0", "server/1"):
        trained, memory = server.fit(task.loss, trained, local=solver, memory=memory, stream=stream)
        steps = batches(*owned(data, SERVER), solver, 0, stream, SERVER)
        descend([optimiser], steps, cross_entropy_of(module))
    assert_close(tree.take(trained, 0), values_of(module))
    x, y = owned(data, PROBE)
    measured = cohort.everyone("probe").score(task.losses, trained)[0]
    assert_close(measured, cross_entropy(module(x), y, reduction="none").detach())


def test_what_happens_on_the_server_is_told_apart_from_the_clients_work(tmp_path):
    _, result = silently(simulation())
    fedavg = FedAvg(task=tiny_task(**NETWORK), local=sgd())
    _, without = silently(simulation(fedavg, toy_federation(SIZES)))
    for name in ("examples", "bytes_down", "bytes_up", "client_rounds", "train_loss"):
        assert np.array_equal(getattr(result, name), getattr(without, name))
    a_round = 2 * OWNED[0]  # two epochs
    assert result.server_examples.tolist() == [a_round * number for number in range(5)]
    assert without.server_examples is None
    for told, name in ((result, "with.h5"), (without, "without.h5")):
        told.save(tmp_path / name)
        assert np.array_equal(RunResult.load(tmp_path / name).server_examples, told.server_examples)


# -- evaluation and metrics --------------------------------------------------------------------


def test_fedavg_has_an_accuracy_on_the_servers_test_examples():
    method, data = FedAvg(task=tiny_task(), local=sgd()), federation()
    run = simulation(method, data)
    state, history = silently(run)
    views = {view for view in history.scores if view.group == "server"}
    assert views == {View("server", "default", split) for split in ("val", "test")}
    module = method.task.build().double()
    module.load_state_dict(state.params)
    x, y = (torch.from_numpy(pool[data.test.of(SERVER)]) for pool in (data.x, data.y))
    right = (module(x).argmax(1) == y).sum().item()
    final = evaluate.final(method, state, lambda group: run.everyone(group, 4))
    for result in (history, final):
        scores = result.scores[definitions.SERVER]
        assert (scores.correct[-1].tolist(), scores.count.tolist()) == ([right], [OWNED[2]])
        assert scores.clients.tolist() == [SERVER]
    assert View("server", "default", "train") in final.scores


def test_metrics_have_the_server_in_rows_of_its_own_and_never_as_a_client():
    _, history = silently(simulation(FedAvg(task=tiny_task(), local=sgd())))
    rows, clients = run_rows(history), client_rows(history)
    assert {*rows[rows["group"] == "server"]["metric"]} == {"accuracy", "loss"}
    assert {*clients["group"]} == {"seen", "unseen"}
    assert {*clients["client"]} == {*range(len(SIZES))}
    assert {"server_examples"} <= {*rows["metric"]}
    assert definitions.primary(history) == definitions.PRIMARY


def test_the_server_decides_the_best_round_where_no_client_has_a_test_example():
    data = federation()
    of_server = [data.test.of(owner) if owner == SERVER else [] for owner in range(PROBE + 1)]
    _, history = silently(simulation(data=replace(data, test=Split.from_lists(of_server)), seed=9))
    assert definitions.primary(history) == definitions.SERVER
    scores = history.scores[definitions.SERVER]
    assert definitions.best_evaluation(history) == np.argmax(scores.correct[:, 0])
    assert client_rows(history).empty
    with pytest.raises(DataError, match="lacks the views seen/default/test and server/default/te"):
        definitions.primary(replace(history, scores={}))


# -- choosing a model on validation data ---------------------------------------------------------


def test_the_least_loss_chooses_and_a_tie_keeps_the_first():
    losses = [3.0, 1.0, 1.0, 2.0]
    best = chosen.start({"w": torch.zeros(2)})
    assert (best.loss.item(), best.round.item()) == (float("inf"), -1)
    for number, loss in enumerate(losses, 1):
        model = {"w": torch.full((2,), float(number))}
        best = best.update(model, torch.tensor(loss, dtype=torch.float32), number)
    assert (best.loss.item(), best.round.item(), best.params["w"].tolist()) == (1.0, 2, [2.0, 2.0])
    assert best.diagnostics()["selected"].tolist() == [2, 1.0, SPLITS.index("val")]
