"""pFedMe of the paper: FedAvg on the Moreau envelopes of the clients' losses.

    h(theta; w) = f(theta) + lam / 2 ||theta - w||^2      on one mini-batch
    client  theta <- inner_steps gradient steps on h(.; w), from w
            w <- w - lr lam (w - theta)                   for every mini-batch
    server  w <- (1 - beta) w + beta average of the clients' w

lam (w - theta) is the gradient of the envelope min_theta h(theta; w), so the client's step is
written as a gradient step on the envelope. A client predicts with its personal model theta, which
it computes from the server's w.

Source: Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020,
Algorithm 1.
Official code: CharlieDinh/pFedMe, FLAlgorithms/users/userpFedMe.py.
Deviation: clients are weighted by their numbers of examples. Personal models are computed at
evaluations, by inner steps on every mini-batch of one run of the solver. The official code keeps
the theta of the last mini-batch, and starts each theta from the previous one instead of w.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.func import grad

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Range
from fedlib.methods.one_model import OneModel, State


@dataclass(frozen=True, kw_only=True)
class PFedMeMoreau(OneModel):
    """One model, and a few proximal steps from it to each client's personal model.

    Attributes:
      local: solver of w; its learning rate is the paper's eta, its number of steps the paper's R.
      lam: the paper's lambda, strength of the pull of w on theta, at least 0. 1 / inner_lr with one
        inner step is FedAvg.
      inner_lr: learning rate of theta, at least 0.
      inner_steps: the paper's K, gradient steps on every mini-batch, at least 1.
      beta: how far the server moves towards the average, at least 0: 1 is all the way, more than 1
        is beyond it.
    """

    lam: float
    inner_lr: float
    inner_steps: int = 5
    beta: float = 1.0

    look = "pFedMe (Moreau)", "#117733", "8", "dashdot"
    ranges: ClassVar = {
        "inner_steps": Range(1),
        **dict.fromkeys(("lam", "inner_lr", "beta"), Range(0)),
    }
    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {"default": "server"}}
    final_protocols: ClassVar = {"seen": {"server": "server"}, "unseen": {"theta": "personalise"}}

    def round(self, state: State, cohort: Cohort) -> State:
        """Clients descend their envelopes; the server moves towards their average."""
        start = cohort.broadcast(state.params)
        sent, memory = cohort.fit(
            self.envelope, start, local=self.local, memory=state.memory, returns=Cohort.total
        )
        average = cohort.average(sent, state.params)
        average, statistics = tree.partition(average, self.task.is_statistic)
        w = self.task.trainable(state.params)
        w = tree.add(w, tree.sub(average, w), self.beta)
        return State(tree.merge(w, statistics), memory)

    def envelope(self, params: Params, batch: Batch) -> Tensor:
        """The envelope at w, with constant theta, so its gradient is lam (w - theta) -> []"""
        w, statistics = tree.partition(params, self.task.is_statistic)
        constant = tree.map(Tensor.detach, w)
        return self.h(self.prox(tree.merge(constant, statistics), constant, batch), w, batch)

    def prox(self, theta: Params, w: Params, batch: Batch) -> Params:
        """One client's theta after the inner steps on a batch."""
        theta, statistics = tree.partition(theta, self.task.is_statistic)
        for _ in range(self.inner_steps):
            gradient = grad(lambda x: self.h(tree.merge(x, statistics), w, batch))(theta)
            theta = tree.add(theta, gradient, -self.inner_lr)
        return tree.merge(theta, statistics)

    def h(self, theta: Params, w: Params, batch: Batch) -> Tensor:
        """The loss at theta plus the proximal term -> []"""
        away = tree.sub(self.task.trainable(theta), w)
        return self.task.loss(theta, batch) + self.lam / 2 * tree.sqnorm(away)

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """Each client's theta, from the server's model."""
        start = cohort.broadcast(state.params)
        w = self.task.trainable(start)
        return cohort.scan(self.prox, start, w, local=self.local, stream="personalise")

    def server(self, state: State, cohort: Cohort) -> Params:
        """The server's model."""
        return cohort.broadcast(state.params)
