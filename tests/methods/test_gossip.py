"""Decentralised runs: graphs, weights, and methods that mix instead of averaging (section 2.14)."""

import networkx as nx
import numpy as np
import pytest
import torch
from every_method import make
from support import EXECUTORS, assert_close, simulation_of, toy_federation

from fedlib import methods, streams, tree
from fedlib.engine.gossip import connected_graph, fastest, metropolis

GRAPHS = {
    "random": connected_graph(12, 0.3, seed=5),
    "path": nx.path_graph(6),
    "star": nx.star_graph(5),
    "complete": nx.complete_graph(7),
}
DECENTRALISED = "apfl fedavg fedprox fedem pfedmm gated_experts moe_fedavg".split()
SIZES = (7, 12, 6, 10, 8)


def slem(weights):
    """Second-largest eigenvalue modulus: the share of a disagreement that one mixing leaves."""
    return np.abs(np.linalg.eigvalsh(weights - 1 / len(weights))).max()


def simulation(name, executor="loop", sizes=SIZES, rounds=3, **course):
    method = make(name, norm=True)
    course = {"rounds": rounds, "aggregation": "gossip"} | course
    return simulation_of(method, toy_federation(sizes=sizes), executor, **course)


def run(*args, **options):
    return simulation(*args, **options).run(report=lambda line: None)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("weights_of", [fastest, metropolis])
def test_weights_are_symmetric_stochastic_and_zero_between_strangers(graph, weights_of):
    graph = GRAPHS[graph]
    weights = weights_of(graph)
    assert np.array_equal(weights, weights.T)
    assert weights.min() >= -1e-12  # rounding of 1 minus a row's sum
    np.testing.assert_allclose(weights.sum(1), 1)
    strangers = nx.to_numpy_array(graph) + np.eye(len(graph)) == 0
    assert not weights[strangers].any()
    assert slem(weights) < 1


def test_fastest_weights_on_graphs_with_a_known_optimum():
    # Boyd, Diaconis and Xiao: on a path of n, 1/2 per edge gives cos(pi / n); on a complete graph
    # uniform weights mix in one step.
    assert slem(fastest(GRAPHS["path"])) == pytest.approx(np.cos(np.pi / 6), abs=1e-3)
    assert slem(fastest(GRAPHS["complete"])) == pytest.approx(0, abs=1e-6)


def test_a_graph_with_an_isolated_client_is_drawn_again():
    # Section 2.14: G(5, 0.5) of seed 1234 leaves vertex 1 alone.
    drawn = nx.gnp_random_graph(5, 0.5, seed=1234)
    assert sorted(drawn.edges) == [(0, 2), (0, 3), (2, 3), (3, 4)]
    graph = connected_graph(5, 0.5, seed=1234)
    assert nx.is_connected(graph)
    seeds = streams.keys(60, 1234, "graph").tolist()
    graphs = (nx.gnp_random_graph(5, 0.5, seed=seed) for seed in seeds)
    assert sorted(graph.edges) == sorted(next(filter(nx.is_connected, graphs)).edges)


def test_a_graph_that_cannot_be_connected_is_an_error():
    with pytest.raises(ValueError, match="no connected graph of 30 clients .* 0.001"):
        connected_graph(30, 0.001, seed=0)


@pytest.mark.parametrize("name", DECENTRALISED)
def test_uniform_mixing_is_server_averaging_of_equal_clients(name):
    # On a complete graph every weight is 1/C: with clients of one size that is FedAvg's average.
    how = {"aggregation": "damped"}, {"edge_probability": 1.0}
    server, graph = (
        run(name, executor, sizes=(8, 8, 8, 8), **settings)[0]
        for executor, settings in zip(EXECUTORS, how, strict=True)
    )
    [shared] = methods.load(name).shared
    for client in range(3):  # the seen ones
        assert_close(tree.take(getattr(graph, shared), client), getattr(server, shared), 1e-9)


def test_the_order_of_the_cohort_does_not_matter():
    run = simulation("fedavg", sizes=(7, 12, 6, 8, 11, 10, 8), edge_probability=0.3)
    start, ids = run.init(), run.federation.ids("seen")
    assert (run.cohort(ids, 0).mixing == 0).any()  # not all are neighbours
    orders = ids, ids[::-1], ids[[2, 0, 3, 1, 5, 4]]
    ends = [run.method.round(start, run.cohort(order.copy(), 0)) for order in orders]
    for other in ends[1:]:
        assert_close(ends[0].params, other.params)


def test_unseen_clients_get_the_uniform_average_of_the_copies():
    simulated = simulation("fedavg")
    state, _ = simulated.run(report=lambda line: None)
    personal = simulated.method.personalise(state, simulated.everyone("unseen", 3))
    seen = torch.from_numpy(simulated.federation.ids("seen"))
    for name, copies in state.params.items():
        torch.testing.assert_close(personal[name][0], copies[seen].mean(0))


def test_a_client_without_neighbours_trains_alone():
    alone, _ = run("fedavg", sizes=(7, 12))
    served, _ = run("fedavg", sizes=(7, 12), aggregation="damped")
    assert_close(tree.take(alone.params, 0), served.params, 1e-12)


def test_every_client_sends_its_copy_to_each_neighbour():
    simulated = simulation("fedavg", sizes=(*SIZES, 7, 8, 6), rounds=2, edge_probability=0.5)
    state, result = simulated.run(report=lambda line: None)
    graph = connected_graph(len(simulated.federation.ids("seen")), 0.5, seed=0)
    floats = tree.numel(tree.take(state.params, 0))
    weights = fastest(graph)
    messages = 2 * sum(weights[edge] > 0 for edge in graph.edges)
    # Four bytes per number, in two rounds; weights that came out 0 send nothing.
    assert result.bytes_up.tolist() == [number * messages * 4 * floats for number in range(3)]
    assert 0 < messages <= 2 * graph.number_of_edges() < 7 * 6  # not all are neighbours
    assert result.bytes_down[-1] == 0


def test_a_method_that_needs_a_server_is_refused():
    with pytest.raises(ValueError, match="Local needs a server"):
        simulation("local")
