"""Fully decentralised runs: clients on a graph average with their neighbours, without a server.

This is a property of a run. A method that lists its shared state in `shared` runs unchanged. Every
client has its own copy of the server's state; after local training, copies are mixed,
theta_i <- sum_j W_ij theta_j.

Source: Marfoq et al., NeurIPS 2021 (D-EM, D-SGD); fastest-mixing weights from Boyd, Diaconis and
Xiao, "Fastest Mixing Markov Chain on a Graph", SIAM Review 2004; Metropolis weights from Xiao,
Boyd and Lall, "A Scheme for Robust Distributed Sensor Fusion", 2005.
Deviation: graphs are drawn again from a random stream until they are connected, and clients give
their own copy a weight; the official code forbids self-loops and fails on an isolated client.
"""

from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from fedlib import streams, tree
from fedlib.engine import simplex
from fedlib.engine.cohort import Cohort
from fedlib.tree import Tree

MAX_GRAPHS = 1000  # attempts at a connected graph


def connected_graph(num_clients: int, edge_probability: float, seed: int) -> nx.Graph:
    """The first connected Erdos-Renyi graph of `seed` itself, then of the stream (seed, "graph").

    Raises:
      ValueError: if there is none within `MAX_GRAPHS` draws: the edge probability is too low.
    """
    for number in (seed, *streams.keys(MAX_GRAPHS - 1, seed, "graph").tolist()):
        graph = nx.gnp_random_graph(num_clients, edge_probability, seed=number)
        if nx.is_connected(graph):
            return graph
    raise ValueError(
        f"no connected graph of {num_clients} clients in {MAX_GRAPHS} draws with edge_probability "
        f"{edge_probability}; take a larger one"
    )


def metropolis(graph: nx.Graph) -> np.ndarray:
    """W_ij = 1 / (1 + max(degree of i, degree of j)) for neighbours -> [C, C]"""
    links = nx.to_numpy_array(graph)
    degree = links.sum(1)
    weights = links / (1 + np.maximum.outer(degree, degree))
    np.fill_diagonal(weights, 1 - weights.sum(1))
    return weights


def fastest(graph: nx.Graph, steps: int = 500) -> np.ndarray:
    """Weights with (nearly) the least second-largest eigenvalue modulus on `graph` -> [C, C]

    They are symmetric, not negative and zero without an edge, and rows sum to 1. The projected
    subgradient method of Boyd, Diaconis and Xiao, section 4.2, from the Metropolis weights; the
    best of `steps` iterates.
    """
    edges = np.array(graph.edges, np.int64).reshape(-1, 2)  # a single client has none
    own = [np.flatnonzero((edges == client).any(1)) for client in range(len(graph))]
    best, least = metropolis(graph), np.inf
    weights, w = best, best[edges[:, 0], edges[:, 1]]
    for step in range(1, steps + 2):
        values, vectors = np.linalg.eigh(weights - 1 / len(graph))
        extreme = np.argmax(np.abs(values))
        u = vectors[:, extreme]
        if abs(values[extreme]) < least:
            best, least = weights, abs(values[extreme])
        # The modulus grows with the edge's weight at the rate -sign (u_i - u_j)^2.
        slope = -np.sign(values[extreme]) * (u[edges[:, 0]] - u[edges[:, 1]]) ** 2
        w = _feasible(w - slope / max(np.linalg.norm(slope), 1e-12) / step, own)
        weights = _with_loops(w, edges, len(graph))
    return best


@dataclass(frozen=True)
class GossipCohort(Cohort):
    """A cohort without a server: shared state has a copy per client, leaves [num_clients, ...].

    Attributes:
      mixing: [population, population] weights, in the order of `members`.
      members: [population] positions of the clients on the graph.
    """

    mixing: Tensor | None = None
    members: Tensor | None = None

    def held(self, shared: Tree) -> Tree:
        """Each client's own copy; clients outside the graph get the uniform average of copies."""
        if torch.isin(self.ids, self.members).all():
            return tree.take(shared, self.ids)
        uniform = torch.ones_like(self.members, dtype=torch.float64)
        return tree.broadcast(tree.mean(tree.take(shared, self.members), uniform), self.size)

    def broadcast(self, shared: Tree) -> Tree:
        """As `held`, because nothing is sent down: clients start from their own copies."""
        return self.held(shared)

    def average(self, trained: Tree, previous: Tree) -> Tree:
        """Each client's copy after mixing with those of its neighbours."""
        links = int((self.mixing > 0).sum()) - int((self.mixing.diagonal() > 0).sum())
        self.journal.up += tree.numel(tree.take(trained, 0)) * links
        order = torch.argsort(self.ids)  # the graph's order is ascending
        mixed = tree.combine(tree.take(trained, order), self.mixing)
        return tree.put(previous, self.members, mixed)

    def _total(self, values: Tree, among: np.ndarray | None) -> Tree:
        """Each client's copy, because there is no server to add them up.

        Raises:
          ValueError: for some of the clients, as each has its copy.
        """
        if among is not None:
            raise ValueError("a total of some clients needs a server, and there is none")
        return values


def replicate(state: Any, shared: tuple[str, ...], num_clients: int) -> Any:
    """A method's state with a copy of its fields `shared` for every client."""
    copies = {name: tree.repeat(getattr(state, name), num_clients) for name in shared}
    return state._replace(**copies)


def _with_loops(w: np.ndarray, edges: np.ndarray, size: int) -> np.ndarray:
    """The matrix with weights `w` on the edges, and a diagonal that makes rows sum to 1."""
    weights = np.zeros((size, size))
    weights[edges[:, 0], edges[:, 1]] = weights[edges[:, 1], edges[:, 0]] = w
    np.fill_diagonal(weights, 1 - weights.sum(1))
    return weights


def _feasible(w: np.ndarray, own: list[np.ndarray]) -> np.ndarray:
    """Edge weights that are not negative, and sum to at most 1 at every client.

    The sequential projection of Boyd, Diaconis and Xiao: client by client, if the sum exceeds 1,
    all positive weights are lowered by the same amount until they sum to 1.
    """
    w = np.maximum(w, 0)
    for at in own:  # the edges of each client
        if w[at].sum() > 1:
            w[at] = simplex.project(torch.from_numpy(w[at])).numpy()
    return w
