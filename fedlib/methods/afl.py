"""AFL: one model, trained for the worst mixture of the clients' data.

    client  loss F_k and gradient g_k of one mini-batch at the received model w
    server  a step of w along sum_k lambda_k g_k
            lambda <- projection of lambda + lr_lambda * F onto the simplex

Source: Mohri et al., "Agnostic Federated Learning", ICML 2019.
Official code: omarfoq/FedEM, aggregator.py (AgnosticAggregator), also used by pFedMM.
Deviation: that code adds the losses, which are in the random order of the sampled clients, to
weights in the order of client numbers, so lambda goes to the wrong clients even if all take part;
here each client's loss moves its own. The server steps with the run's solver, including momentum,
weight decay and schedule. Absent clients have a gradient of 0, whatever the run's `aggregation` is,
and keep their lambda; the lambdas of the cohort are projected onto the simplex with the same sum as
before. Running statistics are averaged as in FedAvg, not by lambda.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import grad_and_value

from fedlib import tree
from fedlib.engine import simplex
from fedlib.engine.cohort import Cohort
from fedlib.engine.parts import Total
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import LogUniform, Method, Range
from fedlib.tree import Rows


class State(NamedTuple):
    """The server's model, the clients' weights, and the memory of the server's solver."""

    params: Params
    lambdas: Tensor  # [num_clients] sums to 1, 0 for unseen clients; all 0 before the first round
    server: Memory  # of a single solver: leaves [1, ...]


@dataclass(frozen=True, kw_only=True)
class AFL(Method):
    """One model for all clients, trained with learned weights of the clients.

    Attributes:
      local: the SERVER's solver, one step per round; its `batch_size` is that of the clients'
        mini-batches.
      lr_lambda: learning rate of lambda, at least 0. With 0 each client's weight is its share of
        the examples, which is mini-batch SGD on all data; 0 is the default of pFedMM's code.
    """

    lr_lambda: float = 0.0

    look = "AFL", "#AA4499", "d", "dotted"
    ranges: ClassVar = {"lr_lambda": Range(0)}
    SPACE: ClassVar = {"lr_lambda": LogUniform(1e-3, 1)}

    def __post_init__(self):
        """Raises ValueError unless the solver takes one step per round and keeps its memory."""
        Method.__post_init__(self)
        epochs, steps, keeps = self.local.epochs, self.local.steps, self.local.keeps
        if (epochs, steps or 1, keeps) != (1, 1, "run"):
            raise ValueError(
                "AFL takes one step per round with one solver for the whole run: epochs must be 1, "
                f"steps 1 or absent and keeps 'run', got {epochs}, {steps} and {keeps!r}"
            )

    def init(self, num_clients: int, seed: int) -> State:
        """A new model; the solver's memory is empty."""
        params = self.task.init(seed)
        weights = self.task.trainable(params)
        lambdas = next(iter(weights.values())).new_zeros(num_clients)
        return State(params, lambdas, self.local.memory(weights, 1))

    def round(self, state: State, cohort: Cohort) -> State:
        """Loss and gradient of every client, then the server's steps of w and lambda."""
        lambdas = state.lambdas if cohort.round else self.shares(cohort)
        losses, gradient, statistics = self.examine(state.params, lambdas, cohort)
        cohort.journal.add(cohort.host_ids, losses)  # the recorded training loss

        w, old_statistics = tree.partition(state.params, self.task.is_statistic)
        w, server = self.descend(w, gradient.sum, state.server, cohort.round)
        statistics = cohort.average(statistics, old_statistics)
        own = lambdas[cohort.ids]
        own = simplex.project(own + self.lr_lambda * losses, own.sum())
        return State(tree.merge(w, statistics), cohort.put(lambdas, own), server)

    def examine(
        self, params: Params, lambdas: Tensor, cohort: Cohort
    ) -> tuple[Tensor, Total, Total]:
        """(losses [C], sums of gradients and of running statistics) on a mini-batch of each client.

        Gradients are weighted by `lambdas` [num_clients].
        """

        def step(carry: tuple, w: Params, own: Tensor, batch: Batch) -> tuple:
            *_, statistics = carry

            def loss(w: Params) -> tuple[Tensor, Params]:
                renewed = tree.clone(statistics)  # the forward pass changes them in place
                return self.task.loss(tree.merge(w, renewed), batch), renewed

            gradient, (value, renewed) = grad_and_value(loss, has_aux=True)(w)
            return value, tree.map(lambda g: own.to(g.dtype) * g, gradient), renewed

        def returns(part: Cohort, examined: tuple) -> tuple:
            losses, gradients, statistics = examined
            return losses, Total(gradients, np.ones(part.size)), part.total(statistics)

        w, statistics = tree.partition(params, self.task.is_statistic)
        nothing = cohort.held(tree.map(torch.zeros_like, w))  # of a client without examples
        w, statistics = cohort.broadcast((w, statistics))
        start = lambdas.new_zeros(cohort.size), nothing, statistics
        how = {"local": replace(self.local, steps=1), "stream": "fit", "returns": returns}
        losses, gradient, statistics = cohort.scan(step, start, w, lambdas[cohort.ids], **how)
        cohort.collect((losses, gradient))
        return losses, gradient, statistics

    def descend(
        self, w: Params, gradient: Params, server: Memory, round: int
    ) -> tuple[Params, Memory]:
        """One step of the server's solver."""
        lr = self.local.rates(server.epochs, round)[0, 0].to(self.task.dtype)
        w, buffers = self.local.step(w, gradient, server.buffers[0], lr)
        return w, Memory(Rows((buffers,)), server.epochs + 1)

    def shares(self, cohort: Cohort) -> Tensor:
        """Initial lambda: each seen client's share of the training examples."""
        seen = cohort.seen()
        shares = (seen.num_examples / seen.num_examples.sum()).to(self.task.dtype)
        return seen.put(shares.new_zeros(cohort.data.federation.num_clients), shares)

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The server's model, for seen and unseen clients."""
        return cohort.broadcast(state.params)

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Weights of all clients [num_clients]."""
        return {"lambda": state.lambdas}
